// SPDX-License-Identifier: Apache-2.0
// Runs inside a container, static: tries what must not work, and prints "name errno" a line (0: it worked).
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void tell(const char *name, long result) { printf("%s %d\n", name, result < 0 ? errno : 0); }

static void try_sockets(void) {
    static const struct {
        const char *name;
        int family, type;
    } sockets[] = {
        {"inet", AF_INET, SOCK_STREAM},   {"inet6", AF_INET6, SOCK_DGRAM}, {"unix", AF_UNIX, SOCK_STREAM},
        {"netlink", AF_NETLINK, SOCK_RAW}, {"packet", AF_PACKET, SOCK_RAW}, {"vsock", 40, SOCK_STREAM},
        {"alg", 38, SOCK_SEQPACKET},      {"can", 29, SOCK_RAW},           {"bluetooth", 31, SOCK_RAW},
        {"xdp", 44, SOCK_RAW},            {"raw", AF_INET, SOCK_RAW},
    };
    for (size_t i = 0; i < sizeof(sockets) / sizeof(sockets[0]); i++)
        tell(sockets[i].name, socket(sockets[i].family, sockets[i].type, sockets[i].type == SOCK_RAW && sockets[i].family == AF_INET ? 1 : 0));
    // The kernel takes an int: bits above it must not hide a family.
    tell("vsock-high", syscall(SYS_socket, UINT64_C(40) | UINT64_C(1) << 40, SOCK_STREAM, 0));
    tell("inet-high", syscall(SYS_socket, UINT64_C(2) | UINT64_C(1) << 40, SOCK_STREAM, 0));
}

static void try_calls(void) {
    char memory[256] = {0};
    tell("io_uring", syscall(SYS_io_uring_setup, 1, memory));
    tell("bpf", syscall(SYS_bpf, 0, memory, 48));
    tell("keyctl", syscall(SYS_keyctl, 0, -3, 0));
    tell("perf", syscall(SYS_perf_event_open, memory, 0, -1, -1, 0));
    tell("userfaultfd", syscall(SYS_userfaultfd, 0));
    tell("clone3", syscall(SYS_clone3, memory, 64));
    tell("unshare-user", unshare(CLONE_NEWUSER));
    tell("unshare-mount", unshare(CLONE_NEWNS));
    tell("unshare-net", unshare(CLONE_NEWNET));
    tell("clone-user", syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0));
    long second = syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);
    if (second == 0) _exit(0);
    tell("clone-parent", second);
    tell("mount", mount("none", "/", "tmpfs", 0, NULL));
    tell("umount", umount2("/etc/resolv.conf", MNT_DETACH));
    tell("remount", mount(NULL, "/etc/resolv.conf", NULL, MS_REMOUNT | MS_BIND, NULL));
    tell("fsopen", syscall(SYS_fsopen, "tmpfs", 0));
    tell("open_tree", syscall(SYS_open_tree, AT_FDCWD, "/", 1));
    tell("handle", syscall(SYS_open_by_handle_at, AT_FDCWD, memory, 0));
    tell("setns", setns(0, CLONE_NEWUSER));
    tell("module", syscall(SYS_init_module, memory, 1, ""));
    tell("kexec", syscall(SYS_kexec_load, 0, 0, 0, 0));
    tell("syslog", syscall(SYS_syslog, 3, memory, 10));
    tell("reboot", syscall(SYS_reboot, 0xfee1dead, 672274793, 0x89abcdef, 0));
    tell("sethostname", sethostname("x", 1));
    tell("settime", syscall(SYS_clock_settime, 0, memory));
    tell("unknown", syscall(999));
    tell("tiocsti", ioctl(0, TIOCSTI, "x"));
    tell("tiocsti-high", syscall(SYS_ioctl, 0, UINT64_C(0x5412) | UINT64_C(1) << 40, "x"));
}

static void try_files(void) {
    tell("node-disk", mknod("/probe-disk", S_IFBLK | 0600, makedev(254, 0)));
    tell("node-null", mknod("/probe-null", S_IFCHR | 0666, makedev(1, 3)));
    tell("chmod-null", chmod("/dev/null", 0600));
    tell("proc-sys", open("/proc/sys/kernel/core_pattern", O_WRONLY));
    tell("proc-net", open("/proc/sys/net/ipv4/ip_forward", O_WRONLY));
    tell("sysrq", open("/proc/sysrq-trigger", O_WRONLY));
    tell("kcore", open("/proc/kcore", O_RDONLY));
    tell("sys-write", open("/sys/class/net/lo/mtu", O_WRONLY));
    tell("init-write", open("/run/penstock/init", O_WRONLY));
    tell("resolv-write", open("/etc/resolv.conf", O_WRONLY));
    tell("file", open("/probe-file", O_RDWR | O_CREAT, 04755));
    tell("chown", chown("/probe-file", 1234, 65535));
    tell("chown-far", chown("/probe-file", 65536, 0));
    tell("suid", chmod("/probe-file", 04755));
    tell("trusted", syscall(SYS_setxattr, "/probe-file", "trusted.overlay.redirect", "/x", 2, 0));
    tell("user", syscall(SYS_setxattr, "/probe-file", "user.note", "x", 1, 0));
}

// A foreign ABI ends the process.
static void try_foreign(void) {
    int status = 0;
#if defined(__x86_64__)
    pid_t pid = fork();
    if (pid == 0) {
        syscall(0x40000000 | SYS_getpid);
        _exit(0);
    }
    waitpid(pid, &status, 0);
    printf("x32 %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    pid = fork();
    if (pid == 0) {
        long result = 20; // getpid of i386
        __asm__ volatile("int $0x80" : "+a"(result) : : "memory");
        _exit(0);
    }
    waitpid(pid, &status, 0);
    printf("i386 %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
#else
    printf("x32 %d\ni386 %d\n", SIGSYS, SIGSYS);
    (void)status;
#endif
}

// Touches so many megabytes.
static int eat(long megabytes) {
    for (long i = 0; i < megabytes; i++) {
        char *at = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) return 3;
        memset(at, 1, 1 << 20);
    }
    return 0;
}

static int fork_many(int count) {
    int made = 0;
    for (; made < count; made++) {
        pid_t pid = fork();
        if (pid < 0) break;
        if (pid == 0) {
            pause();
            _exit(0);
        }
    }
    printf("%d\n", made);
    fflush(stdout);
    kill(-1, SIGKILL); // all of the container but its init and us
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "eat") == 0) return eat(256);
    if (argc == 2 && strcmp(argv[1], "fork") == 0) return fork_many(200);
    if (argc == 2 && strcmp(argv[1], "sleep") == 0) return pause();
    try_sockets();
    try_calls();
    try_files();
    fflush(stdout);
    try_foreign();
    return 0;
}
