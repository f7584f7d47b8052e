// SPDX-License-Identifier: Apache-2.0
#include "base/library.h"

#include <dlfcn.h>
#include <errno.h>

int library_load(const char *soname, const struct library_call *list, size_t count, void *calls, struct error *err) {
    void *library = dlopen(soname, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; library && i < count; i++) {
        void *symbol = dlsym(library, list[i].name);
        if (!symbol) return error_set(err, -ENOPKG, "library %s has no %s; install a newer version", soname, list[i].name);
        memcpy((char *)calls + list[i].offset, &symbol, sizeof(symbol));
    }
    if (library) return 0;
    const char *why = dlerror();
    return error_set(err, -ENOPKG, "library %s cannot be loaded: %s; install it", soname, why ? why : "unknown");
}
