// SPDX-License-Identifier: Apache-2.0
// Who changed what. Old rows are looked for at every 64th new one, so the table is at most that much longer than it may be.
#include <errno.h>

#include "base/mem.h"
#include "store/database.h"

#define ADDED_MAX 64

void store_audit_limit(struct store *store, uint64_t rows) {
    store->audit_limit = rows;
    store->audit_added = ADDED_MAX;
}

int store_audit_add(struct store *store, const struct store_audit *audit, struct error *err) {
    int r = database_begin(store, DATABASE_LATER, err);
    if (r < 0) return r;
    r = database_run(store, err, "INSERT INTO audit(time_us,who,action,subject,status) VALUES(?,?,?,?,?)", "ittti",
                     audit->time_us, audit->who, audit->action, audit->subject, (int64_t)audit->status);
    bool prune = store->audit_added++ >= ADDED_MAX;
    if (r >= 0 && prune)
        r = database_run(store, err, "DELETE FROM audit WHERE number<=(SELECT max(number) FROM audit)-?", "i",
                         (int64_t)store->audit_limit);
    r = database_finish(store, r < 0 ? r : 0, err);
    if (r == 0 && prune) store->audit_added = 0;
    return r;
}

int store_audit_list(struct store *store, size_t limit, store_audit_each *each, void *data, struct error *err) {
    const struct database_value value = {.number = (int64_t)limit};
    sqlite3_stmt *statement = NULL;
    int r = database_prepare(store, "SELECT time_us,who,action,subject,status FROM audit ORDER BY number DESC LIMIT ?",
                             &statement, err);
    if (r < 0) return r;
    r = database_bind(store, statement, &value, 1, err);
    while (r == 0) {
        r = database_step(store, statement, err);
        if (r <= 0) break;
        struct store_audit audit = {.time_us = sqlite3_column_int64(statement, 0),
                                    .who = (const char *)sqlite3_column_text(statement, 1),
                                    .action = (const char *)sqlite3_column_text(statement, 2),
                                    .subject = (const char *)sqlite3_column_text(statement, 3),
                                    .status = (int)sqlite3_column_int64(statement, 4)};
        r = audit.who && audit.action && audit.subject ? each(&audit, data) : error_set(err, -ENOMEM, "out of memory");
    }
    database_end(store, statement);
    return r;
}
