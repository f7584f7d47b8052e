// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

// Copies text so that a terminal shows it as one line: control bytes (C0, DEL, and C1 as UTF-8) become \xNN.
static void error_store(struct error *err, const char *text) {
    static const char hex[] = "0123456789abcdef";
    size_t used = 0;
    for (const uint8_t *at = (const uint8_t *)text; *at; at++) {
        bool c1 = at[0] == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0;
        if (*at >= 0x20 && *at != 0x7f && !c1) {
            if (used + 1 >= sizeof(err->text)) break;
            err->text[used++] = (char)*at;
            continue;
        }
        if (c1) at++;
        if (used + 4 >= sizeof(err->text)) break;
        err->text[used++] = '\\';
        err->text[used++] = 'x';
        err->text[used++] = hex[*at >> 4];
        err->text[used++] = hex[*at & 15];
    }
    err->text[used] = '\0';
}

int error_set(struct error *err, int code, const char *format, ...) {
    if (!err) return code;
    char text[sizeof(err->text)];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    error_store(err, text);
    return code;
}

int error_context(struct error *err, int code, const char *format, ...) {
    if (!err) return code;
    char text[2 * sizeof(err->text) + 2]; // both whole; error_store cuts
    va_list args;
    va_start(args, format);
    int used = vsnprintf(text, sizeof(err->text), format, args);
    va_end(args);
    if (used < 0) used = 0;
    if ((size_t)used >= sizeof(err->text)) used = sizeof(err->text) - 1;
    snprintf(text + used, sizeof(text) - (size_t)used, ": %s", err->text);
    error_store(err, text);
    return code;
}
