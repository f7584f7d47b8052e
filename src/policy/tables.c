// SPDX-License-Identifier: Apache-2.0
// The lookups of a compiled block. Names and prefixes come as (key, item) pairs; sorted, they are written grouped by
// key, and items stay in list order, which is what makes the first entry of a list the deciding one. Ports become
// disjoint runs that know the first entry that names them.
#include "policy/compile.h"

#include <errno.h>

#include "base/mem.h"

uint32_t tables_count(const struct compile *compile, enum block_section section) {
    return (uint32_t)(compile->sections[section].len / block_record_size(section));
}

void tables_add(struct compile *compile, enum block_section section, const void *record) {
    buf_append(&compile->sections[section], record, block_record_size(section));
}

uint32_t tables_add_string(struct compile *compile, const char *text) {
    if (!*text) return 0; // the section starts with an empty string
    uint32_t offset = (uint32_t)compile->sections[BLOCK_STRINGS].len;
    buf_append(&compile->sections[BLOCK_STRINGS], text, strlen(text) + 1);
    return offset;
}

bool tables_names_loopback(const struct policy_entry *entry) {
    switch (entry->kind) {
    case POLICY_ENTRY_NAME: {
        size_t len = strlen(entry->name);
        return strcmp(entry->name, "localhost") == 0 || (len > 10 && strcmp(entry->name + len - 10, ".localhost") == 0);
    }
    case POLICY_ENTRY_ADDRESS:
        return addr_is_loopback(&entry->prefix.addr);
    case POLICY_ENTRY_CIDR:
        return addr_is_loopback(&entry->prefix.addr) && entry->prefix.length >= 8;
    case POLICY_ENTRY_WILDCARD:
        return false;
    }
    return false;
}

// ---- lookups ----

static int name_pair_compare(const void *a, const void *b) {
    const struct name_pair *x = a, *y = b;
    if (x->set != y->set) return x->set < y->set ? -1 : 1;
    int order = strcmp(x->name, y->name);
    return order ? order : (x->item > y->item) - (x->item < y->item);
}

static int prefix_pair_compare(const void *a, const void *b) {
    const struct prefix_pair *x = a, *y = b;
    if (x->tree != y->tree) return x->tree < y->tree ? -1 : 1;
    int order = addr_compare(&x->prefix.addr, &y->prefix.addr);
    if (!order) order = x->prefix.length - y->prefix.length;
    return order ? order : (x->item > y->item) - (x->item < y->item);
}

static uint32_t hash_name(const char *name, enum block_name_set set) {
    uint32_t hash = BLOCK_HASH_START;
    for (size_t i = strlen(name); i-- > 0;) hash = block_hash_step(hash, name[i]);
    return block_hash_finish(hash, set);
}

static void insert_slot(struct block_slot *slots, uint32_t count, const struct block_slot *slot) {
    uint32_t at = slot->hash & (count - 1);
    while (slots[at].name != BLOCK_NONE) at = (at + 1) & (count - 1);
    slots[at] = *slot;
}

static int build_names(struct compile *compile) {
    size_t count = compile->names.len / sizeof(struct name_pair);
    if (count == 0) return 0;
    struct name_pair *pairs = (struct name_pair *)(void *)compile->names.data;
    qsort(pairs, count, sizeof(*pairs), name_pair_compare);
    uint32_t size = 2;
    while (size < count * 2) size *= 2;
    AUTO_FREE struct block_slot *slots = NEW_ARRAY(struct block_slot, size);
    if (!slots) return -ENOMEM;
    for (uint32_t i = 0; i < size; i++) slots[i].name = BLOCK_NONE;
    for (size_t i = 0; i < count;) {
        struct block_slot slot = {.name = tables_add_string(compile, pairs[i].name),
                                  .hash = hash_name(pairs[i].name, pairs[i].set),
                                  .items = {.first = tables_count(compile, BLOCK_ITEMS)},
                                  .set = pairs[i].set};
        size_t first = i;
        for (; i < count && pairs[i].set == pairs[first].set && strcmp(pairs[i].name, pairs[first].name) == 0; i++) {
            tables_add(compile, BLOCK_ITEMS, &pairs[i].item);
            slot.items.count++;
        }
        insert_slot(slots, size, &slot);
        compile->header.set_counts[slot.set]++;
    }
    buf_append(&compile->sections[BLOCK_SLOTS], slots, size * sizeof(*slots));
    return 0;
}

static bool prefix_equal(const struct addr_prefix *a, const struct addr_prefix *b) {
    return a->length == b->length && addr_equal(&a->addr, &b->addr);
}

// The nearest node before this one that contains it, found through the chain of the last node.
static uint32_t find_parent(const struct compile *compile, uint32_t first, const struct addr_prefix *prefix) {
    const struct block_node *nodes = (const struct block_node *)(const void *)compile->sections[BLOCK_NODES].data;
    uint32_t count = tables_count(compile, BLOCK_NODES);
    uint32_t at = count > first ? count - 1 : BLOCK_NONE;
    while (at != BLOCK_NONE && !addr_prefix_contains(&nodes[at].prefix, &prefix->addr)) at = nodes[at].parent;
    return at;
}

static void build_trees(struct compile *compile) {
    size_t count = compile->prefixes.len / sizeof(struct prefix_pair);
    struct prefix_pair *pairs = (struct prefix_pair *)(void *)compile->prefixes.data;
    if (count > 0) qsort(pairs, count, sizeof(*pairs), prefix_pair_compare);
    size_t i = 0;
    for (int tree = 0; tree < BLOCK_TREE_COUNT; tree++) {
        struct block_range *range = &compile->header.trees[tree];
        range->first = tables_count(compile, BLOCK_NODES);
        while (i < count && pairs[i].tree == (enum block_tree)tree && !compile->sections[BLOCK_NODES].failed) {
            struct block_node node = {.prefix = pairs[i].prefix,
                                      .parent = find_parent(compile, range->first, &pairs[i].prefix),
                                      .items = {.first = tables_count(compile, BLOCK_ITEMS)}};
            for (; i < count && pairs[i].tree == (enum block_tree)tree && prefix_equal(&pairs[i].prefix, &node.prefix);
                 i++) {
                tables_add(compile, BLOCK_ITEMS, &pairs[i].item);
                node.items.count++;
            }
            tables_add(compile, BLOCK_NODES, &node);
        }
        range->count = tables_count(compile, BLOCK_NODES) - range->first;
    }
}

// ---- ports ----

// A range of ports that an entry names, and the entry.
struct port_claim {
    uint32_t first, end, entry; // end is one behind
};

static int point_compare(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static uint32_t point_find(const uint32_t *points, uint32_t count, uint32_t point) {
    const uint32_t *found = bsearch(&point, points, count, sizeof(point), point_compare);
    return (uint32_t)(found - points);
}

static void collect_claims(const struct compile *compile, enum policy_entry_protocol protocol, struct buf *claims) {
    const struct block_entry *entries = (const struct block_entry *)(const void *)compile->sections[BLOCK_ENTRIES].data;
    const struct policy_port_range *ports =
        (const struct policy_port_range *)(const void *)compile->sections[BLOCK_PORTS].data;
    for (uint32_t i = 0; i < tables_count(compile, BLOCK_ENTRIES); i++) {
        bool name = entries[i].kind == POLICY_ENTRY_NAME || entries[i].kind == POLICY_ENTRY_WILDCARD;
        if (!name || entries[i].protocol != protocol) continue;
        for (uint32_t j = 0; j < entries[i].ports.count; j++) {
            struct policy_port_range range = ports[entries[i].ports.first + j];
            struct port_claim claim = {.first = range.first, .end = range.last + 1u, .entry = i};
            if (claim.first < claim.end) buf_append(claims, &claim, sizeof(claim));
        }
    }
}

// The sorted ports at which a claim starts or ends. Returns their number.
static uint32_t collect_points(const struct port_claim *claims, size_t count, uint32_t *points) {
    for (size_t i = 0; i < count; i++) {
        points[2 * i] = claims[i].first;
        points[2 * i + 1] = claims[i].end;
    }
    qsort(points, 2 * count, sizeof(*points), point_compare);
    uint32_t unique = 0;
    for (size_t i = 0; i < 2 * count; i++) {
        if (unique == 0 || points[unique - 1] != points[i]) points[unique++] = points[i];
    }
    return unique;
}

// Claims are in list order, so the first one to reach a piece between two points owns it; next[] skips owned pieces.
static void claim_pieces(const struct port_claim *claim, const uint32_t *points, uint32_t count, uint32_t *owner,
                         uint32_t *next) {
    uint32_t piece = point_find(points, count, claim->first), end = point_find(points, count, claim->end);
    for (;;) {
        while (next[piece] != piece) piece = next[piece] = next[next[piece]];
        if (piece >= end) return;
        owner[piece] = claim->entry;
        next[piece] = piece + 1;
    }
}

static void add_runs(struct compile *compile, const uint32_t *points, const uint32_t *owner, uint32_t count) {
    for (uint32_t piece = 0; piece + 1 < count;) {
        uint32_t last = piece;
        while (last + 2 < count && owner[last + 1] == owner[piece]) last++;
        struct block_run run = {
            .first = (uint16_t)points[piece], .last = (uint16_t)(points[last + 1] - 1), .entry = owner[piece]};
        if (run.entry != BLOCK_NONE) tables_add(compile, BLOCK_RUNS, &run);
        piece = last + 1;
    }
}

static int build_runs(struct compile *compile, enum block_run_table table, enum policy_entry_protocol protocol) {
    struct block_range *range = &compile->header.runs[table];
    range->first = tables_count(compile, BLOCK_RUNS);
    CLEANUP(buf_done) struct buf buf = BUF_INIT;
    collect_claims(compile, protocol, &buf);
    if (buf.failed) return -ENOMEM;
    const struct port_claim *claims = (const struct port_claim *)(const void *)buf.data;
    size_t count = buf.len / sizeof(*claims);
    if (count == 0) return 0;
    AUTO_FREE uint32_t *points = reallocarray(NULL, 6 * count, sizeof(*points)); // then owner and next, as long
    if (!points) return -ENOMEM;
    uint32_t pieces = collect_points(claims, count, points);
    uint32_t *owner = points + 2 * count, *next = points + 4 * count;
    for (uint32_t i = 0; i < pieces; i++) {
        owner[i] = BLOCK_NONE;
        next[i] = i;
    }
    for (size_t i = 0; i < count; i++) claim_pieces(&claims[i], points, pieces, owner, next);
    add_runs(compile, points, owner, pieces);
    range->count = tables_count(compile, BLOCK_RUNS) - range->first;
    return 0;
}

// Whether a loopback entry can ever be used for TCP: the private block is off or lifted by the entry, and its ports are
// listed (the gate takes over ports one by one, so a range of all of them opens none).
static bool opens_loopback(const struct compile *compile, const struct policy_entry *entry) {
    enum { RANGE_MAX = 1024 };
    size_t ports = 0;
    for (size_t i = 0; i < entry->port_count; i++) ports += entry->ports[i].last - entry->ports[i].first + 1u;
    bool lifted = !compile->model->block_private || entry->private_ok || entry->kind == POLICY_ENTRY_CIDR;
    bool tcp = entry->protocol != POLICY_ENTRY_UDP && entry->protocol != POLICY_ENTRY_ICMP;
    bool defaulted = entry->protocol == POLICY_ENTRY_HTTPS || entry->protocol == POLICY_ENTRY_HTTP;
    return tables_names_loopback(entry) && lifted && tcp && ports <= RANGE_MAX && (ports > 0 || defaulted);
}

static void open_ports(uint8_t *open, const struct policy_entry *entry) {
    if (entry->port_count == 0) open[entry->protocol == POLICY_ENTRY_HTTPS ? 443 : 80] = 1;
    for (size_t i = 0; i < entry->port_count; i++) {
        for (uint32_t port = entry->ports[i].first; port <= entry->ports[i].last; port++) open[port] = 1;
    }
}

static int build_loopback(struct compile *compile) {
    enum { PORTS = 65536 };
    AUTO_FREE uint8_t *open = NULL;
    const struct policy_model *model = compile->model;
    for (size_t i = 0; i < model->allow_count; i++) {
        if (!opens_loopback(compile, &model->allow[i])) continue;
        if (!open) open = NEW_ARRAY(uint8_t, PORTS);
        if (!open) return -ENOMEM;
        open_ports(open, &model->allow[i]);
    }
    for (uint32_t port = 1; open && port < PORTS; port++) {
        uint16_t number = (uint16_t)port;
        if (open[port]) tables_add(compile, BLOCK_LOOPBACK, &number);
    }
    return 0;
}

int tables_build(struct compile *compile) {
    if (build_names(compile) != 0 || build_runs(compile, BLOCK_RUNS_HTTPS, POLICY_ENTRY_HTTPS) != 0 ||
        build_runs(compile, BLOCK_RUNS_HTTP, POLICY_ENTRY_HTTP) != 0 || build_loopback(compile) != 0)
        return -ENOMEM;
    build_trees(compile);
    return 0;
}
