// SPDX-License-Identifier: Apache-2.0
// Theory of operation: one connection that holds the file's lock for as long as it is open (locking_mode=EXCLUSIVE, so the
// index of the WAL is in memory and nobody else can write). Statements are prepared once and kept by their text. Every
// change is between database_begin and database_finish; what fails in between is rolled back. The step hook is called at
// each of these points, where a test ends the process.
#include "store/database.h"

#include <errno.h>
#include <stdarg.h>

#include "base/buf.h"
#include "base/mem.h"

static int errno_of(int code) {
    switch (code & 0xff) {
    case SQLITE_NOMEM:
        return -ENOMEM;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return -EBUSY;
    case SQLITE_FULL:
        return -ENOSPC;
    case SQLITE_READONLY:
    case SQLITE_PERM:
        return -EACCES;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return -EBADMSG;
    case SQLITE_CONSTRAINT:
        return code == SQLITE_CONSTRAINT_UNIQUE || code == SQLITE_CONSTRAINT_PRIMARYKEY ? -EEXIST : -EINVAL;
    default: // a number of another project
        return -EIO;
    }
}

int database_fail(struct store *store, struct error *err) {
    int r = errno_of(sqlite3_extended_errcode(store->db));
    return error_set(err, r, "the store: %s", sqlite3_errmsg(store->db));
}

static void step(const struct store *store) {
    if (store->step) store->step(store->step_data);
}

// ---- statements ----

int database_prepare(struct store *store, const char *sql, sqlite3_stmt **ret_statement, struct error *err) {
    for (size_t i = 0; i < store->statement_count; i++) {
        struct database_statement *kept = &store->statements[i];
        if (kept->busy || strcmp(kept->sql, sql) != 0) continue;
        kept->busy = true;
        *ret_statement = kept->statement;
        return 0;
    }
    sqlite3_stmt *statement = NULL;
    if (sqlite3_prepare_v3(store->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, NULL) != SQLITE_OK)
        return database_fail(store, err);
    char *copy = store->statement_count < DATABASE_STATEMENTS_MAX ? strdup(sql) : NULL;
    if (copy) store->statements[store->statement_count++] = (struct database_statement){copy, statement, true};
    *ret_statement = statement;
    return 0;
}

void database_end(struct store *store, sqlite3_stmt *statement) {
    for (size_t i = 0; i < store->statement_count; i++) {
        if (store->statements[i].statement != statement) continue;
        sqlite3_reset(statement);
        sqlite3_clear_bindings(statement);
        store->statements[i].busy = false;
        return;
    }
    sqlite3_finalize(statement);
}

int database_bind(struct store *store, sqlite3_stmt *statement, const struct database_value *values, size_t count,
                  struct error *err) {
    for (size_t i = 0; i < count; i++) {
        int index = (int)i + 1;
        int code = values[i].text ? sqlite3_bind_text(statement, index, values[i].text, -1, SQLITE_STATIC)
                                  : sqlite3_bind_int64(statement, index, values[i].number);
        if (code != SQLITE_OK) return database_fail(store, err);
    }
    return 0;
}

int database_step(struct store *store, sqlite3_stmt *statement, struct error *err) {
    int code = sqlite3_step(statement);
    if (code == SQLITE_ROW) return 1;
    return code == SQLITE_DONE ? 0 : database_fail(store, err);
}

static int bind_list(struct store *store, sqlite3_stmt *statement, const char *types, va_list args, struct error *err) {
    for (int i = 0; types[i]; i++) {
        int code;
        if (types[i] == 't') {
            const char *text = va_arg(args, const char *);
            code = text ? sqlite3_bind_text(statement, i + 1, text, -1, SQLITE_STATIC) : sqlite3_bind_null(statement, i + 1);
        } else {
            code = sqlite3_bind_int64(statement, i + 1, va_arg(args, int64_t));
        }
        if (code != SQLITE_OK) return database_fail(store, err);
    }
    return 0;
}

// Prepares, binds and steps once; *ret_statement is to be ended whatever is returned, unless it is NULL.
static int start(struct store *store, const char *sql, const char *types, va_list args, sqlite3_stmt **ret_statement,
                 struct error *err) {
    int r = database_prepare(store, sql, ret_statement, err);
    if (r == 0) r = bind_list(store, *ret_statement, types, args, err);
    return r < 0 ? r : database_step(store, *ret_statement, err);
}

static int run_list(struct store *store, const char *sql, const char *types, va_list args, struct error *err) {
    sqlite3_stmt *statement = NULL;
    int r = start(store, sql, types, args, &statement, err);
    if (r >= 0) r = sqlite3_changes(store->db);
    if (statement) database_end(store, statement);
    step(store);
    return r;
}

int database_run(struct store *store, struct error *err, const char *sql, const char *types, ...) {
    va_list args;
    va_start(args, types);
    int r = run_list(store, sql, types, args, err);
    va_end(args);
    return r;
}

int database_change(struct store *store, enum database_sync sync, struct error *err, const char *sql, const char *types,
                    ...) {
    int r = database_begin(store, sync, err);
    if (r < 0) return r;
    va_list args;
    va_start(args, types);
    r = run_list(store, sql, types, args, err);
    va_end(args);
    return database_finish(store, r == 0 ? -ENOENT : r, err);
}

int database_number(struct store *store, struct error *err, int64_t *ret_number, const char *sql, const char *types, ...) {
    sqlite3_stmt *statement = NULL;
    va_list args;
    va_start(args, types);
    int r = start(store, sql, types, args, &statement, err);
    va_end(args);
    if (r > 0 && sqlite3_column_type(statement, 0) == SQLITE_NULL) r = 0;
    if (r > 0) *ret_number = sqlite3_column_int64(statement, 0);
    if (statement) database_end(store, statement);
    return r;
}

// ---- transactions ----

int database_begin(struct store *store, enum database_sync sync, struct error *err) {
    static const char *const settings[] = {[DATABASE_LATER] = "PRAGMA synchronous=NORMAL",
                                           [DATABASE_SYNC] = "PRAGMA synchronous=FULL"};
    step(store);
    if (sync != store->sync && sqlite3_exec(store->db, settings[sync], NULL, NULL, NULL) != SQLITE_OK)
        return database_fail(store, err);
    store->sync = sync;
    if (sqlite3_exec(store->db, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK) return database_fail(store, err);
    step(store);
    return 0;
}

int database_finish(struct store *store, int result, struct error *err) {
    step(store);
    if (result >= 0) {
        result = sqlite3_exec(store->db, "COMMIT", NULL, NULL, NULL) == SQLITE_OK ? 0 : database_fail(store, err);
        step(store);
    }
    // Some errors have rolled back by themselves.
    if (result < 0 && !sqlite3_get_autocommit(store->db)) sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
    return result;
}

// ---- rows ----

static void *field(const struct database_column *column, void *row) { return (char *)row + column->offset; }

void database_row_done(const struct database_table *table, void *row) {
    for (size_t i = 0; i < table->count; i++)
        if (table->columns[i].kind == DATABASE_TEXT) free(*(char **)field(&table->columns[i], row));
    memset(row, 0, table->row_size);
}

static int bind_field(sqlite3_stmt *statement, int index, const struct database_column *column, const void *row) {
    const void *at = (const char *)row + column->offset;
    switch (column->kind) {
    case DATABASE_TEXT: {
        const char *text = *(char *const *)at;
        return text ? sqlite3_bind_text(statement, index, text, -1, SQLITE_STATIC) : sqlite3_bind_null(statement, index);
    }
    case DATABASE_I64:
    case DATABASE_U64:
        return sqlite3_bind_int64(statement, index, *(const int64_t *)at);
    case DATABASE_U32:
        return sqlite3_bind_int64(statement, index, *(const uint32_t *)at);
    case DATABASE_BOOL:
        return sqlite3_bind_int64(statement, index, *(const bool *)at);
    case DATABASE_ENUM:
        return sqlite3_bind_text(statement, index, column->words[*(const unsigned *)at], -1, SQLITE_STATIC);
    }
    return SQLITE_MISUSE;
}

int database_copy_text(sqlite3_stmt *statement, int column, char **ret_text) {
    if (sqlite3_column_type(statement, column) == SQLITE_NULL) {
        *ret_text = NULL;
        return 0;
    }
    const unsigned char *text = sqlite3_column_text(statement, column);
    *ret_text = text ? strdup((const char *)text) : NULL;
    return *ret_text ? 0 : -ENOMEM;
}

static int read_enum(sqlite3_stmt *statement, int index, const struct database_column *column, unsigned *ret_value) {
    const char *text = (const char *)sqlite3_column_text(statement, index);
    for (unsigned i = 0; text && column->words[i]; i++) {
        if (strcmp(text, column->words[i]) != 0) continue;
        *ret_value = i;
        return 0;
    }
    return -EBADMSG;
}

static int read_field(sqlite3_stmt *statement, int index, const struct database_column *column, void *row) {
    void *at = field(column, row);
    switch (column->kind) {
    case DATABASE_TEXT:
        return database_copy_text(statement, index, at);
    case DATABASE_I64:
    case DATABASE_U64:
        *(int64_t *)at = sqlite3_column_int64(statement, index);
        return 0;
    case DATABASE_U32:
        *(uint32_t *)at = (uint32_t)sqlite3_column_int64(statement, index);
        return 0;
    case DATABASE_BOOL:
        *(bool *)at = sqlite3_column_int64(statement, index) != 0;
        return 0;
    case DATABASE_ENUM:
        return read_enum(statement, index, column, at);
    }
    return -EINVAL;
}

static int read_row(sqlite3_stmt *statement, const struct database_table *table, void *row, struct error *err) {
    memset(row, 0, table->row_size);
    int r = 0;
    for (size_t i = 0; r == 0 && i < table->count; i++) r = read_field(statement, (int)i, &table->columns[i], row);
    if (r == 0) return 0;
    database_row_done(table, row);
    return error_set(err, r, "the store: a row of %s cannot be read: %s", table->name,
                     r == -ENOMEM ? "out of memory" : "it holds a word that this version does not know");
}

void database_select(const struct database_table *table, struct buf *sql) {
    for (size_t i = 0; i < table->count; i++) buf_printf(sql, "%s%s", i ? "," : "SELECT ", table->columns[i].name);
    buf_printf(sql, " FROM %s ", table->name);
}

int database_insert(struct store *store, const struct database_table *table, const void *row, struct error *err) {
    struct buf names = BUF_INIT, marks = BUF_INIT, sql = BUF_INIT;
    sqlite3_stmt *statement = NULL;
    for (size_t i = 0; i < table->count; i++) {
        if (table->columns[i].read_only) continue;
        buf_printf(&names, "%s%s", names.len ? "," : "", table->columns[i].name);
        buf_printf(&marks, "%s?", marks.len ? "," : "");
    }
    buf_printf(&sql, "INSERT INTO %s(%s) VALUES(%s)", table->name, names.data ? names.data : "", marks.data ? marks.data : "");
    bool failed = sql.failed || names.failed || marks.failed;
    int r = failed ? error_set(err, -ENOMEM, "out of memory") : database_prepare(store, sql.data, &statement, err);
    for (size_t i = 0, index = 0; r == 0 && i < table->count; i++) {
        if (table->columns[i].read_only) continue;
        if (bind_field(statement, (int)++index, &table->columns[i], row) != SQLITE_OK) r = database_fail(store, err);
    }
    if (r == 0) r = database_step(store, statement, err);
    if (statement) database_end(store, statement);
    buf_done(&names);
    buf_done(&marks);
    buf_done(&sql);
    step(store);
    return r;
}

int database_rows(struct store *store, const struct database_table *table, const char *sql,
                  const struct database_value *values, size_t value_count, database_each *each, void *data,
                  struct error *err) {
    sqlite3_stmt *statement = NULL;
    AUTO_FREE void *row = calloc(1, table->row_size);
    if (!row) return error_set(err, -ENOMEM, "out of memory");
    int r = database_prepare(store, sql, &statement, err);
    if (r < 0) return r;
    r = database_bind(store, statement, values, value_count, err);
    while (r == 0) {
        r = database_step(store, statement, err);
        if (r <= 0) break;
        r = read_row(statement, table, row, err);
        if (r < 0) break;
        r = each(row, data);
        database_row_done(table, row);
    }
    database_end(store, statement);
    return r;
}

struct first {
    const struct database_table *table;
    void *row;
};

// Takes the row: the one that is done afterwards is zeros.
static int take_first(void *row, void *data) {
    const struct first *first = data;
    memcpy(first->row, row, first->table->row_size);
    memset(row, 0, first->table->row_size);
    return 1;
}

int database_row(struct store *store, const struct database_table *table, const char *sql,
                 const struct database_value *values, size_t value_count, void *ret_row, struct error *err) {
    struct first first = {table, ret_row};
    int r = database_rows(store, table, sql, values, value_count, take_first, &first, err);
    return r == 0 ? -ENOENT : r < 0 ? r : 0;
}
