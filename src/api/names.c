// SPDX-License-Identifier: Apache-2.0
#include "api/names.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>

int names_read(const char *text, char ret_name[NAMES_MAX + 1], struct error *err) {
    const char *tag = strchr(text, ':');
    size_t len = tag ? (size_t)(tag - text) : strlen(text);
    if (tag && strcmp(tag, ":default") != 0)
        return error_set(err, -EINVAL, "name \"%s\" has a tag, which is not supported; use a name without \":\"", text);
    bool good = len > 0 && len <= NAMES_MAX && isalnum((unsigned char)text[0]);
    for (size_t i = 0; good && i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        good = isalnum(c) || (c && strchr("._-/", c) && i + 1 < len && !(c == '/' && text[i + 1] == '/'));
        ret_name[i] = (char)tolower(c);
    }
    if (!good)
        return error_set(err, -EINVAL,
                         "name \"%s\" is not valid; use at most %d letters, digits, \".\", \"_\", \"-\" and \"/\"", text,
                         NAMES_MAX);
    ret_name[len] = '\0';
    return 0;
}
