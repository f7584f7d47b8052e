// SPDX-License-Identifier: Apache-2.0
// Sandboxes and their policies. A sandbox's row says which generation is in force; a staged one is a row of policies with
// a higher number. last_generation grows with each that was staged, so that a number means one text for ever.
#include <assert.h>
#include <errno.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/mem.h"
#include "store/database.h"

#define PAIRS_MAX 32

static const char *const state_words[] = {"starting", "running", "paused", "stopping", NULL};
static_assert(ARRAY_LENGTH(state_words) == STORE_STATE_COUNT + 1, "one word per state");
// By enum policy_type and enum policy_dialect: words of the file, which stay when the enums change.
static const char *const type_words[] = {"none", "bashkit", "mistral", "docker", "host", "custom", "process", "container",
                                         NULL};
static_assert(ARRAY_LENGTH(type_words) == POLICY_TYPE_COUNT + 1, "one word per type");
static const char *const dialect_words[] = {"auto", "network", "e2b", "native", NULL};
static_assert(POLICY_DIALECT_AUTO == 0 && POLICY_DIALECT_NATIVE == 3, "order of the words");

#define AT(field) offsetof(struct store_sandbox, field)
static const struct database_column columns[] = {
    {"id", DATABASE_TEXT, AT(id), NULL, false},
    {"state", DATABASE_ENUM, AT(state), state_words, false},
    {"type", DATABASE_ENUM, AT(type), type_words, false},
    {"template_id", DATABASE_TEXT, AT(template_id), NULL, false},
    {"alias", DATABASE_TEXT, AT(alias), NULL, false},
    {"image", DATABASE_TEXT, AT(image), NULL, false},
    {"started_us", DATABASE_I64, AT(started_us), NULL, false},
    {"end_us", DATABASE_I64, AT(end_us), NULL, false},
    {"timeout_s", DATABASE_U32, AT(timeout_s), NULL, false},
    {"auto_pause", DATABASE_BOOL, AT(auto_pause), NULL, false},
    {"auto_resume", DATABASE_BOOL, AT(auto_resume), NULL, false},
    {"secure", DATABASE_BOOL, AT(secure), NULL, false},
    {"cpu_count", DATABASE_U32, AT(cpu_count), NULL, false},
    {"memory_mb", DATABASE_U32, AT(memory_mb), NULL, false},
    {"disk_mb", DATABASE_U32, AT(disk_mb), NULL, false},
    {"metadata", DATABASE_TEXT, AT(metadata), NULL, false},
    {"env_vars", DATABASE_TEXT, AT(env_vars), NULL, false},
    {"generation", DATABASE_U64, AT(generation), NULL, false},
    {"allow_public_traffic", DATABASE_BOOL, AT(allow_public_traffic), NULL, false},
    {"mask_request_host", DATABASE_TEXT, AT(mask_request_host), NULL, false},
    {"layers", DATABASE_TEXT, AT(layers), NULL, false},
    {"config", DATABASE_TEXT, AT(config), NULL, false},
    {"(SELECT dialect FROM policies p WHERE p.sandbox_id=sandboxes.id AND p.generation=sandboxes.generation)",
     DATABASE_ENUM, AT(dialect), dialect_words, true},
    {"(SELECT policy FROM policies p WHERE p.sandbox_id=sandboxes.id AND p.generation=sandboxes.generation)",
     DATABASE_TEXT, AT(policy), NULL, true},
};
static const struct database_table table = {"sandboxes", columns, ARRAY_LENGTH(columns), sizeof(struct store_sandbox)};

const char *store_state_name(enum store_state state) { return state_words[state]; }

bool store_state_from_name(const char *name, enum store_state *ret_state) {
    for (unsigned i = 0; i < STORE_STATE_COUNT; i++) {
        if (strcmp(name, state_words[i]) != 0) continue;
        *ret_state = (enum store_state)i;
        return true;
    }
    return false;
}

void store_sandbox_done(struct store_sandbox *sandbox) { database_row_done(&table, sandbox); }

int store_sandbox_insert(struct store *store, const struct store_sandbox *sandbox, struct error *err) {
    struct store_sandbox row = *sandbox; // borrows the texts
    if (row.generation == 0) row.generation = 1;
    int r = database_begin(store, DATABASE_LATER, err);
    if (r < 0) return r;
    r = database_insert(store, &table, &row, err);
    if (r == 0) r = database_run(store, err, "UPDATE sandboxes SET last_generation=generation WHERE id=?", "t", row.id);
    if (r > 0)
        r = database_run(store, err, "INSERT INTO policies(sandbox_id,generation,dialect,policy) VALUES(?,?,?,?)", "titt",
                         row.id, (int64_t)row.generation, dialect_words[row.dialect], row.policy);
    return database_finish(store, r < 0 ? r : 0, err);
}

int store_sandbox_set_state(struct store *store, const char *id, enum store_state state, struct error *err) {
    return database_change(store, DATABASE_LATER, err, "UPDATE sandboxes SET state=? WHERE id=?", "tt", state_words[state], id);
}

int store_sandbox_set_end(struct store *store, const char *id, int64_t end_us, struct error *err) {
    return database_change(store, DATABASE_LATER, err, "UPDATE sandboxes SET end_us=? WHERE id=?", "it", end_us, id);
}

int store_sandbox_set_state_end(struct store *store, const char *id, enum store_state state, int64_t end_us,
                                struct error *err) {
    return database_change(store, DATABASE_LATER, err, "UPDATE sandboxes SET state=?, end_us=? WHERE id=?", "tit",
                           state_words[state], end_us, id);
}

int store_sandbox_set_image(struct store *store, const char *id, const char *layers, const char *config,
                            struct error *err) {
    return database_change(store, DATABASE_LATER, err, "UPDATE sandboxes SET layers=?, config=? WHERE id=?", "ttt", layers,
                           config, id);
}

int store_sandbox_remove(struct store *store, const char *id, struct error *err) {
    return database_change(store, DATABASE_LATER, err, "DELETE FROM sandboxes WHERE id=?", "t", id);
}

int store_sandbox_get(struct store *store, const char *id, struct store_sandbox *ret_sandbox, struct error *err) {
    struct database_value value = {.text = id};
    struct buf sql = BUF_INIT;
    database_select(&table, &sql);
    buf_printf(&sql, "WHERE id=?");
    int r = sql.failed ? error_set(err, -ENOMEM, "out of memory")
                       : database_row(store, &table, sql.data, &value, 1, ret_sandbox, err);
    buf_done(&sql);
    return r;
}

// ---- policies ----

int store_policy_stage(struct store *store, const char *id, const char *policy, enum policy_dialect dialect,
                       uint64_t *ret_generation, struct error *err) {
    int64_t generation;
    int r = database_begin(store, DATABASE_LATER, err);
    if (r < 0) return r;
    r = database_run(store, err, "UPDATE sandboxes SET last_generation=last_generation+1 WHERE id=?", "t", id);
    if (r == 0) r = -ENOENT;
    if (r > 0) r = database_number(store, err, &generation, "SELECT last_generation FROM sandboxes WHERE id=?", "t", id);
    if (r > 0) // one at a time: what was staged before is replaced
        r = database_run(store, err,
                         "DELETE FROM policies WHERE sandbox_id=?1 AND generation>"
                         "(SELECT generation FROM sandboxes WHERE id=?1)", "t", id);
    if (r >= 0)
        r = database_run(store, err, "INSERT INTO policies(sandbox_id,generation,dialect,policy) VALUES(?,?,?,?)", "titt",
                         id, generation, dialect_words[dialect], policy);
    r = database_finish(store, r < 0 ? r : 0, err);
    if (r == 0) *ret_generation = (uint64_t)generation;
    return r;
}

int store_policy_activate(struct store *store, const char *id, uint64_t generation, struct error *err) {
    int r = database_begin(store, DATABASE_LATER, err);
    if (r < 0) return r;
    r = database_run(store, err,
                     "UPDATE sandboxes SET generation=?2 WHERE id=?1 AND generation<?2 AND EXISTS"
                     "(SELECT 1 FROM policies WHERE sandbox_id=?1 AND generation=?2)", "ti", id, (int64_t)generation);
    if (r == 0) r = -ENOENT;
    if (r > 0)
        r = database_run(store, err, "DELETE FROM policies WHERE sandbox_id=? AND generation<>?", "ti", id,
                         (int64_t)generation);
    return database_finish(store, r < 0 ? r : 0, err);
}

int store_policy_drop(struct store *store, const char *id, uint64_t generation, struct error *err) {
    return database_change(store, DATABASE_LATER, err,
                           "DELETE FROM policies WHERE sandbox_id=?1 AND generation=?2 AND generation>"
                           "(SELECT generation FROM sandboxes WHERE id=?1)", "ti", id, (int64_t)generation);
}

struct staged {
    uint64_t generation;
    enum policy_dialect dialect;
    char *policy;
};
static const struct database_column staged_columns[] = {
    {"generation", DATABASE_U64, offsetof(struct staged, generation), NULL, true},
    {"dialect", DATABASE_ENUM, offsetof(struct staged, dialect), dialect_words, true},
    {"policy", DATABASE_TEXT, offsetof(struct staged, policy), NULL, true},
};
static const struct database_table staged_table = {"policies", staged_columns, ARRAY_LENGTH(staged_columns),
                                                   sizeof(struct staged)};

int store_policy_staged(struct store *store, const char *id, char **ret_policy, enum policy_dialect *ret_dialect,
                        uint64_t *ret_generation, struct error *err) {
    struct staged staged;
    struct database_value value = {.text = id};
    int r = database_row(store, &staged_table,
                         "SELECT generation,dialect,policy FROM policies WHERE sandbox_id=?1 AND generation>"
                         "(SELECT generation FROM sandboxes WHERE id=?1)", &value, 1, &staged, err);
    if (r < 0) return r;
    *ret_policy = staged.policy;
    *ret_dialect = staged.dialect;
    *ret_generation = staged.generation;
    return 0;
}

// ---- lists ----

struct list_query {
    struct buf sql;
    struct database_value values[2 * PAIRS_MAX + 8];
    size_t count;
};

static void add_text(struct list_query *query, const char *text) { query->values[query->count++].text = text; }

static void add_number(struct list_query *query, int64_t number) {
    query->values[query->count++] = (struct database_value){.number = number};
}

static void add_states(struct list_query *query, unsigned states) {
    if (states == 0) return;
    buf_printf(&query->sql, " AND state IN (");
    for (unsigned i = 0, more = 0; i < STORE_STATE_COUNT; i++)
        if (states & 1u << i) buf_printf(&query->sql, "%s'%s'", more++ ? "," : "", state_words[i]);
    buf_printf(&query->sql, ")");
}

static void add_filter(struct list_query *query, const struct store_filter *filter) {
    buf_printf(&query->sql, "WHERE 1");
    add_states(query, filter->states);
    for (size_t i = 0; i < filter->metadata_count; i++) {
        buf_printf(&query->sql, " AND EXISTS(SELECT 1 FROM json_each(sandboxes.metadata) j WHERE j.key=? AND j.atom=?)");
        add_text(query, filter->metadata[i].key);
        add_text(query, filter->metadata[i].value);
    }
    if (filter->template_id) {
        buf_printf(&query->sql, " AND ? IN (coalesce(template_id, image), alias)");
        add_text(query, filter->template_id);
    }
    if (filter->started_after_us) {
        buf_printf(&query->sql, " AND started_us>=?");
        add_number(query, filter->started_after_us);
    }
}

static int start_query(struct list_query *query, const struct store_filter *filter, struct error *err) {
    if (filter->metadata_count > PAIRS_MAX)
        return error_set(err, -EINVAL, "the filter has more than %d pairs of metadata; use fewer", PAIRS_MAX);
    add_filter(query, filter);
    return 0;
}

struct forward {
    store_sandbox_each *each;
    void *data;
};

static int forward_row(void *row, void *data) {
    const struct forward *forward = data;
    return forward->each(row, forward->data);
}

int store_sandbox_list(struct store *store, const struct store_filter *filter, store_sandbox_each *each, void *data,
                       struct error *err) {
    struct list_query query = {0};
    struct forward forward = {each, data};
    const char *order = filter->ascending ? "ASC" : "DESC";
    database_select(&table, &query.sql);
    int r = start_query(&query, filter, err);
    if (r == 0 && filter->after_id) {
        buf_printf(&query.sql, " AND (started_us,id)%s(?,?)", filter->ascending ? ">" : "<");
        add_number(&query, filter->after_us);
        add_text(&query, filter->after_id);
    }
    buf_printf(&query.sql, " ORDER BY started_us %s, id %s", order, order);
    if (filter->limit) {
        buf_printf(&query.sql, " LIMIT ?");
        add_number(&query, (int64_t)filter->limit);
    }
    if (r == 0 && query.sql.failed) r = error_set(err, -ENOMEM, "out of memory");
    if (r == 0)
        r = database_rows(store, &table, query.sql.data, query.values, query.count, forward_row, &forward, err);
    buf_done(&query.sql);
    return r;
}

int store_sandbox_count(struct store *store, const struct store_filter *filter, uint64_t *ret_count, struct error *err) {
    struct list_query query = {0};
    sqlite3_stmt *statement = NULL;
    buf_printf(&query.sql, "SELECT count(*) FROM sandboxes ");
    int r = start_query(&query, filter, err);
    if (r == 0 && query.sql.failed) r = error_set(err, -ENOMEM, "out of memory");
    if (r == 0) r = database_prepare(store, query.sql.data, &statement, err);
    if (r == 0) r = database_bind(store, statement, query.values, query.count, err);
    if (r == 0) r = database_step(store, statement, err);
    if (r > 0) *ret_count = (uint64_t)sqlite3_column_int64(statement, 0);
    if (statement) database_end(store, statement);
    buf_done(&query.sql);
    return r < 0 ? r : 0;
}
