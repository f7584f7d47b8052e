// SPDX-License-Identifier: Apache-2.0
// Tokens are those of AgentENV for the same seed; the key and the seed of a node are found in their order, made once, and
// refused where others could have read them.
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "vault/vault.h"

static void test_token(void **state) {
    (void)state;
    char token[VAULT_TOKEN_SIZE];
    assert_int_equal(vault_token("test-seed", "01936f8e-72f5-7000-8000-000000000001", token), 0);
    assert_string_equal(token, "4f00f2a93a87c37161ae01c59b6d4f84506668113441277e9f6272dd4bfae1a7");
    assert_int_equal(vault_token("test-seed", "sandbox-traffic-01936f8e-72f5-7000-8000-000000000001", token), 0);
    assert_string_equal(token, "586547d7c10facb0f4871297fdbfd9d2b4376f4b02b2e1487646c1c87a293bd8");
}

static void test_kept(void **state) {
    (void)state;
    struct error err = {0};
    char folder[] = "/tmp/penstock-token-XXXXXX", path[96], *key = NULL, *again = NULL;
    struct stat status;
    assert_non_null(mkdtemp(folder));
    unsetenv("PENSTOCK_API_KEY");
    unsetenv("AENV_API_KEY");
    assert_int_equal(vault_api_key(folder, &key, &err), 0);
    assert_int_equal(strlen(key), 64);
    assert_int_equal(strspn(key, "0123456789abcdef"), 64);
    assert_int_equal(vault_api_key(folder, &again, &err), 0);
    assert_string_equal(key, again);
    free(again);
    snprintf(path, sizeof(path), "%s/api-key", folder);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 07777, 0600);
    assert_int_equal(chmod(path, 0644), 0);
    assert_int_equal(vault_api_key(folder, &again, &err), -EPERM);
    assert_non_null(strstr(err.text, "chmod 600"));
    setenv("AENV_API_KEY", "k", 1);
    assert_int_equal(vault_api_key(folder, &again, &err), 0);
    assert_string_equal(again, "k");
    free(again);
    setenv("PENSTOCK_API_KEY", "first", 1);
    assert_int_equal(vault_api_key(folder, &again, &err), 0);
    assert_string_equal(again, "first");
    free(again);
    setenv("PENSTOCK_API_KEY", "", 1);
    assert_int_equal(vault_api_key(folder, &again, &err), -EINVAL);
    unsetenv("PENSTOCK_API_KEY");
    unsetenv("AENV_API_KEY");
    free(key);
    unlink(path);
    assert_int_equal(rmdir(folder), 0);
}

static void test_seed(void **state) {
    (void)state;
    struct error err = {0};
    char folder[] = "/tmp/penstock-token-XXXXXX", path[96], *seed = NULL;
    assert_non_null(mkdtemp(folder));
    unsetenv("PENSTOCK_SANDBOX_ACCESS_TOKEN_HASH_SEED");
    unsetenv("AENV_SANDBOX_ACCESS_TOKEN_HASH_SEED");
    assert_int_equal(vault_token_seed(folder, &seed, &err), 0);
    assert_int_equal(strlen(seed), 64);
    free(seed);
    snprintf(path, sizeof(path), "%s/sandbox-access-token-hash-seed", folder);
    int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    assert_int_equal(write(fd, "abc\n", 4), 4);
    close(fd);
    assert_int_equal(vault_token_seed(folder, &seed, &err), -EINVAL);
    assert_non_null(strstr(err.text, "restore"));
    assert_int_equal(chmod(folder, 0777), 0);
    assert_int_equal(vault_token_seed(folder, &seed, &err), -EPERM);
    setenv("AENV_SANDBOX_ACCESS_TOKEN_HASH_SEED", "shared", 1);
    assert_int_equal(vault_token_seed(folder, &seed, &err), 0);
    assert_string_equal(seed, "shared");
    free(seed);
    unlink(path);
    assert_int_equal(rmdir(folder), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_token), cmocka_unit_test(test_kept),
                                       cmocka_unit_test(test_seed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
