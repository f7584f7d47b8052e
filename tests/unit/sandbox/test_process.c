// SPDX-License-Identifier: Apache-2.0
// Commands in real sandboxes, as root and as an ordinary user: what they see, what they can do, how they end.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "rig.h"

extern char **environ;
static struct rig rig;

static char *in_cwd(const char *name) {
    static char paths[4][256];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof(paths[0]), "%s/%s", rig.cwd, name);
    return path;
}

static void put(const char *path, const char *text, mode_t mode) {
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, mode);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

// The script, started but not waited for.
static struct sandbox_process *start_script(const char *script) {
    char *argv[4];
    struct error err = {{0}};
    struct sandbox_process *process = NULL;
    struct sandbox_spec spec = rig_spec(&rig, argv, script);
    int r = sandbox_process_start(&spec, rig.user_namespace, rig.net_namespace, &process, &err);
    if (r < 0) print_error("%s\n", err.text);
    assert_int_equal(r, 0);
    return process;
}

static int finish(struct sandbox_process *process) {
    int state;
    assert_int_equal(waitpid(sandbox_process_pid(process), &state, 0), sandbox_process_pid(process));
    int status = sandbox_process_status(process, state);
    sandbox_process_free(process);
    return status;
}

// ---- identity and rights ----

static void test_identity(void **state) {
    (void)state;
    char expected[192];
    snprintf(expected, sizeof(expected), "%u %u\n", rig.identity.uid, rig.identity.gid);
    rig_expect(&rig, "echo $(id -u) $(id -g)", expected);
    rig_expect(&rig, "grep -c . /proc/self/uid_map; cat /proc/self/setgroups", "1\ndeny\n");
    const struct passwd *user = getpwuid(geteuid());
    char name[64];
    snprintf(name, sizeof(name), "%s\n", rig_is_root() || !user ? "sandbox" : user->pw_name);
    rig_expect(&rig, "id -un", name);
    rig_expect(&rig, "grep -E '^(Cap...|NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\\t'",
               "CapInh:0000000000000000\nCapPrm:0000000000000000\nCapEff:0000000000000000\nCapBnd:0000000000000000\n"
               "CapAmb:0000000000000000\nNoNewPrivs:1\nSeccomp:2\n");
    if (rig_is_root()) {
        assert_true(rig.identity.from_root);
        assert_true(rig.identity.uid >= 1879048192U && rig.identity.uid <= 2147483647U);
        snprintf(expected, sizeof(expected), "%s\nsandbox\n", rig.cwd);
        rig_expect(&rig, "getent passwd sandbox | cut -d: -f6; getent group sandbox | cut -d: -f1", expected);
    } else {
        assert_false(rig.identity.from_root);
        assert_int_equal(rig.identity.uid, getuid());
    }
}

static void test_secrets(void **state) {
    (void)state;
    rig_expect(&rig, "cat /etc/shadow 2>/dev/null || echo no; cat /proc/1/environ 2>/dev/null || echo no", "no\nno\n");
    rig_expect(&rig,
               "for f in /etc/ssh/ssh_host_*_key /etc/gshadow; do cat $f 2>/dev/null && echo read; done; echo end",
               "end\n");
}

static void test_own_processes_only(void **state) {
    (void)state;
    rig_expect(&rig, "echo $$; ls -d /proc/[0-9]*; kill -9 1; echo $?",
               "2\n/proc/1\n/proc/2\n0\n"); // PID 1 does not mind
    rig_expect(&rig, "readlink /proc/1/exe || echo hidden; ls /proc/1/fd 2>/dev/null || echo hidden",
               "hidden\nhidden\n");
}

static void test_no_way_to_the_network(void **state) {
    (void)state;
    rig_expect(&rig,
               "ip link add d0 type dummy 2>/dev/null; ip link set lo down 2>/dev/null; ip addr add 10.0.0.1/8 dev lo "
               "2>/dev/null;"
               "nft list ruleset 2>/dev/null; nft flush ruleset 2>/dev/null; ls /sys 2>/dev/null; echo end",
               "end\n");
    rig_expect(&rig,
               "for p in /proc/[0-9]*/ns/net; do nsenter --net=$p true 2>/dev/null && echo entered; done; "
               "nsenter -t 1 -U true 2>/dev/null && echo entered; echo end",
               "end\n");
    // In a nested user namespace there is root, but over nothing that was there before.
    rig_expect(&rig,
               "unshare -Ur sh -c 'id -u; ip link add d0 type dummy 2>/dev/null || echo refused; nft list ruleset "
               "2>/dev/null || echo refused'",
               "0\nrefused\nrefused\n");
    rig_expect(&rig, "unshare -Urn sh -c 'ip link set lo up && echo own'", "own\n");
}

// ---- files ----

static void test_system_is_read_only(void **state) {
    (void)state;
    rig_expect(&rig, "for d in /usr /etc / /bin /opt; do touch $d/x 2>/dev/null && echo $d; done; echo end", "end\n");
    rig_expect(&rig, "for d in /tmp /run /var /var/tmp /dev/shm; do touch $d/x || echo $d; done; ls /run", "lock\nx\n");
}

static void test_working_directory(void **state) {
    (void)state;
    char expected[256];
    struct stat st;
    snprintf(expected, sizeof(expected), "%s\nhello\n", rig.cwd);
    put(in_cwd("given"), "hello\n", 0600);
    rig_expect(&rig, "pwd; cat given; echo made > made; mkdir -p sub/deep; rm given", expected);
    assert_int_equal(stat(in_cwd("made"), &st), 0); // on the host, of the folder's owner
    assert_int_equal(st.st_uid, geteuid());
    assert_int_equal(st.st_gid, getegid());
    assert_int_equal(stat(in_cwd("sub/deep"), &st), 0);
    assert_int_equal(st.st_uid, geteuid());
    assert_int_equal(stat(in_cwd("given"), &st), -1);
}

static void run_shared(const char *const *reads, size_t read_count, const char *const *writes, size_t write_count,
                       const char *script, const char *expected) {
    char *argv[4];
    struct rig_result result;
    struct sandbox_spec spec = rig_spec(&rig, argv, script);
    spec.reads = reads;
    spec.read_count = read_count;
    spec.writes = writes;
    spec.write_count = write_count;
    rig_run_spec(&rig, &spec, &result);
    if (result.start < 0) print_error("%s\n", result.error.text);
    assert_int_equal(result.start, 0);
    assert_string_equal(result.out.data ? result.out.data : "", expected);
    rig_result_done(&result);
}

static void test_home_and_shares(void **state) {
    (void)state;
    char home[] = "/tmp/penstock-home-XXXXXX", project[64], reading[64], writing[64], secret[64], nested[80],
         script[512];
    assert_non_null(mkdtemp(home));
    snprintf(project, sizeof(project), "%s/project", home);
    snprintf(reading, sizeof(reading), "%s/reading", home);
    snprintf(writing, sizeof(writing), "%s/writing", home);
    snprintf(nested, sizeof(nested), "%s/reading/nested", home);
    snprintf(secret, sizeof(secret), "%s/secret", home);
    assert_int_equal(mkdir(project, 0700) | mkdir(reading, 0700) | mkdir(writing, 0700) | mkdir(nested, 0700), 0);
    put(secret, "secret", 0644);
    char *old = getenv("HOME"), saved[128] = "";
    if (old) snprintf(saved, sizeof(saved), "%s", old);
    setenv("HOME", home, 1);
    snprintf(script, sizeof(script),
             "cd %s; ls; for d in project reading writing reading/nested; do touch $d/x 2>/dev/null && echo $d; done; "
             "touch . && echo home",
             home);
    char cwd[128];
    snprintf(cwd, sizeof(cwd), "%s", rig.cwd);
    snprintf(rig.cwd, sizeof(rig.cwd), "%s", project);
    run_shared((const char *[]){reading}, 1, (const char *[]){writing, nested}, 2, script,
               "project\nreading\nwriting\nproject\nwriting\nreading/nested\nhome\n");
    run_shared(NULL, 0, NULL, 0, script, "project\nproject\nhome\n");
    snprintf(rig.cwd, sizeof(rig.cwd), "%s", cwd);
    setenv("HOME", saved, 1);
    rig_remove(home);
}

static void test_devices(void **state) {
    (void)state;
    rig_expect(&rig, "ls /dev | tr '\\n' ' '; echo x > /dev/null; head -c 4 /dev/urandom | wc -c",
               "core fd full null ptmx pts random shm stderr stdin stdout tty urandom zero 4\n");
}

static void test_etc_files(void **state) {
    (void)state;
    rig_expect(&rig,
               "cat /etc/resolv.conf; grep -c ^hosts: /etc/nsswitch.conf; grep ^hosts: /etc/nsswitch.conf | tr -s ' '",
               "nameserver 192.0.0.1\noptions edns0\n1\nhosts: files dns\n");
    rig_expect(&rig,
               "getent ahosts localhost | awk '{print $1}' | sort -u | tr '\\n' ' '; getent hosts $(uname -n) "
               ">/dev/null && echo own",
               "127.0.0.1 ::1 own\n");
    rig_expect(&rig, "echo x 2>/dev/null >> /etc/resolv.conf || echo read-only", "read-only\n");
}

// ---- sockets of the host ----

static int host_socket(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(fd, 4), 0);
    chmod(path, 0777);
    return fd;
}

static const char connect_program[] = "import socket, sys\n"
                                      "s = socket.socket(socket.AF_UNIX)\n"
                                      "try:\n"
                                      "    s.connect(sys.argv[1].replace('@', '\\0'))\n"
                                      "    print('connected')\n"
                                      "except OSError as e:\n"
                                      "    print(e.errno)\n";

static int abstract_socket(char *name, size_t size) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(name, size, "@penstock-%d", getpid());
    memcpy(address.sun_path + 1, name + 1, strlen(name) - 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
    assert_int_equal(bind(fd, (struct sockaddr *)&address, len), 0);
    assert_int_equal(listen(fd, 4), 0);
    return fd;
}

static void test_host_sockets(void **state) {
    (void)state;
    char shared[] = "/tmp/penstock-shared-XXXXXX", path[128], script[1024], abstract[64];
    assert_non_null(mkdtemp(shared));
    snprintf(path, sizeof(path), "%s/service", shared);
    mkdir(in_cwd("a"), 0755);
    mkdir(in_cwd("a/b"), 0700);
    put(in_cwd("connect.py"), connect_program, 0644);
    int fds[] = {host_socket(in_cwd("top")), host_socket(in_cwd("a/b/deep")), host_socket(path),
                 abstract_socket(abstract, sizeof(abstract))};
    snprintf(script, sizeof(script),
             "for s in top a/b/deep %s; do python3 connect.py $s; done; cd a/b; python3 ../../connect.py deep;"
             "cd ../..; python3 connect.py %s",
             path, abstract);
    run_shared((const char *[]){shared}, 1, NULL, 0, script,
               "111\n111\n111\n111\n111\n"); // ECONNREFUSED: no socket is there
    // From outside they answer: on the host the same program connects.
    snprintf(script, sizeof(script), "cd %s; for s in top a/b/deep %s %s; do python3 connect.py $s; done", rig.cwd,
             path, abstract);
    assert_int_equal(fflush(NULL), 0);
    pid_t pid = fork();
    if (pid == 0) {
        put(in_cwd("host.sh"), script, 0644);
        int out = open(in_cwd("host.out"), O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0644);
        dup2(out, 1);
        char *argv[] = {(char *)"sh", in_cwd("host.sh"), NULL};
        execv("/bin/sh", argv);
        _exit(99);
    }
    waitpid(pid, NULL, 0);
    rig_expect(&rig, "cat host.out", "connected\nconnected\nconnected\nconnected\n");
    // Nor a socket that the sandbox makes for itself is in the way.
    rig_expect(&rig,
               "python3 -c 'import socket\ns=socket.socket(socket.AF_UNIX)\ns.bind(\"own\")\ns.listen()\n"
               "c=socket.socket(socket.AF_UNIX)\nc.connect(\"own\")\nprint(\"connected\")'",
               "connected\n");
    for (size_t i = 0; i < 4; i++) close(fds[i]);
    rig_remove(shared);
}

// A mask cannot be lifted: not by removing it, not as root of a nested namespace, not by mounting what is under it
// elsewhere.
static void test_masks_hold(void **state) {
    (void)state;
    mkdir(in_cwd("h"), 0755);
    mkdir(in_cwd("m"), 0755);
    put(in_cwd("connect.py"), connect_program, 0644);
    int fd = host_socket(in_cwd("h/service"));
    put(in_cwd("lift.sh"),
        "umount h/service && echo lifted\n"
        "mount --bind h m && echo bound\n"
        "mount -t overlay -o lowerdir=h:m none m && python3 connect.py m/service\n"
        "mount --rbind h m && umount m/service && echo lifted\n"
        "python3 connect.py m/service\n",
        0644);
    rig_expect(&rig,
               "rm -f h/service 2>/dev/null && echo removed; mv h/service x 2>/dev/null && echo moved;"
               "ln h/service l 2>/dev/null && python3 connect.py l; unshare -Urm sh lift.sh 2>/dev/null",
               "111\n");
    close(fd);
}

// ---- what the command gets ----

static void test_descriptors(void **state) {
    (void)state;
    int leak = open("/etc/hostname", O_RDONLY); // not close-on-exec, as a careless caller may leave one
    rig_expect(&rig, "ls /proc/$$/fd | tr '\\n' ' '", "0 1 2 ");
    if (leak >= 0) close(leak);
}

static void test_environment(void **state) {
    (void)state;
    setenv("http_proxy", "http://127.0.0.1:3128", 1);
    setenv("SSH_AUTH_SOCK", "/tmp/agent", 1);
    setenv("KEPT", "a b=c", 1);
    rig_expect(&rig, "env | grep -iE '^[^=]*(proxy|SSH_AUTH|KEPT)[^=]*='", "KEPT=a b=c\n");
    unsetenv("http_proxy");
    unsetenv("SSH_AUTH_SOCK");
}

static void test_large_output(void **state) {
    (void)state;
    struct rig_result result;
    rig_run(&rig, "head -c 8000000 /dev/zero | tr '\\0' x; head -c 3000000 /dev/zero | tr '\\0' y >&2", &result);
    assert_int_equal(result.status, 0);
    assert_int_equal(result.out.len, 8000000);
    assert_int_equal(result.err.len, 3000000);
    rig_result_done(&result);
}

// ---- how it ends ----

static int status_of(const char *script) {
    struct rig_result result;
    rig_run(&rig, script, &result);
    int status = result.status;
    assert_int_equal(result.start, 0);
    assert_int_equal(result.err.len, 0);
    rig_result_done(&result);
    return status;
}

static void test_exit_status(void **state) {
    (void)state;
    assert_int_equal(status_of("exit 0"), 0);
    assert_int_equal(status_of("exit 7"), 7);
    assert_int_equal(status_of("exit 255"), 255);
    assert_int_equal(status_of("kill -TERM $$"), 143);
    assert_int_equal(status_of("kill -KILL $$"), 137);
    assert_int_equal(status_of("kill -SEGV $$"), 139);
    assert_int_equal(status_of("sleep 30 & exit 3"), 3); // and sleep does not hold us up
    assert_int_equal(status_of("yes | head -1 >/dev/null; kill -PIPE $$"), 141);
}

static int start_error(const char *name, struct error *err) {
    char *argv[4];
    struct sandbox_process *process = NULL;
    struct sandbox_spec spec = rig_spec(&rig, argv, "");
    argv[0] = (char *)(uintptr_t)name;
    argv[1] = NULL;
    int r = sandbox_process_start(&spec, rig.user_namespace, rig.net_namespace, &process, err);
    if (r == 0) finish(process);
    return r;
}

static void test_cannot_execute(void **state) {
    (void)state;
    struct error err = {{0}};
    assert_int_equal(start_error("no-such-command", &err), -ENOENT);
    assert_non_null(strstr(err.text, "\"no-such-command\""));
    assert_int_equal(start_error("/nowhere/x", &err), -ENOENT);
    assert_int_equal(start_error("", &err), -ENOENT);
    put(in_cwd("plain"), "x", 0644);
    assert_int_equal(start_error("./plain", &err), -EACCES);
    assert_int_equal(start_error("/etc", &err), -EACCES);
    put(in_cwd("bad-interpreter"), "#!/nowhere/interpreter\n", 0755);
    assert_int_equal(start_error("./bad-interpreter", &err), -ENOENT);
    assert_non_null(strstr(err.text, "interpreter"));
    assert_non_null(strstr(err.text, "\"/nowhere/interpreter\""));
    put(in_cwd("windows"), "#!/bin/sh\r\nexit 0\r\n", 0755);
    assert_int_equal(start_error("./windows", &err), -ENOENT);
    assert_non_null(strstr(err.text, "\"/bin/sh\\x0d\""));
    assert_non_null(strstr(err.text, "CRLF"));
    put(in_cwd("chain"), "#! ./bad-interpreter\n", 0755);
    assert_int_equal(chdir(rig.cwd), 0);
    assert_int_equal(start_error("./chain", &err), -ENOENT);
    assert_int_equal(chdir("/"), 0);
    assert_non_null(strstr(err.text, "\"/nowhere/interpreter\""));
    put(in_cwd("folder-interpreter"), "#!/etc\n", 0755);
    assert_int_equal(start_error("./folder-interpreter", &err), -EACCES);
    put(in_cwd("no-interpreter"), "exit 0\n", 0755);
    assert_int_equal(start_error("./no-interpreter", &err), 0);
    char outside[] = "/tmp/penstock-outside-XXXXXX";
    int fd = mkstemp(outside);
    fchmod(fd, 0755);
    close(fd);
    assert_int_equal(start_error(outside, &err), -ENOENT);
    assert_non_null(strstr(err.text, "--read"));
    unlink(outside);
}

// More than bubblewrap takes; then more than the kernel takes.
static void test_many_arguments(void **state) {
    (void)state;
    enum { COUNT = 20000 };
    static char *argv[COUNT + 5];
    static char word[64], huge[150000];
    struct rig_result result;
    memset(word, 'w', sizeof(word) - 1);
    argv[0] = (char *)"sh";
    argv[1] = (char *)"-c";
    argv[2] = (char *)"echo $# \"$1\"; shift 19999; echo \"$1\"";
    for (size_t i = 0; i <= COUNT; i++) argv[3 + i] = word;
    argv[4] = (char *)""; // kept, though empty
    argv[3 + COUNT] = (char *)"--last word";
    struct sandbox_spec spec = {.argv = argv, .environment = environ, .cwd = rig.cwd, .identity = rig.identity};
    rig_run_spec(&rig, &spec, &result);
    assert_int_equal(result.start, 0);
    assert_string_equal(result.out.data, "20000 \n--last word\n");
    rig_result_done(&result);
    memset(huge, 'h', sizeof(huge) - 1); // one word is at most 128 KiB
    argv[5] = huge;
    rig_run_spec(&rig, &spec, &result);
    assert_int_equal(result.start, -EACCES);
    assert_non_null(strstr(result.error.text, "Argument list too long"));
    rig_result_done(&result);
}

static void test_set_up_fails(void **state) {
    (void)state;
    char *argv[4];
    struct error err = {{0}};
    struct sandbox_process *process = NULL;
    struct sandbox_spec spec = rig_spec(&rig, argv, "echo ran > ran");
    int r = sandbox_process_start(&spec, rig.net_namespace, rig.user_namespace, &process, &err); // the wrong way round
    assert_int_equal(r, -EIO);
    assert_non_null(strstr(err.text, "user namespace cannot be entered"));
    assert_int_equal(access(in_cwd("ran"), F_OK), -1);
    spec.cwd = "/";
    assert_int_equal(sandbox_process_check(&spec, &err), -EINVAL);
}

static void test_folder_as_stream(void **state) {
    (void)state;
    char *argv[4];
    struct error err = {{0}};
    struct sandbox_spec spec = rig_spec(&rig, argv, "true");
    int saved = fcntl(0, F_DUPFD_CLOEXEC, 3), folder = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    dup2(folder, 0);
    assert_int_equal(sandbox_process_check(&spec, &err), -EINVAL);
    assert_non_null(strstr(err.text, "standard input is a folder"));
    dup2(saved, 0);
    close(saved);
    close(folder);
    assert_int_equal(sandbox_process_check(&spec, &err), 0);
}

// ---- what stays on the host ----

// Every call that sets a mode, and the attribute that holds capabilities, also by root of a nested namespace.
static const char privilege_program[] =
    "import os, stat, subprocess, sys\n"
    "open('prog', 'w').close()\n"
    "tries = {\n"
    " 'chmod': lambda: os.chmod('prog', 0o4755), 'sgid': lambda: os.chmod('prog', 0o2755),\n"
    " 'fchmod': lambda: os.fchmod(os.open('prog', 0), 0o6755),\n"
    " 'open': lambda: os.open('new', os.O_CREAT | os.O_WRONLY, 0o4755),\n"
    " 'tmpfile': lambda: os.open('.', os.O_TMPFILE | os.O_WRONLY, 0o4755),\n"
    " 'mknod': lambda: os.mknod('node', stat.S_IFREG | 0o4755),\n"
    " 'xattr': lambda: os.setxattr('prog', 'security.capability', bytes.fromhex("
    "'0100000200040000000000000000000000000000')),\n"
    "}\n"
    "for name, act in tries.items():\n"
    "    try: act(); print('done', name)\n"
    "    except OSError as e: print(e.errno, name)\n";

static void test_no_privilege_on_the_host(void **state) {
    (void)state;
    put(in_cwd("privilege.py"), privilege_program, 0644);
    static const char expected[] = "1 chmod\n1 sgid\n1 fchmod\n1 open\n1 tmpfile\n1 mknod\n95 xattr\n";
    rig_expect(&rig, "python3 privilege.py", expected);
    rig_expect(&rig, "unshare -Ur python3 privilege.py", expected);
    rig_expect(&rig, "unshare -Urm python3 privilege.py", expected);
    struct stat st;
    assert_int_equal(stat(in_cwd("prog"), &st), 0);
    assert_int_equal(st.st_mode & 06000, 0);
    assert_int_equal(stat(in_cwd("new"), &st), -1);
    assert_int_equal(stat(in_cwd("node"), &st), -1);
    // Ordinary modes as ever, with a sticky bit too.
    rig_expect(&rig,
               "umask 022; install -m 755 /bin/true t; chmod 4755 t 2>/dev/null || echo refused; mkdir -m 1777 d; "
               "stat -c %a t d; chmod 600 t; stat -c %a t",
               "refused\n755\n1777\n600\n");
}

// A write clears the bit, but not one through a mapping.
static void test_program_of_root_is_kept(void **state) {
    (void)state;
    if (!rig_is_root()) return; // an ordinary user's own programs are that user's to change
    mkdir(in_cwd("bin"), 0755);
    put(in_cwd("bin/prog"), "original", 0755);
    assert_int_equal(chmod(in_cwd("bin/prog"), 04755), 0);
    put(in_cwd("bin/plain"), "original", 0755);
    put(in_cwd("map.py"),
        "import mmap, sys\n"
        "for name in sys.argv[1:]:\n"
        "    try:\n"
        "        with open(name, 'r+b') as f: mmap.mmap(f.fileno(), 8)[0:4] = b'EVIL'\n"
        "    except OSError as e: print(e.errno, name)\n",
        0644);
    rig_expect(&rig, "python3 map.py bin/prog bin/plain; cat bin/prog bin/plain", "30 bin/prog\noriginalEVILinal");
    unlink(in_cwd("bin/prog"));
}

static void run_protected(const char *const *protects, size_t count, const char *script, const char *expected) {
    char *argv[4];
    struct rig_result result;
    struct sandbox_spec spec = rig_spec(&rig, argv, script);
    spec.protects = protects;
    spec.protect_count = count;
    rig_run_spec(&rig, &spec, &result);
    if (result.start < 0) print_error("%s\n", result.error.text);
    assert_int_equal(result.start, 0);
    assert_string_equal(result.out.data ? result.out.data : "", expected);
    rig_result_done(&result);
}

// Leaves all mounts behind, keeping a descriptor of the working directory; then the mount points are none any more.
static const char leave_program[] =
    "import ctypes, os, sys\n"
    "libc = ctypes.CDLL(None, use_errno=True)\n"
    "folder = os.open('.', os.O_RDONLY)\n"
    "uid, gid = os.getuid(), os.getgid()\n"
    "if libc.unshare(0x10020000) < 0: print('unshare', ctypes.get_errno()); sys.exit()\n"
    "open('/proc/self/uid_map', 'w').write(f'0 {uid} 1')\n"
    "open('/proc/self/gid_map', 'w').write(f'0 {gid} 1')\n"
    "os.makedirs('/tmp/root', exist_ok=True)\n"
    "libc.mount(b't', b'/tmp/root', b'tmpfs', 0, None)\n"
    "os.mkdir('/tmp/root/old'); os.chdir('/tmp/root')\n"
    "libc.pivot_root(b'.', b'old'); libc.umount2(b'/old', 2)\n"
    "os.rename('policy', 'moved', src_dir_fd=folder, dst_dir_fd=folder); print('moved')\n";

static void test_protected_files(void **state) {
    (void)state;
    struct stat before, after;
    char policy[160], log[160];
    snprintf(policy, sizeof(policy), "%s/policy", rig.cwd);
    snprintf(log, sizeof(log), "%s/conf/deep/log", rig.cwd);
    const char *const protects[] = {policy, log};
    mkdir(in_cwd("conf"), 0755);
    mkdir(in_cwd("conf/deep"), 0755);
    put(in_cwd("leave.py"), leave_program, 0644);
    put(protects[0], "policy\n", 0644);
    put(protects[1], "log\n", 0644);
    assert_int_equal(stat(protects[0], &before), 0);
    run_protected(protects, 2,
                  "exec 2>/dev/null; for f in policy conf/deep/log; do cat $f; (echo x >> $f) && echo wrote $f; "
                  "(: > $f) && echo cut $f; chmod 777 $f && echo mode $f; rm -f $f && echo removed $f; "
                  "mv $f other && echo moved $f; ln $f other && echo linked $f; ln -sf /etc/passwd $f && echo link $f; "
                  "cp /etc/passwd x && mv x $f && echo over $f; done; rm -f x;"
                  "mv conf conf2 && echo moved conf; mv conf/deep conf/d2 && echo moved deep; rm -rf conf;"
                  "unshare -Ur mv conf/deep conf/d2 && echo nested; unshare -Urm umount policy && echo lifted;"
                  "python3 leave.py; touch conf/deep/mine conf/mine && echo beside",
                  "policy\nlog\nunshare 1\nbeside\n");
    assert_int_equal(stat(protects[0], &after), 0);
    assert_int_equal(after.st_ino, before.st_ino);
    assert_int_equal(after.st_mode, before.st_mode);
    assert_int_equal(stat(in_cwd("conf/deep/mine"), &after), 0); // the folder's owner's, as everything
    assert_int_equal(after.st_uid, geteuid());
    // Unprotected, all of it works, and that way out is what it is said to be.
    rig_expect(&rig, "python3 leave.py; mv moved policy; mv conf c2; rm -r c2 policy; echo gone", "moved\ngone\n");
    char *argv[4];
    struct error err = {{0}};
    struct sandbox_spec spec = rig_spec(&rig, argv, "true");
    spec.protects = protects;
    spec.protect_count = 2;
    assert_int_equal(sandbox_process_check(&spec, &err), -EINVAL); // they are gone
    assert_non_null(strstr(err.text, "policy"));
}

static void test_devices_are_bounded(void **state) {
    (void)state;
    rig_expect(&rig, "touch /dev/x 2>/dev/null || echo read-only; touch /dev/shm/x && echo shm; echo > /dev/null; "
                     "df --output=size /dev/shm | tail -1 | grep -q '[1-9]' && echo bounded; "
                     "python3 -c 'import multiprocessing as m; m.Lock(); import os; os.openpty(); print(\"pty\")'",
               "read-only\nshm\nbounded\npty\n");
}

static void test_sandbox_in_a_sandbox(void **state) {
    (void)state;
    rig_expect(&rig, "cat /proc/1/comm", "penstock-init\n"); // by which the room knows it
}

// ---- signals ----

static void wait_for_file(const char *path) {
    for (int i = 0; i < 500 && access(path, F_OK) != 0; i++) poll(NULL, 0, 10);
    assert_int_equal(access(path, F_OK), 0);
}

static void test_signal(void **state) {
    (void)state;
    unlink(in_cwd("ready"));
    struct sandbox_process *process = start_script("trap 'exit 42' TERM; : > ready; while :; do sleep 0.05; done");
    wait_for_file(in_cwd("ready"));
    assert_int_equal(sandbox_process_signal(process, SIGTERM), 0);
    assert_int_equal(finish(process), 42);
    process = start_script("exec sleep 100");
    assert_int_equal(sandbox_process_signal(process, SIGINT), 0);
    assert_int_equal(finish(process), 130);
    process = start_script("exec sleep 100");
    kill(sandbox_process_pid(process), SIGKILL); // bubblewrap dies: so does everything
    assert_int_equal(finish(process), 137);
    process = start_script("exit 0");
    poll(NULL, 0, 200);
    assert_int_equal(sandbox_process_signal(process, SIGTERM), -ESRCH);
    assert_int_equal(finish(process), 0);
}

static void test_mask_and_ignored(void **state) {
    (void)state;
    sigset_t usr1, old;
    for (int number = 1; number < NSIG; number++) signal(number, SIG_DFL); // whatever the tests were started with
    unsigned long standard[4] = {0}; // libc keeps signal 32 for itself
    syscall(SYS_rt_sigaction, 32, standard, NULL, 8);
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    signal(SIGPIPE, SIG_IGN); // penstock's own
    signal(SIGHUP, SIG_IGN);  // nohup penstock
    sigprocmask(SIG_BLOCK, &usr1, &old);
    rig_expect(&rig, "grep -E '^Sig(Blk|Ign)' /proc/self/status | tr -d '\\t'",
               "SigBlk:0000000000000200\nSigIgn:0000000000000001\n");
    char *argv[4];
    struct rig_result result;
    struct sandbox_spec spec = rig_spec(&rig, argv, "grep ^SigBlk /proc/self/status | tr -d '\\t'");
    spec.signal_mask = &old; // the mask of before
    rig_run_spec(&rig, &spec, &result);
    assert_string_equal(result.out.data, "SigBlk:0000000000000000\n");
    rig_result_done(&result);
    sigset_t now;
    sigprocmask(SIG_SETMASK, &old, &now);
    assert_int_equal(sigismember(&now, SIGUSR1), 1); // the caller's own is as it was
    signal(SIGHUP, SIG_DFL);
}

static void ignore(int number) { (void)number; }

// A caller in a process group of its own, as a shell makes it: `run` with a handler for SIGINT and a loop that
// dispatches.
static pid_t start_caller(const char *script) {
    pid_t pid = fork();
    if (pid > 0) return pid;
    setpgid(0, 0);
    signal(SIGINT, ignore);
    char *argv[4];
    struct error err = {{0}};
    struct sandbox_process *process = NULL;
    struct sandbox_spec spec = rig_spec(&rig, argv, script);
    if (sandbox_process_start(&spec, rig.user_namespace, rig.net_namespace, &process, &err) < 0) _exit(99);
    struct pollfd ready = {.fd = sandbox_process_fd(process), .events = POLLIN};
    while (poll(&ready, 1, 10000) < 0 || sandbox_process_dispatch(process) > 0) {
    }
    int status;
    while (waitpid(sandbox_process_pid(process), &status, 0) < 0) {
    }
    _exit(sandbox_process_status(process, status));
}

static void test_observe(void **state) {
    (void)state;
    struct sandbox_process *process = start_script("kill -STOP $$; exit 9");
    struct pollfd ready = {.fd = sandbox_process_fd(process), .events = POLLIN};
    int seen = 1;
    while (seen == 1 && poll(&ready, 1, 10000) > 0) seen = sandbox_process_observe(process);
    assert_int_equal(seen, 2); // and we are running
    sandbox_process_resume(process);
    while (seen != 0 && poll(&ready, 1, 10000) > 0) seen = sandbox_process_observe(process);
    assert_int_equal(seen, 0);
    assert_int_equal(finish(process), 9);
}

static void test_interrupt_of_the_group(void **state) {
    (void)state;
    int status;
    unlink(in_cwd("ready"));
    pid_t caller = start_caller("trap 'exit 5' INT; : > ready; while :; do sleep 0.05; done");
    wait_for_file(in_cwd("ready"));
    kill(-caller, SIGINT);
    waitpid(caller, &status, 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 5);
}

static void test_stop(void **state) {
    (void)state;
    int status;
    pid_t caller = start_caller("kill -STOP $$; exit 6");
    assert_int_equal(waitpid(caller, &status, WUNTRACED), caller);
    assert_true(WIFSTOPPED(status)); // the shell sees it
    kill(-caller, SIGCONT);
    assert_int_equal(waitpid(caller, &status, WUNTRACED), caller);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 6);
}

// ---- time ----

static uint64_t run_us(char *const argv[]) {
    uint64_t start = clock_us();
    pid_t pid = fork();
    if (pid == 0) {
        execv(argv[0], argv);
        _exit(99);
    }
    int status;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    return clock_us() - start;
}

static void test_start_time(void **state) {
    (void)state;
    char *bare[] = {(char *)"/usr/bin/bwrap",
                    (char *)"--unshare-all",
                    (char *)"--ro-bind",
                    (char *)"/usr",
                    (char *)"/usr",
                    (char *)"--symlink",
                    (char *)"usr/lib64",
                    (char *)"/lib64",
                    (char *)"--symlink",
                    (char *)"usr/lib",
                    (char *)"/lib",
                    (char *)"--proc",
                    (char *)"/proc",
                    (char *)"--dev",
                    (char *)"/dev",
                    (char *)"--tmpfs",
                    (char *)"/tmp",
                    (char *)"/usr/bin/true",
                    NULL};
    uint64_t best_bare = UINT64_MAX, best = UINT64_MAX;
    for (int i = 0; i < 20; i++) {
        uint64_t took = run_us(bare);
        if (took < best_bare) best_bare = took;
        uint64_t start = clock_us();
        assert_int_equal(finish(start_script("exit 0")), 0);
        took = clock_us() - start;
        if (took < best) best = took;
    }
    print_message("start to end: %.1f ms; bare bwrap with a network namespace: %.1f ms\n", (double)best / 1000,
                  (double)best_bare / 1000);
    assert_true(best < 4 * best_bare + 20000); // far above what is aimed at: machines are shared
}

static int group(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_identity),
        cmocka_unit_test(test_secrets),
        cmocka_unit_test(test_own_processes_only),
        cmocka_unit_test(test_no_way_to_the_network),
        cmocka_unit_test(test_system_is_read_only),
        cmocka_unit_test(test_working_directory),
        cmocka_unit_test(test_home_and_shares),
        cmocka_unit_test(test_devices),
        cmocka_unit_test(test_etc_files),
        cmocka_unit_test(test_host_sockets),
        cmocka_unit_test(test_masks_hold),
        cmocka_unit_test(test_descriptors),
        cmocka_unit_test(test_environment),
        cmocka_unit_test(test_large_output),
        cmocka_unit_test(test_exit_status),
        cmocka_unit_test(test_cannot_execute),
        cmocka_unit_test(test_many_arguments),
        cmocka_unit_test(test_set_up_fails),
        cmocka_unit_test(test_folder_as_stream),
        cmocka_unit_test(test_no_privilege_on_the_host),
        cmocka_unit_test(test_program_of_root_is_kept),
        cmocka_unit_test(test_protected_files),
        cmocka_unit_test(test_devices_are_bounded),
        cmocka_unit_test(test_sandbox_in_a_sandbox),
        cmocka_unit_test(test_observe),
        cmocka_unit_test(test_signal),
        cmocka_unit_test(test_mask_and_ignored),
        cmocka_unit_test(test_interrupt_of_the_group),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_start_time),
    };
    rig_init(&rig);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rig_done(&rig);
    return failed;
}

int main(void) { return rig_both(group); }
