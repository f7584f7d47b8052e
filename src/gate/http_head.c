// SPDX-License-Identifier: Apache-2.0
// Heads of requests as they go upstream.
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "gate/http_relay.h"

struct http_head_sink {
    uint8_t *bytes; // NULL: only the length is wanted
    size_t len;
};

static void http_head_put(struct http_head_sink *sink, const void *bytes, size_t len) {
    if (sink->bytes && len > 0) memcpy(sink->bytes + sink->len, bytes, len);
    sink->len += len;
}

static void http_head_text(struct http_head_sink *sink, const char *text) { http_head_put(sink, text, strlen(text)); }

static bool http_head_named(const struct wire_slice *name, const char *text) {
    return name->len == strlen(text) && strncasecmp((const char *)name->data, text, name->len) == 0;
}

// Fields for a proxy. What else begins like this is one only in a request in the form that proxies get.
static bool http_head_for_proxy(const struct wire_slice *name, const struct http1_head *head) {
    static const char field[] = "proxy-connection";
    size_t len = head->form == HTTP1_FORM_ABSOLUTE ? strlen("proxy-") : strlen(field);
    bool fits = head->form == HTTP1_FORM_ABSOLUTE ? name->len >= len : name->len == len;
    return fits && strncasecmp((const char *)name->data, field, len) == 0;
}

static bool http_head_stays(const struct http1_head *head, const struct wire_slice *name,
                            const struct injection *injection) {
    if (http_head_for_proxy(name, head)) return false;
    if (head->upgrade_h2c && (http_head_named(name, "upgrade") || http_head_named(name, "http2-settings"))) return false;
    if (head->form == HTTP1_FORM_ABSOLUTE && http_head_named(name, "host")) return false;
    return !injection || !injection_bars(injection, name->data, name->len);
}

// The next option of a Connection field; false: there is none. Blanks part them as well, whatever a server makes of that.
static bool http_head_option(struct wire_slice *rest, struct wire_slice *ret_option) {
    size_t from = 0, to;
    while (from < rest->len && strchr(", \t", rest->data[from])) from++;
    for (to = from; to < rest->len && !strchr(", \t", rest->data[to]);) to++;
    if (to == from) return false;
    *ret_option = (struct wire_slice){rest->data + from, to - from};
    *rest = (struct wire_slice){rest->data + to, rest->len - to};
    return true;
}

// Only options that are no names of fields go on: what is named there a proxy in front of the server would take out, be it
// a credential or the framing.
static void http_head_connection(struct http_head_sink *sink, struct wire_slice value, bool upgrades) {
    static const char *const known[] = {"close", "keep-alive", "te", "upgrade"}; // the last one if upgrades
    const size_t count = ARRAY_LENGTH(known) - (upgrades ? 0 : 1);
    const char *before = "Connection: ", *after = "";
    for (struct wire_slice option; http_head_option(&value, &option);) {
        bool stays = false;
        for (size_t i = 0; i < count; i++) stays |= http_head_named(&option, known[i]);
        if (!stays) continue;
        http_head_text(sink, before);
        http_head_put(sink, option.data, option.len);
        before = ", ";
        after = "\r\n";
    }
    http_head_text(sink, after);
}

// Where the line that begins here ends: behind its line feed, which is there (http1.h refuses others within a head).
static const uint8_t *http_head_line_end(const uint8_t *line, const uint8_t *end) {
    const uint8_t *feed = memchr(line, '\n', (size_t)(end - line));
    return feed ? feed + 1 : end;
}

static void http_head_host(struct http_head_sink *sink, const void *host, size_t len) {
    http_head_text(sink, "Host: ");
    http_head_put(sink, host, len);
    http_head_put(sink, "\r\n", 2);
}

static void http_head_first_line(struct http_head_sink *sink, const uint8_t *bytes, const struct http1_head *head) {
    const char version[] = {' ', 'H', 'T', 'T', 'P', '/', '1', '.', (char)('0' + head->minor_version), '\r', '\n'};
    if (head->form != HTTP1_FORM_ABSOLUTE) {
        http_head_put(sink, bytes, (size_t)(http_head_line_end(bytes, bytes + head->len) - bytes));
        return;
    }
    http_head_put(sink, head->method.data, head->method.len);
    http_head_put(sink, " ", 1);
    http_head_put(sink, head->path.data, head->path.len);
    http_head_put(sink, version, sizeof(version));
}

static void http_head_values(struct http_head_sink *sink, const struct injection *injection) {
    for (size_t i = 0; i < injection->count; i++) {
        http_head_text(sink, injection->values[i].header);
        http_head_put(sink, ": ", 2);
        http_head_put(sink, injection->values[i].bytes, injection->values[i].len);
        http_head_put(sink, "\r\n", 2);
    }
}

size_t http_head_inject(uint8_t *out, const uint8_t *bytes, const struct http1_head *head,
                        const struct injection *injection, const char *host) {
    struct http_head_sink sink = {.bytes = out};
    bool absolute = head->form == HTTP1_FORM_ABSOLUTE;
    http_head_first_line(&sink, bytes, head);
    if (absolute && host) http_head_host(&sink, host, strlen(host));
    else if (absolute) http_head_host(&sink, head->authority.data, head->authority.len);
    for (size_t i = 0; i < head->header_count; i++) {
        const struct http1_header *header = &head->headers[i];
        const uint8_t *line = header->name.data;
        if (!http_head_stays(head, &header->name, injection)) continue;
        if ((injection || head->upgrade_h2c) && http_head_named(&header->name, "connection"))
            http_head_connection(&sink, header->value, !head->upgrade_h2c);
        else if (host && http_head_named(&header->name, "host")) http_head_host(&sink, host, strlen(host));
        else http_head_put(&sink, line, (size_t)(http_head_line_end(line, bytes + head->len) - line));
    }
    if (injection) http_head_values(&sink, injection);
    if (injection_scrubs(injection)) http_head_text(&sink, "Accept-Encoding: identity\r\n");
    http_head_put(&sink, "\r\n", 2);
    return sink.len;
}

bool http_head_write(struct evbuffer *out, const uint8_t *bytes, const struct http1_head *head) {
    bool plain = head->form != HTTP1_FORM_ABSOLUTE && !head->upgrade_h2c;
    for (size_t i = 0; plain && i < head->header_count; i++) plain = !http_head_for_proxy(&head->headers[i].name, head);
    if (plain) return evbuffer_add(out, bytes, head->len) == 0;
    struct evbuffer_iovec space;
    size_t len = http_head_inject(NULL, bytes, head, NULL, NULL);
    if (evbuffer_reserve_space(out, (ev_ssize_t)len, &space, 1) != 1) return false;
    space.iov_len = http_head_inject(space.iov_base, bytes, head, NULL, NULL);
    return evbuffer_commit_space(out, &space, 1) == 0;
}
