// SPDX-License-Identifier: Apache-2.0
#include "wire/http1_field.h"
#include "base/number.h"

#include <strings.h>

// The fields that are interpreted, collected before any conclusion: their order in a head must not matter.
struct facts {
    int hosts, lengths, encodings, expects;
    bool close, keep_alive, connection_upgrade;
    bool upgrade, http2_settings, expects_other;
    struct wire_slice upgrade_value;
};

bool http1_field_is(struct wire_slice slice, const char *text) {
    return slice.len == strlen(text) && strncasecmp((const char *)slice.data, text, slice.len) == 0;
}

static bool is_exactly(struct wire_slice slice, const char *text) {
    return slice.len == strlen(text) && memcmp(slice.data, text, slice.len) == 0;
}

static bool starts_with(struct wire_slice slice, const char *text) {
    return slice.len >= strlen(text) && strncasecmp((const char *)slice.data, text, strlen(text)) == 0;
}

static struct wire_slice slice_from(struct wire_slice slice, size_t offset) {
    return (struct wire_slice){slice.data + offset, slice.len - offset};
}

static struct wire_slice slice_trim(struct wire_slice slice) {
    while (slice.len && (slice.data[0] == ' ' || slice.data[0] == '\t')) slice = slice_from(slice, 1);
    while (slice.len && (slice.data[slice.len - 1] == ' ' || slice.data[slice.len - 1] == '\t')) slice.len--;
    return slice;
}

// The next element of a comma-separated list (RFC 9110 5.6.1); false at its end.
static bool next_element(struct wire_slice *list, struct wire_slice *ret_element) {
    if (list->len == 0) return false;
    const uint8_t *comma = memchr(list->data, ',', list->len);
    size_t len = comma ? (size_t)(comma - list->data) : list->len;
    *ret_element = slice_trim((struct wire_slice){list->data, len});
    *list = slice_from(*list, comma ? len + 1 : len);
    return true;
}

// "host" or "host:port" as bytes that no reader takes for something else; the gate makes the canonical name of it.
static bool authority_plausible(struct wire_slice authority) {
    for (size_t i = 0; i < authority.len; i++) {
        uint8_t byte = authority.data[i];
        if (byte <= ' ' || byte >= 0x7f || strchr("@/\\?#%<>\"{}|^`", byte)) return false;
    }
    return authority.len > 0;
}

static bool target_absolute(struct http1_head *head, size_t scheme_len) {
    head->form = HTTP1_FORM_ABSOLUTE;
    struct wire_slice rest = slice_from(head->target, scheme_len);
    const uint8_t *slash = memchr(rest.data, '/', rest.len);
    size_t len = slash ? (size_t)(slash - rest.data) : rest.len;
    head->authority = (struct wire_slice){rest.data, len};
    head->path = slice_from(rest, len);
    // RFC 9112 3.2.1 and 3.2.4: what to send upstream when there is no path. A query without one fails as an authority.
    if (!slash) head->path = (struct wire_slice){(const uint8_t *)(is_exactly(head->method, "OPTIONS") ? "*" : "/"), 1};
    return authority_plausible(head->authority);
}

static bool is_digit(uint8_t byte) { return byte >= '0' && byte <= '9'; }

static bool target_authority(struct http1_head *head) {
    head->form = HTTP1_FORM_AUTHORITY;
    head->authority = head->target;
    size_t colon = head->target.len;
    while (colon > 0 && is_digit(head->target.data[colon - 1])) colon--;
    bool port = colon > 1 && colon < head->target.len && head->target.data[colon - 1] == ':';
    return port && authority_plausible(head->authority);
}

bool http1_field_target(struct http1_head *head) {
    if (head->target.len == 0 || memchr(head->target.data, '#', head->target.len)) return false;
    if (is_exactly(head->method, "CONNECT")) return target_authority(head);
    if (head->target.data[0] == '/') {
        head->form = HTTP1_FORM_ORIGIN;
        head->path = head->target;
        return true;
    }
    if (is_exactly(head->target, "*")) {
        head->form = HTTP1_FORM_ASTERISK;
        head->path = head->target;
        return is_exactly(head->method, "OPTIONS");
    }
    head->absolute_https = starts_with(head->target, "https://");
    if (head->absolute_https) return target_absolute(head, strlen("https://"));
    return starts_with(head->target, "http://") && target_absolute(head, strlen("http://"));
}

static bool read_length(struct wire_slice value, struct http1_head *head) {
    return number_parse((const char *)value.data, value.len, 0, INT64_MAX, &head->content_length) == 0;
}

static void read_connection(struct wire_slice list, struct facts *facts) {
    for (struct wire_slice element; next_element(&list, &element);) {
        if (http1_field_is(element, "close")) facts->close = true;
        if (http1_field_is(element, "keep-alive")) facts->keep_alive = true;
        if (http1_field_is(element, "upgrade")) facts->connection_upgrade = true;
    }
}

static bool read_field(const struct http1_header *header, struct http1_head *head, struct facts *facts) {
    struct wire_slice name = header->name, value = header->value;
    if (http1_field_is(name, "host")) {
        head->host = value;
        head->has_host = true;
        return ++facts->hosts == 1;
    }
    if (http1_field_is(name, "content-length")) return ++facts->lengths == 1 && read_length(value, head);
    if (http1_field_is(name, "transfer-encoding")) return ++facts->encodings == 1 && http1_field_is(value, "chunked");
    if (http1_field_is(name, "connection")) read_connection(value, facts);
    if (http1_field_is(name, "http2-settings")) facts->http2_settings = true;
    if (http1_field_is(name, "expect")) {
        facts->expects++;
        if (!http1_field_is(value, "100-continue")) facts->expects_other = true;
    }
    if (http1_field_is(name, "upgrade")) {
        if (facts->upgrade) return false;
        facts->upgrade = true;
        facts->upgrade_value = value;
    }
    return true;
}

static void read_upgrade(struct http1_head *head, const struct facts *facts) {
    head->upgrade_h2c = facts->http2_settings;
    struct wire_slice list = facts->upgrade_value;
    for (struct wire_slice element; next_element(&list, &element);)
        if (starts_with(element, "h2c")) head->upgrade_h2c = true;
    // RFC 9110 7.8: without the connection option, or in HTTP/1.0, the field asks for nothing.
    if (!facts->upgrade || !facts->connection_upgrade || head->minor_version == 0) return;
    head->upgrade_websocket = http1_field_is(facts->upgrade_value, "websocket") && is_exactly(head->method, "GET");
    head->upgrade_other = !head->upgrade_websocket && !head->upgrade_h2c;
}

static bool frame_request(struct http1_head *head, const struct facts *facts) {
    if (facts->encodings)
        head->framing = HTTP1_BODY_CHUNKED;
    else if (facts->lengths)
        head->framing = HTTP1_BODY_LENGTH;
    if (!is_exactly(head->method, "CONNECT")) return true;
    // RFC 9110 9.3.6: content of CONNECT means nothing; some would read it as the first bytes of the tunnel.
    bool content = facts->encodings || head->content_length > 0;
    head->framing = HTTP1_BODY_NONE;
    return !content;
}

// RFC 9112 6.3, in its order.
static bool frame_response(const struct http1 *http1, struct http1_head *head, const struct facts *facts) {
    bool informational = head->status < 200, tunnel = http1->is_connect && head->status / 100 == 2;
    if (informational || head->status == 204 || tunnel) {
        // RFC 9110 8.6, RFC 9112 6.1: neither field may be there; who heeds them would take what follows for a body.
        return !facts->encodings && head->content_length == 0;
    }
    if (http1->is_head || head->status == 304) return true;
    if (facts->encodings)
        head->framing = HTTP1_BODY_CHUNKED;
    else if (facts->lengths)
        head->framing = HTTP1_BODY_LENGTH;
    else
        head->framing = HTTP1_BODY_UNTIL_CLOSE;
    return true;
}

bool http1_field_read(const struct http1 *http1, struct http1_head *head) {
    struct facts facts = {0};
    for (size_t i = 0; i < head->header_count; i++)
        if (!read_field(&head->headers[i], head, &facts)) return false;
    if (facts.encodings && (facts.lengths || head->minor_version == 0)) return false; // RFC 9112 6.1
    head->framing = HTTP1_BODY_NONE;
    bool framed = http1->kind == HTTP1_REQUEST ? frame_request(head, &facts) : frame_response(http1, head, &facts);
    if (!framed) return false;
    if (http1->kind == HTTP1_REQUEST) {
        if (facts.expects_other || facts.expects > 1) return false;
        head->expect_continue = facts.expects > 0;
        read_upgrade(head, &facts);
    }
    head->keep_alive =
        !facts.close && (head->minor_version == 1 || facts.keep_alive) && head->framing != HTTP1_BODY_UNTIL_CLOSE;
    return true;
}
