// SPDX-License-Identifier: Apache-2.0
// Life cycle of a node's sandboxes, in one thread and without waiting: whatever takes time is done by a shim or by a sweep.
//
// Start: row, folder, specification, shim; when the shim says that the sandbox runs, the row does too. Whatever fails on the
// way, and whatever is killed on the way, ends in the same place: the shim's connection closes, a sweep removes what is left,
// then the row goes. A restart does the same with every row whose sandbox does not answer.
#include "daemon/node.h"

#include <errno.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "daemon/shim.h"
#include "sandbox/sandbox.h"

#define NODE_START_S 60  // from layers
#define NODE_PULL_S 900  // with an image to be fetched; or of one that is busy when it is found again
#define NODE_END_S 10    // in which a shim ends that was told to, and then one that was made to
#define NODE_RETRY_S 10  // at most, between two attempts to remove something

// ---- sweeping ----

struct node_sweeper {
    struct list list;
    struct node *node;
    struct event *event;
    pid_t pid;
    int pidfd;
    node_ended *ended;
    void *data;
};

static void sweep_free(struct node_sweeper *sweeper) {
    list_remove(&sweeper->list);
    if (sweeper->event) event_free(sweeper->event);
    if (sweeper->pidfd >= 0) close(sweeper->pidfd);
    free(sweeper);
}

static void sweep_done(evutil_socket_t fd, short what, void *data) {
    (void)fd, (void)what;
    struct node_sweeper *sweeper = data;
    int status = -1;
    if (waitpid(sweeper->pid, &status, WNOHANG) <= 0) return; // of one that is traced the tracer hears first
    node_ended *ended = sweeper->ended;
    void *ended_data = sweeper->data;
    sweep_free(sweeper);
    shim_link_reap();
    if (ended) ended(status == 0 ? NULL : "something of the sandbox could not be removed; the daemon's log says what", ended_data);
}

void node_sweep(struct node *node, const char *id, const char *folder, node_ended *ended, void *data) {
    char *argv[] = {"penstock", "@sweep", (char *)(uintptr_t)id, (char *)(uintptr_t)folder, NULL};
    struct node_sweeper *sweeper = NEW(struct node_sweeper);
    posix_spawnattr_t attributes;
    sigset_t none;
    sigemptyset(&none);
    if (!sweeper || posix_spawnattr_init(&attributes) != 0) {
        free(sweeper);
        if (ended) ended("out of memory", data);
        return;
    }
    *sweeper = (struct node_sweeper){.node = node, .pidfd = -1, .ended = ended, .data = data};
    list_append(&node->sweeps, &sweeper->list);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setsigmask(&attributes, &none);
    int rc = posix_spawn(&sweeper->pid, "/proc/self/exe", NULL, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    sweeper->pidfd = rc == 0 ? (int)syscall(SYS_pidfd_open, sweeper->pid, 0) : -1;
    sweeper->event = sweeper->pidfd >= 0 ? event_new(node->base, sweeper->pidfd, EV_READ | EV_PERSIST, sweep_done, sweeper) : NULL;
    if (sweeper->event && event_add(sweeper->event, NULL) == 0) return;
    if (rc == 0) waitpid(sweeper->pid, NULL, 0); // then it is done, whatever it says
    sweep_free(sweeper);
    if (ended) ended(rc == 0 ? NULL : "no process could be started to remove the sandbox", data);
}

// ---- sandboxes ----

struct node_ender {
    struct list list;
    node_ended *ended;
    void *data;
};

struct node_sandbox *node_find(const struct node *node, const char *id) {
    LIST_FOREACH(&node->sandboxes, at) {
        struct node_sandbox *sandbox = LIST_ENTRY(at, struct node_sandbox, list);
        if (strcmp(sandbox->id, id) == 0) return sandbox;
    }
    return NULL;
}

// A start that has come to an end, good or bad.
static void sandbox_started(struct node_sandbox *sandbox) {
    if (!sandbox->starting) return;
    sandbox->starting = false;
    sandbox->node->starting--;
    node_prepare(sandbox->node);
}

static void sandbox_free(struct node_sandbox *sandbox) {
    list_remove(&sandbox->list);
    sandbox->node->sandbox_count--;
    shim_link_free(sandbox->link);
    free(sandbox->counters);
    if (sandbox->timer) event_free(sandbox->timer);
    LIST_FOREACH(&sandbox->enders, at) free(LIST_ENTRY(at, struct node_ender, list));
    free(sandbox->policy);
    free(sandbox->folder);
    free(sandbox->layers);
    free(sandbox);
}

static void sandbox_say(const struct node_sandbox *sandbox, const char *text) {
    fprintf(stderr, "penstock: sandbox %s: %s\n", sandbox->id, text);
}

// A row that cannot be changed is found as it was by the next start.
static void sandbox_stored(const struct node_sandbox *sandbox, int rc, const struct error *err) {
    if (rc < 0 && rc != -ENOENT) sandbox_say(sandbox, err->text);
}

// Its row, and what nobody needs without it.
static void sandbox_forget(struct node_sandbox *sandbox) {
    struct node *node = sandbox->node;
    struct store_sandbox row = {0};
    struct error err = {0};
    AUTO_FREE char *layers = TAKE_POINTER(sandbox->layers);
    if (!sandbox->hidden) {
        if (store_sandbox_get(node->store, sandbox->id, &row, &err) == 0) layers = TAKE_POINTER(row.layers);
        store_sandbox_done(&row);
        sandbox_stored(sandbox, store_sandbox_remove(node->store, sandbox->id, &err), &err);
    }
    node_remove_layers(node, layers);
}

// Whoever waits is told. What could not be removed is tried again: its process may be about to end.
static void sandbox_swept(const char *failure, void *data) {
    struct node_sandbox *sandbox = data;
    if (failure && !sandbox->retry_s) sandbox_say(sandbox, failure);
    if (!failure) sandbox_forget(sandbox);
    node_started *started = TAKE_POINTER(sandbox->started);
    sandbox_started(sandbox);
    if (started) started(sandbox, sandbox->status ? sandbox->status : 500, sandbox->failure, sandbox->started_data);
    LIST_FOREACH(&sandbox->enders, at) {
        struct node_ender *ender = LIST_ENTRY(at, struct node_ender, list);
        list_remove(&ender->list);
        if (ender->ended) ender->ended(failure, ender->data);
        free(ender);
    }
    if (failure) {
        sandbox->retry_s = sandbox->retry_s ? sandbox->retry_s * 2 : 1;
        if (sandbox->retry_s > NODE_RETRY_S) sandbox->retry_s = NODE_RETRY_S;
        const struct timeval later = {.tv_sec = sandbox->retry_s};
        event_add(sandbox->timer, &later);
    } else {
        sandbox_free(sandbox);
    }
}

static void sandbox_sweep(struct node_sandbox *sandbox) {
    struct error err = {0};
    sandbox->ending = true;
    sandbox->up = false;
    event_del(sandbox->timer);
    if (!sandbox->hidden)
        sandbox_stored(sandbox, store_sandbox_set_state(sandbox->node->store, sandbox->id, STORE_STOPPING, &err), &err);
    node_sweep(sandbox->node, sandbox->id, sandbox->folder, sandbox_swept, sandbox);
}

// Nobody asked for it.
static void sandbox_say_end(const struct node_sandbox *sandbox, const char *why) {
    const struct store_audit row = {store_now_us(), "penstock", "ended by itself", sandbox->id, 0};
    struct error err = {0};
    fprintf(stderr, "penstock: sandbox %s: it ended by itself: %s\n", sandbox->id,
            *why ? why : "its shim was ended from outside");
    if (!sandbox->hidden && store_audit_add(sandbox->node->store, &row, &err) < 0) fprintf(stderr, "penstock: audit: %s\n", err.text);
}

static void sandbox_gone(int failure, const char *text, void *data) {
    struct node_sandbox *sandbox = data;
    bool by_itself = sandbox->up && !sandbox->ending;
    if (failure) sandbox->status = failure == -EINVAL ? 400 : failure == -EAGAIN ? 503 : 500;
    if (sandbox->started && !sandbox->failure[0])
        snprintf(sandbox->failure, sizeof(sandbox->failure), "%s", *text ? text : "the sandbox's shim ended while it was started");
    else if (by_itself) sandbox_say_end(sandbox, text);
    else if (*text) sandbox_say(sandbox, text);
    shim_link_free(TAKE_POINTER(sandbox->link));
    node_count_out(sandbox);
    sandbox_sweep(sandbox);
}

static void sandbox_timer(evutil_socket_t fd, short what, void *data);

static struct node_sandbox *sandbox_new(struct node *node, const char *id, enum policy_type type) {
    struct node_sandbox *sandbox = NEW(struct node_sandbox);
    if (!sandbox) return NULL;
    sandbox->node = node;
    list_init(&sandbox->enders);
    list_init(&sandbox->updates);
    list_append(&node->sandboxes, &sandbox->list);
    node->sandbox_count++;
    snprintf(sandbox->id, sizeof(sandbox->id), "%s", id);
    sandbox->type = type;
    sandbox->timer = evtimer_new(node->base, sandbox_timer, sandbox);
    if (asprintf(&sandbox->folder, "%s/sandboxes/%s", node->state, id) < 0) sandbox->folder = NULL;
    if (sandbox->timer && sandbox->folder) return sandbox;
    sandbox_free(sandbox);
    return NULL;
}

// ---- end ----

// What has it still after that, a copy of the shim, is found by the sweep.
static void sandbox_kill(struct node_sandbox *sandbox) {
    static const struct timeval patience = {.tv_sec = NODE_END_S};
    sandbox->killed = true;
    shim_link_kill(sandbox->link);
    event_add(sandbox->timer, &patience);
}

void node_end(struct node_sandbox *sandbox, node_ended *ended, void *data) {
    struct node_ender *ender = NEW(struct node_ender);
    struct error err = {0};
    if (!ender) {
        if (ended) ended("out of memory", data);
        return;
    }
    *ender = (struct node_ender){.ended = ended, .data = data};
    list_append(&sandbox->enders, &ender->list);
    if (sandbox->ending) return;
    sandbox->ending = true;
    if (!sandbox->hidden)
        sandbox_stored(sandbox, store_sandbox_set_state(sandbox->node->store, sandbox->id, STORE_STOPPING, &err), &err);
    // One that does not listen yet, or not any more, is ended by force.
    if (sandbox->up && shim_link_call(sandbox->link, IPC_SHIM_STOP, NULL, NULL, NULL, NULL, NULL, &err) == 0) {
        static const struct timeval patience = {.tv_sec = NODE_END_S};
        event_add(sandbox->timer, &patience);
    } else {
        sandbox_kill(sandbox);
    }
}

// Its time is over, but what it has is not thrown away for what is none of its faults: it runs on, and is paused later.
static void sandbox_pause_later(struct node_sandbox *sandbox, const char *why) {
    static const struct timeval later = {.tv_sec = NODE_RETRY_S};
    fprintf(stderr, "penstock: sandbox %s: it cannot be paused (%s) and runs on; it is tried again in %d seconds\n", sandbox->id, why,
            NODE_RETRY_S);
    if (!sandbox->ending) event_add(sandbox->timer, &later);
}

static void sandbox_pause_undone(const struct ipc_shim_done *done, void *data) {
    struct node_sandbox *sandbox = data;
    if (!done) return; // it has gone
    if (done->status < 0) {
        sandbox_say(sandbox, done->text);
        return;
    }
    sandbox->paused = false;
    sandbox_pause_later(sandbox, "its state could not be stored");
}

static void sandbox_undo_pause(struct node_sandbox *sandbox, const struct error *why) {
    struct error err = {0};
    sandbox_say(sandbox, why->text);
    if (shim_link_call(sandbox->link, IPC_SHIM_RESUME, NULL, NULL, sandbox_pause_undone, NULL, sandbox, &err) < 0)
        sandbox_say(sandbox, err.text);
}

static void sandbox_pause_done(const struct ipc_shim_done *done, void *data) {
    struct node_sandbox *sandbox = data;
    struct error err = {0};
    if (!done) return; // it has gone
    if (done->status < 0) {
        sandbox_pause_later(sandbox, done->text);
        return;
    }
    sandbox->paused = true;
    int rc = store_sandbox_set_state(sandbox->node->store, sandbox->id, STORE_PAUSED, &err);
    if (rc < 0 && rc != -ENOENT) sandbox_undo_pause(sandbox, &err);
}

// Its time is over; or, before it is up and while it ends, our patience.
static void sandbox_timer(evutil_socket_t fd, short what, void *data) {
    (void)fd, (void)what;
    struct node_sandbox *sandbox = data;
    struct store_sandbox row = {0};
    struct error err = {0};
    if (sandbox->retry_s) {
        sandbox_sweep(sandbox);
        return;
    }
    if (sandbox->killed) {
        shim_link_end(sandbox->link);
        return;
    }
    if (!sandbox->up || sandbox->ending) {
        snprintf(sandbox->failure, sizeof(sandbox->failure), "it took too long to start");
        sandbox_kill(sandbox);
        return;
    }
    if (sandbox->unstored) {
        node_store_found(sandbox, &err); // and sets the timer
        return;
    }
    int rc = store_sandbox_get(sandbox->node->store, sandbox->id, &row, &err);
    bool ends = rc == -ENOENT || (rc == 0 && !row.auto_pause);
    store_sandbox_done(&row);
    if (rc == 0 && !ends) rc = shim_link_call(sandbox->link, IPC_SHIM_PAUSE, NULL, NULL, sandbox_pause_done, NULL, sandbox, &err);
    if (ends) node_end(sandbox, NULL, NULL);
    else if (rc < 0) sandbox_pause_later(sandbox, err.text);
}

void node_set_timer(struct node_sandbox *sandbox, int64_t end_us) {
    int64_t left = end_us - store_now_us();
    if (left < 0) left = 0;
    const struct timeval time = {.tv_sec = left / 1000000, .tv_usec = left % 1000000};
    event_del(sandbox->timer);
    if (sandbox->unstored && sandbox->up && !sandbox->ending) {
        static const struct timeval later = {.tv_sec = NODE_RETRY_S};
        event_add(sandbox->timer, &later); // its end is set when it is stored
        return;
    }
    if (end_us > 0 && sandbox->up && !sandbox->paused && !sandbox->ending) event_add(sandbox->timer, &time);
}

// ---- start ----

// What its image turned out to be.
static int sandbox_store_image(struct node_sandbox *sandbox, struct error *err) {
    AUTO_FREE char *path = NULL, *layers = NULL, *config = NULL;
    if (!sandbox->cold || sandbox->hidden) return 0;
    if (asprintf(&path, "%s/" SHIM_IMAGE, sandbox->folder) < 0) return error_set(err, -ENOMEM, "out of memory");
    json_t *image = json_load_file(path, 0, NULL);
    layers = json_dumps(json_object_get(image, "layers"), JSON_COMPACT);
    config = json_dumps(json_object_get(image, "config"), JSON_COMPACT);
    json_decref(image);
    if (!layers || !config) return error_set(err, -EIO, "%s: cannot be read", path);
    return store_sandbox_set_image(sandbox->node->store, sandbox->id, layers, config, err);
}

static int sandbox_store_up(struct node_sandbox *sandbox, struct error *err) {
    struct store_sandbox row = {0};
    if (sandbox->hidden) return 0;
    int rc = sandbox_store_image(sandbox, err);
    if (rc == 0) rc = store_sandbox_get(sandbox->node->store, sandbox->id, &row, err);
    int64_t end = rc == 0 && row.end_us ? store_now_us() + (int64_t)row.timeout_s * 1000000 : 0;
    store_sandbox_done(&row);
    if (rc == 0) rc = store_sandbox_set_state_end(sandbox->node->store, sandbox->id, STORE_RUNNING, end, err);
    if (rc == 0) node_set_timer(sandbox, end);
    return rc;
}

// A shim that another daemon started: what it says is what is.
int node_store_found(struct node_sandbox *sandbox, struct error *err) {
    struct store *store = sandbox->node->store;
    struct store_sandbox row = {0};
    AUTO_FREE char *policy = NULL;
    enum policy_dialect dialect;
    uint64_t staged;
    int rc = store_policy_staged(store, sandbox->id, &policy, &dialect, &staged, err);
    if (rc == 0)
        rc = sandbox->found >= staged ? store_policy_activate(store, sandbox->id, staged, err)
                                      : store_policy_drop(store, sandbox->id, staged, err);
    if (rc == -ENOENT) rc = 0;
    if (rc == 0) rc = store_sandbox_get(store, sandbox->id, &row, err);
    int64_t end = row.end_us;
    // Resumed, and its new end is not known.
    if (rc == 0 && row.state == STORE_PAUSED && !sandbox->paused) end = row.timeout_s ? store_now_us() + (int64_t)row.timeout_s * 1000000 : 0;
    store_sandbox_done(&row);
    if (rc == 0) rc = store_sandbox_set_state_end(store, sandbox->id, sandbox->paused ? STORE_PAUSED : STORE_RUNNING, end, err);
    if (rc == 0 && sandbox->unstored) sandbox_say(sandbox, "its state is stored now");
    bool late = sandbox->unstored;
    sandbox->unstored = rc < 0 && rc != -ENOENT;
    node_set_timer(sandbox, end);
    if (rc == 0 && late && sandbox->renewals != sandbox->node->renewals) node_push_policy(sandbox);
    return rc;
}

void node_store_later(struct node_sandbox *sandbox, uint64_t generation, const struct error *why) {
    fprintf(stderr, "penstock: sandbox %s: it runs on, but its state cannot be stored (%s); it is tried again every %d seconds\n",
            sandbox->id, why->text, NODE_RETRY_S);
    sandbox->found = generation;
    sandbox->unstored = true;
    node_set_timer(sandbox, 0);
}

// What runs is not ended because its row cannot be written.
static int sandbox_store_adopted(struct node_sandbox *sandbox, const struct ipc_shim_up *up, struct error *err) {
    sandbox->found = up->generation;
    int rc = node_store_found(sandbox, err);
    if (!sandbox->unstored) return rc;
    node_store_later(sandbox, up->generation, err);
    return 0;
}

static void sandbox_up(const struct ipc_shim_up *up, void *data) {
    struct node_sandbox *sandbox = data;
    struct error err = {0};
    if (sandbox->up || sandbox->ending) return;
    sandbox->up = true;
    sandbox->paused = up->paused;
    event_del(sandbox->timer);
    int rc = sandbox->adopted ? sandbox_store_adopted(sandbox, up, &err) : sandbox_store_up(sandbox, &err);
    if (rc == 0 && sandbox->renewals != sandbox->node->renewals) node_push_policy(sandbox);
    if (rc < 0) {
        snprintf(sandbox->failure, sizeof(sandbox->failure), "%s", err.text);
        node_end(sandbox, NULL, NULL);
        return;
    }
    node_started *started = TAKE_POINTER(sandbox->started);
    sandbox_started(sandbox);
    if (started) started(sandbox, 0, "", sandbox->started_data);
}

static const struct shim_link_handlers sandbox_handlers = {.up = sandbox_up, .counted = node_counted, .gone = sandbox_gone};

int node_boot(struct node *node, const struct store_sandbox *row, bool hidden, node_started *started, void *data,
              struct node_sandbox **ret_sandbox, struct error *err) {
    if (!sandbox_identity().from_root)
        return error_set(err, -ENOSYS, "a node's sandboxes are containers, which need root (cgroups, ranges of users, overlays); run "
                         "`penstock serve` as root, or use `penstock run`, which needs no node");
    uint32_t most = node->config.node.max_sandboxes ? node->config.node.max_sandboxes : 1000;
    if (node->sandbox_count >= most)
        return error_set(err, -EAGAIN, "this node has %u sandboxes, which is its limit (node.sandboxes); remove one", most);
    struct node_sandbox *sandbox = sandbox_new(node, row->id, row->type);
    if (!sandbox) return error_set(err, -ENOMEM, "out of memory");
    sandbox->hidden = hidden;
    sandbox->layers = hidden && row->layers ? strdup(row->layers) : NULL;
    sandbox->cold = row->image && (!row->layers || strcmp(row->layers, "[]") == 0);
    sandbox->dialect = row->dialect;
    if (hidden && !(sandbox->policy = strdup(row->policy))) {
        sandbox_free(sandbox);
        return error_set(err, -ENOMEM, "out of memory");
    }
    int rc = hidden ? 0 : store_sandbox_insert(node->store, row, err);
    bool inserted = rc == 0 && !hidden;
    if (rc == 0 && mkdir(sandbox->folder, 0700) < 0) rc = error_set(err, -errno, "%s: %s", sandbox->folder, strerror(errno));
    if (rc == 0) rc = node_write_spec(sandbox, row, err);
    if (rc == 0) rc = shim_link_spawn(node->base, sandbox->folder, node_guard_users(node), &node->spare, &sandbox_handlers, sandbox, &sandbox->link, err);
    if (rc < 0) {
        struct error ignored;
        AUTO_FREE char *spec = NULL;
        if (asprintf(&spec, "%s/" SHIM_SPEC, sandbox->folder) >= 0) unlink(spec);
        rmdir(sandbox->folder);
        if (inserted) store_sandbox_remove(node->store, row->id, &ignored);
        sandbox_free(sandbox);
        return rc;
    }
    const struct timeval patience = {.tv_sec = sandbox->cold ? NODE_PULL_S : NODE_START_S};
    event_add(sandbox->timer, &patience);
    sandbox->started = started;
    sandbox->started_data = data;
    sandbox->starting = true;
    node->starting++;
    if (ret_sandbox) *ret_sandbox = sandbox;
    return 0;
}

// ---- of another daemon ----

struct node_push {
    struct node *node;
    char id[STORE_ID_SIZE];
};

static void push_again(evutil_socket_t fd, short what, void *data) {
    (void)fd, (void)what;
    struct node_push *push = data;
    struct node_sandbox *sandbox = node_find(push->node, push->id);
    if (sandbox) node_push_policy(sandbox);
    free(push);
}

// An update is under way, that was judged by the configuration before.
static bool sandbox_push_later(const struct node_sandbox *sandbox) {
    static const struct timeval moment = {.tv_usec = 50000};
    struct node_push *push = NEW(struct node_push);
    if (!push) return false;
    push->node = sandbox->node;
    memcpy(push->id, sandbox->id, sizeof(push->id));
    if (event_base_once(sandbox->node->base, -1, EV_TIMEOUT, push_again, push, &moment) == 0) return true;
    free(push);
    return false;
}

static void sandbox_pushed(const struct ipc_shim_done *done, void *data) {
    struct node_sandbox *sandbox = data;
    if (!done || done->status == 0 || (done->status == -EBUSY && sandbox_push_later(sandbox))) return;
    sandbox_say(sandbox, done->text);
}

static int push_policy(struct node_sandbox *sandbox, const char *policy, enum policy_dialect dialect, uint64_t generation,
                       struct error *err) {
    json_t *argument = node_policy_json(&sandbox->node->config, policy, dialect, generation);
    int rc = argument && json_object_set_new(argument, "known", json_true()) == 0 ? 0 : error_set(err, -ENOMEM, "out of memory");
    if (rc == 0) rc = shim_link_call(sandbox->link, IPC_SHIM_POLICY, argument, NULL, sandbox_pushed, NULL, sandbox, err);
    json_decref(argument);
    return rc;
}

void node_push_policy(struct node_sandbox *sandbox) {
    struct store_sandbox row = {0};
    struct error err = {0};
    if (!sandbox->up || sandbox->ending || sandbox->unstored) return; // it is told when it is up, and stored
    sandbox->renewals = sandbox->node->renewals;
    int rc = sandbox->hidden ? 0 : store_sandbox_get(sandbox->node->store, sandbox->id, &row, &err);
    if (rc == 0)
        rc = sandbox->hidden ? push_policy(sandbox, sandbox->policy, sandbox->dialect, 1, &err)
                             : push_policy(sandbox, row.policy, row.dialect, row.generation, &err);
    if (rc < 0) sandbox_say(sandbox, err.text);
    store_sandbox_done(&row);
}

int node_adopt(struct node *node, const char *id, enum policy_type type, bool keep, bool hidden, struct error *err) {
    struct node_sandbox *sandbox = sandbox_new(node, id, type);
    struct error why;
    if (!sandbox) return error_set(err, -ENOMEM, "out of memory");
    sandbox->adopted = true;
    sandbox->hidden = hidden;
    sandbox->renewals = node->renewals - 1; // of another daemon
    if (shim_link_connect(node->base, sandbox->folder, &sandbox_handlers, sandbox, &sandbox->link, &why) < 0) {
        if (keep) sandbox_say(sandbox, "it did not outlive the daemon");
        sandbox_sweep(sandbox);
        return 0;
    }
    const struct timeval patience = {.tv_sec = NODE_PULL_S};
    event_add(sandbox->timer, &patience);
    if (!keep) node_end(sandbox, NULL, NULL); // by force: it is not up for us
    return 0;
}

// ---- the spare one ----

#define NODE_SPARE_US 2000 // whoever waits for an answer comes first

static void node_spare_due(evutil_socket_t fd, short what, void *data) {
    (void)fd, (void)what;
    struct node *node = data;
    struct error err = {0};
    AUTO_FREE char *parent = NULL;
    if (!node_guard_users(node) || node->starting > 0 || node->spare.fd >= 0) return;
    int rc = asprintf(&parent, "%s/sandboxes", node->state) < 0 ? error_set(&err, -ENOMEM, "out of memory")
                                                               : shim_spare_start(&node->spare, parent, node_guard_users(node), &err);
    if (rc < 0) fprintf(stderr, "penstock: %s\n", err.text);
}

void node_prepare(struct node *node) {
    static const struct timeval soon = {.tv_usec = NODE_SPARE_US};
    if (!node->spare_event) node->spare_event = evtimer_new(node->base, node_spare_due, node);
    if (node->spare_event) event_add(node->spare_event, &soon);
}

void node_free(struct node *node) {
    node_scrape_free(node);
    if (node->spare_event) event_free(node->spare_event);
    shim_spare_end(&node->spare);
    LIST_FOREACH(&node->sandboxes, at) sandbox_free(LIST_ENTRY(at, struct node_sandbox, list));
    LIST_FOREACH(&node->sweeps, at) sweep_free(LIST_ENTRY(at, struct node_sweeper, list));
}
