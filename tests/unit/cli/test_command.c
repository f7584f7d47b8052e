// SPDX-License-Identifier: Apache-2.0
// The table of commands, exit statuses, and what is printed: each command runs in a child with its output in a pipe.
#include "cli/cli.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include <jansson.h>

#include "base/buf.h"
#include "base/mem.h"

struct output {
    int status;
    char out[32768];
    char err[4096];
};

static void read_all(int fd, char *text, size_t size) {
    size_t used = 0;
    ssize_t got;
    while (used + 1 < size && (got = read(fd, text + used, size - 1 - used)) > 0) used += (size_t)got;
    text[used] = '\0';
    close(fd);
}

static struct output run(char **argv) {
    struct output output = {0};
    int out[2], err[2], argc = 0;
    while (argv[argc]) argc++;
    assert_int_equal(pipe(out) | pipe(err), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        dup2(out[1], 1);
        dup2(err[1], 2);
        close(out[0]);
        close(err[0]);
        int status = cli_main(argc, argv);
        fflush(NULL);
        _exit(status);
    }
    close(out[1]);
    close(err[1]);
    read_all(out[0], output.out, sizeof(output.out));
    read_all(err[0], output.err, sizeof(output.err));
    waitpid(child, &output.status, 0);
    output.status = WEXITSTATUS(output.status);
    return output;
}

#define RUN(...) run((char *[]){"penstock", __VA_ARGS__, NULL})

static void assert_failed(struct output output, int status, const char *message) {
    assert_string_equal(output.err, message);
    assert_string_equal(output.out, "");
    assert_int_equal(output.status, status);
}

static void test_help(void **state) {
    (void)state;
    struct output output = run((char *[]){"penstock", NULL});
    assert_int_equal(output.status, 2);
    assert_non_null(strstr(output.err, "Usage: penstock COMMAND"));
    static char *const words[] = {"help", "--help"};
    for (size_t i = 0; i < ARRAY_LENGTH(words); i++) {
        output = RUN(words[i]);
        assert_int_equal(output.status, 0);
        assert_non_null(strstr(output.out, "\n  check "));
        assert_non_null(strstr(output.out, "\n  types "));
        assert_non_null(strstr(output.out, "\n  run "));
    }
    output = RUN("check", "--help");
    assert_int_equal(output.status, 0);
    assert_non_null(strstr(output.out, "Usage: penstock check"));
    assert_non_null(strstr(output.out, "--resolved ADDR"));
    output = RUN("run", "--help");
    assert_non_null(strstr(output.out, "--allow HOST[:PORT]"));
    output = RUN("help", "config");
    assert_non_null(strstr(output.out, "PENSTOCK_NETWORK_EGRESS_ALWAYS_DENIED=a,b"));
    output = RUN("--version");
    assert_string_equal(output.out, "penstock " PENSTOCK_VERSION "\n");
    assert_int_equal(output.status, 0);
}

static void test_unknown(void **state) {
    (void)state;
    assert_failed(RUN("chek"), 2, "penstock: unknown command \"chek\"; see `penstock --help`\n");
    assert_failed(RUN("--chek"), 2, "penstock: unknown option \"--chek\"; see `penstock --help`\n");
    assert_failed(RUN("check", "--bogus"), 2, "penstock: unknown option \"--bogus\"; see `penstock check --help`\n");
    assert_failed(RUN("types", "x"), 2, "penstock: unknown argument \"x\"; see `penstock types --help`\n");
    static const char *const commands[] = {"types", "doctor", "self-test", "presets", "secret", "ca"};
    for (size_t i = 0; i < ARRAY_LENGTH(commands); i++) {
        char message[96];
        snprintf(message, sizeof(message), "penstock: unknown option \"--x\"; see `penstock %s --help`\n", commands[i]);
        assert_failed(RUN((char *)(uintptr_t)commands[i], "--x"), 2, message);
    }
    assert_failed(RUN("run", "--x", "--", "true"), 125, "penstock: unknown option \"--x\"; see `penstock run --help`\n");
    assert_failed(RUN("check", "a\x1b[31m"), 2,
                  "penstock: request \"a\\x1b[31m\" has no known scheme; write https://, http://, tcp://HOST:PORT, "
                  "udp://HOST:PORT, icmp://ADDR or dns://NAME\n");
}

static void test_check_text(void **state) {
    (void)state;
    struct output output = RUN("check", "--allow", "api.github.com", "https://api.github.com/zen");
    assert_int_equal(output.status, 0);
    assert_string_equal(output.out,
                        "allow allowed_name\nrule: allow https api.github.com:443\nsource: --allow api.github.com\n"
                        "name: api.github.com\naddress not judged\nport: 443\n");
    output = RUN("check", "--allow", "a.org", "--resolved", "10.0.0.1", "--resolved=93.184.216.34", "https://a.org/");
    assert_int_equal(output.status, 1);
    assert_non_null(strstr(output.out, "deny private_address\n"));
    assert_non_null(strstr(output.out, "\naddress: 10.0.0.1\n"));
    assert_null(strstr(output.out, "address not judged"));
    output = RUN("check", "--allow", "a.org", "--allow-cidr", "203.0.113.0/24");
    assert_int_equal(output.status, 0);
    assert_non_null(strstr(output.out, "valid for type process\n"));
    assert_non_null(strstr(output.out, "(--allow a.org)"));
    assert_non_null(strstr(output.out, "(--allow-cidr 203.0.113.0/24)"));
    assert_non_null(strstr(output.out, "base deny"));
}

static void assert_json(struct output output, const char *key, const char *value) {
    json_t *object = json_loads(output.out, 0, NULL);
    assert_non_null(object);
    json_t *member = json_object_get(object, key);
    assert_non_null(member);
    if (value)
        assert_string_equal(json_string_value(member), value);
    else
        assert_true(json_is_null(member));
    json_decref(object);
}

static void test_check_json(void **state) {
    (void)state;
    struct output output =
        RUN("check", "--allow", "a.org:8443", "--json", "--resolved", "93.184.216.34", "https://a.org:8443/");
    assert_string_equal(
        output.out, "{\"verdict\":\"allow\",\"reason\":\"allowed_name\",\"rule\":\"allow https a.org:8443\",\"source\":"
                    "\"--allow a.org:8443\",\"name\":\"a.org\",\"address\":\"93.184.216.34\",\"port\":8443,\"credential\":null,\"hint\":null}\n");
    output = RUN("check", "--network", "all", "--json", "tcp://8.8.8.8:53");
    assert_json(output, "name", NULL);
    assert_json(output, "address", "8.8.8.8");
    assert_json(output, "reason", "allowed_base");
    output = RUN("check", "--json", "dns://a.org");
    assert_int_equal(output.status, 1);
    assert_json(output, "port", NULL);
    assert_json(output, "reason", "dns_name_denied");
    assert_json(output, "hint", "--allow a.org");
    // What is invalid is told in JSON as well, wherever the option stands.
    output = RUN("check", "--allow", "https://a.org", "--json");
    assert_int_equal(output.status, 2);
    assert_string_equal(output.err, "penstock: --allow: \"https://a.org\" has a scheme; write \"a.org\"\n");
    assert_string_equal(output.out, "{\"valid\":false,\"error\":\"--allow: \\\"https://a.org\\\" has a scheme; write "
                                    "\\\"a.org\\\"\"}\n");
    assert_json(RUN("check", "--json", "--policy", "/nonexistent"), "error",
                "policy file \"/nonexistent\" cannot be read: No such file or directory; name a readable file");
    assert_json(RUN("check", "--json", "--nosuch"), "error", "unknown option \"--nosuch\"");
    output = RUN("check", "--json", "gopher://a.org");
    assert_int_equal(output.status, 2);
    assert_non_null(strstr(output.out, "\"valid\":false"));
}

static void test_check_invalid(void **state) {
    (void)state;
    assert_failed(RUN("check", "--allow", "https://a.org"), 2,
                  "penstock: --allow: \"https://a.org\" has a scheme; write \"a.org\"\n");
    assert_failed(RUN("check", "--type", "mistral", "--allow", "a.org"), 2,
                  "penstock: MistralSandbox does not support Network.allow(); pass network=Network.none() or "
                  "network=Network.all()\n");
    assert_int_equal(RUN("check", "--resolved", "x", "https://a.org").status, 2);
    assert_int_equal(RUN("check", "--resolved", "1.2.3.4").status, 2);
    assert_int_equal(RUN("check", "--resolved", "1.2.3.4", "https://1.2.3.4").status, 2);
    assert_int_equal(RUN("check", "--resolved").status, 2);
    assert_int_equal(RUN("check", "https://a.org", "https://b.org").status, 2);
    assert_int_equal(RUN("check", "--cases", "/nonexistent").status, 2);
    assert_int_equal(RUN("check", "--cases", "/dev/null", "--json").status, 2);
    assert_failed(RUN("check", "--cases", "/dev/null"), 2,
                  "penstock: case file \"/dev/null\" holds no case; write one JSON object a line\n");
    assert_failed(RUN("check", "https://a.org:99999/"), 2,
                  "penstock: request \"https://a.org:99999/\" has a port out of range; write a number from 1 to 65535\n");
    assert_failed(RUN("check", "dns://a.org:53"), 2,
                  "penstock: request \"dns://a.org:53\" has a port, which dns does not take; write dns://NAME without a "
                  "port\n");
}

// Where the verdict, its hint or its warning is another than the words of the policy let one think.
static void test_check_truth(void **state) {
    (void)state;
    static const struct {
        char *argv[8];
        int status;
        const char *out, *err; // parts
    } rows[] = {
        {{"--network", "all", "http://localhost:8000/"}, 1, "deny private_address\n", ""},
        {{"http://localhost:9100/"}, 1,
         "to allow it: policy entry {host: localhost, protocol: http, ports: [9100], private: true}\n", ""},
        {{"--allow", "localhost:9100", "https://localhost:9100/"}, 1, "address: 127.0.0.1\n", "private addresses are blocked"},
        {{"tcp://db.example:5432"}, 1, "to allow it: policy entry {host: db.example, protocol: tcp, ports: [5432]}\n", ""},
        {{"udp://db.example:53"}, 1, "to allow it: no entry for a name opens UDP;", ""},
        {{"--type", "host", "https://10.0.0.1/"}, 0, "allow allowed_base\nrule: not enforced", ""},
        {{"--type", "host"}, 0, "valid for type host\n  not enforced: every destination is reached  (type host)\n", ""},
        {{"--type", "docker"}, 0, "valid for type docker\n", "says \"not built yet\" to type docker\n"},
        {{"--network", "all", "--allow-private"}, 0, "valid", "opens private networks and metadata services too"},
        {{"--allow", "2001:db8::1:443"}, 0, "valid", "write [2001:db8::1]:443"},
        {{"--allow", "[2001:db8::1:443]"}, 0, "valid", ""},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        char *argv[12] = {"penstock", "check"};
        for (size_t j = 0; rows[i].argv[j]; j++) argv[j + 2] = rows[i].argv[j];
        struct output output = run(argv);
        if (output.status != rows[i].status || !strstr(output.out, rows[i].out) || !strstr(output.err, rows[i].err) ||
            !rows[i].err[0] != !output.err[0])
            fail_msg("row %zu: %d \"%s\" \"%s\"", i, output.status, output.out, output.err);
    }
}

static void test_write_error(void **state) {
    (void)state;
    static char *const rows[][4] = {{"penstock", "presets"}, {"penstock", "types", "--json"}, {"penstock", "check"},
                                    {"penstock", "--version"}};
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        int status, argc = 0;
        while (rows[i][argc]) argc++;
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            int full = open("/dev/full", O_WRONLY | O_CLOEXEC), null = open("/dev/null", O_WRONLY | O_CLOEXEC);
            dup2(full, 1);
            dup2(null, 2);
            _exit(cli_main(argc, (char **)(void *)rows[i]));
        }
        waitpid(child, &status, 0);
        assert_int_equal(WEXITSTATUS(status), 2);
    }
}

static void test_types(void **state) {
    (void)state;
    struct output output = RUN("types", "--json");
    json_t *rows = json_loads(output.out, 0, NULL);
    assert_int_equal(json_array_size(rows), 8);
    const char *type, *name;
    json_t *network, *credentials;
    int cidr;
    assert_int_equal(json_unpack(json_array_get(rows, 2), "{s:s,s:s,s:o,s:b,s:o}", "type", &type, "name", &name,
                                 "network", &network, "cidr", &cidr, "credentials", &credentials),
                     0);
    assert_string_equal(type, "mistral");
    assert_string_equal(name, "MistralSandbox");
    assert_true(cidr);
    assert_int_equal(json_array_size(network), 2);
    assert_string_equal(json_string_value(json_array_get(network, 1)), "all");
    assert_int_equal(json_array_size(credentials), 3);
    json_decref(rows);
    output = RUN("types");
    assert_int_equal(output.status, 0);
    assert_non_null(strstr(output.out, "DangerousLocalSandbox"));
    assert_non_null(strstr(output.out, "not built yet"));
}

static void test_presets(void **state) {
    (void)state;
    struct output output = RUN("presets", "python");
    assert_int_equal(output.status, 0);
    assert_string_equal(output.out, "pypi.org\nfiles.pythonhosted.org\n");
    assert_string_equal(RUN("presets", "@python").out, "pypi.org\nfiles.pythonhosted.org\n");
    output = RUN("presets", "--json", "python");
    json_t *rows = json_loads(output.out, 0, NULL);
    assert_int_equal(json_array_size(rows), 1);
    assert_string_equal(json_string_value(json_object_get(json_array_get(rows, 0), "name")), "python");
    assert_int_equal(json_array_size(json_object_get(json_array_get(rows, 0), "hosts")), 2);
    json_decref(rows);
    output = RUN("presets");
    assert_non_null(strstr(output.out, "@python: "));
    assert_non_null(strstr(output.out, "\n    pypi.org\n    files.pythonhosted.org\n@"));
    assert_int_equal(RUN("presets", "npm").status, 2);
    assert_int_equal(RUN("presets", "python", "node").status, 2);
    assert_int_equal(RUN("presets", "--nosuch").status, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_help),       cmocka_unit_test(test_unknown),       cmocka_unit_test(test_check_text),
        cmocka_unit_test(test_check_json), cmocka_unit_test(test_check_invalid), cmocka_unit_test(test_types),
        cmocka_unit_test(test_presets),    cmocka_unit_test(test_check_truth),   cmocka_unit_test(test_write_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
