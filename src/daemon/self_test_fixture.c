// SPDX-License-Identifier: Apache-2.0
// What the test puts on the host, and takes away again: folders, a copy of this program that the sandbox can see, secrets,
// a terminal.
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/sendfile.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/random.h"
#include "daemon/self_test.h"

#define NEIGHBOUR_PORT "61234" // in a namespace of its own
#define ALLOWED "allowed.penstock-self-test.example"
static const char far4[] = "198.51.100.7", far6[] = "2001:db8:ffff::7"; // documentation ranges: nobody's

// ---- folders and files ----

static int write_file(const char *path, const char *text, mode_t mode) {
    AUTO_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd < 0) return -errno;
    return write(fd, text, strlen(text)) == (ssize_t)strlen(text) && fchmod(fd, mode) == 0 ? 0 : -EIO;
}

static int copy_program(const char *to) {
    struct stat st;
    AUTO_CLOSE int in = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    AUTO_CLOSE int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
    if (in < 0 || out < 0 || fstat(in, &st) < 0) return -errno;
    for (off_t done = 0; done < st.st_size;) {
        ssize_t sent = sendfile(out, in, NULL, (size_t)(st.st_size - done));
        if (sent <= 0) return sent < 0 ? -errno : -EIO;
        done += sent;
    }
    return fchmod(out, 0755) < 0 ? -errno : 0;
}

static int make_folders(struct self_test *test, const char *parent) {
    snprintf(test->folder, sizeof(test->folder), "%s/penstock-self-test-XXXXXX", parent);
    if (!mkdtemp(test->folder)) {
        int rc = -errno;
        test->folder[0] = '\0';
        return rc;
    }
    snprintf(test->project, sizeof(test->project), "%s/project", test->folder);
    snprintf(test->outside, sizeof(test->outside), "%s/outside", test->folder);
    snprintf(test->program, sizeof(test->program), "%s/project/penstock", test->folder);
    // Open to everybody: what keeps the sandbox out must be the sandbox.
    if (chmod(test->folder, 0755) < 0 || mkdir(test->project, 0755) < 0 || mkdir(test->outside, 0755) < 0 ||
        chmod(test->outside, 0777) < 0)
        return -errno;
    return copy_program(test->program);
}

static void remove_folders(struct self_test *test) {
    static const char *const files[] = {"project/penstock", "project/socket", "outside/socket", "words", "home/secret"};
    static const char *const folders[] = {"project", "outside", "home", ""};
    char path[PATH_MAX];
    if (!test->folder[0]) return;
    for (size_t i = 0; i < ARRAY_LENGTH(files); i++) {
        snprintf(path, sizeof(path), "%s/%s", test->folder, files[i]);
        unlink(path);
    }
    for (size_t i = 0; i < ARRAY_LENGTH(folders); i++) {
        snprintf(path, sizeof(path), "%s/%s", test->folder, folders[i]);
        rmdir(path);
    }
    test->folder[0] = '\0';
}

// A sandbox in the folder, to see that it can be one here: a temporary folder may be noexec, or without idmapped mounts.
static int try_folder(struct self_test *test, struct error *err) {
    char *arguments[] = {"run", "--quiet", "--network", "none", "--", test->program, "@probe", "wait", NULL};
    char *direct[] = {"@probe", "wait", NULL};
    struct self_test_child child;
    int rc = self_test_spawn(test, test->options->direct ? direct : arguments, false, false, &child, err);
    if (rc < 0) return rc;
    rc = self_test_spawn_ready(test, &child, err);
    self_test_spawn_stop(&child);
    return rc;
}

static int make_place(struct self_test *test, struct error *err) {
    AUTO_FREE char *cwd = getcwd(NULL, 0);
    const char *parents[] = {"/tmp", "/var/tmp", cwd ? cwd : "/tmp"};
    int rc = -EIO;
    for (size_t i = 0; i < ARRAY_LENGTH(parents); i++) {
        rc = make_folders(test, parents[i]);
        if (rc < 0) error_set(err, rc, "no folder for the test can be made in %s: %s", parents[i], strerror(-rc));
        else rc = try_folder(test, err);
        if (rc == 0) return 0;
        remove_folders(test);
    }
    return rc;
}

// ---- secrets ----

// In the home folder if there is one that can be written, else in one for the test.
static int make_secret_file(struct self_test *test, struct error *err) {
    const char *home = getenv("HOME");
    const struct passwd *entry = getpwuid(getuid());
    if (!home || home[0] != '/') home = entry ? entry->pw_dir : "/nonexistent";
    snprintf(test->home, sizeof(test->home), "%.4000s", home);
    snprintf(test->secret_file, sizeof(test->secret_file), "%.4000s/.%s", home, test->nonce);
    int rc = strcmp(home, "/") == 0 ? -EACCES : write_file(test->secret_file, test->secret, 0600);
    if (rc == 0) return 0;
    snprintf(test->home, sizeof(test->home), "%s/home", test->folder);
    snprintf(test->secret_file, sizeof(test->secret_file), "%.4000s/secret", test->home);
    rc = mkdir(test->home, 0755) < 0 ? -errno : write_file(test->secret_file, test->secret, 0644);
    return rc < 0 ? error_set(err, rc, "no file for the test can be made in %s: %s", test->home, strerror(-rc)) : 0;
}

static int make_terminal(struct self_test *test, struct error *err) {
    struct termios settings;
    test->terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (test->terminal < 0 || grantpt(test->terminal) < 0 || unlockpt(test->terminal) < 0 ||
        ptsname_r(test->terminal, test->terminal_name, sizeof(test->terminal_name)) != 0 ||
        tcgetattr(test->terminal, &settings) < 0)
        return error_set(err, -errno, "no terminal for the test: %s; mount /dev/pts", strerror(errno));
    settings.c_lflag &= ~(tcflag_t)ECHO;
    tcsetattr(test->terminal, TCSANOW, &settings);
    return 0;
}

int self_test_fixture_make(struct self_test *test, struct error *err) {
    test->memory = test->terminal = -1;
    snprintf(test->nonce, sizeof(test->nonce), "penstock-%08x", random_u32());
    snprintf(test->secret, sizeof(test->secret), "secret-%08x%08x", random_u32(), random_u32());
    snprintf(test->home, sizeof(test->home), "%s", getenv("HOME") ? getenv("HOME") : "/nonexistent");
    int rc = make_place(test, err);
    if (rc == 0) rc = make_secret_file(test, err);
    if (rc == 0) rc = make_terminal(test, err);
    if (rc < 0) return rc;
    snprintf(test->shared, sizeof(test->shared), "/dev/shm/%s", test->nonce);
    (void)write_file(test->shared, test->secret, 0644); // where there is none, there is none to read
    key_t key = (key_t)(random_u32() % INT32_MAX) + 1;
    char text[32];
    test->memory = shmget(key, 4096, IPC_CREAT | IPC_EXCL | 0666);
    snprintf(text, sizeof(text), "%d", (int)key);
    self_test_fixture_set(test, "key", text);
    return 0;
}

void self_test_fixture_remove(struct self_test *test) {
    if (test->secret_file[0]) unlink(test->secret_file);
    if (test->shared[0]) unlink(test->shared);
    if (test->memory >= 0) shmctl(test->memory, IPC_RMID, NULL);
    mem_close_pointer(&test->terminal);
    remove_folders(test);
    for (size_t i = 0; i < test->target_count; i++) free(test->targets[i]);
}

// ---- targets ----

void self_test_fixture_set(struct self_test *test, const char *name, const char *value) {
    struct buf text = BUF_INIT;
    buf_printf(&text, "%s=%s", name, value);
    char *target = buf_take(&text);
    if (target && test->target_count < SELF_TEST_TARGETS) test->targets[test->target_count++] = target;
    else free(target);
}

static void set_number(struct self_test *test, const char *name, unsigned value) {
    char text[16];
    snprintf(text, sizeof(text), "%u", value);
    self_test_fixture_set(test, name, text);
}

// A host without an address of a family has nothing to be reached there but its loopback, which in a sandbox is the
// sandbox's own: then the attempt is made on an address of nobody, which is private so that it must be refused as well.
static const char *own_text(const struct self_test *test, const struct addr *own, const char *nobody, char text[ADDR_TEXT_SIZE]) {
    return addr_is_loopback(own) && !test->options->direct ? nobody : addr_format(own, text);
}

static void set_own(struct self_test *test) {
    char text[ADDR_TEXT_SIZE];
    struct addr own4;
    self_test_fixture_set(test, "own6", own_text(test, &test->canary.own6, "fd7e:7e57::1", text));
    const char *own = own_text(test, &test->canary.own4, "10.126.87.1", text);
    self_test_fixture_set(test, "own4", own);
    if (addr_parse(own, strlen(own), &own4) < 0) return;
    snprintf(text, sizeof(text), "%02x%02x:%02x%02x", own4.bytes[0], own4.bytes[1], own4.bytes[2], own4.bytes[3]);
    self_test_fixture_set(test, "hex4", text);
}

// Without a sandbox nothing stands between: what is out there for it is then the test's own servers.
static void set_far(struct self_test *test) {
    char own4[ADDR_TEXT_SIZE], own6[ADDR_TEXT_SIZE];
    bool direct = test->options->direct;
    self_test_fixture_set(test, "far4", direct ? addr_format(&test->canary.own4, own4) : far4);
    self_test_fixture_set(test, "far6", direct ? addr_format(&test->canary.own6, own6) : far6);
    self_test_fixture_set(test, "dns4", direct ? "127.0.0.1" : "198.51.100.53");
    self_test_fixture_set(test, "dns6", direct ? "::ffff:127.0.0.1" : "2001:db8:53::53");
    set_number(test, "dnsport", direct ? test->canary.dns_port : 53);
    set_number(test, "tlsport", direct ? test->canary.port : 853);
}

int self_test_fixture_targets(struct self_test *test, pid_t decoy, struct error *err) {
    set_own(test);
    set_far(test);
    set_number(test, "port", test->canary.port);
    set_number(test, "decoy", (unsigned)decoy);
    set_number(test, "parent", (unsigned)getpid());
    self_test_fixture_set(test, "neighbour", NEIGHBOUR_PORT);
    self_test_fixture_set(test, "allowed", ALLOWED);
    self_test_fixture_set(test, "nonce", test->nonce);
    self_test_fixture_set(test, "abstract", test->nonce);
    self_test_fixture_set(test, "secret", test->secret);
    self_test_fixture_set(test, "secretfile", test->secret_file);
    self_test_fixture_set(test, "home", test->home);
    self_test_fixture_set(test, "project", test->project);
    self_test_fixture_set(test, "outside", test->outside);
    self_test_fixture_set(test, "gate4", test->plain ? "0.0.0.0 53" : "192.0.0.3 1");
    self_test_fixture_set(test, "gate6", test->plain ? ":: 53" : "fd00::3 1");
    if (test->target_count < 23) return error_set(err, -ENOMEM, "out of memory");
    test->canary.allowed = ALLOWED;
    return 0;
}
