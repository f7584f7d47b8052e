// SPDX-License-Identifier: Apache-2.0
// The nft rules of a sandbox's namespace: table `inet penstock`, put in place whole. Each rule is a chain and a few words; a
// word is one or more expressions of nf_tables (nft.h).
//
// output marks what is for the gate with 1; table 100 makes it local, so it comes back in by lo. There the packet socket
// sees it first; then prerouting drops SYNs and echo requests (they are held: the gate injects the SYN again, with mark 2,
// or answers) and hands the rest to the gate's sockets by tproxy. No NAT, no connection tracking.
//
// Loopback: ports that an entry opened go to the gate. Port 53 does where nothing of the sandbox listens; only the second
// half of the way knows (`socket`), so those SYNs are not held.
//
// Packets from other interfaces (a nested container, a tap) never were in output: what neither belongs to the namespace nor
// is routed to another such interface is handed to the gate as it comes, without being held.
#include <arpa/inet.h>
#include <errno.h>
#include <linux/rtnetlink.h>

#include "base/mem.h"
#include "net/nft.h"
#include "net/skeleton.h"

#define TABLE "penstock"
#define PROBE_TABLE "penstock_probe"
#define PRIORITY (-150) // "mangle"
#define WORDS_MAX 4

struct skeleton_rules {
    struct netlink netlink;
    bool there; // perhaps a table of ours
};

// ---- words ----

enum word {
    NONE,
    IPV4, IPV6, TCP, UDP, TCP_OR_UDP, ECHO4, ECHO6, SYN_ONLY, LOOPBACK4, LOOPBACK6, IPV6_EXTENDED, JUMBOGRAM,
    TO_OPENED, TO_DNS, NOT_TO_DNS,
    MARK_IS_HELD_NOT, MARK_IS_INJECTED, MARK_HELD,
    NOT_OUT_BY_LO, NOT_IN_BY_LO, ROUTED_TO_OTHERS,
    TO_ITSELF4, TO_ITSELF6, TO_LOCAL, TO_LOCAL_OR_MANY,
    SOCKET_SPECIFIC, SOCKET_WILDCARD,
    TPROXY4, TPROXY6, CONNECTED4, CONNECTED6, RESET, REJECT,
    ACCEPT, DROP, RETURN, TO_GATE, LISTENERS, SOCKETS, LOOPBACK, NEAR, FOREIGN, JUMP_DNS, JUMP_OWN_DNS,
};

#define PROTOCOL(number) NFT_META_LOAD(NFT_META_L4PROTO), NFT_IS(number)
#define FAMILY(number) NFT_META_LOAD(NFT_META_NFPROTO), NFT_IS(number)
#define LO 'l', 'o', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
#define PORT NFT_PAYLOAD(NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2)
#define IP(offset, len) NFT_PAYLOAD(NFT_PAYLOAD_NETWORK_HEADER, offset, len)
#define TRANSPORT(offset, len) NFT_PAYLOAD(NFT_PAYLOAD_TRANSPORT_HEADER, offset, len)
#define DESTINATION_IS(...) NFT_FIB_OF_DESTINATION(NFT_FIB_RESULT_ADDRTYPE), __VA_ARGS__
#define GATE_PORT NFT_LOAD(NFT_REG_2, SKELETON_GATE_PORT >> 8, SKELETON_GATE_PORT & 0xff)
#define NO_PORT NFT_LOAD(NFT_REG_2, SKELETON_NO_PORT >> 8, SKELETON_NO_PORT & 0xff)

static const struct nft_expression skeleton_words[][6] = {
    [IPV4] = {FAMILY(NFPROTO_IPV4)},
    [IPV6] = {FAMILY(NFPROTO_IPV6)},
    [TCP] = {PROTOCOL(IPPROTO_TCP)},
    [UDP] = {PROTOCOL(IPPROTO_UDP)},
    [TCP_OR_UDP] = {NFT_META_LOAD(NFT_META_L4PROTO), NFT_IN("transports")},
    [ECHO4] = {FAMILY(NFPROTO_IPV4), PROTOCOL(IPPROTO_ICMP), TRANSPORT(0, 1), NFT_IS(8)},
    [ECHO6] = {FAMILY(NFPROTO_IPV6), PROTOCOL(IPPROTO_ICMPV6), TRANSPORT(0, 1), NFT_IS(128)},
    [SYN_ONLY] = {PROTOCOL(IPPROTO_TCP), TRANSPORT(13, 1), NFT_MASK8(0x17), NFT_IS(2)}, // of fin, syn, rst, ack
    [LOOPBACK4] = {FAMILY(NFPROTO_IPV4), IP(16, 1), NFT_IS(127)},
    [LOOPBACK6] = {FAMILY(NFPROTO_IPV6), IP(24, 16), NFT_IS(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1)},
    [IPV6_EXTENDED] = {FAMILY(NFPROTO_IPV6), IP(6, 1), NFT_NOT_IN("plain")}, // the next header is none that we know
    [JUMBOGRAM] = {FAMILY(NFPROTO_IPV6), IP(4, 3), NFT_IS(0, 0, 0)}, // no length, and the extension header that has one
    [TO_OPENED] = {PORT, NFT_IN("opened")},
    [TO_DNS] = {PORT, NFT_IS(0, 53)},
    [NOT_TO_DNS] = {PORT, NFT_IS_NOT(0, 53)},
    [MARK_IS_HELD_NOT] = {NFT_META_LOAD(NFT_META_MARK), NFT_IS_NOT32(SKELETON_MARK_HELD)},
    [MARK_IS_INJECTED] = {NFT_META_LOAD(NFT_META_MARK), NFT_IS32(SKELETON_MARK_INJECTED)},
    [MARK_HELD] = {NFT_LOAD32(NFT_REG_1, SKELETON_MARK_HELD), NFT_META_STORE(NFT_META_MARK)},
    [NOT_OUT_BY_LO] = {NFT_META_LOAD(NFT_META_OIFNAME), NFT_IS_NOT(LO)},
    [NOT_IN_BY_LO] = {NFT_META_LOAD(NFT_META_IIFNAME), NFT_IS_NOT(LO)},
    [ROUTED_TO_OTHERS] = {NFT_FIB_OF_DESTINATION(NFT_FIB_RESULT_OIFNAME), NFT_IS_NOT(LO)},
    [TO_ITSELF4] = {FAMILY(NFPROTO_IPV4), IP(16, 4), NFT_IS(SKELETON_ADDRESS4_BYTES)},
    [TO_ITSELF6] = {FAMILY(NFPROTO_IPV6), IP(24, 16), NFT_IS(SKELETON_ADDRESS6_BYTES)},
    [TO_LOCAL] = {DESTINATION_IS(NFT_IS32(RTN_LOCAL))},
    [TO_LOCAL_OR_MANY] = {DESTINATION_IS(NFT_IN("local_or_many"))},
    [SOCKET_SPECIFIC] = {NFT_SOCKET_LOAD(NFT_SOCKET_WILDCARD), NFT_IS(0)},
    [SOCKET_WILDCARD] = {NFT_SOCKET_LOAD(NFT_SOCKET_WILDCARD), NFT_IS(1)},
    [TPROXY4] = {NFT_LOAD(NFT_REG_1, SKELETON_GATE4), GATE_PORT, NFT_TPROXY(NFPROTO_IPV4)},
    [TPROXY6] = {NFT_LOAD(NFT_REG_1, SKELETON_GATE6), GATE_PORT, NFT_TPROXY(NFPROTO_IPV6)},
    [CONNECTED4] = {NFT_LOAD(NFT_REG_1, SKELETON_GATE4), NO_PORT, NFT_TPROXY(NFPROTO_IPV4)},
    [CONNECTED6] = {NFT_LOAD(NFT_REG_1, SKELETON_GATE6), NO_PORT, NFT_TPROXY(NFPROTO_IPV6)},
    [RESET] = {NFT_REJECT(NFT_REJECT_TCP_RST, 0)},
    [REJECT] = {NFT_REJECT(NFT_REJECT_ICMPX_UNREACH, NFT_REJECT_ICMPX_ADMIN_PROHIBITED)},
    [ACCEPT] = {NFT_END(NF_ACCEPT)},
    [DROP] = {NFT_END(NF_DROP)},
    [RETURN] = {NFT_END(NFT_RETURN)},
    [TO_GATE] = {NFT_GO(NFT_GOTO, "togate")},
    [LISTENERS] = {NFT_GO(NFT_GOTO, "listeners")},
    [SOCKETS] = {NFT_GO(NFT_GOTO, "sockets")},
    [LOOPBACK] = {NFT_GO(NFT_GOTO, "loopback")},
    [NEAR] = {NFT_GO(NFT_GOTO, "near")},
    [FOREIGN] = {NFT_GO(NFT_GOTO, "foreign")},
    [JUMP_DNS] = {NFT_GO(NFT_JUMP, "dns")},
    [JUMP_OWN_DNS] = {NFT_GO(NFT_JUMP, "own_dns")},
};

// ---- the rules ----

struct skeleton_line {
    char chain[NFT_NAME_SIZE];
    uint8_t words[WORDS_MAX]; // enum word
};

static const char skeleton_chains[][NFT_NAME_SIZE] = {"listeners", "sockets", "togate", "dns",
                                                         "foreign",   "loopback", "near", "own_dns"};

static const struct skeleton_line skeleton_lines[] = {
    {"listeners", {IPV4, TCP, TPROXY4, ACCEPT}},
    {"listeners", {IPV6, TCP, TPROXY6, ACCEPT}},
    {"listeners", {IPV4, UDP, TPROXY4, ACCEPT}},
    {"listeners", {IPV6, UDP, TPROXY6, ACCEPT}},

    // While one processor makes a connection's socket of its request, another that has its first data finds neither for a
    // moment (until Linux 6.19), and the listener would answer with a reset: so it looks again first.
    // No SYN may come here: to one that follows an ended connection (TIME_WAIT) only a listener is an answer.
    {"sockets", {IPV4, TCP, CONNECTED4, ACCEPT}},
    {"sockets", {IPV4, TCP, CONNECTED4, ACCEPT}},
    {"sockets", {IPV6, TCP, CONNECTED6, ACCEPT}},
    {"sockets", {IPV6, TCP, CONNECTED6, ACCEPT}},
    {"sockets", {LISTENERS}},

    {"loopback", {TCP, TO_OPENED, TO_GATE}},
    {"loopback", {JUMP_DNS}},

    {"near", {TO_LOCAL, ACCEPT}},
    {"near", {REJECT}},

    {"output", {MARK_IS_INJECTED, ACCEPT}},
    {"output", {NOT_OUT_BY_LO, ACCEPT}},
    {"output", {TO_ITSELF4, ACCEPT}}, // among them what the gate sends: without a look at the routes
    {"output", {TO_ITSELF6, ACCEPT}},
    {"output", {LOOPBACK4, LOOPBACK}},
    {"output", {LOOPBACK6, LOOPBACK}},
    {"output", {TO_LOCAL_OR_MANY, NEAR}},
    {"output", {JUMBOGRAM, TCP, TO_GATE}}, // the kernel's own, of several segments; refused, each would be sent again in pieces
    {"output", {IPV6_EXTENDED, REJECT}}, // the gate is not shown them
    {"output", {TCP_OR_UDP, TO_GATE}},
    {"output", {ECHO4, TO_GATE}},
    {"output", {ECHO6, TO_GATE}},
    {"output", {REJECT}},

    {"own_dns", {TCP_OR_UDP, NOT_TO_DNS, RETURN}},
    {"own_dns", {SOCKET_SPECIFIC, ACCEPT}},
    {"own_dns", {SOCKET_WILDCARD, ACCEPT}},
    {"own_dns", {SYN_ONLY, LISTENERS}},
    {"own_dns", {SOCKETS}},

    {"prerouting", {NOT_IN_BY_LO, TO_LOCAL_OR_MANY, ACCEPT}},
    {"prerouting", {NOT_IN_BY_LO, ROUTED_TO_OTHERS, ACCEPT}},
    {"prerouting", {NOT_IN_BY_LO, FOREIGN}},
    {"prerouting", {MARK_IS_INJECTED, SYN_ONLY, LISTENERS}},
    {"prerouting", {MARK_IS_HELD_NOT, ACCEPT}},
    {"prerouting", {LOOPBACK4, JUMP_OWN_DNS}},
    {"prerouting", {LOOPBACK6, JUMP_OWN_DNS}},
    {"prerouting", {SYN_ONLY, DROP}},
    {"prerouting", {ECHO4, DROP}},
    {"prerouting", {ECHO6, DROP}},
    {"prerouting", {SOCKETS}},
};

static const struct skeleton_line skeleton_lines_with_gate[] = {
    {"togate", {MARK_HELD}},
    {"dns", {TCP_OR_UDP, TO_DNS, MARK_HELD, ACCEPT}},
    {"foreign", {SYN_ONLY, MARK_HELD, LISTENERS}},
    {"foreign", {TCP_OR_UDP, MARK_HELD, SOCKETS}},
    {"foreign", {DROP}},
};

// The kernel itself answers for port 53 of loopback.
static const struct skeleton_line skeleton_lines_without_gate[] = {
    {"togate", {TCP, RESET}},
    {"togate", {REJECT}},
    {"foreign", {DROP}},
};

static void skeleton_line_put(struct netlink *netlink, const char *table, const char *chain, const uint8_t words[WORDS_MAX]) {
    size_t rule = nft_rule(netlink, table, chain);
    for (size_t i = 0; i < WORDS_MAX && words[i] != NONE; i++) {
        const struct nft_expression *word = skeleton_words[words[i]];
        for (size_t j = 0; j < ARRAY_LENGTH(skeleton_words[0]) && word[j].name[0]; j++) nft_expression(netlink, &word[j]);
    }
    nft_rule_end(netlink, rule);
}

static void skeleton_lines_put(struct netlink *netlink, const struct skeleton_line *lines, size_t count) {
    for (size_t i = 0; i < count; i++) skeleton_line_put(netlink, TABLE, lines[i].chain, lines[i].words);
}

static void skeleton_sets_put(struct netlink *netlink, const struct ipc_ports *opened) {
    static const uint8_t plain[] = {IPPROTO_TCP, IPPROTO_UDP, IPPROTO_ICMPV6}; // the first two are "transports"
    static const uint32_t kinds[] = {RTN_LOCAL, RTN_BROADCAST, RTN_MULTICAST};
    enum { PROTOCOL_KEY = 12, SERVICE_KEY = 13, ADDRESS_TYPE_KEY = 38 };
    uint16_t ports[IPC_PORTS_MAX];
    for (uint32_t i = 0; i < opened->count; i++) ports[i] = htons(opened->ports[i]);
    const struct {
        const char *name;
        uint32_t key_type, key_len;
        const void *keys;
        size_t count;
    } sets[] = {
        {"opened", SERVICE_KEY, 2, ports, opened->count},
        {"transports", PROTOCOL_KEY, 1, plain, 2},
        {"plain", PROTOCOL_KEY, 1, plain, 3},
        {"local_or_many", ADDRESS_TYPE_KEY, 4, kinds, 3},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(sets); i++) {
        nft_set(netlink, TABLE, sets[i].name, sets[i].key_type, sets[i].key_len);
        nft_set_elements(netlink, TABLE, sets[i].name, sets[i].keys, sets[i].key_len, sets[i].count);
    }
}

static int skeleton_rules_put(struct netlink *netlink, const struct ipc_ports *opened, bool with_gate, bool again) {
    nft_begin(netlink);
    if (again) { // the sandbox may have taken it away
        nft_table(netlink, TABLE);
        nft_table_delete(netlink, TABLE);
    }
    nft_table(netlink, TABLE);
    for (size_t i = 0; i < ARRAY_LENGTH(skeleton_chains); i++) nft_chain(netlink, TABLE, skeleton_chains[i], NULL, 0, 0);
    nft_chain(netlink, TABLE, "output", "route", NF_INET_LOCAL_OUT, PRIORITY);
    nft_chain(netlink, TABLE, "prerouting", "filter", NF_INET_PRE_ROUTING, PRIORITY);
    skeleton_sets_put(netlink, opened);
    skeleton_lines_put(netlink, skeleton_lines, ARRAY_LENGTH(skeleton_lines));
    if (with_gate) skeleton_lines_put(netlink, skeleton_lines_with_gate, ARRAY_LENGTH(skeleton_lines_with_gate));
    else skeleton_lines_put(netlink, skeleton_lines_without_gate, ARRAY_LENGTH(skeleton_lines_without_gate));
    return nft_run(netlink);
}

// ---- what a kernel lacks ----

// What the rules above ask of the kernel, each tried by itself when the whole was refused, to name what is missing.
static const struct skeleton_probe {
    uint8_t words[WORDS_MAX];
    uint32_t hook;
    const char *type, *needs;
} skeleton_probes[] = {
    {{ACCEPT}, NF_INET_PRE_ROUTING, "filter", "nf_tables (CONFIG_NF_TABLES, CONFIG_NF_TABLES_INET; modprobe nf_tables)"},
    {{ACCEPT}, NF_INET_LOCAL_OUT, "route", "nf_tables route chains (CONFIG_NF_TABLES; modprobe nf_tables)"},
    {{IPV4, TCP, TPROXY4}, NF_INET_PRE_ROUTING, "filter", "nft tproxy (CONFIG_NFT_TPROXY; modprobe nft_tproxy)"},
    {{SOCKET_SPECIFIC, ACCEPT}, NF_INET_PRE_ROUTING, "filter", "nft socket (CONFIG_NFT_SOCKET, Linux 5.12; modprobe nft_socket)"},
    {{TO_LOCAL, ACCEPT}, NF_INET_PRE_ROUTING, "filter", "nft fib (CONFIG_NFT_FIB_INET; modprobe nft_fib_inet)"},
    {{REJECT}, NF_INET_LOCAL_OUT, "filter", "nft reject (CONFIG_NFT_REJECT_INET; modprobe nft_reject_inet)"},
};

// Whether the error is that of a kernel that does not know what it was asked for.
static bool skeleton_rules_unknown(int result) {
    return result == -ENOENT || result == -EOPNOTSUPP || result == -EPROTONOSUPPORT || result == -EAFNOSUPPORT || result == -EINVAL;
}

static const char *skeleton_rules_missing(struct netlink *netlink) {
    for (size_t i = 0; i < ARRAY_LENGTH(skeleton_probes); i++) {
        const struct skeleton_probe *probe = &skeleton_probes[i];
        nft_begin(netlink);
        nft_table(netlink, PROBE_TABLE);
        nft_chain(netlink, PROBE_TABLE, "c", probe->type, probe->hook, PRIORITY);
        skeleton_line_put(netlink, PROBE_TABLE, "c", probe->words);
        int result = nft_run(netlink);
        if (skeleton_rules_unknown(result)) return probe->needs;
        nft_begin(netlink);
        nft_table(netlink, PROBE_TABLE);
        nft_table_delete(netlink, PROBE_TABLE);
        nft_run(netlink);
    }
    return NULL;
}

// ---- use ----

int skeleton_rules_new(bool fresh, struct skeleton_rules **ret_rules, struct error *err) {
    struct skeleton_rules *rules = malloc(sizeof(*rules)); // not zeroed: most of it is never touched
    if (!rules) return error_set(err, -ENOMEM, "cannot write the nft rules: out of memory");
    rules->netlink = (struct netlink)NETLINK_INIT;
    int result = netlink_open(&rules->netlink, NETLINK_NETFILTER);
    if (result == 0) {
        rules->there = !fresh;
        *ret_rules = rules;
        return 0;
    }
    free(rules);
    if (skeleton_lacks(-result)) return error_set(err, -ENOTSUP, "nf_tables (CONFIG_NF_TABLES; modprobe nf_tables)");
    return error_set(err, result, "cannot open a netlink socket for nft: %s; allow this process to open netlink sockets",
                     strerror(-result));
}

int skeleton_rules_fd(const struct skeleton_rules *rules) { return rules ? rules->netlink.fd : -1; }

void skeleton_rules_free(struct skeleton_rules *rules) {
    if (!rules) return;
    netlink_close(&rules->netlink);
    free(rules);
}

int skeleton_rules_apply(struct skeleton_rules *rules, const struct ipc_ports *opened, bool with_gate, struct error *err) {
    int result = skeleton_rules_put(&rules->netlink, opened, with_gate, rules->there);
    rules->there = true;
    if (result == 0) return 0;
    const char *missing = skeleton_rules_missing(&rules->netlink);
    if (missing) return error_set(err, -ENOTSUP, "%s", missing);
    return error_set(err, -EIO, "cannot set the nft rules: %s; report this as a fault of penstock", strerror(-result));
}
