// SPDX-License-Identifier: Apache-2.0
// TLS ClientHello (RFC 8446 4.1.2, RFC 6066 3), over any segmentation and any number of records, up to 64 KiB.
#pragma once

#include <stdbool.h>

#include "wire/wire.h"

#define TLS_HELLO_MAX 65536 // bytes on the wire, records included

struct tls_hello {
    bool has_sni;
    uint8_t sni[256]; // as sent, not canonical; NUL-terminated copy (the length says where it ends)
    size_t sni_len;
    bool has_ech;      // extension 0xfe0d
    bool has_alpn, alpn_h2, alpn_http1;
    bool offers_early_data;
    uint16_t version;  // highest of supported_versions, else legacy_version
};

// How far the records of one hello have been walked, between the calls for it; all zero before the first.
struct tls_walk {
    size_t position;  // where the first record begins that was not whole
    size_t have;      // bytes of the message before it
    size_t want;      // length of the message, 0 until its header is whole
    uint8_t header[4];
};

// bytes: everything the client sent so far; the same and more in each call. WIRE_BAD: not a well-formed hello, two
// names, or longer than the limit. The work of all calls together is linear, in whatever pieces the hello comes.
enum wire_result tls_hello_parse(const uint8_t *bytes, size_t len, struct tls_walk *walk, struct tls_hello *ret_hello);

enum tls_alert { TLS_ALERT_HANDSHAKE_FAILURE = 40, TLS_ALERT_ACCESS_DENIED = 49, TLS_ALERT_DECODE_ERROR = 50,
                 TLS_ALERT_INTERNAL_ERROR = 80, TLS_ALERT_UNRECOGNIZED_NAME = 112 };
#define TLS_ALERT_SIZE 7
// A fatal alert record (RFC 8446 6).
void tls_alert_write(enum tls_alert alert, uint8_t ret_record[TLS_ALERT_SIZE]);
