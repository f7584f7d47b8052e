// SPDX-License-Identifier: Apache-2.0
// Two tables take turns, NAME-a and NAME-b. The one that is not in force is filled first, which may take as many transactions
// as it has ranges; one last transaction gives it its rules and takes the other one away. A crash in between leaves a table
// without rules, which the next load or removal finds. Whoever empties the kernel's tables (a firewall that is started again)
// takes these too: that is heard of, and they are loaded again.
//
// The rules, in chain output, of the host's own packets: those of the gates' users go to `guard`, those of the resolvers' to
// `servers` and then to `guard`. Everybody else is done after two comparisons. `guard`: what is always allowed passes, then
// what is denied, or local, is refused at once.
#include "net/guard.h"

#include <errno.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/mem.h"
#include "net/nft.h"

#define BATCH 200 // ranges of one transaction
#define TYPE_IPV4 7 // what nft calls them
#define TYPE_IPV6 8
#define TABLE_SIZE (GUARD_NAME_SIZE + 2)
#define EXPRESSIONS_MAX 9

struct guard_family {
    uint8_t number, size, offset; // of the destination in the packet
    enum addr_family family;
    const char *denied, *allowed;
};

static const struct guard_family guard_families[] = {
    {NFPROTO_IPV4, 4, 16, ADDR_IPV4, "denied4", "allowed4"},
    {NFPROTO_IPV6, 16, 24, ADDR_IPV6, "denied6", "allowed6"},
};

// ---- sets ----

static int guard_fill(struct netlink *netlink, const char *table, const char *set, const struct guard_family *family,
                      const struct guard_ranges *ranges) {
    int rc = 0;
    size_t at = 0;
    while (rc == 0 && at < ranges->count) {
        size_t put = 0;
        nft_begin(netlink);
        size_t list = nft_set_bounds(netlink, table, set);
        for (; at < ranges->count && put < BATCH; at++) {
            const struct guard_range *range = &ranges->list[at];
            struct addr behind;
            if (range->first.family != family->family) continue;
            nft_set_bound(netlink, range->first.bytes, family->size, false);
            if (guard_next(&range->last, &behind)) nft_set_bound(netlink, behind.bytes, family->size, true);
            put++;
        }
        netlink_nest_end(netlink, list);
        if (put > 0) rc = nft_run(netlink);
        else netlink->used = 0;
    }
    return rc;
}

static int guard_new_table(struct netlink *netlink, const char *table) {
    nft_begin(netlink);
    nft_table(netlink, table); // of a crash
    nft_table_delete(netlink, table);
    nft_table(netlink, table);
    for (size_t i = 0; i < ARRAY_LENGTH(guard_families); i++) {
        const struct guard_family *family = &guard_families[i];
        uint32_t type = family->family == ADDR_IPV4 ? TYPE_IPV4 : TYPE_IPV6;
        nft_set_of_ranges(netlink, table, family->denied, type, family->size);
        nft_set_of_ranges(netlink, table, family->allowed, type, family->size);
    }
    return nft_run(netlink);
}

// ---- rules ----

static void guard_rule(struct netlink *netlink, const char *table, const char *chain,
                       const struct nft_expression expressions[EXPRESSIONS_MAX]) {
    size_t rule = nft_rule(netlink, table, chain);
    for (size_t i = 0; i < EXPRESSIONS_MAX && expressions[i].name[0]; i++) nft_expression(netlink, &expressions[i]);
    nft_rule_end(netlink, rule);
}

#define RULE(netlink, table, chain, ...) guard_rule(netlink, table, chain, (const struct nft_expression[EXPRESSIONS_MAX]){__VA_ARGS__})
#define OF_FAMILY(family) NFT_META_LOAD(NFT_META_NFPROTO), NFT_IS((family)->number)
#define DESTINATION(family) NFT_PAYLOAD(NFT_PAYLOAD_NETWORK_HEADER, (family)->offset, (family)->size)
#define OF_USERS(first) NFT_META_LOAD(NFT_META_SKUID), NFT_MASK32(~(GUARD_ROLE_USERS - 1)), NFT_IS32(first)
#define REFUSE_TCP NFT_META_LOAD(NFT_META_L4PROTO), NFT_IS(IPPROTO_TCP), NFT_REJECT(NFT_REJECT_TCP_RST, 0)
#define REFUSE NFT_REJECT(NFT_REJECT_ICMPX_UNREACH, NFT_REJECT_ICMPX_ADMIN_PROHIBITED)

// A set's name is text of an expression, which holds its own.
static struct nft_expression guard_lookup(const char *set) {
    struct nft_expression lookup = NFT_IN("");
    snprintf((char *)lookup.items[0].bytes, sizeof(lookup.items[0].bytes), "%s", set);
    return lookup;
}

static struct nft_expression guard_is(const void *bytes, size_t len) {
    struct nft_expression is = NFT_IS(0);
    memcpy(is.items[2].bytes, bytes, len);
    is.items[2].len = (uint8_t)len;
    return is;
}

static void guard_allow_servers(struct netlink *netlink, const char *table, const struct guard *guard) {
    static const uint8_t transports[] = {IPPROTO_UDP, IPPROTO_TCP};
    for (size_t i = 0; i < guard->server_count * 2; i++) {
        const struct ipc_resolver_server *server = &guard->servers[i / 2];
        const struct guard_family *family = &guard_families[server->address.family == ADDR_IPV6];
        RULE(netlink, table, "servers", OF_FAMILY(family), DESTINATION(family), guard_is(server->address.bytes, family->size),
             NFT_META_LOAD(NFT_META_L4PROTO), NFT_IS(transports[i % 2]), NFT_PAYLOAD(NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2),
             NFT_IS((uint8_t)(server->port >> 8), (uint8_t)server->port), NFT_END(NF_ACCEPT));
    }
}

static void guard_rules(struct netlink *netlink, const char *table, const struct guard *guard) {
    nft_chain(netlink, table, "servers", NULL, 0, 0);
    nft_chain(netlink, table, "refuse", NULL, 0, 0);
    nft_chain(netlink, table, "guard", NULL, 0, 0);
    nft_chain(netlink, table, "output", "filter", NF_INET_LOCAL_OUT, 0);
    RULE(netlink, table, "output", OF_USERS(guard->users), NFT_GO(NFT_GOTO, "guard"));
    RULE(netlink, table, "output", OF_USERS(guard->users + GUARD_ROLE_USERS), NFT_GO(NFT_GOTO, "servers"));
    guard_allow_servers(netlink, table, guard);
    RULE(netlink, table, "servers", NFT_GO(NFT_GOTO, "guard"));
    RULE(netlink, table, "refuse", REFUSE_TCP);
    RULE(netlink, table, "refuse", REFUSE);
    for (size_t i = 0; i < ARRAY_LENGTH(guard_families); i++) {
        const struct guard_family *family = &guard_families[i];
        RULE(netlink, table, "guard", OF_FAMILY(family), DESTINATION(family), guard_lookup(family->allowed), NFT_END(NF_ACCEPT));
        RULE(netlink, table, "guard", OF_FAMILY(family), DESTINATION(family), guard_lookup(family->denied),
             NFT_GO(NFT_GOTO, "refuse"));
    }
    if (guard->own)
        RULE(netlink, table, "guard", NFT_FIB_OF_DESTINATION(NFT_FIB_RESULT_ADDRTYPE), NFT_IS32(RTN_LOCAL),
             NFT_GO(NFT_GOTO, "refuse"));
}

// ---- load and remove ----

static void guard_table_name(char name[TABLE_SIZE], const char *guard, char turn) { snprintf(name, TABLE_SIZE, "%s-%c", guard, turn); }

static int guard_fail(int rc, struct error *err) {
    return error_set(err, rc, "the guardrails cannot be put into the kernel (nf_tables): %s; use a kernel with nf_tables, its "
                     "fib and its reject for inet, and give this process CAP_NET_ADMIN", strerror(-rc));
}

static int guard_fill_sets(struct netlink *netlink, const char *table, const struct guard *guard) {
    struct guard_ranges denied = {0}, allowed = {0};
    int rc = guard_denied(guard, &denied);
    if (rc == 0) rc = guard_allowed(guard, &allowed);
    for (size_t i = 0; rc == 0 && i < ARRAY_LENGTH(guard_families); i++) {
        const struct guard_family *family = &guard_families[i];
        rc = guard_fill(netlink, table, family->denied, family, &denied);
        if (rc == 0) rc = guard_fill(netlink, table, family->allowed, family, &allowed);
    }
    free(denied.list);
    free(allowed.list);
    return rc;
}

int guard_load(const struct guard *guard, struct error *err) {
    struct netlink netlink = NETLINK_INIT;
    char table[TABLE_SIZE], other[TABLE_SIZE];
    int rc = netlink_open(&netlink, NETLINK_NETFILTER);
    guard_table_name(table, guard->name, 'a');
    guard_table_name(other, guard->name, 'b');
    if (rc == 0) rc = nft_has_chain(&netlink, table, "output");
    if (rc > 0) {
        guard_table_name(table, guard->name, 'b');
        guard_table_name(other, guard->name, 'a');
    }
    if (rc >= 0) rc = guard_new_table(&netlink, table);
    if (rc == 0) rc = guard_fill_sets(&netlink, table, guard);
    if (rc == 0) {
        nft_begin(&netlink);
        guard_rules(&netlink, table, guard);
        nft_table(&netlink, other);
        nft_table_delete(&netlink, other);
        rc = nft_run(&netlink);
    }
    netlink_close(&netlink);
    return rc < 0 ? guard_fail(rc, err) : 0;
}

int guard_remove(const char *name, struct error *err) {
    struct netlink netlink = NETLINK_INIT;
    int rc = netlink_open(&netlink, NETLINK_NETFILTER);
    if (rc == 0) {
        nft_begin(&netlink);
        for (char turn = 'a'; turn <= 'b'; turn++) {
            char table[TABLE_SIZE];
            guard_table_name(table, name, turn);
            nft_table(&netlink, table);
            nft_table_delete(&netlink, table);
        }
        rc = nft_run(&netlink);
    }
    netlink_close(&netlink);
    return rc < 0 ? error_set(err, rc, "the guardrails cannot be taken out of the kernel (nf_tables): %s", strerror(-rc)) : 0;
}

// ---- what others do ----

int guard_watch(void) {
    struct sockaddr_nl address = {.nl_family = AF_NETLINK, .nl_groups = 1u << (NFNLGRP_NFTABLES - 1)};
    AUTO_CLOSE int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_NETFILTER);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0) return -errno;
    return TAKE_FD(fd);
}

static bool guard_takes(const struct nlmsghdr *message, const char *name) {
    static const uint8_t takes[] = {NFT_MSG_DELTABLE, NFT_MSG_DELCHAIN, NFT_MSG_DELRULE, NFT_MSG_DELSET, NFT_MSG_DELSETELEM};
    if (message->nlmsg_type >> 8 != NFNL_SUBSYS_NFTABLES || !memchr(takes, message->nlmsg_type & 0xff, sizeof(takes))) return false;
    NETLINK_FOR_ATTRIBUTES(attribute, message, sizeof(struct nfgenmsg)) {
        if ((attribute->nla_type & NLA_TYPE_MASK) != NFTA_TABLE_NAME) continue; // the same number in all of them
        return strncmp((const char *)attribute + NLA_HDRLEN, name, strnlen(name, attribute->nla_len - (size_t)NLA_HDRLEN)) == 0;
    }
    return false;
}

bool guard_is_lost(int fd, const char *name) {
    _Alignas(struct nlmsghdr) char bytes[16384];
    bool lost = false;
    ssize_t len;
    while ((len = recv(fd, bytes, sizeof(bytes), 0)) > 0 || errno == EINTR || errno == ENOBUFS) {
        lost |= len <= 0 && errno == ENOBUFS; // some were
        for (const struct nlmsghdr *message = (const struct nlmsghdr *)(const void *)bytes; len > 0 && NLMSG_OK(message, (size_t)len);
             message = NLMSG_NEXT(message, len))
            lost |= guard_takes(message, name);
    }
    return lost;
}
