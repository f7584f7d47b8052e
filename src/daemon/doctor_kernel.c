// SPDX-License-Identifier: Apache-2.0
// Checks of the kernel and the host that need no namespace.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/magic.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/number.h"
#include "daemon/doctor.h"
#include "daemon/nameserver.h"
#include "vault/vault.h"

void doctor_kernel_proc(struct doctor *doctor, struct doctor_finding *finding) {
    (void)doctor;
    struct statfs info;
    if (statfs("/proc", &info) < 0 || info.f_type != PROC_SUPER_MAGIC || access("/proc/self/ns/user", F_OK) < 0) {
        doctor_say(finding, DOCTOR_MISSING, "/proc is not mounted");
        doctor_fix(finding, "mount -t proc proc /proc");
    } else if (access("/proc/sys/net", F_OK) < 0) {
        doctor_say(finding, DOCTOR_MISSING, "/proc/sys/net is hidden");
        doctor_fix(finding, "in a container: docker run --security-opt systempaths=unconfined");
    } else {
        doctor_say(finding, DOCTOR_OK, "mounted");
    }
}

// ---- system calls ----

static long try_memfd(void) {
    int fd = memfd_create("penstock-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd >= 0) close(fd);
    return fd;
}
static long try_pidfd(void) {
    int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (fd >= 0) close(fd);
    return fd;
}
static long try_close_range(void) { return syscall(SYS_close_range, ~0U, ~0U, 0); }
static long try_mount_setattr(void) { return syscall(SYS_mount_setattr, -1, NULL, 0, NULL, 0); }
static long try_openat2(void) { return syscall(SYS_openat2, -1, NULL, NULL, 0); }

// A call with senseless arguments fails in its own way where it exists.
static const struct {
    const char *name, *since;
    long (*call)(void);
    bool must_succeed;
} kernel_calls[] = {
    {"memfd_create", "3.17", try_memfd, true},          {"pidfd_open", "5.3", try_pidfd, true},
    {"openat2", "5.6", try_openat2, false},             {"close_range", "5.9", try_close_range, true},
    {"mount_setattr", "5.12", try_mount_setattr, false},
};

void doctor_kernel_calls(struct doctor *doctor, struct doctor_finding *finding) {
    (void)doctor;
    for (size_t i = 0; i < ARRAY_LENGTH(kernel_calls); i++) {
        errno = 0;
        if (kernel_calls[i].call() >= 0 || (errno != ENOSYS && !kernel_calls[i].must_succeed)) continue;
        doctor_say(finding, DOCTOR_MISSING, "%s: %s (in Linux since %s)", kernel_calls[i].name, strerror(errno),
                   kernel_calls[i].since);
        doctor_fix(finding, "%s", errno == EPERM ? "in a container: docker run --security-opt seccomp=unconfined"
                                                 : "use Linux 5.12 or later");
        return;
    }
    doctor_say(finding, DOCTOR_OK, "memfd, pidfd, openat2, close_range, mount_setattr");
}

// ---- locks ----

// In a child: a filter cannot be taken off again.
static int try_filter(void) {
    struct sock_filter allow[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {.len = ARRAY_LENGTH(allow), .filter = allow};
    uint32_t kill_process = SECCOMP_RET_KILL_PROCESS;
    if (syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &kill_process) < 0) return errno;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) return errno;
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0 ? errno : 0;
}

void doctor_kernel_seccomp(struct doctor *doctor, struct doctor_finding *finding) {
    (void)doctor;
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) _exit(try_filter());
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    int error = pid < 0 ? EAGAIN : WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
    if (error == 0) {
        doctor_say(finding, DOCTOR_OK, "filters can be set");
        return;
    }
    doctor_say(finding, DOCTOR_MISSING, "a filter cannot be set: %s", strerror(error));
    doctor_fix(finding, "use a kernel with CONFIG_SECCOMP_FILTER (Linux 4.14 or later)");
}

#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#endif

void doctor_kernel_landlock(struct doctor *doctor, struct doctor_finding *finding) {
    (void)doctor;
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, 1U); // 1: ask for the ABI (landlock(7))
    if (abi > 0) {
        doctor_say(finding, DOCTOR_OK, "ABI %ld", abi);
        return;
    }
    doctor_say(finding, DOCTOR_WARNING, errno == EOPNOTSUPP ? "turned off when the kernel was started" : "not in this kernel");
    doctor_fix(finding, "add landlock to the lsm= list of the kernel's command line (Linux 5.13 or later)");
}

// ---- the host's settings ----

// A dial may try 16 addresses beside each other at worst; the rest is for the roles themselves.
enum { CONNECTIONS = 256, PER_CONNECTION = 16, PER_CONNECTION_LEAST = 6, OWN = 64 };

void doctor_kernel_descriptors(struct doctor *doctor, struct doctor_finding *finding) {
    (void)doctor;
    struct rlimit limit = {0};
    const unsigned long wanted = CONNECTIONS * PER_CONNECTION, least = CONNECTIONS * PER_CONNECTION_LEAST + OWN;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0) limit.rlim_max = 0;
    unsigned long hard = (unsigned long)limit.rlim_max;
    if (hard >= wanted) {
        doctor_say(finding, DOCTOR_OK, "%lu, enough for %d connections", hard, CONNECTIONS);
        return;
    }
    doctor_say(finding, DOCTOR_WARNING, "hard limit %lu, for %d connections up to %lu %s", hard, CONNECTIONS,
               hard < least ? least : wanted, hard < least ? "are needed; more are refused" : "may be needed at worst");
    doctor_fix(finding, "echo '* hard nofile 65536' | sudo tee /etc/security/limits.d/penstock.conf, and log in again");
}

// "LOWEST HIGHEST" of the groups that may make ping sockets.
static bool ping_range(const struct doctor *doctor, uint64_t *ret_low, uint64_t *ret_high) {
    struct buf text = BUF_INIT;
    char path[512];
    snprintf(path, sizeof(path), "%s/proc/sys/net/ipv4/ping_group_range", doctor->root);
    bool good = false;
    if (buf_read_file(&text, path, 256) == 0 && text.data) {
        size_t first = strcspn(text.data, " \t"), gap = strspn(text.data + first, " \t");
        const char *second = text.data + first + gap;
        good = number_parse(text.data, first, 0, UINT32_MAX, ret_low) == 0 &&
               number_parse(second, strcspn(second, "\n"), 0, UINT32_MAX, ret_high) == 0;
    }
    buf_done(&text);
    return good;
}

void doctor_kernel_ping(struct doctor *doctor, struct doctor_finding *finding) {
    uint64_t low = 0, high = 0;
    gid_t gid = doctor->identity.gid + (doctor->identity.from_root ? ROLE_USERS : 0); // the gate's
    if (ping_range(doctor, &low, &high) && low <= gid && gid <= high) {
        doctor_say(finding, DOCTOR_OK, "groups %llu to %llu may ping", (unsigned long long)low, (unsigned long long)high);
        return;
    }
    doctor_say(finding, DOCTOR_WARNING, "group %u may not make ping sockets; ICMP echo will be refused", (unsigned)gid);
    doctor_fix(finding, "echo 'net.ipv4.ping_group_range = 0 2147483647' | sudo tee /etc/sysctl.d/60-penstock-ping.conf && "
                        "sudo sysctl --system");
}

void doctor_kernel_resolver(struct doctor *doctor, struct doctor_finding *finding) {
    (void)doctor;
    struct ipc_resolver_start servers;
    struct nameserver_probe probe;
    struct error err = {0};
    int rc = nameserver_collect(NULL, 0, &servers, &err);
    if (rc == 0 && servers.count == 0) {
        error_set(&err, -ENOENT, "/etc/resolv.conf names no DNS server");
        rc = -ENOENT;
    } else if (rc == 0) {
        nameserver_probe_start(&servers, &probe);
        rc = nameserver_probe_finish(&probe, 3000, &err);
    }
    if (rc == 0) {
        doctor_say(finding, DOCTOR_OK, "%u DNS server%s, and there is an answer", servers.count, servers.count == 1 ? "" : "s");
        return;
    }
    // Not missing: policies of addresses work, and --dns names another server.
    doctor_say(finding, DOCTOR_WARNING, "%s", err.text);
    doctor_fix(finding, "penstock run --dns ADDR, or a line \"nameserver ADDR\" in /etc/resolv.conf");
}

// Needed by policies with bindings alone.
void doctor_kernel_credentials(struct doctor *doctor, struct doctor_finding *finding) {
    (void)doctor;
    static const char library[] = "libssl.so.3";
    struct rlimit limit = {0};
    void *loaded = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!loaded) {
        doctor_say(finding, DOCTOR_WARNING, "no %s; policies with credentials cannot be run", library);
        doctor_fix(finding, "apt-get install libssl3");
        return;
    }
    dlclose(loaded);
    getrlimit(RLIMIT_MEMLOCK, &limit);
    if (limit.rlim_cur < VAULT_LOCKED_SIZE) {
        doctor_say(finding, DOCTOR_WARNING, "OpenSSL 3; %llu KiB of memory may be locked, so secrets may reach swap space",
                   (unsigned long long)limit.rlim_cur / 1024);
        doctor_fix(finding, "ulimit -l %d, or encrypted swap", VAULT_LOCKED_SIZE / 1024);
        return;
    }
    doctor_say(finding, DOCTOR_OK, "OpenSSL 3; secrets are locked into memory");
}
