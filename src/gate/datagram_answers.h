// SPDX-License-Identifier: Apache-2.0
// DNS answers on their way to the sandbox, as packets for the raw sockets: those of one turn of the loop go out in one call,
// or as soon as there is no room for more.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "gate/exchange.h"

#define DATAGRAM_DNS_MAX 4096 // bytes of a DNS message over UDP that anybody sends; longer ones are cut and refused

struct gate;
struct answers;

struct answers *answers_new(struct gate *gate); // NULL: out of memory
void answers_free(struct answers *answers);     // NULL is fine
// To the key's client, from the server that it asked. One that is longer is dropped.
void answers_add(struct answers *answers, const struct exchange_key *key, const uint8_t *answer, size_t len);
