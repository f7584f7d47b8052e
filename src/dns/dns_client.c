// SPDX-License-Identifier: Apache-2.0
// A gate's end of the channel to the resolver process: lookups by id, each with its own deadline.
//
// A lookup is in the table from dns_client_lookup until its `done` was called or it was cancelled. The low bits of its
// id are its slot, the others count how often the slot was used, so a late answer to a lookup that is gone finds
// nobody. `done` is only ever called from the event loop: what fails at once is failed by its timer with no delay. When
// the resolver goes away, every lookup fails with -EPIPE, those that come later too: a dead resolver resolves nothing.
#include "dns/dns.h"

#include <errno.h>
#include <string.h>
#include <event2/event.h>

#include "base/list.h"
#include "base/mem.h"
#include "dns/dns_client.h"
#include "dns/dns_recent.h"
#include "net/net.h"

#define CLIENT_LOOKUPS_MAX 512 // as many as the resolver takes from one gate
#define CLIENT_DEADLINE_S 10
#define CLIENT_BATCH 32 // messages read in one turn of the loop

struct dns_lookup {
    struct list unsent; // alone once the query is on its way
    struct dns_client *client;
    struct event *timer; // deadline; or at once, if failed or recent
    int failed;          // what the timer reports
    bool recent;         // an answer was there when it was asked
    dns_lookup_done *done;
    void *data;
    struct ipc_query query;
};

struct dns_client {
    struct event_base *base;
    int channel; // -1: the resolver is gone
    struct event *readable, *writable;
    struct list unsent;
    struct dns_lookup *lookups[CLIENT_LOOKUPS_MAX];
    uint32_t uses[CLIENT_LOOKUPS_MAX];
    uint32_t next; // slot to try first
    uint32_t count;
    struct dns_recent recent;
    uint8_t buffer[CHANNEL_BUFFER_SIZE];
};

static uint32_t lookup_slot(const struct dns_lookup *lookup) { return lookup->query.id % CLIENT_LOOKUPS_MAX; }

// Takes it out of the table and frees it.
static void lookup_free(struct dns_lookup *lookup) {
    struct dns_client *client = lookup->client;
    if (client->lookups[lookup_slot(lookup)] == lookup) {
        client->lookups[lookup_slot(lookup)] = NULL;
        client->count--;
    }
    list_remove(&lookup->unsent);
    if (lookup->timer) event_free(lookup->timer);
    free(lookup);
}

static void lookup_end(struct dns_lookup *lookup, int status, const uint8_t *answer, size_t len) {
    dns_lookup_done *done = lookup->done;
    void *data = lookup->data;
    lookup_free(lookup);
    done(status, answer, len, data);
}

static void lookup_send(struct dns_lookup *lookup);

// Taken at once if it is still there; a question may have taken its slot meanwhile.
static void lookup_recent(struct dns_lookup *lookup) {
    const struct dns_recent_answer *answer =
        dns_recent_find(&lookup->client->recent, lookup->query.name, lookup->query.type);
    lookup->recent = false;
    if (answer) lookup_end(lookup, 0, answer->bytes, answer->len);
    else lookup_send(lookup);
}

static void lookup_expired(evutil_socket_t fd, short what, void *data) {
    (void)fd, (void)what;
    struct dns_lookup *lookup = data;
    if (lookup->recent) lookup_recent(lookup);
    else lookup_end(lookup, lookup->failed ? lookup->failed : -ETIMEDOUT, NULL, 0);
}

// Lets the timer report a failure at once: from the loop, never from inside a caller.
static void lookup_fail(struct dns_lookup *lookup, int error) {
    lookup->failed = error;
    list_remove(&lookup->unsent);
    event_active(lookup->timer, EV_TIMEOUT, 0);
}

static void client_lost(struct dns_client *client) {
    if (client->channel < 0) return;
    event_free(client->readable);
    event_free(client->writable);
    client->readable = client->writable = NULL;
    close(client->channel);
    client->channel = -1;
    for (size_t i = 0; i < CLIENT_LOOKUPS_MAX; i++)
        if (client->lookups[i]) lookup_fail(client->lookups[i], -EPIPE);
}

static void client_flush(struct dns_client *client) {
    LIST_FOREACH (&client->unsent, node) {
        struct dns_lookup *lookup = LIST_ENTRY(node, struct dns_lookup, unsent);
        int r = channel_send(client->channel, IPC_QUERY, &lookup->query, sizeof(lookup->query), NULL, 0);
        if (r == -EAGAIN && event_add(client->writable, NULL) == 0) return;
        if (r == -EAGAIN) { // nothing would send it
            lookup_fail(lookup, -ENOMEM);
            continue;
        }
        if (r < 0) {
            client_lost(client);
            return;
        }
        list_remove(&lookup->unsent);
    }
}

static void lookup_send(struct dns_lookup *lookup) {
    struct dns_client *client = lookup->client;
    struct timeval deadline = {.tv_sec = CLIENT_DEADLINE_S};
    if (client->channel < 0 || evtimer_add(lookup->timer, &deadline) < 0) {
        lookup_fail(lookup, client->channel < 0 ? -EPIPE : -ENOMEM);
        return;
    }
    list_append(&client->unsent, &lookup->unsent);
    client_flush(client);
}

static void client_writable(evutil_socket_t fd, short what, void *data) {
    (void)fd, (void)what;
    client_flush(data);
}

static void client_answer(struct dns_client *client, const struct channel_message *message) {
    const struct ipc_answer *answer = message->body;
    struct dns_lookup *lookup = client->lookups[answer->id % CLIENT_LOOKUPS_MAX];
    if (!lookup || lookup->query.id != answer->id || lookup->failed) return;
    int status = answer->status;
    if (status == 0 && answer->length == 0) status = -EIO;
    const uint8_t *bytes = (const uint8_t *)(answer + 1);
    if (status >= 0 && !lookup->query.has_server)
        dns_recent_keep(&client->recent, lookup->query.name, lookup->query.type, bytes, answer->length);
    lookup_end(lookup, status < 0 ? status : 0, status < 0 ? NULL : bytes,
               status < 0 ? 0 : answer->length);
}

static void client_readable(evutil_socket_t fd, short what, void *data) {
    (void)fd, (void)what;
    struct dns_client *client = data;
    for (int i = 0; i < CLIENT_BATCH && client->channel >= 0; i++) {
        struct channel_message message;
        int r = channel_receive(client->channel, client->buffer, sizeof(client->buffer), &message);
        if (r == -EAGAIN) return;
        if (r > 0) channel_message_close(&message);
        if (r <= 0 || message.type != IPC_ANSWER) {
            client_lost(client);
            return;
        }
        client_answer(client, &message);
    }
}

int dns_client_replace(struct dns_client *client, int channel) {
    client_lost(client);
    struct event *readable = event_new(client->base, channel, EV_READ | EV_PERSIST, client_readable, client);
    struct event *writable = event_new(client->base, channel, EV_WRITE, client_writable, client);
    if (!readable || !writable || event_add(readable, NULL) < 0) {
        if (readable) event_free(readable);
        if (writable) event_free(writable);
        return -ENOMEM;
    }
    client->readable = readable;
    client->writable = writable;
    client->channel = channel;
    return 0;
}

struct dns_client *dns_client_new(struct event_base *base, int channel) {
    struct dns_client *client = NEW(struct dns_client);
    if (!client) return NULL;
    client->base = base;
    client->channel = -1;
    list_init(&client->unsent);
    if (dns_client_replace(client, channel) == 0) return client;
    free(client);
    return NULL;
}

void dns_client_free(struct dns_client *client) {
    if (!client) return;
    client_lost(client);
    for (size_t i = 0; i < CLIENT_LOOKUPS_MAX; i++)
        if (client->lookups[i]) lookup_free(client->lookups[i]);
    dns_recent_done(&client->recent);
    free(client);
}

// Gives the lookup a free slot and with it an id.
static int client_enter(struct dns_client *client, struct dns_lookup *lookup) {
    if (client->count == CLIENT_LOOKUPS_MAX) return -EBUSY;
    while (client->lookups[client->next % CLIENT_LOOKUPS_MAX]) client->next++;
    uint32_t slot = client->next++ % CLIENT_LOOKUPS_MAX;
    lookup->query.id = client->uses[slot]++ * CLIENT_LOOKUPS_MAX + slot;
    client->lookups[slot] = lookup;
    client->count++;
    return 0;
}

struct dns_lookup *dns_client_lookup(struct dns_client *client, const char *name, uint16_t type,
                                     const struct addr *server, uint16_t port, dns_lookup_done *done, void *data) {
    size_t len = strlen(name);
    if (len >= NAME_SIZE || client->count == CLIENT_LOOKUPS_MAX) return NULL;
    struct dns_lookup *lookup = NEW(struct dns_lookup);
    if (!lookup) return NULL;
    list_init(&lookup->unsent);
    lookup->client = client;
    lookup->done = done;
    lookup->data = data;
    lookup->query.type = type;
    memcpy(lookup->query.name, name, len);
    if (server) {
        lookup->query.has_server = 1;
        lookup->query.server = (struct ipc_resolver_server){.address = *server, .port = port};
    }
    lookup->timer = evtimer_new(client->base, lookup_expired, lookup);
    if (!lookup->timer || client_enter(client, lookup) < 0) {
        if (lookup->timer) event_free(lookup->timer);
        free(lookup);
        return NULL;
    }
    lookup->recent = !server && dns_recent_find(&client->recent, name, type);
    if (lookup->recent) event_active(lookup->timer, EV_TIMEOUT, 0);
    else lookup_send(lookup);
    return lookup;
}

void dns_lookup_cancel(struct dns_lookup *lookup) {
    if (lookup) lookup_free(lookup);
}

struct event_base *dns_client_base(const struct dns_client *client) {
    return client->base;
}
