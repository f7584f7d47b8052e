// SPDX-License-Identifier: Apache-2.0
// nf_tables without a library: batches of netlink messages, and expressions as constants. An expression works on register 1.
//
// libnftables is a compiler with hash tables for every word of its language; it took a quarter of the time of a sandbox's
// start. Our rules are fixed, so they are written down in what it would have made of them ("nft --debug=netlink").
#pragma once

#include <netinet/in.h> // before linux/netfilter.h, which has the same names
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>

#include "net/netlink.h"

#define NFT_NAME_SIZE 16 // of tables, chains and sets that we make, with NUL

enum nft_kind { NFT_NOTHING, NFT_NUMBER, NFT_BYTE, NFT_DATA, NFT_DATA32, NFT_TEXT, NFT_VERDICT };

struct nft_item {
    uint8_t kind; // enum nft_kind
    uint8_t attribute;
    uint8_t len;     // of DATA
    uint32_t number; // NUMBER, BYTE, DATA32 (in host order); code of VERDICT
    uint8_t bytes[NFT_NAME_SIZE]; // DATA; TEXT; chain of VERDICT
};

struct nft_expression {
    char name[12]; // "" is none
    struct nft_item items[5];
};

#define NFT_ITEM_NUMBER(at, value) {.kind = NFT_NUMBER, .attribute = (at), .number = (uint32_t)(value)}
#define NFT_ITEM_BYTE(at, value) {.kind = NFT_BYTE, .attribute = (at), .number = (value)}
#define NFT_ITEM_DATA(at, ...) {.kind = NFT_DATA, .attribute = (at), .len = sizeof((const uint8_t[]){__VA_ARGS__}), .bytes = {__VA_ARGS__}}
#define NFT_ITEM_DATA32(at, value) {.kind = NFT_DATA32, .attribute = (at), .number = (value)}
#define NFT_ITEM_TEXT(at, text) {.kind = NFT_TEXT, .attribute = (at), .bytes = text}

#define NFT_META_LOAD(key) {"meta", {NFT_ITEM_NUMBER(NFTA_META_DREG, NFT_REG_1), NFT_ITEM_NUMBER(NFTA_META_KEY, key)}}
#define NFT_META_STORE(key) {"meta", {NFT_ITEM_NUMBER(NFTA_META_KEY, key), NFT_ITEM_NUMBER(NFTA_META_SREG, NFT_REG_1)}}
#define NFT_COMPARE_(op, item) {"cmp", {NFT_ITEM_NUMBER(NFTA_CMP_SREG, NFT_REG_1), NFT_ITEM_NUMBER(NFTA_CMP_OP, op), item}}
#define NFT_IS(...) NFT_COMPARE_(NFT_CMP_EQ, NFT_ITEM_DATA(NFTA_CMP_DATA, __VA_ARGS__))
#define NFT_IS_NOT(...) NFT_COMPARE_(NFT_CMP_NEQ, NFT_ITEM_DATA(NFTA_CMP_DATA, __VA_ARGS__))
#define NFT_IS32(value) NFT_COMPARE_(NFT_CMP_EQ, NFT_ITEM_DATA32(NFTA_CMP_DATA, value))
#define NFT_IS_NOT32(value) NFT_COMPARE_(NFT_CMP_NEQ, NFT_ITEM_DATA32(NFTA_CMP_DATA, value))
#define NFT_LOOKUP_(set, flags) \
    {"lookup", {NFT_ITEM_TEXT(NFTA_LOOKUP_SET, set), NFT_ITEM_NUMBER(NFTA_LOOKUP_SREG, NFT_REG_1), NFT_ITEM_NUMBER(NFTA_LOOKUP_FLAGS, flags)}}
#define NFT_IN(set) NFT_LOOKUP_(set, 0)
#define NFT_NOT_IN(set) NFT_LOOKUP_(set, NFT_LOOKUP_F_INV)
#define NFT_PAYLOAD(base, offset, len) \
    {"payload", {NFT_ITEM_NUMBER(NFTA_PAYLOAD_DREG, NFT_REG_1), NFT_ITEM_NUMBER(NFTA_PAYLOAD_BASE, base), \
                 NFT_ITEM_NUMBER(NFTA_PAYLOAD_OFFSET, offset), NFT_ITEM_NUMBER(NFTA_PAYLOAD_LEN, len)}}
#define NFT_MASK8(mask) \
    {"bitwise", {NFT_ITEM_NUMBER(NFTA_BITWISE_SREG, NFT_REG_1), NFT_ITEM_NUMBER(NFTA_BITWISE_DREG, NFT_REG_1), \
                 NFT_ITEM_NUMBER(NFTA_BITWISE_LEN, 1), NFT_ITEM_DATA(NFTA_BITWISE_MASK, mask), NFT_ITEM_DATA(NFTA_BITWISE_XOR, 0)}}
#define NFT_MASK32(mask) \
    {"bitwise", {NFT_ITEM_NUMBER(NFTA_BITWISE_SREG, NFT_REG_1), NFT_ITEM_NUMBER(NFTA_BITWISE_DREG, NFT_REG_1), \
                 NFT_ITEM_NUMBER(NFTA_BITWISE_LEN, 4), NFT_ITEM_DATA32(NFTA_BITWISE_MASK, mask), NFT_ITEM_DATA32(NFTA_BITWISE_XOR, 0)}}
#define NFT_LOAD_(reg, item) {"immediate", {NFT_ITEM_NUMBER(NFTA_IMMEDIATE_DREG, reg), item}}
#define NFT_LOAD(reg, ...) NFT_LOAD_(reg, NFT_ITEM_DATA(NFTA_IMMEDIATE_DATA, __VA_ARGS__))
#define NFT_LOAD32(reg, value) NFT_LOAD_(reg, NFT_ITEM_DATA32(NFTA_IMMEDIATE_DATA, value))
#define NFT_VERDICT_(code, name) \
    {"immediate", {NFT_ITEM_NUMBER(NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT), \
                   {.kind = NFT_VERDICT, .attribute = NFTA_IMMEDIATE_DATA, .number = (uint32_t)(code), .bytes = name}}}
#define NFT_END(code) NFT_VERDICT_(code, "")
#define NFT_GO(code, chain) NFT_VERDICT_(code, chain)
#define NFT_FIB_OF_DESTINATION(result) \
    {"fib", {NFT_ITEM_NUMBER(NFTA_FIB_DREG, NFT_REG_1), NFT_ITEM_NUMBER(NFTA_FIB_RESULT, result), \
             NFT_ITEM_NUMBER(NFTA_FIB_FLAGS, NFTA_FIB_F_DADDR)}}
#define NFT_SOCKET_LOAD(key) {"socket", {NFT_ITEM_NUMBER(NFTA_SOCKET_KEY, key), NFT_ITEM_NUMBER(NFTA_SOCKET_DREG, NFT_REG_1)}}
#define NFT_REJECT(type, code) {"reject", {NFT_ITEM_NUMBER(NFTA_REJECT_TYPE, type), NFT_ITEM_BYTE(NFTA_REJECT_ICMP_CODE, code)}}
#define NFT_TPROXY(family) \
    {"tproxy", {NFT_ITEM_NUMBER(NFTA_TPROXY_FAMILY, family), NFT_ITEM_NUMBER(NFTA_TPROXY_REG_ADDR, NFT_REG_1), \
                NFT_ITEM_NUMBER(NFTA_TPROXY_REG_PORT, NFT_REG_2)}}

// One transaction, of what is put between begin and run. 0, or the first -errno.
void nft_begin(struct netlink *netlink);
int nft_run(struct netlink *netlink);

void nft_table(struct netlink *netlink, const char *table);        // of family inet; there already is as good
void nft_table_delete(struct netlink *netlink, const char *table); // it has to be there
// type NULL: not at a hook.
void nft_chain(struct netlink *netlink, const char *table, const char *chain, const char *type, uint32_t hook, int32_t priority);
// key_type is what nft calls it when it lists the set; it says nothing to the kernel.
void nft_set(struct netlink *netlink, const char *table, const char *set, uint32_t key_type, uint32_t key_len);
void nft_set_elements(struct netlink *netlink, const char *table, const char *set, const void *keys, size_t key_len, size_t count);
// A set of ranges that do not overlap: each is its first key, and as an end the key behind its last, unless that is the last of all.
void nft_set_of_ranges(struct netlink *netlink, const char *table, const char *set, uint32_t key_type, uint32_t key_len);
size_t nft_set_bounds(struct netlink *netlink, const char *table, const char *set); // bounds follow, up to netlink_nest_end
void nft_set_bound(struct netlink *netlink, const void *key, size_t key_len, bool end);
// 1, 0, or -errno. Not within a transaction.
int nft_has_chain(struct netlink *netlink, const char *table, const char *chain);
size_t nft_rule(struct netlink *netlink, const char *table, const char *chain); // expressions follow, up to
void nft_rule_end(struct netlink *netlink, size_t rule);
void nft_expression(struct netlink *netlink, const struct nft_expression *expression);
