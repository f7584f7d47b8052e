// SPDX-License-Identifier: Apache-2.0
// The processes of one run: how they are started, joined to each other, and started again.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "daemon/run_state.h"
#include "daemon/skeleton_choice.h"
#include "net/guard.h"

#define RUN_RESTARTS_MAX 5    // of gate, resolver and vault within RUN_RESTART_WINDOW_US; then the sandbox stays without
#define RUN_RESTART_WINDOW_US 10000000

// ---- what the gate is given ----

// A sealed memory file.
static int run_memfd(const char *name, const void *bytes, size_t len) {
    AUTO_CLOSE int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) return -errno;
    size_t done = 0;
    while (done < len) {
        ssize_t written = write(fd, (const char *)bytes + done, len - done);
        if (written < 0) return -errno;
        done += (size_t)written;
    }
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) < 0) return -errno;
    return TAKE_FD(fd);
}

// vault: the gate's end of a channel on which the vault has this policy's rules; -1: it keeps the one it has.
static int run_give_policy(struct run *run, bool keep_existing, int vault, struct error *err) {
    struct ipc_policy message = {.generation = policy_facts(run->policy).generation, .keep_existing = keep_existing};
    size_t size;
    const void *block = policy_block(run->policy, &size);
    AUTO_CLOSE int fd = run_memfd("penstock-policy", block, size);
    if (fd < 0) return error_set(err, fd, "policy for the gate: %s", strerror(-fd));
    message.size = size;
    const int fds[] = {fd, vault};
    return role_send(&run->roles[ROLE_GATE], IPC_GATE_POLICY, &message, sizeof(message), fds, vault < 0 ? 1 : 2, err);
}

int run_send_policy(struct run *run, bool keep_existing, struct error *err) {
    return run_give_policy(run, keep_existing, -1, err);
}

// ---- starting the roles ----

// As root, gate and resolver are a user of their own, so that not even the sandbox's user is theirs; those of a node have the
// numbers by which the kernel knows them.
static uint32_t run_number(const struct run *run, enum role_kind kind, uint32_t usual) {
    if (!run->users) return usual + ROLE_USERS;
    return run->users + (kind == ROLE_RESOLVER ? GUARD_ROLE_USERS : 0) + (uint32_t)getpid() % GUARD_ROLE_USERS;
}

int run_start_role(struct run *run, enum role_kind kind, struct error *err) {
    const struct sandbox_identity *identity = &run->spec.identity;
    bool drop = identity->from_root && kind != ROLE_KEEPER;
    if (run->roles[kind].pid > 0) return 0; // started ahead
    return role_start(&run->roles[kind], kind, drop ? run_number(run, kind, identity->uid) : 0,
                      drop ? run_number(run, kind, identity->gid) : 0, NULL, err);
}

// With the channel of the first gate: the skeleton is built once, leading to it.
static int run_start_keeper(struct run *run, int gate, struct error *err) {
    struct ipc_keeper_start start = {.uid = run->spec.identity.uid, .gid = run->spec.identity.gid};
    start.loopback_ports.count =
        (uint32_t)policy_loopback_ports(run->policy, start.loopback_ports.ports, IPC_PORTS_MAX);
    static const uint16_t doors[] = {KEEPER_PORT_HTTP, KEEPER_PORT_SOCKS, 0};
    int rc = skeleton_choice_fill(run->policy, run->options->proxy ? doors : NULL, &start, err);
    return rc < 0 ? rc : role_send(&run->roles[ROLE_KEEPER], IPC_KEEPER_START, &start, sizeof(start), &gate, 1, err);
}

static int run_pair(enum role_kind kind, int *ret_gate, int *ret_other, struct error *err) {
    int pair[2];
    int rc = channel_pair(pair);
    if (rc < 0) return error_set(err, rc, "channel between gate and %s: %s", role_name(kind), strerror(-rc));
    *ret_gate = pair[0];
    *ret_other = pair[1];
    return 0;
}

// Tells a role that runs already. One that has just died is told nothing: we see its end by its own event, and the one that is
// started in its place is told everything anew.
static int run_tell(struct run *run, enum role_kind kind, enum ipc_type type, int fd, struct error *err) {
    int rc = role_send(&run->roles[kind], type, NULL, 0, &fd, 1, err);
    return role_has_ended(rc) ? 0 : rc;
}

// Gives one end of a new channel to the resolver, the other to the gate. One that is not there yet will get it.
static int run_join_resolver(struct run *run, int *ret_fd, struct error *err) {
    AUTO_CLOSE int gate = -1;
    AUTO_CLOSE int other = -1;
    int rc = run_pair(ROLE_RESOLVER, &gate, &other, err);
    if (rc < 0) return rc;
    if (run->roles[ROLE_RESOLVER].pid > 0) {
        rc = run_tell(run, ROLE_RESOLVER, IPC_RESOLVER_GATE, other, err);
    } else {
        if (run->question_event) event_free(TAKE_POINTER(run->question_event));
        if (run->questions >= 0) close(run->questions);
        run->questions = TAKE_FD(other);
    }
    if (rc == 0) *ret_fd = TAKE_FD(gate);
    return rc;
}

static int run_start_vault(struct run *run, struct error *err) {
    const struct sandbox_identity *identity = &run->spec.identity;
    if (!run->credentials) return 0;
    int rc = credentials_start(run->credentials, &run->roles[ROLE_VAULT],
                               identity->from_root ? identity->uid + 2 * ROLE_USERS : 0,
                               identity->from_root ? identity->gid + 2 * ROLE_USERS : 0, err);
    if (rc == 0) run->spec.trust = credentials_trust(run->credentials);
    return rc;
}

static int run_begin_gate_of(struct run *run, int keeper, struct error *err) {
    AUTO_CLOSE int resolver = -1;
    AUTO_CLOSE int vault = -1;
    struct ipc_gate_start start = {.doors = run->options->proxy, .bytes_out = run->bytes_out};
    memcpy(start.sandbox, run->name, sizeof(start.sandbox));
    int rc = run_join_resolver(run, &resolver, err);
    if (rc == 0 && run->credentials) rc = credentials_join(run->credentials, &run->roles[ROLE_VAULT], &vault, err);
    if (rc == 0) rc = run_start_role(run, ROLE_GATE, err);
    run->gates++;
    int fds[] = {keeper, resolver, vault, run->roots};
    size_t count = vault < 0 ? 2 : run->roots < 0 ? 3 : 4;
    if (rc == 0) rc = role_send(&run->roles[ROLE_GATE], IPC_GATE_START, &start, sizeof(start), fds, count, err);
    return rc < 0 ? rc : run_send_policy(run, false, err);
}

static int run_await_gate(struct run *run, struct error *err) {
    struct channel_message message;
    int rc = role_expect(&run->roles[ROLE_GATE], IPC_GATE_READY, &message, err);
    if (rc == 0) run->gate_started = true;
    return rc;
}

static void run_say_skeleton(const struct run *run, const struct ipc_keeper_ready *ready) {
    char words[IPC_TEXT_SIZE];
    if (!run->options->quiet && skeleton_choice_words(ready, words, sizeof(words))) fprintf(stderr, "penstock: %s\n", words);
}

int run_begin_roles(struct run *run, struct error *err) {
    AUTO_CLOSE int gate = -1;
    int rc = run_pair(ROLE_KEEPER, &run->keeper, &gate, err);
    if (rc == 0) rc = run_start_keeper(run, gate, err);
    return rc < 0 ? rc : run_start_vault(run, err);
}

int run_begin_gate(struct run *run, struct error *err) {
    AUTO_CLOSE int keeper = TAKE_FD(run->keeper);
    return run_begin_gate_of(run, keeper, err);
}

int run_await_namespaces(struct run *run, struct error *err) {
    struct channel_message message;
    int rc = role_expect(&run->roles[ROLE_KEEPER], IPC_KEEPER_NAMESPACES, &message, err);
    if (rc < 0) return rc;
    run->user_namespace = TAKE_FD(message.fds[0]);
    run->net_namespace = TAKE_FD(message.fds[1]);
    return 0;
}

int run_await_roles(struct run *run, struct error *err) {
    struct channel_message message;
    int rc = role_expect(&run->roles[ROLE_KEEPER], IPC_KEEPER_READY, &message, err);
    if (rc < 0) return rc;
    run_say_skeleton(run, message.body);
    return run_await_gate(run, err);
}

static int run_start_resolver(struct run *run, struct error *err) {
    struct role *resolver = &run->roles[ROLE_RESOLVER];
    run->resolver_ready = false;
    int rc = run_start_role(run, ROLE_RESOLVER, err);
    return rc < 0 ? rc : role_send(resolver, IPC_RESOLVER_START, &run->servers, sizeof(run->servers), NULL, 0, err);
}

int run_start_late_resolver(struct run *run, struct error *err) {
    AUTO_CLOSE int questions = TAKE_FD(run->questions);
    int rc = run_start_resolver(run, err);
    return rc < 0 ? rc : role_send(&run->roles[ROLE_RESOLVER], IPC_RESOLVER_GATE, NULL, 0, &questions, 1, err);
}

// ---- roots of trust ----

int run_read_roots(struct run *run, struct error *err) {
    const char *path = run->options->upstream_ca;
    struct stat status;
    if (!path) return 0;
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &status) < 0) return error_set(err, -EINVAL, "--upstream-ca %s: %s", path, strerror(errno));
    if (!S_ISREG(status.st_mode) || status.st_size > IPC_ROOTS_MAX)
        return error_set(err, -EINVAL, "--upstream-ca %s: expected a file of at most %d bytes with certificates (PEM)", path,
                         IPC_ROOTS_MAX);
    AUTO_FREE char *text = NEW_ARRAY(char, (size_t)status.st_size + 1);
    if (!text) return error_set(err, -ENOMEM, "out of memory");
    ssize_t got = pread(fd, text, (size_t)status.st_size, 0);
    if (got < 0) return error_set(err, -EINVAL, "--upstream-ca %s: %s", path, strerror(errno));
    if (!strstr(text, "-----BEGIN CERTIFICATE-----"))
        return error_set(err, -EINVAL, "--upstream-ca %s: no certificate in it; expected PEM text with "
                         "\"-----BEGIN CERTIFICATE-----\"", path);
    run->roots = run_memfd("penstock-roots", text, (size_t)got);
    return run->roots < 0 ? error_set(err, run->roots, "--upstream-ca %s: %s", path, strerror(-run->roots)) : 0;
}

// ---- starting again ----

static int run_restart_resolver(struct run *run, struct error *err) {
    struct role *resolver = &run->roles[ROLE_RESOLVER];
    struct channel_message message;
    AUTO_CLOSE int channel = -1;
    role_stop(resolver, 0);
    int rc = run_start_resolver(run, err);
    if (rc == 0) rc = role_expect(resolver, IPC_RESOLVER_READY, &message, err);
    run->resolver_ready = rc == 0;
    if (rc == 0) rc = run_join_resolver(run, &channel, err);
    return rc < 0 ? rc : run_tell(run, ROLE_GATE, IPC_GATE_RESOLVER, channel, err);
}

static bool run_has_servers(const struct run *run, const struct ipc_resolver_start *servers) {
    bool same = run->servers.count == servers->count;
    for (uint32_t i = 0; same && i < servers->count; i++)
        same = run->servers.servers[i].port == servers->servers[i].port &&
               addr_equal(&run->servers.servers[i].address, &servers->servers[i].address);
    return same;
}

int run_set_servers(struct run *run, const struct ipc_resolver_start *servers, struct error *err) {
    if (run_has_servers(run, servers)) return 0;
    run->servers = *servers;
    if (run->roles[ROLE_RESOLVER].pid <= 0) return 0; // the one that is started next has them
    if (run->role_events[ROLE_RESOLVER]) event_free(TAKE_POINTER(run->role_events[ROLE_RESOLVER]));
    int rc = run_restart_resolver(run, err);
    run_watch(run);
    return rc;
}

// Both may have died at once, of the same cause.
static int run_revive_vault(struct run *run, struct error *err) {
    struct role *vault = &run->roles[ROLE_VAULT];
    struct pollfd item = {.fd = vault->channel, .events = POLLIN};
    if (!run->credentials || (vault->pid > 0 && poll(&item, 1, 0) >= 0 && !(item.revents & POLLHUP))) return 0;
    role_stop(vault, 0);
    return run_start_vault(run, err);
}

static int run_restart_gate(struct run *run, struct error *err) {
    AUTO_CLOSE int gate = -1;
    AUTO_CLOSE int keeper = -1;
    role_stop(&run->roles[ROLE_GATE], 0);
    int rc = run_pair(ROLE_KEEPER, &keeper, &gate, err);
    if (rc == 0) rc = role_send(&run->roles[ROLE_KEEPER], IPC_KEEPER_GATE, NULL, 0, &gate, 1, err);
    if (rc == 0) rc = run_revive_vault(run, err);
    if (rc == 0) rc = run_begin_gate_of(run, keeper, err);
    if (rc == 0) rc = run_await_gate(run, err);
    if (rc == 0) run_in_force(run, &(struct ipc_active){.generation = policy_facts(run->policy).generation});
    return rc;
}

static int run_give_rules(struct run *run, bool keep_existing, struct error *err) {
    AUTO_CLOSE int vault = -1;
    int rc = run_start_vault(run, err);
    if (rc == 0 && run->credentials) rc = credentials_join(run->credentials, &run->roles[ROLE_VAULT], &vault, err);
    return rc < 0 ? rc : run_give_policy(run, keep_existing, vault, err);
}

int run_send_rules(struct run *run, struct credentials *credentials, bool keep_existing, struct error *err) {
    bool bare = credentials && !run->credentials; // the gate has not been made ready for what opens connections
    if (run->role_events[ROLE_VAULT]) event_free(TAKE_POINTER(run->role_events[ROLE_VAULT]));
    role_stop(&run->last_vault, 0);
    run->last_vault = run->roles[ROLE_VAULT]; // what is under way is asked of it until the gate has the policy
    run->roles[ROLE_VAULT] = (struct role){.kind = ROLE_VAULT, .pidfd = -1, .channel = -1};
    run->spec.trust = NULL;
    credentials_free(run->credentials);
    run->credentials = credentials;
    if (run->roles[ROLE_GATE].pid <= 0) return 0;
    if (bare && run->role_events[ROLE_GATE]) event_free(TAKE_POINTER(run->role_events[ROLE_GATE])); // of the one that is stopped
    int rc = bare ? run_restart_gate(run, err) : run_give_rules(run, keep_existing, err);
    run_watch(run);
    return rc;
}

static int run_restart_vault(struct run *run, struct error *err) {
    AUTO_CLOSE int channel = -1;
    role_stop(&run->roles[ROLE_VAULT], 0);
    int rc = run_start_vault(run, err);
    if (rc == 0) rc = credentials_join(run->credentials, &run->roles[ROLE_VAULT], &channel, err);
    return rc < 0 ? rc : run_tell(run, ROLE_GATE, IPC_GATE_VAULT, channel, err);
}

// Whether one restart more is within the budget.
static bool run_count_restart(struct run *run) {
    uint64_t now = clock_us();
    if (now - run->restart_window_us > RUN_RESTART_WINDOW_US) {
        run->restart_window_us = now;
        run->restarts = 0;
    }
    return ++run->restarts <= RUN_RESTARTS_MAX;
}

void run_no_restarts(struct run *run) {
    run->restarts = RUN_RESTARTS_MAX;
    run->restart_window_us = clock_us();
}

static int run_restart_role(struct run *run, enum role_kind dead, struct error *err) {
    switch (dead) {
    case ROLE_RESOLVER: return run_restart_resolver(run, err);
    case ROLE_GATE: return run_restart_gate(run, err);
    case ROLE_VAULT: return run_restart_vault(run, err);
    case ROLE_KEEPER:
    case ROLE_COUNT: break;
    }
    return error_set(err, -EIO, "the %s process of the sandbox died", role_name(dead));
}

static bool run_has_keeper(const struct run *run) {
    struct pollfd end = {.fd = run->roles[ROLE_KEEPER].channel};
    return poll(&end, 1, 0) == 0; // else POLLHUP
}

void run_restart(struct run *run, enum role_kind dead) {
    struct error err = {0};
    int rc = -EIO;
    if (dead == ROLE_KEEPER || !run_count_restart(run)) {
        error_set(&err, rc, "the %s process of the sandbox died", role_name(dead));
    } else {
        fprintf(stderr, "penstock: the %s process of the sandbox died%s; starting it again\n", role_name(dead),
                dead == ROLE_RESOLVER && !run->resolver_ready ? " while it was started" : "");
        // Another one may have died of the same cause, in the middle of this.
        do rc = run_restart_role(run, dead, &err);
        while (role_has_ended(rc) && run_count_restart(run));
    }
    if (rc == 0) return;
    // A gate ends with its keeper, and we may have heard of that first.
    if (dead == ROLE_GATE && !run_has_keeper(run)) dead = ROLE_KEEPER;
    if (dead == ROLE_KEEPER) error_set(&err, rc, "the %s process of the sandbox died", role_name(dead));
    if (dead == ROLE_VAULT) { // requests to bound hosts fail, everything else goes on
        fprintf(stderr, "penstock: %s; the sandbox's requests get no credentials from here\n", err.text);
        role_stop(&run->roles[ROLE_VAULT], 0);
        return;
    }
    run->cut_off = true;
    if (!run->log_failed) fprintf(stderr, "penstock: %s; the sandbox has no network from here\n", err.text);
    role_stop(&run->roles[ROLE_GATE], 0);
    // Without its keeper nothing would answer the sandbox's connections: they would hang.
    if (dead == ROLE_KEEPER) keeper_refuse(run->user_namespace, run->net_namespace);
}

// If the vault has gone we see its end by ourselves, and what cannot be sent here is of no matter.
void run_rejoin_vault(struct run *run) {
    AUTO_CLOSE int channel = -1;
    struct error err = {0};
    if (run->roles[ROLE_VAULT].pid <= 0 || !run_count_restart(run)) return;
    if (credentials_join(run->credentials, &run->roles[ROLE_VAULT], &channel, &err) < 0) return;
    role_send(&run->roles[ROLE_GATE], IPC_GATE_VAULT, NULL, 0, &channel, 1, &err);
}
