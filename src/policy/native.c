// SPDX-License-Identifier: Apache-2.0
// The `native` dialect (semantics section 5.3), a superset of the other two. Nothing is collapsed here: an entry given
// twice is one that can never match, which the compiler refuses with its line.
#include <errno.h>

#include "base/mem.h"
#include "base/number.h"
#include "policy/preset.h"
#include "policy/read.h"

#define PORT_RANGES_MAX 1024
struct native_unit {
    const char *name;
    uint64_t factor, divisor;
};
enum { UNIT_COUNT = 3 };
static const struct native_unit native_units[][UNIT_COUNT] = {
    [POLICY_RATE] = {{"kbit", 1000, 8}, {"mbit", 1000000, 8}, {"gbit", 1000000000, 8}},
    [POLICY_SIZE] = {{"KiB", 1 << 10, 1}, {"MiB", 1 << 20, 1}, {"GiB", 1 << 30, 1}},
};

int policy_read_quantity(const char *text, size_t len, enum policy_quantity kind, uint64_t *ret_bytes) {
    size_t digits = strspn(text, "0123456789");
    for (size_t i = 0; digits && digits < len && i < UNIT_COUNT; i++) {
        const struct native_unit *unit = &native_units[kind][i];
        uint64_t number;
        if (len != digits + strlen(unit->name) || memcmp(text + digits, unit->name, len - digits) != 0) continue;
        if (number_parse(text, digits, 1, INT64_MAX / unit->factor, &number) != 0) break;
        *ret_bytes = number * unit->factor / unit->divisor;
        return 0;
    }
    return -EINVAL;
}

const char *policy_quantity_words(enum policy_quantity kind) {
    static const char *const words[] = {
        [POLICY_RATE] = "a whole number from 1 with a unit (kbit, mbit or gbit), such as 50mbit",
        [POLICY_SIZE] = "a whole number from 1 with a unit (KiB, MiB or GiB), such as 50MiB",
    };
    return words[kind];
}

static int read_quantity(const struct yaml_file *file, const struct yaml_value *value, const char *what,
                         enum policy_quantity kind, uint64_t *ret_bytes) {
    char shown[YAML_QUOTE_SIZE];
    if (value->kind == YAML_SCALAR && policy_read_quantity(value->text, value->len, kind, ret_bytes) == 0) return 0;
    return yaml_fail(file, value, "%s must be %s, not %s", what, policy_quantity_words(kind), yaml_show(value, shown));
}

// --- allow and deny ---

static const char *const protocol_words[] = {"https", "http", "tcp", "udp",
                                             "icmp",  "any",  NULL}; // enum policy_entry_protocol

struct native_entry {
    const struct yaml_value *host, *cidr, *preset, *protocol, *ports, *private_;
};

static int keep_host(const struct yaml_file *file, const struct yaml_value *value, const char *what, void *context) {
    ((struct native_entry *)context)->host = value;
    return yaml_string(file, value, what);
}

static int keep_cidr(const struct yaml_file *file, const struct yaml_value *value, const char *what, void *context) {
    ((struct native_entry *)context)->cidr = value;
    return yaml_string(file, value, what);
}

static int keep_preset(const struct yaml_file *file, const struct yaml_value *value, const char *what, void *context) {
    ((struct native_entry *)context)->preset = value;
    return yaml_string(file, value, what);
}

static int keep_protocol(const struct yaml_file *file, const struct yaml_value *value, const char *what,
                         void *context) {
    size_t index;
    ((struct native_entry *)context)->protocol = value;
    return yaml_word(file, value, what, protocol_words, &index);
}

static int keep_ports(const struct yaml_file *file, const struct yaml_value *value, const char *what, void *context) {
    (void)file;
    (void)what;
    ((struct native_entry *)context)->ports = value;
    return 0;
}

static int keep_private(const struct yaml_file *file, const struct yaml_value *value, const char *what, void *context) {
    bool ignored;
    ((struct native_entry *)context)->private_ = value;
    return yaml_bool(file, value, what, &ignored);
}

// 443, "443" or "8000-8010".
static int read_port(const struct yaml_file *file, const struct yaml_value *value, const char *what, void *context) {
    char shown[YAML_QUOTE_SIZE];
    uint64_t first = 0, last = 0;
    const char *dash = value->kind == YAML_SCALAR ? memchr(value->text, '-', value->len) : NULL;
    size_t first_len = dash ? (size_t)(dash - value->text) : value->len;
    if (value->kind != YAML_SCALAR || number_parse(value->text, first_len, 1, UINT16_MAX, &first) != 0 ||
        (dash && number_parse(dash + 1, value->len - first_len - 1, 1, UINT16_MAX, &last) != 0))
        return yaml_fail(file, value,
                         "%s: %s is not a port; write a number from 1 to 65535 or a range such as \"8000-8010\"", what,
                         yaml_show(value, shown));
    if (!dash) last = first;
    if (last < first)
        return yaml_fail(file, value, "%s: %s runs backwards; write the lower port first", what,
                         yaml_show(value, shown));
    if (policy_entry_add_ports(context, (uint16_t)first, (uint16_t)last) < 0)
        return error_set(file->err, -ENOMEM, "out of memory");
    return 0;
}

static int read_ports(const struct yaml_file *file, const struct native_entry *raw, struct policy_entry *entry) {
    if (!raw->ports) return 0;
    if (raw->ports->kind == YAML_LIST && raw->ports->count > PORT_RANGES_MAX)
        return yaml_fail(file, raw->ports, "ports lists more than 1024 ports or ranges; join some");
    return yaml_each(file, raw->ports, "ports", 1, read_port, entry);
}

static int default_ports(const struct yaml_file *file, const struct yaml_value *value, struct policy_entry *entry) {
    uint16_t port = 0;
    if (entry->port_count > 0) return 0;
    switch (entry->protocol) {
    case POLICY_ENTRY_HTTPS:
        port = 443;
        break;
    case POLICY_ENTRY_HTTP:
        port = 80;
        break;
    case POLICY_ENTRY_TCP:
        return yaml_fail(file, value, "a host with protocol tcp needs its ports; add such as \"ports: [5432]\"");
    case POLICY_ENTRY_UDP:
    case POLICY_ENTRY_ICMP:
    case POLICY_ENTRY_ANY:
        return yaml_fail(file, value, "protocol %s is for cidr entries; a host takes https, http or tcp",
                         protocol_words[entry->protocol]);
    }
    return policy_entry_add_ports(entry, port, port) < 0 ? error_set(file->err, -ENOMEM, "out of memory") : 0;
}

static enum policy_entry_protocol protocol_of(const struct native_entry *raw, enum policy_entry_protocol otherwise) {
    for (size_t i = 0; raw->protocol && protocol_words[i]; i++)
        if (strcmp(raw->protocol->text, protocol_words[i]) == 0) return (enum policy_entry_protocol)i;
    return otherwise;
}

static int read_host(const struct yaml_file *file, const struct native_entry *raw, struct policy_entry *entry) {
    char shown[YAML_QUOTE_SIZE];
    uint16_t port;
    int r = policy_entry_parse_host(raw->host->text, raw->host->len, true, entry, &port, file->err);
    if (r < 0) return yaml_context(file, raw->host, r);
    entry->protocol = protocol_of(raw, POLICY_ENTRY_HTTPS);
    if (entry->protocol > POLICY_ENTRY_TCP)
        return yaml_fail(file, raw->protocol, "protocol %s is for cidr entries; a host takes https, http or tcp",
                         protocol_words[entry->protocol]);
    if (port && raw->ports)
        return yaml_fail(file, raw->host, "host %s has a port beside the key ports; write it there",
                         yaml_show(raw->host, shown));
    if (entry->kind == POLICY_ENTRY_ADDRESS && entry->protocol != POLICY_ENTRY_HTTPS)
        return yaml_fail(file, raw->host, "host %s is an address, which protocol %s does not take; write cidr: %s",
                         yaml_show(raw->host, shown), protocol_words[entry->protocol], raw->host->text);
    entry->private_ok = raw->private_ && strcmp(raw->private_->text, "true") == 0;
    if (port && policy_entry_add_ports(entry, port, port) < 0) return error_set(file->err, -ENOMEM, "out of memory");
    r = read_ports(file, raw, entry);
    return r < 0 ? r : default_ports(file, raw->host, entry);
}

static int read_cidr(const struct yaml_file *file, const struct native_entry *raw, struct policy_entry *entry) {
    int r = policy_entry_parse_cidr(raw->cidr->text, raw->cidr->len, &entry->prefix, file->err);
    if (r < 0) return yaml_context(file, raw->cidr, r);
    entry->kind = POLICY_ENTRY_CIDR;
    entry->protocol = protocol_of(raw, POLICY_ENTRY_ANY);
    if (entry->protocol == POLICY_ENTRY_HTTPS || entry->protocol == POLICY_ENTRY_HTTP)
        return yaml_fail(file, raw->protocol, "protocol %s is for host entries; a cidr takes any, tcp, udp or icmp",
                         protocol_words[entry->protocol]);
    if (raw->private_)
        return yaml_fail(file, raw->private_, "private is for host entries; a cidr opens its range, private or not");
    if (entry->protocol == POLICY_ENTRY_ICMP && raw->ports)
        return yaml_fail(file, raw->ports, "protocol icmp has no ports; remove them");
    return read_ports(file, raw, entry);
}

static int append_preset_host(const struct yaml_file *file, const struct yaml_value *value, const char *host,
                              const char *preset, struct policy_reader *reader) {
    struct policy_entry entry = {0};
    uint16_t port;
    int r = policy_entry_parse_host(host, strlen(host), true, &entry, &port, file->err);
    if (r < 0) return yaml_context(file, value, r);
    entry.preset = true;
    entry.protocol = POLICY_ENTRY_HTTPS;
    AUTO_FREE char *place = policy_read_source(file, value);
    if (!place || asprintf(&entry.source, "%s (@%s)", place, preset) < 0) entry.source = NULL;
    if (!entry.source || policy_entry_add_ports(&entry, 443, 443) < 0) {
        policy_entry_done(&entry);
        return error_set(file->err, -ENOMEM, "out of memory");
    }
    return policy_entry_append(&reader->allow, &entry) < 0 ? error_set(file->err, -ENOMEM, "out of memory") : 0;
}

// "preset: python" and "host: '@python'" are the same.
static int read_preset(const struct yaml_file *file, const struct native_entry *raw, struct policy_reader *reader) {
    const struct yaml_value *value = raw->preset ? raw->preset : raw->host;
    const struct yaml_value *extra = raw->protocol ? raw->protocol : raw->ports ? raw->ports : raw->private_;
    const struct policy_preset *preset;
    if (extra)
        return yaml_fail(file, extra, "%s does not go with a preset, which opens HTTPS on 443; list the hosts themselves",
                         extra->key);
    int r = policy_preset_find(value->text, &preset, file->err);
    if (r < 0) return yaml_context(file, value, r);
    for (size_t i = 0; r == 0 && preset->hosts[i]; i++)
        r = append_preset_host(file, value, preset->hosts[i], preset->name, reader);
    return r;
}

static int read_allow_entry(const struct yaml_file *file, const struct yaml_value *value, const char *what,
                            void *context) {
    static const struct yaml_key keys[] = {
        {"host", "host", keep_host},       {"cidr", "cidr", keep_cidr},
        {"preset", "preset", keep_preset}, {"protocol", "protocol", keep_protocol},
        {"ports", "ports", keep_ports},    {"private", "private", keep_private},
    };
    struct policy_reader *reader = context;
    struct native_entry raw = {0};
    struct policy_entry entry = {0};
    (void)what;
    int r = yaml_map(file, value, "an entry of allow", keys, ARRAY_LENGTH(keys), &raw);
    if (r < 0) return r;
    if (!!raw.host + !!raw.cidr + !!raw.preset != 1)
        return yaml_fail(file, value, "an entry of allow has either host, cidr or preset; write one of them");
    if (raw.preset || (raw.host && raw.host->text[0] == '@')) return read_preset(file, &raw, reader);
    r = raw.host ? read_host(file, &raw, &entry) : read_cidr(file, &raw, &entry);
    if (r == 0) return policy_read_append(file, value, &reader->allow, &entry);
    policy_entry_done(&entry);
    return r;
}

static int read_deny_entry(const struct yaml_file *file, const struct yaml_value *value, const char *what,
                           void *context) {
    static const struct yaml_key keys[] = {{"cidr", "cidr", keep_cidr}};
    struct policy_reader *reader = context;
    struct native_entry raw = {0};
    struct policy_entry entry = {0};
    (void)what;
    if (yaml_member(value, "host"))
        return yaml_fail(file, value,
                         "deny takes cidr only; a name is denied by leaving it out of allow, with base: deny");
    int r = yaml_map(file, value, "an entry of deny", keys, ARRAY_LENGTH(keys), &raw);
    if (r < 0) return r;
    if (!raw.cidr)
        return yaml_fail(file, value, "an entry of deny has no cidr; write such as \"cidr: 198.51.100.0/24\"");
    r = read_cidr(file, &raw, &entry);
    return r < 0 ? r : policy_read_append(file, value, &reader->deny, &entry);
}

static int read_allow(const struct yaml_file *file, const struct yaml_value *value, const char *what, void *context) {
    return yaml_each(file, value, what, 0, read_allow_entry, context);
}

static int read_deny(const struct yaml_file *file, const struct yaml_value *value, const char *what, void *context) {
    return yaml_each(file, value, what, 0, read_deny_entry, context);
}

// --- credentials ---

static int read_credentials(const struct yaml_file *file, const struct yaml_value *value, const char *what,
                            void *context) {
    return yaml_each(file, value, what, 0, policy_read_credential, ((struct policy_reader *)context)->model);
}

// --- the rest ---

static int read_connections(const struct yaml_file *file, const struct yaml_value *value, const char *what,
                            void *context) {
    uint64_t number;
    int r = yaml_number(file, value, what, 1, POLICY_CONNECTIONS_MAX, &number);
    if (r == 0) ((struct policy_reader *)context)->model->max_connections = (uint32_t)number;
    return r;
}

static int read_connection_rate(const struct yaml_file *file, const struct yaml_value *value, const char *what,
                                void *context) {
    uint64_t number;
    int r = yaml_number(file, value, what, 1, POLICY_CONNECTION_RATE_MAX, &number);
    if (r == 0) ((struct policy_reader *)context)->model->connection_rate = (uint32_t)number;
    return r;
}

static int read_bandwidth(const struct yaml_file *file, const struct yaml_value *value, const char *what,
                          void *context) {
    return read_quantity(file, value, what, POLICY_RATE, &((struct policy_reader *)context)->model->bandwidth_bytes);
}

static int read_bytes_out(const struct yaml_file *file, const struct yaml_value *value, const char *what,
                          void *context) {
    return read_quantity(file, value, what, POLICY_SIZE, &((struct policy_reader *)context)->model->max_bytes_out);
}

static int read_limits(const struct yaml_file *file, const struct yaml_value *value, const char *what, void *context) {
    static const struct yaml_key keys[] = {
        {"connections", "limits.connections", read_connections},
        {"connections_per_second", "limits.connections_per_second", read_connection_rate},
        {"bandwidth", "limits.bandwidth", read_bandwidth},
        {"bytes_out", "limits.bytes_out", read_bytes_out},
    };
    return yaml_map(file, value, what, keys, ARRAY_LENGTH(keys), context);
}

static int read_dns_names(const struct yaml_file *file, const struct yaml_value *value, const char *what,
                          void *context) {
    static const char *const words[] = {"synthetic", "real", NULL}; // enum policy_dns_names
    struct policy_model *model = ((struct policy_reader *)context)->model;
    size_t index;
    int r = yaml_word(file, value, what, words, &index);
    if (r < 0) return r;
    model->has_dns_names = true;
    model->dns_names = (enum policy_dns_names)index;
    return 0;
}

static int read_dns(const struct yaml_file *file, const struct yaml_value *value, const char *what, void *context) {
    static const struct yaml_key keys[] = {{"names", "dns.names", read_dns_names}};
    return yaml_map(file, value, what, keys, ARRAY_LENGTH(keys), context);
}

static int read_version(const struct yaml_file *file, const struct yaml_value *value, const char *what, void *context) {
    char shown[YAML_QUOTE_SIZE];
    uint64_t version;
    (void)context;
    if (value->kind == YAML_SCALAR && !value->quoted && number_parse(value->text, value->len, 1, 1, &version) == 0)
        return 0;
    if (value->kind == YAML_SCALAR && value->quoted && strcmp(value->text, "1") == 0)
        return yaml_fail(file, value, "%s is the number 1, not the text %s; write it without quotes", what,
                         yaml_show(value, shown));
    return yaml_fail(file, value, "%s %s is not known; this program reads version: 1", what, yaml_show(value, shown));
}

static int read_base(const struct yaml_file *file, const struct yaml_value *value, const char *what, void *context) {
    static const char *const words[] = {"deny", "allow", NULL};
    struct policy_model *model = ((struct policy_reader *)context)->model;
    size_t index;
    int r = yaml_word(file, value, what, words, &index);
    if (r < 0) return r;
    model->base_allow = index == 1;
    return policy_read_base_source(file, value, model);
}

static int read_block_private(const struct yaml_file *file, const struct yaml_value *value, const char *what,
                              void *context) {
    return yaml_bool(file, value, what, &((struct policy_reader *)context)->model->block_private);
}

int policy_native_read(const struct yaml_file *file, struct policy_reader *reader) {
    static const struct yaml_key keys[] = {
        {"version", "version", read_version},
        {"dialect", "dialect", policy_read_dialect_key},
        {"type", "type", policy_read_type_key},
        {"base", "base", read_base},
        {"block_private", "block_private", read_block_private},
        {"allow", "allow", read_allow},
        {"deny", "deny", read_deny},
        {"credentials", "credentials", read_credentials},
        {"limits", "limits", read_limits},
        {"dns", "dns", read_dns},
    };
    struct policy_model *model = reader->model;
    model->has_network = true;
    model->network = POLICY_NETWORK_NATIVE;
    model->base_allow = false;
    model->block_private = true;
    return yaml_map(file, file->root, "the policy", keys, ARRAY_LENGTH(keys), reader);
}
