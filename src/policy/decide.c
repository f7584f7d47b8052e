// SPDX-License-Identifier: Apache-2.0
// The verdict. Pure: reads the compiled block and the request, nothing else.
//
// A request is scanned against the allow entries once: those of its name (hash, then the wildcards label by label) and
// those of its address (the chain of prefixes that contain it). A scan keeps the first entry that matches, the first
// that the bytes could still make match (app unknown), whether one of them lifts the private block, and the nearest
// miss, which gives a better reason than "base denied". The order of semantics section 2 is then a walk over these
// facts.
//
// Denials (node, private, deny entries) look at the address and at the IPv4 address it carries; allows only at the
// address itself. A name that was dialled is judged as a name: address entries never allow it, they only lift the
// private block for their range.
#include "policy/block.h"

// How near an entry came to matching; the higher, the better it explains a denial.
enum near {
    NEAR_NONE,
    NEAR_TRANSPORT, // udp to a tcp entry
    NEAR_OTHER,     // the port of an entry that does not care for bytes, or bytes and port both wrong
    NEAR_NOT_HTTPS, // plain HTTP to a host that is listed for HTTPS on other ports
    NEAR_PORT,      // all but the port
    NEAR_APP,       // all but what the bytes are
};

struct scan {
    const struct policy *policy;
    const struct policy_request *request;
    uint32_t full, inspect; // first entry that matches, first that bytes could make match; or BLOCK_NONE
    uint32_t full_any;      // first that matches whatever the bytes are
    bool lifts;             // a match lifts the private block
    bool loopback;          // a match opens the host's loopback
    enum near near;
    enum policy_reason near_reason;
    uint32_t near_entry;
};

enum match { MATCH_NO, MATCH_INSPECT, MATCH_FULL };

static struct policy_decision decision(enum policy_verdict verdict, enum policy_reason reason, uint32_t rule) {
    return (struct policy_decision){.verdict = verdict, .reason = reason, .rule = rule};
}

static struct policy_decision deny(enum policy_reason reason, uint32_t rule) {
    return decision(POLICY_DENY, reason, rule);
}

// ---- entries ----

static bool transport_ok(enum policy_entry_protocol entry, enum policy_protocol request) {
    switch (request) {
    case POLICY_TCP:
        return entry != POLICY_ENTRY_UDP && entry != POLICY_ENTRY_ICMP;
    case POLICY_UDP:
        return entry == POLICY_ENTRY_UDP || entry == POLICY_ENTRY_ANY;
    case POLICY_ICMP:
        return entry == POLICY_ENTRY_ICMP;
    case POLICY_DNS:
        return true;
    }
    return false;
}

// What the first bytes are to an entry: MATCH_INSPECT while they are unknown and the entry cares.
static enum match app_match(enum policy_entry_protocol entry, enum policy_app app) {
    if (entry != POLICY_ENTRY_HTTPS && entry != POLICY_ENTRY_HTTP) return MATCH_FULL;
    if (app == POLICY_APP_UNKNOWN) return MATCH_INSPECT;
    return app == (entry == POLICY_ENTRY_HTTPS ? POLICY_APP_TLS : POLICY_APP_HTTP) ? MATCH_FULL : MATCH_NO;
}

static void scan_near(struct scan *scan, uint32_t index, enum near near, enum policy_reason reason) {
    if (near < scan->near || (near == scan->near && index >= scan->near_entry)) return;
    scan->near = near;
    scan->near_reason = reason;
    scan->near_entry = index;
}

// The entry is for this name or address, but not for this port or these bytes.
static void scan_miss(struct scan *scan, uint32_t index, bool port_ok, enum match app) {
    const struct policy_request *request = scan->request;
    enum policy_entry_protocol protocol = scan->policy->entries[index].protocol;
    bool https = protocol == POLICY_ENTRY_HTTPS, http = protocol == POLICY_ENTRY_HTTP;
    // A connection to port 80 of a listed host is plain HTTP until it shows otherwise.
    bool plain = request->app == POLICY_APP_HTTP || (request->app == POLICY_APP_UNKNOWN && request->port == 80);
    if (port_ok)
        scan_near(scan, index, NEAR_APP, https ? POLICY_NOT_HTTPS : POLICY_PROTOCOL_DENIED);
    else if (https && plain)
        scan_near(scan, index, NEAR_NOT_HTTPS, POLICY_NOT_HTTPS);
    else if ((https || http) && app != MATCH_NO)
        scan_near(scan, index, NEAR_PORT, POLICY_PORT_DENIED);
    else if (http && request->app == POLICY_APP_TLS)
        scan_near(scan, index, NEAR_OTHER, POLICY_PROTOCOL_DENIED);
    else
        scan_near(scan, index, NEAR_OTHER, POLICY_PORT_DENIED);
}

// Judges one entry whose name or address matches.
static void scan_entry(struct scan *scan, uint32_t index) {
    const struct block_entry *entry = &scan->policy->entries[index];
    const struct policy_request *request = scan->request;
    if (!transport_ok(entry->protocol, request->protocol)) {
        scan_near(scan, index, NEAR_TRANSPORT, POLICY_PROTOCOL_DENIED);
        return;
    }
    bool tcp = request->protocol == POLICY_TCP;
    bool any_port = request->protocol == POLICY_ICMP || request->protocol == POLICY_DNS;
    bool port_ok = any_port || block_port_in(scan->policy, entry, request->port);
    enum match app = tcp ? app_match(entry->protocol, request->app) : MATCH_FULL;
    if (!port_ok || app == MATCH_NO) {
        scan_miss(scan, index, port_ok, app);
        return;
    }
    uint32_t *first = app == MATCH_FULL ? &scan->full : &scan->inspect;
    if (index < *first) *first = index;
    bool any = entry->protocol != POLICY_ENTRY_HTTPS && entry->protocol != POLICY_ENTRY_HTTP;
    if (any && index < scan->full_any) scan->full_any = index;
    bool lifts = entry->private_ok || entry->kind == POLICY_ENTRY_CIDR;
    scan->lifts |= lifts;
    scan->loopback |= entry->loopback;
}

static struct scan scan_new(const struct policy *policy, const struct policy_request *request) {
    return (struct scan){.policy = policy,
                         .request = request,
                         .full = BLOCK_NONE,
                         .inspect = BLOCK_NONE,
                         .full_any = BLOCK_NONE,
                         .near_reason = POLICY_BASE_DENIED,
                         .near_entry = BLOCK_NONE};
}

static void scan_name(struct scan *scan, const char *name) {
    const struct block_slot *slots[BLOCK_MATCH_MAX];
    size_t count = block_match_name(scan->policy, BLOCK_ALLOW_EXACT, BLOCK_ALLOW_WILD, name, slots);
    for (size_t i = 0; i < count; i++) {
        for (uint32_t j = 0; j < slots[i]->items.count; j++)
            scan_entry(scan, scan->policy->items[slots[i]->items.first + j]);
    }
}

// An IP entry of `hosts` is for who dials the address and claims no other name.
static bool hosts_address_applies(const struct policy_request *request) {
    return !request->dialled && !request->claimed &&
           (!request->claimed_address || addr_equal(request->claimed_address, request->address));
}

static void scan_address(struct scan *scan) {
    const struct policy *policy = scan->policy;
    bool hosts = hosts_address_applies(scan->request);
    for (const struct block_node *node = block_find_node(policy, BLOCK_TREE_ALLOW, scan->request->address); node;
         node = block_parent(policy, node)) {
        for (uint32_t i = 0; i < node->items.count; i++) {
            uint32_t index = policy->items[node->items.first + i];
            if (policy->entries[index].kind == POLICY_ENTRY_CIDR || hosts) scan_entry(scan, index);
        }
    }
}

// ---- steps 1, 2 and 4 ----

// An address and the IPv4 address it carries.
struct forms {
    struct addr forms[2];
    size_t count;
};

static struct forms forms_of(const struct policy *policy, const struct addr *addr) {
    struct forms forms = {.forms = {*addr}, .count = 1};
    if (addr_embedded_ipv4(addr, policy->nat64, block_count(policy, BLOCK_NAT64), &forms.forms[1])) forms.count = 2;
    return forms;
}

// The first rule in list order of a tree that holds one of the forms, or BLOCK_NONE.
static uint32_t first_rule(const struct policy *policy, enum block_tree tree, const struct forms *forms) {
    uint32_t first = BLOCK_NONE;
    for (size_t i = 0; i < forms->count; i++) {
        for (const struct block_node *node = block_find_node(policy, tree, &forms->forms[i]); node;
             node = block_parent(policy, node)) {
            uint32_t rule = policy->items[node->items.first];
            if (rule < first) first = rule;
        }
    }
    return first;
}

static bool is_own(const struct policy *policy, const struct forms *forms) {
    return first_rule(policy, BLOCK_TREE_OWN, forms) != BLOCK_NONE;
}

static bool is_special(const struct policy *policy, const struct addr *addr) {
    return addr_special_block(addr, policy->nat64, block_count(policy, BLOCK_NAT64)) != NULL;
}

static bool node_denies_name(const struct policy *policy, const char *name, struct policy_decision *ret) {
    const struct block_slot *slots[BLOCK_MATCH_MAX];
    size_t count = name ? block_match_name(policy, BLOCK_NODE_EXACT, BLOCK_NODE_WILD, name, slots) : 0;
    uint32_t first = BLOCK_NONE;
    for (size_t i = 0; i < count; i++) {
        uint32_t rule = policy->items[slots[i]->items.first];
        if (rule < first) first = rule;
    }
    if (first == BLOCK_NONE) return false;
    if (block_match_name(policy, BLOCK_NODE_OK_EXACT, BLOCK_NODE_OK_WILD, name, slots) > 0) return false;
    *ret = deny(POLICY_NODE_DENIED, first);
    return true;
}

static bool node_denies_address(const struct policy *policy, const struct addr *addr, const struct forms *forms,
                                struct policy_decision *ret) {
    if (block_find_node(policy, BLOCK_TREE_NODE_ALLOWED, addr)) return false;
    const struct block_header *header = policy->header;
    uint32_t rule = first_rule(policy, BLOCK_TREE_NODE_DENIED, forms);
    if (rule == BLOCK_NONE && header->rule_special != BLOCK_NONE && is_special(policy, addr))
        rule = header->rule_special;
    if (rule != BLOCK_NONE) {
        *ret = deny(POLICY_NODE_DENIED, rule);
        return true;
    }
    if (header->rule_own == BLOCK_NONE || !is_own(policy, forms)) return false;
    *ret = deny(POLICY_NODE_OWN_ADDRESS, header->rule_own);
    return true;
}

// ---- the walk ----

struct facts {
    const struct policy *policy;
    const struct policy_request *request;
    struct scan names, addresses, localhost;
    struct forms forms;
    bool loopback; // the address leads to the host itself: loopback, or the unspecified address
};

// The addresses that the name localhost has (RFC 6761 6.3), not all of 127.0.0.0/8.
static bool is_localhost(const struct addr *addr) {
    static const struct addr one = {.family = ADDR_IPV6, .bytes = {[15] = 1}};
    struct addr local = addr_ipv4(0x7f000001);
    return addr_equal(addr, &local) || addr_equal(addr, &one);
}

static struct facts facts_of(const struct policy *policy, const struct policy_request *request) {
    struct facts facts = {.policy = policy, .request = request};
    facts.names = facts.addresses = facts.localhost = scan_new(policy, request);
    const char *name = request->dialled ? request->dialled : request->claimed;
    if (name) scan_name(&facts.names, name);
    if (!request->address) return facts;
    facts.forms = forms_of(policy, request->address);
    facts.loopback = addr_is_loopback(request->address) || addr_is_unspecified(request->address);
    scan_address(&facts.addresses);
    // The sandbox's loopback is its own, but for the ports that entries for localhost take over.
    if (!request->dialled && is_localhost(request->address)) scan_name(&facts.localhost, "localhost");
    return facts;
}

static bool private_lifted(const struct facts *facts) {
    return facts->addresses.lifts || (facts->request->dialled ? facts->names.lifts : facts->localhost.lifts);
}

static bool guards_deny(const struct facts *facts, struct policy_decision *ret) {
    const struct policy *policy = facts->policy;
    const struct policy_request *request = facts->request;
    if (node_denies_name(policy, request->dialled, ret) || node_denies_name(policy, request->claimed, ret)) return true;
    if (!request->address) return false;
    if (node_denies_address(policy, request->address, &facts->forms, ret)) return true;
    if (!policy->header->block_private || private_lifted(facts)) return false;
    if (!is_special(policy, request->address) && !is_own(policy, &facts->forms)) return false;
    *ret = deny(POLICY_PRIVATE_ADDRESS, policy->header->rule_private);
    // An address range that is open on other ports says more than "private".
    bool near = facts->addresses.near != NEAR_NONE && !policy->header->base_allow && !request->dialled &&
                policy->entries[facts->addresses.near_entry].kind == POLICY_ENTRY_CIDR;
    if (near) *ret = deny(facts->addresses.near_reason, facts->addresses.near_entry);
    return true;
}

static bool is_tls_with_ech(const struct policy_request *request) {
    return request->app == POLICY_APP_TLS && request->ech && request->claimed;
}

static struct policy_decision mismatch(const struct policy *policy, const struct policy_request *request) {
    if (is_tls_with_ech(request) && !policy->header->name_base_allow) {
        struct scan outer = scan_new(policy, request);
        scan_name(&outer, request->claimed);
        if (outer.full == BLOCK_NONE) return deny(POLICY_ECH_DENIED, policy->header->rule_base);
    }
    return deny(POLICY_NAME_MISMATCH, POLICY_RULE_NONE);
}

// Base deny: the best reason that can be given.
static struct policy_decision base_denial(const struct facts *facts, uint32_t rule) {
    const struct policy_request *request = facts->request;
    const struct scan *near = &facts->names;
    if (!request->dialled && facts->addresses.near >= near->near) near = &facts->addresses;
    if (near->near != NEAR_NONE) return deny(near->near_reason, near->near_entry);
    if (request->protocol == POLICY_ICMP) return deny(POLICY_PROTOCOL_DENIED, rule);
    if (is_tls_with_ech(request)) return deny(POLICY_ECH_DENIED, rule);
    return deny(POLICY_BASE_DENIED, rule);
}

// A connection to a bound host may be one to which a credential is added: that is seen in its bytes.
static bool bytes_are_bound(const struct facts *facts, const char *name) {
    const struct policy_request *request = facts->request;
    return request->protocol == POLICY_TCP && request->app == POLICY_APP_UNKNOWN &&
           policy_name_bound(facts->policy, name);
}

static struct policy_decision judge_name(const struct facts *facts, const char *name) {
    const struct block_header *header = facts->policy->header;
    const struct policy_request *request = facts->request;
    struct policy_decision result;
    if (facts->names.full != BLOCK_NONE) {
        result = decision(POLICY_ALLOW, POLICY_ALLOWED_NAME, facts->names.full);
    } else if (facts->names.inspect != BLOCK_NONE) {
        result = decision(POLICY_INSPECT, POLICY_ALLOWED_NAME, facts->names.inspect);
    } else if (!header->name_base_allow) {
        return base_denial(facts, header->rule_deny_all != BLOCK_NONE && header->base_allow ? header->rule_deny_all
                                                                                            : header->rule_base);
    } else {
        uint32_t denied = request->address ? first_rule(facts->policy, BLOCK_TREE_DENY, &facts->forms) : BLOCK_NONE;
        if (denied != BLOCK_NONE) return deny(POLICY_DENIED_CIDR, denied);
        if (request->protocol == POLICY_ICMP && !header->icmp_base)
            return deny(POLICY_PROTOCOL_DENIED, header->rule_base);
        result = decision(bytes_are_bound(facts, name) ? POLICY_INSPECT : POLICY_ALLOW, POLICY_ALLOWED_BASE,
                          header->rule_base);
    }
    // The host's loopback is reached only through an entry that means it.
    if (request->address && facts->loopback && !facts->addresses.loopback && !facts->names.loopback)
        return deny(POLICY_PRIVATE_ADDRESS, header->rule_private);
    result.name = name;
    return result;
}

static struct policy_decision judge_nothing(const struct facts *facts) {
    const struct block_header *header = facts->policy->header;
    if (!header->base_allow) return base_denial(facts, header->rule_base);
    if (facts->request->protocol == POLICY_ICMP && !header->icmp_base)
        return deny(POLICY_PROTOCOL_DENIED, header->rule_base);
    return decision(POLICY_ALLOW, POLICY_ALLOWED_BASE, header->rule_base);
}

// The entry by which bytes could open a literal address: an IP entry, or any name with this port. BLOCK_NONE if none.
static uint32_t inspect_entry(const struct facts *facts) {
    const struct policy_request *request = facts->request;
    if (request->protocol != POLICY_TCP || request->app != POLICY_APP_UNKNOWN) return BLOCK_NONE;
    uint32_t first = facts->addresses.inspect;
    for (int table = 0; table < BLOCK_RUN_TABLE_COUNT; table++) {
        uint32_t entry = block_find_run(facts->policy, (enum block_run_table)table, request->port);
        if (entry < first) first = entry;
    }
    return first;
}

// A literal that steps 4 and 5 allow; but a name that the node denies may still show in the bytes.
static struct policy_decision allow_literal(const struct facts *facts, enum policy_reason reason, uint32_t rule) {
    bool bytes = facts->policy->header->has_node_names && facts->request->protocol == POLICY_TCP &&
                 facts->request->app == POLICY_APP_UNKNOWN;
    return decision(bytes ? POLICY_INSPECT : POLICY_ALLOW, reason, rule);
}

// A literal that the open base allows. Bound hosts have synthetic addresses, so who dials one of theirs has it from
// elsewhere; where TLS is expected its name is looked for all the same, and then dialled instead of the literal.
static struct policy_decision allow_unnamed(const struct facts *facts) {
    const struct policy *policy = facts->policy;
    const struct policy_request *request = facts->request;
    bool bound = policy->header->set_counts[BLOCK_BOUND] > 0 && request->protocol == POLICY_TCP;
    struct policy_decision result = allow_literal(facts, POLICY_ALLOWED_BASE, policy->header->rule_base);
    if (bound && request->app == POLICY_APP_UNKNOWN && request->port == 443) result.verdict = POLICY_INSPECT;
    if (bound && request->app == POLICY_APP_TLS && request->claimed && policy_name_bound(policy, request->claimed))
        result.name = request->claimed;
    return result;
}

// Base deny of a literal address without a name: would a name have helped?
static struct policy_decision literal_denial(const struct facts *facts) {
    const struct policy_request *request = facts->request;
    struct policy_decision result = base_denial(facts, facts->policy->header->rule_base);
    if (result.reason != POLICY_BASE_DENIED || request->protocol != POLICY_TCP || request->claimed) return result;
    bool https = block_find_run(facts->policy, BLOCK_RUNS_HTTPS, request->port) != BLOCK_NONE;
    bool http = block_find_run(facts->policy, BLOCK_RUNS_HTTP, request->port) != BLOCK_NONE;
    if (!https && !http) return result;
    if (request->app == POLICY_APP_TLS || request->app == POLICY_APP_HTTP) result.reason = POLICY_NO_NAME;
    if (request->app == POLICY_APP_OTHER) result.reason = https ? POLICY_NOT_HTTPS : POLICY_PROTOCOL_DENIED;
    return result;
}

static struct policy_decision literal_base(const struct facts *facts) {
    const struct block_header *header = facts->policy->header;
    uint32_t denied = first_rule(facts->policy, BLOCK_TREE_DENY, &facts->forms);
    if (denied != BLOCK_NONE) return deny(POLICY_DENIED_CIDR, denied);
    if (!header->base_allow) return literal_denial(facts);
    if (facts->loopback) return deny(POLICY_PRIVATE_ADDRESS, header->rule_private);
    if (facts->request->protocol == POLICY_ICMP && !header->icmp_base)
        return deny(POLICY_PROTOCOL_DENIED, header->rule_base);
    return allow_unnamed(facts);
}

static struct policy_decision judge_literal(const struct facts *facts) {
    const struct policy_request *request = facts->request;
    // A range around the loopback is no word about the host's own services.
    if (facts->addresses.full != BLOCK_NONE && facts->loopback && !facts->addresses.loopback)
        return deny(POLICY_PRIVATE_ADDRESS, facts->policy->header->rule_private);
    if (facts->addresses.full != BLOCK_NONE) {
        bool cidr = facts->policy->entries[facts->addresses.full].kind == POLICY_ENTRY_CIDR;
        return cidr ? allow_literal(facts, POLICY_ALLOWED_CIDR, facts->addresses.full)
                    : decision(POLICY_ALLOW, POLICY_ALLOWED_CIDR, facts->addresses.full);
    }
    if (request->claimed && facts->names.full != BLOCK_NONE) {
        struct policy_decision result = decision(POLICY_ALLOW, POLICY_ALLOWED_NAME, facts->names.full);
        result.name = request->claimed;
        return result;
    }
    // Bytes that need not be read: a port of localhost that is opened for any of them.
    if (facts->localhost.full_any != BLOCK_NONE)
        return decision(POLICY_ALLOW, POLICY_ALLOWED_NAME, facts->localhost.full_any);
    struct policy_decision result = literal_base(facts);
    uint32_t entry = result.verdict == POLICY_DENY ? inspect_entry(facts) : BLOCK_NONE;
    if (entry == BLOCK_NONE) return result;
    bool address = facts->policy->entries[entry].kind == POLICY_ENTRY_ADDRESS;
    return decision(POLICY_INSPECT, address ? POLICY_ALLOWED_CIDR : POLICY_ALLOWED_NAME, entry);
}

// A question is allowed if any entry, on any port, could allow the name.
static struct policy_decision judge_question(const struct policy *policy, const char *name) {
    const struct block_header *header = policy->header;
    const struct block_slot *slots[BLOCK_MATCH_MAX];
    struct policy_decision result;
    if (node_denies_name(policy, name, &result)) return result;
    size_t count = name ? block_match_name(policy, BLOCK_ALLOW_EXACT, BLOCK_ALLOW_WILD, name, slots) : 0;
    uint32_t first = BLOCK_NONE;
    for (size_t i = 0; i < count; i++) {
        uint32_t entry = policy->items[slots[i]->items.first];
        if (entry < first) first = entry;
    }
    if (first != BLOCK_NONE)
        result = decision(POLICY_ALLOW, POLICY_ALLOWED_NAME, first);
    else if (header->name_base_allow)
        result = decision(POLICY_ALLOW, POLICY_ALLOWED_BASE, header->rule_base);
    else if (header->dns_cidrs != BLOCK_NONE) // `names: real` beside address ranges: the front filters the answers
        result = decision(POLICY_ALLOW, POLICY_ALLOWED_CIDR, header->dns_cidrs);
    else
        return deny(POLICY_DNS_NAME_DENIED, header->rule_deny_all != BLOCK_NONE && header->base_allow
                                                ? header->rule_deny_all
                                                : header->rule_base);
    result.name = name;
    return result;
}

// An answer to be shown under `names: real`: steps 1 and 2 whatever the port; where only ranges allow, inside one.
static struct policy_decision judge_answer(const struct policy *policy, const struct policy_request *request) {
    struct policy_decision result = judge_question(policy, request->dialled), guard;
    if (result.verdict == POLICY_DENY) return result;
    struct facts facts = facts_of(policy, request);
    if (guards_deny(&facts, &guard)) return guard;
    if (result.reason == POLICY_ALLOWED_CIDR && facts.addresses.full == BLOCK_NONE)
        return deny(POLICY_BASE_DENIED, policy->header->rule_base);
    if (facts.loopback && !facts.addresses.loopback && !facts.names.loopback)
        return deny(POLICY_PRIVATE_ADDRESS, policy->header->rule_private);
    return result;
}

struct policy_decision policy_decide(const struct policy *policy, const struct policy_request *request) {
    const char *dialled = request->dialled, *claimed = request->claimed;
    struct policy_decision result;
    // An address that is none matches no entry that denies: nothing may follow from it.
    if (request->address && request->address->family == ADDR_NONE) return deny(POLICY_NO_NAME, POLICY_RULE_NONE);
    if (request->protocol == POLICY_DNS)
        return request->address ? judge_answer(policy, request) : judge_question(policy, dialled);
    struct facts facts = facts_of(policy, request);
    if (guards_deny(&facts, &result)) return result;
    if (dialled && ((claimed && strcmp(dialled, claimed) != 0) || request->claimed_address))
        return mismatch(policy, request);
    if (dialled) return judge_name(&facts, dialled);
    if (request->address) return judge_literal(&facts);
    return claimed ? judge_name(&facts, claimed) : judge_nothing(&facts);
}
