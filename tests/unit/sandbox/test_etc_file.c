// SPDX-License-Identifier: Apache-2.0
// Hosts of other kinds than this one: resolv.conf as a link into /run, sockets and a procfs in system folders. They are
// made in a mount namespace of the test, as root; an ordinary user's run checks the content only.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "rig.h"
#include "sandbox/etc_file.h"

extern char **environ;
static struct rig rig;

static void run(const char *program, const char *first, const char *second, const char *third) {
    char *argv[] = {(char *)(uintptr_t)program, (char *)(uintptr_t)first, (char *)(uintptr_t)second,
                    (char *)(uintptr_t)third, NULL};
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        execvp(program, argv);
        _exit(99);
    }
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
}

static void put(const char *path, const char *text) {
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

// The content made for a file of /etc, as text; empty if none was.
static void content(const char *target, char *text, size_t size) {
    char *argv[4];
    struct sandbox_spec spec = rig_spec(&rig, argv, "");
    struct etc_file files[ETC_FILES];
    struct error err = {{0}};
    size_t count;
    text[0] = '\0';
    assert_int_equal(etc_file_make(&spec, NULL, files, &count, &err), 0);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(files[i].target, target) != 0) continue;
        ssize_t n = read(files[i].fd, text, size - 1);
        text[n > 0 ? n : 0] = '\0';
    }
    etc_file_done(files, count);
}

static void test_content(void **state) {
    (void)state;
    char text[4096];
    content("/etc/resolv.conf", text, sizeof(text));
    if (text[0]) assert_string_equal(text, "nameserver 192.0.0.1\noptions edns0\n");
    content("/etc/hosts", text, sizeof(text));
    assert_int_equal(strncmp(text, "127.0.0.1 localhost\n::1 localhost ", 34), 0);
}

static void on_host(const char *nsswitch, const char *resolv_link, const char *expected) {
    char etc[] = "/tmp/penstock-etc-XXXXXX", path[64];
    assert_non_null(mkdtemp(etc));
    run("cp", "-a", "/etc/.", etc);
    snprintf(path, sizeof(path), "%s/nsswitch.conf", etc);
    put(path, nsswitch);
    snprintf(path, sizeof(path), "%s/resolv.conf", etc);
    unlink(path);
    assert_int_equal(symlink(resolv_link, path), 0);
    assert_int_equal(mount(etc, "/etc", NULL, MS_BIND, NULL), 0);
    rig_expect(&rig, "cat /etc/resolv.conf; grep hosts: /etc/nsswitch.conf; tail -n 1 /etc/nsswitch.conf", expected);
    assert_int_equal(umount("/etc"), 0);
    run("rm", "-rf", etc, NULL);
}

static void test_other_hosts(void **state) {
    (void)state;
    if (!rig_is_root()) return; // makes a host of another kind, which takes rights over mounts
    const char *expected = "nameserver 192.0.0.1\noptions edns0\nhosts: files dns\nend: files\n";
    on_host("hosts: files mdns4_minimal [NOTFOUND=return] resolve [!UNAVAIL=return] dns\nend: files\n",
            "../run/systemd/resolve/stub-resolv.conf", expected);
    on_host("hosts: resolve\nend: files\n", "/run/NetworkManager/resolv.conf", expected);
    on_host("hosts: files dns\nend: files\n", "/mnt/wsl/resolv.conf", expected);
    on_host("hosts: dns\n  hosts: nis\nend: files\n", "/var/run/x/resolv.conf", expected);
    on_host("end: files", "/tmp/nowhere/resolv.conf",
            "nameserver 192.0.0.1\noptions edns0\nhosts: files dns\nhosts: files dns\n");
}

static int bind_at(const char *folder, const char *name) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(chdir(folder), 0);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", name);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(fd, 4), 0);
    chmod(name, 0777);
    assert_int_equal(chdir("/"), 0);
    return fd;
}

#define CONNECT                                                                                                        \
    "python3 -c 'import socket,sys\nfor p in sys.argv[1:]:\n try: socket.socket(socket.AF_UNIX).connect(p); "          \
    "print(\"connected\")\n except OSError as e: print(e.errno)' "

static void test_system_folders(void **state) {
    (void)state;
    char *argv[4];
    struct rig_result result;
    if (!rig_is_root()) return; // as above
    assert_int_equal(mount("tmpfs", "/opt", "tmpfs", 0, "mode=0755"), 0);
    int absolute = bind_at("/", "/opt/absolute");
    rig_expect(&rig, CONNECT "/opt/absolute", "111\n"); // from the kernel's list
    int relative = bind_at("/opt", "relative");
    rig_expect(&rig, CONNECT "/opt/absolute /opt/relative", "111\n111\n"); // from a walk
    // A procfs of the host below what is shared: empty inside, whatever is under it.
    char proc[160];
    snprintf(proc, sizeof(proc), "%s/chroot", rig.cwd);
    mkdir(proc, 0755);
    assert_int_equal(mount("proc", proc, "proc", 0, NULL), 0);
    struct sandbox_spec spec = rig_spec(&rig, argv, "ls chroot | wc -l");
    rig_run_spec(&rig, &spec, &result);
    if (result.start == 0)
        assert_string_equal(result.out.data, "0\n");
    else
        assert_non_null(strstr(result.error.text, "idmapped")); // or refused, where a procfs cannot be mapped
    rig_result_done(&result);
    umount(proc);
    umount("/opt");
    close(absolute);
    close(relative);
}

// A file system without idmapped mounts: refused with one message, and nothing runs.
static void test_no_idmap(void **state) {
    (void)state;
    char *argv[4];
    struct rig_result result;
    if (!rig_is_root()) return;
    char folder[160];
    snprintf(folder, sizeof(folder), "%s/ram", rig.cwd);
    mkdir(folder, 0755);
    assert_int_equal(mount("none", folder, "ramfs", 0, NULL), 0);
    struct sandbox_spec spec = rig_spec(&rig, argv, "echo ran");
    spec.cwd = folder;
    rig_run_spec(&rig, &spec, &result);
    assert_int_equal(result.start, -EIO);
    assert_non_null(strstr(result.error.text, folder));
    assert_non_null(strstr(result.error.text, "run penstock as an ordinary user"));
    assert_int_equal(result.out.len, 0);
    rig_result_done(&result);
    umount(folder);
}

static int group(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_content), cmocka_unit_test(test_other_hosts),
                                       cmocka_unit_test(test_system_folders), cmocka_unit_test(test_no_idmap)};
    if (rig_is_root() && (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)) return 1;
    rig_init(&rig);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rig_done(&rig);
    return failed;
}

int main(void) { return rig_both(group); }
