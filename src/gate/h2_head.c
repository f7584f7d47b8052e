// SPDX-License-Identifier: Apache-2.0
#include "gate/h2_head.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "gate/scrub.h"

#define H2_HEAD_FIELD 32 // RFC 9113 6.5.2

void h2_head_done(struct h2_head *head) {
    free(head->bytes);
    free(head->fields);
    *head = (struct h2_head){0};
}

static bool h2_head_grow(struct h2_head *head, size_t more) {
    size_t size = head->size ? head->size : 512;
    while (size < head->len + more) size *= 2;
    if (size > head->size) {
        uint8_t *bytes = realloc(head->bytes, size);
        if (!bytes) return false;
        head->bytes = bytes;
        head->size = size;
    }
    if (head->count < head->room) return true;
    size_t room = head->room ? 2 * head->room : 16;
    struct h2_field *fields = realloc(head->fields, room * sizeof(*fields));
    if (!fields) return false;
    head->fields = fields;
    head->room = room;
    return true;
}

static uint32_t h2_head_text(struct h2_head *head, struct wire_slice text) {
    uint32_t at = (uint32_t)head->len;
    if (text.len > 0) memcpy(head->bytes + at, text.data, text.len);
    head->len += text.len;
    return at;
}

int h2_head_add(struct h2_head *head, struct wire_slice name, struct wire_slice value, uint8_t flags) {
    size_t size = name.len + value.len + H2_HEAD_FIELD;
    if (head->too_large || size > H2_HEAD_MAX - head->list_size) {
        head->too_large = true;
        return 0;
    }
    if (!h2_head_grow(head, name.len + value.len)) return -ENOMEM;
    struct h2_field *field = &head->fields[head->count++];
    *field = (struct h2_field){.name_len = (uint32_t)name.len, .value_len = (uint32_t)value.len, .flags = flags};
    field->name = h2_head_text(head, name);
    field->value = h2_head_text(head, value);
    head->list_size += size;
    return 0;
}

static bool h2_head_named(const struct h2_head *head, const struct h2_field *field, const char *name) {
    return field->name_len == strlen(name) && memcmp(head->bytes + field->name, name, field->name_len) == 0;
}

struct wire_slice h2_head_find(const struct h2_head *head, const char *name) {
    for (size_t i = 0; i < head->count; i++) {
        const struct h2_field *field = &head->fields[i];
        if (h2_head_named(head, field, name)) return (struct wire_slice){head->bytes + field->value, field->value_len};
    }
    return (struct wire_slice){0};
}

unsigned h2_head_status(const struct h2_head *head) {
    struct wire_slice text = h2_head_find(head, ":status");
    unsigned status = 0;
    for (size_t i = 0; text.len == 3 && i < 3; i++) {
        if (text.data[i] < '0' || text.data[i] > '9') return 0;
        status = 10 * status + (unsigned)(text.data[i] - '0');
    }
    return status >= 100 ? status : 0;
}

void h2_head_scrub(struct h2_head *head, const struct scrub *scrub) {
    for (size_t i = 0; i < head->count; i++) {
        const struct h2_field *field = &head->fields[i];
        if (head->bytes[field->name] == ':') continue; // the status
        scrub_text(scrub, head->bytes + field->name, field->name_len);
        scrub_text(scrub, head->bytes + field->value, field->value_len);
    }
}

int h2_head_set(struct h2_head *head, const char *name, struct wire_slice value) {
    for (size_t i = 0; i < head->count; i++) {
        struct h2_field *field = &head->fields[i];
        bool other = field->value_len != value.len || memcmp(head->bytes + field->value, value.data, value.len) != 0;
        if (!other || !h2_head_named(head, field, name)) continue;
        if (!h2_head_grow(head, value.len)) return -ENOMEM;
        field->value = h2_head_text(head, value);
        field->value_len = (uint32_t)value.len;
    }
    return 0;
}

void h2_head_bar(struct h2_head *head, const struct injection *injection) {
    size_t kept = 0;
    for (size_t i = 0; i < head->count; i++) {
        const struct h2_field *field = &head->fields[i];
        if (!injection_bars(injection, head->bytes + field->name, field->name_len)) head->fields[kept++] = *field;
    }
    head->count = kept;
}

void h2_head_drop(struct h2_head *head, const struct h2_head *names) {
    size_t kept = 0;
    for (size_t i = 0; i < head->count; i++) {
        const struct h2_field *field = &head->fields[i];
        bool drop = false;
        for (size_t j = 0; !drop && j < names->count; j++) {
            const struct h2_field *name = &names->fields[j];
            drop = name->name_len == field->name_len &&
                   memcmp(names->bytes + name->name, head->bytes + field->name, field->name_len) == 0;
        }
        if (!drop) head->fields[kept++] = *field;
    }
    head->count = kept;
}

int h2_head_add_names(struct h2_head *head, const struct injection *injection) {
    for (size_t i = 0; i < injection->count; i++) {
        const char *header = injection->values[i].header;
        struct wire_slice name = {(const uint8_t *)header, strlen(header)};
        if (h2_head_add(head, name, (struct wire_slice){0}, 0) < 0 || head->too_large) return -ENOMEM;
        uint8_t *added = head->bytes + head->fields[head->count - 1].name;
        for (size_t j = 0; j < name.len; j++) added[j] |= added[j] >= 'A' && added[j] <= 'Z' ? 0x20 : 0;
    }
    return 0;
}

nghttp2_nv *h2_head_fields(const struct h2_head *head, const struct injection *injection, size_t *ret_count) {
    size_t count = 0, injected = injection ? injection->count : 0;
    nghttp2_nv *list = NEW_ARRAY(nghttp2_nv, head->count + injected);
    if (!list) return NULL;
    for (size_t i = 0; i < head->count; i++) {
        const struct h2_field *field = &head->fields[i];
        list[count++] = (nghttp2_nv){head->bytes + field->name, head->bytes + field->value, field->name_len,
                                     field->value_len, field->flags};
    }
    for (size_t i = 0; i < injected; i++) {
        const struct injection_value *value = &injection->values[i];
        uint8_t flags = NGHTTP2_NV_FLAG_NO_INDEX | NGHTTP2_NV_FLAG_NO_COPY_VALUE;
        // nghttp2 copies the name, in lower case, and only reads the value.
        list[count++] = (nghttp2_nv){(uint8_t *)(uintptr_t)value->header, (uint8_t *)(uintptr_t)value->bytes,
                                     strlen(value->header), value->len, flags};
    }
    *ret_count = count;
    return list;
}
