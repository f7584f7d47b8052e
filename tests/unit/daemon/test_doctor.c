// SPDX-License-Identifier: Apache-2.0
// What doctor says of a host, from the files of that host below a folder of the test.
#include "daemon/doctor.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/mem.h"

#define UBUNTU "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"
#define DEBIAN "/proc/sys/kernel/unprivileged_userns_clone"
#define USER_NAMESPACES "/proc/sys/user/max_user_namespaces"
#define NET_NAMESPACES "/proc/sys/user/max_net_namespaces"
#define PING "/proc/sys/net/ipv4/ping_group_range"
#define PROFILE "/etc/apparmor.d/penstock"

static const char *const folders[] = {"/proc", "/proc/sys", "/proc/sys/kernel", "/proc/sys/user", "/proc/sys/net",
                                      "/proc/sys/net/ipv4", "/etc", "/etc/apparmor.d"};
static const char *const files[] = {UBUNTU, DEBIAN, USER_NAMESPACES, NET_NAMESPACES, PING, PROFILE, "/etc/apparmor.d/other"};

static char root[] = "/tmp/penstock-doctor-root-XXXXXX";
static struct doctor doctor = {.root = root, .program = "/usr/local/bin/penstock", .identity = {.uid = 1000, .gid = 1000},
                               .user_namespace = -1, .net_namespace = -1};

static const char *under(const char *path) {
    static char full[256];
    snprintf(full, sizeof(full), "%s%s", root, path);
    return full;
}

static void put(const char *path, const char *text) {
    FILE *file = fopen(under(path), "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static int setup(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(files); i++) unlink(under(files[i]));
    return 0;
}

static struct doctor_finding explain(enum doctor_step step, int error) {
    struct doctor_finding finding = {0};
    doctor_namespace_explain(&doctor, step, error, &finding);
    assert_int_equal(finding.state, DOCTOR_MISSING);
    assert_true(finding.fix[0] != '\0');
    assert_null(strchr(finding.found, '\n'));
    assert_null(strchr(finding.fix, '\n'));
    return finding;
}

static void assert_has(const char *text, const char *word) {
    if (!strstr(text, word)) fail_msg("\"%s\" is not in \"%s\"", word, text);
}

// The step that fails is not the first: Ubuntu makes the namespace and takes its capabilities away.
static void test_ubuntu_without_profile(void **state) {
    (void)state;
    put(UBUNTU, "1\n");
    put("/etc/apparmor.d/other", "profile other /usr/bin/other flags=(unconfined) {\n  userns,\n}\n");
    struct doctor_finding finding = explain(DOCTOR_STEP_ADMIN, EPERM);
    assert_has(finding.found, "AppArmor");
    assert_has(finding.fix, "apparmor_parser -r /etc/apparmor.d/penstock");
    assert_has(finding.file, "profile penstock /usr/local/bin/penstock flags=(unconfined) {\n  userns,\n");
}

static void test_ubuntu_with_a_profile_that_is_not_loaded(void **state) {
    (void)state;
    put(UBUNTU, "1\n");
    put(PROFILE, "profile penstock /usr/local/bin/penstock flags=(unconfined) {\n  userns,\n}\n");
    struct doctor_finding finding = explain(DOCTOR_STEP_NET, EACCES);
    assert_has(finding.found, PROFILE);
    assert_has(finding.found, "not loaded");
    assert_string_equal(finding.fix, "sudo apparmor_parser -r " PROFILE);
    assert_string_equal(finding.file, "");
}

// A profile of the program that does not give user namespaces is none.
static void test_ubuntu_with_a_profile_without_userns(void **state) {
    (void)state;
    put(UBUNTU, "1\n");
    put(PROFILE, "profile penstock /usr/local/bin/penstock {\n  network,\n}\n");
    assert_has(explain(DOCTOR_STEP_ADMIN, EPERM).file, "userns,");
}

static void test_ubuntu_with_the_restriction_off(void **state) {
    (void)state;
    put(UBUNTU, "0\n");
    struct doctor_finding finding = explain(DOCTOR_STEP_USER, EPERM);
    assert_null(strstr(finding.found, "AppArmor"));
    assert_has(finding.fix, "docker run");
}

static void test_settings(void **state) {
    (void)state;
    static const struct {
        const char *file, *text, *found, *fix;
        int error;
    } rows[] = {
        {DEBIAN, "0\n", "kernel.unprivileged_userns_clone is 0", "kernel.unprivileged_userns_clone = 1", EPERM},
        {USER_NAMESPACES, "0\n", "user.max_user_namespaces is 0", "user.max_user_namespaces = 15000", ENOSPC},
        {NET_NAMESPACES, "0\n", "user.max_net_namespaces is 0", "user.max_net_namespaces = 15000", ENOSPC},
        {DEBIAN, "1\n", "a user namespace cannot be made: Operation not permitted", "seccomp=unconfined", EPERM},
        {USER_NAMESPACES, "96364\n", "cannot be made: No space left on device", "user.max_user_namespaces=15000", ENOSPC},
        {USER_NAMESPACES, "nonsense\n", "cannot be made: Invalid argument", "CONFIG_USER_NS", EINVAL},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        setup(NULL);
        put(rows[i].file, rows[i].text);
        struct doctor_finding finding = explain(DOCTOR_STEP_USER, rows[i].error);
        assert_has(finding.found, rows[i].found);
        assert_has(finding.fix, rows[i].fix);
    }
}

static void test_ping(void **state) {
    (void)state;
    static const struct {
        const char *text;
        enum doctor_state state;
    } rows[] = {{"0\t2147483647\n", DOCTOR_OK}, {"1000\t1000\n", DOCTOR_OK}, {"1\t0\n", DOCTOR_WARNING},
                {"1001\t2000\n", DOCTOR_WARNING}, {"0\t999\n", DOCTOR_WARNING}, {"x\n", DOCTOR_WARNING}, {"", DOCTOR_WARNING}};
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct doctor_finding finding = {0};
        put(PING, rows[i].text);
        doctor_kernel_ping(&doctor, &finding);
        assert_int_equal(finding.state, rows[i].state);
        assert_int_equal(finding.fix[0] != '\0', rows[i].state != DOCTOR_OK);
    }
}

static void test_number(void **state) {
    (void)state;
    unsigned long number = 7;
    assert_false(doctor_number(&doctor, DEBIAN, &number));
    put(DEBIAN, "1\n");
    assert_true(doctor_number(&doctor, DEBIAN, &number));
    assert_int_equal(number, 1);
    put(DEBIAN, "-1\n");
    assert_false(doctor_number(&doctor, DEBIAN, &number));
    assert_int_equal(number, 1);
}

// Without the skeleton what stands on it is not tried, and is missing.
static void test_not_tried(void **state) {
    (void)state;
    struct doctor_finding findings[3] = {0};
    doctor_namespace_sockets(&doctor, &findings[0]);
    doctor_namespace_bubblewrap(&doctor, &findings[1]);
    doctor_namespace_cwd(&doctor, &findings[2]);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(findings[i].state, DOCTOR_MISSING);
        assert_has(findings[i].found, "not tried");
    }
}

static void test_table(void **state) {
    (void)state;
    assert_true(doctor_check_count >= 12);
    for (size_t i = 0; i < doctor_check_count; i++) {
        assert_true(doctor_checks[i].why[0] && doctor_checks[i].examine);
        for (size_t k = 0; k < i; k++) assert_string_not_equal(doctor_checks[i].name, doctor_checks[k].name);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_ubuntu_without_profile, setup),
        cmocka_unit_test_setup(test_ubuntu_with_a_profile_that_is_not_loaded, setup),
        cmocka_unit_test_setup(test_ubuntu_with_a_profile_without_userns, setup),
        cmocka_unit_test_setup(test_ubuntu_with_the_restriction_off, setup),
        cmocka_unit_test_setup(test_settings, setup),
        cmocka_unit_test_setup(test_ping, setup),
        cmocka_unit_test_setup(test_number, setup),
        cmocka_unit_test(test_not_tried),
        cmocka_unit_test(test_table),
    };
    if (!mkdtemp(root)) return 1;
    for (size_t i = 0; i < ARRAY_LENGTH(folders); i++)
        if (mkdir(under(folders[i]), 0755) < 0) return 1;
    int status = cmocka_run_group_tests(tests, NULL, NULL);
    setup(NULL);
    for (size_t i = ARRAY_LENGTH(folders); i-- > 0;) rmdir(under(folders[i]));
    rmdir(root);
    return status;
}
