// SPDX-License-Identifier: Apache-2.0
// After a 101 over TLS that the gate opened, bytes go both ways unread, each direction with its own back-pressure and its own
// end. (Between two plain sockets the kernel does the same: flow_relay.)
#include "gate/http_relay.h"

static void http_tunnel_balance(struct http_relay *http) {
    struct stream *ends[] = {http->client, http->server};
    const bool eof[] = {http->client_eof, http->server_eof};
    bool good = true;
    for (int i = 0; i < 2; i++) good &= stream_push(ends[i]);
    for (int i = 0; i < 2 && good; i++)
        good = stream_read(ends[i], !eof[i] && evbuffer_get_length(stream_output(ends[1 - i])) < HTTP_WATERMARK);
    if (!good) flow_end(http->flow, true);
}

void http_tunnel_moved(struct http_relay *http, struct stream *from) {
    bool client = from == http->client;
    struct stream *to = client ? http->server : http->client;
    size_t len = evbuffer_get_length(stream_input(from));
    bool good = len == 0 || http_body_move(stream_input(from), stream_output(to), len);
    http->bytes[client ? RELAY_SANDBOX : RELAY_UPSTREAM] += len;
    if (good && (client ? http->client_eof : http->server_eof)) good = stream_shut(to);
    if (!good) flow_end(http->flow, true);
    else http_tunnel_written(http);
}

void http_tunnel_written(struct http_relay *http) {
    bool ended = http->client_eof && http->server_eof;
    http_tunnel_balance(http);
    if (http->dead || !ended) return;
    if (evbuffer_get_length(stream_output(http->client)) + evbuffer_get_length(stream_output(http->server)) == 0)
        flow_end(http->flow, false);
}

void http_tunnel_start(struct http_relay *http) {
    http->state = HTTP_RELAY_TUNNEL;
    http_tunnel_moved(http, http->client); // what both have said already
    if (!http->dead) http_tunnel_moved(http, http->server);
}
