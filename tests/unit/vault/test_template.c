// SPDX-License-Identifier: Apache-2.0
#include "rig.h"

#include "vault/secure.h"
#include "vault/template.h"

static uint8_t out[IPC_SECRET_MAX];

static void fills(const char *value, bool basic, const char *secret, const char *wanted) {
    size_t size = template_size(value, strlen(secret));
    int len = template_fill(value, basic, (const uint8_t *)secret, strlen(secret), out, size);
    assert_int_equal(len, strlen(wanted));
    assert_int_equal(template_fill(value, basic, (const uint8_t *)secret, strlen(secret), out, strlen(wanted) - 1),
                     -E2BIG);
    assert_memory_equal(out, wanted, (size_t)len);
}

static void test_fill(void **state) {
    (void)state;
    assert_int_equal(secure_init(NULL), 0);
    fills("{secret}", false, "s3cret", "s3cret");
    fills("Bearer {secret}", false, "s3cret", "Bearer s3cret");
    fills("{secret}.{secret}", false, "ab", "ab.ab");
    fills("{secret", false, "ab", "{secret");
    fills("{Secret} {{secret}}", false, "ab", "{Secret} {ab}");
    fills("constant", false, "", "constant");
    fills("{secret}", false, "{secret}", "{secret}"); // what a secret says is not a template
    // RFC 7617 section 2
    fills("Aladdin:{secret}", true, "open sesame", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
    fills("x-access-token:{secret}", true, "ghp_x", "Basic eC1hY2Nlc3MtdG9rZW46Z2hwX3g=");
}

static void test_refused(void **state) {
    (void)state;
    static uint8_t large[IPC_SECRET_MAX];
    memset(large, 'x', sizeof(large));
    assert_int_equal(template_fill("{secret}", false, large, sizeof(large), out, sizeof(out)), IPC_SECRET_MAX);
    assert_int_equal(template_fill("x{secret}", false, large, sizeof(large), out, sizeof(out)), -E2BIG);
    assert_int_equal(template_fill("{secret}{secret}", false, large, sizeof(large) / 2 + 1, out, sizeof(out)), -E2BIG);
    assert_int_equal(template_fill("{secret}", true, large, 24570, out, sizeof(out)), 6 + 32760);
    assert_int_equal(template_fill("{secret}", true, large, 24573, out, sizeof(out)), -E2BIG);
    assert_int_equal(template_fill("{secret}", false, (const uint8_t *)"", 0, out, sizeof(out)), -EINVAL);
    assert_int_equal(template_fill("{secret}", false, (const uint8_t *)" a", 2, out, sizeof(out)), -EILSEQ);
    assert_int_equal(template_fill("{secret}", false, (const uint8_t *)"a\t", 2, out, sizeof(out)), -EILSEQ);
    assert_int_equal(template_fill("Bearer {secret}", false, (const uint8_t *)"", 0, out, sizeof(out)), -EILSEQ);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fill), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
