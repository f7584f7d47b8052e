// SPDX-License-Identifier: Apache-2.0
// Where secrets come from, with a real helper: environment, files, commands, the store; rotation and loss.
#include "rig.h"

#include "vault/secure.h"
#include "vault/source.h"
#include "vault/vault.h"

#define SECOND 1000000

static struct rig_pool rig;

static int setup(void **state) {
    (void)state;
    rig_init();
    rig_pool_init(&rig, 1500);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    rig_pool_done(&rig);
    rig_done();
    return 0;
}

static struct secret *ref(const char *kind, const char *place) {
    char reference[1024];
    struct secret *secret = NULL;
    snprintf(reference, sizeof(reference), "%s%s", kind, place);
    assert_int_equal(secret_ref(&rig.pool, reference, &secret), 0);
    return secret;
}

static void assert_notice(const char *text) {
    if (!strstr(rig.notice, text)) fail_msg("notice: %s", rig.notice);
}

static void test_references(void **state) {
    (void)state;
    struct secret *a, *b;
    static const char *const bad[] = {"", "env:", "file:", "GITHUB_TOKEN", "vault:x", "ENV:x"};
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++) assert_int_equal(secret_ref(&rig.pool, bad[i], &a), -EINVAL);
    a = ref("file:", "/x");
    b = ref("file:", "/x");
    assert_ptr_equal(a, b);
    secret_unref(a);
    assert_false(list_empty(&rig.pool.secrets));
    secret_unref(b);
    assert_true(list_empty(&rig.pool.secrets));
    secret_unref(NULL);
}

static int memory_file(const char *text) {
    int fd = memfd_create("test", MFD_CLOEXEC);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    return fd;
}

static void test_environment(void **state) {
    (void)state;
    int good = memory_file("value"), bad = memory_file("a\nb");
    assert_int_equal(secret_pool_environment(&rig.pool, "GOOD", good, 5), 0);
    assert_int_equal(secret_pool_environment(&rig.pool, "BAD", bad, 3), 0);
    assert_int_equal(secret_pool_environment(&rig.pool, "LIE", good, 6), -EINVAL);
    assert_int_equal(secret_pool_environment(&rig.pool, "LIE", good, 0), -EINVAL);
    close(good);
    close(bad);
    struct secret *secret = ref("env:", "GOOD"), *broken = ref("env:", "BAD"), *none = ref("env:", "NONE");
    assert_int_equal(rig_fetch(&rig, secret), 0);
    assert_secret(secret, "value");
    assert_int_equal(rig_fetch(&rig, broken), -EINVAL);
    assert_int_equal(rig_fetch(&rig, none), -ENOENT);
    assert_notice("env:NONE");
    assert_int_equal(rig.changes, 0);
    secret_unref(secret);
    secret_unref(broken);
    secret_unref(none);
}

static void test_file_rotates(void **state) {
    (void)state;
    rig_write("token", "first\n");
    struct secret *secret = ref("file:", rig_path("token"));
    assert_int_equal(rig_fetch(&rig, secret), 0);
    assert_secret(secret, "first");
    assert_int_equal(secret->epoch, 1);
    assert_int_equal(rig_fetch(&rig, secret), 0);
    rig_replace("token", "first"); // another file with the same value is no change
    assert_int_equal(rig_fetch(&rig, secret), 0);
    assert_int_equal(rig.changes, 0);
    rig_replace("token", "second\r\n");
    assert_int_equal(rig_fetch(&rig, secret), 0);
    assert_secret(secret, "second");
    assert_int_equal(rig.changes, 1);
    assert_int_equal(rig.epoch, 2);
    rig_write("token", "third!"); // in place, same length
    assert_int_equal(rig_fetch(&rig, secret), 0);
    assert_secret(secret, "third!");
    rig_write("token", "forth!"); // at once again
    assert_int_equal(rig_fetch(&rig, secret), 0);
    assert_secret(secret, "forth!");
    assert_int_equal(rig.notices, 0);
    unlink(rig_path("token"));
    assert_int_equal(rig_fetch(&rig, secret), -ENOENT);
    assert_null(secret->value);
    assert_int_equal(rig.epoch, 5);
    assert_notice("it is not there (any more); write the secret into the file");
    assert_int_equal(rig_fetch(&rig, secret), -ENOENT);
    assert_int_equal(rig.notices, 1); // said once
    assert_int_equal(rig.epoch, 5);
    rig_write("token", "back");
    assert_int_equal(rig_fetch(&rig, secret), 0);
    assert_secret(secret, "back");
    secret_unref(secret);
}

// Nobody asks, and it is seen all the same.
static void test_looked_at(void **state) {
    (void)state;
    rig_write("token", "first");
    struct secret *secret = ref("file:", rig_path("token")), *unused = ref("file:", "/nonexistent");
    assert_int_equal(rig_fetch(&rig, secret), 0);
    secret_pool_look(&rig.pool, clock_us());
    for (int i = 0; i < 100 && secret->asked; i++) rig_turn(&rig);
    assert_int_equal(rig.changes, 0);
    rig_replace("token", "other");
    secret_pool_look(&rig.pool, clock_us());
    for (int i = 0; i < 100 && secret->asked; i++) rig_turn(&rig);
    assert_int_equal(rig.changes, 1);
    assert_secret(secret, "other");
    assert_int_equal(rig.notices, 0); // what was never used is not looked at
    secret_unref(secret);
    secret_unref(unused);
}

static void test_file_trusted_when_old(void **state) {
    (void)state;
    rig_write("token", "first");
    struct secret *secret = ref("file:", rig_path("token"));
    sleep(2);
    assert_int_equal(rig_fetch(&rig, secret), 0);
    assert_true(secret->file.st_ino != 0);
    assert_int_equal(rig_fetch(&rig, secret), 0);
    assert_secret(secret, "first");
    rig_write("token", "other");
    assert_int_equal(rig_fetch(&rig, secret), 0);
    assert_secret(secret, "other");
    secret_unref(secret);
}

static int file_status(const char *name) {
    struct secret *secret = ref("file:", rig_path(name));
    int status = rig_fetch(&rig, secret);
    secret_unref(secret);
    return status;
}

static void test_files_refused(void **state) {
    (void)state;
    static char large[IPC_SECRET_MAX + 3];
    memset(large, 'x', sizeof(large) - 1);
    large[IPC_SECRET_MAX] = '\n';
    large[IPC_SECRET_MAX + 1] = '\0';
    rig_write("largest", large);
    assert_int_equal(file_status("largest"), 0);
    large[IPC_SECRET_MAX] = 'x';
    rig_write("too-large", large);
    assert_int_equal(file_status("too-large"), -E2BIG);
    rig_write("empty", "\n");
    assert_int_equal(file_status("empty"), -EINVAL);
    rig_write("lines", "a\nb\n");
    assert_int_equal(file_status("lines"), -EINVAL);
    assert_null(strstr(rig.notice, "a\nb"));
    assert_int_equal(mkfifo(rig_path("fifo"), 0600), 0);
    assert_int_equal(file_status("fifo"), -EPERM);
    assert_int_equal(file_status("."), -EPERM);
    assert_int_equal(file_status("none/none"), -ENOENT);
    rig.notices = 0;
    rig_write("open", "value");
    chmod(rig_path("open"), 0644);
    assert_int_equal(file_status("open"), 0);
    assert_notice("open to others (mode 0644)");
    assert_int_equal(rig.notices, 1);
}

static void test_command(void **state) {
    (void)state;
    char script[512];
    setenv("RIG_FILE", rig_path("count"), 1);
    snprintf(script, sizeof(script), "echo x >> '%s'; wc -l < '%s' | tr -d ' '; echo noise >&2", rig_path("count"),
             getenv("RIG_FILE"));
    struct secret *secret = ref("cmd:", script);
    uint64_t now = clock_us();
    assert_int_equal(rig_fetch_at(&rig, secret, now), 0);
    assert_secret(secret, "1");
    assert_int_equal(rig_fetch_at(&rig, secret, now + 55 * SECOND), 0);
    assert_secret(secret, "1");
    assert_int_equal(rig_fetch_at(&rig, secret, clock_us() + 65 * SECOND), 0);
    assert_secret(secret, "2");
    assert_int_equal(rig.changes, 1);
    secret_unref(secret);
    secret = ref("cmd:", "/bin/pwd"); // not where the user is, and a sandbox may write
    assert_int_equal(rig_fetch(&rig, secret), 0);
    assert_secret(secret, "/");
    secret_unref(secret);
}

static int command_status(const char *script) {
    struct secret *secret = ref("cmd:", script);
    int status = rig_fetch(&rig, secret);
    secret_unref(secret);
    return status;
}

static void test_commands_refused(void **state) {
    (void)state;
    assert_int_equal(command_status("printf hunter2; exit 3"), -ECHILD);
    assert_notice("the command failed; run it by hand");
    assert_null(strstr(rig.notice, "hunter2"));
    assert_int_equal(command_status("token='hunter2' true"), -EINVAL); // empty
    assert_notice("secret cmd:token: it is empty");
    assert_int_equal(command_status("kill -9 $$"), -ECHILD);
    assert_int_equal(command_status("/nonexistent/program"), -ECHILD);
    assert_int_equal(command_status("head -c 40000 /dev/zero | tr '\\0' x"), -EFBIG);
    assert_int_equal(command_status("yes"), -EFBIG); // killed by what it says
    assert_int_equal(command_status("printf 'a\\nb\\n'"), -EINVAL);
    assert_int_equal(command_status("head -c 32768 /dev/zero | tr '\\0' x; echo"), 0);
    assert_int_equal(command_status("sleep 100 & sleep 100 | printf quick"), -ETIMEDOUT);
    assert_notice("it took too long");
    assert_int_equal(command_status("(sleep 100; echo late) & printf quick"), 0); // what it leaves is ended with it
    assert_int_equal(command_status("cat; printf done"), 0);                      // nothing to read
    assert_int_equal(command_status("test -t 0 -o -t 1 -o -t 2 || ls /proc/self/fd | wc -l"), 0);
}

static bool runs(const char *word) {
    char script[128];
    snprintf(script, sizeof(script), "ps -eo args | grep -q '^sleep %s$'", word);
    pid_t pid = fork();
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", script, NULL);
        _exit(99);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status == 0;
}

static void test_command_leaves_nothing(void **state) {
    (void)state;
    assert_int_equal(command_status("sleep 1717171 & printf quick"), 0);
    assert_int_equal(command_status("sleep 1717171 & sleep 1717171"), -ETIMEDOUT);
    for (int i = 0; i < 100 && runs("1717171"); i++) nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    assert_false(runs("1717171"));
}

static void test_failing_command_rests(void **state) {
    (void)state;
    char script[256];
    snprintf(script, sizeof(script), "echo x >> '%s'; exit 1", rig_path("count"));
    struct secret *secret = ref("cmd:", script);
    struct stat status;
    for (int i = 0; i < 5; i++) assert_int_equal(rig_fetch(&rig, secret), -ECHILD);
    assert_int_equal(stat(rig_path("count"), &status), 0);
    assert_int_equal(status.st_size, 2);
    assert_int_equal(rig_fetch_at(&rig, secret, clock_us() + 6 * SECOND), -ECHILD);
    assert_int_equal(stat(rig_path("count"), &status), 0);
    assert_int_equal(status.st_size, 4);
    secret_unref(secret);
}

static struct answer {
    struct secret_waiter waiter;
    int status;
    bool over;
} slow[SOURCE_COMMANDS_MAX];

static void count_answer(struct secret_waiter *waiter, int status) {
    struct answer *answer = (struct answer *)(void *)((char *)waiter - offsetof(struct answer, waiter));
    answer->status = status;
    answer->over = true;
}

// One more than may run at a time fails, and is run by the next request when there is a place.
static void test_many_commands(void **state) {
    (void)state;
    struct secret *secrets[SOURCE_COMMANDS_MAX], *late = ref("cmd:", "printf late");
    char script[64];
    for (int i = 0; i < SOURCE_COMMANDS_MAX; i++) {
        snprintf(script, sizeof(script), "sleep 1; printf %d", i);
        secrets[i] = ref("cmd:", script);
        slow[i] = (struct answer){.waiter.done = count_answer};
        list_init(&slow[i].waiter.link);
        secret_fetch(secrets[i], &slow[i].waiter, clock_us());
        rig_turn(&rig); // the helper reads it
    }
    assert_int_equal(rig_fetch(&rig, late), -EBUSY);
    for (int i = 0; i < SOURCE_COMMANDS_MAX; i++) {
        for (int turn = 0; turn < 3000 && !slow[i].over; turn++) rig_turn(&rig);
        if (!slow[i].over || slow[i].status != 0) fail_msg("%d: %d %d", i, slow[i].over, slow[i].status);
        secret_unref(secrets[i]);
    }
    assert_int_equal(rig_fetch(&rig, late), 0);
    assert_secret(late, "late");
    secret_unref(late);
}

static void test_store(void **state) {
    (void)state;
    struct secret *secret = ref("store:", "token"), *bad = ref("store:", "../x");
    assert_int_equal(rig_fetch(&rig, secret), -ENOENT);
    assert_notice("secret store:token: it is not there (any more); put it there with `penstock secret set token`");
    assert_int_equal(vault_secret_set("token", "first", 5, NULL), 0);
    assert_int_equal(rig_fetch(&rig, secret), 0);
    assert_secret(secret, "first");
    assert_int_equal(vault_secret_set("token", "second", 6, NULL), 0);
    assert_int_equal(rig_fetch(&rig, secret), 0);
    assert_secret(secret, "second");
    unsigned changes = rig.changes;
    // Another secret in its place.
    char from[256];
    assert_int_equal(vault_secret_set("other", "other", 5, NULL), 0);
    snprintf(from, sizeof(from), "%s", rig_path("state/secrets/other"));
    assert_int_equal(rename(from, rig_path("state/secrets/token")), 0);
    assert_int_equal(rig_fetch(&rig, secret), -EBADMSG);
    assert_int_equal(rig.changes, changes + 1);
    assert_notice("not what was stored");
    assert_int_equal(vault_secret_set("token", "third", 5, NULL), 0);
    assert_int_equal(rig_fetch(&rig, secret), 0);
    chmod(rig_path("state/secrets/token"), 0644);
    assert_int_equal(rig_fetch(&rig, secret), -EPERM);
    chmod(rig_path("state/secrets/token"), 0600);
    assert_int_equal(rig_fetch(&rig, secret), 0);
    assert_int_equal(vault_secret_remove("token", NULL), 0);
    assert_int_equal(rig_fetch(&rig, secret), -ENOENT);
    assert_int_equal(rig_fetch(&rig, bad), -EINVAL);
    secret_unref(secret);
    secret_unref(bad);
}

struct order {
    struct secret_waiter waiter;
    int status;
    char value[16];
    struct secret *secret;
};

static void note(struct secret_waiter *waiter, int status) {
    struct order *order = LIST_ENTRY(waiter, struct order, waiter);
    order->status = status;
    snprintf(order->value, sizeof(order->value), "%.*s", (int)order->secret->len, (const char *)order->secret->value);
}

// A question that comes after a rotation never gets what was opened before it.
static void test_rotation_during_round(void **state) {
    (void)state;
    rig_write("token", "first");
    struct secret *secret = ref("file:", rig_path("token"));
    struct order orders[2] = {{.waiter.done = note, .status = 1, .secret = secret},
                              {.waiter.done = note, .status = 1, .secret = secret}};
    secret_fetch(secret, &orders[0].waiter, clock_us());
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL); // the helper has opened it
    rig_replace("token", "second");
    secret_fetch(secret, &orders[1].waiter, clock_us());
    for (int i = 0; i < 100 && orders[1].status == 1; i++) rig_turn(&rig);
    assert_int_equal(orders[0].status, 0);
    assert_int_equal(orders[1].status, 0);
    assert_string_equal(orders[1].value, "second");
    secret_unref(secret);
}

static void test_round_given_up(void **state) {
    (void)state;
    rig_write("token", "first");
    struct secret *secret = ref("file:", rig_path("token"));
    struct order order = {.waiter.done = note, .status = 1, .secret = secret};
    secret_fetch(secret, &order.waiter, clock_us());
    secret_pool_look(&rig.pool, clock_us() + 16 * SECOND);
    assert_int_equal(order.status, -ETIMEDOUT);
    for (int i = 0; i < 5; i++) rig_turn(&rig); // its answer comes late and is let go
    assert_null(secret->value);
    assert_int_equal(rig_fetch(&rig, secret), 0);
    secret_unref(secret);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_references, setup, teardown),
        cmocka_unit_test_setup_teardown(test_environment, setup, teardown),
        cmocka_unit_test_setup_teardown(test_file_rotates, setup, teardown),
        cmocka_unit_test_setup_teardown(test_looked_at, setup, teardown),
        cmocka_unit_test_setup_teardown(test_file_trusted_when_old, setup, teardown),
        cmocka_unit_test_setup_teardown(test_files_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_command, setup, teardown),
        cmocka_unit_test_setup_teardown(test_commands_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_command_leaves_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_failing_command_rests, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many_commands, setup, teardown),
        cmocka_unit_test_setup_teardown(test_store, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rotation_during_round, setup, teardown),
        cmocka_unit_test_setup_teardown(test_round_given_up, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
