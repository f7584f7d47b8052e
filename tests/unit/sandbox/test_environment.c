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

static void check_with(char *const *environment, const char *const *expected, bool proxy) {
    char **filtered = environment_filter(environment, &exposure, proxy, NULL);
    assert_non_null(filtered);
    size_t i = 0;
    for (; expected[i]; i++) {
        assert_non_null(filtered[i]);
        assert_string_equal(filtered[i], expected[i]);
    }
    assert_null(filtered[i]);
    free(filtered);
}

static void check(char *const *environment, const char *const *expected) { check_with(environment, expected, false); }

// Whatever the host has in any spelling, what the command sees are the doors.
static void test_doors(void **state) {
    (void)state;
    char *environment[] = {"http_proxy=http://host:1", "Https_Proxy=http://host:1", "FTP_PROXY=http://host:1", "PATH=/bin",
                           "no_proxy=*", "npm_config_https_proxy=http://host:1", "npm_config_noproxy=*",
                           "socks_proxy=socks5://host:1", NULL};
    const char *const expected[] = {
        "PATH=/bin",
        "HTTP_PROXY=http://192.0.0.1:3128",      "http_proxy=http://192.0.0.1:3128",
        "HTTPS_PROXY=http://192.0.0.1:3128",     "https_proxy=http://192.0.0.1:3128",
        "ALL_PROXY=http://192.0.0.1:3128",       "all_proxy=http://192.0.0.1:3128",
        "SOCKS_PROXY=socks5h://192.0.0.1:1080",  "socks_proxy=socks5h://192.0.0.1:1080",
        "NO_PROXY=localhost,127.0.0.1,::1",      "no_proxy=localhost,127.0.0.1,::1",
        NULL};
    check_with(environment, expected, true);
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
                           "ftp_proxy=a",
                           "npm_config_proxy=a",
                           "npm_config_https_proxy=a",
                           "NPM_CONFIG_NOPROXY=*",
                           "YARN_HTTPS_PROXY=a",
                           "CGI_HTTP_PROXY=a",
                           "SOCKS_SERVER=a:1",
                           "GIT_PROXY_COMMAND=a",
                           "CARGO_HTTP_PROXY=a",
                           "SSH_AUTH_SOCK=/x",
                           "DBUS_SESSION_BUS_ADDRESS=unix:path=/x",
                           "XDG_RUNTIME_DIR=/run/user/1",
                           "DISPLAY=:0",
                           "WAYLAND_DISPLAY=w",
                           "GPG_AGENT_INFO=g",
                           "DOCKER_HOST=unix:///x",
                           "TMUX=/x,1,0",
                           "HTTP_PROXY_X=kept",
                           "GOPROXY=kept",
                           "MY_DISPLAY=kept",
                           "EMPTY=",
                           "TERM=xterm",
                           "odd",
                           NULL};
    const char *const expected[] = {"PATH=/bin", "HTTP_PROXY_X=kept", "GOPROXY=kept", "MY_DISPLAY=kept", "EMPTY=",
                                    "TERM=xterm", "odd", NULL};
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_removed), cmocka_unit_test(test_doors), cmocka_unit_test(test_temporary),
                                       cmocka_unit_test(test_get)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
