// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>

#include "base/mem.h"
#include "base/name.h"

#define LABEL63 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define NAME253                                                                                                        \
    LABEL63 "." LABEL63 "." LABEL63 "."                                                                                \
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

// As text: a name, or an address in angle brackets.
static const char *shown(const struct name_host *host, char buf[NAME_SIZE + 2]) {
    char text[ADDR_TEXT_SIZE];
    if (!host->is_address) return host->name;
    snprintf(buf, NAME_SIZE + 2, "<%s>", addr_format(&host->address, text));
    return buf;
}

static void wire_names(void **state) {
    (void)state;
    static const char *const good[][2] = {
        {"Example.COM", "example.com"},
        {"example.com.", "example.com"},
        {"localhost", "localhost"},
        {"_dmarc.example.com", "_dmarc.example.com"},
        {"-a-.example", "-a-.example"},
        {"1.2.3.4", "<1.2.3.4>"},
        {"1.2.3.4.", "<1.2.3.4>"},
        {"[2001:db8::1]", "<2001:db8::1>"},
        {"2001:DB8::1", "<2001:db8::1>"},
        {"[::ffff:127.0.0.1]", "<127.0.0.1>"},
        {"xn--bcher-kva.example", "xn--bcher-kva.example"},
        {"123.example", "123.example"},
        {"0x7f.example", "0x7f.example"},
        {NAME253, NAME253},
        {NAME253 ".", NAME253},
        {LABEL63, LABEL63},
        {"a.1b", "a.1b"},
    };
    static const char *const bad[] = {
        "",
        ".",
        "..",
        "a..b",
        ".a",
        "a.b..",
        "a b",
        "a\tb",
        "b\xc3\xbc"
        "cher.example",
        "a%62",
        "user@a",
        "a/b",
        "a\\b",
        "127.1",
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "1.2.3.4.5",
        "a.0x7f",
        "A.0X7F",
        "a.123",
        "1.2.3.256",
        "01.2.3.4",
        "[1.2.3.4]",
        "[::1",
        "::1]",
        "[]",
        "[::1%lo]",
        "[::1].",
        "::1.",
        "*.a",
        "a:80",
        LABEL63 "a",
        NAME253 "a",
        "a.b\r\n",
        "a,b",
    };
    struct name_host host;
    char buf[NAME_SIZE + 2];
    for (size_t i = 0; i < ARRAY_LENGTH(good); i++) {
        assert_int_equal(name_from_wire(good[i][0], strlen(good[i][0]), &host), 0);
        assert_string_equal(shown(&host, buf), good[i][1]);
    }
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++) {
        if (name_from_wire(bad[i], strlen(bad[i]), &host) != -EINVAL) fail_msg("'%s' is accepted", bad[i]);
    }
    assert_int_equal(name_from_wire("example.com\0.evil.org", 21, &host), -EINVAL);
    assert_int_equal(name_from_wire("example.com\0", 12, &host), -EINVAL);
    assert_int_equal(name_from_wire("example.comX", 11, &host), 0);
    assert_string_equal(host.name, "example.com");
}

static void authorities(void **state) {
    (void)state;
    static const struct {
        const char *text, *host;
        int port;
    } good[] = {
        {"example.com", "example.com", 0},
        {"Example.com:8443", "example.com", 8443},
        {"example.com.:443", "example.com", 443},
        {"1.2.3.4:80", "<1.2.3.4>", 80},
        {"[2001:db8::1]:443", "<2001:db8::1>", 443},
        {"[2001:db8::1]", "<2001:db8::1>", 0},
        {"a:65535", "a", 65535},
    };
    static const char *const bad[] = {
        "",    ":80",    "a:",      "a:0",  "a:65536", "a:080",  "a:+1", "a:8 0", "a:b", "2001:db8::1:443",
        "::1", "[::1]:", "[::1]80", "[::1", "u@a:80",  "a:80:80"};
    struct name_host host;
    char buf[NAME_SIZE + 2];
    uint16_t port;
    for (size_t i = 0; i < ARRAY_LENGTH(good); i++) {
        port = 7;
        assert_int_equal(name_authority_from_wire(good[i].text, strlen(good[i].text), &host, &port), 0);
        assert_string_equal(shown(&host, buf), good[i].host);
        assert_int_equal(port, good[i].port);
    }
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++) {
        if (name_authority_from_wire(bad[i], strlen(bad[i]), &host, &port) != -EINVAL)
            fail_msg("'%s' is accepted", bad[i]);
    }
}

static void policy_names(void **state) {
    (void)state;
    static const char *const good[][2] = {
        {"PyPI.org", "pypi.org"},
        {"a-b.example", "a-b.example"},
        {"1.2.3.4", "<1.2.3.4>"},
        {"2001:db8::1", "<2001:db8::1>"},
        {"[2001:db8::1]", "<2001:db8::1>"},
        {"::ffff:10.0.0.1", "<10.0.0.1>"},
        {"localhost", "localhost"},
        {"b\xc3\xbc"
         "cher.example",
         "xn--bcher-kva.example"},
        {"B\xc3\x9c"
         "CHER.example",
         "xn--bcher-kva.example"},
        {"stra\xc3\x9f"
         "e.example",
         "xn--strae-oqa.example"},
        {"r3---sn-4g5e.example", "r3---sn-4g5e.example"},
    };
    // Each message quotes the text and holds the fix.
    static const char *const bad[][2] = {
        {"https://pypi.org", "write pypi.org"},
        {"https://pypi.org/simple", "write pypi.org"},
        {"pypi.org/simple", "path"},
        {"*.pypi.org", "'*'"},
        {"*", "'*'"},
        {"", "empty"},
        {" ", "blank"},
        {"a b", "blank"},
        {"user@h.org", "user"},
        {"h.org?x", "query"},
        {"pypi.org.", "write pypi.org"},
        {"a_b.example", "'_'"},
        {"-bad-.com", "'-'"},
        {"bad-.com", "'-'"},
        {"127.1", "four decimal"},
        {"2130706433", "four decimal"},
        {"0x7f.0.0.1", "four decimal"},
        {"0177.0.0.1", "four decimal"},
        {"a..b", "1 to 63"},
        {"\xef\xbc\x91.\xef\xbc\x92.\xef\xbc\x93.\xef\xbc\x94", "ASCII"},
        {"\xff.example", "international"},
        {"b\xc3\xbc/x", "path"},
        {LABEL63 "a.example", "1 to 63"},
        {"h.org:", "':'"},
        {"::g", "':'"},
        {"a.0x7f", "1 to 63"},
    };
    struct name_host host;
    char buf[NAME_SIZE + 2];
    for (size_t i = 0; i < ARRAY_LENGTH(good); i++) {
        struct error err = {0};
        if (name_from_policy(good[i][0], strlen(good[i][0]), &host, &err) != 0) fail_msg("%s", err.text);
        assert_string_equal(shown(&host, buf), good[i][1]);
    }
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++) {
        struct error err = {0};
        if (name_from_policy(bad[i][0], strlen(bad[i][0]), &host, &err) != -EINVAL)
            fail_msg("'%s' is accepted", bad[i][0]);
        if (!strstr(err.text, bad[i][0]) || !strstr(err.text, bad[i][1])) fail_msg("'%s': %s", bad[i][0], err.text);
    }
    struct error err = {0};
    assert_int_equal(name_from_policy("a\0b", 3, &host, &err), -EINVAL);
    char *longest = calloc(1, 70000);
    assert_non_null(longest);
    memset(longest, 'a', 69999);
    assert_int_equal(name_from_policy(longest, 69999, &host, &err), -EINVAL);
    assert_true(strlen(err.text) < 200);
    free(longest);
}

static void public_suffixes(void **state) {
    (void)state;
    assert_true(name_is_public_suffix("com") && name_is_public_suffix("co.uk"));
    assert_false(name_is_public_suffix("example.com") || name_is_public_suffix("example.co.uk"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(wire_names), cmocka_unit_test(authorities),
                                       cmocka_unit_test(policy_names), cmocka_unit_test(public_suffixes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
