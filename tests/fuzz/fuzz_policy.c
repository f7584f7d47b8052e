// SPDX-License-Identifier: Apache-2.0
// Policy and configuration texts. The first byte chooses the reader: a dialect ('0' to '3'), options of the command line,
// one a line ('4'), one request and name server ('5'), variables of the node configuration ('6'), a request's target for
// which a credential is asked ('7'), else the node's file. What is
// read is checked for every type, opened for learning, compiled, and asked questions whose answers must make sense.
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "cli/policy_options.h"
#include "policy/request.h"
#include "daemon/nameserver.h"
#include "policy/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void ask(const struct policy *policy) {
    struct addr address = addr_ipv4(0xcb007105);
    const struct policy_request requests[] = {
        {.protocol = POLICY_TCP, .dialled = "a.org", .port = 443},
        {.protocol = POLICY_TCP, .claimed = "a.org", .address = &address, .port = 80, .app = POLICY_APP_HTTP},
        {.protocol = POLICY_UDP, .address = &address, .port = 53},
        {.protocol = POLICY_ICMP, .address = &address},
        {.protocol = POLICY_DNS, .dialled = "a.org"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(requests); i++) {
        char hint[POLICY_HINT_SIZE];
        struct policy_decision decision = policy_decide(policy, &requests[i]);
        if (decision.rule != POLICY_RULE_NONE && decision.rule >= policy_rule_count(policy)) abort();
        if (decision.verdict == POLICY_DENY) policy_hint(policy, &requests[i], &decision, hint);
    }
}

static void ask_credentials(const struct policy *policy, const char *path, size_t len) {
    const char *host;
    for (size_t i = 0; (host = policy_bound_host(policy, i)) != NULL; i++) {
        struct policy_credential credentials[POLICY_CREDENTIALS_MAX];
        struct policy_credential_request request = {
            .host = host, .method = "GET", .method_len = 3, .path = path, .path_len = len};
        size_t count = policy_credentials(policy, &request, credentials);
        for (size_t k = 0; k < count; k++)
            if (!credentials[k].header[0]) abort();
        request.method = NULL;
        if (!policy_name_bound(policy, host) || policy_credentials(policy, &request, credentials) < count) abort();
    }
}

// The target of a request, in a policy that gives the header for one repository only.
static void read_path(const char *path, size_t len) {
    static const char text[] = "version: 1\nbase: allow\ncredentials: [{binding: github, repos: [octo/hello]}]\n";
    struct policy_model *model = NULL;
    struct policy *policy = NULL;
    struct policy_credential credentials[POLICY_CREDENTIALS_MAX];
    struct policy_credential_request request = {
        .host = "github.com", .method = "GET", .method_len = 3, .path = path, .path_len = len};
    struct error err = {0};
    if (policy_read(text, strlen(text), "p", POLICY_DIALECT_NATIVE, &model, &err) < 0 ||
        policy_compile(model, NULL, NULL, 0, 1, &policy, NULL, &err) < 0)
        abort();
    // Whoever gets it has no way up in its path, by whatever spelling.
    if (policy_credentials(policy, &request, credentials) > 0 &&
        (path[0] != '/' || memchr(path, '\\', strcspn(path, "?")) || strncmp(path, "//", 2) == 0))
        abort();
    policy_free(policy);
    policy_model_free(model);
}

static void compile(const struct policy_model *model, const struct policy_node *node) {
    struct policy_warnings warnings = {0};
    struct policy *policy = NULL, *copy = NULL;
    struct error err = {0};
    size_t size;
    if (policy_compile(model, node, NULL, 0, 1, &policy, &warnings, &err) == 0) {
        const void *block = policy_block(policy, &size);
        if (policy_from_block(block, size, &copy, &err) < 0) abort(); // a gate could not start with it
        ask(copy);
        ask_credentials(copy, "/repos/octo/hello/%2e%2e/x?y", 28);
    }
    policy_free(copy);
    policy_free(policy);
    policy_warnings_done(&warnings);
}

static void use_model(struct policy_model *model) {
    struct error err = {0};
    for (int type = 0; type < POLICY_TYPE_COUNT; type++) policy_check_type(model, (enum policy_type)type, &err);
    compile(model, NULL);
    if (policy_model_learn(model, &err) == 0) compile(model, NULL);
}

static size_t split(char *text, char **lines, size_t max) {
    size_t count = 0;
    for (char *rest = text; count < max && rest;) lines[count++] = strsep(&rest, "\n");
    return count;
}

static void read_options(char *text) {
    char *argv[65];
    int argc = (int)split(text, argv, ARRAY_LENGTH(argv) - 1), result = 1;
    struct policy_options options = {0};
    struct policy_model *model = NULL;
    enum policy_type type;
    struct error err = {0};
    argv[argc] = NULL;
    for (int i = 0; i < argc && result == 1;) result = policy_options_take(&options, argc, argv, &i, &err);
    // Files are not ours to read here.
    if (result == 1 && !options.policy_file && policy_options_finish(&options, &model, &type, &err) == 0) use_model(model);
    policy_model_free(model);
    policy_options_done(&options);
}

static void read_node(const char *text, size_t len, char **environment) {
    struct error err = {0};
    struct policy_node node;
    if (policy_node_read(text, len, "node.yaml", environment, &node, &err) < 0) return;
    struct policy_model *model = policy_model_new(POLICY_DIALECT_NATIVE);
    if (model && policy_model_allow(model, "a.org", "--allow a.org", &err) == 0) compile(model, &node);
    policy_model_free(model);
    policy_node_done(&node);
}

static void read_text(char kind, char *text, size_t len) {
    struct error err = {0};
    struct request request;
    struct ipc_resolver_server server;
    char *lines[65];
    switch (kind) {
    case '4':
        read_options(text);
        return;
    case '5':
        request_parse(text, len, &request, &err);
        nameserver_parse(text, &server, &err);
        return;
    case '6':
        lines[split(text, lines, ARRAY_LENGTH(lines) - 1)] = NULL;
        read_node(NULL, 0, lines);
        return;
    case '7':
        read_path(text, len);
        return;
    default:
        read_node(text, len, NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct error err = {0};
    struct policy_model *model = NULL;
    if (size == 0) return 0;
    char *text = malloc(size); // without the first byte, with a NUL
    if (!text) abort();
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    if (data[0] < '0' || data[0] > '3') {
        read_text((char)data[0], text, size - 1);
    } else if (policy_read(text, size - 1, "policy.yaml", (enum policy_dialect)(data[0] - '0'), &model, &err) == 0) {
        use_model(model);
    }
    policy_model_free(model);
    free(text);
    return 0;
}
