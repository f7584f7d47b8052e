// SPDX-License-Identifier: Apache-2.0
#include "cli/node_options.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/number.h"

#define NODE_POLICY_MAX (1 << 20)

enum node_option_kind { NODE_FLAG, NODE_TEXT, NODE_ALLOW, NODE_ALLOW_CIDR, NODE_DENY_CIDR, NODE_STEP, NODE_PAIR };

// letters: which commands know it: p(s) c(reate) e(xec) u(pdate) l(og) x(plain) r(m) t(emplate) s(napshot)
static const struct node_option {
    const char *name, *letters;
    enum node_option_kind kind;
    size_t offset;
} node_table[] = {
    {"--json", "pcxts", NODE_FLAG, offsetof(struct node_options, json)},
    {"--print-api", "pceulxrts", NODE_FLAG, offsetof(struct node_options, print)},
    {"--denied", "l", NODE_FLAG, offsetof(struct node_options, denied)},
    {"--follow", "l", NODE_FLAG, offsetof(struct node_options, follow)},
    {"--all", "r", NODE_FLAG, offsetof(struct node_options, all)},
    {"--stdin", "e", NODE_FLAG, offsetof(struct node_options, input)},
    {"-i", "e", NODE_FLAG, offsetof(struct node_options, input)},
    {"--allow-private", "cut", NODE_FLAG, offsetof(struct node_options, open_private)},
    {"--image", "c", NODE_TEXT, offsetof(struct node_options, image)},
    {"--template", "c", NODE_TEXT, offsetof(struct node_options, template_id)},
    {"--type", "cu", NODE_TEXT, offsetof(struct node_options, type)},
    {"--timeout", "c", NODE_TEXT, offsetof(struct node_options, timeout)},
    {"--memory", "ct", NODE_TEXT, offsetof(struct node_options, memory)},
    {"--cpus", "ct", NODE_TEXT, offsetof(struct node_options, cpus)},
    {"--name", "ts", NODE_TEXT, offsetof(struct node_options, name)},
    {"--existing", "u", NODE_TEXT, offsetof(struct node_options, existing)},
    {"--policy", "cut", NODE_TEXT, offsetof(struct node_options, policy)},
    {"--network", "cut", NODE_TEXT, offsetof(struct node_options, network)},
    {"--allow", "cut", NODE_ALLOW, offsetof(struct node_options, allow)},
    {"--allow-cidr", "cut", NODE_ALLOW_CIDR, offsetof(struct node_options, allow)},
    {"--deny-cidr", "cut", NODE_DENY_CIDR, offsetof(struct node_options, deny)},
    {"--run", "t", NODE_STEP, offsetof(struct node_options, steps)},
    {"--start", "t", NODE_TEXT, offsetof(struct node_options, start)},
    {"--ready", "t", NODE_TEXT, offsetof(struct node_options, ready)},
    {"--env", "ce", NODE_PAIR, offsetof(struct node_options, env)},
    {"--metadata", "cp", NODE_PAIR, offsetof(struct node_options, metadata)},
    {"--cwd", "e", NODE_TEXT, offsetof(struct node_options, cwd)},
    {"--user", "e", NODE_TEXT, offsetof(struct node_options, user)},
};

void node_options_done(struct node_options *options) {
    json_decref(options->allow);
    json_decref(options->deny);
    json_decref(options->steps);
    json_decref(options->env);
    json_decref(options->metadata);
    free(options->words);
}

// HOST[:PORT], *.domain, @preset as an entry of a native policy, which checks it.
static json_t *entry_of_host(const char *text) {
    const char *colon = strrchr(text, ':');
    uint64_t port;
    if (text[0] == '@') return json_pack("{s:s}", "preset", text + 1);
    bool bare6 = text[0] != '[' && colon && strchr(text, ':') != colon;
    if (!colon || bare6 || number_parse(colon + 1, strlen(colon + 1), 1, 65535, &port) < 0) return json_pack("{s:s}", "host", text);
    return json_pack("{s:s%,s:[i]}", "host", text, (size_t)(colon - text), "ports", (int)port);
}

static int option_store(struct node_options *options, const struct node_option *option, const char *value, struct error *err) {
    void *field = (char *)options + option->offset;
    size_t len = value ? strcspn(value, "=") : 0;
    switch (option->kind) {
    case NODE_FLAG: *(bool *)field = true; return 0;
    case NODE_TEXT:
        if (*(const char **)field) return error_set(err, -EINVAL, "%s: given twice; keep one", option->name);
        *(const char **)field = value;
        return 0;
    case NODE_ALLOW:
    case NODE_ALLOW_CIDR:
    case NODE_DENY_CIDR:
    case NODE_STEP:
        if (!*(json_t **)field) *(json_t **)field = json_array();
        json_array_append_new(*(json_t **)field, option->kind == NODE_ALLOW  ? entry_of_host(value)
                                                 : option->kind == NODE_STEP ? json_pack("{s:s,s:[s]}", "type", "RUN", "args", value)
                                                                             : json_pack("{s:s}", "cidr", value));
        return 0;
    case NODE_PAIR: break;
    }
    if (len == 0 || value[len] != '=')
        return error_set(err, -EINVAL, "%s \"%.200s\": expected NAME=VALUE", option->name, value);
    if (!*(json_t **)field) *(json_t **)field = json_object();
    AUTO_FREE char *name = strndup(value, len);
    if (name) json_object_set_new(*(json_t **)field, name, json_string(value + len + 1));
    return json_object_get(*(json_t **)field, name ? name : "") ? 0 : error_set(err, -EINVAL, "%s \"%.200s\": not UTF-8", option->name, value);
}

static const struct node_option *option_find(const char *word, size_t len, char letter) {
    for (size_t i = 0; i < ARRAY_LENGTH(node_table); i++)
        if (strlen(node_table[i].name) == len && memcmp(node_table[i].name, word, len) == 0 && strchr(node_table[i].letters, letter))
            return &node_table[i];
    return NULL;
}

int node_options_read(struct node_options *options, char letter, int argc, char **argv, struct error *err) {
    options->words = NEW_ARRAY(char *, (size_t)argc);
    if (!options->words) return error_set(err, -ENOMEM, "out of memory");
    for (int i = 1; i < argc; i++) {
        size_t len = strcspn(argv[i], "=");
        if (strcmp(argv[i], "--") == 0) {
            options->command = argv + i + 1;
            if (letter == 'e' || !argv[i + 1]) return 0;
            return error_set(err, -EINVAL, "\"%.200s\" behind --: %s runs no command; see `penstock exec --help`", argv[i + 1], argv[0]);
        }
        if (argv[i][0] != '-') {
            options->words[options->word_count++] = argv[i];
            continue;
        }
        const struct node_option *option = option_find(argv[i], len, letter);
        if (!option) return error_set(err, -EINVAL, "unknown option \"%.200s\"; see `penstock %s --help`", argv[i], argv[0]);
        const char *value = argv[i][len] == '=' ? argv[i] + len + 1 : NULL;
        if (option->kind == NODE_FLAG && value) return error_set(err, -EINVAL, "%s takes no value", option->name);
        if (option->kind != NODE_FLAG && !value) value = i + 1 < argc ? argv[++i] : NULL;
        if (option->kind != NODE_FLAG && (!value || !*value)) return error_set(err, -EINVAL, "%s needs a value", option->name);
        int rc = option_store(options, option, value, err);
        if (rc < 0) return rc;
    }
    return 0;
}

// ---- what they mean ----

int node_number_put(json_t *body, const char *key, const char *option, const char *text, struct error *err) {
    uint64_t number;
    if (!text) return 0;
    if (number_parse(text, strlen(text), 0, INT32_MAX, &number) < 0)
        return error_set(err, -EINVAL, "%s \"%.100s\": not a number; expected a whole one, such as 2", option, text);
    json_object_set_new(body, key, json_integer((json_int_t)number));
    return 0;
}

int node_memory_put(json_t *body, const char *text, struct error *err) {
    static const struct {
        const char *suffix;
        unsigned shift;
    } units[] = {{"", 0}, {"m", 0}, {"MiB", 0}, {"g", 10}, {"GiB", 10}};
    size_t digits = text ? strspn(text, "0123456789") : 0;
    uint64_t number;
    for (size_t i = 0; text && i < ARRAY_LENGTH(units); i++) {
        if (strcasecmp(text + digits, units[i].suffix) != 0 || number_parse(text, digits, 0, INT32_MAX >> units[i].shift, &number) < 0)
            continue;
        json_object_set_new(body, "memoryMB", json_integer((json_int_t)(number << units[i].shift)));
        return 0;
    }
    return text ? error_set(err, -EINVAL, "--memory \"%.100s\": expected MiB, or a size such as 512m or 2g", text) : 0;
}

static json_t *native_policy(const struct node_options *options) {
    bool open = options->network && strcmp(options->network, "all") == 0;
    return json_pack("{s:i,s:s,s:b,s:O*,s:O*}", "version", 1, "base", open ? "allow" : "deny", "block_private", !options->open_private,
                     "allow", options->allow, "deny", options->deny);
}

// Of the network dialect, the only one of type mistral; the node says what of it the type cannot do.
static int network_policy(const struct node_options *options, json_t **ret_policy, struct error *err) {
    if (options->deny) return error_set(err, -EINVAL, "--deny-cidr: type mistral has no such entries; leave it out");
    json_t *hosts = json_array(), *ranges = json_array();
    for (size_t i = 0; i < json_array_size(options->allow); i++) {
        json_t *entry = json_array_get(options->allow, i), *range = json_object_get(entry, "cidr");
        const json_t *ports = json_object_get(entry, "ports");
        const char *host = json_string_value(json_object_get(entry, "host"));
        if (range) json_array_append(ranges, range);
        else if (host && ports) json_array_append_new(hosts, json_sprintf("%s:%d", host, (int)json_integer_value(json_array_get(ports, 0))));
        else json_array_append_new(hosts, host ? json_string(host) : json_sprintf("@%s", json_string_value(json_object_get(entry, "preset"))));
    }
    json_t *network = json_array_size(hosts) ? json_pack("{s:{s:O}}", "allow", "hosts", hosts) : json_string(options->network ? options->network : "none");
    *ret_policy = json_pack("{s:s,s:s,s:b,s:o,s:o*}", "dialect", "network", "type", "mistral", "block_private_ips", !options->open_private,
                            "network", network, "egress", json_array_size(ranges) ? json_pack("{s:O}", "allow_cidrs", ranges) : NULL);
    bool both = json_array_size(hosts) && options->network;
    json_decref(hosts);
    json_decref(ranges);
    return both ? error_set(err, -EINVAL, "--network and --allow: type mistral takes one of them") : 0;
}

int node_policy_text(const struct node_options *options, char **ret_text, struct error *err) {
    bool has_entries = options->allow || options->deny || options->network || options->open_private;
    *ret_text = NULL;
    if (options->policy && has_entries)
        return error_set(err, -EINVAL, "--policy stands alone: write --network, --allow and so on into \"%.200s\"", options->policy);
    if (options->policy) {
        struct buf text = BUF_INIT;
        int rc = strcmp(options->policy, "-") == 0 ? buf_read_fd(&text, 0, NODE_POLICY_MAX) : buf_read_file(&text, options->policy, NODE_POLICY_MAX);
        *ret_text = rc == 0 ? buf_take(&text) : NULL;
        buf_done(&text);
        return rc < 0 ? error_set(err, rc, "--policy %.200s: %s", options->policy, strerror(-rc)) : 0;
    }
    if (!has_entries) return 0;
    if (options->network && strcmp(options->network, "all") != 0 && strcmp(options->network, "none") != 0)
        return error_set(err, -EINVAL, "--network \"%.100s\": write none or all", options->network);
    json_t *policy = NULL;
    int rc = options->type && strcmp(options->type, "mistral") == 0 ? network_policy(options, &policy, err) : 0;
    if (rc == 0 && !policy) policy = native_policy(options);
    *ret_text = policy ? json_dumps(policy, JSON_COMPACT) : NULL;
    json_decref(policy);
    return rc < 0 ? rc : *ret_text ? 0 : error_set(err, -ENOMEM, "out of memory");
}
