// SPDX-License-Identifier: Apache-2.0
// Numbers from text: strict, locale-free, bounded.
#pragma once

#include <stddef.h>
#include <stdint.h>

// Decimal digits only, no sign, no blank, no leading zero (but "0"). 0, -EINVAL, or -ERANGE if outside min to max.
int number_parse(const char *text, size_t len, uint64_t min, uint64_t max, uint64_t *ret_number);
