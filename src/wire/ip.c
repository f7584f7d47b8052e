// SPDX-License-Identifier: Apache-2.0
// Theory of operation: the gate sees packets of a sandbox as they were captured on its loopback (no checksums, perhaps
// with padding behind) and answers them through raw sockets that take whole packets. Reading trusts nothing: every
// length is checked against what was captured, the chain of IPv6 extension headers is bounded, and fragments are only
// flagged. Answers take their addresses from the bytes of the packet they answer, never from the parsed form. Writing
// is limited to what refusals and answers need: a reset, an ICMP error, a UDP datagram, an echo reply.
#include "wire/ip.h"

enum {
    IPV4_HEADER = 20,
    IPV6_HEADER = 40,
    TCP_HEADER = 20,
    UDP_HEADER = 8,
    ICMP_HEADER = 8,
    FRAGMENT_HEADER = 8,
    HOP_LIMIT = 64,
    EXTENSION_HEADERS_MAX = 8, // RFC 8200 4.1 recommends each at most once, destination options twice
    ICMP4_ERROR_MAX = 576,     // RFC 1812 4.3.2.3
    ICMP6_ERROR_MAX = 1280,    // RFC 4443 3.1
};
enum { ICMP4_UNREACHABLE = 3, ICMP6_UNREACHABLE = 1, ICMP6_TOO_BIG = 2, ICMP6_INFORMATIONAL = 128 };
enum { ICMP4_FRAGMENTATION_NEEDED = 4 }; // code of ICMP4_UNREACHABLE

static uint16_t get16(const uint8_t *bytes) { return (uint16_t)(bytes[0] << 8 | bytes[1]); }
static uint32_t get32(const uint8_t *bytes) { return (uint32_t)get16(bytes) << 16 | get16(bytes + 2); }
static void put16(uint8_t *bytes, size_t value) {
    bytes[0] = (uint8_t)(value >> 8);
    bytes[1] = (uint8_t)value;
}
static void put32(uint8_t *bytes, uint32_t value) {
    put16(bytes, value >> 16);
    put16(bytes + 2, value & 0xffff);
}
static bool is_ipv6(const uint8_t *packet) { return packet[0] >> 4 == 6; }

// RFC 1071: the sum of 16-bit words; 64 KiB of them cannot overflow 64 bits.
static uint64_t sum_words(uint64_t sum, const uint8_t *bytes, size_t len) {
    for (; len >= 2; bytes += 2, len -= 2) sum += get16(bytes);
    return len ? sum + ((uint64_t)bytes[0] << 8) : sum;
}

static uint16_t sum_fold(uint64_t sum) {
    while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)~sum;
}

static uint64_t sum_pseudo_header(const uint8_t *packet, uint8_t protocol, size_t len) {
    uint64_t sum = is_ipv6(packet) ? sum_words(0, packet + 8, 32) : sum_words(0, packet + 12, 8);
    return sum + protocol + len;
}

static void ipv4_header_checksum(uint8_t *packet) {
    put16(packet + 10, 0);
    put16(packet + 10, sum_fold(sum_words(0, packet, (size_t)(packet[0] & 15) * 4)));
}

static size_t checksum_offset(uint8_t protocol) {
    if (protocol == IPPROTO_TCP) return 16;
    return protocol == IPPROTO_UDP ? 6 : 2;
}

// The checksum over len bytes of transport header and payload at transport.
static void transport_checksum(uint8_t *packet, uint8_t protocol, uint8_t *transport, size_t len) {
    uint8_t *field = transport + checksum_offset(protocol);
    put16(field, 0);
    uint64_t sum = protocol == IPPROTO_ICMP ? 0 : sum_pseudo_header(packet, protocol, len);
    uint16_t checksum = sum_fold(sum_words(sum, transport, len));
    if (protocol == IPPROTO_UDP && checksum == 0) checksum = 0xffff; // RFC 768: zero means none
    put16(field, checksum);
}

void ip_packet_checksum(struct ip_packet *packet) {
    if (!is_ipv6(packet->bytes)) ipv4_header_checksum(packet->bytes);
    bool icmp = packet->protocol == (is_ipv6(packet->bytes) ? IPPROTO_ICMPV6 : IPPROTO_ICMP);
    if (packet->fragment || !(icmp || packet->protocol == IPPROTO_TCP || packet->protocol == IPPROTO_UDP)) return;
    uint8_t *transport = packet->bytes + packet->transport;
    size_t len = packet->protocol == IPPROTO_UDP ? get16(transport + 4) : packet->len - packet->transport;
    transport_checksum(packet->bytes, packet->protocol, transport, len);
}

static enum wire_result parse_ipv4(struct ip_packet *packet) {
    const uint8_t *bytes = packet->bytes;
    if (packet->len < IPV4_HEADER) return WIRE_BAD;
    size_t header = (size_t)(bytes[0] & 15) * 4, total = get16(bytes + 2);
    if (header < IPV4_HEADER || total < header || total > packet->len) return WIRE_BAD;
    packet->len = total;
    packet->transport = header;
    packet->protocol = bytes[9];
    packet->fragment = get16(bytes + 6) & 0x3fff; // more fragments, or an offset
    packet->source = addr_from_bytes(bytes + 12, ADDR_IPV4);
    packet->destination = addr_from_bytes(bytes + 16, ADDR_IPV4);
    return WIRE_OK;
}

// Length of the extension header at bytes, 0 if the type is none that is skipped.
static size_t extension_length(uint8_t type, const uint8_t *bytes) {
    switch (type) {
    case IPPROTO_ROUTING:
        // With hops left, the destination in the IP header is not where it goes: not looked into.
        if (bytes[3] != 0) return 0;
        return ((size_t)bytes[1] + 1) * 8;
    case IPPROTO_HOPOPTS:
    case IPPROTO_DSTOPTS:
        return ((size_t)bytes[1] + 1) * 8;
    case IPPROTO_FRAGMENT:
        return 8;
    case IPPROTO_AH:
        return ((size_t)bytes[1] + 2) * 4;
    }
    return 0;
}

static bool is_extension(uint8_t type) {
    return type == IPPROTO_ROUTING || type == IPPROTO_HOPOPTS || type == IPPROTO_DSTOPTS || type == IPPROTO_FRAGMENT ||
           type == IPPROTO_AH;
}

static enum wire_result skip_extensions(struct ip_packet *packet) {
    for (int count = 0; is_extension(packet->protocol) && !packet->fragment; count++) {
        const uint8_t *header = packet->bytes + packet->transport;
        size_t left = packet->len - packet->transport;
        if (count == EXTENSION_HEADERS_MAX || left < 8) return WIRE_BAD;
        size_t length = extension_length(packet->protocol, header);
        if (length == 0) return WIRE_OK;
        if (length > left) return WIRE_BAD;
        packet->fragment = packet->protocol == IPPROTO_FRAGMENT;
        packet->protocol = header[0];
        packet->transport += length;
    }
    return WIRE_OK;
}

static enum wire_result parse_ipv6(struct ip_packet *packet) {
    const uint8_t *bytes = packet->bytes;
    if (packet->len < IPV6_HEADER) return WIRE_BAD;
    size_t total = IPV6_HEADER + (size_t)get16(bytes + 4);
    if (total > packet->len) return WIRE_BAD;
    packet->len = total;
    packet->transport = IPV6_HEADER;
    packet->protocol = bytes[6];
    packet->source = addr_from_bytes(bytes + 8, ADDR_IPV6);
    packet->destination = addr_from_bytes(bytes + 24, ADDR_IPV6);
    // IPv4-mapped addresses became IPv4. They are never on the wire (RFC 4942 2.2), and one of these would be judged
    // as a packet of the other family.
    if (packet->source.family != ADDR_IPV6 || packet->destination.family != ADDR_IPV6) return WIRE_BAD;
    return skip_extensions(packet);
}

static enum wire_result parse_tcp(struct ip_packet *packet, const uint8_t *header, size_t left) {
    if (left < TCP_HEADER) return WIRE_BAD;
    size_t length = (size_t)(header[12] >> 4) * 4;
    if (length < TCP_HEADER || length > left) return WIRE_BAD;
    packet->tcp_sequence = get32(header + 4);
    packet->tcp_flags = header[13];
    packet->payload = packet->transport + length;
    return WIRE_OK;
}

static enum wire_result parse_transport(struct ip_packet *packet) {
    const uint8_t *header = packet->bytes + packet->transport;
    size_t left = packet->len - packet->transport;
    uint8_t icmp = is_ipv6(packet->bytes) ? IPPROTO_ICMPV6 : IPPROTO_ICMP;
    packet->payload = packet->transport;
    if (packet->fragment) return WIRE_OK;
    if (packet->protocol == icmp) {
        if (left < ICMP_HEADER) return WIRE_BAD;
        packet->icmp_type = header[0];
        packet->icmp_code = header[1];
        packet->echo_identifier = get16(header + 4);
        packet->echo_sequence = get16(header + 6);
        packet->payload += ICMP_HEADER;
        return WIRE_OK;
    }
    if (packet->protocol != IPPROTO_TCP && packet->protocol != IPPROTO_UDP) return WIRE_OK;
    if (left < UDP_HEADER) return WIRE_BAD;
    packet->source_port = get16(header);
    packet->destination_port = get16(header + 2);
    if (packet->protocol == IPPROTO_TCP) return parse_tcp(packet, header, left);
    if (get16(header + 4) < UDP_HEADER || get16(header + 4) > left) return WIRE_BAD;
    packet->payload += UDP_HEADER;
    return WIRE_OK;
}

enum wire_result ip_packet_parse(uint8_t *bytes, size_t len, struct ip_packet *ret_packet) {
    struct ip_packet packet = {.bytes = bytes, .len = len};
    if (len == 0) return WIRE_BAD;
    enum wire_result result = WIRE_BAD;
    if (bytes[0] >> 4 == 4) result = parse_ipv4(&packet);
    if (bytes[0] >> 4 == 6) result = parse_ipv6(&packet);
    if (result == WIRE_OK) result = parse_transport(&packet);
    if (result == WIRE_OK) *ret_packet = packet;
    return result;
}

// An IP header in front of transport_len bytes; addresses in network order, 4 or 16 bytes each.
static size_t write_header(uint8_t *bytes, bool ipv6, uint8_t protocol, size_t transport_len, const uint8_t *source,
                           const uint8_t *destination) {
    if (ipv6) {
        memset(bytes, 0, 8);
        bytes[0] = 6 << 4;
        put16(bytes + 4, transport_len);
        bytes[6] = protocol;
        bytes[7] = HOP_LIMIT;
        memcpy(bytes + 8, source, 16);
        memcpy(bytes + 24, destination, 16);
        return IPV6_HEADER;
    }
    memset(bytes, 0, 12);
    bytes[0] = 4 << 4 | 5;
    put16(bytes + 2, IPV4_HEADER + transport_len);
    bytes[8] = HOP_LIMIT;
    bytes[9] = protocol;
    memcpy(bytes + 12, source, 4);
    memcpy(bytes + 16, destination, 4);
    ipv4_header_checksum(bytes);
    return IPV4_HEADER;
}

// The header of an answer to packet: its addresses exchanged.
static size_t write_answer_header(const struct ip_packet *packet, uint8_t *bytes, uint8_t protocol,
                                  size_t transport_len) {
    if (is_ipv6(packet->bytes))
        return write_header(bytes, true, protocol, transport_len, packet->bytes + 24, packet->bytes + 8);
    return write_header(bytes, false, protocol, transport_len, packet->bytes + 16, packet->bytes + 12);
}

static size_t header_length(const struct ip_packet *packet) {
    return is_ipv6(packet->bytes) ? IPV6_HEADER : IPV4_HEADER;
}

size_t ip_write_reset(const struct ip_packet *syn, uint8_t *bytes, size_t size) {
    if (syn->protocol != IPPROTO_TCP || syn->fragment || syn->tcp_flags & IP_TCP_RST) return 0;
    size_t total = header_length(syn) + TCP_HEADER;
    if (size < total) return 0;
    const uint8_t *asked = syn->bytes + syn->transport;
    uint8_t *tcp = bytes + write_answer_header(syn, bytes, IPPROTO_TCP, TCP_HEADER);
    memset(tcp, 0, TCP_HEADER);
    put16(tcp, syn->destination_port);
    put16(tcp + 2, syn->source_port);
    tcp[12] = TCP_HEADER / 4 << 4;
    if (syn->tcp_flags & IP_TCP_ACK) {
        memcpy(tcp + 4, asked + 8, 4); // its acknowledgement is our sequence number
        tcp[13] = IP_TCP_RST;
    } else {
        uint32_t length = (uint32_t)(syn->len - syn->payload);
        length += !!(syn->tcp_flags & IP_TCP_SYN) + !!(syn->tcp_flags & IP_TCP_FIN);
        put32(tcp + 8, syn->tcp_sequence + length);
        tcp[13] = IP_TCP_RST | IP_TCP_ACK;
    }
    transport_checksum(bytes, IPPROTO_TCP, tcp, TCP_HEADER);
    return total;
}

// RFC 1122 3.2.2 and RFC 4443 2.4 (e): no error about an error, a fragment, or a packet that went to many.
static bool may_answer_with_error(const struct ip_packet *packet) {
    const uint8_t *bytes = packet->bytes;
    if (packet->fragment) return false;
    if (is_ipv6(bytes)) {
        if (packet->protocol == IPPROTO_ICMPV6 && packet->icmp_type < ICMP6_INFORMATIONAL) return false;
        return bytes[24] != 0xff;
    }
    static const uint8_t error_types[] = {3, 4, 5, 11, 12};
    if (packet->protocol == IPPROTO_ICMP && memchr(error_types, packet->icmp_type, sizeof(error_types))) return false;
    return bytes[16] >> 4 != 14 && get32(bytes + 16) != UINT32_MAX;
}

// Codes of type "destination unreachable": RFC 792 and RFC 1812 5.2.7.1; RFC 4443 3.1.
static const struct {
    uint8_t ipv4, ipv6;
} unreachable_codes[] = {
    [IP_UNREACHABLE_NETWORK] = {0, 0},
    [IP_UNREACHABLE_HOST] = {1, 3},
    [IP_UNREACHABLE_PORT] = {3, 4},
    [IP_UNREACHABLE_PROHIBITED] = {13, 1},
};
_Static_assert(sizeof(unreachable_codes) / sizeof(unreachable_codes[0]) == IP_UNREACHABLE_PROHIBITED + 1,
               "a row per code");

struct icmp_error {
    uint8_t type, code;
    uint32_t parameter; // second word of the header
};

static size_t write_error(const struct ip_packet *about, const struct icmp_error *error, uint8_t *bytes, size_t size) {
    if (!may_answer_with_error(about)) return 0;
    bool ipv6 = is_ipv6(about->bytes);
    size_t header = header_length(about) + ICMP_HEADER;
    size_t limit = ipv6 ? ICMP6_ERROR_MAX : ICMP4_ERROR_MAX;
    size_t least = about->len < about->transport + 8 ? about->len : about->transport + 8;
    if (limit > size) limit = size;
    if (limit < header || limit - header < least) return 0;
    size_t quoted = about->len < limit - header ? about->len : limit - header;
    uint8_t protocol = ipv6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP;
    uint8_t *icmp = bytes + write_answer_header(about, bytes, protocol, ICMP_HEADER + quoted);
    memset(icmp, 0, ICMP_HEADER);
    icmp[0] = error->type;
    icmp[1] = error->code;
    put32(icmp + 4, error->parameter);
    memcpy(icmp + ICMP_HEADER, about->bytes, quoted);
    transport_checksum(bytes, protocol, icmp, ICMP_HEADER + quoted);
    return header + quoted;
}

size_t ip_write_unreachable(const struct ip_packet *about, enum ip_unreachable code, uint8_t *bytes, size_t size) {
    bool ipv6 = is_ipv6(about->bytes);
    struct icmp_error error = {
        .type = ipv6 ? ICMP6_UNREACHABLE : ICMP4_UNREACHABLE,
        .code = ipv6 ? unreachable_codes[code].ipv6 : unreachable_codes[code].ipv4,
    };
    return write_error(about, &error, bytes, size);
}

size_t ip_write_too_big(const struct ip_packet *about, uint16_t mtu, uint8_t *bytes, size_t size) {
    bool ipv6 = is_ipv6(about->bytes);
    struct icmp_error error = {
        .type = ipv6 ? ICMP6_TOO_BIG : ICMP4_UNREACHABLE,
        .code = ipv6 ? 0 : ICMP4_FRAGMENTATION_NEEDED,
        .parameter = mtu,
    };
    return write_error(about, &error, bytes, size);
}

// Room for an IP header and a transport header of 8 bytes. 0: the addresses do not fit together, or it is too long for
// the 16-bit length field (which counts IPv4's own header, but not IPv6's) or for size.
static size_t message_header(const struct addr *source, const struct addr *destination, size_t payload_len, size_t size) {
    if (source->family != destination->family || source->family == ADDR_NONE) return 0;
    size_t header = (source->family == ADDR_IPV6 ? IPV6_HEADER : IPV4_HEADER) + UDP_HEADER;
    size_t most = IP_PACKET_MAX - (source->family == ADDR_IPV6 ? UDP_HEADER : header);
    return payload_len > most || header + payload_len > size ? 0 : header;
}

static void put_payload(uint8_t *place, const uint8_t *payload, size_t payload_len) {
    if (payload_len && place != payload) memcpy(place, payload, payload_len);
}

size_t ip_write_udp(const struct addr *source, uint16_t source_port, const struct addr *destination,
                    uint16_t destination_port, const uint8_t *payload, size_t payload_len, uint8_t *bytes,
                    size_t size) {
    size_t header = message_header(source, destination, payload_len, size);
    if (header == 0) return 0;
    put_payload(bytes + header, payload, payload_len);
    uint8_t *udp = bytes + write_header(bytes, source->family == ADDR_IPV6, IPPROTO_UDP, UDP_HEADER + payload_len,
                                        source->bytes, destination->bytes);
    put16(udp, source_port);
    put16(udp + 2, destination_port);
    put16(udp + 4, UDP_HEADER + payload_len);
    transport_checksum(bytes, IPPROTO_UDP, udp, UDP_HEADER + payload_len);
    return header + payload_len;
}

size_t ip_write_echo(enum ip_echo kind, const struct addr *source, const struct addr *destination, uint16_t identifier,
                     uint16_t sequence, const uint8_t *payload, size_t payload_len, uint8_t *bytes, size_t size) {
    static const uint8_t types[][2] = {[IP_ECHO_REQUEST] = {8, 128}, [IP_ECHO_REPLY] = {0, 129}};
    size_t header = message_header(source, destination, payload_len, size);
    if (header == 0) return 0;
    bool ipv6 = source->family == ADDR_IPV6;
    uint8_t protocol = ipv6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP;
    put_payload(bytes + header, payload, payload_len);
    uint8_t *icmp =
        bytes + write_header(bytes, ipv6, protocol, ICMP_HEADER + payload_len, source->bytes, destination->bytes);
    icmp[0] = types[kind][ipv6];
    icmp[1] = 0;
    put16(icmp + 4, identifier);
    put16(icmp + 6, sequence);
    transport_checksum(bytes, protocol, icmp, ICMP_HEADER + payload_len);
    return header + payload_len;
}

size_t ip_write_fragment(const uint8_t *packet, size_t len, uint32_t identification, bool second, uint8_t *bytes,
                         size_t size) {
    // All but the last are a multiple of 8 bytes long.
    const size_t first = (IP_PACKET_MAX - IPV6_HEADER - FRAGMENT_HEADER) / 8 * 8;
    if (len < IPV6_HEADER + first) return 0;
    size_t offset = second ? first : 0;
    size_t part = second ? len - IPV6_HEADER - first : first;
    if (IPV6_HEADER + FRAGMENT_HEADER + part > size) return 0;
    uint8_t *fragment =
        bytes + write_header(bytes, true, IPPROTO_FRAGMENT, FRAGMENT_HEADER + part, packet + 8, packet + 24);
    fragment[0] = packet[6];
    fragment[1] = 0;
    put16(fragment + 2, offset | !second); // the offset in units of 8 bytes, shifted by 3; "more fragments"
    put32(fragment + 4, identification);
    memcpy(fragment + FRAGMENT_HEADER, packet + IPV6_HEADER + offset, part);
    return IPV6_HEADER + FRAGMENT_HEADER + part;
}
