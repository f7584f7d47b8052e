// SPDX-License-Identifier: Apache-2.0
// libevent's HTTP client on a loop of its own: one request, then the end.
#include "cli/rest.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/mem.h"
#include "daemon/daemon.h"

#define REST_URL "http://127.0.0.1:8000"

struct rest {
    const struct rest_call *call;
    struct rest_answer *answer;
    struct event_base *base;
    struct buf bytes;
    bool failed;
    char why[200];
};

// ---- the answer ----

static void rest_lines(struct rest *rest) {
    char *end;
    while (rest->bytes.len > 0 && (end = memchr(rest->bytes.data, '\n', rest->bytes.len))) {
        *end = '\0';
        rest->call->line(rest->bytes.data, rest->call->data);
        buf_consume(&rest->bytes, (size_t)(end - rest->bytes.data) + 1);
    }
}

static void rest_chunk(struct evhttp_request *request, void *data) {
    struct rest *rest = data;
    struct evbuffer *input = evhttp_request_get_input_buffer(request);
    int status = evhttp_request_get_response_code(request);
    buf_append(&rest->bytes, evbuffer_pullup(input, -1), evbuffer_get_length(input));
    evbuffer_drain(input, evbuffer_get_length(input));
    if (rest->call->line && status >= 200 && status < 300) rest_lines(rest);
}

static char *rest_header(struct evhttp_request *request, const char *name) {
    const char *value = evhttp_find_header(evhttp_request_get_input_headers(request), name);
    return value ? strdup(value) : NULL;
}

static void rest_done(struct evhttp_request *request, void *data) {
    struct rest *rest = data;
    event_base_loopexit(rest->base, NULL);
    if (!request || evhttp_request_get_response_code(request) == 0) {
        rest->failed = true;
        if (!rest->why[0]) snprintf(rest->why, sizeof(rest->why), "no answer");
        return;
    }
    rest_chunk(request, rest);
    rest->answer->status = evhttp_request_get_response_code(request);
    rest->answer->next_token = rest_header(request, "x-next-token");
    rest->answer->warning = rest_header(request, "x-penstock-warning");
    AUTO_FREE char *generation = rest_header(request, "x-penstock-generation");
    AUTO_FREE char *closed = rest_header(request, "x-penstock-flows-closed"), *kept = rest_header(request, "x-penstock-flows-kept");
    if (generation && asprintf(&rest->answer->update, "policy %s is in force; %s flows closed, %s kept", generation,
                               closed ? closed : "0", kept ? kept : "0") < 0)
        rest->answer->update = NULL;
}

static void rest_error(enum evhttp_request_error error, void *data) {
    struct rest *rest = data;
    static const char *const words[] = {
        [EVREQ_HTTP_TIMEOUT] = "it took too long", [EVREQ_HTTP_EOF] = "the connection was closed",
        [EVREQ_HTTP_INVALID_HEADER] = "the answer is no HTTP", [EVREQ_HTTP_BUFFER_ERROR] = "the connection failed",
        [EVREQ_HTTP_REQUEST_CANCEL] = "it was given up", [EVREQ_HTTP_DATA_TOO_LONG] = "the answer is too long"};
    snprintf(rest->why, sizeof(rest->why), "%s", (size_t)error < ARRAY_LENGTH(words) && words[error] ? words[error] : "it failed");
}

// ---- the question ----

static const char *rest_url(void) {
    const char *url = getenv("PENSTOCK_API_URL");
    return url && *url ? url : REST_URL;
}

static void rest_print(const struct rest_call *call) {
    AUTO_FREE char *body = call->body ? json_dumps(call->body, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
    printf("curl -X %s -H \"X-API-Key: $PENSTOCK_API_KEY\"", call->method);
    if (body) {
        printf(" -H 'Content-Type: application/json' -d '");
        for (const char *at = body; *at; at++) printf(*at == '\'' ? "'\\''" : "%c", *at);
        printf("'");
    }
    printf(" '%s%s'\n", rest_url(), call->path);
}

static const struct {
    const char *word;
    enum evhttp_cmd_type type;
} rest_methods[] = {{"GET", EVHTTP_REQ_GET}, {"POST", EVHTTP_REQ_POST}, {"PUT", EVHTTP_REQ_PUT}, {"DELETE", EVHTTP_REQ_DELETE}};

static int rest_send(struct rest *rest, struct evhttp_connection *connection, const char *host, const char *prefix, struct error *err) {
    const struct rest_call *call = rest->call;
    enum evhttp_cmd_type type = EVHTTP_REQ_GET;
    AUTO_FREE char *key = NULL, *path = NULL, *body = call->body ? json_dumps(call->body, JSON_COMPACT) : NULL;
    struct evhttp_request *request = evhttp_request_new(rest_done, rest);
    int rc = request ? daemon_api_key(&key, err) : error_set(err, -ENOMEM, "out of memory");
    if (rc == 0 && asprintf(&path, "%s%s", prefix, call->path) < 0) rc = error_set(err, -ENOMEM, "out of memory");
    if (rc < 0) {
        if (request) evhttp_request_free(request);
        return rc;
    }
    struct evkeyvalq *headers = evhttp_request_get_output_headers(request);
    evhttp_add_header(headers, "Host", host);
    evhttp_add_header(headers, "X-API-Key", key);
    evhttp_add_header(headers, "Connection", "close");
    if (body) {
        evhttp_add_header(headers, "Content-Type", "application/json");
        evbuffer_add(evhttp_request_get_output_buffer(request), body, strlen(body));
    } else if (strcmp(call->method, "GET") != 0) {
        evhttp_add_header(headers, "Content-Length", "0");
    }
    evhttp_request_set_chunked_cb(request, rest_chunk);
    evhttp_request_set_error_cb(request, rest_error);
    for (size_t i = 0; i < ARRAY_LENGTH(rest_methods); i++)
        if (strcmp(call->method, rest_methods[i].word) == 0) type = rest_methods[i].type;
    return evhttp_make_request(connection, request, type, path) == 0 ? 0 : error_set(err, -EIO, "%s: cannot be asked", rest_url());
}

static int rest_run(struct rest *rest, struct error *err) {
    struct evhttp_uri *uri = evhttp_uri_parse(rest_url());
    const char *host = uri ? evhttp_uri_get_host(uri) : NULL, *scheme = uri ? evhttp_uri_get_scheme(uri) : NULL;
    int port = uri && evhttp_uri_get_port(uri) > 0 ? evhttp_uri_get_port(uri) : 80;
    int rc = 0;
    if (!host || !scheme || strcasecmp(scheme, "http") != 0)
        rc = error_set(err, -EINVAL, "PENSTOCK_API_URL \"%.200s\": expected http://HOST[:PORT]", rest_url());
    rest->base = event_base_new();
    struct evhttp_connection *connection = rc == 0 && rest->base ? evhttp_connection_base_new(rest->base, NULL, host, (unsigned short)port) : NULL;
    if (rc == 0 && !connection) rc = error_set(err, -ENOMEM, "out of memory");
    if (rc == 0) {
        AUTO_FREE char *prefix = strdup(evhttp_uri_get_path(uri) ? evhttp_uri_get_path(uri) : "");
        size_t len = prefix ? strlen(prefix) : 0;
        if (len > 0 && prefix[len - 1] == '/') prefix[len - 1] = '\0';
        evhttp_connection_set_timeout(connection, 3600);
        rc = rest_send(rest, connection, host, prefix ? prefix : "", err);
        if (rc == 0) event_base_dispatch(rest->base);
        if (rc == 0 && rest->failed)
            rc = error_set(err, -EIO, "%s: %s; is `penstock serve` running there (PENSTOCK_API_URL)?", rest_url(), rest->why);
    }
    if (connection) evhttp_connection_free(connection);
    if (rest->base) event_base_free(rest->base);
    if (uri) evhttp_uri_free(uri);
    return rc;
}

int rest_ask(const struct rest_call *call, struct rest_answer *ret_answer, struct error *err) {
    struct rest rest = {.call = call, .answer = ret_answer};
    *ret_answer = (struct rest_answer){0};
    if (call->print) {
        rest_print(call);
        return 0;
    }
    int rc = rest_run(&rest, err);
    if (rc == 0 && rest.bytes.len > 0) ret_answer->body = json_loadb(rest.bytes.data, rest.bytes.len, JSON_DECODE_ANY, NULL);
    if (rc == 0 && (ret_answer->status < 200 || ret_answer->status > 299)) {
        const char *message = json_string_value(json_object_get(ret_answer->body, "message"));
        rc = ret_answer->status == 401
                 ? error_set(err, -EIO, "the node does not take this API key; set PENSTOCK_API_KEY to its key (a file api-key in its "
                             "state folder)")
                 : error_set(err, -EIO, "%s", message ? message : "the node answered with an error");
    }
    buf_done(&rest.bytes);
    return rc;
}

void rest_answer_done(struct rest_answer *answer) {
    json_decref(answer->body);
    free(answer->next_token);
    free(answer->warning);
    free(answer->update);
    *answer = (struct rest_answer){0};
}

char *rest_escape(const char *text) { return evhttp_uriencode(text, -1, 0); }

// RFC 4648 section 4. What is not of it ends it.
void rest_write_base64(const char *text, FILE *file) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t bits = 0;
    for (int count = 0; *text && *text != '='; text++) {
        const char *digit = strchr(digits, *text);
        if (!digit) return;
        bits = bits << 6 | (uint32_t)(digit - digits);
        count += 6;
        if (count < 8) continue;
        count -= 8;
        putc((int)(bits >> count & 255), file);
    }
}
