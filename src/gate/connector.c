// SPDX-License-Identifier: Apache-2.0
// From a judged destination to a connected socket: resolve, judge every answer, dial exactly a judged one.
// The policy asked is the one in force when the answers come, so an update in between is obeyed.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "gate/state.h"

struct connector {
    struct gate *gate;
    struct policy_request request; // its strings are owned below
    char *name, *dialled, *claimed;
    struct addr claimed_address;
    enum addr_family family;
    struct dns_resolve *resolve;
    struct dial *dial;
    connector_done *done;
    void *data;
};

static void connector_free(struct connector *connector) {
    free(connector->name);
    free(connector->dialled);
    free(connector->claimed);
    free(connector);
}

void connector_cancel(struct connector *connector) {
    if (connector->resolve) dns_resolve_cancel(connector->resolve);
    if (connector->dial) dial_cancel(connector->dial);
    connector_free(connector);
}

static void connector_finish(struct connector *connector, int fd, const struct addr *peer,
                             const struct policy_decision *denied) {
    connector_done *done = connector->done;
    void *data = connector->data;
    struct policy_decision copy;
    struct addr where = peer ? *peer : (struct addr){0};
    if (denied) copy = *denied;
    if (denied) copy.name = NULL; // it points into the connector
    connector_free(connector);
    done(fd, peer ? &where : NULL, denied ? &copy : NULL, data);
}

static void connector_dialled(int fd, const struct addr *peer, void *data) {
    struct connector *connector = data;
    connector->dial = NULL;
    struct addr reached = peer ? *peer : (struct addr){0};
    connector_finish(connector, fd, fd >= 0 ? &reached : NULL, NULL);
}

static int connector_dial(struct connector *connector, const struct addr *addresses, size_t count) {
    struct dial_options options = {.deadline_ms = GATE_DIAL_MS, .stagger_ms = GATE_STAGGER_MS};
    // Only an address that the policy has allowed gets here, so loopback among them was opened by an entry.
    for (size_t i = 0; i < count; i++) options.allow_loopback |= addr_is_loopback(&addresses[i]);
    connector->dial = dial_start(connector->gate->base, addresses, count, connector->request.port, &options,
                                 connector_dialled, connector);
    return connector->dial ? 0 : -errno;
}

static void connector_resolved(int status, const struct addr *answers, size_t count, void *data) {
    struct connector *connector = data;
    connector->resolve = NULL;
    size_t allowed[DNS_ADDRESSES_MAX], allowed_count = 0;
    struct policy_decision decision = policy_judge_answers(connector->gate->policy, &connector->request, answers,
                                                           status < 0 ? 0 : count, allowed, &allowed_count);
    if (allowed_count == 0) {
        struct policy_request each = connector->request;
        const struct addr *denied = NULL; // the log says which answer it was
        for (size_t i = 0; status >= 0 && i < count && !denied; i++) {
            each.address = &answers[i];
            if (policy_decide(connector->gate->policy, &each).verdict == POLICY_DENY) denied = &answers[i];
        }
        connector_finish(connector, status < 0 ? status : -EACCES, denied, &decision);
        return;
    }
    struct addr judged[DNS_ADDRESSES_MAX];
    size_t judged_count = 0;
    // A literal destination says which family the client has chosen: that one first.
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < allowed_count; i++) {
            const struct addr *answer = &answers[allowed[i]];
            bool preferred = answer->family == connector->family || connector->family == ADDR_NONE;
            if (preferred == (pass == 0)) judged[judged_count++] = *answer;
        }
    }
    int rc = connector_dial(connector, judged, judged_count);
    if (rc < 0) connector_finish(connector, rc, NULL, NULL);
}

struct policy_decision connector_rejudge(const struct connector *connector) {
    struct policy_request request = connector->request;
    struct policy_decision decision = policy_decide(connector->gate->policy, &request);
    for (size_t i = 0; connector->dial && (i == 0 || decision.verdict != POLICY_DENY); i++) {
        request.address = dial_address(connector->dial, i);
        if (!request.address) break;
        decision = policy_decide(connector->gate->policy, &request);
    }
    decision.name = NULL; // it points into the connector
    return decision;
}

static bool connector_copy(char **ret_copy, const char *text) {
    *ret_copy = text ? strdup(text) : NULL;
    return !text || *ret_copy;
}

struct connector *connector_start(struct gate *gate, const struct policy_request *request, const char *name,
                                  enum addr_family family, connector_done *done, void *data) {
    struct connector *connector = NEW(struct connector);
    if (!connector) return NULL;
    *connector = (struct connector){.gate = gate, .request = *request, .family = family, .done = done, .data = data};
    if (!connector_copy(&connector->name, name) || !connector_copy(&connector->dialled, request->dialled) ||
        !connector_copy(&connector->claimed, request->claimed)) {
        connector_free(connector);
        return NULL;
    }
    connector->request.dialled = connector->dialled;
    connector->request.claimed = connector->claimed;
    if (request->claimed_address) {
        connector->claimed_address = *request->claimed_address;
        connector->request.claimed_address = &connector->claimed_address;
    }
    connector->request.address = NULL;
    if (name) {
        // A synthetic address has a family of its own, which is resolved alone; a claimed name may use both.
        enum addr_family asked = request->dialled ? family : ADDR_NONE;
        connector->resolve = dns_client_resolve(gate->dns, connector->name, asked, connector_resolved, connector);
        if (connector->resolve) return connector;
        errno = EBUSY;
    } else {
        if (connector_dial(connector, request->address, 1) == 0) return connector;
    }
    int saved = errno;
    connector_free(connector);
    errno = saved;
    return NULL;
}
