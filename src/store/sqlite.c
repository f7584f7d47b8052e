// SPDX-License-Identifier: Apache-2.0
#define SQLITE_NAMES_PLAIN // the table has the functions' own names
#include "store/sqlite.h"

#include "base/mem.h"

struct sqlite_calls sqlite_calls;

#define SQLITE_LIST_ROW(name) LIBRARY_ROW(struct sqlite_calls, name)
static const struct library_call sqlite_list[] = {SQLITE_CALLS(SQLITE_LIST_ROW)};

int sqlite_load(struct error *err) {
    return library_load("libsqlite3.so.0", sqlite_list, ARRAY_LENGTH(sqlite_list), &sqlite_calls, err);
}
