// SPDX-License-Identifier: Apache-2.0
// Answers of the DNS front. Each is built from parsed values, record by record; nothing of an upstream message is
// passed on as it was. Under a name policy chains of CNAMEs are flattened: the records appear under the name that was
// asked for, so names in between, which the policy may not allow, are not told.
#include "dns/front.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "dns/dns_addresses.h"
#include "dns/dns_reverse.h"
#include "net/net.h"

#define TTL_NEGATIVE 5    // seconds: an update of the policy is seen soon
#define TTL_LOCAL 60      // of synthetic addresses, and the most that real ones get under a name policy
#define EDE_TEXT_SIZE 201 // what the writer takes, and NUL
#define UDP_SIZE_MAX 1232 // RFC 9715
#define TYPE_RRSIG 46

// One answer being built.
struct building {
    const struct front_query *query;
    struct dns_writer writer;
};

static size_t answer_size(const struct front_query *query) {
    if (query->stream) return DNS_MESSAGE_MAX;
    size_t size = query->question.udp_size;
    return size < DNS_UDP_DEFAULT ? DNS_UDP_DEFAULT : size > UDP_SIZE_MAX ? UDP_SIZE_MAX : size;
}

static void begin(struct building *building, const struct front_query *query, enum dns_rcode rcode) {
    building->query = query;
    dns_answer_begin(&building->writer, query->front->answer, answer_size(query), &query->question, rcode);
}

// Sends the answer; one without a record gets the SOA that lets it be cached for a short while. decision NULL: none was
// made, since the answer is the gate's own.
static void finish(struct building *building, const struct policy_decision *decision) {
    const struct front_query *query = building->query;
    bool negative = building->writer.rcode == DNS_NOERROR || building->writer.rcode == DNS_NXDOMAIN;
    if (negative && building->writer.answers == 0 && !building->writer.overflow)
        dns_answer_negative(&building->writer, TTL_NEGATIVE);
    int len = dns_answer_end(&building->writer);
    const char *name = query->question.name_valid ? query->question.name : NULL;
    if (decision) dns_front_log(query->front, name, &query->server, decision);
    if (len > 0) dns_front_told(query->front, (size_t)len);
    query->reply(len > 0 ? query->front->answer : NULL, len > 0 ? (size_t)len : 0, query->data);
}

void front_answer_code(const struct front_query *query, enum dns_rcode rcode, const struct policy_decision *decision) {
    struct building building;
    begin(&building, query, rcode);
    finish(&building, decision);
}

// What is wrong, and what would allow it, for the client's error message.
static void denial_text(const struct front_query *query, const struct policy *policy,
                        const struct policy_decision *decision, char text[EDE_TEXT_SIZE]) {
    const char *name = query->question.name;
    if (!query->question.name_valid) {
        snprintf(text, EDE_TEXT_SIZE, "egress_denied: this is not a host name; use letters, digits, '-' and '_'");
        return;
    }
    char hint[POLICY_HINT_SIZE];
    struct policy_request request = {.protocol = POLICY_DNS, .dialled = name};
    const char *add = policy_hint(policy, &request, decision, hint);
    bool unknown = decision->reason == POLICY_DNS_NAME_DENIED || decision->reason == POLICY_BASE_DENIED;
    // Without printf: a sandbox may be denied a hundred thousand names a second.
    if (unknown && add[0] && strlen(name) + strlen(add) + 42 < EDE_TEXT_SIZE) {
        char *end = stpcpy(text, "egress_denied: ");
        end = stpcpy(end, name);
        end = stpcpy(end, " is not in the policy; add ");
        stpcpy(end, add);
        return;
    }
    if (unknown)
        snprintf(text, EDE_TEXT_SIZE, "egress_denied: %.140s is not in the policy", name);
    else
        snprintf(text, EDE_TEXT_SIZE, "egress_denied: %.120s: %s", name, policy_reason_name(decision->reason));
}

static void answer_denied(const struct front_query *query, const struct policy *policy, enum dns_rcode rcode,
                          const struct policy_decision *decision) {
    char text[EDE_TEXT_SIZE];
    struct building building;
    denial_text(query, policy, decision, text);
    begin(&building, query, rcode);
    dns_answer_ede(&building.writer, DNS_EDE_BLOCKED, text);
    finish(&building, decision);
}

void front_answer_failed(const struct front_query *query, int error) {
    char text[EDE_TEXT_SIZE];
    struct building building;
    struct policy_decision decision = dns_front_denial(POLICY_DNS_FAILED);
    snprintf(text, sizeof(text), "dns_failed: %.100s: %s", query->question.name,
             error == -ENETUNREACH ? "no DNS server is configured; use --dns ADDRESS"
             : error == -ETIMEDOUT ? "the DNS servers do not answer"
             : error == -EPIPE     ? "the resolver is gone"
             : error == -EBUSY     ? "too many lookups are in flight"
                                   : "the DNS servers gave no usable answer");
    begin(&building, query, DNS_SERVFAIL);
    dns_answer_ede(&building.writer, DNS_EDE_NETWORK_ERROR, text);
    finish(&building, &decision);
}

void front_answer_limit(const struct front_query *query, enum policy_limit limit, const char *words) {
    char text[EDE_TEXT_SIZE];
    struct building building;
    struct policy_decision decision = dns_front_denial(POLICY_LIMIT_EXCEEDED);
    decision.limit = limit;
    snprintf(text, sizeof(text), "limit_exceeded: %s", words);
    begin(&building, query, DNS_SERVFAIL);
    dns_answer_ede(&building.writer, DNS_EDE_OTHER, text);
    finish(&building, &decision);
}

// ---- plans without a lookup ----

static void answer_localhost(const struct front_query *query) {
    uint16_t type = query->question.type;
    struct building building;
    begin(&building, query, DNS_NOERROR);
    if (type == DNS_A || type == DNS_AAAA) {
        struct addr addr = dns_addresses_localhost(type == DNS_A ? ADDR_IPV4 : ADDR_IPV6);
        dns_answer_address(&building.writer, query->question.name, &addr, TTL_LOCAL);
    }
    finish(&building, NULL);
}

static void answer_pointer(const struct front_query *query) {
    struct addr addr = {0};
    dns_reverse_parse(query->question.name, &addr);
    const char *name = addr_is_loopback(&addr) ? "localhost" : dns_pool_name(query->front->pool, &addr);
    struct building building;
    begin(&building, query, name ? DNS_NOERROR : DNS_NXDOMAIN);
    if (name) dns_answer_name(&building.writer, query->question.name, DNS_PTR, name, TTL_LOCAL);
    finish(&building, NULL);
}

void front_answer_local(const struct front_query *query, const struct policy *policy) {
    switch (query->plan.kind) {
    case FRONT_REFUSE:
        front_answer_code(query, DNS_REFUSED, &query->plan.decision);
        break;
    case FRONT_DENY:
        answer_denied(query, policy, DNS_NXDOMAIN, &query->plan.decision);
        break;
    case FRONT_LOCALHOST:
        answer_localhost(query);
        break;
    case FRONT_POINTER:
        answer_pointer(query);
        break;
    case FRONT_EMPTY:
        front_answer_code(query, DNS_NOERROR, &query->plan.decision);
        break;
    case FRONT_SYNTHETIC:
    case FRONT_REAL:
    case FRONT_RANGES:
    case FRONT_RECORDS:
    case FRONT_OPEN:
        break; // lookups
    }
}

// ---- addresses ----

// Asking the kernel takes three calls, so its word is good for a second.
static bool has_route(struct dns_front *front, const struct addr *address) {
    uint8_t last = address->bytes[address->family == ADDR_IPV4 ? 3 : 15];
    struct front_route *route = &front->routes[last % FRONT_ROUTES];
    uint64_t now = clock_us();
    if (now < route->until_us && addr_equal(&route->address, address)) return route->found;
    *route = (struct front_route){*address, host_has_route(address), now + FRONT_ROUTE_US};
    return route->found;
}

static bool any_route(struct dns_front *front, const struct dns_addresses *addresses) {
    for (size_t i = 0; i < addresses->count; i++)
        if (has_route(front, &addresses->list[i])) return true;
    return false;
}

static enum addr_family type_family(uint16_t type) { return type == DNS_A ? ADDR_IPV4 : ADDR_IPV6; }

// The name exists in this family and the host could reach it: one address of the pool. What is behind it is judged when
// somebody connects.
static void answer_synthetic(const struct front_query *query, const struct dns_addresses *found) {
    struct building building;
    if (found->count == 0 || !any_route(query->front, found)) {
        front_answer_code(query, (enum dns_rcode)found->rcode, &query->plan.decision);
        return;
    }
    uint32_t index;
    int r = dns_pool_assign(query->front->pool, query->question.name, &index);
    if (r < 0) {
        front_answer_limit(query, POLICY_LIMIT_NONE, r == -ENOSPC ? "a sandbox can use at most 4096 names" : "out of memory");
        return;
    }
    struct addr addr = dns_pool_address(query->front->pool, index, type_family(query->question.type));
    begin(&building, query, DNS_NOERROR);
    dns_answer_address(&building.writer, query->question.name, &addr, TTL_LOCAL);
    finish(&building, &query->plan.decision);
}

static uint32_t short_ttl(uint32_t ttl) { return ttl < TTL_LOCAL ? ttl : TTL_LOCAL; }

// Real addresses; those of the other family (an IPv4-mapped AAAA) cannot be written and are left out.
static void answer_addresses(const struct front_query *query, const struct dns_addresses *found, const size_t *chosen,
                             size_t count, const struct policy_decision *decision) {
    struct building building;
    begin(&building, query, (enum dns_rcode)found->rcode);
    for (size_t i = 0; i < count; i++) {
        const struct addr *addr = &found->list[chosen[i]];
        if (addr->family != type_family(query->question.type)) continue;
        dns_answer_address(&building.writer, query->question.name, addr, short_ttl(found->ttl));
    }
    finish(&building, decision);
}

static void answer_real(const struct front_query *query, const struct policy *policy,
                        const struct dns_addresses *found) {
    size_t chosen[DNS_ADDRESSES_MAX], count = 0;
    struct policy_decision decision = query->plan.decision;
    if (found->count > 0) {
        struct policy_request request = {.protocol = POLICY_DNS, .dialled = query->question.name};
        decision = policy_judge_answers(policy, &request, found->list, found->count, chosen, &count);
    }
    if (decision.verdict == POLICY_DENY)
        answer_denied(query, policy, DNS_NOERROR, &decision);
    else
        answer_addresses(query, found, chosen, any_route(query->front, found) ? count : 0, &decision);
}

// Each address by itself: a name outside the ranges is no attack here, it is only not shown.
static void answer_ranges(const struct front_query *query, const struct policy *policy,
                          const struct dns_addresses *found) {
    size_t chosen[DNS_ADDRESSES_MAX], count = 0;
    struct policy_decision decision = query->plan.decision;
    for (size_t i = 0; i < found->count; i++) {
        struct policy_request request = {
            .protocol = POLICY_DNS, .dialled = query->question.name, .address = &found->list[i]};
        struct policy_decision each = policy_decide(policy, &request);
        if (each.verdict != POLICY_DENY)
            chosen[count++] = i;
        else if (decision.verdict != POLICY_DENY)
            decision = each; // the first denial is the one to tell
    }
    if (found->count > 0 && count == 0)
        answer_denied(query, policy, DNS_NOERROR, &decision);
    else
        answer_addresses(query, found, chosen, any_route(query->front, found) ? count : 0, &query->plan.decision);
}

static void answer_found(const struct front_query *query, const struct policy *policy, const uint8_t *message,
                         size_t len) {
    struct dns_addresses found;
    int r = dns_addresses_read(message, len, query->question.name, query->question.type, &found);
    if (r < 0)
        front_answer_failed(query, r);
    else if (query->plan.kind == FRONT_SYNTHETIC)
        answer_synthetic(query, &found);
    else if (query->plan.kind == FRONT_REAL)
        answer_real(query, policy, &found);
    else
        answer_ranges(query, policy, &found);
}

// ---- other records ----

// Where in its RDATA a record names a host that a client would then go to.
static const struct {
    uint16_t type;
    uint8_t offset;
} targets[] = {
    {DNS_NS, 0},  {DNS_CNAME, 0},   {DNS_PTR, 0},        {DNS_MX, 2},   {18 /* AFSDB */, 2},
    {DNS_SRV, 6}, {36 /* KX */, 2}, {39 /* DNAME */, 0}, {DNS_SVCB, 2}, {DNS_HTTPS, 2},
};

static bool target_allowed(const struct policy *policy, const struct dns_reader *reader,
                           const struct dns_record *record) {
    for (size_t i = 0; i < sizeof(targets) / sizeof(targets[0]); i++) {
        if (targets[i].type != record->type) continue;
        char target[NAME_SIZE];
        if (record->rdata_len <= targets[i].offset) return false;
        if (dns_reader_name(reader, record->rdata_offset + targets[i].offset, target) < 0) return false;
        struct policy_request request = {.protocol = POLICY_DNS, .dialled = target};
        // The root says "none" (RFC 7505, RFC 2782) or "the owner" (RFC 9460).
        return target[0] == '\0' || policy_decide(policy, &request).verdict != POLICY_DENY;
    }
    return true;
}

// Whether a record is part of the answer, and under which owner it is told.
static const char *record_owner(const struct front_query *query, const struct policy *policy, const char *owner,
                                const struct dns_reader *reader, const struct dns_record *record) {
    const struct dns_question *question = &query->question;
    if (record->class != 1 || record->type == DNS_OPT) return NULL;
    if (record->type == TYPE_RRSIG && question->type != TYPE_RRSIG && !question->dnssec_ok) return NULL;
    if (query->plan.kind == FRONT_OPEN) // "" is an owner that cannot be written, or the root
        return record->owner[0] || !question->name[0] ? record->owner : NULL;
    if (record->type != question->type || strcmp(record->owner, owner) != 0) return NULL;
    return target_allowed(policy, reader, record) ? question->name : NULL;
}

// False: malformed.
static bool write_records(struct building *building, const struct policy *policy, struct dns_reader *reader,
                          const char *owner) {
    struct dns_front *front = building->query->front;
    struct dns_record record;
    int r;
    while ((r = dns_reader_next(reader, &record)) > 0) {
        const char *told = record_owner(building->query, policy, owner, reader, &record);
        if (!told) continue;
        int len = dns_reader_rdata(reader, &record, front->rdata, sizeof(front->rdata));
        if (len < 0) return false;
        if (len > 0) dns_answer_rdata(&building->writer, told, record.type, record.ttl, front->rdata, (size_t)len);
    }
    return r == 0;
}

static void answer_records(const struct front_query *query, const struct policy *policy, const uint8_t *message,
                           size_t len) {
    struct dns_reader reader;
    struct building building;
    char owner[NAME_SIZE];
    if (dns_reader_init(&reader, message, len) != WIRE_OK ||
        dns_addresses_owner(message, len, query->question.name, query->question.type, owner) < 0) {
        front_answer_failed(query, -EBADMSG);
        return;
    }
    if (reader.rcode != DNS_NOERROR && reader.rcode != DNS_NXDOMAIN) {
        front_answer_failed(query, -EIO);
        return;
    }
    begin(&building, query, (enum dns_rcode)reader.rcode);
    if (write_records(&building, policy, &reader, owner))
        finish(&building, &query->plan.decision);
    else
        front_answer_failed(query, -EBADMSG);
}

void front_answer_message(const struct front_query *query, const struct policy *policy, const uint8_t *message,
                          size_t len) {
    bool records = query->plan.kind == FRONT_RECORDS || query->plan.kind == FRONT_OPEN;
    (records ? answer_records : answer_found)(query, policy, message, len);
}
