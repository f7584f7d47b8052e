// SPDX-License-Identifier: Apache-2.0
#include "wire/ip.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

// 192.0.0.2:40000 > 198.51.100.7:443, SYN, seq 0x01020304, one word of IP options, no checksums.
static const uint8_t syn4[] = {
    0x46, 0, 0,    44,   0x12, 0x34, 0x40, 0, 64, 6, 0, 0, 192, 0, 0,    2, 198,  51,   100, 7, 1, 1,
    1,    0, 0x9c, 0x40, 0x01, 0xbb, 1,    2, 3,  4, 0, 0, 0,   0, 0x50, 2, 0xff, 0xff, 0,   0, 0, 0,
};
// fd00::2 > 2001:db8::9, the same behind hop-by-hop and destination options.
static const uint8_t syn6[] = {
    0x60, 0,    0, 0, 0,    36,   0,    64,   0xfd, 0, 0, 0, 0, 0, 0,  0, 0,    0, 0,    0,    0, 0, 0, 2, 0x20, 1,
    0x0d, 0xb8, 0, 0, 0,    0,    0,    0,    0,    0, 0, 0, 0, 9, 60, 0, 1,    4, 0,    0,    0, 0, 6, 0, 1,    4,
    0,    0,    0, 0, 0x9c, 0x40, 0x01, 0xbb, 1,    2, 3, 4, 0, 0, 0,  0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0,
};

static uint8_t scratch[70000];

static enum wire_result parse(const uint8_t *bytes, size_t len, struct ip_packet *ret_packet) {
    memcpy(scratch, bytes, len);
    return ip_packet_parse(scratch, len, ret_packet);
}

// An independent sum: of the words of a buffer, with carries added at each step; 0xffff over data with a right
// checksum.
static uint16_t ones_sum(uint16_t sum, const uint8_t *bytes, size_t len) {
    for (size_t i = 0; i < len; i++) {
        uint32_t next = (uint32_t)sum + (i % 2 ? bytes[i] : (uint32_t)bytes[i] << 8);
        sum = (uint16_t)((next & 0xffff) + (next >> 16));
    }
    return sum;
}

static void assert_checksums(const uint8_t *bytes, size_t len) {
    struct ip_packet packet;
    static uint8_t copy[70000];
    memcpy(copy, bytes, len);
    assert_int_equal(ip_packet_parse(copy, len, &packet), WIRE_OK);
    assert_int_equal(packet.len, len);
    bool ipv6 = bytes[0] >> 4 == 6;
    if (!ipv6) assert_int_equal(ones_sum(0, bytes, (bytes[0] & 15u) * 4), 0xffff);
    uint16_t sum = 0;
    if (packet.protocol != IPPROTO_ICMP) {
        sum = ipv6 ? ones_sum(0, bytes + 8, 32) : ones_sum(0, bytes + 12, 8);
        size_t transport = len - packet.transport;
        sum = ones_sum(sum, (uint8_t[]){0, packet.protocol, (uint8_t)(transport >> 8), (uint8_t)transport}, 4);
    }
    assert_int_equal(ones_sum(sum, bytes + packet.transport, len - packet.transport), 0xffff);
}

static void test_parse(void **state) {
    (void)state;
    const struct {
        const uint8_t *bytes;
        size_t len, transport;
        const char *source, *destination;
    } rows[] = {
        {syn4, sizeof(syn4), 24, "192.0.0.2", "198.51.100.7"},
        {syn6, sizeof(syn6), 56, "fd00::2", "2001:db8::9"},
    };
    for (size_t i = 0; i < 2; i++) {
        struct ip_packet packet;
        char text[ADDR_TEXT_SIZE];
        assert_int_equal(parse(rows[i].bytes, rows[i].len, &packet), WIRE_OK);
        assert_int_equal(packet.transport, rows[i].transport);
        assert_int_equal(packet.payload, rows[i].len);
        assert_int_equal(packet.protocol, IPPROTO_TCP);
        assert_false(packet.fragment);
        assert_string_equal(addr_format(&packet.source, text), rows[i].source);
        assert_string_equal(addr_format(&packet.destination, text), rows[i].destination);
        assert_int_equal(packet.source_port, 40000);
        assert_int_equal(packet.destination_port, 443);
        assert_int_equal(packet.tcp_flags, IP_TCP_SYN);
        assert_int_equal(packet.tcp_sequence, 0x01020304);
        for (size_t len = 0; len < rows[i].len; len++) assert_int_equal(parse(rows[i].bytes, len, &packet), WIRE_BAD);
        // Padding behind the packet is no part of it.
        memset(scratch, 0xff, 100);
        memcpy(scratch, rows[i].bytes, rows[i].len);
        assert_int_equal(ip_packet_parse(scratch, rows[i].len + 6, &packet), WIRE_OK);
        assert_int_equal(packet.len, rows[i].len);
        ip_packet_checksum(&packet);
        assert_checksums(scratch, packet.len);
    }
}

static void test_bad(void **state) {
    (void)state;
    const struct {
        const uint8_t *bytes;
        size_t len, offset;
        uint8_t value;
    } rows[] = {
        {syn4, sizeof(syn4), 0, 0x56},  {syn4, sizeof(syn4), 0, 0x44},  {syn4, sizeof(syn4), 0, 0x4f},
        {syn4, sizeof(syn4), 3, 23},    {syn4, sizeof(syn4), 3, 43},    {syn4, sizeof(syn4), 3, 45},
        {syn4, sizeof(syn4), 36, 0x40}, {syn4, sizeof(syn4), 36, 0x60}, {syn6, sizeof(syn6), 5, 37},
        {syn6, sizeof(syn6), 5, 35},    {syn6, sizeof(syn6), 5, 4},     {syn6, sizeof(syn6), 41, 4},
        {syn6, sizeof(syn6), 49, 255},  {syn6, sizeof(syn6), 68, 0x40},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint8_t bytes[80];
        struct ip_packet packet;
        memcpy(bytes, rows[i].bytes, rows[i].len);
        bytes[rows[i].offset] = rows[i].value;
        if (parse(bytes, rows[i].len, &packet) != WIRE_BAD) fail_msg("row %zu", i);
    }
    // An IPv4-mapped destination in an IPv6 packet.
    uint8_t mapped[sizeof(syn6)];
    struct ip_packet packet;
    memcpy(mapped, syn6, sizeof(mapped));
    memcpy(mapped + 24, "\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\0\0\1", 16);
    assert_int_equal(parse(mapped, sizeof(mapped), &packet), WIRE_BAD);
}

static void test_extension_headers(void **state) {
    (void)state;
    uint8_t bytes[200] = {0};
    struct ip_packet packet;
    memcpy(bytes, syn6, 40);
    bytes[6] = IPPROTO_DSTOPTS;
    for (size_t i = 0; i < 9; i++) bytes[40 + 8 * i] = i == 8 ? 59 : IPPROTO_DSTOPTS;
    bytes[5] = 72;
    assert_int_equal(parse(bytes, 112, &packet), WIRE_BAD); // nine
    bytes[40 + 8 * 7] = 59;
    assert_int_equal(parse(bytes, 112, &packet), WIRE_OK); // eight, then "no next header"
    assert_int_equal(packet.protocol, 59);
    assert_int_equal(packet.transport, 104);
    memcpy(bytes, syn6, sizeof(syn6));
    bytes[6] = IPPROTO_ROUTING;
    bytes[43] = 0; // no segments left: nothing but a header to skip
    assert_int_equal(parse(bytes, sizeof(syn6), &packet), WIRE_OK);
    assert_int_equal(packet.protocol, IPPROTO_TCP);
    bytes[43] = 1; // it goes elsewhere than the destination says
    assert_int_equal(parse(bytes, sizeof(syn6), &packet), WIRE_OK);
    assert_int_equal(packet.protocol, IPPROTO_ROUTING);
    assert_int_equal(packet.destination_port, 0);
}

static void test_fragments(void **state) {
    (void)state;
    uint8_t bytes[80], out[200];
    struct ip_packet packet;
    const uint8_t fields[][2] = {{0x20, 0}, {0, 1}, {0x1f, 0xff}};
    for (size_t i = 0; i < 3; i++) {
        memcpy(bytes, syn4, sizeof(syn4));
        memcpy(bytes + 6, fields[i], 2);
        assert_int_equal(parse(bytes, sizeof(syn4), &packet), WIRE_OK);
        assert_true(packet.fragment);
        assert_int_equal(packet.destination_port, 0);
        assert_int_equal(ip_write_reset(&packet, out, sizeof(out)), 0);
        assert_int_equal(ip_write_unreachable(&packet, IP_UNREACHABLE_HOST, out, sizeof(out)), 0);
    }
    memcpy(bytes, syn6, sizeof(syn6));
    bytes[6] = IPPROTO_FRAGMENT;
    assert_int_equal(parse(bytes, sizeof(syn6), &packet), WIRE_OK);
    assert_true(packet.fragment);
    assert_int_equal(packet.destination_port, 0);
}

static void test_reset(void **state) {
    (void)state;
    const struct {
        const uint8_t *bytes;
        size_t len, header;
    } rows[] = {{syn4, sizeof(syn4), 20}, {syn6, sizeof(syn6), 40}};
    for (size_t i = 0; i < 2; i++) {
        uint8_t out[100], *tcp = out + rows[i].header;
        struct ip_packet packet;
        assert_int_equal(parse(rows[i].bytes, rows[i].len, &packet), WIRE_OK);
        assert_int_equal(ip_write_reset(&packet, out, rows[i].header + 19), 0);
        assert_int_equal(ip_write_reset(&packet, out, sizeof(out)), rows[i].header + 20);
        assert_checksums(out, rows[i].header + 20);
        assert_memory_equal(tcp, "\x01\xbb\x9c\x40\0\0\0\0\x01\x02\x03\x05\x50\x14\0\0", 16);
        if (i == 0)
            assert_memory_equal(out + 12, "\xc6\x33\x64\x07\xc0\0\0\2", 8);
        else
            assert_memory_equal(out + 8, syn6 + 24, 16);
        // With data and FIN (TCP fast open) all of it is acknowledged; with ACK the number asked for is used.
        size_t transport = packet.transport;
        packet.bytes[transport + 13] = IP_TCP_SYN | IP_TCP_FIN;
        packet.bytes[i == 0 ? 3 : 5] += 10;
        assert_int_equal(ip_packet_parse(scratch, rows[i].len + 10, &packet), WIRE_OK);
        assert_int_equal(ip_write_reset(&packet, out, sizeof(out)), rows[i].header + 20);
        assert_memory_equal(tcp + 8, "\x01\x02\x03\x10", 4);
        packet.bytes[transport + 13] = packet.tcp_flags = IP_TCP_ACK;
        memcpy(packet.bytes + transport + 8, "\x0a\x0b\x0c\x0d", 4);
        assert_int_equal(ip_write_reset(&packet, out, sizeof(out)), rows[i].header + 20);
        assert_memory_equal(tcp + 4, "\x0a\x0b\x0c\x0d\0\0\0\0\x50\x04", 10);
        assert_checksums(out, rows[i].header + 20);
        packet.tcp_flags = IP_TCP_RST;
        assert_int_equal(ip_write_reset(&packet, out, sizeof(out)), 0);
    }
}

static void test_unreachable(void **state) {
    (void)state;
    const struct {
        enum ip_unreachable code;
        uint8_t ipv4, ipv6;
    } rows[] = {
        {IP_UNREACHABLE_NETWORK, 0, 0},
        {IP_UNREACHABLE_HOST, 1, 3},
        {IP_UNREACHABLE_PORT, 3, 4},
        {IP_UNREACHABLE_PROHIBITED, 13, 1},
    };
    uint8_t out[2000];
    struct ip_packet packet;
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(parse(syn4, sizeof(syn4), &packet), WIRE_OK);
        assert_int_equal(ip_write_unreachable(&packet, rows[i].code, out, sizeof(out)), 28 + sizeof(syn4));
        assert_checksums(out, 28 + sizeof(syn4));
        assert_int_equal(out[9], IPPROTO_ICMP);
        assert_int_equal(out[20], 3);
        assert_int_equal(out[21], rows[i].ipv4);
        assert_memory_equal(out + 12, "\xc6\x33\x64\x07\xc0\0\0\2", 8);
        assert_memory_equal(out + 28, syn4, sizeof(syn4));
        assert_int_equal(parse(syn6, sizeof(syn6), &packet), WIRE_OK);
        assert_int_equal(ip_write_unreachable(&packet, rows[i].code, out, sizeof(out)), 48 + sizeof(syn6));
        assert_checksums(out, 48 + sizeof(syn6));
        assert_int_equal(out[6], IPPROTO_ICMPV6);
        assert_int_equal(out[40], 1);
        assert_int_equal(out[41], rows[i].ipv6);
        assert_memory_equal(out + 48, syn6, sizeof(syn6));
    }
    assert_int_equal(ip_write_unreachable(&packet, IP_UNREACHABLE_HOST, out, 48 + 56 + 7), 0);
    assert_int_equal(ip_write_unreachable(&packet, IP_UNREACHABLE_HOST, out, 48 + 56 + 8), 48 + 56 + 8);
}

static void test_unreachable_never(void **state) {
    (void)state;
    uint8_t bytes[40] = {0x45, 0, 0, 28, 0, 0, 0, 0, 64, IPPROTO_ICMP, 0, 0, 192, 0, 0, 2, 198, 51, 100, 7};
    uint8_t out[100];
    struct ip_packet packet;
    for (unsigned type = 0; type < 20; type++) {
        bytes[20] = (uint8_t)type;
        assert_int_equal(parse(bytes, 28, &packet), WIRE_OK);
        assert_int_equal(packet.icmp_type, type);
        bool is_error = type == 3 || type == 4 || type == 5 || type == 11 || type == 12;
        assert_int_equal(ip_write_unreachable(&packet, IP_UNREACHABLE_HOST, out, sizeof(out)), is_error ? 0 : 56);
    }
    const uint8_t destinations[][4] = {{224, 0, 0, 1}, {239, 1, 1, 1}, {255, 255, 255, 255}};
    bytes[20] = 8;
    for (size_t i = 0; i < 3; i++) {
        memcpy(bytes + 16, destinations[i], 4);
        assert_int_equal(parse(bytes, 28, &packet), WIRE_OK);
        assert_int_equal(ip_write_unreachable(&packet, IP_UNREACHABLE_HOST, out, sizeof(out)), 0);
    }
    uint8_t bytes6[48];
    memcpy(bytes6, syn6, 40);
    memset(bytes6 + 40, 0, 8);
    bytes6[5] = 8;
    bytes6[6] = IPPROTO_ICMPV6;
    const struct {
        uint8_t type, destination;
        size_t len;
    } rows[] = {{128, 0x20, 96}, {127, 0x20, 0}, {1, 0x20, 0}, {128, 0xff, 0}};
    for (size_t i = 0; i < 4; i++) {
        bytes6[40] = rows[i].type;
        bytes6[24] = rows[i].destination;
        assert_int_equal(parse(bytes6, 48, &packet), WIRE_OK);
        assert_int_equal(ip_write_unreachable(&packet, IP_UNREACHABLE_PROHIBITED, out, sizeof(out)), rows[i].len);
    }
}

static void test_udp(void **state) {
    (void)state;
    static uint8_t payload[70000], out[70000];
    struct addr a4 = addr_ipv4(0xc6336407), b4 = addr_ipv4(0xc0000002), a6, b6;
    assert_int_equal(addr_parse("2001:db8::9", 11, &a6), 0);
    assert_int_equal(addr_parse("fd00::2", 7, &b6), 0);
    assert_int_equal(ip_write_udp(&a4, 53, &b4, 40000, (const uint8_t *)"abc", 3, out, sizeof(out)), 31);
    assert_checksums(out, 31);
    assert_memory_equal(out, "\x45\0\0\x1f\0\0\0\0\x40\x11", 10);
    assert_memory_equal(out + 12, "\xc6\x33\x64\x07\xc0\0\0\2\0\x35\x9c\x40\0\x0b", 14);
    assert_memory_equal(out + 28, "abc", 3);
    assert_int_equal(ip_write_udp(&a6, 53, &b6, 40000, NULL, 0, out, sizeof(out)), 48);
    assert_checksums(out, 48);
    // Limits.
    assert_int_equal(ip_write_udp(&a4, 53, &b4, 1, payload, 65507, out, sizeof(out)), 65535);
    assert_checksums(out, 65535);
    assert_int_equal(ip_write_udp(&a4, 53, &b4, 1, payload, 65508, out, sizeof(out)), 0);
    assert_int_equal(ip_write_udp(&a6, 53, &b6, 1, payload, 65487, out, sizeof(out)), 65535);
    // IPv6 counts only what is behind its header.
    assert_int_equal(ip_write_udp(&a6, 53, &b6, 1, payload, 65527, out, sizeof(out)), 65575);
    assert_memory_equal(out + 4, "\xff\xff\x11", 3);
    assert_int_equal(ip_write_udp(&a6, 53, &b6, 1, payload, 65528, out, sizeof(out)), 0);
    assert_int_equal(ip_write_udp(&a6, 53, &b6, 1, payload, 3, out, 50), 0);
    // In place.
    memcpy(out + 28, "here", 4);
    assert_int_equal(ip_write_udp(&a4, 53, &b4, 40000, out + 28, 4, out, sizeof(out)), 32);
    assert_memory_equal(out + 28, "here", 4);
    assert_checksums(out, 32);
    assert_int_equal(ip_write_udp(&a4, 53, &b4, 1, payload, 3, out, 30), 0);
    assert_int_equal(ip_write_udp(&a4, 53, &b6, 1, payload, 3, out, sizeof(out)), 0);
    struct addr none = {0};
    assert_int_equal(ip_write_udp(&none, 53, &none, 1, payload, 3, out, sizeof(out)), 0);
    // A sum of zero is sent as 0xffff: some two bytes of payload give it.
    bool seen = false;
    for (unsigned value = 0; value < 65536 && !seen; value++) {
        uint8_t two[] = {(uint8_t)(value >> 8), (uint8_t)value};
        ip_write_udp(&a4, 53, &b4, 40000, two, 2, out, sizeof(out));
        assert_false(out[26] == 0 && out[27] == 0);
        seen = out[26] == 0xff && out[27] == 0xff;
    }
    assert_true(seen);
    assert_checksums(out, 30);
}

static void test_udp_length(void **state) {
    (void)state;
    uint8_t bytes[] = {0x45, 0,  0,   32, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 0, 2,
                       198,  51, 100, 7,  0, 1, 0, 2, 0,  12, 0, 0, 1,   2, 3, 4};
    struct ip_packet packet;
    for (unsigned len = 0; len < 16; len++) {
        bytes[25] = (uint8_t)len;
        assert_int_equal(parse(bytes, sizeof(bytes), &packet), len >= 8 && len <= 12 ? WIRE_OK : WIRE_BAD);
    }
}

static void test_too_big(void **state) {
    (void)state;
    uint8_t out[2000];
    struct ip_packet packet;
    assert_int_equal(parse(syn4, sizeof(syn4), &packet), WIRE_OK);
    assert_int_equal(ip_write_too_big(&packet, 1300, out, sizeof(out)), 28 + sizeof(syn4));
    assert_checksums(out, 28 + sizeof(syn4));
    assert_memory_equal(out + 20, "\3\4", 2);
    assert_memory_equal(out + 24, "\0\0\x05\x14", 4); // RFC 1191 4: the lower half
    assert_memory_equal(out + 28, syn4, sizeof(syn4));
    assert_int_equal(parse(syn6, sizeof(syn6), &packet), WIRE_OK);
    assert_int_equal(ip_write_too_big(&packet, 1300, out, sizeof(out)), 48 + sizeof(syn6));
    assert_checksums(out, 48 + sizeof(syn6));
    assert_memory_equal(out + 40, "\2\0", 2);
    assert_memory_equal(out + 44, "\0\0\x05\x14", 4);
    assert_memory_equal(out + 48, syn6, sizeof(syn6));
    assert_int_equal(ip_write_too_big(&packet, 1300, out, 48 + 56 + 7), 0);
    packet.fragment = true;
    assert_int_equal(ip_write_too_big(&packet, 1300, out, sizeof(out)), 0);
}

static void test_echo(void **state) {
    (void)state;
    static uint8_t payload[70000], out[70000];
    struct addr a4 = addr_ipv4(0xc6336407), b4 = addr_ipv4(0xc0000002), a6, b6;
    struct ip_packet packet;
    assert_int_equal(addr_parse("2001:db8::9", 11, &a6), 0);
    assert_int_equal(addr_parse("fd00::2", 7, &b6), 0);
    const struct {
        enum ip_echo kind;
        const struct addr *source, *destination;
        size_t header;
        uint8_t type, protocol;
    } rows[] = {
        {IP_ECHO_REQUEST, &b4, &a4, 20, 8, IPPROTO_ICMP},
        {IP_ECHO_REPLY, &a4, &b4, 20, 0, IPPROTO_ICMP},
        {IP_ECHO_REQUEST, &b6, &a6, 40, 128, IPPROTO_ICMPV6},
        {IP_ECHO_REPLY, &a6, &b6, 40, 129, IPPROTO_ICMPV6},
    };
    for (size_t i = 0; i < 4; i++) {
        size_t len = ip_write_echo(rows[i].kind, rows[i].source, rows[i].destination, 0x1234, 0xfedc,
                                   (const uint8_t *)"ping", 4, out, sizeof(out));
        assert_int_equal(len, rows[i].header + 12);
        assert_checksums(out, len);
        assert_int_equal(ip_packet_parse(out, len, &packet), WIRE_OK);
        assert_int_equal(packet.protocol, rows[i].protocol);
        assert_int_equal(packet.icmp_type, rows[i].type);
        assert_int_equal(packet.icmp_code, 0);
        assert_int_equal(packet.echo_identifier, 0x1234);
        assert_int_equal(packet.echo_sequence, 0xfedc);
        assert_true(addr_equal(&packet.source, rows[i].source) && addr_equal(&packet.destination, rows[i].destination));
        assert_int_equal(packet.payload, rows[i].header + 8);
        assert_memory_equal(out + packet.payload, "ping", 4);
    }
    assert_int_equal(ip_write_echo(IP_ECHO_REPLY, &a4, &b4, 1, 1, payload, 65507, out, sizeof(out)), 65535);
    assert_checksums(out, 65535);
    assert_int_equal(ip_write_echo(IP_ECHO_REPLY, &a4, &b4, 1, 1, payload, 65508, out, sizeof(out)), 0);
    assert_int_equal(ip_write_echo(IP_ECHO_REPLY, &a4, &b4, 1, 1, payload, 10, out, 37), 0);
    assert_int_equal(ip_write_echo(IP_ECHO_REPLY, &a4, &b6, 1, 1, payload, 0, out, sizeof(out)), 0);
}

static void test_fragment(void **state) {
    (void)state;
    static uint8_t payload[70000], whole[70000], first[70000], second[70000];
    struct addr a6, b6;
    struct ip_packet packet;
    assert_int_equal(addr_parse("2001:db8::9", 11, &a6), 0);
    assert_int_equal(addr_parse("fd00::2", 7, &b6), 0);
    for (size_t i = 0; i < sizeof(payload); i++) payload[i] = (uint8_t)(i * 7 + i / 256);
    size_t len = ip_write_udp(&a6, 7, &b6, 9, payload, 65527, whole, sizeof(whole));
    size_t first_len = ip_write_fragment(whole, len, 0x01020304, false, first, IP_PACKET_MAX);
    size_t second_len = ip_write_fragment(whole, len, 0x01020304, true, second, IP_PACKET_MAX);
    // All but the last carry a multiple of 8 bytes; together they carry everything.
    assert_int_equal((first_len - 48) % 8, 0);
    assert_int_equal(first_len - 48 + second_len - 48, len - 40);
    assert_memory_equal(first + 40, "\x11\0\0\1\1\2\3\4", 8);
    assert_int_equal(second[42] << 8 | second[43], first_len - 48);
    assert_memory_equal(second + 44, "\1\2\3\4", 4);
    assert_memory_equal(first + 48, whole + 40, first_len - 48);
    assert_memory_equal(second + 48, whole + first_len - 8, second_len - 48);
    assert_int_equal(ip_packet_parse(first, first_len, &packet), WIRE_OK);
    assert_true(packet.fragment && addr_equal(&packet.source, &a6) && addr_equal(&packet.destination, &b6));
    assert_int_equal(ip_packet_parse(second, second_len, &packet), WIRE_OK);
    assert_true(packet.fragment);
    assert_int_equal(ip_write_fragment(whole, len, 1, false, first, first_len - 1), 0);
    assert_int_equal(ip_write_fragment(whole, 1000, 1, false, first, sizeof(first)), 0); // needs none
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse),
        cmocka_unit_test(test_bad),
        cmocka_unit_test(test_extension_headers),
        cmocka_unit_test(test_fragments),
        cmocka_unit_test(test_reset),
        cmocka_unit_test(test_unreachable),
        cmocka_unit_test(test_unreachable_never),
        cmocka_unit_test(test_too_big),
        cmocka_unit_test(test_echo),
        cmocka_unit_test(test_fragment),
        cmocka_unit_test(test_udp),
        cmocka_unit_test(test_udp_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
