// SPDX-License-Identifier: Apache-2.0
// IP: a packet that parses is given its checksum, and what answers it must parse too and come from where it went.
#include "wire/ip.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_answer(uint8_t *bytes, size_t len, const struct ip_packet *packet) {
    struct ip_packet answer;
    if (len == 0) return;
    if (ip_packet_parse(bytes, len, &answer) != WIRE_OK || answer.len != len) abort();
    if (!addr_equal(&answer.source, &packet->destination) || !addr_equal(&answer.destination, &packet->source)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *copy = malloc(size ? size : 1), out[1500];
    struct ip_packet packet;
    if (!copy) abort();
    if (size) memcpy(copy, data, size);
    if (ip_packet_parse(copy, size, &packet) == WIRE_OK) {
        if (packet.payload > packet.len || packet.transport > packet.payload || packet.len > size) abort();
        ip_packet_checksum(&packet);
        check_answer(out, ip_write_reset(&packet, out, sizeof(out)), &packet);
        check_answer(out, ip_write_unreachable(&packet, IP_UNREACHABLE_PROHIBITED, out, sizeof(out)), &packet);
        check_answer(out, ip_write_unreachable(&packet, IP_UNREACHABLE_PORT, out, size % 200), &packet);
        check_answer(out, ip_write_too_big(&packet, 1280, out, sizeof(out)), &packet);
        check_answer(out, ip_write_echo(IP_ECHO_REPLY, &packet.destination, &packet.source, 1, packet.echo_sequence, copy,
                                        size, out, sizeof(out)), &packet);
        check_answer(out, ip_write_udp(&packet.destination, 53, &packet.source, 9, copy, size, out, sizeof(out)),
                     &packet);
    }
    free(copy);
    return 0;
}
