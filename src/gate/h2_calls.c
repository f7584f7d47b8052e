// SPDX-License-Identifier: Apache-2.0
#define H2_CALLS_PLAIN
#include "gate/h2_calls.h"

#ifdef PENSTOCK_BUNDLE
int h2_calls_load(struct error *err) {
    (void)err;
    return 0;
}
#else
#define H2_CALLS_ROW(name) LIBRARY_ROW(struct h2_calls, name)

struct h2_calls h2_calls;

int h2_calls_load(struct error *err) {
    static const struct library_call rows[] = {H2_CALLS(H2_CALLS_ROW)};
    return library_load("libnghttp2.so.14", rows, sizeof(rows) / sizeof(rows[0]), &h2_calls, err);
}
#endif
