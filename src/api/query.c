// SPDX-License-Identifier: Apache-2.0
#include "api/query.h"

#include <errno.h>

#include "base/mem.h"
#include "base/number.h"

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

char *query_decode(const void *bytes, size_t len, bool plus) {
    const char *text = bytes;
    char *decoded = malloc(len + 1);
    size_t used = 0;
    bool good = decoded != NULL;
    for (size_t i = 0; good && i < len; i++) {
        char c = text[i];
        if (c == '%') {
            int high = i + 2 < len ? hex_digit(text[i + 1]) : -1;
            int low = i + 2 < len ? hex_digit(text[i + 2]) : -1;
            good = high >= 0 && low >= 0;
            c = good ? (char)(high * 16 + low) : c;
            i += 2;
        } else if (c == '+' && plus) {
            c = ' ';
        }
        good &= c != '\0';
        decoded[used++] = c;
    }
    if (!good) {
        free(decoded);
        return NULL;
    }
    decoded[used] = '\0';
    return decoded;
}

static int read_one(struct api_request *request, const char *text, size_t len, struct error *err) {
    const char *equals = memchr(text, '=', len);
    size_t name_len = equals ? (size_t)(equals - text) : len;
    if (request->query_count == API_QUERY_MAX)
        return error_set(err, -EINVAL, "the query has more than %d parameters; send fewer", API_QUERY_MAX);
    struct api_query *query = &request->query[request->query_count++];
    query->name = query_decode(text, name_len, true);
    query->value = equals ? query_decode(equals + 1, len - name_len - 1, true) : strdup("");
    return query->name && query->value ? 0 : error_set(err, -EINVAL, "the query is not well escaped");
}

int query_read(struct api_request *request, struct wire_slice query, struct error *err) {
    const char *at = (const char *)query.data;
    for (size_t left = query.len; left > 0;) {
        const char *end = memchr(at, '&', left);
        size_t len = end ? (size_t)(end - at) : left;
        int r = len ? read_one(request, at, len, err) : 0;
        if (r < 0) return r;
        size_t step = len + (end ? 1 : 0);
        at += step;
        left -= step;
    }
    return 0;
}

const char *query_get(const struct api_request *request, const char *name) {
    for (size_t i = 0; i < request->query_count; i++)
        if (strcmp(request->query[i].name, name) == 0) return request->query[i].value;
    return NULL;
}

bool query_is_true(const struct api_request *request, const char *name) {
    const char *value = query_get(request, name);
    return value && (strcmp(value, "1") == 0 || strcmp(value, "true") == 0);
}

// ---- metadata ----

// Decodes in place; false: malformed.
static bool decode_in_place(char *text) {
    AUTO_FREE char *decoded = query_decode(text, strlen(text), true);
    if (decoded) memcpy(text, decoded, strlen(decoded) + 1); // never longer
    return decoded != NULL;
}

int query_metadata(const char *value, char **ret_text, struct store_pair ret_pairs[QUERY_PAIRS_MAX], size_t *ret_count,
                   struct error *err) {
    AUTO_FREE char *text = query_decode(value, strlen(value), true);
    size_t count = 0;
    if (!text) return error_set(err, -EINVAL, "the metadata filter is not well escaped");
    for (char *rest = text, *pair; (pair = strsep(&rest, "&")) != NULL;) {
        char *key = strsep(&pair, "=");
        if (*key == '\0') continue;
        if (!pair) return error_set(err, -EINVAL, "the metadata filter has a key without a value: write key=value");
        if (count == QUERY_PAIRS_MAX)
            return error_set(err, -EINVAL, "the metadata filter has more than %d pairs; send fewer", QUERY_PAIRS_MAX);
        if (!decode_in_place(key) || !decode_in_place(pair))
            return error_set(err, -EINVAL, "the metadata filter is not well escaped");
        ret_pairs[count++] = (struct store_pair){key, pair};
    }
    *ret_count = count;
    *ret_text = TAKE_POINTER(text);
    return 0;
}

// ---- lists ----

int query_states(const char *value, unsigned *ret_states, struct error *err) {
    unsigned states = 0;
    for (const char *at = value; *at;) {
        size_t len = strcspn(at, ",");
        if (len == 7 && memcmp(at, "running", len) == 0)
            states |= 1u << STORE_RUNNING;
        else if (len == 6 && memcmp(at, "paused", len) == 0)
            states |= 1u << STORE_PAUSED;
        else
            return error_set(err, -EINVAL, "state \"%.*s\" is unknown; the states are running and paused", (int)len, at);
        at += len + (at[len] == ',');
    }
    *ret_states = states;
    return 0;
}

int query_limit(const struct api_request *request, size_t *ret_limit, struct error *err) {
    const char *text = query_get(request, "limit");
    uint64_t limit = STORE_LIST_MAX;
    if (text && number_parse(text, strlen(text), 1, STORE_LIST_MAX, &limit) < 0)
        return error_set(err, -EINVAL, "limit \"%s\" must be a number from 1 to %d", text, STORE_LIST_MAX);
    *ret_limit = (size_t)limit;
    return 0;
}

int query_page(const struct api_request *request, int64_t *ret_us, const char **ret_id, struct error *err) {
    const char *token = query_get(request, "nextToken");
    uint64_t number;
    *ret_id = NULL;
    if (!token || !*token) return 0;
    const char *line = strchr(token, '_');
    if (!line || number_parse(token, (size_t)(line - token), 0, INT64_MAX, &number) < 0 || !line[1])
        return error_set(err, -EINVAL, "invalid next token: send it as x-next-token gave it");
    *ret_us = (int64_t)number;
    *ret_id = line + 1;
    return 0;
}

void query_next(struct api_call *call, int64_t time_us, const char *id) {
    call_header(call, "x-next-token", "%lld_%s", (long long)time_us, id);
}

int query_time(const char *text, int64_t *ret_us) {
    struct tm tm = {0};
    const char *end = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    int64_t us = 0, offset = 0;
    if (!end) return -EINVAL;
    if (*end == '.') {
        int64_t unit = 100000;
        for (end++; *end >= '0' && *end <= '9'; end++, unit /= 10) us += (*end - '0') * unit;
    }
    if (*end == '+' || *end == '-') {
        int hours, minutes;
        if (sscanf(end + 1, "%2d:%2d", &hours, &minutes) != 2 || strlen(end) != 6) return -EINVAL;
        offset = (hours * 60 + minutes) * (*end == '+' ? 60 : -60);
    } else if ((*end != 'Z' && *end != 'z') || end[1]) {
        return -EINVAL;
    }
    *ret_us = ((int64_t)timegm(&tm) - offset) * 1000000 + us;
    return 0;
}
