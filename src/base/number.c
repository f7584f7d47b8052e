// SPDX-License-Identifier: Apache-2.0
#include "base/number.h"

#include <errno.h>

int number_parse(const char *text, size_t len, uint64_t min, uint64_t max, uint64_t *ret_number) {
    if (len == 0 || (len > 1 && text[0] == '0')) return -EINVAL;
    uint64_t number = 0;
    int overflow = 0;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9') return -EINVAL;
        overflow |= __builtin_mul_overflow(number, 10, &number);
        overflow |= __builtin_add_overflow(number, (uint64_t)(text[i] - '0'), &number);
    }
    if (overflow || number < min || number > max) return -ERANGE;
    *ret_number = number;
    return 0;
}
