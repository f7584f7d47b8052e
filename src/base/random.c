// SPDX-License-Identifier: Apache-2.0
#include "base/random.h"

#include <errno.h>
#include <sys/random.h>

void random_bytes(void *bytes, size_t len) {
    uint8_t *at = bytes;
    while (len > 0) {
        ssize_t got = getrandom(at, len, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) abort(); // no kernel that Penstock runs on lacks getrandom; guessable bytes would be worse
        at += got;
        len -= (size_t)got;
    }
}

uint32_t random_u32(void) {
    uint32_t number;
    random_bytes(&number, sizeof(number));
    return number;
}
