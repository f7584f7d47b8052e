// SPDX-License-Identifier: Apache-2.0
// `penstock serve`: options to one struct daemon_serve.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cli/cli.h"
#include "daemon/daemon.h"

#define SERVE_SERVERS_MAX 8

struct serve_options {
    struct daemon_serve serve;
    const char *dns[SERVE_SERVERS_MAX];
};

static const struct {
    const char *name;
    size_t offset; // in struct daemon_serve
} serve_texts[] = {
    {"--config", offsetof(struct daemon_serve, config)},
    {"--listen", offsetof(struct daemon_serve, listen)},
    {"--state", offsetof(struct daemon_serve, state)},
    {"--upstream-ca", offsetof(struct daemon_serve, upstream_ca)},
};

static int serve_put(struct serve_options *options, const char *name, size_t len, const char *value, struct error *err) {
    if (len == 5 && memcmp(name, "--dns", 5) == 0) {
        if (options->serve.dns_count == SERVE_SERVERS_MAX)
            return error_set(err, -EINVAL, "--dns \"%.100s\": at most %d of them", value, SERVE_SERVERS_MAX);
        options->dns[options->serve.dns_count++] = value;
        return 0;
    }
    for (size_t i = 0; i < ARRAY_LENGTH(serve_texts); i++) {
        if (strlen(serve_texts[i].name) != len || memcmp(serve_texts[i].name, name, len) != 0) continue;
        const char **field = (const char **)((char *)&options->serve + serve_texts[i].offset);
        if (*field) return error_set(err, -EINVAL, "%s: given twice (\"%.100s\" and \"%.100s\"); keep one", serve_texts[i].name, *field, value);
        *field = value;
        return 0;
    }
    return -ENOENT;
}

int cli_serve(int argc, char **argv) {
    struct serve_options options = {0};
    struct error err = {0};
    options.serve.dns = options.dns;
    for (int i = 1; i < argc; i++) {
        size_t len = strcspn(argv[i], "=");
        if (strcmp(argv[i], "--check-config") == 0) {
            options.serve.check_config = true;
            continue;
        }
        if (argv[i][0] != '-') return cli_unknown(CLI_INVALID, "serve", argv[i]);
        const char *value = argv[i][len] == '=' ? argv[i] + len + 1 : i + 1 < argc ? argv[i + 1] : "";
        int rc = serve_put(&options, argv[i], len, value, &err);
        if (rc == -ENOENT) return cli_unknown(CLI_INVALID, "serve", argv[i]);
        if (rc == 0 && !*value) return cli_usage_error(CLI_INVALID, "serve", "%.50s needs a value", argv[i]);
        if (rc < 0) return cli_fail(CLI_INVALID, &err);
        if (argv[i][len] != '=') i++;
    }
    return daemon_serve(&options.serve);
}
