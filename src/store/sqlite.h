// SPDX-License-Identifier: Apache-2.0
// SQLite, loaded when the store is opened (base/library.h): the other roles of this program need none of it. In a file that
// includes this header its functions are called by their own names. Private to the store room.
#pragma once

#include <sqlite3.h>

#include "base/library.h"

#define SQLITE_CALLS(X) \
    X(sqlite3_bind_int64) X(sqlite3_bind_null) X(sqlite3_bind_text) X(sqlite3_changes) X(sqlite3_clear_bindings) \
    X(sqlite3_close) X(sqlite3_column_int64) X(sqlite3_column_text) X(sqlite3_column_type) X(sqlite3_db_config) \
    X(sqlite3_errmsg) X(sqlite3_exec) X(sqlite3_extended_errcode) X(sqlite3_finalize) X(sqlite3_get_autocommit) \
    X(sqlite3_open_v2) X(sqlite3_prepare_v3) X(sqlite3_reset) X(sqlite3_busy_timeout) X(sqlite3_step) \
    X(sqlite3_total_changes)

struct sqlite_calls {
    SQLITE_CALLS(LIBRARY_MEMBER)
};
extern struct sqlite_calls sqlite_calls;

// 0, or -ENOPKG with a message.
int sqlite_load(struct error *err);

#ifndef SQLITE_NAMES_PLAIN
#define sqlite3_bind_int64 (sqlite_calls.sqlite3_bind_int64)
#define sqlite3_bind_null (sqlite_calls.sqlite3_bind_null)
#define sqlite3_bind_text (sqlite_calls.sqlite3_bind_text)
#define sqlite3_busy_timeout (sqlite_calls.sqlite3_busy_timeout)
#define sqlite3_changes (sqlite_calls.sqlite3_changes)
#define sqlite3_clear_bindings (sqlite_calls.sqlite3_clear_bindings)
#define sqlite3_close (sqlite_calls.sqlite3_close)
#define sqlite3_column_int64 (sqlite_calls.sqlite3_column_int64)
#define sqlite3_column_text (sqlite_calls.sqlite3_column_text)
#define sqlite3_column_type (sqlite_calls.sqlite3_column_type)
#define sqlite3_db_config (sqlite_calls.sqlite3_db_config)
#define sqlite3_errmsg (sqlite_calls.sqlite3_errmsg)
#define sqlite3_exec (sqlite_calls.sqlite3_exec)
#define sqlite3_extended_errcode (sqlite_calls.sqlite3_extended_errcode)
#define sqlite3_finalize (sqlite_calls.sqlite3_finalize)
#define sqlite3_get_autocommit (sqlite_calls.sqlite3_get_autocommit)
#define sqlite3_open_v2 (sqlite_calls.sqlite3_open_v2)
#define sqlite3_prepare_v3 (sqlite_calls.sqlite3_prepare_v3)
#define sqlite3_reset (sqlite_calls.sqlite3_reset)
#define sqlite3_step (sqlite_calls.sqlite3_step)
#define sqlite3_total_changes (sqlite_calls.sqlite3_total_changes)
#endif
