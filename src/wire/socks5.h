// SPDX-License-Identifier: Apache-2.0
// SOCKS5 (RFC 1928) with user name and password (RFC 1929), the server's side: what a client sends, and the answers to it.
// A client sends a greeting, perhaps credentials, then one request; each may have the next one or data behind it.
#pragma once

#include <stdbool.h>

#include "base/addr.h"
#include "wire/wire.h"

enum socks5_method { SOCKS5_NO_AUTHENTICATION = 0, SOCKS5_PASSWORD = 2, SOCKS5_NO_METHOD = 0xff };
enum socks5_command { SOCKS5_CONNECT = 1, SOCKS5_BIND = 2, SOCKS5_UDP_ASSOCIATE = 3 };
enum socks5_code {
    SOCKS5_SUCCEEDED, SOCKS5_FAILED, SOCKS5_NOT_ALLOWED, SOCKS5_NETWORK_UNREACHABLE, SOCKS5_HOST_UNREACHABLE,
    SOCKS5_REFUSED, SOCKS5_TTL_EXPIRED, SOCKS5_COMMAND_UNKNOWN, SOCKS5_ADDRESS_UNKNOWN,
};

struct socks5_request {
    uint8_t command;        // as sent
    bool unknown_address;   // a type of address that RFC 1928 does not have; the rest is not set
    struct wire_slice name; // as sent, not canonical; len 0 if an address was sent
    struct addr address;    // if name.len is 0
    uint16_t port;
};

// bytes: what the client sent from the start of the message on. On OK *ret_used is its length.
// The method to use: none if the client offers that, else the password; SOCKS5_NO_METHOD if it offers neither.
enum wire_result socks5_greeting(const uint8_t *bytes, size_t len, enum socks5_method *ret_method, size_t *ret_used);
// User name and password, which mean nothing here. The slices are not kept.
enum wire_result socks5_credentials(const uint8_t *bytes, size_t len, size_t *ret_used);
enum wire_result socks5_request(const uint8_t *bytes, size_t len, struct socks5_request *ret_request, size_t *ret_used);

// Answers: to the greeting, to credentials (accepted), to the request. No address of the gate is told.
#define SOCKS5_CHOICE_SIZE 2
void socks5_choice_write(enum socks5_method method, uint8_t ret_bytes[SOCKS5_CHOICE_SIZE]);
#define SOCKS5_WELCOME_SIZE 2
void socks5_welcome_write(uint8_t ret_bytes[SOCKS5_WELCOME_SIZE]);
#define SOCKS5_REPLY_SIZE 10
void socks5_reply_write(enum socks5_code code, uint8_t ret_bytes[SOCKS5_REPLY_SIZE]);

// The refusal that a client of SOCKS4 understands, whose first byte is a 4.
#define SOCKS4_REJECTION_SIZE 8
void socks4_rejection_write(uint8_t ret_bytes[SOCKS4_REJECTION_SIZE]);
