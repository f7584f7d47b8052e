// SPDX-License-Identifier: Apache-2.0
// The server's side of the HTTP/1 relay: what it answers goes back as it came.
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "gate/http_relay.h"

// Two plain connections: the kernel relays the rest.
static void http_response_splice(struct http_relay *http) {
    struct flow *flow = http->flow;
    struct evbuffer *back = stream_output(http->client);
    bool whole = evbuffer_add_buffer(back, stream_input(http->server)) == 0;
    size_t back_len = evbuffer_get_length(back);
    AUTO_FREE uint8_t *back_bytes = malloc(back_len + 1);
    if (!whole || !back_bytes) {
        flow_end(flow, true);
        return;
    }
    evbuffer_remove(back, back_bytes, back_len);
    int upstream = stream_take_fd(TAKE_POINTER(http->server));
    bool given = http_relay_give_back(http);
    flow->upstream = upstream;
    if (given) flow_relay(flow, back_bytes, back_len);
    else flow_end(flow, true);
}

// The whole answer has gone to the client; the request's body may still be on its way.
static void http_response_done(struct http_relay *http) {
    bool more = http->server && evbuffer_get_length(stream_input(http->server)) > 0;
    // A server that was asked whether it wants the body, and did not say so, takes what comes for it or for another
    // request, also where all of it was sent: nothing more goes that way.
    bool keeps = http->keep_alive && !http->server_eof && !http->expects && (http->request_done || !more);
    http->answered = true;
    if (!keeps) {
        http_relay_finish(http);
        return;
    }
    if (!http->request_done) return; // http_request_body comes back
    http->state = HTTP_RELAY_HEAD;
    // What came behind the answer, nobody asked for: it must not be the answer to the next request.
    if (more) http_relay_drop_server(http);
    if (!http->dead && http->state == HTTP_RELAY_HEAD) http_request_next(http);
}

#define HTTP_INTERIM_MAX 32 // 1xx heads before an answer, as many as by HTTP/2

// 1: a final response's head went to the client; 0: more bytes are needed; -1: the connection was dealt with.
static int http_response_head(struct http_relay *http) {
    struct evbuffer *input = stream_input(http->server);
    struct wire_slice method = {(const uint8_t *)http->method, strlen(http->method)};
    for (;;) {
        struct http1_head head;
        size_t len = evbuffer_get_length(input);
        if (len == 0) return 0;
        if (!http->answer_begun) http1_init(&http->response, HTTP1_RESPONSE, method);
        http->answer_begun = true;
        const uint8_t *bytes = evbuffer_pullup(input, -1);
        enum wire_result result = bytes ? http1_head(&http->response, bytes, len, &head) : WIRE_BAD; // no memory
        if (result == WIRE_MORE && len >= HTTP1_HEAD_MAX) result = WIRE_BAD; // no more of it is read
        if (result == WIRE_MORE) return 0;
        bool unasked = result == WIRE_OK && head.status == 101 && !http->upgrade;
        bool endless = result == WIRE_OK && head.status < 200 && ++http->interim > HTTP_INTERIM_MAX;
        if (result == WIRE_BAD || unasked || endless) {
            http_relay_unreachable(http);
            return -1;
        }
        http->answer_begun = false;
        http->bytes[RELAY_UPSTREAM] += head.len;
        struct evbuffer *back = stream_output(http->client);
        bool whole = http->scrub ? http_scrub_head(http->scrub, &head, bytes, input, back)
                                 : http_body_move(input, back, head.len);
        if (!whole) {
            flow_end(http->flow, true);
            return -1;
        }
        if (head.status == 101) {
            if (http->opened) http_tunnel_start(http);
            else http_response_splice(http);
            return -1;
        }
        if (head.status == 100) http->expects = false;
        if (head.status < 200) continue; // 100, 103: another head follows
        http->keep_alive &= head.keep_alive && head.framing != HTTP1_BODY_UNTIL_CLOSE;
        http->until_close = head.framing == HTTP1_BODY_UNTIL_CLOSE;
        http->response_headed = true;
        return 1;
    }
}

void http_response_read(struct http_relay *http) {
    if (http->state != HTTP_RELAY_EXCHANGE) { // what nobody asked for must not be the answer to the next request
        if (evbuffer_get_length(stream_input(http->server)) > 0) http_relay_drop_server(http);
        return;
    }
    if (http->answered) {
        http_response_done(http);
        return;
    }
    if (!http->response_headed) {
        int headed = http_response_head(http);
        if (headed < 0) return;
        if (headed == 0) {
            if (!http->server_eof) return;
            // A kept connection that the server closed just now: the client retries as it would without us.
            if (http->reused) flow_end(http->flow, false);
            else http_relay_unreachable(http);
            return;
        }
    }
    struct evbuffer *from = stream_input(http->server), *to = stream_output(http->client);
    uint64_t *bytes = &http->bytes[RELAY_UPSTREAM];
    enum wire_result result = http->scrub ? http_scrub_body(http->scrub, &http->response, from, to, bytes)
                                          : http_body_relay(&http->response, from, to, bytes);
    if (result == WIRE_MORE && http->server_eof && http->until_close && http->scrub && !http_scrub_end(http->scrub, to))
        result = WIRE_BAD;
    if (result == WIRE_BAD) {
        flow_end(http->flow, true);
    } else if (result == WIRE_OK) {
        http_response_done(http);
    } else if (http->server_eof) {
        if (http->until_close) http_relay_finish(http);
        else flow_end(http->flow, true); // cut short: the client must not take it for whole
    }
}
