// SPDX-License-Identifier: Apache-2.0
// Bulk through a real keeper's namespace and one relay, against the same over plain loopback, in interleaved rounds. Prints
// medians, the ratio, and the relay's CPU per gigabyte. Run as root or as an ordinary user.
#include <event2/event.h>

#include "../unit/net/lab.h"

enum { ROUNDS = 5 };
#define BYTES ((size_t)1 << 30)

static void pump_out(int fd) {
    static char block[131072];
    for (size_t left = BYTES; left > 0;) {
        ssize_t sent = send(fd, block, sizeof(block) < left ? sizeof(block) : left, MSG_NOSIGNAL);
        if (sent <= 0) _exit(1);
        left -= (size_t)sent;
    }
    shutdown(fd, SHUT_WR);
}

static void pump_in(int fd) {
    static char block[131072];
    while (recv(fd, block, sizeof(block), 0) > 0) {}
}

struct work {
    bool upload;
    uint16_t port; // 0: through the gate
};

static int client(void *data) {
    const struct work *work = data;
    int fd = work->port ? lab_connect("127.0.0.1", work->port, 3000) : lab_connect("93.184.216.34", 443, 3000);
    if (fd < 0) return 1;
    if (work->upload) pump_out(fd);
    pump_in(fd);
    return 0;
}

static pid_t serve(int listener, bool upload) {
    pid_t pid = fork();
    if (pid != 0) return pid;
    int fd = accept(listener, NULL, NULL);
    if (upload) pump_in(fd);
    else pump_out(fd);
    _exit(0);
}

static void ended(struct relay *relay, int error, void *data) {
    (void)relay, (void)error;
    event_base_loopbreak(data);
}

struct dialled {
    struct event_base *base;
    int fd;
};
static void dial_over(int fd, const struct addr *peer, void *data) {
    struct dialled *dialled = data;
    (void)peer;
    dialled->fd = fd;
    event_base_loopbreak(dialled->base);
}

static double cpu_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static double direct(int listener, bool upload) {
    struct work work = {upload, lab_port(listener)};
    pid_t server = serve(listener, upload);
    uint64_t start = clock_us();
    pid_t pid = fork();
    if (pid == 0) _exit(client(&work));
    lab_reap(pid);
    lab_reap(server);
    return (double)BYTES * 8 / (double)(clock_us() - start) / 1000;
}

static double relayed(struct lab *lab, struct event_base *base, struct relay_engine *engine, int listener, bool upload, double *ret_cpu) {
    struct work work = {upload, 0};
    struct relay relay = {0};
    struct dialled dialled = {.base = base};
    struct addr loopback = lab_addr("127.0.0.1");
    struct dial_options options = {.deadline_ms = 3000, .stagger_ms = 250, .allow_loopback = true};
    pid_t server = serve(listener, upload);
    uint64_t start = clock_us();
    pid_t pid = lab_inside(lab, false, client, &work);
    int sandbox = lab_accept(lab, "93.184.216.34", 443);
    if (!dial_start(base, &loopback, 1, lab_port(listener), &options, dial_over, &dialled)) abort();
    event_base_dispatch(base);
    double cpu = cpu_s();
    relay_start(engine, &relay, sandbox, dialled.fd, NULL, 0, NULL, 0, ended, base);
    event_base_dispatch(base);
    *ret_cpu = (cpu_s() - cpu) * 1e9 / (double)BYTES;
    lab_reap(pid);
    lab_reap(server);
    return (double)BYTES * 8 / (double)(clock_us() - start) / 1000;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values) {
    qsort(values, ROUNDS, sizeof(*values), compare);
    return values[ROUNDS / 2];
}

int main(void) {
    struct event_base *base = event_base_new();
    struct relay_engine *engine;
    struct lab lab;
    int listener = lab_bind("127.0.0.1", 0, SOCK_STREAM);
    lab_start(&lab, getuid(), getuid() ? getuid() : 23456, NULL);
    lab_gate(&lab);
    if (relay_engine_new(base, &engine) < 0) return 1;
    for (int upload = 0; upload < 2; upload++) {
        double plain[ROUNDS], gate[ROUNDS], ratio[ROUNDS], cpu[ROUNDS];
        for (int i = 0; i < ROUNDS; i++) {
            plain[i] = direct(listener, upload);
            gate[i] = relayed(&lab, base, engine, listener, upload, &cpu[i]);
            ratio[i] = gate[i] / plain[i];
        }
        printf("%s: direct %.1f Gbit/s, relayed %.1f Gbit/s, ratio %.2f, relay CPU %.3f s/GB\n", upload ? "up" : "down",
               median(plain), median(gate), median(ratio), median(cpu));
    }
    lab_stop(&lab);
    return 0;
}
