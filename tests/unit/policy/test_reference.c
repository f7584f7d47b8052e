// SPDX-License-Identifier: Apache-2.0
// A second verdict, written as plainly as possible: every entry is looked at, one after the other, with address and
// name comparison of its own. The compiled policy must agree with it on verdict, reason, rule and name for a million
// random pairs of policy and request. PENSTOCK_SEED and PENSTOCK_PAIRS override the seed and the number.
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "base/number.h"
#include "policy/model.h"

#define ENTRY_MAX 6
#define NODE_MAX 3

// ---- the plain verdict ----

struct world {
    struct policy_model *model;
    struct policy_node node;
    bool has_node;
    struct addr own[2];
    size_t own_count;
};

static unsigned bit_at(const struct addr *addr, unsigned bit) { return (addr->bytes[bit / 8] >> (7 - bit % 8)) & 1u; }

static bool in_prefix(const struct addr_prefix *prefix, const struct addr *addr) {
    if (prefix->addr.family != addr->family) return false;
    for (unsigned bit = 0; bit < prefix->length; bit++) {
        if (bit_at(&prefix->addr, bit) != bit_at(addr, bit)) return false;
    }
    return true;
}

static struct addr must_parse(const char *text) {
    struct addr addr;
    assert_int_equal(addr_parse(text, strlen(text), &addr), 0);
    return addr;
}

static struct addr_prefix must_parse_prefix(const char *text) {
    struct addr_prefix prefix;
    bool host_bits;
    assert_int_equal(addr_prefix_parse(text, strlen(text), &prefix, &host_bits), 0);
    return prefix;
}

static bool same_addr(const struct addr *a, const struct addr *b) {
    struct addr_prefix host = {.addr = *a, .length = a->family == ADDR_IPV4 ? 32 : 128};
    return in_prefix(&host, b);
}

// The prefixes are parsed once: a million pairs ask for them.
#define LOCAL_MAX 32
static bool in_texts(const char *const *texts, size_t count, struct addr_prefix *parsed, const struct addr *addr) {
    if (parsed[0].addr.family == ADDR_NONE) {
        for (size_t i = 0; i < count; i++) parsed[i] = must_parse_prefix(texts[i]);
    }
    for (size_t i = 0; i < count; i++) {
        if (in_prefix(&parsed[i], addr)) return true;
    }
    return false;
}

static bool plainly_local(const struct addr *addr) {
    static const char *const texts[] = {
        "0.0.0.0/8",    "10.0.0.0/8",     "100.64.0.0/10",  "127.0.0.0/8",   "169.254.0.0/16", "172.16.0.0/12",
        "192.0.0.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/4",    "240.0.0.0/4",
        "::/128",       "::1/128",        "fc00::/7",       "fe80::/10",     "fec0::/10",      "ff00::/8",
        "100::/64",     "64:ff9b:1::/48", "2001:2::/48",    "2001:10::/28",  "2001:20::/28",   "5f00::/16",
    };
    static struct addr_prefix parsed[LOCAL_MAX];
    return in_texts(texts, ARRAY_LENGTH(texts), parsed, addr);
}

static struct addr four(const uint8_t *bytes, uint8_t flip) {
    struct addr addr = {.family = ADDR_IPV4};
    for (int i = 0; i < 4; i++) addr.bytes[i] = bytes[i] ^ flip;
    return addr;
}

static bool in_own_nat64(const struct world *world, const struct addr *addr) {
    return world->node.nat64_count > 0 && in_prefix(&world->node.nat64_prefixes[0], addr); // always a /96 here
}

static bool carried(const struct world *world, const struct addr *addr, struct addr *ret) {
    static const char *const tails[] = {"::ffff:0:0:0/96", "::/96", "64:ff9b::/96"};
    static struct addr_prefix parsed[LOCAL_MAX], parsed_six[1], parsed_teredo[1];
    static const char *const six[] = {"2002::/16"}, *const teredo[] = {"2001::/32"};
    const uint8_t *bytes = addr->bytes;
    if (addr->family != ADDR_IPV6) return false;
    if (in_own_nat64(world, addr) || in_texts(tails, ARRAY_LENGTH(tails), parsed, addr)) {
        *ret = four(bytes + 12, 0);
    } else if (in_texts(six, 1, parsed_six, addr)) {
        *ret = four(bytes + 2, 0);
    } else if (in_texts(teredo, 1, parsed_teredo, addr)) {
        *ret = four(bytes + 12, 0xff);
    } else if ((bytes[8] == 0 || bytes[8] == 2) && bytes[9] == 0 && bytes[10] == 0x5e && bytes[11] == 0xfe) {
        *ret = four(bytes + 12, 0);
    } else {
        return false;
    }
    return true;
}

static bool not_global(const struct world *world, const struct addr *addr) {
    struct addr inner;
    if (!in_own_nat64(world, addr) && plainly_local(addr)) return true;
    return carried(world, addr, &inner) && plainly_local(&inner);
}

// Denials look at the address and at what it carries.
static bool denied_by(const struct world *world, const struct addr_prefix *prefix, const struct addr *addr) {
    struct addr inner;
    return in_prefix(prefix, addr) || (carried(world, addr, &inner) && in_prefix(prefix, &inner));
}

static bool entry_denies(const struct world *world, const struct policy_entry *entry, const struct addr *addr) {
    return denied_by(world, &entry->prefix, addr) || (entry->both_families && addr->family == ADDR_IPV6);
}

static bool is_host(const struct world *world, const struct addr *addr) {
    struct addr_prefix loopback = must_parse_prefix("127.0.0.0/8"), one = must_parse_prefix("::1");
    if (denied_by(world, &loopback, addr) || denied_by(world, &one, addr)) return true;
    for (size_t i = 0; i < world->own_count; i++) {
        struct addr_prefix own = {.addr = world->own[i], .length = world->own[i].family == ADDR_IPV4 ? 32 : 128};
        if (denied_by(world, &own, addr)) return true;
    }
    for (size_t i = 0; i < world->node.own_address_count; i++) {
        struct addr_prefix own = {.addr = world->node.own_addresses[i], .length = 32};
        if (denied_by(world, &own, addr)) return true;
    }
    return false;
}

static bool under(const char *suffix, const char *name) {
    size_t a = strlen(suffix), b = strlen(name);
    if (a == 0) return true;
    return b > a + 1 && name[b - a - 1] == '.' && strcmp(name + b - a, suffix) == 0;
}

static bool names_it(const struct policy_entry *entry, const char *name) {
    if (entry->kind == POLICY_ENTRY_NAME) return strcmp(entry->name, name) == 0;
    return entry->kind == POLICY_ENTRY_WILDCARD && under(entry->name, name);
}

// How an entry that is about the destination stands to the protocol, the port and the bytes.
struct standing {
    enum { MISSES, ASKS, MATCHES } is;
    int rank; // of a miss
    enum policy_reason reason;
};

static bool has_port(const struct policy_entry *entry, uint16_t port) {
    for (size_t i = 0; i < entry->port_count; i++) {
        if (entry->ports[i].first <= port && port <= entry->ports[i].last) return true;
    }
    if (entry->port_count > 0) return false;
    if (entry->protocol == POLICY_ENTRY_HTTPS) return port == 443;
    return entry->protocol == POLICY_ENTRY_HTTP ? port == 80 : true;
}

#define MISS(rank_, reason_) ((struct standing){MISSES, rank_, reason_})

static struct standing stand_tcp(const struct policy_entry *entry, const struct policy_request *request) {
    bool port = has_port(entry, request->port);
    bool http_like = request->app == POLICY_APP_HTTP || (request->app == POLICY_APP_UNKNOWN && request->port == 80);
    if (entry->protocol == POLICY_ENTRY_HTTPS) {
        if (port && request->app == POLICY_APP_UNKNOWN) return (struct standing){ASKS, 0, POLICY_ALLOWED_NAME};
        if (port && request->app == POLICY_APP_TLS) return (struct standing){MATCHES, 0, POLICY_ALLOWED_NAME};
        if (port) return MISS(5, POLICY_NOT_HTTPS);
        if (http_like) return MISS(3, POLICY_NOT_HTTPS);
        return MISS(request->app == POLICY_APP_OTHER ? 2 : 4, POLICY_PORT_DENIED);
    }
    if (entry->protocol == POLICY_ENTRY_HTTP) {
        if (port && request->app == POLICY_APP_UNKNOWN) return (struct standing){ASKS, 0, POLICY_ALLOWED_NAME};
        if (port && request->app == POLICY_APP_HTTP) return (struct standing){MATCHES, 0, POLICY_ALLOWED_NAME};
        if (port) return MISS(5, POLICY_PROTOCOL_DENIED);
        if (request->app == POLICY_APP_HTTP || request->app == POLICY_APP_UNKNOWN) return MISS(4, POLICY_PORT_DENIED);
        return MISS(2, request->app == POLICY_APP_TLS ? POLICY_PROTOCOL_DENIED : POLICY_PORT_DENIED);
    }
    if (entry->protocol == POLICY_ENTRY_UDP || entry->protocol == POLICY_ENTRY_ICMP)
        return MISS(1, POLICY_PROTOCOL_DENIED);
    return port ? (struct standing){MATCHES, 0, POLICY_ALLOWED_NAME} : MISS(2, POLICY_PORT_DENIED);
}

static struct standing stand(const struct policy_entry *entry, const struct policy_request *request) {
    if (request->protocol == POLICY_TCP) return stand_tcp(entry, request);
    if (request->protocol == POLICY_ICMP)
        return entry->protocol == POLICY_ENTRY_ICMP ? (struct standing){MATCHES, 0, POLICY_ALLOWED_NAME}
                                                    : MISS(1, POLICY_PROTOCOL_DENIED);
    if (entry->protocol != POLICY_ENTRY_UDP && entry->protocol != POLICY_ENTRY_ANY)
        return MISS(1, POLICY_PROTOCOL_DENIED);
    return has_port(entry, request->port) ? (struct standing){MATCHES, 0, POLICY_ALLOWED_NAME}
                                          : MISS(2, POLICY_PORT_DENIED);
}

static struct policy_decision say(enum policy_verdict verdict, enum policy_reason reason, size_t rule,
                                  const char *name) {
    return (struct policy_decision){.verdict = verdict, .reason = reason, .rule = (uint32_t)rule, .name = name};
}

// Rules are numbered: allow entries, deny entries, base, private, node.
static size_t base_rule(const struct world *world) { return world->model->allow_count + world->model->deny_count; }

static const struct policy_entry *deny_all(const struct world *world, size_t *ret_rule) {
    for (size_t i = 0; i < world->model->deny_count; i++) {
        const struct policy_entry *entry = &world->model->deny[i];
        *ret_rule = world->model->allow_count + i;
        if (entry->prefix.length == 0 && entry->prefix.addr.family == ADDR_IPV4) return entry;
    }
    return NULL;
}

static bool step_node(const struct world *world, const struct policy_request *request, struct policy_decision *ret) {
    const struct policy_node *node = &world->node;
    size_t rule = base_rule(world) + 2;
    bool guarded = world->model->dialect == POLICY_DIALECT_E2B;
    size_t ranges = node->has_always_denied ? node->always_denied_count : guarded ? 1 : 0;
    for (size_t i = 0; i < node->always_denied_name_count; i++) {
        const char *pattern = node->always_denied_names[i];
        const char *names[] = {request->dialled, request->protocol == POLICY_DNS ? NULL : request->claimed};
        for (int j = 0; j < 2; j++) {
            if (!names[j] || !(pattern[0] == '*' ? under(pattern + 2, names[j]) : strcmp(pattern, names[j]) == 0))
                continue;
            // The dialled name is looked at first, with every pattern.
            if (j == 1 && request->dialled) {
                struct policy_request dialled_only = *request;
                dialled_only.claimed = NULL;
                dialled_only.address = NULL;
                if (step_node(world, &dialled_only, ret)) return true;
            }
            *ret = say(POLICY_DENY, POLICY_NODE_DENIED, rule + ranges + i, NULL);
            return true;
        }
    }
    if (!request->address || request->protocol == POLICY_DNS) return false;
    for (size_t i = 0; i < node->always_allowed_count; i++) {
        if (in_prefix(&node->always_allowed[i], request->address)) return false;
    }
    if (node->has_always_denied) {
        for (size_t i = 0; i < node->always_denied_count; i++) {
            if (!denied_by(world, &node->always_denied[i], request->address)) continue;
            *ret = say(POLICY_DENY, POLICY_NODE_DENIED, rule + i, NULL);
            return true;
        }
    } else if (guarded && not_global(world, request->address)) {
        *ret = say(POLICY_DENY, POLICY_NODE_DENIED, rule, NULL);
        return true;
    }
    bool own = node->has_deny_own_addresses ? node->deny_own_addresses : guarded;
    *ret = say(POLICY_DENY, POLICY_NODE_OWN_ADDRESS,
               rule + ranges + node->always_denied_name_count + node->always_allowed_count, NULL);
    return own && is_host(world, request->address);
}

// Whether an entry is about the destination of a request. Address entries of `hosts` are for literals without a name.
static bool about_address(const struct policy_entry *entry, const struct policy_request *request) {
    if (!request->address || entry->kind == POLICY_ENTRY_NAME || entry->kind == POLICY_ENTRY_WILDCARD) return false;
    bool here =
        in_prefix(&entry->prefix, request->address) || (entry->both_families && request->address->family == ADDR_IPV6);
    if (entry->kind == POLICY_ENTRY_CIDR) return here;
    bool other = request->claimed_address && !same_addr(request->claimed_address, request->address);
    return here && !request->dialled && !request->claimed && !other;
}

static bool is_loopback(const struct addr *addr) {
    return addr->family == ADDR_IPV4 ? addr->bytes[0] == 127 : addr_equal(addr, &(struct addr){ADDR_IPV6, {[15] = 1}});
}

static bool is_localhost(const struct addr *addr) {
    return is_loopback(addr) && addr->bytes[addr->family == ADDR_IPV4 ? 3 : 15] == 1 && addr->bytes[1] == 0 &&
           addr->bytes[2] == 0;
}

static bool leads_home(const struct addr *addr) {
    static const uint8_t zero[16];
    return is_loopback(addr) || memcmp(addr->bytes, zero, 16) == 0;
}

static bool lifts_private(const struct world *world, const struct policy_request *request) {
    for (size_t i = 0; i < world->model->allow_count; i++) {
        const struct policy_entry *entry = &world->model->allow[i];
        if (stand(entry, request).is == MISSES) continue;
        if (entry->kind == POLICY_ENTRY_CIDR && about_address(entry, request)) return true;
        if (!entry->private_ok) continue;
        if (about_address(entry, request)) return true;
        if (request->dialled && names_it(entry, request->dialled)) return true;
        if (!request->dialled && is_localhost(request->address) && names_it(entry, "localhost")) return true;
    }
    return false;
}

// The best explanation among entries about the name or about the address; the first of the best.
static struct standing nearest(const struct world *world, const struct policy_request *request, const char *name,
                               size_t *ret_index) {
    struct standing best = {MISSES, 0, POLICY_BASE_DENIED};
    for (size_t i = 0; i < world->model->allow_count; i++) {
        const struct policy_entry *entry = &world->model->allow[i];
        if (!(name ? names_it(entry, name) : about_address(entry, request))) continue;
        struct standing standing = stand(entry, request);
        if (standing.is != MISSES || standing.rank <= best.rank) continue;
        best = standing;
        *ret_index = i;
    }
    return best;
}

static bool step_private(const struct world *world, const struct policy_request *request, struct policy_decision *ret) {
    const struct addr *addr = request->address;
    if (!addr || !world->model->block_private || lifts_private(world, request)) return false;
    if (!not_global(world, addr) && !is_host(world, addr)) return false;
    *ret = say(POLICY_DENY, POLICY_PRIVATE_ADDRESS, base_rule(world) + 1, NULL);
    size_t index = 0;
    struct standing near = nearest(world, request, NULL, &index);
    if (near.rank > 0 && !request->dialled && !world->model->base_allow &&
        world->model->allow[index].kind == POLICY_ENTRY_CIDR)
        *ret = say(POLICY_DENY, near.reason, index, NULL);
    return true;
}

static bool has_ech(const struct policy_request *request) {
    return request->ech && request->app == POLICY_APP_TLS && request->claimed;
}

// Step 5 with base deny.
static struct policy_decision closed(const struct world *world, const struct policy_request *request, size_t rule) {
    size_t name_index = 0, address_index = 0;
    const char *name = request->dialled ? request->dialled : request->claimed;
    struct standing by_name = {0}, by_address = {0};
    if (name) by_name = nearest(world, request, name, &name_index);
    if (!request->dialled) by_address = nearest(world, request, NULL, &address_index);
    if (by_address.rank > 0 && by_address.rank >= by_name.rank)
        return say(POLICY_DENY, by_address.reason, address_index, NULL);
    if (by_name.rank > 0) return say(POLICY_DENY, by_name.reason, name_index, NULL);
    if (request->protocol == POLICY_ICMP) return say(POLICY_DENY, POLICY_PROTOCOL_DENIED, rule, NULL);
    return say(POLICY_DENY, has_ech(request) ? POLICY_ECH_DENIED : POLICY_BASE_DENIED, rule, NULL);
}

static bool step_deny(const struct world *world, const struct policy_request *request, struct policy_decision *ret) {
    for (size_t i = 0; request->address && i < world->model->deny_count; i++) {
        if (!entry_denies(world, &world->model->deny[i], request->address)) continue;
        *ret = say(POLICY_DENY, POLICY_DENIED_CIDR, world->model->allow_count + i, NULL);
        return true;
    }
    return false;
}

static struct policy_decision open_base(const struct world *world, const struct policy_request *request,
                                        const char *name) {
    if (request->protocol == POLICY_ICMP && world->model->dialect != POLICY_DIALECT_E2B)
        return say(POLICY_DENY, POLICY_PROTOCOL_DENIED, base_rule(world), NULL);
    return say(POLICY_ALLOW, POLICY_ALLOWED_BASE, base_rule(world), name);
}

static bool means_loopback(const struct policy_entry *entry) {
    if (entry->kind == POLICY_ENTRY_NAME)
        return strcmp(entry->name, "localhost") == 0 || under("localhost", entry->name);
    return entry->kind != POLICY_ENTRY_WILDCARD && is_loopback(&entry->prefix.addr) && entry->prefix.length >= 8;
}

static struct policy_decision by_name(const struct world *world, const struct policy_request *request,
                                      const char *name) {
    const struct policy_model *model = world->model;
    size_t all_rule = 0, match = SIZE_MAX, ask = SIZE_MAX;
    bool all_denied = deny_all(world, &all_rule) != NULL, home_ok = false;
    for (size_t i = 0; i < model->allow_count; i++) {
        struct standing standing = stand(&model->allow[i], request);
        if (standing.is == MISSES) continue;
        if (about_address(&model->allow[i], request) && means_loopback(&model->allow[i])) home_ok = true;
        if (!names_it(&model->allow[i], name)) continue;
        if (means_loopback(&model->allow[i])) home_ok = true;
        if (standing.is == MATCHES && match == SIZE_MAX) match = i;
        if (standing.is == ASKS && ask == SIZE_MAX) ask = i;
    }
    struct policy_decision result;
    if (match != SIZE_MAX)
        result = say(POLICY_ALLOW, POLICY_ALLOWED_NAME, match, name);
    else if (ask != SIZE_MAX)
        result = say(POLICY_INSPECT, POLICY_ALLOWED_NAME, ask, name);
    else if (!model->base_allow || all_denied)
        return closed(world, request, model->base_allow ? all_rule : base_rule(world));
    else if (step_deny(world, request, &result))
        return result;
    else
        result = open_base(world, request, name);
    if (result.verdict != POLICY_DENY && request->address && leads_home(request->address) && !home_ok)
        return say(POLICY_DENY, POLICY_PRIVATE_ADDRESS, base_rule(world) + 1, NULL);
    return result;
}

static bool any_name_on_port(const struct world *world, enum policy_entry_protocol protocol, uint16_t port,
                             size_t *ret) {
    for (size_t i = 0; i < world->model->allow_count; i++) {
        const struct policy_entry *entry = &world->model->allow[i];
        bool name = entry->kind == POLICY_ENTRY_NAME || entry->kind == POLICY_ENTRY_WILDCARD;
        if (!name || entry->protocol != protocol || !has_port(entry, port)) continue;
        if (i < *ret) *ret = i;
        return true;
    }
    return false;
}

static struct policy_decision literal_rest(const struct world *world, const struct policy_request *request) {
    struct policy_decision result;
    size_t ignored = SIZE_MAX;
    if (step_deny(world, request, &result)) return result;
    if (world->model->base_allow) {
        if (leads_home(request->address)) return say(POLICY_DENY, POLICY_PRIVATE_ADDRESS, base_rule(world) + 1, NULL);
        return open_base(world, request, NULL);
    }
    result = closed(world, request, base_rule(world));
    if (result.reason != POLICY_BASE_DENIED || request->protocol != POLICY_TCP || request->claimed) return result;
    bool https = any_name_on_port(world, POLICY_ENTRY_HTTPS, request->port, &ignored);
    bool http = any_name_on_port(world, POLICY_ENTRY_HTTP, request->port, &ignored);
    if ((https || http) && request->app != POLICY_APP_UNKNOWN) {
        result.reason = POLICY_NO_NAME;
        if (request->app == POLICY_APP_OTHER) result.reason = https ? POLICY_NOT_HTTPS : POLICY_PROTOCOL_DENIED;
    }
    return result;
}

static struct policy_decision by_address(const struct world *world, const struct policy_request *request) {
    const struct policy_model *model = world->model;
    bool unknown = request->protocol == POLICY_TCP && request->app == POLICY_APP_UNKNOWN;
    bool guarded_names = world->node.always_denied_name_count > 0;
    enum policy_verdict open = unknown && guarded_names ? POLICY_INSPECT : POLICY_ALLOW;
    size_t ask = SIZE_MAX;
    for (size_t i = 0; i < model->allow_count; i++) {
        if (!about_address(&model->allow[i], request)) continue;
        struct standing standing = stand(&model->allow[i], request);
        bool cidr = model->allow[i].kind == POLICY_ENTRY_CIDR;
        if (standing.is == MATCHES && leads_home(request->address)) {
            bool meant = false;
            for (size_t k = 0; k < model->allow_count; k++)
                meant |= about_address(&model->allow[k], request) && stand(&model->allow[k], request).is != MISSES &&
                         means_loopback(&model->allow[k]);
            if (!meant) return say(POLICY_DENY, POLICY_PRIVATE_ADDRESS, base_rule(world) + 1, NULL);
        }
        if (standing.is == MATCHES) return say(cidr ? open : POLICY_ALLOW, POLICY_ALLOWED_CIDR, i, NULL);
        if (standing.is == ASKS && ask == SIZE_MAX) ask = i;
    }
    for (size_t i = 0; request->claimed && i < model->allow_count; i++) {
        if (names_it(&model->allow[i], request->claimed) && stand(&model->allow[i], request).is == MATCHES)
            return say(POLICY_ALLOW, POLICY_ALLOWED_NAME, i, request->claimed);
    }
    for (size_t i = 0; is_localhost(request->address) && i < model->allow_count; i++) {
        const struct policy_entry *entry = &model->allow[i];
        if (entry->protocol == POLICY_ENTRY_HTTPS || entry->protocol == POLICY_ENTRY_HTTP) continue;
        if (names_it(entry, "localhost") && stand(entry, request).is == MATCHES)
            return say(POLICY_ALLOW, POLICY_ALLOWED_NAME, i, NULL);
    }
    struct policy_decision result = literal_rest(world, request);
    if (result.verdict == POLICY_ALLOW) {
        result.verdict = open;
        return result;
    }
    if (!unknown) return result;
    any_name_on_port(world, POLICY_ENTRY_HTTPS, request->port, &ask);
    any_name_on_port(world, POLICY_ENTRY_HTTP, request->port, &ask);
    if (ask == SIZE_MAX) return result;
    bool address = model->allow[ask].kind == POLICY_ENTRY_ADDRESS;
    return say(POLICY_INSPECT, address ? POLICY_ALLOWED_CIDR : POLICY_ALLOWED_NAME, ask, NULL);
}

static struct policy_decision by_question(const struct world *world, const char *name) {
    const struct policy_model *model = world->model;
    size_t all_rule = 0;
    bool all_denied = deny_all(world, &all_rule) != NULL, names = false;
    for (size_t i = 0; i < model->allow_count; i++) {
        names |= model->allow[i].kind == POLICY_ENTRY_NAME || model->allow[i].kind == POLICY_ENTRY_WILDCARD;
        if (name && names_it(&model->allow[i], name)) return say(POLICY_ALLOW, POLICY_ALLOWED_NAME, i, name);
    }
    if (model->base_allow && !all_denied) return say(POLICY_ALLOW, POLICY_ALLOWED_BASE, base_rule(world), name);
    for (size_t i = 0; i < model->allow_count && !names && model->has_dns_names && model->dns_names == POLICY_DNS_REAL;
         i++) {
        if (model->allow[i].kind == POLICY_ENTRY_CIDR) return say(POLICY_ALLOW, POLICY_ALLOWED_CIDR, i, name);
    }
    return say(POLICY_DENY, POLICY_DNS_NAME_DENIED, model->base_allow ? all_rule : base_rule(world), NULL);
}

static struct policy_decision plain_decide(const struct world *world, const struct policy_request *request) {
    struct policy_decision result;
    if (step_node(world, request, &result)) return result;
    if (request->protocol == POLICY_DNS) return by_question(world, request->dialled);
    if (step_private(world, request, &result)) return result;
    bool differ = request->claimed_address ||
                  (request->claimed && request->dialled && strcmp(request->claimed, request->dialled) != 0);
    if (request->dialled && differ) {
        size_t rule;
        bool open = world->model->base_allow && !deny_all(world, &rule), outer = false;
        for (size_t i = 0; request->claimed && i < world->model->allow_count; i++)
            outer |= names_it(&world->model->allow[i], request->claimed) &&
                     stand(&world->model->allow[i], request).is == MATCHES;
        if (has_ech(request) && !outer && !open) return say(POLICY_DENY, POLICY_ECH_DENIED, base_rule(world), NULL);
        return say(POLICY_DENY, POLICY_NAME_MISMATCH, POLICY_RULE_NONE, NULL);
    }
    if (request->dialled) return by_name(world, request, request->dialled);
    if (request->address) return by_address(world, request);
    if (request->claimed) return by_name(world, request, request->claimed);
    return world->model->base_allow ? open_base(world, request, NULL) : closed(world, request, base_rule(world));
}

// ---- random policies and requests from a small universe ----

static uint64_t random_state;

static uint32_t roll(uint32_t below) { // splitmix64
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)(((z ^ (z >> 31)) >> 32) % below);
}

static bool chance(uint32_t percent) { return roll(100) < percent; }

static const char *const names[] = {"a.test",    "b.test",    "www.a.test",    "x.www.a.test", "test",
                                    "wwwa.test", "localhost", "app.localhost", "other.org",    "a.test.evil.org"};
static const char *const suffixes[] = {"a.test", "test", "www.a.test", "", "org", "localhost"};
static const char *const addresses[] = {
    "8.8.8.8",
    "8.8.8.9",
    "8.8.8.255",
    "8.8.9.0",
    "8.8.7.255",
    "255.255.255.255",
    "255.255.255.254",
    "10.0.0.1",
    "10.1.2.3",
    "127.0.0.1",
    "127.9.9.9",
    "0.0.0.0",
    "192.168.1.1",
    "203.0.113.5",
    "100.64.0.1",
    "172.32.0.1",
    "93.184.216.34",
    "198.18.0.5",
    "::",
    "::1",
    "2001:db8::1",
    "2001:db8::2",
    "2001:db9::1",
    "64:ff9b::808:808",
    "64:ff9b::a00:1",
    "2002:a00:1::",
    "2002:808:808::1",
    "2001:0:1:2:3:4:f5ff:fffe",
    "2001:0:1:2:3:4:f7f7:f7f7",
    "fe80::1",
    "fd00::1",
    "2001:db8::5efe:a00:1",
    "2001:db8::200:5efe:808:808",
    "::ffff:0:a00:1",
    "::7f00:1",
    "::808:808",
    "fd00:64::a00:1",
    "fd00:64::808:808",
    "64:ff9b:1::808:808",
    "::ffff:8.8.8.8",
    "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
    "2001:4860:4860::8888",
};
static struct addr universe[ARRAY_LENGTH(addresses)];

static const struct addr *any_address(void) { return &universe[roll(ARRAY_LENGTH(universe))]; }
static const char *any_name(void) { return names[roll(ARRAY_LENGTH(names))]; }

static struct addr_prefix any_prefix(void) {
    struct addr_prefix prefix = {.addr = *any_address()};
    unsigned width = prefix.addr.family == ADDR_IPV4 ? 32 : 128;
    static const uint8_t steps[] = {0, 1, 2, 8, 9, 16, 24, 32};
    prefix.length = (uint8_t)(chance(5) ? 0 : width - steps[roll(ARRAY_LENGTH(steps))]);
    for (unsigned bit = prefix.length; bit < width; bit++)
        prefix.addr.bytes[bit / 8] &= (uint8_t) ~(1u << (7 - bit % 8));
    return prefix;
}

static uint16_t any_port(void) {
    static const uint16_t ports[] = {443, 443, 443, 80, 80, 22, 8000, 8443, 5432, 53, 1, 65535};
    return ports[roll(ARRAY_LENGTH(ports))];
}

static void any_ports(struct policy_entry *entry) {
    if (chance(50)) return;
    entry->port_count = 1 + roll(2);
    entry->ports = NEW_ARRAY(struct policy_port_range, entry->port_count);
    assert_non_null(entry->ports);
    for (size_t i = 0; i < entry->port_count; i++) {
        uint16_t a = any_port(), b = chance(70) ? a : any_port();
        entry->ports[i] = (struct policy_port_range){a < b ? a : b, a < b ? b : a};
    }
}

static void any_allow(struct policy_entry *entry, enum policy_dialect dialect) {
    entry->kind = (enum policy_entry_kind)roll(4);
    entry->protocol = POLICY_ENTRY_HTTPS;
    switch (entry->kind) {
    case POLICY_ENTRY_NAME:
        snprintf(entry->name, sizeof(entry->name), "%s", any_name());
        entry->protocol = (enum policy_entry_protocol)(chance(50) ? POLICY_ENTRY_HTTPS : roll(3));
        break;
    case POLICY_ENTRY_WILDCARD:
        snprintf(entry->name, sizeof(entry->name), "%s", suffixes[roll(ARRAY_LENGTH(suffixes))]);
        entry->protocol = (enum policy_entry_protocol)(chance(50) ? POLICY_ENTRY_HTTPS : roll(3));
        break;
    case POLICY_ENTRY_ADDRESS:
        entry->prefix = (struct addr_prefix){.addr = *any_address()};
        entry->prefix.length = entry->prefix.addr.family == ADDR_IPV4 ? 32 : 128;
        break;
    case POLICY_ENTRY_CIDR:
        entry->prefix = any_prefix();
        entry->protocol = (enum policy_entry_protocol)(POLICY_ENTRY_TCP + roll(4));
        entry->both_families =
            dialect == POLICY_DIALECT_E2B && entry->prefix.length == 0 && entry->prefix.addr.family == ADDR_IPV4;
        break;
    }
    entry->private_ok = entry->kind != POLICY_ENTRY_CIDR && chance(15);
    any_ports(entry);
    entry->source = strdup("--random");
    assert_non_null(entry->source);
}

static void any_node(struct policy_node *node) {
    node->has_always_denied = chance(60);
    node->always_denied_count = node->has_always_denied ? roll(NODE_MAX) : 0;
    for (size_t i = 0; i < node->always_denied_count; i++) node->always_denied[i] = any_prefix();
    node->always_allowed_count = chance(40) ? roll(NODE_MAX) : 0;
    for (size_t i = 0; i < node->always_allowed_count; i++) node->always_allowed[i] = any_prefix();
    node->always_denied_name_count = chance(25) ? roll(NODE_MAX) : 0;
    for (size_t i = 0; i < node->always_denied_name_count; i++) {
        const char *suffix = suffixes[roll(3)];
        snprintf(node->always_denied_names[i], NAME_SIZE, "%s%s", chance(50) ? "*." : "", suffix);
    }
    node->has_deny_own_addresses = chance(50);
    node->deny_own_addresses = chance(50);
    node->nat64_count = chance(30);
    node->own_address_count = chance(30);
    node->own_addresses[0] = universe[roll(17)];
    if (chance(50)) node->pool4 = must_parse_prefix("100.100.0.0/16");
}

static void any_world(struct world *world) {
    static struct addr_prefix denied[NODE_MAX], allowed[NODE_MAX], nat64[1];
    static char denied_names[NODE_MAX][NAME_SIZE];
    static struct addr own[1];
    enum policy_dialect dialect = (enum policy_dialect)(POLICY_DIALECT_NETWORK + roll(3));
    memset(world, 0, sizeof(*world));
    world->model = policy_model_new(dialect);
    assert_non_null(world->model);
    struct policy_model *model = world->model;
    model->base_allow = chance(35);
    model->block_private = chance(60);
    model->has_dns_names = chance(30);
    model->dns_names = (enum policy_dns_names)roll(2);
    model->allow_count = roll(ENTRY_MAX + 1);
    model->allow = NEW_ARRAY(struct policy_entry, model->allow_count);
    model->deny_count = chance(50) ? roll(ENTRY_MAX / 2 + 1) : 0;
    model->deny = NEW_ARRAY(struct policy_entry, model->deny_count);
    assert_true(model->allow && model->deny);
    for (size_t i = 0; i < model->allow_count; i++) any_allow(&model->allow[i], dialect);
    for (size_t i = 0; i < model->deny_count; i++) {
        struct policy_entry *entry = &model->deny[i];
        entry->kind = POLICY_ENTRY_CIDR;
        entry->protocol = POLICY_ENTRY_ANY;
        entry->prefix = any_prefix();
        if (chance(15)) entry->prefix = (struct addr_prefix){.addr = {.family = ADDR_IPV4}};
        entry->both_families =
            dialect == POLICY_DIALECT_E2B && entry->prefix.length == 0 && entry->prefix.addr.family == ADDR_IPV4;
    }
    nat64[0] = must_parse_prefix("fd00:64::/96");
    world->node = (struct policy_node){.always_denied = denied,
                                       .always_allowed = allowed,
                                       .nat64_prefixes = nat64,
                                       .always_denied_names = denied_names,
                                       .own_addresses = own};
    world->has_node = chance(50);
    if (world->has_node) any_node(&world->node);
    world->own_count = chance(50) ? roll(3) : 0;
    for (size_t i = 0; i < world->own_count; i++) world->own[i] = *any_address();
}

static struct policy_request any_request(void) {
    struct policy_request request = {.protocol = chance(70) ? POLICY_TCP : (enum policy_protocol)roll(4)};
    bool literal = chance(50);
    if (request.protocol == POLICY_TCP) request.app = (enum policy_app)roll(4);
    if (!literal || request.protocol == POLICY_DNS) request.dialled = any_name();
    if (request.app != POLICY_APP_UNKNOWN && chance(60))
        request.claimed = request.dialled && chance(70) ? request.dialled : any_name();
    else if (request.app != POLICY_APP_UNKNOWN && chance(30))
        request.claimed_address = any_address();
    request.ech = request.app == POLICY_APP_TLS && chance(30);
    // A DNS answer (a question with an address) is judged by steps 1 and 2 alone; the DNS front's tests hold that.
    if (request.protocol != POLICY_DNS && chance(literal ? 97 : 60)) request.address = any_address();
    if (request.claimed_address && request.address && chance(50)) request.claimed_address = request.address;
    if (request.protocol == POLICY_TCP || request.protocol == POLICY_UDP) request.port = any_port();
    return request;
}

// ---- the comparison ----

static uint64_t number_from_environment(const char *name, uint64_t fallback) {
    const char *text = getenv(name);
    uint64_t number = fallback;
    if (text) assert_int_equal(number_parse(text, strlen(text), 0, UINT64_MAX, &number), 0);
    return number;
}

static void print_pair(const struct policy *policy, const struct policy_request *request,
                       const struct policy_decision *got, const struct policy_decision *want) {
    char text[ADDR_TEXT_SIZE] = "-";
    if (request->address) addr_format(request->address, text);
    print_message("%s app %d dialled %s claimed %s%s address %s port %u%s\n", policy_protocol_name(request->protocol),
                  (int)request->app, request->dialled ? request->dialled : "-",
                  request->claimed ? request->claimed : "-", request->claimed_address ? " (address)" : "", text,
                  request->port, request->ech ? " ech" : "");
    for (uint32_t i = 0; i < policy_rule_count(policy); i++)
        print_message("  rule %u: %s\n", i, policy_rule_info(policy, i).text);
    print_message("compiled: %s %s rule %u; plain: %s %s rule %u\n", policy_verdict_name(got->verdict),
                  policy_reason_name(got->reason), got->rule, policy_verdict_name(want->verdict),
                  policy_reason_name(want->reason), want->rule);
}

static bool same(const struct policy_decision *a, const struct policy_decision *b) {
    return a->verdict == b->verdict && a->reason == b->reason && a->rule == b->rule &&
           (a->name == b->name || (a->name && b->name && strcmp(a->name, b->name) == 0));
}

#if defined(__SANITIZE_ADDRESS__)
#define PAIRS 100000
#else
#define PAIRS 1000000
#endif
#define REQUESTS_PER_POLICY 100

static void compiled_and_plain_verdicts_agree(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(addresses); i++) universe[i] = must_parse(addresses[i]);
    random_state = number_from_environment("PENSTOCK_SEED", 20240607);
    uint64_t pairs = number_from_environment("PENSTOCK_PAIRS", PAIRS), reasons[POLICY_REASON_COUNT] = {0};
    uint64_t verdicts[3] = {0}, refused = 0;
    for (uint64_t done = 0; done < pairs;) {
        struct world world;
        struct policy *policy = NULL;
        struct error err = {0};
        any_world(&world);
        int r = policy_compile(world.model, world.has_node ? &world.node : NULL, world.own, world.own_count, done,
                               &policy, NULL, &err);
        if (r != 0) { // only what overlaps the pool is refused
            assert_non_null(strstr(err.text, "from which the sandbox's names get their addresses"));
            refused++;
        }
        for (int i = 0; r == 0 && i < REQUESTS_PER_POLICY; i++, done++) {
            struct policy_request request = any_request();
            struct policy_decision got = policy_decide(policy, &request), want = plain_decide(&world, &request);
            if (!same(&got, &want)) print_pair(policy, &request, &got, &want);
            assert_true(same(&got, &want));
            reasons[got.reason]++;
            verdicts[got.verdict]++;
        }
        policy_free(policy);
        policy_model_free(world.model);
    }
    // The universe is of use only if it reaches every reason of the verdict often.
    for (int reason = 0; reason <= POLICY_DNS_NAME_DENIED; reason++) {
        print_message("%-18s %" PRIu64 "\n", policy_reason_name((enum policy_reason)reason), reasons[reason]);
        assert_true(reasons[reason] > pairs / 2000);
    }
    print_message("deny %" PRIu64 " allow %" PRIu64 " inspect %" PRIu64 ", policies refused %" PRIu64 "\n",
                  verdicts[POLICY_DENY], verdicts[POLICY_ALLOW], verdicts[POLICY_INSPECT], refused);
    assert_true(verdicts[POLICY_INSPECT] > pairs / 100);
    assert_true(reasons[POLICY_ECH_DENIED] > pairs / 2000);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(compiled_and_plain_verdicts_agree)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
