// SPDX-License-Identifier: Apache-2.0
// What mounts show of what is hidden or protected. Each case has a mount namespace of its own, as root and as an ordinary user.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "rig.h"
#include "sandbox/alias.h"
#include "sandbox/mountinfo.h"
#include "sandbox/unix_mask.h"

static char base[64]; // a tmpfs in the case's namespace, $B in scripts; with a socket, s

// Everywhere: a state folder, a secret, a policy and its folder, and a project that holds none of them.
#define TREE "cd $B; mkdir -p people/state/ca secrets policy links other up wk 'a b,c:d\\e' project/d project/e; touch project/f; " \
             "echo key >people/state/ca/authority; echo s >secrets/k; echo p >policy/p; ln -s $B/policy/p links/p; "

struct test_case {
    const char *name, *mounts;
    const char *fault; // a part of the message, with $B; NULL: none
    const char *cwd, *state, *policy, *read; // below $B, unless the usual ones
    const char *mask; // must be hidden
    bool walk;        // by the walk alone
};

#define OVERLAY "mount -t overlay overlay -o upperdir=$B/up,workdir=$B/wk,lowerdir="
static const struct test_case cases[] = {
    {"nothing", "true", NULL},
    {"an ordinary mount", "mount --bind other project/d; mount -t tmpfs x project/e; mount --bind project other", NULL},
    {"a file of the state folder", "mount --bind people/state/ca/authority project/f", "mount on \"$B/project/f\""},
    {"the state folder", "mount --bind people/state project/d", "see \"$B/people/state\" as \"$B/project/d\""},
    {"a folder in it", "mount --bind people/state/ca project/d", "see \"$B/people/state\" as \"$B/project/d\""},
    {"a folder above it", "mount --bind people project/d", "as \"$B/project/d/state\""},
    {"all, by itself", "mount --rbind . project/d", "mount on \"$B/project/d\""},
    {"a secret", "mount --bind secrets/k project/f", "see \"$B/secrets/k\" as \"$B/project/f\""},
    {"its folder", "mount --bind secrets project/d", "as \"$B/project/d/k\""},
    {"a mount of a mount", "mount --bind people other; mount --bind other/state project/d", "as \"$B/project/d\""},
    {"a mount in a mount", "mount -t tmpfs x project/d; mkdir project/d/x; mount --bind secrets project/d/x", "as \"$B/project/d/x/k\""},
    {"another one over it", "mount --bind secrets project/d; mount -t tmpfs x project/d", NULL},
    {"a policy", "mount --bind policy/p project/f", "change \"$B/policy/p\" as \"$B/project/f\""},
    {"a policy's folder", "mount --bind policy project/d", "change \"$B/policy/p\" as \"$B/project/d/p\""},
    {"a policy's folder, not to be written", "mount --bind policy other", NULL, .read = "other"},
    {"a link to a policy", "mount --bind links project/d", "change \"$B/links/p\" as \"$B/project/d/p\"", .policy = "links/p"},
    {"a mount above the project", "mkdir people/project; mount --bind people other", "mount on \"$B/other\"", .cwd = "other", .policy = "policy/p"},
    {"one without any", "mkdir people/project; mount --bind people other", NULL, .cwd = "other/project"},
    {"both in one overlay", "mkdir people/project; " OVERLAY "$B/people other", NULL, .cwd = "other/project", .state = "other/state"},
    {"a policy in a mount of the project", "mount --bind policy project/d", NULL, .policy = "project/d/p"},
    {"a state folder with a mount of its own", "mount --bind other project/d", NULL, .state = "project/d"},
    {"and with one in it", "mount --bind people/state/ca people/state/ca", NULL},
    {"a second name", "ln secrets/k other/k2; mount --bind other/k2 project/f", "mount on \"$B/project/f\" would let the sandbox see keys"},
    {"names with blanks", "cp -r people 'a b,c:d\\e/'; mkdir 'project/x y'; mount --bind 'a b,c:d\\e/people' 'project/x y'",
     "mount on \"$B/project/x y\"", .state = "a b,c:d\\e/people/state"},
    {"a system folder", "mount -t tmpfs x /opt; mkdir /opt/x; mount --bind secrets /opt/x", "as \"/opt/x/k\""},
    {"an overlay", OVERLAY "$B/other:$B/people project/d", "mount on \"$B/project/d\" would let the sandbox see \"$B/people/state\" as \"$B/project/d/state\""},
    {"an overlay's upper folder", "mount -t overlay overlay -o upperdir=$B/secrets,workdir=$B/wk,lowerdir=$B/other project/d", "as \"$B/project/d/k\""},
    {"an overlay of other things", OVERLAY "$B/other:$B/policy project/d", NULL, .policy = "people/state/ca/authority"},
    {"an overlay that has it removed", "mknod up/k c 0 0; " OVERLAY "$B/secrets project/d", NULL},
    {"a mount of a folder of an overlay", OVERLAY "$B other; mount --bind other/secrets project/d", "as \"$B/project/d/k\""},
    {"an overlay of an overlay", OVERLAY "$B/people other; mount -t overlay overlay -o lowerdir=$B/other:$B/links project/d",
     "as \"$B/project/d/state\""},
    {"an overlay with a name that has all in it", "cp -r people 'a b,c:d\\e/'; rm -rf people; mkdir l; mount --bind 'a b,c:d\\e' l; mkdir 'c:o d'; mount --bind l 'c:o d'; " OVERLAY "$B/'c\\:o d' project/d",
     "as \"$B/project/d/people/state\"", .state = "a b,c:d\\e/people/state"},
    {"what an overlay holds, by its layer", OVERLAY "$B/people other; mkdir other/new; mount --bind up project/d", "as \"$B/project/d/new\"", .state = "other/new"},
    {"an overlay over its own layer", OVERLAY "$B/people people; mount -t tmpfs x project/e", NULL},
    {"a secret's folder under another device", "mount --bind secrets project/d", "\"$B/project/d\" would show the sandbox the folder", .walk = true},
    {"a socket over a file", "mount --bind s project/f", NULL, .mask = "project/f"},
    {"a socket over a file, by a link", "touch other/f; ln -s other via; mount --bind s other/f", NULL,
     .read = "via", .mask = "via/f"},
    {"an overlay with unknown layers", OVERLAY "policy:other project/d", "the overlay on \"$B/project/d\""},
};

static void expand(const char *text, char ret_text[512]) {
    size_t used = 0;
    for (; *text && used < 400; text++) {
        if (strncmp(text, "$B", 2) == 0) {
            used += (size_t)snprintf(ret_text + used, 512 - used, "%s", base);
            text++;
        } else {
            ret_text[used++] = *text;
        }
    }
    ret_text[used] = '\0';
}

static char *below(const char *name, char ret_path[256]) {
    snprintf(ret_path, 256, "%s/%s", base, name);
    return ret_path;
}

static void put_map(const char *file, const char *text) {
    int fd = open(file, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0) _exit(3);
    close(fd);
}

// Root's own mount namespace, or one where the user is root.
static void enter(void) {
    char map[32];
    uid_t uid = getuid();
    gid_t gid = getgid();
    snprintf(map, sizeof(map), "0 %u 1", uid);
    if (unshare(CLONE_NEWNS | (uid ? CLONE_NEWUSER : 0)) < 0) _exit(4);
    if (uid) {
        put_map("/proc/self/uid_map", map);
        snprintf(map, sizeof(map), "0 %u 1", gid);
        put_map("/proc/self/setgroups", "deny");
        put_map("/proc/self/gid_map", map);
    }
    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || mount("x", base, "tmpfs", 0, NULL) < 0) _exit(5);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%s/s", base);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0) _exit(8);
    close(fd);
}

// What unix_mask_collect finds, with the mounts' list or without one.
static int collect(const struct exposure *exposure, const struct hidden *hidden, const struct mountinfo *mounts, const char *mask,
                   struct error *err) {
    struct unix_mask found;
    char path[256];
    int r = unix_mask_collect(exposure, hidden, mounts, &found, err);
    for (size_t i = 0; r == 0 && i < found.count; i++)
        if (mask && strcmp(found.entries[i].path, below(mask, path)) == 0) mask = NULL;
    if (r == 0) unix_mask_done(&found);
    return r == 0 && mask ? error_set(err, -EINVAL, "nothing hides it") : r;
}

static int check(const struct test_case *test, struct error *err) {
    char cwd[256], state[256], policy[256], secret[256], read[256];
    const char *hides[] = {below(test->state ? test->state : "people/state", state)}, *secrets[] = {below("secrets/k", secret)};
    const char *protects[] = {below(test->policy ? test->policy : "policy/p", policy)};
    const char *reads[] = {below(test->read ? test->read : "", read)};
    struct sandbox_spec spec = {.cwd = below(test->cwd ? test->cwd : "project", cwd), .hides = hides, .hide_count = 1,
                                .secrets = secrets, .secret_count = 1, .protects = protects, .protect_count = 1,
                                .reads = reads, .read_count = test->read != NULL};
    struct exposure exposure;
    struct hidden hidden = {0};
    struct mountinfo mounts;
    int r = exposure_init(&exposure, &spec, err);
    if (r < 0) return r;
    r = hidden_collect(&spec, &exposure, &hidden, err);
    if (r == 0) r = mountinfo_read(&mounts, err);
    if (r == 0) {
        static const struct mountinfo none;
        if (!test->walk) r = alias_check(&spec, &exposure, &hidden, &mounts, err);
        if (r == 0) r = collect(&exposure, &hidden, test->walk ? &none : &mounts, test->mask, err);
        mountinfo_done(&mounts);
    }
    hidden_done(&hidden);
    exposure_done(&exposure);
    return r;
}

static void run_case(const struct test_case *test, char ret_text[512]) {
    int ends[2], status;
    ret_text[0] = '\0';
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct error err = {{0}};
        char script[2048];
        enter();
        snprintf(script, sizeof(script), "B=%s; set -e; %s%s", base, TREE, test->mounts);
        pid_t shell = fork();
        if (shell == 0) {
            execl("/bin/sh", "sh", "-c", script, NULL);
            _exit(127);
        }
        if (waitpid(shell, &status, 0) < 0 || status != 0) _exit(6);
        int r = check(test, &err);
        if (r < 0 && write(ends[1], err.text, strlen(err.text)) < 0) _exit(7);
        _exit(r < 0 && r != -EINVAL);
    }
    close(ends[1]);
    for (ssize_t n, used = 0; (n = read(ends[0], ret_text + used, (size_t)(511 - used))) > 0;) ret_text[used += n] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (status != 0) snprintf(ret_text, 512, "status %x", (unsigned)status);
}

static void test_cases(void **state) {
    (void)state;
    unsigned failed = 0;
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        char text[512], fault[512];
        run_case(&cases[i], text);
        expand(cases[i].fault ? cases[i].fault : "", fault);
        if (cases[i].fault ? strstr(text, fault) != NULL : text[0] == '\0') continue;
        print_error("%s: \"%s\" instead of \"%s\"\n", cases[i].name, text, fault);
        failed++;
    }
    assert_int_equal(failed, 0);
}

static int group(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases)};
    snprintf(base, sizeof(base), "/tmp/penstock-alias-XXXXXX");
    if (!mkdtemp(base)) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(base);
    return failed;
}

int main(void) { return rig_both(group); }
