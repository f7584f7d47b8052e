// SPDX-License-Identifier: Apache-2.0
// The vault process: one for all gates of a main.
//
// Start: fork the helper (vault/source.c), which keeps the user's rights and environment; open or make the CA; become
// nobody in particular, where main is root; isolate. From then on this process opens nothing: files and outputs of
// commands come as descriptors from the helper, values of main's environment as memory files from main.
//
// Secrets and private keys are in one locked arena (vault/secure.c). A gate's rules come before its channel and never
// change; another policy means another channel. If the helper dies this process ends too, and main starts another.
#include "vault/vault.h"

#include <errno.h>
#include <event2/event.h>
#include <grp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/mem.h"
#include "net/net.h"
#include "vault/certificate.h"
#include "vault/secure.h"
#include "vault/source.h"
#include "vault/state_folder.h"
#include "vault/vault_gate.h"
#include "vault/crypto.h"

#define START_TIMEOUT_MS 10000

struct vault {
    struct event_base *base;
    int channel;
    struct event *readable, *source_readable, *look;
    struct authority authority;
    struct leaf_cache leaves;
    struct secret_pool secrets;
    struct list gates;
    struct vault_rules *pending; // of the gate that comes next
    bool failed;
    _Alignas(max_align_t) uint8_t buffer[sizeof(struct ipc_header) + sizeof(struct ipc_vault_rule) + 1];
};

// What others read on a terminal: printable ASCII, as ipc_check wants it.
static void vault_send_text(int channel, enum ipc_type type, const char *text) {
    struct ipc_error message = {0};
    snprintf(message.text, sizeof(message.text), "%s", text);
    for (char *at = message.text; *at; at++)
        if (*at < ' ' || *at > '~') *at = '?';
    (void)channel_send(channel, type, &message, sizeof(message), NULL, 0); // one that is not taken is lost
}

static void vault_notice(const char *text, void *data) {
    const struct vault *vault = data;
    vault_send_text(vault->channel, IPC_VAULT_NOTICE, text);
}

static void vault_changed(struct secret *secret, void *data) {
    struct vault *vault = data;
    vault_gates_changed(&vault->gates, secret);
}

// ---- main's messages ----

static int vault_rule(struct vault *vault, const void *body) {
    struct ipc_vault_rule rule;
    memcpy(&rule, body, sizeof(rule));
    if (!vault->pending) vault->pending = NEW(struct vault_rules);
    return vault->pending ? vault_rules_add(vault->pending, &vault->secrets, &rule) : -ENOMEM;
}

static int vault_gate(struct vault *vault, int channel) {
    struct vault_rules *rules = vault->pending ? TAKE_POINTER(vault->pending) : NEW(struct vault_rules);
    if (!rules) {
        close(channel);
        return -ENOMEM;
    }
    return vault_gate_new(vault->base, &vault->leaves, &vault->gates, channel, rules) ? 0 : -ENOMEM;
}

static int vault_environment(struct vault *vault, const void *body, int fd) {
    struct ipc_vault_env env;
    memcpy(&env, body, sizeof(env));
    int r = secret_pool_environment(&vault->secrets, env.name, fd, env.length);
    explicit_bzero(vault->buffer, sizeof(vault->buffer));
    return r;
}

static int vault_message(struct vault *vault, struct channel_message *message) {
    int r = -EBADMSG;
    if (message->type == IPC_VAULT_RULE) r = vault_rule(vault, message->body);
    if (message->type == IPC_VAULT_ENV) r = vault_environment(vault, message->body, message->fds[0]);
    if (message->type == IPC_VAULT_GATE) r = vault_gate(vault, TAKE_FD(message->fds[0]));
    channel_message_close(message);
    return r;
}

static void vault_end(struct vault *vault, bool failed) {
    vault->failed = failed;
    event_base_loopbreak(vault->base);
}

static void vault_readable(evutil_socket_t fd, short what, void *data) {
    struct vault *vault = data;
    (void)fd, (void)what;
    for (;;) {
        struct channel_message message;
        int r = channel_receive(vault->channel, vault->buffer, sizeof(vault->buffer), &message);
        if (r == -EAGAIN) return;
        if (r == 1) r = vault_message(vault, &message) < 0 ? -EIO : 1;
        if (r == 1) continue;
        vault_end(vault, r < 0);
        return;
    }
}

static void vault_source_readable(evutil_socket_t fd, short what, void *data) {
    _Alignas(max_align_t) uint8_t buffer[sizeof(struct ipc_header) + sizeof(struct ipc_source_answer) + 1];
    struct vault *vault = data;
    (void)what;
    for (;;) {
        struct channel_message message;
        int r = channel_receive(fd, buffer, sizeof(buffer), &message);
        if (r == -EAGAIN) return;
        bool good = r == 1 && secret_pool_message(&vault->secrets, &message, clock_us());
        if (r == 1) channel_message_close(&message);
        if (good) continue;
        vault_end(vault, true);
        return;
    }
}

static void vault_look(evutil_socket_t fd, short what, void *data) {
    struct vault *vault = data;
    (void)fd, (void)what;
    secret_pool_look(&vault->secrets, clock_us());
}

// ---- start ----

static int vault_listen(struct vault *vault, struct error *err) {
    struct timeval every = {.tv_sec = SECRET_LOOK_S};
    vault->readable = event_new(vault->base, vault->channel, EV_READ | EV_PERSIST, vault_readable, vault);
    vault->source_readable =
        event_new(vault->base, vault->secrets.source, EV_READ | EV_PERSIST, vault_source_readable, vault);
    vault->look = event_new(vault->base, -1, EV_PERSIST, vault_look, vault);
    if (!vault->readable || !vault->source_readable || !vault->look || event_add(vault->readable, NULL) < 0 ||
        event_add(vault->source_readable, NULL) < 0 || event_add(vault->look, &every) < 0)
        return error_set(err, -ENOMEM, "out of memory for the vault's events");
    return 0;
}

// Root's vault needs no file any more, and a user of its own keeps it apart from gates and sandboxes.
static int vault_become(const struct ipc_vault_start *start, struct error *err) {
    if (start->uid == 0) return 0;
    if (setgroups(0, NULL) < 0 || setresgid(start->gid, start->gid, start->gid) < 0 ||
        setresuid(start->uid, start->uid, start->uid) < 0)
        return error_set(err, -errno, "the vault cannot become user %u: %s", start->uid, strerror(errno));
    return 0;
}

static int vault_open(struct vault *vault, struct error *err) {
    const struct leaf *leaf;
    int r = secure_init(err);
    if (r == 0) r = authority_load(time(NULL), &vault->authority, err);
    if (r < 0) return r;
    leaf_cache_init(&vault->leaves, &vault->authority);
    // OpenSSL sets itself up at first use: while it may still open what it wants.
    r = leaf_get(&vault->leaves, "penstock.invalid", time(NULL), &leaf, err);
    leaf_cache_done(&vault->leaves);
    secure_lock_process();
    vault->base = event_base_new();
    return r == 0 && !vault->base ? error_set(err, -ENOMEM, "out of memory for an event loop") : r;
}

static int vault_start(struct vault *vault, struct error *err) {
    struct channel_message message;
    struct ipc_vault_start start;
    int r = channel_wait(vault->channel, START_TIMEOUT_MS, vault->buffer, sizeof(vault->buffer), &message);
    if (r <= 0) return error_set(err, r < 0 ? r : -EPIPE, "the vault got no start message from main");
    channel_message_close(&message);
    if (message.type != IPC_VAULT_START)
        return error_set(err, -EBADMSG, "the vault expected its start message, got type %u", message.type);
    memcpy(&start, message.body, sizeof(start));
    vault->secrets.owner = geteuid();
    r = source_start(vault->channel, &vault->secrets.source, err);
    if (r == 0) r = vault_open(vault, err);
    clearenv();
    if (r == 0) r = vault_listen(vault, err);
    if (r == 0) r = vault_become(&start, err);
    if (r == 0) {
        r = isolate_process(ISOLATE_VAULT, err);
        if (r < 0) error_context(err, r, "the vault cannot isolate itself");
    }
    if (r < 0) return r;
    struct ipc_vault_ready ready = {.subject_hash = (uint32_t)X509_subject_name_hash(vault->authority.certificate),
                                    .length = (uint32_t)vault->authority.der_len};
    r = channel_send_tail(vault->channel, IPC_VAULT_READY, &ready, sizeof(ready), vault->authority.der, ready.length);
    return r < 0 ? error_set(err, r, "main does not take the vault's messages") : 0;
}

static void vault_done(struct vault *vault) {
    struct event *events[] = {vault->readable, vault->source_readable, vault->look};
    vault_gates_free(&vault->gates);
    vault_rules_free(vault->pending);
    for (size_t i = 0; i < ARRAY_LENGTH(events); i++)
        if (events[i]) event_free(events[i]);
    secret_pool_done(&vault->secrets);
    if (vault->leaves.authority) leaf_cache_done(&vault->leaves);
    authority_done(&vault->authority);
    if (vault->base) event_base_free(vault->base);
    close(vault->channel);
}

int vault_main(int channel) {
    struct vault vault = {.channel = channel};
    struct error err = {0};
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none); // before there is a key in memory
    signal(SIGPIPE, SIG_IGN);
    list_init(&vault.gates);
    secret_pool_init(&vault.secrets);
    vault.secrets.changed = vault_changed;
    vault.secrets.notice = vault_notice;
    vault.secrets.data = &vault;
    int r = vault_start(&vault, &err);
    vault.secrets.base = vault.base;
    if (r < 0)
        vault_send_text(channel, IPC_ERROR, err.text);
    else
        event_base_dispatch(vault.base);
    vault_done(&vault);
    return r < 0 || vault.failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

// ---- for others ----

int vault_state_folder(bool make, char **ret_path, struct error *err) {
    char path[PATH_MAX];
    int r = state_folder_path(make, path, err);
    char *copy = r == 0 ? strdup(path) : NULL;
    if (r == 0 && !copy) return error_set(err, -ENOMEM, "out of memory");
    if (r == 0) *ret_path = copy;
    return r;
}

int vault_ca_certificate(char **ret_pem, struct error *err) {
    struct authority authority;
    int r = secure_init(err);
    if (r == 0) r = authority_load(time(NULL), &authority, err);
    if (r < 0) return r;
    BIO *memory = BIO_new(BIO_s_mem());
    char *text = NULL, *copy = NULL;
    if (memory && PEM_write_bio_X509(memory, authority.certificate) == 1) {
        long len = BIO_get_mem_data(memory, &text);
        copy = strndup(text, (size_t)len);
    }
    BIO_free(memory);
    authority_done(&authority);
    if (!copy) return error_set(err, -ENOMEM, "out of memory for the CA's certificate");
    *ret_pem = copy;
    return 0;
}
