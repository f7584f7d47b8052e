// SPDX-License-Identifier: Apache-2.0
// The names of the stored secrets.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>

#include "base/mem.h"
#include "vault/secret_store.h"
#include "vault/state_folder.h"
#include "vault/vault.h"

static int compare(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static int add_name(char ***names, size_t *count, const char *name) {
    if (secret_store_name(name, NULL) < 0) return 0; // lock, key, a file that is being written
    char **more = reallocarray(*names, *count + 1, sizeof(**names));
    if (!more) return -ENOMEM;
    *names = more;
    more[*count] = strdup(name);
    if (!more[*count]) return -ENOMEM;
    ++*count;
    return 0;
}

void vault_secret_list_free(char **names, size_t count) {
    for (size_t i = 0; i < count; i++) free(names[i]);
    free(names);
}

int vault_secret_list(char ***ret_names, size_t *ret_count, struct error *err) {
    struct state_folder folder;
    char **names = NULL;
    size_t count = 0;
    int r = state_folder_open(SECRET_STORE_FOLDER, false, &folder, err);
    if (r < 0 && r != -ENOENT) return r;
    if (r == 0) {
        DIR *directory = fdopendir(fcntl(folder.fd, F_DUPFD_CLOEXEC, 3));
        if (!directory) r = -errno;
        for (struct dirent *entry; r == 0 && (entry = readdir(directory));) r = add_name(&names, &count, entry->d_name);
        if (directory) closedir(directory);
        if (r < 0) error_set(err, r, "\"%s\": %s", folder.path, strerror(-r));
        state_folder_close(&folder);
        if (r < 0) {
            vault_secret_list_free(names, count);
            return r;
        }
    }
    if (names) qsort(names, count, sizeof(*names), compare);
    *ret_names = names;
    *ret_count = count;
    return 0;
}
