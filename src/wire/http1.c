// SPDX-License-Identifier: Apache-2.0
// Theory of operation: a head is read three times, each time for another reason, and all must agree.
// First, the line checker (http1_line.c) goes over its bytes once, as they come: it finds the end, and refuses
// everything on which readers differ at the level of bytes. A head that comes in many pieces is still checked in linear
// time. Second, llhttp parses the whole head and gives the slices; the first line is compared with what it found.
// Third, the fields are interpreted (http1_field.c). llhttp's own conclusions about framing are not used.
// llhttp keeps its leniency flags off; where its rules are looser than ours, the checker has spoken before.
#include "wire/http1.h"
#include "wire/http1_field.h"
#include "wire/http1_line.h"

void http1_init(struct http1 *http1, enum http1_kind kind, struct wire_slice request_method) {
    *http1 = (struct http1){.kind = kind, .state = HTTP1_LINE_FIRST};
    http1->is_head = http1_field_is(request_method, "HEAD");
    http1->is_connect = http1_field_is(request_method, "CONNECT");
}

// llhttp gives one slice in one or more spans that touch each other.
static int extend(struct wire_slice *slice, const char *at, size_t len) {
    if (slice->data == NULL)
        slice->data = (const uint8_t *)at;
    else if (slice->data + slice->len != (const uint8_t *)at)
        return -1;
    slice->len += len;
    return 0;
}

static struct http1_head *head_of(llhttp_t *parser) { return ((struct http1 *)parser->data)->head; }

static int on_method(llhttp_t *parser, const char *at, size_t len) { return extend(&head_of(parser)->method, at, len); }
static int on_url(llhttp_t *parser, const char *at, size_t len) { return extend(&head_of(parser)->target, at, len); }

static int on_name(llhttp_t *parser, const char *at, size_t len) {
    struct http1_head *head = head_of(parser);
    if (head->header_count == HTTP1_HEADERS_MAX) return -1;
    return extend(&head->headers[head->header_count].name, at, len);
}

static int on_value(llhttp_t *parser, const char *at, size_t len) {
    struct http1_head *head = head_of(parser);
    if (head->header_count == HTTP1_HEADERS_MAX) return -1;
    return extend(&head->headers[head->header_count].value, at, len);
}

static int on_value_complete(llhttp_t *parser) {
    struct http1_head *head = head_of(parser);
    struct wire_slice *value = &head->headers[head->header_count++].value;
    while (value->len && (value->data[0] == ' ' || value->data[0] == '\t')) value->data++, value->len--;
    while (value->len && (value->data[value->len - 1] == ' ' || value->data[value->len - 1] == '\t')) value->len--;
    return 0;
}

// The parser is not asked about bodies.
static int on_headers_complete(llhttp_t *parser) {
    (void)parser;
    return HPE_PAUSED;
}

static const llhttp_settings_t settings = {
    .on_method = on_method,
    .on_url = on_url,
    .on_header_field = on_name,
    .on_header_value = on_value,
    .on_header_value_complete = on_value_complete,
    .on_headers_complete = on_headers_complete,
};

// "METHOD SP target SP HTTP/1.x" and nothing else: no other blanks, no control bytes.
static bool request_line_exact(const uint8_t *line, const struct http1_head *head) {
    const uint8_t *end = memchr(line, '\r', head->len);
    size_t len = (size_t)(end - line);
    if (head->method.data != line || head->target.data != line + head->method.len + 1) return false;
    if (len != head->method.len + 1 + head->target.len + strlen(" HTTP/1.x")) return false;
    for (size_t i = 0; i < head->target.len; i++)
        if (head->target.data[i] <= ' ') return false;
    return line[head->method.len] == ' ' && memcmp(end - 9, " HTTP/1.", 8) == 0;
}

// "HTTP/1.x SP 3DIGIT [SP reason]".
static bool status_line_exact(const uint8_t *line, const struct http1_head *head) {
    const uint8_t *end = memchr(line, '\r', head->len);
    size_t len = (size_t)(end - line);
    if (len < strlen("HTTP/1.x 200") || memcmp(line, "HTTP/1.", 7) != 0 || line[8] != ' ') return false;
    return (len == 12 || line[12] == ' ') && head->status >= 100 && head->status <= 599;
}

static bool parse_head(struct http1 *http1, const uint8_t *bytes, struct http1_head *head) {
    http1->head = head;
    llhttp_init(&http1->parser, http1->kind == HTTP1_REQUEST ? HTTP_REQUEST : HTTP_RESPONSE, &settings);
    http1->parser.data = http1;
    llhttp_errno_t error = llhttp_execute(&http1->parser, (const char *)bytes, head->len);
    http1->head = NULL;
    if (error != HPE_PAUSED || http1->parser.http_major != 1 || http1->parser.http_minor > 1) return false;
    head->minor_version = http1->parser.http_minor;
    head->status = http1->kind == HTTP1_RESPONSE ? http1->parser.status_code : 0;
    if (http1->kind == HTTP1_RESPONSE) return status_line_exact(bytes, head);
    return request_line_exact(bytes, head) && http1_field_target(head);
}

static enum wire_result scan(struct http1 *http1, const uint8_t *bytes, size_t len) {
    if (len > HTTP1_HEAD_MAX) len = HTTP1_HEAD_MAX;
    enum http1_line state = (enum http1_line)http1->state;
    while (http1->scanned < len && state != HTTP1_LINE_DONE && state != HTTP1_LINE_BAD) {
        http1->scanned += http1_line_run(state, bytes + http1->scanned, len - http1->scanned);
        if (http1->scanned < len) state = http1_line_next(state, bytes[http1->scanned++]);
    }
    http1->state = state;
    if (state == HTTP1_LINE_DONE) return WIRE_OK;
    return state == HTTP1_LINE_BAD || http1->scanned == HTTP1_HEAD_MAX ? WIRE_BAD : WIRE_MORE;
}

enum wire_result http1_head(struct http1 *http1, const uint8_t *bytes, size_t len, struct http1_head *ret_head) {
    enum wire_result result = scan(http1, bytes, len);
    if (result != WIRE_OK) return result;
    memset(ret_head, 0, sizeof(*ret_head));
    ret_head->len = http1->scanned;
    if (!parse_head(http1, bytes, ret_head) || !http1_field_read(http1, ret_head)) {
        http1->state = HTTP1_LINE_BAD;
        return WIRE_BAD;
    }
    http1->framing = ret_head->framing;
    http1->no_body = ret_head->framing == HTTP1_BODY_NONE;
    http1->body_left = ret_head->framing == HTTP1_BODY_LENGTH ? ret_head->content_length : 0;
    http1->line_len = 0;
    http1->state = 0; // of the body: CHUNK_SIZE_FIRST
    return WIRE_OK;
}
