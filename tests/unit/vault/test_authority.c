// SPDX-License-Identifier: Apache-2.0
// The CA's file: made once, its owner's alone, refused when it could be known to others.
#include "rig.h"

#include "vault/authority.h"
#include "vault/certificate.h"
#include "vault/vault.h"

#define FILE_PATH "state/ca/authority"
#define PROCESSES 8

static int load(int64_t now, struct authority *ret_authority, struct error *err) {
    *err = (struct error){0};
    return authority_load(now, ret_authority, err);
}

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

static void test_first_use(void **state) {
    (void)state;
    struct authority first, second;
    struct error err;
    umask(0);
    assert_int_equal(load(time(NULL), &first, &err), 0);
    assert_int_equal(rig_mode(rig_path(FILE_PATH)), 0600);
    assert_int_equal(rig_mode(rig_path("state")), 0700);
    assert_int_equal(rig_mode(rig_path("state/ca")), 0700);
    assert_int_equal(load(time(NULL), &second, &err), 0);
    assert_int_equal(first.der_len, second.der_len);
    assert_memory_equal(first.der, second.der, first.der_len);
    assert_int_equal(EVP_PKEY_eq(first.key, second.key), 1);
    char *pem = NULL;
    assert_int_equal(vault_ca_certificate(&pem, &err), 0);
    assert_int_equal(strncmp(pem, "-----BEGIN CERTIFICATE-----\n", 28), 0);
    assert_null(strstr(pem, "PRIVATE"));
    free(pem);
    authority_done(&first);
    authority_done(&second);
}

// Processes that all want the first CA at the same moment get the same one.
static void test_two_first_uses(void **state) {
    (void)state;
    int gate[2], results[2];
    assert_int_equal(pipe(gate), 0);
    assert_int_equal(pipe(results), 0);
    for (int i = 0; i < PROCESSES; i++) {
        if (fork() != 0) continue;
        struct authority authority;
        struct error err;
        char byte;
        close(gate[1]);
        if (read(gate[0], &byte, 1) != 0) _exit(1);
        if (load(time(NULL), &authority, &err) < 0) _exit(2);
        _exit(write(results[1], authority.der + authority.der_len - 32, 32) == 32 ? 0 : 3);
    }
    close(gate[1]);
    uint8_t seen[PROCESSES][32];
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
        assert_int_equal(read(results[0], seen[i], 32), 32);
        assert_memory_equal(seen[i], seen[0], 32);
    }
    close(gate[0]);
    close(results[0]);
    close(results[1]);
}

static void test_made_anew(void **state) {
    (void)state;
    struct authority first, second;
    struct error err;
    int64_t now = time(NULL);
    assert_int_equal(load(now, &first, &err), 0);
    int64_t end = certificate_not_after(first.certificate);
    assert_int_equal(load(end - (CERTIFICATE_CA_RENEW_DAYS + 1) * CERTIFICATE_DAY, &second, &err), 0);
    assert_int_equal(EVP_PKEY_eq(first.key, second.key), 1);
    authority_done(&second);
    assert_int_equal(load(end - (CERTIFICATE_CA_RENEW_DAYS - 1) * CERTIFICATE_DAY, &second, &err), 0);
    assert_int_equal(EVP_PKEY_eq(first.key, second.key), 0);
    assert_true(certificate_not_after(second.certificate) > end + 3000 * CERTIFICATE_DAY);
    authority_done(&first);
    authority_done(&second);
}

static void refused(const char *why, const char *mend) {
    struct authority authority;
    struct error err;
    assert_true(load(time(NULL), &authority, &err) < 0);
    if (!strstr(err.text, why) || !strstr(err.text, mend)) fail_msg("%s", err.text);
}

static void test_refused(void **state) {
    (void)state;
    struct authority authority;
    struct error err;
    assert_int_equal(load(time(NULL), &authority, &err), 0);
    authority_done(&authority);
    chmod(rig_path(FILE_PATH), 0640);
    refused("mode 0640", "chmod 600");
    chmod(rig_path(FILE_PATH), 0600);
    chmod(rig_path("state/ca"), 0770);
    refused("mode 0770", "chmod go-w");
    chmod(rig_path("state/ca"), 0700);
    chmod(rig_path("state"), 0777);
    refused("mode 0777", "chmod go-w");
    chmod(rig_path("state"), 0755);
    if (geteuid() == 0) {
        assert_int_equal(chown(rig_path(FILE_PATH), 65534, 65534), 0);
        refused("belongs to user 65534", "chown 0");
        assert_int_equal(chown(rig_path(FILE_PATH), 0, 0), 0);
        assert_int_equal(chown(rig_path("state/ca"), 65534, 65534), 0);
        refused("belongs to user 65534", "chown");
        assert_int_equal(chown(rig_path("state/ca"), 0, 0), 0);
    }
    char real[256];
    snprintf(real, sizeof(real), "%s", rig_path("elsewhere"));
    assert_int_equal(rename(rig_path(FILE_PATH), real), 0);
    assert_int_equal(symlink(real, rig_path(FILE_PATH)), 0);
    refused("symbolic link", "authority");
    unlink(rig_path(FILE_PATH));
    assert_int_equal(mkfifo(rig_path(FILE_PATH), 0600), 0);
    refused("not a regular file", "remove it");
}

static void test_damaged(void **state) {
    (void)state;
    struct authority authority;
    struct error err;
    uint8_t bytes[AUTHORITY_FILE_MAX];
    assert_int_equal(load(time(NULL), &authority, &err), 0);
    authority_done(&authority);
    int fd = open(rig_path(FILE_PATH), O_RDWR);
    ssize_t len = read(fd, bytes, sizeof(bytes));
    assert_true(len > 300);
    assert_int_equal(authority_parse(bytes, (size_t)len, &authority, NULL), 0);
    authority_done(&authority);
    for (ssize_t cut = 0; cut < len; cut++)
        assert_int_equal(authority_parse(bytes, (size_t)cut, &authority, NULL), -EINVAL);
    for (ssize_t i = 0; i < 46; i++) { // word and key
        bytes[i] ^= 1;
        assert_int_equal(authority_parse(bytes, (size_t)len, &authority, NULL), -EINVAL);
        bytes[i] ^= 1;
    }
    assert_int_equal(ftruncate(fd, len - 1), 0);
    refused("not one of a CA", "remove it");
    assert_int_equal(ftruncate(fd, 0), 0);
    refused("not a CA of this program", "remove it");
    assert_int_equal(ftruncate(fd, 1 << 20), 0);
    refused("File too large", "authority");
    close(fd);
}

static void test_places(void **state) {
    (void)state;
    struct authority authority;
    struct error err;
    setenv("PENSTOCK_STATE_FOLDER", "relative/path", 1);
    assert_int_equal(load(time(NULL), &authority, &err), -EINVAL);
    assert_non_null(strstr(err.text, "not an absolute path"));
    setenv("PENSTOCK_STATE_FOLDER", rig_path("deep/er/state"), 1);
    assert_int_equal(load(time(NULL), &authority, &err), 0);
    authority_done(&authority);
    assert_int_equal(rig_mode(rig_path("deep/er/state/ca/authority")), 0600);
    if (geteuid() == 0) return; // root's place is the machine's
    unsetenv("PENSTOCK_STATE_FOLDER");
    setenv("XDG_STATE_HOME", rig_path("xdg"), 1);
    assert_int_equal(load(time(NULL), &authority, &err), 0);
    authority_done(&authority);
    assert_int_equal(rig_mode(rig_path("xdg/penstock/ca/authority")), 0600);
    unsetenv("XDG_STATE_HOME");
    setenv("HOME", rig_path("home"), 1);
    assert_int_equal(load(time(NULL), &authority, &err), 0);
    authority_done(&authority);
    assert_int_equal(rig_mode(rig_path("home/.local/state/penstock/ca/authority")), 0600);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_first_use, setup, teardown),
        cmocka_unit_test_setup_teardown(test_two_first_uses, setup, teardown),
        cmocka_unit_test_setup_teardown(test_made_anew, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damaged, setup, teardown),
        cmocka_unit_test_setup_teardown(test_places, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
