// SPDX-License-Identifier: Apache-2.0
// Secrets at rest: nothing but what was stored comes out, under its own name, for its owner alone.
#include "rig.h"

#include "vault/secret_store.h"
#include "vault/secure.h"
#include "vault/vault.h"

static const uint8_t key[SECRET_STORE_KEY_SIZE] = {1, 2, 3};

static int setup(void **state) {
    (void)state;
    rig_init();
    return 0;
}

static int teardown(void **state) {
    (void)state;
    rig_done();
    return 0;
}

static void set(const char *name, const char *value) {
    struct error err = {0};
    if (vault_secret_set(name, value, strlen(value), &err) < 0) fail_msg("%s", err.text);
}

static void test_form(void **state) {
    (void)state;
    uint8_t file[SECRET_STORE_FILE_MAX], again[SECRET_STORE_FILE_MAX], value[IPC_SECRET_MAX],
        other[SECRET_STORE_KEY_SIZE] = {9};
    static uint8_t large[IPC_SECRET_MAX];
    int len = secret_store_seal(key, "name", (const uint8_t *)"the value", 9, file);
    assert_int_equal(len, 18 + 12 + 9 + 16);
    assert_null(memmem(file, (size_t)len, "the value", 9));
    assert_int_equal(secret_store_open(key, "name", file, (size_t)len, value), 9);
    assert_memory_equal(value, "the value", 9);
    // Each bit counts, and so does each byte of the length, the name and the key.
    for (int i = 0; i < len * 8; i++) {
        file[i / 8] ^= (uint8_t)(1 << i % 8);
        assert_int_equal(secret_store_open(key, "name", file, (size_t)len, value), -EBADMSG);
        file[i / 8] ^= (uint8_t)(1 << i % 8);
    }
    for (int i = 0; i < len; i++) assert_int_equal(secret_store_open(key, "name", file, (size_t)i, value), -EBADMSG);
    file[len] = 0;
    assert_int_equal(secret_store_open(key, "name", file, (size_t)len + 1, value), -EBADMSG);
    assert_int_equal(secret_store_open(key, "nam", file, (size_t)len, value), -EBADMSG);
    assert_int_equal(secret_store_open(key, "name2", file, (size_t)len, value), -EBADMSG);
    assert_int_equal(secret_store_open(other, "name", file, (size_t)len, value), -EBADMSG);
    assert_int_equal(secret_store_open(key, "name", file, (size_t)len, value), 9);
    // Never the same twice.
    secret_store_seal(key, "name", (const uint8_t *)"the value", 9, again);
    assert_memory_not_equal(file + 18, again + 18, 12);
    assert_memory_not_equal(file + 30, again + 30, 9);
    len = secret_store_seal(key, "name", large, sizeof(large), file);
    assert_int_equal(secret_store_open(key, "name", file, (size_t)len, value), IPC_SECRET_MAX);
    assert_int_equal(secret_store_seal(key, "name", large, 0, file), -EIO);
}

static void test_names(void **state) {
    (void)state;
    static const char *const good[] = {"a", "github-token", "A.b_c-9", "_x",
                                       "a123456789012345678901234567890123456789012345678901234567890123"};
    static const char *const bad[] = {"",
                                      ".",
                                      "..",
                                      ".key",
                                      ".lock",
                                      "-x",
                                      "a/b",
                                      "../a",
                                      "a b",
                                      "a\n",
                                      "ü",
                                      "a:b",
                                      "a1234567890123456789012345678901234567890123456789012345678901234"};
    for (size_t i = 0; i < ARRAY_LENGTH(good); i++) assert_int_equal(secret_store_name(good[i], NULL), 0);
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++) {
        struct error err = {0};
        assert_int_equal(secret_store_name(bad[i], &err), -EINVAL);
        assert_non_null(strstr(err.text, "is not a name"));
        assert_int_equal(vault_secret_set(bad[i], "x", 1, NULL), -EINVAL);
        assert_int_equal(vault_secret_remove(bad[i], NULL), -EINVAL);
    }
}

static void test_values(void **state) {
    (void)state;
    static char large[IPC_SECRET_MAX + 1];
    struct error err = {0};
    memset(large, 'x', sizeof(large));
    assert_int_equal(vault_secret_set("a", "", 0, &err), -EINVAL);
    assert_int_equal(vault_secret_set("a", large, sizeof(large), &err), -E2BIG);
    assert_int_equal(vault_secret_set("a", large, sizeof(large) - 1, &err), 0);
    static const char bad[] = {'\n', '\r', '\0', 0x1b, 0x7f};
    for (size_t i = 0; i < sizeof(bad); i++) {
        char value[] = "secretvalue";
        value[3] = bad[i];
        assert_int_equal(vault_secret_set("a", value, 11, &err), -EINVAL);
        assert_null(strstr(err.text, "value"));
    }
    assert_int_equal(vault_secret_set("a", "tab\tand \xc3\xbc", 10, &err), 0);
}

static void test_life(void **state) {
    (void)state;
    char **names;
    size_t count;
    struct error err = {0};
    assert_int_equal(vault_secret_list(&names, &count, &err), 0); // before first use
    assert_int_equal(count, 0);
    vault_secret_list_free(names, count);
    assert_int_equal(vault_secret_remove("none", &err), -ENOENT);
    assert_non_null(strstr(err.text, "no secret \"none\""));
    umask(0);
    set("b", "one");
    set("a", "two");
    set("b", "three");
    assert_int_equal(rig_mode(rig_path("state/secrets/b")), 0600);
    assert_int_equal(rig_mode(rig_path("state/secrets/.key")), 0600);
    assert_int_equal(rig_mode(rig_path("state/secrets")), 0700);
    assert_int_equal(vault_secret_list(&names, &count, &err), 0);
    assert_int_equal(count, 2);
    assert_string_equal(names[0], "a");
    assert_string_equal(names[1], "b");
    vault_secret_list_free(names, count);
    assert_int_equal(vault_secret_remove("b", &err), 0);
    assert_int_equal(access(rig_path("state/secrets/b"), F_OK), -1);
    chmod(rig_path("state/secrets/.key"), 0644);
    assert_int_equal(vault_secret_set("c", "x", 1, &err), -EPERM);
    assert_non_null(strstr(err.text, "chmod 600"));
    chmod(rig_path("state/secrets/.key"), 0600);
    assert_int_equal(truncate(rig_path("state/secrets/.key"), 31), 0);
    assert_int_equal(vault_secret_set("c", "x", 1, &err), -EBADMSG);
}

// Many first uses at once: one key, and every secret opens with it.
static void test_at_once(void **state) {
    (void)state;
    char name[16], path[64];
    for (int i = 0; i < 8; i++) {
        if (fork() != 0) continue;
        snprintf(name, sizeof(name), "s%d", i);
        _exit(vault_secret_set(name, name, strlen(name), NULL) < 0 || vault_secret_set("same", "same", 4, NULL) < 0);
    }
    for (int i = 0, status; i < 8; i++) {
        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
    uint8_t *value = secure_new(IPC_SECRET_MAX);
    for (int i = 0; i <= 8; i++) {
        snprintf(name, sizeof(name), i < 8 ? "s%d" : "same", i);
        snprintf(path, sizeof(path), "state/secrets/%s", name);
        int key_fd = open(rig_path("state/secrets/.key"), O_RDONLY), fd = open(rig_path(path), O_RDONLY);
        assert_int_equal(secret_read_stored(key_fd, fd, geteuid(), name, value), strlen(name));
        assert_memory_equal(value, name, strlen(name));
        close(key_fd);
        close(fd);
    }
    secure_free(value);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_form, setup, teardown),
        cmocka_unit_test_setup_teardown(test_names, setup, teardown),
        cmocka_unit_test_setup_teardown(test_values, setup, teardown),
        cmocka_unit_test_setup_teardown(test_life, setup, teardown),
        cmocka_unit_test_setup_teardown(test_at_once, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
