// SPDX-License-Identifier: Apache-2.0
// update-rig DNS LOG OUTPUT POLICY... -- COMMAND: a sandbox with a real keeper, gate and resolver and the first policy, in
// whose namespaces the command runs (its output goes to OUTPUT; no bubblewrap). Commands are read from standard input, a line
// each, and answered with a line of JSON:
//   update N [keep]   policy N is put in force; what the gate says, and how long it took
//   alternate COUNT   so many updates, to the second policy and the first in turn
//   count             the gate's counters
//   damage            a block that is no policy: the old one stays
//   stop              SIGTERM to the command, and its end
// LOG gets a line for each decision: generation, event, protocol, verdict, reason, port, address, name.
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "daemon/nameserver.h"
#include "daemon/run_state.h"

#define RIG_POLICIES 4

static struct daemon_run rig_options = {.log_fd = -1, .quiet = true};
static struct run rig = {.options = &rig_options, .user_namespace = -1, .net_namespace = -1, .signals = -1, .host_watch = -1,
                         .child = -1, .roots = -1, .questions = -1};
static struct policy_model *rig_models[RIG_POLICIES];
static size_t rig_count;
static FILE *rig_log;
static _Alignas(max_align_t) uint8_t rig_buffer[CHANNEL_BUFFER_SIZE];

int main(int argc, char **argv);

static void rig_die(const char *what, const struct error *err) {
    fprintf(stderr, "update-rig: %s: %s\n", what, err ? err->text : strerror(errno));
    exit(1);
}

static void rig_read(const char *path) {
    struct buf text = BUF_INIT;
    struct error err = {0};
    if (buf_read_file(&text, path, 16 << 20) < 0) rig_die(path, NULL);
    if (policy_read(text.data, text.len, path, POLICY_DIALECT_NATIVE, &rig_models[rig_count++], &err) < 0) rig_die("policy", &err);
    buf_done(&text);
}

static void rig_compile(size_t index) {
    struct error err = {0};
    policy_free(rig.policy);
    rig.policy = NULL;
    int rc = policy_compile(rig_models[index], NULL, NULL, 0, ++rig.generation, &rig.policy, NULL, &err);
    if (rc < 0) rig_die("policy", &err);
}

static void rig_decisions(const struct channel_message *message) {
    struct ipc_decision record;
    char address[ADDR_TEXT_SIZE];
    for (size_t at = 0; ipc_decision_next(message->body, message->length, &at, &record);) {
        address[0] = '\0';
        if (record.address.family != ADDR_NONE) addr_format(&record.address, address);
        fprintf(rig_log, "%" PRIu64 " %s %s %s %s %u %s %s\n", record.generation, record.event ? "flow" : "decision",
                policy_protocol_name(record.protocol), policy_verdict_name(record.verdict), policy_reason_name(record.reason),
                record.port, address[0] ? address : "-", record.name[0] ? record.name : "-");
    }
}

// Takes what the gate says. True: a message of this type came, which is copied.
static bool rig_hear(enum ipc_type type, void *ret_body, size_t size) {
    struct channel_message message;
    bool heard = false;
    int rc;
    while (!heard && (rc = channel_receive(rig.roles[ROLE_GATE].channel, rig_buffer, sizeof(rig_buffer), &message)) != -EAGAIN) {
        if (rc != 1) rig_die("the gate has ended", NULL);
        if (message.type == IPC_DECISION) rig_decisions(&message);
        if (message.type == IPC_ERROR) fprintf(stderr, "update-rig: %s\n", ((const struct ipc_error *)message.body)->text);
        heard = message.type == type && size > 0;
        if (heard) memcpy(ret_body, message.body, size);
        channel_message_close(&message);
    }
    return heard;
}

static void rig_wait(enum ipc_type type, void *ret_body, size_t size) {
    struct pollfd item = {.fd = rig.roles[ROLE_GATE].channel, .events = POLLIN};
    while (!rig_hear(type, ret_body, size))
        if (poll(&item, 1, 20000) <= 0) rig_die("the gate does not answer", NULL);
}

static struct ipc_active rig_update(size_t index, bool keep, uint64_t *ret_us) {
    struct ipc_active active;
    struct error err = {0};
    uint64_t begin = clock_us();
    rig_compile(index);
    if (run_send_policy(&rig, keep, &err) < 0) rig_die("update", &err);
    rig_wait(IPC_GATE_ACTIVE, &active, sizeof(active));
    *ret_us = clock_us() - begin;
    if (active.status == 0 && active.generation != rig.generation) rig_die("another generation is in force", NULL);
    return active;
}

static void rig_say(const struct ipc_active *active, uint64_t us, uint64_t count) {
    printf("{\"status\":%d,\"generation\":%" PRIu64 ",\"gate_us\":%" PRIu64 ",\"us\":%" PRIu64 ",\"closed\":%u,\"kept\":%u,"
           "\"updates\":%" PRIu64 "}\n", active->status, active->generation, active->update_us, us, active->flows_closed,
           active->flows_kept, count);
}

static void rig_alternate(uint64_t count) {
    struct ipc_active active = {0};
    uint64_t us, sum = 0;
    for (uint64_t i = 0; i < count; i++, sum += us) active = rig_update((i + 1) % 2, false, &us);
    rig_say(&active, sum, count);
}

static void rig_damage(void) {
    static const char bytes[4096] = "no policy";
    struct ipc_policy message = {.generation = rig.generation + 1, .size = sizeof(bytes)};
    struct ipc_active active;
    struct error err = {0};
    AUTO_CLOSE int fd = memfd_create("damage", MFD_CLOEXEC);
    if (fd < 0 || write(fd, bytes, sizeof(bytes)) != sizeof(bytes)) rig_die("damage", NULL);
    if (role_send(&rig.roles[ROLE_GATE], IPC_GATE_POLICY, &message, sizeof(message), &fd, 1, &err) < 0) rig_die("damage", &err);
    rig_wait(IPC_GATE_ACTIVE, &active, sizeof(active));
    rig_say(&active, 0, 0);
}

static void rig_counters(void) {
    struct ipc_counters counters;
    struct error err = {0};
    if (role_send(&rig.roles[ROLE_GATE], IPC_GATE_COUNT, NULL, 0, NULL, 0, &err) < 0) rig_die("count", &err);
    rig_wait(IPC_GATE_COUNTERS, &counters, sizeof(counters));
    uint64_t updates = 0;
    for (size_t i = 0; i < IPC_UPDATE_STEPS; i++) updates += counters.updates[i];
    printf("{\"flows\":%" PRIu64 ",\"flows_open\":%" PRIu64 ",\"exchanges\":%" PRIu64 ",\"exchanges_open\":%" PRIu64
           ",\"bytes\":[%" PRIu64 ",%" PRIu64 "],\"names\":%" PRIu64 ",\"updates\":%" PRIu64 ",\"refused\":%" PRIu64
           ",\"closed\":%" PRIu64 ",\"base_denied\":%" PRIu64 "}\n",
           counters.flows, counters.flows_open, counters.exchanges, counters.exchanges_open, counters.bytes[0], counters.bytes[1],
           counters.names, updates, counters.updates_refused, counters.closed,
           counters.decisions[POLICY_TCP][POLICY_DENY][POLICY_BASE_DENIED]);
}

static pid_t rig_start_command(char **argv, const char *output) {
    pid_t pid = fork();
    if (pid != 0) return pid;
    const struct sandbox_identity *identity = &rig.spec.identity;
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC), out = open(output, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (null < 0 || out < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0) rig_die(output, NULL);
    if (setns(rig.user_namespace, CLONE_NEWUSER) < 0 || setns(rig.net_namespace, CLONE_NEWNET) < 0) rig_die("setns", NULL);
    if (setresgid(identity->gid, identity->gid, identity->gid) < 0 || setresuid(identity->uid, identity->uid, identity->uid) < 0)
        rig_die("identity", NULL);
    execvp(argv[0], argv);
    rig_die(argv[0], NULL);
    return -1;
}

static void rig_stop(pid_t command) {
    int status = -1;
    kill(command, SIGTERM);
    while (waitpid(command, &status, WNOHANG) == 0) {
        struct pollfd item = {.fd = rig.roles[ROLE_GATE].channel, .events = POLLIN};
        poll(&item, 1, 20);
        rig_hear(IPC_ERROR, NULL, 0);
    }
    printf("{\"status\":%d}\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

static void rig_obey(const char *line, pid_t command) {
    unsigned long number = strtoul(line + strcspn(line, " \n"), NULL, 10);
    uint64_t us;
    if (strncmp(line, "update", 6) == 0 && number < rig_count) {
        struct ipc_active active = rig_update(number, strstr(line, "keep") != NULL, &us);
        rig_say(&active, us, 1);
    } else if (strncmp(line, "alternate", 9) == 0) {
        rig_alternate(number);
    } else if (strncmp(line, "count", 5) == 0) {
        rig_counters();
    } else if (strncmp(line, "damage", 6) == 0) {
        rig_damage();
    } else if (strncmp(line, "stop", 4) == 0) {
        rig_stop(command);
    } else {
        rig_die(line, NULL);
    }
    fflush(rig_log);
    fflush(stdout);
}

static void rig_serve(pid_t command) {
    struct pollfd items[] = {{.fd = 0, .events = POLLIN}, {.fd = rig.roles[ROLE_GATE].channel, .events = POLLIN}};
    char line[256];
    while (poll(items, 2, -1) >= 0) {
        if (items[1].revents) rig_hear(IPC_ERROR, NULL, 0);
        if (!items[0].revents) continue;
        ssize_t got = read(0, line, sizeof(line) - 1);
        if (got <= 0) return;
        line[got] = '\0'; // whoever writes waits for each answer
        rig_obey(line, command);
    }
}

int main(int argc, char **argv) {
    struct error err = {0};
    int status, at = 4;
    if (daemon_role(argc, argv, &status)) return status;
    signal(SIGPIPE, SIG_IGN);
    for (int kind = 0; kind < ROLE_COUNT; kind++) rig.roles[kind] = (struct role){.kind = kind, .pidfd = -1, .channel = -1};
    rig.spec.identity = sandbox_identity();
    rig_log = argc > 5 ? fopen(argv[2], "we") : NULL;
    if (!rig_log) rig_die("usage: update-rig DNS LOG OUTPUT POLICY... -- COMMAND", NULL);
    for (; at < argc && strcmp(argv[at], "--") != 0 && rig_count < RIG_POLICIES; at++) rig_read(argv[at]);
    rig_options.model = rig_models[0];
    rig_compile(0);
    if (nameserver_collect((const char *const *)&argv[1], 1, &rig.servers, &err) < 0) rig_die("DNS server", &err);
    if (run_start_role(&rig, ROLE_KEEPER, &err) < 0 || run_begin_roles(&rig, &err) < 0 || run_await_namespaces(&rig, &err) < 0 ||
        run_begin_gate(&rig, &err) < 0 || run_await_roles(&rig, &err) < 0 || run_start_late_resolver(&rig, &err) < 0)
        rig_die("start", &err);
    pid_t command = rig_start_command(argv + at + 1, argv[3]);
    puts("{\"ready\":1}");
    fflush(stdout);
    rig_serve(command);
    kill(command, SIGKILL);
    for (int kind = ROLE_COUNT - 1; kind >= 0; kind--) role_stop(&rig.roles[kind], 0);
    return 0;
}
