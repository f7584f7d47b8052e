// SPDX-License-Identifier: Apache-2.0
// Templates and snapshots: one table, for a sandbox starts from either.
#include <assert.h>
#include <errno.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/mem.h"
#include "store/database.h"

static const char *const kind_words[] = {"template", "snapshot", NULL};
static_assert(ARRAY_LENGTH(kind_words) == STORE_KIND_COUNT + 1, "one word per kind");

#define AT(field) offsetof(struct store_template, field)
#define BUILDS "FROM builds b WHERE b.template_id=templates.id"
static const struct database_column columns[] = {
    {"id", DATABASE_TEXT, AT(id), NULL, false},
    {"kind", DATABASE_ENUM, AT(kind), kind_words, false},
    {"name", DATABASE_TEXT, AT(name), NULL, false},
    {"sandbox_id", DATABASE_TEXT, AT(sandbox_id), NULL, false},
    {"layers", DATABASE_TEXT, AT(layers), NULL, false},
    {"config", DATABASE_TEXT, AT(config), NULL, false},
    {"cpu_count", DATABASE_U32, AT(cpu_count), NULL, false},
    {"memory_mb", DATABASE_U32, AT(memory_mb), NULL, false},
    {"disk_mb", DATABASE_U32, AT(disk_mb), NULL, false},
    {"created_us", DATABASE_I64, AT(created_us), NULL, false},
    {"updated_us", DATABASE_I64, AT(updated_us), NULL, false},
    {"spawned_us", DATABASE_I64, AT(spawned_us), NULL, false},
    {"spawn_count", DATABASE_U64, AT(spawn_count), NULL, false},
    {"(SELECT b.id " BUILDS " ORDER BY b.status='ready' DESC, b.number DESC LIMIT 1)", DATABASE_TEXT, AT(build_id), NULL,
     true},
    {"(SELECT count(*) " BUILDS ")", DATABASE_U64, AT(build_count), NULL, true},
};
static const struct database_table table = {"templates", columns, ARRAY_LENGTH(columns), sizeof(struct store_template)};

void store_template_done(struct store_template *item) { database_row_done(&table, item); }

int store_template_insert(struct store *store, const struct store_template *item, struct error *err) {
    struct store_template row = *item; // borrows the texts
    row.updated_us = row.created_us;
    row.spawned_us = 0;
    row.spawn_count = 0;
    int r = database_begin(store, DATABASE_SYNC, err);
    return r < 0 ? r : database_finish(store, database_insert(store, &table, &row, err), err);
}

int store_template_replace(struct store *store, const struct store_template *item, struct error *err) {
    return database_change(store, DATABASE_SYNC, err,
                           "UPDATE templates SET sandbox_id=?, layers=?, config=?, cpu_count=?, memory_mb=?, disk_mb=?,"
                           " updated_us=? WHERE id=?",
                           "tttiiiit", item->sandbox_id, item->layers, item->config, (int64_t)item->cpu_count,
                           (int64_t)item->memory_mb, (int64_t)item->disk_mb, store_now_us(), item->id);
}

int store_template_get(struct store *store, const char *id_or_name, struct store_template *ret_item, struct error *err) {
    struct database_value value = {.text = id_or_name};
    struct buf sql = BUF_INIT;
    database_select(&table, &sql);
    buf_printf(&sql, "WHERE id=?1 OR name=?1 ORDER BY id=?1 DESC"); // nobody takes over an id by a name
    int r = sql.failed ? error_set(err, -ENOMEM, "out of memory")
                       : database_row(store, &table, sql.data, &value, 1, ret_item, err);
    buf_done(&sql);
    return r;
}

int store_template_remove(struct store *store, const char *id, struct error *err) {
    return database_change(store, DATABASE_SYNC, err, "DELETE FROM templates WHERE id=?", "t", id);
}

int store_template_spawned(struct store *store, const char *id, int64_t now_us, struct error *err) {
    return database_change(store, DATABASE_LATER, err,
                           "UPDATE templates SET spawned_us=?, spawn_count=spawn_count+1 WHERE id=?", "it", now_us, id);
}

struct forward {
    store_template_each *each;
    void *data;
};

static int forward_row(void *row, void *data) {
    const struct forward *forward = data;
    return forward->each(row, forward->data);
}

int store_template_list(struct store *store, const struct store_template_filter *filter, store_template_each *each,
                        void *data, struct error *err) {
    struct forward forward = {each, data};
    struct database_value values[8];
    size_t count = 0;
    struct buf sql = BUF_INIT;
    database_select(&table, &sql);
    buf_printf(&sql, "WHERE 1");
    if (filter->has_kind) {
        buf_printf(&sql, " AND kind=?");
        values[count++].text = kind_words[filter->kind];
    }
    if (filter->id_or_name) {
        buf_printf(&sql, " AND ? IN (id, name)");
        values[count++].text = filter->id_or_name;
    }
    if (filter->sandbox_id) {
        buf_printf(&sql, " AND sandbox_id=?");
        values[count++].text = filter->sandbox_id;
    }
    if (filter->after_id) {
        buf_printf(&sql, " AND (created_us,id)<(?,?)");
        values[count++] = (struct database_value){.number = filter->after_us};
        values[count++].text = filter->after_id;
    }
    buf_printf(&sql, " ORDER BY created_us DESC, id DESC LIMIT ?");
    values[count++] = (struct database_value){.number = filter->limit ? (int64_t)filter->limit : -1};
    int r = sql.failed ? error_set(err, -ENOMEM, "out of memory")
                       : database_rows(store, &table, sql.data, values, count, forward_row, &forward, err);
    buf_done(&sql);
    return r;
}

int store_layer_used(struct store *store, const char *layer, struct error *err) {
    int64_t one;
    return database_number(store, err, &one,
                           "SELECT 1 FROM sandboxes s, json_each(s.layers) j WHERE j.atom=?1 UNION ALL"
                           " SELECT 1 FROM templates t, json_each(t.layers) j WHERE j.atom=?1 LIMIT 1", "t", layer);
}
