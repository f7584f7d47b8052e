// SPDX-License-Identifier: Apache-2.0
// A round is one question to the source and what comes of it. Whoever asks for a file during a round waits for the next
// one: what the present round opened may be older than the question, and a rotation has to reach the very next request.
// A command's result is shared for a minute, so who asks while it runs waits for it.
//
// Whatever fails loses the value: no old credential is used because a new one could not be had.
#include "vault/secret.h"

#include <errno.h>
#include <event2/event.h>
#include <sys/mman.h>

#include "base/mem.h"
#include "vault/secret_store.h"
#include "vault/secure.h"
#include "vault/source.h"
#include "vault/vault.h"
#include "vault/crypto.h"

#define COMMAND_AGAIN_US 5000000 // after a failure

struct secret_variable {
    struct list link;
    size_t len;
    uint8_t *value; // secure memory
    char name[];
};

static const struct {
    const char *word;
    enum ipc_source_kind ask;
} secret_kinds[] = {
    [SECRET_ENVIRONMENT] = {"env:", 0}, // the source is not asked
    [SECRET_FILE] = {"file:", IPC_SOURCE_PATH},
    [SECRET_COMMAND] = {"cmd:", IPC_SOURCE_SHELL},
    [SECRET_STORE] = {"store:", IPC_SOURCE_NAME},
};

const char *secret_place(const struct secret *secret) {
    return secret->reference + strlen(secret_kinds[secret->kind].word);
}

// ---- the pool ----

void secret_pool_init(struct secret_pool *pool) {
    *pool = (struct secret_pool){.source = -1};
    list_init(&pool->secrets);
    list_init(&pool->environment);
}

int secret_pool_environment(struct secret_pool *pool, const char *name, int fd, size_t len) {
    if (pool->environment_count >= SECRET_ENVIRONMENT_MAX) return -E2BIG;
    struct stat status;
    if (len == 0 || len > IPC_SECRET_MAX || fstat(fd, &status) < 0 || (size_t)status.st_size != len) return -EINVAL;
    size_t name_size = strlen(name) + 1;
    struct secret_variable *variable = calloc(1, sizeof(*variable) + name_size);
    uint8_t *value = secure_new(len);
    const void *mapped = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0);
    int r = variable && value ? 0 : -ENOMEM;
    if (mapped == MAP_FAILED) r = -errno;
    if (r == 0) {
        memcpy(value, mapped, len);
        memcpy(variable->name, name, name_size);
        variable->value = TAKE_POINTER(value);
        variable->len = len;
        list_append(&pool->environment, &variable->link);
        pool->environment_count++;
    } else {
        free(variable);
    }
    if (mapped != MAP_FAILED) munmap((void *)(uintptr_t)mapped, len);
    secure_free(value);
    return r;
}

static void secret_free(struct secret *secret) {
    list_remove(&secret->link);
    if (secret->readable) event_free(secret->readable);
    if (secret->pipe >= 0) close(secret->pipe);
    secure_free(secret->output);
    secure_free(secret->value);
    free(secret);
}

void secret_pool_done(struct secret_pool *pool) {
    LIST_FOREACH (&pool->secrets, node) secret_free(LIST_ENTRY(node, struct secret, link));
    LIST_FOREACH (&pool->environment, node) {
        struct secret_variable *variable = LIST_ENTRY(node, struct secret_variable, link);
        secure_free(variable->value);
        free(variable);
    }
    if (pool->source >= 0) close(pool->source);
}

// ---- references ----

static int secret_kind_of(const char *reference, enum secret_kind *ret_kind) {
    for (size_t i = 0; i < ARRAY_LENGTH(secret_kinds); i++) {
        size_t len = strlen(secret_kinds[i].word);
        if (strncmp(reference, secret_kinds[i].word, len) != 0 || !reference[len]) continue;
        *ret_kind = (enum secret_kind)i;
        return 0;
    }
    return -EINVAL;
}

static int secret_take_variable(struct secret *secret) {
    LIST_FOREACH (&secret->pool->environment, node) {
        const struct secret_variable *variable = LIST_ENTRY(node, struct secret_variable, link);
        if (strcmp(variable->name, secret_place(secret)) != 0) continue;
        secret->value = secure_new(variable->len);
        if (!secret->value) return -ENOMEM;
        memcpy(secret->value, variable->value, variable->len);
        secret->len = variable->len;
        secret->epoch = 1;
        return vault_secret_check(secret->value, secret->len, NULL);
    }
    return -ENOENT;
}

int secret_ref(struct secret_pool *pool, const char *reference, struct secret **ret_secret) {
    LIST_FOREACH (&pool->secrets, node) {
        struct secret *secret = LIST_ENTRY(node, struct secret, link);
        if (strcmp(secret->reference, reference) != 0) continue;
        secret->users++;
        *ret_secret = secret;
        return 0;
    }
    enum secret_kind kind;
    if (secret_kind_of(reference, &kind) < 0) return -EINVAL;
    size_t size = strlen(reference) + 1;
    struct secret *secret = calloc(1, sizeof(*secret) + size);
    if (!secret) return -ENOMEM;
    memcpy(secret->reference, reference, size);
    secret->pool = pool;
    secret->kind = kind;
    secret->users = 1;
    secret->pipe = -1;
    list_init(&secret->waiting);
    list_init(&secret->later);
    list_append(&pool->secrets, &secret->link);
    if (kind == SECRET_ENVIRONMENT) secret->status = secret_take_variable(secret);
    *ret_secret = secret;
    return 0;
}

void secret_unref(struct secret *secret) {
    if (secret && --secret->users == 0) secret_free(secret);
}

// ---- what an operator is told ----

const char *vault_secret_why(int status, char text[VAULT_WHY_SIZE]) {
    switch (status) {
    case -EINVAL:
        return "it is empty, or has a line break, NUL or other control byte, which a header cannot hold (one end of line at its "
               "end is left out)";
    case -EILSEQ:
        return "it begins or ends with a blank, and so would the header, which no header may; take it out of the secret";
    case -ENOENT:
        return "it is not there (any more)";
    case -E2BIG:
    case -EFBIG:
        return "it is longer than 32768 bytes, which no header can hold";
    case -EPERM:
        return "it is not a regular file, or open to others";
    case -EBADMSG:
        return "it is not what was stored there; set it again with `penstock secret set`";
    case -ECHILD:
        return "the command failed; run it by hand to see why";
    case -EPIPE:
        return "the vault process ended; it is started again";
    case -EBUSY:
        return "too many requests wait for values, or too many cmd: commands run (the most is 32); try again";
    case -ETIMEDOUT:
        return "it took too long";
    default:
        break;
    }
    snprintf(text, VAULT_WHY_SIZE, "%s", strerror(-status));
    return text;
}

// A command's words may be secret: only the first one is shown.
void secret_tell(struct secret *secret, int status) {
    char text[IPC_TEXT_SIZE], words[VAULT_WHY_SIZE], set[200] = "";
    const char *why = vault_secret_why(status, words);
    if (secret->told == status) return;
    secret->told = status;
    if (secret->kind == SECRET_STORE && status == -ENOENT)
        snprintf(set, sizeof(set), "; put it there with `penstock secret set %.100s`", secret_place(secret));
    if (secret->kind == SECRET_FILE && status == -ENOENT)
        snprintf(set, sizeof(set), "; write the secret into the file");
    int shown = (int)strlen(secret->reference);
    if (secret->kind == SECRET_COMMAND) shown = (int)(4 + strcspn(secret_place(secret), " \t'\"=;|&<>()$`"));
    snprintf(text, sizeof(text), "secret %.*s: %s%s", shown > 400 ? 400 : shown, secret->reference, why, set);
    secret->pool->notice(text, secret->pool->data);
}

// ---- rounds ----

static void secret_round(struct secret *secret, uint64_t now_us);

static void secret_wake(struct list *waiters, int status) {
    while (!list_empty(waiters)) {
        struct secret_waiter *waiter = LIST_ENTRY(waiters->next, struct secret_waiter, link);
        list_remove(&waiter->link);
        waiter->done(waiter, status);
    }
}

// Takes value (secure memory). Whether it is another one than before.
static bool secret_adopt(struct secret *secret, uint8_t *value, size_t len) {
    bool same =
        value ? secret->value && secret->len == len && CRYPTO_memcmp(secret->value, value, len) == 0 : !secret->value;
    if (same) {
        secure_free(value);
        return false;
    }
    secure_free(secret->value);
    secret->value = NULL;
    secret->len = 0;
    if (value) {
        secret->value = secure_new(len); // no larger than it is
        if (secret->value) {
            memcpy(secret->value, value, len);
            secret->len = len;
        } else {
            secret->status = -ENOMEM;
        }
        secure_free(value);
    }
    secret->epoch++;
    return true;
}

void secret_finish(struct secret *secret, int status, uint8_t *value, size_t len, uint64_t now_us) {
    secret->asked = 0;
    secret->known_us = now_us;
    if (status == 0) status = vault_secret_check(value, len, NULL);
    if (status < 0) {
        secure_free(value);
        value = NULL;
        secret->file = (struct stat){0};
    }
    secret->status = status;
    bool changed = secret_adopt(secret, value, len);
    if (secret->status < 0)
        secret_tell(secret, secret->status);
    else if (secret->told != -EILSEQ || changed) // which is known only when a header is made of it
        secret->told = 0;
    if (changed && secret->epoch > 1) secret->pool->changed(secret, secret->pool->data);
    secret_wake(&secret->waiting, secret->status);
    if (list_empty(&secret->later)) return;
    while (!list_empty(&secret->later)) {
        struct list *first = secret->later.next;
        list_remove(first);
        list_append(&secret->waiting, first);
    }
    secret_round(secret, now_us);
}

static void secret_round(struct secret *secret, uint64_t now_us) {
    struct secret_pool *pool = secret->pool;
    struct ipc_source_ask ask = {.kind = secret_kinds[secret->kind].ask};
    if (++pool->next_id == 0) pool->next_id = 1;
    ask.id = pool->next_id;
    snprintf(ask.text, sizeof(ask.text), "%s", secret_place(secret));
    secret->asked = ask.id;
    secret->asked_us = now_us;
    int r = channel_send(pool->source, IPC_SOURCE_ASK, &ask, sizeof(ask), NULL, 0);
    if (r < 0) secret_finish(secret, r == -EAGAIN ? -EBUSY : r, NULL, 0, now_us);
}

void secret_fetch(struct secret *secret, struct secret_waiter *waiter, uint64_t now_us) {
    uint64_t age = now_us - secret->known_us;
    bool command = secret->kind == SECRET_COMMAND;
    // One for which there was no place has not failed.
    uint64_t again_us = secret->value ? SECRET_COMMAND_US : secret->status == -EBUSY ? 0 : COMMAND_AGAIN_US;
    if (secret->kind == SECRET_ENVIRONMENT || (command && !secret->asked && secret->known_us && age < again_us)) {
        if (secret->kind == SECRET_ENVIRONMENT && secret->status < 0) secret_tell(secret, secret->status);
        waiter->done(waiter, secret->status);
        return;
    }
    list_append(secret->asked && !command ? &secret->later : &secret->waiting, &waiter->link);
    if (!secret->asked) secret_round(secret, now_us);
}

// ---- without a request ----

void secret_pool_look(struct secret_pool *pool, uint64_t now_us) {
    LIST_FOREACH (&pool->secrets, node) {
        struct secret *secret = LIST_ENTRY(node, struct secret, link);
        if (secret->asked && now_us - secret->asked_us > SECRET_ROUND_US) {
            secret_output_close(secret);
            secure_free(TAKE_POINTER(secret->output));
            secret_finish(secret, -ETIMEDOUT, NULL, 0, now_us);
        }
        bool watched = secret->kind == SECRET_FILE || secret->kind == SECRET_STORE;
        if (watched && secret->value && !secret->asked) secret_round(secret, now_us);
    }
}
