// SPDX-License-Identifier: Apache-2.0
// Numbers of nf_tables are in network order. A batch is applied whole or not at all; the kernel reports each message that it
// does not like, and we have it report the last good one, so that there is always an answer.
#include "net/nft.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <string.h>
#include <sys/socket.h>

#include "net/net.h"

#define NFT_DUMP_TRIES 8

static void nft_message(struct netlink *netlink, unsigned type, uint16_t flags, unsigned char family) {
    const struct nfgenmsg head = {.nfgen_family = family, .version = NFNETLINK_V0};
    netlink_message(netlink, (uint16_t)(NFNL_SUBSYS_NFTABLES << 8 | type), flags, &head, sizeof(head));
}

static void nft_batch(struct netlink *netlink, uint16_t type) {
    const struct nfgenmsg head = {.nfgen_family = AF_UNSPEC, .version = NFNETLINK_V0, .res_id = htons(NFNL_SUBSYS_NFTABLES)};
    netlink_message(netlink, type, 0, &head, sizeof(head));
}

void nft_begin(struct netlink *netlink) { nft_batch(netlink, NFNL_MSG_BATCH_BEGIN); }

int nft_run(struct netlink *netlink) {
    netlink_acknowledge(netlink);
    nft_batch(netlink, NFNL_MSG_BATCH_END);
    return netlink_run(netlink, NULL);
}

static void nft_number(struct netlink *netlink, uint16_t attribute, uint32_t value) {
    netlink_put_u32(netlink, attribute, htonl(value));
}

void nft_table(struct netlink *netlink, const char *table) {
    nft_message(netlink, NFT_MSG_NEWTABLE, NLM_F_CREATE, NFPROTO_INET);
    netlink_put_text(netlink, NFTA_TABLE_NAME, table);
}

void nft_table_delete(struct netlink *netlink, const char *table) {
    nft_message(netlink, NFT_MSG_DELTABLE, 0, NFPROTO_INET);
    netlink_put_text(netlink, NFTA_TABLE_NAME, table);
}

void nft_chain(struct netlink *netlink, const char *table, const char *chain, const char *type, uint32_t hook, int32_t priority) {
    nft_message(netlink, NFT_MSG_NEWCHAIN, NLM_F_CREATE, NFPROTO_INET);
    netlink_put_text(netlink, NFTA_CHAIN_TABLE, table);
    netlink_put_text(netlink, NFTA_CHAIN_NAME, chain);
    if (!type) return;
    size_t nest = netlink_nest(netlink, NFTA_CHAIN_HOOK);
    nft_number(netlink, NFTA_HOOK_HOOKNUM, hook);
    nft_number(netlink, NFTA_HOOK_PRIORITY, (uint32_t)priority);
    netlink_nest_end(netlink, nest);
    nft_number(netlink, NFTA_CHAIN_POLICY, NF_ACCEPT);
    netlink_put_text(netlink, NFTA_CHAIN_TYPE, type);
}

static void nft_new_set(struct netlink *netlink, const char *table, const char *set, uint32_t key_type, uint32_t key_len,
                        uint32_t flags) {
    nft_message(netlink, NFT_MSG_NEWSET, NLM_F_CREATE, NFPROTO_INET);
    netlink_put_text(netlink, NFTA_SET_TABLE, table);
    netlink_put_text(netlink, NFTA_SET_NAME, set);
    nft_number(netlink, NFTA_SET_KEY_TYPE, key_type);
    nft_number(netlink, NFTA_SET_KEY_LEN, key_len);
    nft_number(netlink, NFTA_SET_ID, netlink->sequence);
    if (flags) nft_number(netlink, NFTA_SET_FLAGS, flags);
}

void nft_set(struct netlink *netlink, const char *table, const char *set, uint32_t key_type, uint32_t key_len) {
    nft_new_set(netlink, table, set, key_type, key_len, 0);
}

void nft_set_of_ranges(struct netlink *netlink, const char *table, const char *set, uint32_t key_type, uint32_t key_len) {
    nft_new_set(netlink, table, set, key_type, key_len, NFT_SET_INTERVAL);
}

size_t nft_set_bounds(struct netlink *netlink, const char *table, const char *set) {
    nft_message(netlink, NFT_MSG_NEWSETELEM, NLM_F_CREATE, NFPROTO_INET);
    netlink_put_text(netlink, NFTA_SET_ELEM_LIST_TABLE, table);
    netlink_put_text(netlink, NFTA_SET_ELEM_LIST_SET, set);
    return netlink_nest(netlink, NFTA_SET_ELEM_LIST_ELEMENTS);
}

void nft_set_bound(struct netlink *netlink, const void *bytes, size_t key_len, bool end) {
    size_t element = netlink_nest(netlink, NFTA_LIST_ELEM);
    if (end) nft_number(netlink, NFTA_SET_ELEM_FLAGS, NFT_SET_ELEM_INTERVAL_END);
    size_t key = netlink_nest(netlink, NFTA_SET_ELEM_KEY);
    netlink_put(netlink, NFTA_DATA_VALUE, bytes, key_len);
    netlink_nest_end(netlink, key);
    netlink_nest_end(netlink, element);
}

struct nft_sought {
    const char *table, *chain;
    bool found;
};

static int nft_seek(const struct nlmsghdr *message, void *data) {
    struct nft_sought *sought = data;
    const char *table = "", *chain = "";
    NETLINK_FOR_ATTRIBUTES(attribute, message, sizeof(struct nfgenmsg)) {
        unsigned type = attribute->nla_type & NLA_TYPE_MASK;
        if (type == NFTA_CHAIN_TABLE) table = (const char *)attribute + NLA_HDRLEN;
        if (type == NFTA_CHAIN_NAME) chain = (const char *)attribute + NLA_HDRLEN;
    }
    sought->found |= strcmp(table, sought->table) == 0 && strcmp(chain, sought->chain) == 0;
    return 0;
}

int nft_has_chain(struct netlink *netlink, const char *table, const char *chain) {
    struct nft_sought sought = {.table = table, .chain = chain};
    int rc = -EINTR;
    for (int i = 0; i < NFT_DUMP_TRIES && rc == -EINTR; i++) {
        nft_message(netlink, NFT_MSG_GETCHAIN, NLM_F_DUMP, NFPROTO_INET);
        rc = netlink_dump(netlink, nft_seek, &sought);
    }
    return rc < 0 ? rc : sought.found;
}

void nft_set_elements(struct netlink *netlink, const char *table, const char *set, const void *keys, size_t key_len, size_t count) {
    if (count == 0) return;
    nft_message(netlink, NFT_MSG_NEWSETELEM, NLM_F_CREATE, NFPROTO_INET);
    netlink_put_text(netlink, NFTA_SET_ELEM_LIST_TABLE, table);
    netlink_put_text(netlink, NFTA_SET_ELEM_LIST_SET, set);
    size_t list = netlink_nest(netlink, NFTA_SET_ELEM_LIST_ELEMENTS);
    for (size_t i = 0; i < count; i++) {
        size_t element = netlink_nest(netlink, NFTA_LIST_ELEM);
        size_t key = netlink_nest(netlink, NFTA_SET_ELEM_KEY);
        netlink_put(netlink, NFTA_DATA_VALUE, (const char *)keys + i * key_len, key_len);
        netlink_nest_end(netlink, key);
        netlink_nest_end(netlink, element);
    }
    netlink_nest_end(netlink, list);
}

size_t nft_rule(struct netlink *netlink, const char *table, const char *chain) {
    nft_message(netlink, NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND, NFPROTO_INET);
    netlink_put_text(netlink, NFTA_RULE_TABLE, table);
    netlink_put_text(netlink, NFTA_RULE_CHAIN, chain);
    return netlink_nest(netlink, NFTA_RULE_EXPRESSIONS);
}

void nft_rule_end(struct netlink *netlink, size_t rule) { netlink_nest_end(netlink, rule); }

static void nft_data(struct netlink *netlink, uint16_t attribute, const void *bytes, size_t len) {
    size_t nest = netlink_nest(netlink, attribute);
    netlink_put(netlink, NFTA_DATA_VALUE, bytes, len);
    netlink_nest_end(netlink, nest);
}

static void nft_verdict(struct netlink *netlink, const struct nft_item *item) {
    size_t data = netlink_nest(netlink, item->attribute);
    size_t verdict = netlink_nest(netlink, NFTA_DATA_VERDICT);
    nft_number(netlink, NFTA_VERDICT_CODE, item->number);
    if (item->bytes[0]) netlink_put_text(netlink, NFTA_VERDICT_CHAIN, (const char *)item->bytes);
    netlink_nest_end(netlink, verdict);
    netlink_nest_end(netlink, data);
}

static void nft_item(struct netlink *netlink, const struct nft_item *item) {
    switch ((enum nft_kind)item->kind) {
    case NFT_NOTHING: return;
    case NFT_NUMBER: nft_number(netlink, item->attribute, item->number); return;
    case NFT_BYTE: netlink_put_u8(netlink, item->attribute, (uint8_t)item->number); return;
    case NFT_DATA: nft_data(netlink, item->attribute, item->bytes, item->len); return;
    case NFT_DATA32: nft_data(netlink, item->attribute, &item->number, sizeof(item->number)); return;
    case NFT_TEXT: netlink_put_text(netlink, item->attribute, (const char *)item->bytes); return;
    case NFT_VERDICT: nft_verdict(netlink, item); return;
    }
}

void nft_expression(struct netlink *netlink, const struct nft_expression *expression) {
    size_t element = netlink_nest(netlink, NFTA_LIST_ELEM);
    netlink_put_text(netlink, NFTA_EXPR_NAME, expression->name);
    size_t data = netlink_nest(netlink, NFTA_EXPR_DATA);
    for (size_t i = 0; i < sizeof(expression->items) / sizeof(expression->items[0]); i++) nft_item(netlink, &expression->items[i]);
    netlink_nest_end(netlink, data);
    netlink_nest_end(netlink, element);
}

int nft_flush(void) {
    struct netlink netlink = NETLINK_INIT;
    int result = netlink_open(&netlink, NETLINK_NETFILTER);
    if (result < 0) return result;
    nft_begin(&netlink);
    nft_message(&netlink, NFT_MSG_DELTABLE, 0, NFPROTO_UNSPEC);
    result = nft_run(&netlink);
    netlink_close(&netlink);
    return result;
}
