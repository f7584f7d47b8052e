// SPDX-License-Identifier: Apache-2.0
// Leaves of bound hosts: one question a host at a time, asked when the channel comes, when a leaf is due for renewal, and
// when a connection wants one that is not there.
#include "gate/injection_channel.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"

#define LEAF_BACK_S 43200 // the clock was set back by more than that: the leaf may be one of the future now

struct injection_leaf_wait {
    struct list link; // of its host
    struct injections *injections;
    struct event *timer;
    void (*ready)(int status, void *data);
    void *data;
    int status;       // that the deadline stands for
};

// ---- hosts ----

static struct injection_host *host_find(struct injection_host *hosts, size_t count, const char *name) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(hosts[i].name, name) == 0) return &hosts[i];
    return NULL;
}

static bool host_usable(const struct injection_host *host, int64_t now) {
    return host->has_leaf && now < host->renew_at && now > host->since - LEAF_BACK_S;
}

static void host_drop_leaf(struct injection_host *host) {
    struct vault_client_leaf leaf = {host->leaf.certificate, host->leaf.ca, host->leaf.key};
    vault_client_leaf_done(&leaf);
    host->leaf = (struct injection_leaf){0};
    host->has_leaf = false;
}

static void host_want(struct injection_host *host) {
    if (host->state == HOST_IDLE && host->rule != POLICY_RULE_NONE) host->state = HOST_WANTED;
}

// Moves what an old entry has to a new one.
static void host_move(struct injection_host *host, struct injection_host *old) {
    host->has_leaf = old->has_leaf;
    host->leaf = old->leaf;
    host->since = old->since;
    host->renew_at = old->renew_at;
    old->has_leaf = false;
    LIST_FOREACH(&old->waits, node) {
        list_remove(node);
        list_append(&host->waits, node);
    }
    if (!list_empty(&host->waits)) host_want(host);
}

static void hosts_free(struct injection_host *hosts, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (hosts[i].has_leaf) host_drop_leaf(&hosts[i]);
    free(hosts);
}

static void host_fill(struct injection_host *host, const struct policy *policy, const char *name) {
    struct policy_credential credentials[POLICY_CREDENTIALS_MAX];
    struct policy_credential_request request = {.host = name};
    memccpy(host->name, name, 0, sizeof(host->name) - 1);
    list_init(&host->waits);
    host->rule = policy_credentials(policy, &request, credentials) > 0 ? credentials[0].rule : POLICY_RULE_NONE;
}

static void host_tell(struct injection_host *host, int status);

int injection_leaf_hosts(struct injections *injections) {
    const struct policy *policy = injections->gate->policy;
    size_t count = 0;
    while (policy_bound_host(policy, count)) count++;
    struct injection_host *hosts = NEW_ARRAY(struct injection_host, count);
    if (!hosts) return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        host_fill(&hosts[i], policy, policy_bound_host(policy, i));
        struct injection_host *old = host_find(injections->hosts, injections->host_count, hosts[i].name);
        if (old) host_move(&hosts[i], old);
    }
    struct injection_host *before = injections->hosts;
    size_t before_count = injections->host_count;
    injections->hosts = hosts;
    injections->host_count = count;
    for (size_t i = 0; i < before_count; i++) host_tell(&before[i], -ENOENT);
    hosts_free(before, before_count);
    return 0;
}

// ---- waiting ----

void injection_leaf_cancel(struct injection_leaf_wait *wait) {
    list_remove(&wait->link);
    wait->injections->leaf_wait_count--;
    if (wait->timer) event_free(wait->timer);
    free(wait);
}

static void leaf_wait_end(struct injection_leaf_wait *wait, int status) {
    void (*ready)(int status, void *data) = wait->ready;
    void *data = wait->data;
    injection_leaf_cancel(wait);
    ready(status, data);
}

static void leaf_wait_over(evutil_socket_t fd, short what, void *data) {
    (void)fd, (void)what;
    struct injection_leaf_wait *wait = data;
    leaf_wait_end(wait, wait->status);
}

static void host_tell(struct injection_host *host, int status) {
    struct list told;
    list_init(&told);
    LIST_FOREACH(&host->waits, node) {
        list_remove(node);
        list_append(&told, node);
    }
    while (!list_empty(&told)) leaf_wait_end(LIST_ENTRY(told.next, struct injection_leaf_wait, link), status);
}

const struct injection_leaf *injection_leaf(struct gate *gate, const char *host) {
    struct injections *injections = gate->injections;
    struct injection_host *found = injections ? host_find(injections->hosts, injections->host_count, host) : NULL;
    return found && host_usable(found, time(NULL)) ? &found->leaf : NULL;
}

struct injection_leaf_wait *injection_leaf_start(struct gate *gate, const char *host, void (*ready)(int status, void *data),
                                                 void *data) {
    struct injections *injections = gate->injections;
    struct injection_host *found = injections ? host_find(injections->hosts, injections->host_count, host) : NULL;
    if (!found || injections->leaf_wait_count >= INJECTION_WAITS_MAX) return NULL;
    struct injection_leaf_wait *wait = NEW(struct injection_leaf_wait);
    if (!wait) return NULL;
    bool there = host_usable(found, time(NULL)), asks = !there && injection_channel_up(injections);
    struct timeval deadline = {.tv_sec = asks ? INJECTION_ANSWER_MS / 1000 : 0};
    *wait = (struct injection_leaf_wait){.injections = injections, .ready = ready, .data = data,
                                         .status = there ? 0 : asks ? -ETIMEDOUT : -EPIPE};
    list_append(&found->waits, &wait->link);
    injections->leaf_wait_count++;
    wait->timer = evtimer_new(gate->base, leaf_wait_over, wait);
    if (!wait->timer || event_add(wait->timer, &deadline) < 0) {
        injection_leaf_cancel(wait);
        return NULL;
    }
    if (asks) host_want(found);
    injection_channel_flush(injections);
    return wait;
}

// ---- the vault ----

int injection_leaf_send(struct injections *injections) {
    for (size_t i = 0; i < injections->host_count && injections->host_asks < INJECTION_LEAF_ASKS; i++) {
        struct injection_host *host = &injections->hosts[i];
        struct ipc_leaf_ask question = {.rule = host->rule};
        if (host->state != HOST_WANTED) continue;
        int r = channel_send(injections->channel, IPC_LEAF_ASK, &question, sizeof(question), NULL, 0);
        if (r < 0) return r;
        host->state = HOST_ASKED;
        injections->host_asks++;
    }
    return 0;
}

int injection_leaf_answer(struct injections *injections, const struct ipc_leaf *answer, const uint8_t *certificates) {
    struct injection_host *host = NULL;
    struct vault_client_leaf leaf;
    for (size_t i = 0; i < injections->host_count && !host; i++)
        if (injections->hosts[i].rule == answer->rule) host = &injections->hosts[i];
    if (!host || host->state != HOST_ASKED) return -EBADMSG;
    host->state = HOST_IDLE;
    injections->host_asks--;
    int r = vault_client_leaf(answer, certificates, &leaf);
    if (r == 0) {
        host_drop_leaf(host);
        host->has_leaf = true;
        host->since = time(NULL);
        host->renew_at = answer->renew_at;
        host->leaf = (struct injection_leaf){leaf.certificate, leaf.ca, leaf.key, ++injections->serial};
    }
    host_tell(host, r);
    return 0;
}

void injection_leaf_renew(struct injections *injections) {
    int64_t now = time(NULL);
    for (size_t i = 0; i < injections->host_count; i++)
        if (!host_usable(&injections->hosts[i], now)) host_want(&injections->hosts[i]);
}

void injection_leaf_lost(struct injections *injections) {
    for (size_t i = 0; i < injections->host_count; i++) {
        injections->hosts[i].state = HOST_IDLE;
        host_tell(&injections->hosts[i], -EPIPE);
    }
}

void injection_leaf_free_all(struct injections *injections) {
    for (size_t i = 0; i < injections->host_count; i++) {
        struct list *waits = &injections->hosts[i].waits;
        LIST_FOREACH(waits, node) injection_leaf_cancel(LIST_ENTRY(node, struct injection_leaf_wait, link));
    }
    hosts_free(injections->hosts, injections->host_count);
}
