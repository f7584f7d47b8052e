// SPDX-License-Identifier: Apache-2.0
// The nft rules of a sandbox's namespace: table `inet penstock`, written as text and put in place whole by libnftables.
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
//
// Protocols are numbers, not names: /etc/protocols is often missing, and the isolated keeper cannot read it.
#include <errno.h>
#include <linux/netlink.h>
#include <nftables/libnftables.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "base/library.h"
#include "base/mem.h"
#include "net/skeleton.h"

struct skeleton_rules {
    struct nft_ctx *nft;
};

#define NFT_CALLS(X) \
    X(nft_ctx_new) X(nft_ctx_free) X(nft_ctx_buffer_output) X(nft_ctx_buffer_error) X(nft_ctx_get_error_buffer) \
    X(nft_run_cmd_from_buffer)
#define NFT_ROW(name) LIBRARY_ROW(struct nft, name)
static struct nft { NFT_CALLS(LIBRARY_MEMBER) } nft;
static const struct library_call nft_calls[] = {NFT_CALLS(NFT_ROW)};

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#define GATE_PORT TEXT(SKELETON_GATE_PORT)
#define TCP "meta l4proto 6 "
#define UDP "meta l4proto 17 "
#define TCP_OR_UDP "meta l4proto { 6, 17 } "
#define IPV4 "meta nfproto 2 "
#define IPV6 "meta nfproto 10 "
#define SYN_ONLY "tcp flags & (fin|syn|rst|ack) == syn "

static const char skeleton_chains_with_gate[] =
    " chain togate {\n"
    "  meta mark set 1\n"
    " }\n"
    " chain dns {\n"
    "  " TCP_OR_UDP "th dport 53 meta mark set 1 accept\n"
    " }\n"
    " chain foreign {\n"
    "  " TCP_OR_UDP "meta mark set 1 goto listeners\n"
    "  drop\n"
    " }\n";

// The kernel itself answers for port 53 of loopback.
static const char skeleton_chains_without_gate[] =
    " chain togate {\n"
    "  " TCP "reject with tcp reset\n"
    "  reject with icmpx admin-prohibited\n"
    " }\n"
    " chain dns {\n"
    " }\n"
    " chain foreign {\n"
    "  drop\n"
    " }\n";

static const char skeleton_chains[] =
    " chain listeners {\n"
    "  " IPV4 TCP "tproxy ip to " SKELETON_GATE4 ":" GATE_PORT " accept\n"
    "  " IPV6 TCP "tproxy ip6 to [" SKELETON_GATE6 "]:" GATE_PORT " accept\n"
    "  " IPV4 UDP "tproxy ip to " SKELETON_GATE4 ":" GATE_PORT " accept\n"
    "  " IPV6 UDP "tproxy ip6 to [" SKELETON_GATE6 "]:" GATE_PORT " accept\n"
    " }\n"
    " chain loopback {\n"
    "  " TCP "tcp dport @opened goto togate\n"
    "  jump dns\n"
    " }\n"
    " chain refuse {\n"
    "  reject with icmpx admin-prohibited\n"
    " }\n"
    " chain output {\n"
    "  type route hook output priority mangle; policy accept;\n"
    "  meta mark 2 accept\n"
    "  oifname != \"lo\" accept\n"
    "  ip daddr " SKELETON_ADDRESS4 " accept\n" // the gate's own answers, before anything that costs a look at the routes
    "  ip6 daddr " SKELETON_ADDRESS6 " accept\n"
    "  ip daddr 127.0.0.0/8 goto loopback\n"
    "  ip6 daddr ::1 goto loopback\n"
    "  fib daddr type vmap { local : accept, broadcast : goto refuse, multicast : goto refuse }\n"
    "  ip6 nexthdr 0 hbh nexthdr 6 meta length > 65575 goto togate\n" // a jumbogram: the kernel's own, of several TCP segments
    "  meta nfproto ipv6 ip6 nexthdr != { tcp, udp, icmpv6 } reject with icmpx admin-prohibited\n" // the gate is not shown them
    "  " TCP_OR_UDP "goto togate\n"
    "  icmp type echo-request goto togate\n"
    "  icmpv6 type echo-request goto togate\n"
    "  reject with icmpx admin-prohibited\n"
    " }\n"
    " chain own_dns {\n"
    "  " TCP_OR_UDP "th dport != 53 return\n"
    "  socket wildcard 0 accept\n"
    "  socket wildcard 1 accept\n"
    "  goto listeners\n"
    " }\n"
    " chain prerouting {\n"
    "  type filter hook prerouting priority mangle; policy accept;\n"
    "  iifname != \"lo\" fib daddr type { local, broadcast, multicast } accept\n"
    "  iifname != \"lo\" fib daddr oifname != \"lo\" accept\n"
    "  iifname != \"lo\" goto foreign\n"
    "  meta mark 2 " SYN_ONLY "goto listeners\n"
    "  meta mark != 1 accept\n"
    "  ip daddr 127.0.0.0/8 jump own_dns\n"
    "  ip6 daddr ::1 jump own_dns\n"
    "  " SYN_ONLY "drop\n"
    "  icmp type echo-request drop\n"
    "  icmpv6 type echo-request drop\n"
    "  goto listeners\n"
    " }\n";

// What the rules above ask of the kernel, each tried by itself when the whole was refused, to name what is missing.
struct skeleton_probe {
    const char *rule, *hook, *needs;
};
static const struct skeleton_probe skeleton_probes[] = {
    {"accept", "filter hook prerouting", "nf_tables (CONFIG_NF_TABLES, CONFIG_NF_TABLES_INET; modprobe nf_tables)"},
    {"accept", "route hook output", "nf_tables route chains (CONFIG_NF_TABLES; modprobe nf_tables)"},
    {IPV4 TCP "tproxy ip to " SKELETON_GATE4 ":1", "filter hook prerouting", "nft tproxy (CONFIG_NFT_TPROXY; modprobe nft_tproxy)"},
    {"socket wildcard 0 accept", "filter hook prerouting", "nft socket (CONFIG_NFT_SOCKET, Linux 5.12; modprobe nft_socket)"},
    {"fib daddr type local accept", "filter hook prerouting", "nft fib (CONFIG_NFT_FIB_INET; modprobe nft_fib_inet)"},
    {"reject with icmpx admin-prohibited", "filter hook output", "nft reject (CONFIG_NFT_REJECT_INET; modprobe nft_reject_inet)"},
};

// One transaction. On failure ret_line (may be NULL) has the first line of libnftables' words.
static int skeleton_rules_run(struct skeleton_rules *rules, const char *text, char *ret_line, size_t size) {
    if (nft.nft_run_cmd_from_buffer(rules->nft, text) == 0) return 0;
    const char *words = nft.nft_ctx_get_error_buffer(rules->nft);
    if (ret_line) snprintf(ret_line, size, "%.*s", (int)strcspn(words ? words : "", "\n"), words ? words : "");
    return -ENOTSUP;
}

// Whether libnftables' words are those of a kernel that does not know what it was asked for.
static bool skeleton_rules_unknown(const char *line) {
    static const int errors[] = {ENOENT, EOPNOTSUPP, EPROTONOSUPPORT, EAFNOSUPPORT, EINVAL};
    for (size_t i = 0; i < ARRAY_LENGTH(errors); i++)
        if (strstr(line, strerror(errors[i]))) return true;
    return false;
}

static const char *skeleton_rules_missing(struct skeleton_rules *rules) {
    for (size_t i = 0; i < ARRAY_LENGTH(skeleton_probes); i++) {
        const struct skeleton_probe *probe = &skeleton_probes[i];
        char text[512], line[256] = "";
        snprintf(text, sizeof(text), "table inet penstock_probe { chain c { type %s priority mangle; %s\n } }\n", probe->hook, probe->rule);
        int result = skeleton_rules_run(rules, text, line, sizeof(line));
        skeleton_rules_run(rules, "add table inet penstock_probe; delete table inet penstock_probe", NULL, 0);
        if (result < 0 && skeleton_rules_unknown(line)) return probe->needs;
    }
    return NULL;
}

// libnftables ends the process where this socket cannot be made.
static int skeleton_rules_netlink(struct error *err) {
    AUTO_CLOSE int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);
    int result = fd < 0 ? -errno : 0;
    if (result == 0) return 0;
    if (skeleton_lacks(-result)) return error_set(err, -ENOTSUP, "nf_tables (CONFIG_NF_TABLES; modprobe nf_tables)");
    return error_set(err, result, "cannot open a netlink socket for nft: %s; allow this process to open netlink sockets",
                     strerror(-result));
}

int skeleton_rules_new(struct skeleton_rules **ret_rules, struct error *err) {
    int result = skeleton_rules_netlink(err);
    if (result == 0) result = library_load("libnftables.so.1", nft_calls, ARRAY_LENGTH(nft_calls), &nft, err);
    if (result < 0) return result;
    struct skeleton_rules *rules = NEW(struct skeleton_rules);
    if (rules) rules->nft = nft.nft_ctx_new(NFT_CTX_DEFAULT);
    if (!rules || !rules->nft || nft.nft_ctx_buffer_error(rules->nft) != 0 || nft.nft_ctx_buffer_output(rules->nft) != 0) {
        skeleton_rules_free(rules);
        return error_set(err, -ENOMEM, "cannot start libnftables: out of memory or descriptors; raise the limit (ulimit -n)");
    }
    *ret_rules = rules;
    return 0;
}

void skeleton_rules_free(struct skeleton_rules *rules) {
    if (!rules) return;
    if (rules->nft) nft.nft_ctx_free(rules->nft);
    free(rules);
}

static void skeleton_rules_text(struct buf *text, const struct ipc_ports *opened, bool with_gate) {
    buf_printf(text, "add table inet penstock\ndelete table inet penstock\ntable inet penstock {\n set opened {\n  type inet_service\n");
    for (uint32_t i = 0; i < opened->count; i++)
        buf_printf(text, "%s %u", i == 0 ? "  elements = {" : ",", opened->ports[i]);
    buf_printf(text, "%s }\n%s%s}\n", opened->count ? " }\n" : "", skeleton_chains,
               with_gate ? skeleton_chains_with_gate : skeleton_chains_without_gate);
}

int skeleton_rules_apply(struct skeleton_rules *rules, const struct ipc_ports *opened, bool with_gate, struct error *err) {
    struct buf text = BUF_INIT;
    char line[256] = "";

    skeleton_rules_text(&text, opened, with_gate);
    char *commands = buf_take(&text);
    if (!commands) return error_set(err, -ENOMEM, "cannot write the nft rules: out of memory");
    int result = skeleton_rules_run(rules, commands, line, sizeof(line));
    free(commands);
    if (result == 0) return 0;
    const char *missing = skeleton_rules_missing(rules);
    if (missing) return error_set(err, -ENOTSUP, "%s", missing);
    return error_set(err, -EIO, "cannot set the nft rules: %s; report this as a fault of penstock", line);
}
