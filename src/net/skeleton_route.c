// SPDX-License-Identifier: Apache-2.0
// Addresses, routes and routing rules on lo, by rtnetlink: a table of steps, each acknowledged by the kernel.
//
// With nft, in the order in which the kernel looks:
//   local             the namespace's own addresses
//   mark 1 or 2       table 100: everything is local, so it arrives at prerouting and is handed to the gate's sockets
//   main, no default  what the sandbox routed itself (a nested bridge)
//   UDP               table 101: out by lo with mtu 1500, as on a plain network, else programs send 64 KiB datagrams
//   main              default by lo, with the sandbox's address as source
//
// Without nft:
//   local, no default what is the sandbox's own in particular; multicast is refused
//   main, no default  what the sandbox routed itself
//   ICMP              refused: for the kernel every address is its own, so it would answer pings
//   local             everything else is the sandbox's own: a listener has it, or the kernel refuses it
// In table local, since the kernel answers only from addresses which that table calls its own.
#include <arpa/inet.h>
#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/fib_rules.h>
#include <linux/if_addr.h>
#include <linux/rtnetlink.h>
#include <net/if.h>

#include "base/mem.h"
#include "net/skeleton.h"

#define LO_INDEX 1 // the first interface of every network namespace
#define LO_PACKET_MAX (512 * 1024 - 64) // bytes of a TCP packet; what lo is made for, aligned
#ifndef IFLA_GSO_IPV4_MAX_SIZE
#define IFLA_GSO_IPV4_MAX_SIZE 63
#endif
enum { TABLE_LOCAL = 100, TABLE_UDP = 101 };

struct skeleton_step {
    const char *what;
    void (*build)(struct nlmsghdr *message, const struct skeleton_step *step, unsigned char family);
    const char *needs;     // kernel configuration
    unsigned char family;  // AF_UNSPEC: both families
    uint32_t table;
    uint32_t mark;         // rules
    uint32_t priority;     // rules
    unsigned char protocol; // rules
    bool suppress;         // rules: default routes do not count
    bool optional;         // older kernels refuse it, and it only helps
    uint32_t mtu;          // routes
    const char *prefix;    // routes
    unsigned char length;  // of the prefix
};

static void skeleton_put_address(struct nlmsghdr *message, uint16_t attribute, unsigned char family) {
    unsigned char bytes[16];
    inet_pton(family, family == AF_INET ? SKELETON_ADDRESS4 : SKELETON_ADDRESS6, bytes);
    mnl_attr_put(message, attribute, family == AF_INET ? 4 : 16, bytes);
}

static void skeleton_up(struct nlmsghdr *message, const struct skeleton_step *step, unsigned char family) {
    (void)step, (void)family;
    message->nlmsg_type = RTM_NEWLINK;
    message->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
    struct ifinfomsg *link = mnl_nlmsg_put_extra_header(message, sizeof(*link));
    link->ifi_index = LO_INDEX;
    link->ifi_flags = IFF_UP;
    link->ifi_change = IFF_UP;
}

// TCP over lo in packets as large as can be: each costs the rules, two looks at the routes and maybe a switch of processes.
static void skeleton_large(struct nlmsghdr *message, const struct skeleton_step *step, unsigned char family) {
    (void)step;
    message->nlmsg_type = RTM_NEWLINK;
    message->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
    struct ifinfomsg *link = mnl_nlmsg_put_extra_header(message, sizeof(*link));
    link->ifi_index = LO_INDEX;
    mnl_attr_put_u32(message, family == AF_INET ? IFLA_GSO_IPV4_MAX_SIZE : IFLA_GSO_MAX_SIZE, LO_PACKET_MAX);
}

static void skeleton_address(struct nlmsghdr *message, const struct skeleton_step *step, unsigned char family) {
    (void)step;
    message->nlmsg_type = RTM_NEWADDR;
    struct ifaddrmsg *address = mnl_nlmsg_put_extra_header(message, sizeof(*address));
    address->ifa_family = family;
    address->ifa_prefixlen = family == AF_INET ? 32 : 128;
    address->ifa_flags = family == AF_INET ? 0 : IFA_F_NODAD;
    address->ifa_index = LO_INDEX;
    skeleton_put_address(message, IFA_LOCAL, family);
    skeleton_put_address(message, IFA_ADDRESS, family);
}

static void skeleton_default(struct nlmsghdr *message, const struct skeleton_step *step, unsigned char family) {
    bool local = step->table == TABLE_LOCAL || step->table == RT_TABLE_LOCAL;
    message->nlmsg_type = RTM_NEWROUTE;
    struct rtmsg *route = mnl_nlmsg_put_extra_header(message, sizeof(*route));
    route->rtm_family = family;
    route->rtm_protocol = RTPROT_STATIC;
    route->rtm_table = (unsigned char)step->table;
    route->rtm_type = local ? RTN_LOCAL : RTN_UNICAST;
    if (family == AF_INET) route->rtm_scope = local ? RT_SCOPE_HOST : RT_SCOPE_LINK;
    mnl_attr_put_u32(message, RTA_OIF, LO_INDEX);
    if (step->table != TABLE_LOCAL) skeleton_put_address(message, RTA_PREFSRC, family);
    if (step->mtu) {
        struct nlattr *metrics = mnl_attr_nest_start(message, RTA_METRICS);
        mnl_attr_put_u32(message, RTAX_MTU, step->mtu);
        mnl_attr_nest_end(message, metrics);
    }
}

static void skeleton_prohibit(struct nlmsghdr *message, const struct skeleton_step *step, unsigned char family) {
    unsigned char bytes[16];
    message->nlmsg_type = RTM_NEWROUTE;
    struct rtmsg *route = mnl_nlmsg_put_extra_header(message, sizeof(*route));
    route->rtm_family = family;
    route->rtm_protocol = RTPROT_STATIC;
    route->rtm_table = (unsigned char)step->table;
    route->rtm_type = RTN_PROHIBIT;
    route->rtm_dst_len = step->length;
    inet_pton(family, step->prefix, bytes);
    mnl_attr_put(message, RTA_DST, family == AF_INET ? 4 : 16, bytes);
}

static void skeleton_rule(struct nlmsghdr *message, const struct skeleton_step *step, unsigned char family) {
    message->nlmsg_type = RTM_NEWRULE;
    struct fib_rule_hdr *rule = mnl_nlmsg_put_extra_header(message, sizeof(*rule));
    rule->family = family;
    rule->action = FR_ACT_TO_TBL;
    rule->table = (unsigned char)step->table;
    mnl_attr_put_u32(message, FRA_TABLE, step->table);
    mnl_attr_put_u32(message, FRA_PRIORITY, step->priority);
    if (step->mark) mnl_attr_put_u32(message, FRA_FWMARK, step->mark);
    if (step->protocol) mnl_attr_put_u8(message, FRA_IP_PROTO, step->protocol);
    if (step->suppress) mnl_attr_put_u32(message, FRA_SUPPRESS_PREFIXLEN, 0);
}

static void skeleton_rule_icmp(struct nlmsghdr *message, const struct skeleton_step *step, unsigned char family) {
    message->nlmsg_type = RTM_NEWRULE;
    struct fib_rule_hdr *rule = mnl_nlmsg_put_extra_header(message, sizeof(*rule));
    rule->family = family;
    rule->action = FR_ACT_PROHIBIT;
    mnl_attr_put_u32(message, FRA_PRIORITY, step->priority);
    mnl_attr_put_u8(message, FRA_IP_PROTO, family == AF_INET ? IPPROTO_ICMP : IPPROTO_ICMPV6);
}

// The rule that every namespace begins with.
static void skeleton_rule_delete(struct nlmsghdr *message, const struct skeleton_step *step, unsigned char family) {
    skeleton_rule(message, step, family);
    message->nlmsg_type = RTM_DELRULE;
    message->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
}

#define NEEDS_RULES "CONFIG_IP_MULTIPLE_TABLES and CONFIG_IPV6_MULTIPLE_TABLES"
#define NEEDS_PROTOCOL "Linux 4.17 or later"
static const struct skeleton_step skeleton_link_steps[] = {
    {.what = "allow large packets", .build = skeleton_large, .needs = "Linux 6.3 or later", .optional = true},
    {.what = "set lo up", .build = skeleton_up, .needs = "CONFIG_NET_NS", .family = AF_INET},
    {.what = "add the sandbox's address to lo", .build = skeleton_address, .needs = "CONFIG_IPV6, not turned off by ipv6.disable=1"},
};

static const struct skeleton_step skeleton_tproxy_steps[] = {
    {.what = "add the default route", .build = skeleton_default, .needs = "CONFIG_IPV6", .table = RT_TABLE_MAIN},
    {.what = "add the default route for UDP", .build = skeleton_default, .needs = NEEDS_RULES, .table = TABLE_UDP, .mtu = 1500},
    {.what = "add the route to the gate", .build = skeleton_default, .needs = NEEDS_RULES, .table = TABLE_LOCAL},
    {.what = "add the rule for held packets", .build = skeleton_rule, .needs = NEEDS_RULES, .table = TABLE_LOCAL,
     .mark = SKELETON_MARK_HELD, .priority = 100},
    {.what = "add the rule for injected packets", .build = skeleton_rule, .needs = NEEDS_RULES, .table = TABLE_LOCAL,
     .mark = SKELETON_MARK_INJECTED, .priority = 101},
    {.what = "add the rule for routes of the sandbox itself", .build = skeleton_rule, .needs = NEEDS_RULES,
     .table = RT_TABLE_MAIN, .priority = 102, .suppress = true},
    {.what = "add the rule for UDP", .build = skeleton_rule, .needs = NEEDS_PROTOCOL, .table = TABLE_UDP,
     .protocol = IPPROTO_UDP, .priority = 103},
};

static const struct skeleton_step skeleton_plain_steps[] = {
    {.what = "make every address the sandbox's own", .build = skeleton_default, .needs = "CONFIG_IPV6", .table = RT_TABLE_LOCAL},
    {.what = "refuse multicast", .build = skeleton_prohibit, .needs = "CONFIG_NET_NS", .family = AF_INET,
     .table = RT_TABLE_LOCAL, .prefix = "224.0.0.0", .length = 4},
    {.what = "refuse broadcast", .build = skeleton_prohibit, .needs = "CONFIG_NET_NS", .family = AF_INET,
     .table = RT_TABLE_LOCAL, .prefix = "255.255.255.255", .length = 32},
    {.what = "refuse multicast", .build = skeleton_prohibit, .needs = "CONFIG_IPV6", .family = AF_INET6,
     .table = RT_TABLE_LOCAL, .prefix = "ff00::", .length = 8},
    {.what = "add the rule for addresses of the sandbox itself", .build = skeleton_rule, .needs = NEEDS_RULES,
     .table = RT_TABLE_LOCAL, .priority = 1, .suppress = true},
    {.what = "add the rule for routes of the sandbox itself", .build = skeleton_rule, .needs = NEEDS_RULES,
     .table = RT_TABLE_MAIN, .priority = 2, .suppress = true},
    {.what = "add the rule for ICMP", .build = skeleton_rule_icmp, .needs = NEEDS_PROTOCOL, .priority = 3},
    {.what = "add the rule for all other addresses", .build = skeleton_rule, .needs = NEEDS_RULES,
     .table = RT_TABLE_LOCAL, .priority = 4},
    {.what = "delete the first rule", .build = skeleton_rule_delete, .needs = NEEDS_RULES, .table = RT_TABLE_LOCAL},
};

static int skeleton_step_run(struct mnl_socket *netlink, const struct skeleton_step *step, unsigned char family) {
    static uint32_t sequence;
    _Alignas(struct nlmsghdr) char buffer[4096];
    struct nlmsghdr *message = mnl_nlmsg_put_header(buffer);

    message->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
    message->nlmsg_seq = ++sequence;
    step->build(message, step, family);
    if (mnl_socket_sendto(netlink, message, message->nlmsg_len) < 0) return -errno;
    ssize_t got = mnl_socket_recvfrom(netlink, buffer, sizeof(buffer));
    if (got < 0) return -errno;
    return mnl_cb_run(buffer, (size_t)got, sequence, mnl_socket_get_portid(netlink), NULL, NULL) < 0 ? -errno : 0;
}

static int skeleton_steps_run(const struct skeleton_step *steps, size_t count, struct error *err) {
    struct mnl_socket *netlink = mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC);
    int result = netlink && mnl_socket_bind(netlink, 0, MNL_SOCKET_AUTOPID) == 0 ? 0 : -errno;
    if (result < 0)
        error_set(err, result, "cannot open an rtnetlink socket: %s; allow this process to open netlink sockets", strerror(-result));

    const unsigned char families[] = {AF_INET, AF_INET6};
    for (size_t i = 0; i < count * 2 && result == 0; i++) {
        const struct skeleton_step *step = &steps[i / 2];
        unsigned char family = families[i % 2];
        if (step->family != AF_UNSPEC && step->family != family) continue;
        result = skeleton_step_run(netlink, step, family);
        if (result < 0 && step->optional) result = 0;
        if (result < 0)
            error_set(err, result, "cannot %s (%s): %s; %s %s", step->what, family == AF_INET ? "IPv4" : "IPv6", strerror(-result),
                      result == -EPERM ? "allow capabilities in user namespaces (AppArmor: a profile with \"userns,\"); needs"
                                       : "use a kernel with",
                      step->needs);
    }
    if (netlink) mnl_socket_close(netlink);
    return result;
}

int skeleton_link(struct error *err) {
    return skeleton_steps_run(skeleton_link_steps, ARRAY_LENGTH(skeleton_link_steps), err);
}

int skeleton_route(enum ipc_skeleton skeleton, struct error *err) {
    if (skeleton == IPC_SKELETON_TPROXY)
        return skeleton_steps_run(skeleton_tproxy_steps, ARRAY_LENGTH(skeleton_tproxy_steps), err);
    return skeleton_steps_run(skeleton_plain_steps, ARRAY_LENGTH(skeleton_plain_steps), err);
}
