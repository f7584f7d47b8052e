// SPDX-License-Identifier: Apache-2.0
// What `hosts`, `--allow`, `cidr` and their like take. Every mistake that a person makes here (a URL, a path, a
// wildcard where none may be, a port out of range) is told apart, because the message must say what to write instead.
#include "policy/entry.h"

#include <errno.h>

#include "base/mem.h"
#include "base/number.h"
#include "policy/yaml.h"

void policy_entry_done(struct policy_entry *entry) {
    free(entry->ports);
    free(entry->source);
    entry->ports = NULL;
    entry->source = NULL;
    entry->port_count = 0;
}

// The part of a text that looks like the host, for "write ...".
static int host_part(const char *text, size_t len, const char **ret_part) {
    const char *scheme = memmem(text, len, "://", 3);
    size_t start = scheme ? (size_t)(scheme - text) + 3 : 0, end = start;
    while (end < len && !memchr("/?#\\", text[end], 4)) end++;
    for (size_t i = start; i < end; i++)
        if (text[i] == '@') start = i + 1;
    *ret_part = end > start ? text + start : "HOST";
    size_t part_len = end > start ? end - start : strlen("HOST");
    return part_len > 255 ? 255 : (int)part_len;
}

static bool has_any(const char *text, size_t len, const char *bytes) {
    for (size_t i = 0; i < len; i++)
        if (text[i] && strchr(bytes, text[i])) return true;
    return false;
}

static bool has_control(const char *text, size_t len) {
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f) return true;
    return false;
}

// Mistakes that the shape alone shows. 0 if there is none.
static int host_shape(const char *text, size_t len, bool wildcard, struct error *err) {
    char quoted[YAML_QUOTE_SIZE];
    const char *part;
    struct addr_prefix prefix;
    bool host_bits;
    if (!text || len == 0) return error_set(err, -EINVAL, "\"\" is empty; write a host name such as api.example.com");
    int part_len = host_part(text, len, &part);
    yaml_quote(text, len, quoted);
    if (has_control(text, len))
        return error_set(err, -EINVAL, "\"%s\" has a control byte; write the host name alone", quoted);
    if (memmem(text, len, "://", 3))
        return error_set(err, -EINVAL, "\"%s\" has a scheme; write \"%.*s\"", quoted, part_len, part);
    if (memchr(text, '/', len) && addr_prefix_parse(text, len, &prefix, &host_bits) == 0)
        return error_set(err, -EINVAL,
                         "\"%s\" is an address range, not a host; write it under egress.allow_cidrs (network), as cidr "
                         "(native), or with --allow-cidr",
                         quoted);
    if (has_any(text, len, "/?#\\"))
        return error_set(err, -EINVAL, "\"%s\" has a path or query; write \"%.*s\"", quoted, part_len, part);
    if (memchr(text, '@', len))
        return error_set(err, -EINVAL, "\"%s\" has user information; write \"%.*s\"", quoted, part_len, part);
    if (memchr(text, ' ', len)) return error_set(err, -EINVAL, "\"%s\" has a space; write one host per entry", quoted);
    size_t star = wildcard && len > 2 && text[0] == '*' && text[1] == '.' ? 2 : 0;
    if (memchr(text + star, '*', len - star))
        return error_set(err, -EINVAL,
                         wildcard
                             ? "\"%s\" has a '*' that is not the whole first label; write *.example.com or an exact "
                               "name"
                             : "\"%s\" has a '*', but hosts takes exact names only; list each host",
                         quoted);
    return 0;
}

// Splits "HOST:PORT". An IPv6 address has a port only in brackets. *ret_host_len is the length of the host's text.
static int host_port(const char *text, size_t len, size_t *ret_host_len, uint16_t *ret_port, struct error *err) {
    char quoted[YAML_QUOTE_SIZE];
    const char *bracket = text[0] == '[' ? memchr(text, ']', len) : NULL;
    const char *colon = memchr(text, ':', len);
    uint64_t port = 0;
    yaml_quote(text, len, quoted);
    if (text[0] == '[') {
        if (!bracket || (bracket + 1 < text + len && bracket[1] != ':'))
            return error_set(err, -EINVAL, "\"%s\" has a bracket in the wrong place; write [ADDRESS]:PORT", quoted);
        colon = bracket + 1 < text + len ? bracket + 1 : NULL;
    } else if (colon && memchr(colon + 1, ':', len - (size_t)(colon - text) - 1)) {
        colon = NULL; // a bare IPv6 address
    }
    *ret_host_len = colon ? (size_t)(colon - text) : len;
    if (colon && number_parse(colon + 1, len - *ret_host_len - 1, 1, UINT16_MAX, &port) != 0)
        return error_set(err, -EINVAL, "\"%s\" has a bad port; write a number from 1 to 65535 after the colon", quoted);
    *ret_port = (uint16_t)port;
    return 0;
}

static int host_address(const char *text, size_t len, struct policy_entry *entry) {
    struct addr addr;
    bool bracket = len > 2 && text[0] == '[' && text[len - 1] == ']';
    if (bracket) {
        text++;
        len -= 2;
    }
    if (bracket && !memchr(text, ':', len)) return -EINVAL;
    if (addr_parse(text, len, &addr) != 0) return -EINVAL;
    entry->kind = POLICY_ENTRY_ADDRESS;
    entry->prefix = (struct addr_prefix){.addr = addr, .length = addr.family == ADDR_IPV4 ? 32 : 128};
    return 0;
}

static int host_name(const char *text, size_t len, struct policy_entry *entry, struct error *err) {
    struct name_host host;
    bool wildcard = len > 2 && text[0] == '*' && text[1] == '.';
    size_t skip = wildcard ? 2 : 0;
    int r = name_from_policy(text + skip, len - skip, &host, err);
    if (r < 0) return r;
    if (host.is_address && wildcard)
        return error_set(err, -EINVAL, "\"%.*s\" is a wildcard over an address; write cidr or --allow-cidr for a range",
                         (int)len, text);
    if (host.is_address) { // in another spelling than addr_parse takes
        entry->kind = POLICY_ENTRY_ADDRESS;
        entry->prefix =
            (struct addr_prefix){.addr = host.address, .length = host.address.family == ADDR_IPV4 ? 32 : 128};
        return 0;
    }
    entry->kind = wildcard ? POLICY_ENTRY_WILDCARD : POLICY_ENTRY_NAME;
    memcpy(entry->name, host.name, sizeof(host.name));
    return 0;
}

int policy_entry_parse_host(const char *text, size_t len, bool wildcard, struct policy_entry *ret_entry,
                            uint16_t *ret_port, struct error *err) {
    char quoted[YAML_QUOTE_SIZE];
    struct policy_entry entry = {0};
    uint16_t port = 0;
    size_t host_len = len;
    int r = host_shape(text, len, wildcard, err);
    if (r == 0) r = host_port(text, len, &host_len, &port, err);
    if (r < 0) return r;
    yaml_quote(text, len, quoted);
    if (host_address(text, host_len, &entry) != 0) {
        if (has_any(text, host_len, "[]:"))
            return error_set(
                err, -EINVAL,
                "\"%s\" is neither HOST:PORT nor an IPv6 address; write HOST, HOST:PORT, or an IPv6 address "
                "([ADDRESS]:PORT with a port)",
                quoted);
        r = host_name(text, host_len, &entry, err);
        // The message quotes what was looked at; the person wrote more.
        if (r < 0 && (host_len != len || text[0] == '*')) return error_context(err, r, "\"%s\"", quoted);
        if (r < 0) return r;
    }
    *ret_entry = entry;
    *ret_port = port;
    return 0;
}

// "10.0.0.1:22", "[2001:db8::1]", "[2001:db8::1]:22": what is written for a host. 0 if it is none of these.
static int cidr_shape(const char *text, size_t len, struct error *err) {
    char quoted[YAML_QUOTE_SIZE];
    struct addr_prefix prefix;
    uint16_t port = 0;
    size_t host_len = len;
    bool host_bits;
    yaml_quote(text, len, quoted);
    if (len == 0 || host_port(text, len, &host_len, &port, NULL) < 0) return 0;
    size_t skip = text[0] == '[' ? 1 : 0;
    if (host_len <= 2 * skip || addr_prefix_parse(text + skip, host_len - 2 * skip, &prefix, &host_bits) != 0) return 0;
    if (port)
        return error_set(err, -EINVAL,
                         "\"%s\" has a port; ports go in an entry of a policy file: {cidr: \"%.*s\", ports: [%u]}", quoted,
                         (int)(host_len - 2 * skip), text + skip, port);
    return skip ? error_set(err, -EINVAL, "\"%s\" has brackets; write \"%.*s\" without brackets", quoted,
                            (int)(host_len - 2), text + 1)
                : 0;
}

int policy_entry_parse_cidr(const char *text, size_t len, struct addr_prefix *ret_prefix, struct error *err) {
    char quoted[YAML_QUOTE_SIZE], right[ADDR_TEXT_SIZE];
    struct addr_prefix prefix;
    bool host_bits;
    yaml_quote(text, len, quoted);
    if (addr_prefix_parse(text, len, &prefix, &host_bits) != 0 && cidr_shape(text, len, err) < 0) return -EINVAL;
    if (addr_prefix_parse(text, len, &prefix, &host_bits) != 0)
        return error_set(
            err, -EINVAL,
            "\"%s\" is not an IP address or CIDR range; write an address such as 203.0.113.10 or a range such "
            "as 10.0.0.0/8 or 2001:db8::/32%s",
            quoted, has_any(text, len, "/:") ? "" : " (a host name must be resolved first)");
    if (host_bits)
        return error_set(err, -EINVAL, "\"%s\" has host bits set; write \"%s\"", quoted,
                         addr_prefix_format(&prefix, right));
    *ret_prefix = prefix;
    return 0;
}

void *policy_entry_grow(void *array, size_t count, size_t element_size) {
    if (count & (count - 1)) return array; // between two powers of two there is room
    return reallocarray(array, count ? 2 * count : 1, element_size);
}

int policy_entry_add_ports(struct policy_entry *entry, uint16_t first, uint16_t last) {
    for (size_t i = 0; i < entry->port_count; i++)
        if (entry->ports[i].first == first && entry->ports[i].last == last) return 0;
    struct policy_port_range *ports = policy_entry_grow(entry->ports, entry->port_count, sizeof(*ports));
    if (!ports) return -ENOMEM;
    entry->ports = ports;
    ports[entry->port_count++] = (struct policy_port_range){.first = first, .last = last};
    return 0;
}

bool policy_entry_equal(const struct policy_entry *a, const struct policy_entry *b) {
    return a->kind == b->kind && a->protocol == b->protocol && a->port_count == b->port_count &&
           a->private_ok == b->private_ok && a->both_families == b->both_families && strcmp(a->name, b->name) == 0 &&
           a->prefix.length == b->prefix.length && addr_equal(&a->prefix.addr, &b->prefix.addr) &&
           (a->port_count == 0 || memcmp(a->ports, b->ports, a->port_count * sizeof(*a->ports)) == 0);
}

// FNV-1a. An attacker who makes its own policy slow to load slows its own start; the text is bounded to 1 MiB.
static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t len) {
    for (size_t i = 0; i < len; i++) hash = (hash ^ ((const uint8_t *)bytes)[i]) * 0x100000001b3;
    return hash;
}

static size_t entry_hash(const struct policy_entry *entry) {
    uint64_t hash = hash_bytes(0xcbf29ce484222325, entry->name, strlen(entry->name));
    hash = hash_bytes(hash, entry->prefix.addr.bytes, sizeof(entry->prefix.addr.bytes));
    hash = hash_bytes(hash, &entry->prefix.length, sizeof(entry->prefix.length));
    const uint8_t kinds[] = {(uint8_t)entry->kind, (uint8_t)entry->protocol};
    hash = hash_bytes(hash, kinds, sizeof(kinds));
    if (entry->port_count) hash = hash_bytes(hash, entry->ports, entry->port_count * sizeof(*entry->ports));
    return (size_t)(hash ^ hash >> 32);
}

// Slot of an equal entry, or the free one where it would go. The table is never full.
static size_t find_slot(const struct policy_entry_list *list, const struct policy_entry *entry) {
    size_t at = entry_hash(entry) & (list->slot_count - 1);
    while (list->slots[at] && !policy_entry_equal(&(*list->entries)[list->slots[at] - 1], entry))
        at = (at + 1) & (list->slot_count - 1);
    return at;
}

// At most half of the slots are taken.
static int reserve_slots(struct policy_entry_list *list) {
    if (list->slots && 2 * (*list->count + 1) <= list->slot_count) return 0;
    size_t slot_count = list->slot_count ? 2 * list->slot_count : 16;
    while (slot_count < 2 * (*list->count + 1)) slot_count *= 2;
    free(list->slots);
    list->slots = NEW_ARRAY(uint32_t, slot_count);
    list->slot_count = list->slots ? slot_count : 0;
    if (!list->slots) return -ENOMEM;
    for (size_t i = 0; i < *list->count; i++) list->slots[find_slot(list, &(*list->entries)[i])] = (uint32_t)i + 1;
    return 0;
}

int policy_entry_append(struct policy_entry_list *list, struct policy_entry *entry) {
    size_t slot = 0;
    if (list->collapse) {
        if (reserve_slots(list) < 0) goto no_memory;
        slot = find_slot(list, entry);
        if (list->slots[slot]) {
            policy_entry_done(entry);
            return 0;
        }
    }
    struct policy_entry *entries = policy_entry_grow(*list->entries, *list->count, sizeof(*entries));
    if (!entries) goto no_memory;
    *list->entries = entries;
    entries[(*list->count)++] = *entry;
    if (list->collapse) list->slots[slot] = (uint32_t)*list->count;
    *entry = (struct policy_entry){0};
    return 0;
no_memory:
    policy_entry_done(entry);
    return -ENOMEM;
}

void policy_entry_list_done(struct policy_entry_list *list) {
    free(list->slots);
    list->slots = NULL;
    list->slot_count = 0;
}
