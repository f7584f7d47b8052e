// SPDX-License-Identifier: Apache-2.0
// Addresses of a name: one lookup for each family that is wanted, both at the same time.
//
// With both families the answer is IPv6 first, and it is a failure only if there is no address and a lookup failed: one
// broken family must not take away the other.
#include "dns/dns.h"

#include <errno.h>
#include <string.h>
#include <event2/event.h>

#include "base/mem.h"
#include "dns/dns_addresses.h"
#include "dns/dns_client.h"

enum resolve_part { RESOLVE_AAAA, RESOLVE_A, RESOLVE_PARTS };
static const uint16_t part_types[RESOLVE_PARTS] = {[RESOLVE_AAAA] = DNS_AAAA, [RESOLVE_A] = DNS_A};
static const enum addr_family part_families[RESOLVE_PARTS] = {[RESOLVE_AAAA] = ADDR_IPV6, [RESOLVE_A] = ADDR_IPV4};

struct resolve_lookup {
    struct dns_resolve *resolve;
    struct dns_lookup *lookup; // NULL once it ended
    int status;
    struct dns_addresses addresses;
};

struct dns_resolve {
    dns_resolve_done *done;
    void *data;
    unsigned pending;
    struct event *timer; // for localhost, which asks nobody; NULL else
    char name[NAME_SIZE];
    struct resolve_lookup parts[RESOLVE_PARTS];
};

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

static void resolve_end(struct dns_resolve *resolve) {
    const struct resolve_lookup *six = &resolve->parts[RESOLVE_AAAA], *four = &resolve->parts[RESOLVE_A];
    // Half of the room is kept for the second family.
    size_t count6 =
        smaller(six->addresses.count, DNS_ADDRESSES_MAX - smaller(four->addresses.count, DNS_ADDRESSES_MAX / 2));
    size_t count4 = smaller(four->addresses.count, DNS_ADDRESSES_MAX - count6);
    struct addr addresses[DNS_ADDRESSES_MAX];
    memcpy(addresses, six->addresses.list, count6 * sizeof(addresses[0]));
    memcpy(addresses + count6, four->addresses.list, count4 * sizeof(addresses[0]));
    int status = six->status < 0 ? six->status : four->status;
    dns_resolve_done *done = resolve->done;
    void *data = resolve->data;
    dns_resolve_cancel(resolve);
    done(count6 + count4 > 0 ? 0 : status, addresses, count6 + count4, data);
}

static void resolve_answered(int status, const uint8_t *answer, size_t len, void *data) {
    struct resolve_lookup *part = data;
    struct dns_resolve *resolve = part->resolve;
    part->lookup = NULL;
    size_t index = (size_t)(part - resolve->parts);
    if (status == 0) status = dns_addresses_read(answer, len, resolve->name, part_types[index], &part->addresses);
    part->status = status;
    if (--resolve->pending == 0) resolve_end(resolve);
}

static void resolve_local(evutil_socket_t fd, short what, void *data) {
    (void)fd, (void)what;
    resolve_end(data);
}

// Fills in what localhost is and lets the loop report it.
static int resolve_localhost(struct dns_resolve *resolve, struct event_base *base, enum addr_family family) {
    for (size_t i = 0; i < RESOLVE_PARTS; i++) {
        if (family != ADDR_NONE && family != part_families[i]) continue;
        resolve->parts[i].addresses.list[0] = dns_addresses_localhost(part_families[i]);
        resolve->parts[i].addresses.count = 1;
    }
    resolve->timer = evtimer_new(base, resolve_local, resolve);
    if (!resolve->timer) return -ENOMEM;
    event_active(resolve->timer, EV_TIMEOUT, 0);
    return 0;
}

static int resolve_ask(struct dns_resolve *resolve, struct dns_client *client, enum addr_family family) {
    for (size_t i = 0; i < RESOLVE_PARTS; i++) {
        struct resolve_lookup *part = &resolve->parts[i];
        part->resolve = resolve;
        if (family != ADDR_NONE && family != part_families[i]) continue;
        part->lookup = dns_client_lookup(client, resolve->name, part_types[i], NULL, 0, resolve_answered, part);
        if (!part->lookup) return -EBUSY;
        resolve->pending++;
    }
    return 0;
}

struct dns_resolve *dns_client_resolve(struct dns_client *client, const char *name, enum addr_family family,
                                       dns_resolve_done *done, void *data) {
    size_t len = strlen(name);
    struct dns_resolve *resolve = len > 0 && len < NAME_SIZE ? NEW(struct dns_resolve) : NULL;
    if (!resolve) return NULL;
    resolve->done = done;
    resolve->data = data;
    memcpy(resolve->name, name, len);
    int r = dns_addresses_is_localhost(name) ? resolve_localhost(resolve, dns_client_base(client), family)
                                             : resolve_ask(resolve, client, family);
    if (r == 0) return resolve;
    dns_resolve_cancel(resolve);
    return NULL;
}

void dns_resolve_cancel(struct dns_resolve *resolve) {
    if (!resolve) return;
    for (size_t i = 0; i < RESOLVE_PARTS; i++) dns_lookup_cancel(resolve->parts[i].lookup);
    if (resolve->timer) event_free(resolve->timer);
    free(resolve);
}
