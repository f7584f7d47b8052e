// SPDX-License-Identifier: Apache-2.0
#include "rig.h"

#include <ftw.h>

#include "vault/secure.h"
#include "vault/source.h"

static char folder[64];

void rig_init(void) {
    snprintf(folder, sizeof(folder), "/tmp/penstock-vault-XXXXXX");
    assert_non_null(mkdtemp(folder));
    setenv("PENSTOCK_STATE_FOLDER", rig_path("state"), 1);
    umask(022);
    assert_int_equal(secure_init(NULL), 0);
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *at) {
    (void)status, (void)kind, (void)at;
    return remove(path);
}

void rig_done(void) { assert_int_equal(nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0); }

const char *rig_path(const char *name) {
    static char path[256];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

void rig_write(const char *name, const char *text) {
    int fd = open(rig_path(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

void rig_replace(const char *name, const char *text) {
    char from[256];
    rig_write("rig-new", text);
    snprintf(from, sizeof(from), "%s", rig_path("rig-new"));
    assert_int_equal(rename(from, rig_path(name)), 0);
}

mode_t rig_mode(const char *path) {
    struct stat status;
    assert_int_equal(lstat(path, &status), 0);
    return status.st_mode & 07777;
}

// ---- a pool ----

static void on_change(struct secret *secret, void *data) {
    struct rig_pool *rig = data;
    rig->changes++;
    rig->epoch = secret->epoch;
}

static void on_notice(const char *text, void *data) {
    struct rig_pool *rig = data;
    rig->notices++;
    snprintf(rig->notice, sizeof(rig->notice), "%s", text);
}

void rig_pool_init(struct rig_pool *rig, int command_ms) {
    int pair[2];
    *rig = (struct rig_pool){0};
    secret_pool_init(&rig->pool);
    assert_int_equal(channel_pair(pair), 0);
    rig->source = fork();
    if (rig->source == 0) {
        close(pair[0]);
        _exit(source_main(pair[1], command_ms));
    }
    close(pair[1]);
    rig->pool.source = pair[0];
    rig->pool.owner = geteuid();
    rig->pool.base = event_base_new();
    rig->pool.changed = on_change;
    rig->pool.notice = on_notice;
    rig->pool.data = rig;
}

void rig_pool_done(struct rig_pool *rig) {
    int status;
    secret_pool_done(&rig->pool);
    event_base_free(rig->pool.base);
    assert_int_equal(waitpid(rig->source, &status, 0), rig->source);
    assert_int_equal(status, 0);
}

void rig_turn(struct rig_pool *rig) {
    _Alignas(max_align_t) char buffer[CHANNEL_BUFFER_SIZE];
    struct channel_message message;
    event_base_loop(rig->pool.base, EVLOOP_NONBLOCK);
    int r = channel_wait(rig->pool.source, 20, buffer, sizeof(buffer), &message);
    if (r == -ETIMEDOUT) return;
    assert_int_equal(r, 1);
    assert_true(secret_pool_message(&rig->pool, &message, clock_us()));
    channel_message_close(&message);
}

struct fetch {
    struct secret_waiter waiter;
    bool over;
    int status;
};

static void fetched(struct secret_waiter *waiter, int status) {
    struct fetch *fetch = LIST_ENTRY(waiter, struct fetch, waiter);
    fetch->over = true;
    fetch->status = status;
}

int rig_fetch_at(struct rig_pool *rig, struct secret *secret, uint64_t now_us) {
    struct fetch fetch = {.waiter.done = fetched};
    list_init(&fetch.waiter.link);
    secret_fetch(secret, &fetch.waiter, now_us);
    for (int i = 0; i < 1500 && !fetch.over; i++) rig_turn(rig);
    assert_true(fetch.over);
    return fetch.status;
}

int rig_fetch(struct rig_pool *rig, struct secret *secret) { return rig_fetch_at(rig, secret, clock_us()); }

void assert_secret(const struct secret *secret, const char *text) {
    assert_non_null(secret->value);
    assert_int_equal(secret->len, strlen(text));
    assert_memory_equal(secret->value, text, secret->len);
}
