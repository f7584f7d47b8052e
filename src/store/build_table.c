// SPDX-License-Identifier: Apache-2.0
// Builds of templates and their logs. A build's status only goes from waiting to building to ready or error.
#include <assert.h>
#include <errno.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/mem.h"
#include "store/database.h"

static const char *const status_words[] = {"waiting", "building", "ready", "error", NULL};
static_assert(ARRAY_LENGTH(status_words) == STORE_BUILD_STATUS_COUNT + 1, "one word per status");

#define AT(field) offsetof(struct store_build, field)
static const struct database_column columns[] = {
    {"id", DATABASE_TEXT, AT(id), NULL, false},
    {"template_id", DATABASE_TEXT, AT(template_id), NULL, false},
    {"status", DATABASE_ENUM, AT(status), status_words, false},
    {"reason", DATABASE_TEXT, AT(reason), NULL, false},
    {"step", DATABASE_TEXT, AT(step), NULL, false},
    {"cpu_count", DATABASE_U32, AT(cpu_count), NULL, false},
    {"memory_mb", DATABASE_U32, AT(memory_mb), NULL, false},
    {"created_us", DATABASE_I64, AT(created_us), NULL, false},
    {"updated_us", DATABASE_I64, AT(updated_us), NULL, false},
    {"finished_us", DATABASE_I64, AT(finished_us), NULL, false},
};
static const struct database_table table = {"builds", columns, ARRAY_LENGTH(columns), sizeof(struct store_build)};

const char *store_build_status_name(enum store_build_status status) { return status_words[status]; }

void store_build_done(struct store_build *build) { database_row_done(&table, build); }

int store_build_insert(struct store *store, const struct store_build *build, struct error *err) {
    struct store_build row = {.id = build->id,
                              .template_id = build->template_id,
                              .cpu_count = build->cpu_count,
                              .memory_mb = build->memory_mb,
                              .created_us = build->created_us,
                              .updated_us = build->created_us};
    int r = database_begin(store, DATABASE_SYNC, err);
    if (r < 0) return r;
    r = database_insert(store, &table, &row, err);
    if (r == 0)
        r = database_run(store, err,
                         "DELETE FROM builds WHERE template_id=?1 AND status IN ('ready','error') AND number<="
                         "(SELECT number FROM builds WHERE template_id=?1 ORDER BY number DESC LIMIT 1 OFFSET ?2)"
                         " AND id IS NOT (SELECT id FROM builds WHERE template_id=?1 AND status='ready'"
                         " ORDER BY number DESC LIMIT 1)", "ti", row.template_id, (int64_t)STORE_BUILDS_MAX);
    return database_finish(store, r < 0 ? r : 0, err);
}

static int get(struct store *store, const char *rest, const struct database_value *values, size_t count,
               struct store_build *ret_build, struct error *err) {
    struct buf sql = BUF_INIT;
    database_select(&table, &sql);
    buf_printf(&sql, "%s", rest);
    int r = sql.failed ? error_set(err, -ENOMEM, "out of memory")
                       : database_row(store, &table, sql.data, values, count, ret_build, err);
    buf_done(&sql);
    return r;
}

int store_build_get(struct store *store, const char *template_id, const char *id, struct store_build *ret_build,
                    struct error *err) {
    struct database_value values[] = {{.text = template_id}, {.text = id}};
    return get(store, "WHERE template_id=? AND id=?", values, ARRAY_LENGTH(values), ret_build, err);
}

int store_build_start(struct store *store, const char *id, struct error *err) {
    int r = database_change(store, DATABASE_LATER, err,
                            "UPDATE builds SET status='building', updated_us=? WHERE id=? AND status='waiting'", "it",
                            store_now_us(), id);
    return r == -ENOENT ? error_set(err, -EBUSY, "build %s has been started already", id) : r;
}

int store_build_finish(struct store *store, const char *id, const char *layers, const char *config, uint32_t disk_mb,
                       struct error *err) {
    int64_t now = store_now_us();
    int r = database_begin(store, DATABASE_SYNC, err);
    if (r < 0) return r;
    r = database_run(store, err,
                     "UPDATE builds SET status='ready', updated_us=?1, finished_us=?1 WHERE id=?2 AND status='building'",
                     "it", now, id);
    if (r == 0) r = -ENOENT;
    if (r > 0)
        r = database_run(store, err,
                         "UPDATE templates SET layers=?, config=?, disk_mb=?, updated_us=?, (cpu_count,memory_mb)="
                         "(SELECT cpu_count,memory_mb FROM builds WHERE id=?5)"
                         " WHERE id=(SELECT template_id FROM builds WHERE id=?5)",
                         "ttiit", layers, config, (int64_t)disk_mb, now, id);
    return database_finish(store, r < 0 ? r : 0, err);
}

int store_build_fail(struct store *store, const char *id, const char *step, const char *reason, struct error *err) {
    return database_change(store, DATABASE_LATER, err,
                           "UPDATE builds SET status='error', step=?, reason=?, updated_us=?3, finished_us=?3 WHERE id=?4"
                           " AND status IN ('waiting','building')", "ttit", step, reason, store_now_us(), id);
}

int store_build_abandon(struct store *store, const char *reason, struct error *err) {
    int r = database_change(store, DATABASE_LATER, err,
                            "UPDATE builds SET status='error', reason=?1, updated_us=?2, finished_us=?2"
                            " WHERE status='building'", "ti", reason, store_now_us());
    return r == -ENOENT ? 0 : r;
}

struct forward {
    store_build_each *each;
    void *data;
};

static int forward_row(void *row, void *data) {
    const struct forward *forward = data;
    return forward->each(row, forward->data);
}

int store_build_list(struct store *store, const char *template_id, store_build_each *each, void *data, struct error *err) {
    struct database_value value = {.text = template_id};
    struct forward forward = {each, data};
    struct buf sql = BUF_INIT;
    database_select(&table, &sql);
    buf_printf(&sql, "WHERE template_id=? ORDER BY number DESC");
    int r = sql.failed ? error_set(err, -ENOMEM, "out of memory")
                       : database_rows(store, &table, sql.data, &value, 1, forward_row, &forward, err);
    buf_done(&sql);
    return r;
}

int store_build_log(struct store *store, const char *id, const char *level, const char *const *messages, size_t count,
                    struct error *err) {
    int r = database_begin(store, DATABASE_LATER, err);
    if (r < 0) return r;
    r = 1;
    for (size_t i = 0; r > 0 && i < count; i++) {
        r = database_run(store, err,
                         "INSERT INTO build_lines(build_id,number,time_us,level,message)"
                         " SELECT id,line_count,?2,?3,?4 FROM builds WHERE id=?1", "titt", id, store_now_us(), level, messages[i]);
        if (r == 0) r = -ENOENT;
        if (r > 0) r = database_run(store, err, "UPDATE builds SET line_count=line_count+1 WHERE id=?", "t", id);
    }
    if (r > 0)
        r = database_run(store, err,
                         "DELETE FROM build_lines WHERE build_id=?1 AND number<"
                         "(SELECT line_count FROM builds WHERE id=?1)-?2", "ti", id, (int64_t)STORE_BUILD_LINES_MAX);
    return database_finish(store, r < 0 ? r : 0, err);
}

int store_build_lines(struct store *store, const char *id, uint64_t first, size_t limit, store_build_line *each,
                      void *data, struct error *err) {
    const struct database_value values[] = {{.text = id}, {.number = (int64_t)first}, {.number = (int64_t)limit}};
    sqlite3_stmt *statement = NULL;
    int r = database_prepare(store,
                             "SELECT number,time_us,level,message FROM build_lines WHERE build_id=? AND number>=?"
                             " ORDER BY number LIMIT ?", &statement, err);
    if (r < 0) return r;
    r = database_bind(store, statement, values, ARRAY_LENGTH(values), err);
    while (r == 0) {
        r = database_step(store, statement, err);
        if (r <= 0) break;
        const char *level = (const char *)sqlite3_column_text(statement, 2);
        const char *message = (const char *)sqlite3_column_text(statement, 3);
        r = level && message ? each((uint64_t)sqlite3_column_int64(statement, 0), sqlite3_column_int64(statement, 1), level,
                                    message, data)
                             : error_set(err, -ENOMEM, "out of memory");
    }
    database_end(store, statement);
    return r;
}
