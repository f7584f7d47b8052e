// SPDX-License-Identifier: Apache-2.0
// IP, TCP, UDP and ICMP headers (RFC 791, 8200, 9293, 768, 792, 4443): reading captured packets, writing answers.
#pragma once

#include <stdbool.h>

#include "base/addr.h"
#include "wire/wire.h"

#define IP_PACKET_MAX 65535
enum { IP_TCP_FIN = 1, IP_TCP_SYN = 2, IP_TCP_RST = 4, IP_TCP_PSH = 8, IP_TCP_ACK = 16 };

struct ip_packet {
    uint8_t *bytes; // the whole packet, from its IP header
    size_t len;
    size_t transport; // offset of the transport header (IPv6 extension headers skipped)
    uint8_t protocol; // IPPROTO_TCP, _UDP, _ICMP, _ICMPV6, other
    bool fragment;    // any fragment: ports not read
    struct addr source, destination;
    uint16_t source_port, destination_port; // TCP, UDP
    uint8_t tcp_flags;
    uint32_t tcp_sequence;
    uint8_t icmp_type, icmp_code;
    uint16_t echo_identifier, echo_sequence; // ICMP echo
    size_t payload; // offset of the transport payload
};

enum wire_result ip_packet_parse(uint8_t *bytes, size_t len, struct ip_packet *ret_packet);

// Fills in the transport checksum (a packet captured on loopback has none), and the IPv4 header's.
void ip_packet_checksum(struct ip_packet *packet);

// Each writes a whole packet (IP header included, checksums done) into bytes and returns its length, 0 if it does not
// fit.
// The reset that answers a SYN (RFC 9293 3.5.2).
size_t ip_write_reset(const struct ip_packet *syn, uint8_t *bytes, size_t size);
enum ip_unreachable { IP_UNREACHABLE_NETWORK, IP_UNREACHABLE_HOST, IP_UNREACHABLE_PORT, IP_UNREACHABLE_PROHIBITED };
// ICMP or ICMPv6 destination unreachable about a packet of the sandbox, from the address it was sent to. Quotes the
// header and at least 8 bytes of the packet.
size_t ip_write_unreachable(const struct ip_packet *about, enum ip_unreachable code, uint8_t *bytes, size_t size);
// The same with "fragmentation needed" (RFC 1191 4) or "packet too big" (RFC 4443 3.2), and the size that fits.
size_t ip_write_too_big(const struct ip_packet *about, uint16_t mtu, uint8_t *bytes, size_t size);
// A UDP datagram. IPv4 identification 0, hop limit 64. The payload may stand in its place already. Over IPv6 the longest
// ones make packets longer than IP_PACKET_MAX, which have to be sent as fragments.
size_t ip_write_udp(const struct addr *source, uint16_t source_port, const struct addr *destination,
                    uint16_t destination_port, const uint8_t *payload, size_t payload_len, uint8_t *bytes, size_t size);
enum ip_echo { IP_ECHO_REQUEST, IP_ECHO_REPLY };
// An ICMP or ICMPv6 echo message; the payload may stand in its place already.
size_t ip_write_echo(enum ip_echo kind, const struct addr *source, const struct addr *destination, uint16_t identifier,
                     uint16_t sequence, const uint8_t *payload, size_t payload_len, uint8_t *bytes, size_t size);
// One of the two fragments (RFC 8200 4.5) of an IPv6 packet without extension headers, which is longer than IP_PACKET_MAX.
size_t ip_write_fragment(const uint8_t *packet, size_t len, uint32_t identification, bool second, uint8_t *bytes,
                         size_t size);
