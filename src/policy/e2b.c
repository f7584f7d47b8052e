// SPDX-License-Identifier: Apache-2.0
// The `e2b` dialect (semantics section 5.2): what AgentENV and E2B take. Its messages are theirs where a client may
// look at them. A domain becomes two entries (HTTP on 80, HTTPS on 443), an address or range two as well (TCP and UDP,
// ICMP echo).
#include <errno.h>

#include "base/mem.h"
#include "policy/binding.h"
#include "policy/read.h"

#define RULE_DOMAINS_MAX 10
#define RULE_HEADERS_MAX 20
#define RULE_DOMAIN_MAX 128
#define RULE_NAME_MAX 64
#define RULE_VALUE_MAX 2048

struct e2b_reader {
    struct policy_reader *reader;
    bool has_domains, denies_all;
    const struct yaml_value *snake, *camel, *allow_out;
    const char *rule_domain;
    size_t rule_domain_len;
};

static int append(const struct yaml_file *file, const struct yaml_value *value, struct policy_entry_list *list,
                  const struct policy_entry *entry, enum policy_entry_protocol protocol, uint16_t port) {
    struct policy_entry copy = *entry;
    copy.protocol = protocol;
    if (port && policy_entry_add_ports(&copy, port, port) < 0) return error_set(file->err, -ENOMEM, "out of memory");
    return policy_read_append(file, value, list, &copy);
}

// 1: an address or range. 0: something else. Host bits are dropped: the network is meant.
static int parse_range(const struct yaml_file *file, const struct yaml_value *value, struct policy_entry *entry) {
    char quoted[YAML_QUOTE_SIZE];
    bool host_bits;
    if (addr_prefix_parse(value->text, value->len, &entry->prefix, &host_bits) == 0) {
        entry->kind = POLICY_ENTRY_CIDR;
        // "All traffic" is written in IPv4 and means both families; ::ffff:0:0/96 is not that spelling.
        entry->both_families = entry->prefix.length == 0 && entry->prefix.addr.family == ADDR_IPV4 &&
                               !memchr(value->text, ':', value->len);
        return 1;
    }
    if (!memchr(value->text, '/', value->len)) return 0;
    return yaml_fail(file, value, "invalid IP or CIDR entry \"%s\"", yaml_quote(value->text, value->len, quoted));
}

static int read_deny(const struct yaml_file *file, const struct yaml_value *value, const char *what, void *context) {
    struct e2b_reader *e2b = context;
    struct policy_entry entry = {0};
    char quoted[YAML_QUOTE_SIZE];
    int r = yaml_string(file, value, what);
    if (r < 0) return r;
    r = parse_range(file, value, &entry);
    if (r < 0) return r;
    if (r == 0)
        return yaml_fail(file, value, "denyOut entry \"%s\" must be an IP address or CIDR block",
                         yaml_quote(value->text, value->len, quoted));
    e2b->denies_all |= entry.both_families;
    return append(file, value, &e2b->reader->deny, &entry, POLICY_ENTRY_ANY, 0);
}

static bool parse_domain(const char *text, size_t len, struct policy_entry *entry) {
    if (len == 1 && text[0] == '*') { // any name: the suffix of every name is empty
        entry->kind = POLICY_ENTRY_WILDCARD;
        return true;
    }
    uint16_t port;
    return policy_entry_parse_host(text, len, true, entry, &port, NULL) == 0 && port == 0 &&
           entry->kind != POLICY_ENTRY_ADDRESS;
}

static int read_allow(const struct yaml_file *file, const struct yaml_value *value, const char *what, void *context) {
    struct e2b_reader *e2b = context;
    struct policy_entry_list *allow = &e2b->reader->allow;
    struct policy_entry entry = {0};
    char quoted[YAML_QUOTE_SIZE];
    int r = yaml_string(file, value, what);
    if (r == 0) r = parse_range(file, value, &entry);
    if (r < 0) return r;
    if (r == 1) {
        r = append(file, value, allow, &entry, POLICY_ENTRY_ANY, 0);
        return r < 0 ? r : append(file, value, allow, &entry, POLICY_ENTRY_ICMP, 0);
    }
    if (!parse_domain(value->text, value->len, &entry))
        return yaml_fail(file, value, "invalid allowOut domain entry \"%s\"",
                         yaml_quote(value->text, value->len, quoted));
    e2b->has_domains = true;
    r = append(file, value, allow, &entry, POLICY_ENTRY_HTTP, 80);
    return r < 0 ? r : append(file, value, allow, &entry, POLICY_ENTRY_HTTPS, 443);
}

static int read_allow_out(const struct yaml_file *file, const struct yaml_value *value, const char *what,
                          void *context) {
    ((struct e2b_reader *)context)->allow_out = value;
    return yaml_each(file, value, what, 0, read_allow, context);
}

static int read_deny_out(const struct yaml_file *file, const struct yaml_value *value, const char *what,
                         void *context) {
    return yaml_each(file, value, what, 0, read_deny, context);
}

static int read_public_traffic(const struct yaml_file *file, const struct yaml_value *value, const char *what,
                               void *context) {
    return yaml_bool(file, value, what, &((struct e2b_reader *)context)->reader->model->allow_public_traffic);
}

static int read_mask_host(const struct yaml_file *file, const struct yaml_value *value, const char *what,
                          void *context) {
    struct policy_model *model = ((struct e2b_reader *)context)->reader->model;
    char quoted[YAML_QUOTE_SIZE];
    for (size_t i = 0; value->kind == YAML_SCALAR && i < value->len; i++)
        if ((unsigned char)value->text[i] <= ' ' || value->text[i] == 0x7f)
            return yaml_fail(file, value, "mask request host is not valid: %s",
                             yaml_quote(value->text, value->len, quoted));
    return yaml_copy(file, value, what, &model->mask_request_host);
}

static int refuse_unsupported(const struct yaml_file *file, const struct yaml_value *value, const char *what,
                              void *context) {
    (void)context;
    return yaml_fail(file, value, "%s is not supported; leave it out", what);
}

// --- rules: {domain: [{"transform": {"headers": {name: value}}}]}; each header is a binding. Its
// value is a secret, given in place of a reference: no message repeats it ---

static int check_rule_value(const struct yaml_file *file, const struct yaml_value *header, const char *what) {
    static const char *const markers[] = {"{secret}", "${e2b.secrets.", "${aenv.secrets."};
    if (header->key_len > RULE_NAME_MAX)
        return yaml_fail(file, header, "%s: a name is longer than %d bytes; make it shorter", what, RULE_NAME_MAX);
    if (header->kind != YAML_SCALAR) return 0; // said when it is read
    if (header->len > RULE_VALUE_MAX)
        return yaml_fail(file, header, "%s: a value is longer than %d bytes; make it shorter", what, RULE_VALUE_MAX);
    for (size_t i = 0; i < ARRAY_LENGTH(markers); i++)
        if (memmem(header->text, header->len, markers[i], strlen(markers[i])))
            return yaml_fail(file, header, "%s: a value holds \"%s\", which has no meaning in this dialect; write the value",
                             what, markers[i]);
    return 0;
}

static int read_rule_header(const struct yaml_file *file, const struct yaml_value *header, const char *what,
                            const struct e2b_reader *e2b) {
    struct policy_binding binding = {.kind = POLICY_BINDING_HEADER};
    int r = check_rule_value(file, header, what);
    if (r == 0) {
        r = policy_binding_set_host(&binding, e2b->rule_domain, e2b->rule_domain_len, file->err);
        if (r == 0) r = policy_binding_set_header(&binding, header->key, header->key_len, file->err);
        if (r < 0) yaml_context(file, header, r);
    }
    if (r == 0) r = policy_read_binding_literal(file, header, what, &binding);
    if (r == 0) return policy_read_append_binding(file, header, e2b->reader->model, &binding);
    policy_binding_done(&binding);
    return r;
}

static int read_headers(const struct yaml_file *file, const struct yaml_value *value, const char *what, void *context) {
    const struct e2b_reader *e2b = context;
    if (value->kind != YAML_MAP) return yaml_fail(file, value, "%s must be a mapping of header names to values", what);
    if (value->count > RULE_HEADERS_MAX)
        return yaml_fail(file, value, "%s has more than 20 headers; remove some", what);
    for (const struct yaml_value *header = value->first; header; header = header->next) {
        int r = read_rule_header(file, header, what, e2b);
        if (r < 0) return r;
    }
    return 0;
}

static int read_transform(const struct yaml_file *file, const struct yaml_value *value, const char *what,
                          void *context) {
    static const struct yaml_key keys[] = {{"headers", "network.rules transform.headers", read_headers}};
    return yaml_map(file, value, what, keys, ARRAY_LENGTH(keys), context);
}

static int read_rule(const struct yaml_file *file, const struct yaml_value *value, const char *what, void *context) {
    static const struct yaml_key keys[] = {{"transform", "network.rules transform", read_transform}};
    (void)what;
    return yaml_map(file, value, "an entry of network.rules", keys, ARRAY_LENGTH(keys), context);
}

static int read_rules(const struct yaml_file *file, const struct yaml_value *value, const char *what, void *context) {
    struct e2b_reader *e2b = context;
    char shown[YAML_QUOTE_SIZE];
    if (value->kind != YAML_MAP)
        return yaml_fail(file, value, "%s must be a mapping of domains to lists, not %s", what,
                         yaml_show(value, shown));
    if (value->count > RULE_DOMAINS_MAX)
        return yaml_fail(file, value, "%s has more than 10 domains; remove some", what);
    for (const struct yaml_value *domain = value->first; domain; domain = domain->next) {
        if (domain->kind == YAML_LIST && domain->count > 1)
            return yaml_fail(file, domain, "%s: a domain takes one transform; merge them", what);
        if (domain->key_len > RULE_DOMAIN_MAX)
            return yaml_fail(file, domain, "%s: a domain is longer than %d bytes; make it shorter", what, RULE_DOMAIN_MAX);
        if (memchr(domain->key, '*', domain->key_len))
            return yaml_fail(file, domain, "%s: \"%s\" is a wildcard; headers are added for hosts by name, so name each one",
                             what, yaml_quote(domain->key, domain->key_len, shown));
        e2b->rule_domain = domain->key;
        e2b->rule_domain_len = domain->key_len;
        int r = yaml_each(file, domain, what, 0, read_rule, e2b);
        if (r < 0) return r;
    }
    return 0;
}

// --- the whole ---

static int read_network(const struct yaml_file *file, const struct yaml_value *value, const char *what, void *context) {
    static const struct yaml_key keys[] = {
        {"denyOut", "network.denyOut", read_deny_out},
        {"allowOut", "network.allowOut", read_allow_out},
        {"allowPublicTraffic", "network.allowPublicTraffic", read_public_traffic},
        {"maskRequestHost", "network.maskRequestHost", read_mask_host},
        {"rules", "network.rules", read_rules},
        {"egressProxy", "network.egressProxy", refuse_unsupported},
        {"httpsPorts", "network.httpsPorts", refuse_unsupported},
    };
    struct e2b_reader *e2b = context;
    int r = yaml_map(file, value, what, keys, ARRAY_LENGTH(keys), context);
    if (r < 0) return r;
    // `allow_internet_access: false` does not stand in for the entry, as in both originals.
    if (e2b->has_domains && !e2b->denies_all)
        return yaml_fail(file, e2b->allow_out,
                         "allowOut contains domains but denyOut is missing 0.0.0.0/0 (ALL_TRAFFIC)");
    return 0;
}

static int read_switch(const struct yaml_file *file, const struct yaml_value *value, const char *what, void *context) {
    struct e2b_reader *e2b = context;
    struct policy_model *model = e2b->reader->model;
    bool before = model->base_allow;
    int r = yaml_bool(file, value, what, &model->base_allow);
    if (r < 0) return r;
    if (e2b->snake && e2b->camel && value == e2b->camel && before != model->base_allow)
        return yaml_fail(file, value,
                         "allow_internet_access and allowInternetAccess are both given and differ; keep one");
    return policy_read_base_source(file, value, model);
}

static int read_type(const struct yaml_file *file, const struct yaml_value *value, const char *what, void *context) {
    return policy_read_type_key(file, value, what, ((struct e2b_reader *)context)->reader);
}

int policy_e2b_read(const struct yaml_file *file, struct policy_reader *reader) {
    static const struct yaml_key keys[] = {
        {"dialect", "dialect", policy_read_dialect_key},
        {"type", "type", read_type},
        {"network", "network", read_network},
        {"allow_internet_access", "allow_internet_access", read_switch},
        {"allowInternetAccess", "allowInternetAccess", read_switch},
    };
    struct e2b_reader e2b = {
        .reader = reader,
        .snake = yaml_member(file->root, "allow_internet_access"),
        .camel = yaml_member(file->root, "allowInternetAccess"),
    };
    struct policy_model *model = reader->model;
    model->has_network = true;
    model->network = POLICY_NETWORK_NATIVE;
    model->base_allow = true;
    model->block_private = false; // the guardrails' default covers it
    model->allow_public_traffic = true;
    reader->allow.collapse = reader->deny.collapse = true;
    return yaml_map(file, file->root, "the policy", keys, ARRAY_LENGTH(keys), &e2b);
}
