// SPDX-License-Identifier: Apache-2.0
// The node's configuration: settings by table. A row gives the key in the file, the variable that overrides it
// (PENSTOCK_ and its path in capitals), how a value is read, its default and its meaning.
// A variable replaces the value of the file; a list in a variable is separated by commas.
#include <errno.h>

#include "base/mem.h"
#include "base/number.h"
#include "policy/entry.h"
#include "policy/binding.h"
#include "policy/model.h"
#include "policy/read.h"
#include "policy/yaml.h"

#define VARIABLE_PREFIX "PENSTOCK_"
#define MEMORY_MIN 128       // MiB: the least that the API takes
#define POOL4_LENGTH_MAX 19  // at least 8,192 addresses: a sandbox may hold 4,096 names
#define POOL6_LENGTH_MAX 112 // 65,536

enum node_kind { NODE_TEXT, NODE_NUMBER, NODE_BOOL, NODE_LIST };

struct node_setting {
    const char *section, *key;
    enum node_kind kind;
    void (*clear)(struct policy_node *node);
    int (*take)(struct policy_node *node, const char *text, size_t len, struct error *err); // one value or item
    const char *fallback, *help;
};

// --- readers of one value ---

static int add_prefix(struct addr_prefix **list, size_t *count, const char *text, size_t len, struct error *err) {
    struct addr_prefix prefix;
    int r = policy_entry_parse_cidr(text, len, &prefix, err);
    if (r < 0) return r;
    struct addr_prefix *grown = policy_entry_grow(*list, *count, sizeof(*grown));
    if (!grown) return error_set(err, -ENOMEM, "out of memory");
    *list = grown;
    grown[(*count)++] = prefix;
    return 0;
}

static int add_name(char (**names)[NAME_SIZE], size_t *count, const char *text, size_t len, struct error *err) {
    struct policy_entry entry;
    uint16_t port;
    char quoted[YAML_QUOTE_SIZE];
    int r = policy_entry_parse_host(text, len, true, &entry, &port, err);
    if (r < 0) return r;
    if (port || entry.kind == POLICY_ENTRY_ADDRESS)
        return error_set(err, -EINVAL, "\"%s\" has a port; a guardrail covers every port, write the host alone",
                         yaml_quote(text, len, quoted));
    const char *star = entry.kind == POLICY_ENTRY_WILDCARD ? "*." : "";
    if (strlen(star) + strlen(entry.name) >= NAME_SIZE)
        return error_set(err, -EINVAL, "\"%s\" is too long for a wildcard", yaml_quote(text, len, quoted));
    void *grown = policy_entry_grow(*names, *count, NAME_SIZE);
    if (!grown) return error_set(err, -ENOMEM, "out of memory");
    *names = grown;
    char *name = (*names)[(*count)++];
    memcpy(name, star, strlen(star));
    memcpy(name + strlen(star), entry.name, strlen(entry.name) + 1);
    return 0;
}

static int take_denied(struct policy_node *node, const char *text, size_t len, struct error *err) {
    struct addr_prefix prefix;
    bool host_bits;
    if (memchr(text, '/', len) || addr_prefix_parse(text, len, &prefix, &host_bits) == 0)
        return add_prefix(&node->always_denied, &node->always_denied_count, text, len, err);
    return add_name(&node->always_denied_names, &node->always_denied_name_count, text, len, err);
}

static void clear_denied(struct policy_node *node) {
    node->has_always_denied = true; // an empty list too replaces the default
    node->always_denied_count = node->always_denied_name_count = 0;
    free(node->always_denied);
    free(node->always_denied_names);
    node->always_denied = NULL;
    node->always_denied_names = NULL;
}

static int take_allowed(struct policy_node *node, const char *text, size_t len, struct error *err) {
    struct addr_prefix prefix;
    bool host_bits;
    if (memchr(text, '/', len) || addr_prefix_parse(text, len, &prefix, &host_bits) == 0)
        return add_prefix(&node->always_allowed, &node->always_allowed_count, text, len, err);
    return add_name(&node->always_allowed_names, &node->always_allowed_name_count, text, len, err);
}

static void clear_allowed(struct policy_node *node) {
    free(node->always_allowed);
    free(node->always_allowed_names);
    node->always_allowed = NULL;
    node->always_allowed_names = NULL;
    node->always_allowed_count = node->always_allowed_name_count = 0;
}

static int take_bool(bool *field, const char *text, size_t len, struct error *err) {
    char quoted[YAML_QUOTE_SIZE];
    *field = len == 4 && memcmp(text, "true", 4) == 0;
    if (*field || (len == 5 && memcmp(text, "false", 5) == 0)) return 0;
    return error_set(err, -EINVAL, "\"%s\" is neither true nor false; write one of them", yaml_quote(text, len, quoted));
}

static int take_deny_own(struct policy_node *node, const char *text, size_t len, struct error *err) {
    node->has_deny_own_addresses = true;
    return take_bool(&node->deny_own_addresses, text, len, err);
}

static int take_local(struct policy_node *node, const char *text, size_t len, struct error *err) {
    return take_bool(&node->local_images, text, len, err);
}

static int take_own(struct policy_node *node, const char *text, size_t len, struct error *err) {
    struct addr addr;
    char quoted[YAML_QUOTE_SIZE];
    if (addr_parse(text, len, &addr) != 0)
        return error_set(err, -EINVAL, "\"%s\" is not an IP address; write such as 203.0.113.10",
                         yaml_quote(text, len, quoted));
    struct addr *grown = policy_entry_grow(node->own_addresses, node->own_address_count, sizeof(*grown));
    if (!grown) return error_set(err, -ENOMEM, "out of memory");
    node->own_addresses = grown;
    grown[node->own_address_count++] = addr;
    return 0;
}

static void clear_own(struct policy_node *node) {
    free(node->own_addresses);
    node->own_addresses = NULL;
    node->own_address_count = 0;
}

static int take_nat64(struct policy_node *node, const char *text, size_t len, struct error *err) {
    static const uint8_t lengths[] = {32, 40, 48, 56, 64, 96}; // RFC 6052 section 2.2
    char quoted[YAML_QUOTE_SIZE];
    int r = add_prefix(&node->nat64_prefixes, &node->nat64_count, text, len, err);
    if (r < 0) return r;
    const struct addr_prefix *prefix = &node->nat64_prefixes[node->nat64_count - 1];
    if (prefix->addr.family == ADDR_IPV6 && memchr(lengths, prefix->length, sizeof(lengths))) return 0;
    return error_set(err, -EINVAL,
                     "\"%s\" is not a NAT64 prefix; write an IPv6 prefix of length 32, 40, 48, 56, 64 or 96",
                     yaml_quote(text, len, quoted));
}

static void clear_nat64(struct policy_node *node) {
    free(node->nat64_prefixes);
    node->nat64_prefixes = NULL;
    node->nat64_count = 0;
}

static int take_server(struct policy_node *node, const char *text, size_t len, struct error *err) {
    struct policy_entry entry;
    uint16_t port;
    char quoted[YAML_QUOTE_SIZE];
    int r = policy_entry_parse_host(text, len, false, &entry, &port, NULL);
    if (r < 0 || entry.kind != POLICY_ENTRY_ADDRESS)
        return error_set(err, -EINVAL,
                         "\"%s\" is not the address of a DNS server; write ADDR, ADDR:PORT or [ADDR6]:PORT",
                         yaml_quote(text, len, quoted));
    char **grown = policy_entry_grow(node->dns_servers, node->dns_server_count, sizeof(*grown));
    if (!grown) return error_set(err, -ENOMEM, "out of memory");
    node->dns_servers = grown;
    grown[node->dns_server_count] = strndup(text, len);
    if (!grown[node->dns_server_count]) return error_set(err, -ENOMEM, "out of memory");
    node->dns_server_count++;
    return 0;
}

static void clear_servers(struct policy_node *node) {
    for (size_t i = 0; i < node->dns_server_count; i++) free(node->dns_servers[i]);
    free(node->dns_servers);
    node->dns_servers = NULL;
    node->dns_server_count = 0;
}

static int add_text(char ***list, size_t *count, const char *text, size_t len, struct error *err) {
    char **grown = policy_entry_grow(*list, *count, sizeof(*grown));
    if (!grown) return error_set(err, -ENOMEM, "out of memory");
    *list = grown;
    grown[*count] = strndup(text, len);
    if (!grown[*count]) return error_set(err, -ENOMEM, "out of memory");
    (*count)++;
    return 0;
}

static void clear_texts(char ***list, size_t *count) {
    for (size_t i = 0; i < *count; i++) free((*list)[i]);
    free(*list);
    *list = NULL;
    *count = 0;
}

static bool is_registry(const char *text, size_t len) {
    for (size_t i = 0; i < len; i++)
        if (text[i] <= ' ' || text[i] > '~' || strchr("=@?#", text[i])) return false;
    return len > 0 && len < 512;
}

static int take_mirror(struct policy_node *node, const char *text, size_t len, struct error *err) {
    char quoted[YAML_QUOTE_SIZE];
    const char *equals = memchr(text, '=', len);
    size_t name = equals ? (size_t)(equals - text) : 0;
    if (!equals || !is_registry(text, name) || !is_registry(equals + 1, len - name - 1))
        return error_set(err, -EINVAL, "\"%s\" is not a mirror; write REGISTRY=OTHER, as in docker.io=127.0.0.1:5000",
                         yaml_quote(text, len, quoted));
    return add_text(&node->mirrors, &node->mirror_count, text, len, err);
}

static void clear_mirrors(struct policy_node *node) { clear_texts(&node->mirrors, &node->mirror_count); }

static int take_plain(struct policy_node *node, const char *text, size_t len, struct error *err) {
    char quoted[YAML_QUOTE_SIZE];
    if (!is_registry(text, len))
        return error_set(err, -EINVAL, "\"%s\" is not a registry; write HOST or HOST:PORT", yaml_quote(text, len, quoted));
    return add_text(&node->plain_http, &node->plain_http_count, text, len, err);
}

static void clear_plain(struct policy_node *node) { clear_texts(&node->plain_http, &node->plain_http_count); }

static int take_listen(struct policy_node *node, const char *text, size_t len, struct error *err) {
    struct policy_entry entry;
    uint16_t port;
    char quoted[YAML_QUOTE_SIZE];
    int r = policy_entry_parse_host(text, len, false, &entry, &port, NULL);
    if (r < 0 || entry.kind != POLICY_ENTRY_ADDRESS || !port)
        return error_set(err, -EINVAL, "\"%s\" is not an address to listen on; write ADDR:PORT or [ADDR6]:PORT",
                         yaml_quote(text, len, quoted));
    node->listen_address = entry.prefix.addr;
    node->listen_port = port;
    return 0;
}

static int take_count(uint32_t *field, uint32_t min, uint32_t max, const char *text, size_t len, struct error *err) {
    char quoted[YAML_QUOTE_SIZE];
    uint64_t number;
    if (number_parse(text, len, min, max, &number) < 0)
        return error_set(err, -EINVAL, "\"%s\" is not a number from %u to %u", yaml_quote(text, len, quoted), min, max);
    *field = (uint32_t)number;
    return 0;
}

static int take_sandboxes(struct policy_node *node, const char *text, size_t len, struct error *err) {
    return take_count(&node->max_sandboxes, 1, 10000, text, len, err);
}

static int take_memory(struct policy_node *node, const char *text, size_t len, struct error *err) {
    return take_count(&node->memory_mb, MEMORY_MIN, 1 << 20, text, len, err);
}

static int take_cpus(struct policy_node *node, const char *text, size_t len, struct error *err) {
    return take_count(&node->cpu_count, 1, 1024, text, len, err);
}

static int take_pids(struct policy_node *node, const char *text, size_t len, struct error *err) {
    return take_count(&node->pids, 1, 1 << 20, text, len, err);
}

static int take_max_memory(struct policy_node *node, const char *text, size_t len, struct error *err) {
    return take_count(&node->max_memory_mb, MEMORY_MIN, 1 << 20, text, len, err);
}

static int take_max_cpus(struct policy_node *node, const char *text, size_t len, struct error *err) {
    return take_count(&node->max_cpu_count, 1, 1024, text, len, err);
}

static int take_connections(struct policy_node *node, const char *text, size_t len, struct error *err) {
    return take_count(&node->max_connections, 1, POLICY_CONNECTIONS_MAX, text, len, err);
}

static int take_connection_rate(struct policy_node *node, const char *text, size_t len, struct error *err) {
    return take_count(&node->connection_rate, 1, POLICY_CONNECTION_RATE_MAX, text, len, err);
}

static int take_quantity(uint64_t *field, enum policy_quantity kind, const char *text, size_t len, struct error *err) {
    char quoted[YAML_QUOTE_SIZE];
    if (policy_read_quantity(text, len, kind, field) == 0) return 0;
    return error_set(err, -EINVAL, "\"%s\" is not %s", yaml_quote(text, len, quoted), policy_quantity_words(kind));
}

static int take_bandwidth(struct policy_node *node, const char *text, size_t len, struct error *err) {
    return take_quantity(&node->bandwidth_bytes, POLICY_RATE, text, len, err);
}

static int take_bytes_out(struct policy_node *node, const char *text, size_t len, struct error *err) {
    return take_quantity(&node->max_bytes_out, POLICY_SIZE, text, len, err);
}

static int take_pool(struct addr_prefix *pool, enum addr_family family, uint8_t length_max, const char *text,
                     size_t len, struct error *err) {
    char quoted[YAML_QUOTE_SIZE];
    struct addr_prefix prefix;
    int r = policy_entry_parse_cidr(text, len, &prefix, err);
    if (r < 0) return r;
    if (prefix.addr.family != family || prefix.length > length_max || prefix.length < 8)
        return error_set(err, -EINVAL,
                         "\"%s\" is not a pool of synthetic addresses; write an IPv%d range from /8 to /%u",
                         yaml_quote(text, len, quoted), (int)family, length_max);
    *pool = prefix;
    return 0;
}

static int take_pool4(struct policy_node *node, const char *text, size_t len, struct error *err) {
    return take_pool(&node->pool4, ADDR_IPV4, POOL4_LENGTH_MAX, text, len, err);
}

static int take_pool6(struct policy_node *node, const char *text, size_t len, struct error *err) {
    return take_pool(&node->pool6, ADDR_IPV6, POOL6_LENGTH_MAX, text, len, err);
}

// --- the table ---

static const struct node_setting node_settings[] = {
    {"network.egress", "always_denied", NODE_LIST, clear_denied, take_denied,
     "every address that is not globally reachable, for e2b policies; else none",
     "addresses, CIDRs and names (*.domain too) that no sandbox reaches, whatever its policy says; replaces the default"},
    {"network.egress", "always_allowed", NODE_LIST, clear_allowed, take_allowed, "none",
     "addresses and CIDRs exempt from always_denied and deny_own_addresses; opens nothing"},
    {"network.egress", "deny_own_addresses", NODE_BOOL, NULL, take_deny_own, "true for e2b policies; else false",
     "deny every address of this host"},
    {"network.egress", "own_addresses", NODE_LIST, clear_own, take_own, "none",
     "addresses of this host that its routing table does not show (1:1 NAT)"},
    {"network.egress", "nat64_prefixes", NODE_LIST, clear_nat64, take_nat64, "none",
     "NAT64 prefixes beside 64:ff9b::/96; their addresses are judged by the IPv4 address inside"},
    {"network.dns", "servers", NODE_LIST, clear_servers, take_server, "those of the host",
     "upstream servers: ADDR, ADDR:PORT, [ADDR6]:PORT"},
    {"network.dns", "pool4", NODE_TEXT, NULL, take_pool4, "198.18.0.0/15", "IPv4 pool of synthetic addresses"},
    {"network.dns", "pool6", NODE_TEXT, NULL, take_pool6, "a ULA prefix", "IPv6 pool of synthetic addresses"},
    {"limits", "connections", NODE_NUMBER, NULL, take_connections, "none", "most connections at once of a sandbox, whatever its policy says"},
    {"limits", "connections_per_second", NODE_NUMBER, NULL, take_connection_rate, "none", "most new connections of a sandbox"},
    {"limits", "bandwidth", NODE_TEXT, NULL, take_bandwidth, "none", "most of a sandbox each way, as in 50mbit (per second)"},
    {"limits", "bytes_out", NODE_TEXT, NULL, take_bytes_out, "none", "most that a sandbox may send in its life, as in 10GiB"},
    {"images", "mirrors", NODE_LIST, clear_mirrors, take_mirror, "none", "where images of a registry are taken from: REGISTRY=OTHER"},
    {"images", "plain_http", NODE_LIST, clear_plain, take_plain, "none", "registries that are asked without TLS: HOST:PORT"},
    {"images", "local", NODE_BOOL, NULL, take_local, "false", "whether clients may name images that are files of this host (oci:, docker-archive:)"},
    {"node", "listen", NODE_TEXT, NULL, take_listen, "127.0.0.1:8000", "address of the REST API"},
    {"node", "sandboxes", NODE_NUMBER, NULL, take_sandboxes, "1000", "sandboxes at once"},
    {"node", "memory_mb", NODE_NUMBER, NULL, take_memory, "512", "memory of a sandbox that does not say (MiB, from 128)"},
    {"node", "cpu_count", NODE_NUMBER, NULL, take_cpus, "1", "CPUs of a sandbox that does not say"},
    {"node", "max_memory_mb", NODE_NUMBER, NULL, take_max_memory, "none", "most memory that a sandbox may ask for (MiB, from 128)"},
    {"node", "max_cpu_count", NODE_NUMBER, NULL, take_max_cpus, "none", "most CPUs that a sandbox may ask for"},
    {"node", "pids", NODE_NUMBER, NULL, take_pids, "1024", "processes of a sandbox"},
};

static void setting_name(const struct node_setting *setting, char name[64]) {
    snprintf(name, 64, "%s.%s", setting->section, setting->key);
}

static void setting_variable(const struct node_setting *setting, char name[64]) {
    snprintf(name, 64, VARIABLE_PREFIX "%s_%s", setting->section, setting->key);
    for (char *at = name; *at; at++) {
        if (*at >= 'a' && *at <= 'z') *at = (char)(*at - 32);
        if (*at == '.') *at = '_';
    }
}

const char *policy_node_help(size_t line, char buf[POLICY_NODE_HELP_SIZE]) {
    char name[64];
    const size_t lines = 3;
    static const char *const rules[] = {
        "credentials.workspace: rules for sandboxes whose policy has a workspace binding, as credentials of a native policy",
        "    default: none"};
    if (line >= lines * ARRAY_LENGTH(node_settings) + ARRAY_LENGTH(rules)) return NULL;
    if (line >= lines * ARRAY_LENGTH(node_settings)) {
        snprintf(buf, POLICY_NODE_HELP_SIZE, "%s", rules[line - lines * ARRAY_LENGTH(node_settings)]);
        return buf;
    }
    const struct node_setting *setting = &node_settings[line / lines];
    if (line % lines == 0) {
        setting_name(setting, name);
        snprintf(buf, POLICY_NODE_HELP_SIZE, "%s: %s", name, setting->help);
    } else if (line % lines == 1) {
        snprintf(buf, POLICY_NODE_HELP_SIZE, "    default: %s", setting->fallback);
    } else {
        setting_variable(setting, name);
        snprintf(buf, POLICY_NODE_HELP_SIZE, "    variable: %s%s", name, setting->kind == NODE_LIST ? "=a,b" : "");
    }
    return buf;
}

// --- the file ---

struct node_reader {
    struct policy_node *node;
    const struct node_setting *setting; // whose list is read
};

static int read_item(const struct yaml_file *file, const struct yaml_value *value, const char *what, void *context) {
    struct node_reader *reader = context;
    uint64_t number;
    bool truth;
    int r = 0;
    switch (reader->setting->kind) {
    case NODE_TEXT:
    case NODE_LIST: r = yaml_string(file, value, what); break;
    case NODE_NUMBER: // its own reader says which
        if (value->kind != YAML_SCALAR) r = yaml_number(file, value, what, 1, UINT32_MAX, &number);
        break;
    case NODE_BOOL: r = yaml_bool(file, value, what, &truth); break;
    }
    if (r < 0) return r;
    r = reader->setting->take(reader->node, value->text, value->len, file->err);
    if (r < 0) error_context(file->err, r, "%s", what);
    return r < 0 ? yaml_context(file, value, r) : 0;
}

static int read_setting(const struct yaml_file *file, const struct yaml_value *value, const char *what, void *context) {
    char name[64];
    for (size_t i = 0; i < ARRAY_LENGTH(node_settings); i++) {
        setting_name(&node_settings[i], name);
        if (strcmp(name, what) != 0) continue;
        struct node_reader reader = {.node = context, .setting = &node_settings[i]};
        if (reader.setting->kind != NODE_LIST) return read_item(file, value, what, &reader);
        reader.setting->clear(reader.node);
        return yaml_each(file, value, what, 0, read_item, &reader);
    }
    return yaml_fail(file, value, "unknown setting %s", what);
}

// The rows of one section as keys of a mapping.
static int read_section(const struct yaml_file *file, const struct yaml_value *value, const char *what, void *context) {
    char names[ARRAY_LENGTH(node_settings)][64];
    struct yaml_key keys[ARRAY_LENGTH(node_settings)];
    size_t count = 0;
    for (size_t i = 0; i < ARRAY_LENGTH(node_settings); i++) {
        if (strcmp(node_settings[i].section, what) != 0) continue;
        setting_name(&node_settings[i], names[count]);
        keys[count] = (struct yaml_key){node_settings[i].key, names[count], read_setting};
        count++;
    }
    return yaml_map(file, value, what, keys, count, context);
}

static int read_network(const struct yaml_file *file, const struct yaml_value *value, const char *what, void *context) {
    static const struct yaml_key keys[] = {
        {"egress", "network.egress", read_section},
        {"dns", "network.dns", read_section},
    };
    return yaml_map(file, value, what, keys, ARRAY_LENGTH(keys), context);
}

// Rules are checked against each other as the bindings of a policy are.
static int read_rules(const struct yaml_file *file, const struct yaml_value *value, const char *what, void *context) {
    struct policy_node *node = context;
    struct policy_model rules = {0};
    int r = yaml_each(file, value, what, 0, policy_read_credential, &rules);
    node->workspace = rules.bindings;
    node->workspace_count = rules.binding_count;
    for (size_t i = 0; r == 0 && i < node->workspace_count; i++)
        if (node->workspace[i].kind == POLICY_BINDING_WORKSPACE)
            r = yaml_fail(file, value, "%s: a rule cannot be binding: workspace, which stands for these rules; remove it", what);
    return r;
}

static int read_credentials(const struct yaml_file *file, const struct yaml_value *value, const char *what,
                            void *context) {
    static const struct yaml_key keys[] = {{"workspace", "credentials.workspace", read_rules}};
    return yaml_map(file, value, what, keys, ARRAY_LENGTH(keys), context);
}

static int read_file(const char *text, size_t len, const char *file_name, struct policy_node *node, struct error *err) {
    static const struct yaml_key keys[] = {
        {"network", "network", read_network},
        {"credentials", "credentials", read_credentials},
        {"limits", "limits", read_section},
        {"images", "images", read_section},
        {"node", "node", read_section},
    };
    struct yaml_file file = {.name = file_name, .may_be_empty = true, .err = err};
    int r = yaml_read(&file, text, len);
    if (r == 0 && file.root) r = yaml_map(&file, file.root, "the configuration", keys, ARRAY_LENGTH(keys), node);
    yaml_done(&file);
    return r;
}

// --- variables ---

static int take_list(const struct node_setting *setting, const char *text, struct policy_node *node,
                     struct error *err) {
    setting->clear(node);
    while (*text) {
        size_t len = strcspn(text, ","), next = len + (text[len] == ',');
        const char *item = text;
        while (len > 0 && item[0] == ' ') item++, len--;
        while (len > 0 && item[len - 1] == ' ') len--;
        int r = setting->take(node, item, len, err);
        if (r < 0) return r;
        text += next;
    }
    return 0;
}

static int take_variable(const char *variable, struct policy_node *node, struct error *err) {
    char name[64], all[2048] = "", quoted[YAML_QUOTE_SIZE];
    size_t name_len = strcspn(variable, "="), used = 0;
    if (variable[name_len] != '=') return 0;
    for (size_t i = 0; i < ARRAY_LENGTH(node_settings); i++) {
        const struct node_setting *setting = &node_settings[i];
        setting_variable(setting, name);
        used += (size_t)snprintf(all + used, sizeof(all) - used, "%s%s", i ? ", " : "", name);
        if (strlen(name) != name_len || memcmp(name, variable, name_len) != 0) continue;
        const char *text = variable + name_len + 1;
        int r = setting->kind == NODE_LIST ? take_list(setting, text, node, err) : setting->take(node, text, strlen(text), err);
        return r < 0 ? error_context(err, r, "variable %s", name) : 0;
    }
    return error_set(err, -EINVAL, "unknown variable %s; the variables are: %s", yaml_quote(variable, name_len, quoted),
                     all);
}

// Other PENSTOCK_ variables are not the configuration's.
bool policy_node_is_variable(const char *variable) {
    static const char *const sections[] = {VARIABLE_PREFIX "NETWORK_", VARIABLE_PREFIX "LIMITS_", VARIABLE_PREFIX "IMAGES_", VARIABLE_PREFIX "NODE_"};
    for (size_t i = 0; i < ARRAY_LENGTH(sections); i++)
        if (strncmp(variable, sections[i], strlen(sections[i])) == 0) return true;
    return false;
}

static int read_variables(char *const *environment, struct policy_node *node, struct error *err) {
    for (; environment && *environment; environment++) {
        if (!policy_node_is_variable(*environment)) continue;
        int r = take_variable(*environment, node, err);
        if (r < 0) return r;
    }
    return 0;
}

// What a sandbox gets that does not say is not more than any may have.
static int check_most(const struct policy_node *node, const char *source, struct error *err) {
    const struct {
        const char *key;
        uint32_t usual, most;
    } rows[] = {{"memory_mb", node->memory_mb, node->max_memory_mb}, {"cpu_count", node->cpu_count, node->max_cpu_count}};
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++)
        if (rows[i].most && rows[i].usual > rows[i].most)
            return error_set(err, -EINVAL, "%s: node.%s %u is more than node.max_%s %u; lower the one or raise the other", source,
                             rows[i].key, rows[i].usual, rows[i].key, rows[i].most);
    return 0;
}

int policy_node_read(const char *text, size_t len, const char *file_name, char *const *environment,
                     struct policy_node *ret_node, struct error *err) {
    struct policy_node node = {0};
    int r = text ? read_file(text, len, file_name, &node, err) : 0;
    if (r == 0) r = read_variables(environment, &node, err);
    if (r == 0) r = check_most(&node, text && file_name ? file_name : "environment", err);
    if (r == 0) {
        node.source = strdup(text && file_name ? file_name : "environment");
        if (!node.source) r = error_set(err, -ENOMEM, "out of memory");
    }
    if (r < 0) {
        policy_node_done(&node);
        return r;
    }
    *ret_node = node;
    return 0;
}

void policy_node_done(struct policy_node *node) {
    for (size_t i = 0; i < ARRAY_LENGTH(node_settings); i++)
        if (node_settings[i].clear) node_settings[i].clear(node);
    for (size_t i = 0; i < node->workspace_count; i++) policy_binding_done(&node->workspace[i]);
    free(node->workspace);
    free(node->source);
    *node = (struct policy_node){0};
}
