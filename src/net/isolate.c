// SPDX-License-Identifier: Apache-2.0
// Isolation: the last step of a role's start, after everything that opens files or makes namespaces.
//
// In order: what libc reads late is read now; no core dumps, no attaching; capabilities; no_new_privs; Landlock, which denies
// every path (and signals and abstract sockets outside, where the kernel can); the seccomp filter of the role, which
// the build compiled from the table in isolate_table.c, and which kills for anything not in it. Then the proof: what must fail is tried.
//
// A file descriptor that is open already stays usable: that is how a gate keeps its sockets.
#include <cap-ng.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "base/mem.h"
#include "net/isolate_table.h"
#include "net/net.h"

// ---- Landlock, by number: headers of Debian 12 are older than kernels that have more ----

#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_restrict_self 446
#endif
#define LANDLOCK_VERSION 1U // flag: ask for the ABI

struct isolate_ruleset { // linux/landlock.h, struct landlock_ruleset_attr
    uint64_t files, net, scoped;
};

struct isolate_landlock {
    int abi;     // from this one on
    uint64_t files;
    uint64_t net;
    uint64_t scoped;
    size_t size; // of the structure
};

// Bits per ABI (landlock(7)): files 13, then refer, truncate, ioctl; net: bind 1, connect 2; scoped: abstract sockets 1, signals 2.
// Gates and resolvers connect; the resolver binds.
static const struct isolate_landlock isolate_landlocks[] = {
    {1, (1 << 13) - 1, 0, 0, 8}, {2, (1 << 14) - 1, 0, 0, 8},  {3, (1 << 15) - 1, 0, 0, 8},
    {4, (1 << 15) - 1, 1, 0, 16}, {5, (1 << 16) - 1, 1, 0, 16}, {6, (1 << 16) - 1, 1, 3, 24},
};

static int isolate_landlock(enum isolate_role role, struct error *err) {
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_VERSION);
    const struct isolate_landlock *best = NULL;

    for (size_t i = 0; i < ARRAY_LENGTH(isolate_landlocks); i++)
        if (abi >= isolate_landlocks[i].abi) best = &isolate_landlocks[i];
    if (!best) return 0; // not in this kernel, or turned off: the filter alone has to do
    struct isolate_ruleset ruleset = {.files = best->files, .net = best->net, .scoped = best->scoped};
    if (role == ISOLATE_RESOLVER) ruleset.net = 0;
    AUTO_CLOSE int fd = (int)syscall(SYS_landlock_create_ruleset, &ruleset, best->size, 0U);
    if (fd >= 0 && syscall(SYS_landlock_restrict_self, fd, 0U) == 0) return 0;
    return error_set(err, -errno, "cannot shut the file system away with Landlock: %s; report this with the kernel's version",
                     strerror(errno));
}

// ---- the filter ----

static int isolate_filter(enum isolate_role role, struct error *err) {
    const struct isolate_program *program = &isolate_programs[role];
    // The kernel does not write through the pointer.
    struct sock_fprog code = {.len = program->count, .filter = (struct sock_filter *)(uintptr_t)program->code};
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &code) == 0) return 0;
    return error_set(err, -errno, "cannot install the seccomp filter: %s; use a kernel with CONFIG_SECCOMP_FILTER", strerror(errno));
}

// ---- the rest ----

static int isolate_capabilities(enum isolate_role role, struct error *err) {
    if (capng_get_caps_process() < 0)
        return error_set(err, -EIO, "cannot read this process's capabilities; mount /proc");
    bool bounds = capng_have_capability(CAPNG_EFFECTIVE, CAP_SETPCAP) != 0;
    capng_clear(CAPNG_SELECT_ALL);
    if (role == ISOLATE_KEEPER &&
        capng_updatev(CAPNG_ADD, (capng_type_t)(CAPNG_EFFECTIVE | CAPNG_PERMITTED), CAP_NET_ADMIN, CAP_NET_RAW, -1) < 0)
        return error_set(err, -EINVAL, "cannot keep CAP_NET_ADMIN and CAP_NET_RAW");
    // The bounding set only matters to exec, which no_new_privs and the filter rule out: dropped where we may.
    if (bounds) capng_apply(CAPNG_SELECT_BOUNDS);
    if (capng_apply(CAPNG_SELECT_CAPS) < 0)
        return error_set(err, -EPERM, "cannot drop capabilities: %s", strerror(errno));
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    return 0;
}

static int isolate_process_limits(struct error *err) {
    struct rlimit none = {0, 0};
    if (setrlimit(RLIMIT_CORE, &none) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return error_set(err, -errno, "cannot forbid core dumps: %s", strerror(errno));
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return error_set(err, -errno, "cannot set no_new_privs: %s; use Linux 3.5 or later", strerror(errno));
    return 0;
}

static int isolate_prove(struct error *err) {
    AUTO_CLOSE int file = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
    AUTO_CLOSE int local = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (file >= 0 || local >= 0)
        return error_set(err, -EPERM, "isolation does not hold: this process could still %s; report this with the kernel's version",
                         file >= 0 ? "open a file" : "make a local socket");
    return 0;
}

#if ISOLATE_SANITIZED
// The leak check forks and traces, which an isolated process cannot (sanitizer/lsan_interface.h).
static bool isolate_done;
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) { return isolate_done; }
#endif

int isolate_process(enum isolate_role role, struct error *err) {
    tzset(); // the first gmtime_r would read /etc/localtime
    int result = isolate_process_limits(err);
    if (result == 0) result = isolate_capabilities(role, err);
    if (result == 0) result = isolate_landlock(role, err);
    if (result == 0) result = isolate_filter(role, err);
    if (result == 0) result = isolate_prove(err);
#if ISOLATE_SANITIZED
    isolate_done = result == 0;
#endif
    return result;
}
