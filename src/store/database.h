// SPDX-License-Identifier: Apache-2.0
// The file behind the store: transactions, statements, and rows described by tables of their columns. Private to the store
// room.
#pragma once

#include "store/sqlite.h"
#include "store/store.h"

#define DATABASE_STATEMENTS_MAX 64

// When a change is on the disk, and not only safe from the end of this process: SYNC before its call returns, LATER with the
// next one that is. In the WAL nothing overtakes.
enum database_sync { DATABASE_LATER, DATABASE_SYNC };

struct store {
    sqlite3 *db;
    struct database_statement {
        char *sql;
        sqlite3_stmt *statement;
        bool busy;
    } statements[DATABASE_STATEMENTS_MAX];
    size_t statement_count;
    enum database_sync sync; // as SQLite is set
    void (*step)(void *data);
    void *step_data;
    uint64_t audit_limit;
    unsigned audit_added; // since old rows were last looked for
};

// ---- rows ----

enum database_kind { DATABASE_TEXT, DATABASE_I64, DATABASE_U64, DATABASE_U32, DATABASE_BOOL, DATABASE_ENUM };

struct database_column {
    const char *name;
    enum database_kind kind;
    size_t offset; // in the row's structure
    const char *const *words; // ENUM: NULL-terminated, by value
    bool read_only; // what other statements keep
};

struct database_table {
    const char *name;
    const struct database_column *columns;
    size_t count, row_size;
};

// Frees the texts of a row and makes it zeros.
void database_row_done(const struct database_table *table, void *row);
// Inserts all columns that are not read-only. 0, -EEXIST, negative.
int database_insert(struct store *store, const struct database_table *table, const void *row, struct error *err);
// "SELECT columns FROM table", to be followed by the rest.
struct buf;
void database_select(const struct database_table *table, struct buf *sql);

// ---- statements: types has a letter for each parameter: t (const char *, NULL: null), i (int64_t) ----

// Runs a statement that gives nothing. The number of rows it changed, or negative.
int database_run(struct store *store, struct error *err, const char *sql, const char *types, ...);
// The same as a transaction of its own, in which a row must change: 0, -ENOENT, or negative.
int database_change(struct store *store, enum database_sync sync, struct error *err, const char *sql, const char *types, ...);
// A number: 1 and *ret_number, 0: no row (or null), or negative.
int database_number(struct store *store, struct error *err, int64_t *ret_number, const char *sql, const char *types, ...);

struct database_value {
    const char *text; // NULL: number
    int64_t number;
};
// Rows one after the other, each given to `each` and done with. A value of `each` other than 0 ends it and is returned.
typedef int database_each(void *row, void *data);
int database_rows(struct store *store, const struct database_table *table, const char *sql,
                  const struct database_value *values, size_t value_count, database_each *each, void *data,
                  struct error *err);
// The first row, which is the caller's: 0 or -ENOENT.
int database_row(struct store *store, const struct database_table *table, const char *sql,
                 const struct database_value *values, size_t value_count, void *ret_row, struct error *err);

// ---- for statements whose columns are no table's ----

int database_prepare(struct store *store, const char *sql, sqlite3_stmt **ret_statement, struct error *err);
int database_bind(struct store *store, sqlite3_stmt *statement, const struct database_value *values, size_t count,
                  struct error *err);
int database_step(struct store *store, sqlite3_stmt *statement, struct error *err); // 1: a row, 0: done, negative
void database_end(struct store *store, sqlite3_stmt *statement);
int database_copy_text(sqlite3_stmt *statement, int column, char **ret_text); // NULL for null; 0 or -ENOMEM

// ---- transactions ----

int database_begin(struct store *store, enum database_sync sync, struct error *err);
// result < 0: rolls back and returns it. Else commits: 0, or negative, and then it did not happen.
int database_finish(struct store *store, int result, struct error *err);
int database_fail(struct store *store, struct error *err); // the last error as an errno, with its message
