// SPDX-License-Identifier: Apache-2.0
// Addresses, routes and routing rules on lo, by rtnetlink: a table of steps, sent together, each acknowledged by the kernel.
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
#include <assert.h>
#include <errno.h>
#include <linux/fib_rules.h>
#include <linux/if_addr.h>
#include <linux/rtnetlink.h>
#include <net/if.h>

#include "base/mem.h"
#include "net/netlink.h"
#include "net/skeleton.h"

#define LO_INDEX 1 // the first interface of every network namespace
#define LO_PACKET_MAX (512 * 1024 - 64) // bytes of a TCP packet, as many as lo can take
#ifndef IFLA_GSO_IPV4_MAX_SIZE
#define IFLA_GSO_IPV4_MAX_SIZE 63
#endif
enum { TABLE_LOCAL = 100, TABLE_UDP = 101 };

#define SKELETON_STEPS_MAX 16 // of one table

struct skeleton_step {
    const char *what;
    void (*build)(struct netlink *netlink, const struct skeleton_step *step, unsigned char family);
    const char *needs;     // kernel configuration
    unsigned char family;  // AF_UNSPEC: both families
    uint32_t table;
    uint32_t mark;         // rules
    uint32_t priority;     // rules
    unsigned char protocol; // rules
    bool suppress;         // rules: default routes do not count
    bool optional;         // older kernels refuse it, and it only helps; after all others
    uint32_t mtu;          // routes
    const char *prefix;    // routes
    unsigned char length;  // of the prefix
};

#define CREATE (NLM_F_CREATE | NLM_F_EXCL)

static void skeleton_put_address(struct netlink *netlink, uint16_t attribute, unsigned char family, const char *address) {
    unsigned char bytes[16];
    inet_pton(family, address, bytes);
    netlink_put(netlink, attribute, bytes, family == AF_INET ? 4 : 16);
}

static const char *skeleton_own(unsigned char family) { return family == AF_INET ? SKELETON_ADDRESS4 : SKELETON_ADDRESS6; }

static void skeleton_up(struct netlink *netlink, const struct skeleton_step *step, unsigned char family) {
    (void)step, (void)family;
    const struct ifinfomsg link = {.ifi_index = LO_INDEX, .ifi_flags = IFF_UP, .ifi_change = IFF_UP};
    netlink_message(netlink, RTM_NEWLINK, 0, &link, sizeof(link));
}

// TCP over lo in packets as large as can be: each costs the rules, two looks at the routes and maybe a switch of processes.
static void skeleton_large(struct netlink *netlink, const struct skeleton_step *step, unsigned char family) {
    (void)step;
    const struct ifinfomsg link = {.ifi_index = LO_INDEX};
    netlink_message(netlink, RTM_NEWLINK, 0, &link, sizeof(link));
    netlink_put_u32(netlink, family == AF_INET ? IFLA_GSO_IPV4_MAX_SIZE : IFLA_GSO_MAX_SIZE, LO_PACKET_MAX);
}

static void skeleton_address(struct netlink *netlink, const struct skeleton_step *step, unsigned char family) {
    (void)step;
    const struct ifaddrmsg address = {.ifa_family = family, .ifa_prefixlen = family == AF_INET ? 32 : 128,
                                      .ifa_flags = family == AF_INET ? 0 : IFA_F_NODAD, .ifa_index = LO_INDEX};
    netlink_message(netlink, RTM_NEWADDR, CREATE, &address, sizeof(address));
    skeleton_put_address(netlink, IFA_LOCAL, family, skeleton_own(family));
    skeleton_put_address(netlink, IFA_ADDRESS, family, skeleton_own(family));
}

static void skeleton_default(struct netlink *netlink, const struct skeleton_step *step, unsigned char family) {
    bool local = step->table == TABLE_LOCAL || step->table == RT_TABLE_LOCAL;
    struct rtmsg route = {.rtm_family = family, .rtm_protocol = RTPROT_STATIC, .rtm_table = (unsigned char)step->table,
                          .rtm_type = local ? RTN_LOCAL : RTN_UNICAST};
    if (family == AF_INET) route.rtm_scope = local ? RT_SCOPE_HOST : RT_SCOPE_LINK;
    netlink_message(netlink, RTM_NEWROUTE, CREATE, &route, sizeof(route));
    netlink_put_u32(netlink, RTA_OIF, LO_INDEX);
    if (step->table != TABLE_LOCAL) skeleton_put_address(netlink, RTA_PREFSRC, family, skeleton_own(family));
    if (step->mtu) {
        size_t metrics = netlink_nest(netlink, RTA_METRICS);
        netlink_put_u32(netlink, RTAX_MTU, step->mtu);
        netlink_nest_end(netlink, metrics);
    }
}

static void skeleton_prohibit(struct netlink *netlink, const struct skeleton_step *step, unsigned char family) {
    const struct rtmsg route = {.rtm_family = family, .rtm_protocol = RTPROT_STATIC, .rtm_table = (unsigned char)step->table,
                                .rtm_type = RTN_PROHIBIT, .rtm_dst_len = step->length};
    netlink_message(netlink, RTM_NEWROUTE, CREATE, &route, sizeof(route));
    skeleton_put_address(netlink, RTA_DST, family, step->prefix);
}

static void skeleton_rule_message(struct netlink *netlink, uint16_t type, const struct skeleton_step *step, unsigned char family) {
    const struct fib_rule_hdr rule = {.family = family, .action = FR_ACT_TO_TBL, .table = (unsigned char)step->table};
    netlink_message(netlink, type, type == RTM_NEWRULE ? CREATE : 0, &rule, sizeof(rule));
    netlink_put_u32(netlink, FRA_TABLE, step->table);
    netlink_put_u32(netlink, FRA_PRIORITY, step->priority);
    if (step->mark) netlink_put_u32(netlink, FRA_FWMARK, step->mark);
    if (step->protocol) netlink_put_u8(netlink, FRA_IP_PROTO, step->protocol);
    if (step->suppress) netlink_put_u32(netlink, FRA_SUPPRESS_PREFIXLEN, 0);
}

static void skeleton_rule(struct netlink *netlink, const struct skeleton_step *step, unsigned char family) {
    skeleton_rule_message(netlink, RTM_NEWRULE, step, family);
}

static void skeleton_rule_icmp(struct netlink *netlink, const struct skeleton_step *step, unsigned char family) {
    const struct fib_rule_hdr rule = {.family = family, .action = FR_ACT_PROHIBIT};
    netlink_message(netlink, RTM_NEWRULE, CREATE, &rule, sizeof(rule));
    netlink_put_u32(netlink, FRA_PRIORITY, step->priority);
    netlink_put_u8(netlink, FRA_IP_PROTO, family == AF_INET ? IPPROTO_ICMP : IPPROTO_ICMPV6);
}

// The rule that every namespace begins with.
static void skeleton_rule_delete(struct netlink *netlink, const struct skeleton_step *step, unsigned char family) {
    skeleton_rule_message(netlink, RTM_DELRULE, step, family);
}

#define NEEDS_RULES "CONFIG_IP_MULTIPLE_TABLES and CONFIG_IPV6_MULTIPLE_TABLES"
#define NEEDS_PROTOCOL "Linux 4.17 or later"
static const struct skeleton_step skeleton_link_steps[] = {
    {.what = "set lo up", .build = skeleton_up, .needs = "CONFIG_NET_NS", .family = AF_INET},
    {.what = "add the sandbox's address to lo", .build = skeleton_address, .needs = "CONFIG_IPV6, not turned off by ipv6.disable=1"},
    {.what = "allow large packets", .build = skeleton_large, .optional = true},
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

static_assert(ARRAY_LENGTH(skeleton_tproxy_steps) <= SKELETON_STEPS_MAX, "raise it");

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

struct skeleton_sent {
    const struct skeleton_step *step;
    unsigned char family;
};

static_assert(ARRAY_LENGTH(skeleton_plain_steps) <= SKELETON_STEPS_MAX, "raise it");

// One message a step and family, in order; ret_sent has what each is about.
static void skeleton_steps_put(struct netlink *netlink, const struct skeleton_step *steps, size_t count,
                               struct skeleton_sent *ret_sent) {
    static const unsigned char families[] = {AF_INET, AF_INET6};
    for (size_t i = 0; i < count * 2; i++) {
        const struct skeleton_step *step = &steps[i / 2];
        unsigned char family = families[i % 2];
        if (step->family != AF_UNSPEC && step->family != family) continue;
        step->build(netlink, step, family);
        *ret_sent++ = (struct skeleton_sent){step, family};
    }
}

static int skeleton_steps_run(const struct skeleton_step *steps, size_t count, struct error *err) {
    struct skeleton_sent sent[2 * SKELETON_STEPS_MAX];
    struct netlink netlink = NETLINK_INIT;
    int result = netlink_open(&netlink, NETLINK_ROUTE);
    if (result < 0)
        return error_set(err, result, "cannot open an rtnetlink socket: %s; allow this process to open netlink sockets", strerror(-result));

    uint32_t first = netlink.sequence + 1, failed = first;
    skeleton_steps_put(&netlink, steps, count, sent);
    netlink_acknowledge(&netlink);
    result = netlink_run(&netlink, &failed);
    netlink_close(&netlink);
    const struct skeleton_sent *at = &sent[failed - first];
    if (result == 0 || at->step->optional) return 0;
    return error_set(err, result, "cannot %s (%s): %s; %s %s", at->step->what, at->family == AF_INET ? "IPv4" : "IPv6",
                     strerror(-result),
                     result == -EPERM ? "allow capabilities in user namespaces (AppArmor: a profile with \"userns,\"); needs"
                                      : "use a kernel with",
                     at->step->needs);
}

int skeleton_link(struct error *err) {
    return skeleton_steps_run(skeleton_link_steps, ARRAY_LENGTH(skeleton_link_steps), err);
}

int skeleton_route(enum ipc_skeleton skeleton, struct error *err) {
    if (skeleton == IPC_SKELETON_TPROXY)
        return skeleton_steps_run(skeleton_tproxy_steps, ARRAY_LENGTH(skeleton_tproxy_steps), err);
    return skeleton_steps_run(skeleton_plain_steps, ARRAY_LENGTH(skeleton_plain_steps), err);
}
