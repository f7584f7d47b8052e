// SPDX-License-Identifier: Apache-2.0
// Which working directories and shares are accepted, in which order they are mounted, and what a sandbox sees.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/mem.h"
#include "sandbox/exposure.h"
#include "sandbox/home.h"
#include "sandbox/mountinfo.h"
#include "sandbox/place.h"
#include "sandbox/unix_mask.h"

extern char **environ;
static char root[64]; // a folder of the test, with home, home/project, home/other, elsewhere

static char *below(const char *name) {
    static char paths[8][128];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof(paths[0]), "%s%s", root, name);
    return path;
}

static int set_up(void **state) {
    (void)state;
    snprintf(root, sizeof(root), "/tmp/penstock-exposure-XXXXXX");
    if (!mkdtemp(root)) return -1;
    static const char *const folders[] = {"/home", "/home/project", "/home/project/deep", "/home/other", "/elsewhere"};
    for (size_t i = 0; i < 5; i++)
        if (mkdir(below(folders[i]), 0755) < 0) return -1;
    if (symlink(below("/elsewhere"), below("/home/link")) < 0) return -1;
    return setenv("HOME", below("/home"), 1);
}

static int check_cwd(const char *cwd, struct error *err) {
    struct home entries[] = {{.path = below("/home"), .whose = "your home folder"},
                             {.path = below("/people/homes/alice"), .whose = "the home folder of \"alice\""}};
    struct home_list homes = {.entries = entries, .count = 2};
    return place_check_cwd(cwd, &homes, err);
}

static void test_cwd(void **state) {
    (void)state;
    struct error err = {{0}};
    static const char *const refused[] = {
        "/",     "/tmp",  "/run",    "/usr",     "/usr/local",  "/etc", "/opt",     "/opt/x", "/var",
        "/home", "/proc", "/proc/1", "/dev/shm", "/run/user/0", "/bin", "relative", ""};
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        assert_int_equal(check_cwd(refused[i], &err), -EINVAL);
        assert_non_null(strstr(err.text, refused[i]));
    }
    assert_int_equal(check_cwd(below("/home"), &err), -EINVAL);
    assert_non_null(strstr(err.text, "your home folder"));
    assert_int_equal(check_cwd(root, &err), -EINVAL); // holds the home folder
    assert_non_null(strstr(err.text, "parent of your home folder"));
    assert_int_equal(check_cwd(below("/home/project"), &err), 0);
    assert_int_equal(check_cwd(below("/elsewhere"), &err), 0);
    assert_int_equal(check_cwd(below("/missing"), &err), -EINVAL);
}

static void test_homes(void **state) {
    (void)state;
    struct error err = {{0}};
    static const struct {
        const char *cwd, *fault;
    } refused[] = {
        {"/people", "a parent of the home folder of \"alice\""},
        {"/people/homes", "a parent of the home folder of \"alice\""},
        {"/people/homes/alice", "the home folder of \"alice\""},
        {"/people/homes/alice/.ssh", "in \".ssh\" of the home folder of \"alice\""},
        {"/home/.ssh", "in \".ssh\" of your home folder"},
        {"/home/.gnupg/private-keys-v1.d", "in \".gnupg\""},
        {"/home/.aws", "in \".aws\""},
        {"/home/.kube/cache", "in \".kube\""},
        {"/home/.config", "in \".config\""},
        {"/home/.config/systemd/user", "in \".config/systemd\""},
        {"/home/.local/bin", "in \".local/bin\""},
    };
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        assert_int_equal(check_cwd(below(refused[i].cwd), &err), -EINVAL);
        assert_non_null(strstr(err.text, refused[i].fault));
    }
    static const char *const good[] = {"/home/.config/nvim", "/home/.sshx", "/home/project/.ssh", "/home/.local/share/app"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) { // they do not exist, which is what is found last
        assert_int_equal(check_cwd(below(good[i]), &err), -EINVAL);
        assert_non_null(strstr(err.text, "No such file"));
    }
}

static bool listed(const struct home_list *list, const char *path) {
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->entries[i].path, path) == 0) return true;
    return false;
}

// HOME is not believed alone.
static void test_home_list(void **state) {
    (void)state;
    struct home_list list;
    const struct passwd *root_entry = getpwuid(0);
    assert_non_null(root_entry);
    AUTO_FREE char *root_home = realpath(root_entry->pw_dir, NULL);
    home_list_init(&list, "/"); // root's
    assert_true(listed(&list, below("/home")));
    if (root_home) assert_true(listed(&list, root_home));
    home_list_done(&list);
    if (!root_home) return;
    home_list_init(&list, root);
    assert_int_equal(listed(&list, root_home), geteuid() == 0);
    home_list_done(&list);
    setenv("SUDO_USER", "root", 1);
    home_list_init(&list, root);
    assert_true(listed(&list, root_home));
    home_list_done(&list);
    unsetenv("SUDO_USER");
}

// ---- protected files ----

static void put(const char *path) {
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    close(fd);
}

static const struct exposure_item *item_at(const struct exposure *exposure, const char *target) {
    size_t top = exposure_top(exposure, exposure->count, target);
    return top == SIZE_MAX || strcmp(exposure->items[top].target, target) != 0 ? NULL : &exposure->items[top];
}

static int protect(struct exposure *exposure, const char *path, const char *write, struct error *err) {
    struct sandbox_spec spec = {.cwd = below("/home/project"), .protects = &path, .protect_count = 1,
                                .writes = &write, .write_count = write != NULL};
    return exposure_init(exposure, &spec, err);
}

static void test_protects(void **state) {
    (void)state;
    struct error err = {{0}};
    struct exposure exposure;
    mkdir(below("/home/project/deep/er"), 0755);
    put(below("/home/project/deep/er/policy"));
    put(below("/home/other/policy"));
    assert_int_equal(protect(&exposure, below("/home/project/deep/er/policy"), NULL, &err), 0);
    assert_int_equal(exposure.count, 4);
    assert_true(exposure.protects);
    static const char *const parents[] = {"/home/project/deep", "/home/project/deep/er"};
    for (size_t i = 0; i < 2; i++) {
        assert_non_null(item_at(&exposure, below(parents[i])));
        assert_true(item_at(&exposure, below(parents[i]))->writable);
        assert_string_equal(item_at(&exposure, below(parents[i]))->owned_as, below("/home/project"));
    }
    assert_false(item_at(&exposure, below("/home/project/deep/er/policy"))->writable);
    assert_false(item_at(&exposure, below("/home/project/deep/er/policy"))->folder);
    exposure_done(&exposure);
    // By a relative name with "..", and the whole folder.
    assert_int_equal(protect(&exposure, "deep/../deep/er", NULL, &err), 0);
    assert_int_equal(exposure.count, 3);
    assert_false(item_at(&exposure, below("/home/project/deep/er"))->writable);
    exposure_done(&exposure);
    // What the sandbox cannot write needs nothing.
    assert_int_equal(protect(&exposure, below("/home/other/policy"), NULL, &err), 0);
    assert_int_equal(exposure.count, 1);
    assert_false(exposure.protects);
    exposure_done(&exposure);
    // A share of the file itself, and one above the working directory, whose folders on the way are then movable.
    assert_int_equal(protect(&exposure, below("/home/other/policy"), below("/home/other/policy"), &err), 0);
    assert_false(item_at(&exposure, below("/home/other/policy"))->writable);
    exposure_done(&exposure);
    assert_int_equal(protect(&exposure, below("/home/project/deep/er/policy"), root, &err), 0);
    assert_true(item_at(&exposure, below("/home"))->writable);
    assert_false(item_at(&exposure, below("/home/project/deep/er/policy"))->writable);
    exposure_done(&exposure);
}

static void test_unprotectable(void **state) {
    (void)state;
    struct error err = {{0}};
    struct exposure exposure;
    put(below("/home/project/plain"));
    put(below("/home/project/linked"));
    assert_int_equal(symlink(below("/home/other/policy"), below("/home/project/link")), 0);
    assert_int_equal(symlink("../other", below("/home/project/folder-link")), 0);
    assert_int_equal(link(below("/home/project/linked"), below("/home/project/second")), 0);
    static const struct {
        const char *path, *fault;
    } refused[] = {{"/home/project/gone", "No such file"},
                   {"/home/project/link", "symbolic link"},
                   {"/home/project/folder-link/policy", "symbolic link"},
                   {"/home/project/linked", "hard link"}};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(protect(&exposure, below(refused[i].path), NULL, &err), -EINVAL);
        assert_non_null(strstr(err.text, refused[i].fault));
        assert_non_null(strstr(err.text, below(refused[i].path)));
    }
    // A link where the sandbox cannot write is as good as what it leads to.
    assert_int_equal(symlink(below("/home/project/plain"), below("/home/other/outside-link")), 0);
    assert_int_equal(protect(&exposure, below("/home/other/outside-link"), NULL, &err), 0);
    assert_false(item_at(&exposure, below("/home/project/plain"))->writable);
    exposure_done(&exposure);
    // Its own name is out of reach, another one is not; and where it cannot be written there is nothing to fear.
    put(below("/home/other/outside"));
    assert_int_equal(link(below("/home/other/outside"), below("/home/project/inside")), 0);
    assert_int_equal(protect(&exposure, below("/home/other/outside"), NULL, &err), -EINVAL);
    assert_non_null(strstr(err.text, "has 2 names (hard links), and the sandbox could change it by another one"));
    unlink(below("/home/project/inside"));
    assert_int_equal(protect(&exposure, below("/home/other/outside"), NULL, &err), 0);
    exposure_done(&exposure);
    // A stream that is the file.
    int saved = fcntl(0, F_DUPFD_CLOEXEC, 3), fd = open(below("/home/project/plain"), O_RDONLY | O_CLOEXEC);
    dup2(fd, 0);
    assert_int_equal(protect(&exposure, below("/home/project/plain"), NULL, &err), -EINVAL);
    assert_non_null(strstr(err.text, "standard input"));
    dup2(saved, 0);
    close(saved);
    close(fd);
    assert_int_equal(protect(&exposure, below("/home/project/plain"), NULL, &err), 0);
    exposure_done(&exposure);
}

static void test_within(void **state) {
    (void)state;
    assert_true(place_within("/a/b", "/a"));
    assert_true(place_within("/a", "/a"));
    assert_false(place_within("/ab", "/a"));
    assert_false(place_within("/a", "/a/b"));
    assert_true(place_in_system("/usr/bin/env"));
    assert_false(place_in_system("/usrlocal"));
}

static void test_order(void **state) {
    (void)state;
    struct error err = {{0}};
    struct exposure exposure;
    const char *reads[] = {below("/home/project/deep"), below("/home"), below("/home/project")},
               *writes[] = {below("/home/other")};
    struct sandbox_spec spec = {
        .cwd = below("/home/project"), .reads = reads, .read_count = 3, .writes = writes, .write_count = 1};
    assert_int_equal(exposure_init(&exposure, &spec, &err), 0);
    assert_int_equal(exposure.count, 5);
    assert_string_equal(exposure.items[0].target, reads[1]);
    assert_false(exposure.items[0].writable);
    assert_string_equal(exposure.items[1].target, spec.cwd); // then the user's own wish for the same folder
    assert_true(exposure.items[1].writable);
    assert_string_equal(exposure.items[2].target, spec.cwd);
    assert_false(exposure.items[2].writable);
    assert_string_equal(exposure.items[3].target, writes[0]);
    assert_true(exposure.items[3].writable);
    assert_string_equal(exposure.items[4].target, reads[0]);
    assert_false(exposure_writable(&exposure, spec.cwd));
    assert_true(exposure_writable(&exposure, writes[0]));
    assert_true(exposure_writable(&exposure, "/tmp"));
    exposure_done(&exposure);
}

static void test_shows(void **state) {
    (void)state;
    struct error err = {{0}};
    struct exposure exposure;
    struct sandbox_spec spec = {.cwd = below("/home/project")};
    assert_int_equal(exposure_init(&exposure, &spec, &err), 0);
    assert_true(exposure_shows(&exposure, "/usr/bin/env"));
    assert_true(exposure_shows(&exposure, below("/home/project/x")));
    assert_false(exposure_shows(&exposure, below("/home/other/x")));
    assert_false(exposure_shows(&exposure, "/tmp/x"));
    assert_false(exposure_shows(&exposure, "/srv"));
    exposure_done(&exposure);
}

static void test_link(void **state) {
    (void)state;
    struct error err = {{0}};
    struct exposure exposure;
    const char *reads[] = {below("/home/link")};
    struct sandbox_spec spec = {.cwd = below("/home/project"), .reads = reads, .read_count = 1};
    assert_int_equal(exposure_init(&exposure, &spec, &err), 0);
    assert_int_equal(exposure.count, 3);
    assert_string_equal(exposure.items[0].target, below("/elsewhere"));
    assert_string_equal(exposure.items[1].target, spec.cwd); // equal depth: in order of adding
    assert_string_equal(exposure.items[2].target, below("/home/link"));
    assert_string_equal(exposure.items[2].source, below("/elsewhere"));
    exposure_done(&exposure);
}

static int share(const char *path, struct error *err) {
    struct exposure exposure;
    struct sandbox_spec spec = {.cwd = below("/home/project"), .writes = &path, .write_count = 1};
    int r = exposure_init(&exposure, &spec, err);
    if (r == 0) exposure_done(&exposure);
    return r;
}

static int make_socket(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(fd, 4), 0);
    return fd;
}

static void test_refused_shares(void **state) {
    (void)state;
    struct error err = {{0}};
    static const char *const refused[] = {"/", "/proc", "/proc/self/root/proc", "/sys", "/dev/null", "/nonexistent-x",
                                          ""};
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
        assert_int_equal(share(refused[i], &err), -EINVAL);
    int fd = make_socket(below("/elsewhere/direct"));
    assert_int_equal(share(below("/elsewhere/direct"), &err), -EINVAL);
    assert_non_null(strstr(err.text, "UNIX socket"));
    close(fd);
    unlink(below("/elsewhere/direct"));
    assert_int_equal(share(below("/elsewhere"), &err), 0);
}

static size_t count_mask(const struct unix_mask *mask, const char *path, enum unix_mask_kind kind) {
    size_t count = 0;
    for (size_t i = 0; i < mask->count; i++)
        count += strcmp(mask->entries[i].path, path) == 0 && mask->entries[i].kind == kind;
    return count;
}

static int collect(const struct exposure *exposure, struct unix_mask *mask, struct error *err) {
    struct mountinfo mounts;
    assert_int_equal(mountinfo_read(&mounts, err), 0);
    int r = unix_mask_collect(exposure, NULL, &mounts, mask, err);
    mountinfo_done(&mounts);
    return r;
}

static void test_masks(void **state) {
    (void)state;
    struct error err = {{0}};
    struct exposure exposure;
    struct unix_mask mask;
    int live = make_socket(below("/home/project/deep/live")), hidden = make_socket(below("/home/other/hidden"));
    int shared = make_socket(below("/elsewhere/shared"));
    close(make_socket(below("/home/project/dead"))); // nobody listens now, but somebody may again
    mkdir(below("/home/project/locked"), 0000);
    const char *reads[] = {below("/home/link"), below("/home/project/deep")};
    struct sandbox_spec spec = {.cwd = below("/home/project"), .reads = reads, .read_count = 2};
    assert_int_equal(exposure_init(&exposure, &spec, &err), 0);
    assert_int_equal(collect(&exposure, &mask, &err), 0);
    assert_int_equal(count_mask(&mask, below("/home/project/deep/live"), UNIX_MASK_FILE), 1);
    assert_int_equal(count_mask(&mask, below("/home/project/dead"), UNIX_MASK_FILE), 1);
    assert_int_equal(count_mask(&mask, below("/elsewhere/shared"), UNIX_MASK_FILE), 1);
    assert_int_equal(count_mask(&mask, below("/home/link/shared"), UNIX_MASK_FILE), 1);
    assert_int_equal(count_mask(&mask, below("/home/other/hidden"), UNIX_MASK_FILE), 0);
    assert_int_equal(count_mask(&mask, below("/home/project/locked"), UNIX_MASK_FOLDER), geteuid() == 0 ? 0 : 1);
    unix_mask_done(&mask);
    exposure_done(&exposure);
    close(live);
    close(hidden);
    close(shared);
}

static void test_mask_limits(void **state) {
    (void)state;
    struct error err = {{0}};
    struct exposure exposure;
    struct unix_mask mask;
    int folder = open(below("/elsewhere"), O_DIRECTORY | O_RDONLY | O_CLOEXEC);
    for (int i = 0; i < UNIX_MASK_DEPTH_MAX + 2; i++) {
        assert_int_equal(mkdirat(folder, "d", 0755), 0);
        int next = openat(folder, "d", O_DIRECTORY | O_RDONLY | O_CLOEXEC);
        close(folder);
        folder = next;
    }
    close(folder);
    struct sandbox_spec spec = {.cwd = below("/elsewhere")};
    assert_int_equal(exposure_init(&exposure, &spec, &err), 0);
    assert_int_equal(collect(&exposure, &mask, &err), -E2BIG);
    assert_non_null(strstr(err.text, below("/elsewhere")));
    exposure_done(&exposure);
}

static int tear_down(void **state) {
    (void)state;
    char *argv[] = {"rm", "-rf", root, NULL};
    chmod(below("/home/project/locked"), 0700);
    if (fork() == 0) execv("/bin/rm", argv);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cwd),   cmocka_unit_test(test_within),      cmocka_unit_test(test_order),
        cmocka_unit_test(test_shows), cmocka_unit_test(test_link),        cmocka_unit_test(test_refused_shares),
        cmocka_unit_test(test_homes), cmocka_unit_test(test_home_list),
        cmocka_unit_test(test_protects), cmocka_unit_test(test_unprotectable),
        cmocka_unit_test(test_masks), cmocka_unit_test(test_mask_limits),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
