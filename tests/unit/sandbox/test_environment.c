// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "sandbox/environment.h"

static char work_folder[] = "/srv/work";
static struct exposure_item work = {.source = work_folder, .target = work_folder, .writable = true, .folder = true};
static const struct exposure exposure = {.items = &work, .count = 1};

static void check(char *const *environment, const char *const *expected) {
    char **filtered = environment_filter(environment, &exposure);
    assert_non_null(filtered);
    size_t i = 0;
    for (; expected[i]; i++) {
        assert_non_null(filtered[i]);
        assert_string_equal(filtered[i], expected[i]);
    }
    assert_null(filtered[i]);
    free(filtered);
}

static void test_removed(void **state) {
    (void)state;
    char *environment[] = {"PATH=/bin",
                           "http_proxy=a",
                           "HTTP_PROXY=a",
                           "Https_Proxy=b",
                           "all_proxy=c",
                           "NO_PROXY=*",
                           "no_proxy=",
                           "SSH_AUTH_SOCK=/x",
                           "DBUS_SESSION_BUS_ADDRESS=unix:path=/x",
                           "XDG_RUNTIME_DIR=/run/user/1",
                           "DISPLAY=:0",
                           "WAYLAND_DISPLAY=w",
                           "GPG_AGENT_INFO=g",
                           "DOCKER_HOST=unix:///x",
                           "TMUX=/x,1,0",
                           "HTTP_PROXY_X=kept",
                           "MY_DISPLAY=kept",
                           "EMPTY=",
                           "TERM=xterm",
                           "odd",
                           NULL};
    const char *const expected[] = {"PATH=/bin", "HTTP_PROXY_X=kept", "MY_DISPLAY=kept", "EMPTY=", "TERM=xterm", "odd",
                                    NULL};
    check(environment, expected);
}

static void test_temporary(void **state) {
    (void)state;
    char *environment[] = {"TMPDIR=/var/folders/x", "TMP=/tmp", "TEMP=/srv/work/t", "TMPDIRS=/x", NULL};
    const char *const expected[] = {"TMPDIR=/tmp", "TMP=/tmp", "TEMP=/srv/work/t", "TMPDIRS=/x", NULL};
    check(environment, expected);
    char *below[] = {"TMPDIR=/tmp/not-there-inside", "TEMP=/srv/workshop", NULL};
    const char *const below_expected[] = {"TMPDIR=/tmp", "TEMP=/tmp", NULL};
    check(below, below_expected);
}

static void test_get(void **state) {
    (void)state;
    char *environment[] = {"PATHS=1", "PATH=/bin", NULL};
    assert_string_equal(environment_get(environment, "PATH"), "/bin");
    assert_null(environment_get(environment, "PAT"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_removed), cmocka_unit_test(test_temporary),
                                       cmocka_unit_test(test_get)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
