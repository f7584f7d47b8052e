// SPDX-License-Identifier: Apache-2.0
// `penstock check`: whether a policy is valid, what it compiles to, and what it says about one request. It asks the
// same functions as the gate; addresses of this host are loopback and the config's own_addresses only, so the answer
// does not depend on the machine.
#include <errno.h>
#include <jansson.h>

#include "base/buf.h"
#include "base/mem.h"
#include "cli/check_cases.h"
#include "cli/cli.h"
#include "cli/policy_options.h"
#include "daemon/daemon.h"
#include "policy/request.h"

#define RESOLVED_MAX 64

// Type host runs directly on the host: whatever a policy for it says, nothing is in the way.
static const struct policy_rule_info check_unenforced = {.text = "not enforced: every destination is reached",
                                                         .source = "type host"};

struct check {
    struct policy_options options;
    const char *cases;
    const char *request_text;
    bool json;
    struct addr resolved[RESOLVED_MAX];
    size_t resolved_count;
    enum policy_type type;
    struct policy_model *model;
    struct policy_node node;
    bool has_node;
    struct policy *policy;
    struct error err;
};

static void check_done(struct check *check) {
    policy_options_done(&check->options);
    policy_model_free(check->model);
    if (check->has_node) policy_node_done(&check->node);
    policy_free(check->policy);
}

// --- arguments ---

static int take_resolved(struct check *check, const char *text) {
    if (check->resolved_count >= RESOLVED_MAX)
        return error_set(&check->err, -EINVAL, "--resolved is given more than 64 times");
    if (addr_parse(text, strlen(text), &check->resolved[check->resolved_count]) != 0)
        return error_set(&check->err, -EINVAL,
                         "--resolved: \"%.200s\" is not an IP address; write such as 203.0.113.10", text);
    check->resolved_count++;
    return 0;
}

// The value of an option that takes one: "--name VALUE" or "--name=VALUE". NULL if argv[*index] is another option, or
// (with a message) if the value is missing.
static const char *option_value(struct check *check, int argc, char **argv, int *index, const char *name) {
    size_t len = strlen(name);
    const char *argument = argv[*index];
    if (strncmp(argument, name, len) != 0 || (argument[len] != '\0' && argument[len] != '=')) return NULL;
    if (argument[len] == '=') {
        ++*index;
        return argument + len + 1;
    }
    if (*index + 1 >= argc) {
        error_set(&check->err, -EINVAL, "%s needs a value", name);
        return NULL;
    }
    *index += 2;
    return argv[*index - 1];
}

// 1: taken. 0: not an option of check.
static int take_own_option(struct check *check, int argc, char **argv, int *index) {
    if (strcmp(argv[*index], "--json") == 0) {
        check->json = true;
        ++*index;
        return 1;
    }
    const char *value = option_value(check, argc, argv, index, "--resolved");
    if (value) return take_resolved(check, value) < 0 ? -EINVAL : 1;
    if (check->err.text[0]) return -EINVAL;
    value = option_value(check, argc, argv, index, "--cases");
    if (value) check->cases = value;
    return check->err.text[0] ? -EINVAL : value != NULL;
}

static int take_request(struct check *check, const char *text) {
    if (check->request_text)
        return error_set(&check->err, -EINVAL, "one request at a time, not \"%.200s\" and \"%.200s\"; remove one",
                         check->request_text, text);
    check->request_text = text;
    return 0;
}

// 0, or the exit status of an error that has been printed.
static int parse_arguments(struct check *check, int argc, char **argv) {
    bool options_end = false;
    int i = 1;
    while (i < argc) {
        if (!options_end && strcmp(argv[i], "--") == 0) {
            options_end = true;
            i++;
            continue;
        }
        if (options_end || argv[i][0] != '-') {
            if (take_request(check, argv[i++]) < 0) return cli_fail(CLI_INVALID, &check->err);
            continue;
        }
        int r = take_own_option(check, argc, argv, &i);
        if (r == 0) r = policy_options_take(&check->options, argc, argv, &i, &check->err);
        if (r < 0) return cli_fail(CLI_INVALID, &check->err);
        if (r == 0) {
            error_set(&check->err, -EINVAL, "unknown option \"%.200s\"", argv[i]);
            return cli_usage_error(CLI_INVALID, "check", "%s", check->err.text);
        }
    }
    return 0;
}

// --- output ---

static void print_warnings(const struct policy_warnings *warnings) {
    for (size_t i = 0; i < warnings->count; i++) fprintf(stderr, "penstock: warning: %s\n", warnings->lines[i]);
    if (warnings->more > 0) fprintf(stderr, "penstock: warning: and %zu more\n", warnings->more);
}

static void print_json(json_t *object) {
    if (object) json_dumpf(object, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER);
    printf("\n");
    json_decref(object);
}

static size_t rule_count(const struct check *check) {
    return check->type == POLICY_TYPE_HOST ? 1 : policy_rule_count(check->policy);
}

static struct policy_rule_info rule_info(const struct check *check, size_t index) {
    return check->type == POLICY_TYPE_HOST ? check_unenforced : policy_rule_info(check->policy, (uint32_t)index);
}

static void print_policy_text(const struct check *check) {
    int width = 0;
    size_t count = rule_count(check);
    for (size_t i = 0; i < count; i++) {
        int len = (int)strlen(rule_info(check, i).text);
        if (len > width && len <= 60) width = len;
    }
    printf("valid for type %s\n", policy_type_info(check->type)->word);
    for (size_t i = 0; i < count; i++) {
        struct policy_rule_info rule = rule_info(check, i);
        printf("  %-*s  (%s)\n", width, rule.text, rule.source);
    }
    for (size_t i = 0; i < check->model->binding_count; i++) {
        char text[POLICY_BINDING_TEXT_SIZE];
        printf("  credential %-*s  (%s)\n", width > 11 ? width - 11 : 0, policy_binding_text(&check->model->bindings[i], text),
               check->model->bindings[i].source);
    }
}

static json_t *json_words(char *const *words, size_t count) {
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++) json_array_append_new(array, json_string(words[i]));
    return array;
}

// Conditions that are not set are absent; no value and no template is shown.
static json_t *json_binding(const struct policy_binding *binding) {
    struct policy_binding_target targets[POLICY_BINDING_TARGETS];
    size_t count = policy_binding_targets(binding, targets);
    const char *secret = policy_binding_secret(binding);
    bool shown = *secret && !binding->literal && strncmp(secret, "cmd:", 4) != 0;
    json_t *hosts = json_array();
    for (size_t i = 0; i < count; i++) json_array_append_new(hosts, json_string(targets[i].host));
    return json_pack("{s:s,s:o,s:s*,s:o*,s:s*,s:o*,s:s*,s:s*,s:b,s:s}", "binding", policy_binding_word(binding->kind),
                     "hosts", hosts, "header", count > 0 ? targets[0].header : NULL, "repos",
                     binding->repo_count ? json_words(binding->repos, binding->repo_count) : NULL, "path", binding->path,
                     "methods", binding->method_count ? json_words(binding->methods, binding->method_count) : NULL,
                     "variable", binding->variable, "secret", shown ? secret : NULL, "scrub", binding->scrub, "source",
                     binding->source);
}

static void print_policy_json(const struct check *check) {
    json_t *rules = json_array();
    for (size_t i = 0; i < rule_count(check); i++) {
        struct policy_rule_info rule = rule_info(check, i);
        json_array_append_new(rules, json_pack("{s:s,s:s}", "rule", rule.text, "source", rule.source));
    }
    json_t *credentials = json_array();
    for (size_t i = 0; i < check->model->binding_count; i++)
        json_array_append_new(credentials, json_binding(&check->model->bindings[i]));
    print_json(json_pack("{s:b,s:s,s:o,s:o}", "valid", 1, "type", policy_type_info(check->type)->word, "rules", rules,
                         "credentials", credentials));
}

// The names of the bindings whose values the request gets, in the log's form; empty: none.
static void credential_names(const struct check *check, const struct request *request, const struct request_verdict *verdict,
                             struct buf *names) {
    struct policy_credential credentials[POLICY_CREDENTIALS_MAX];
    size_t count = request_credentials(check->policy, request, verdict, credentials);
    for (size_t i = 0; i < count; i++) buf_printf(names, "%s%s", i ? ", " : "", credentials[i].name);
}

// Also what the host has for other requests.
static void print_credential(const struct check *check, const struct request *request, const struct request_verdict *verdict,
                             const struct buf *names) {
    if (verdict->decision.verdict != POLICY_ALLOW || request->host.is_address ||
        !policy_name_bound(check->policy, request->host.name))
        return;
    if (names->len) printf("credential: %s\n", names->data);
    else if (request->app == POLICY_APP_TLS) printf("credential: none for a GET of this path\n");
    else printf("credential: none, as this is not HTTPS\n");
    for (size_t i = 0; i < check->model->binding_count && !names->len; i++) {
        struct policy_binding_target targets[POLICY_BINDING_TARGETS];
        char text[POLICY_BINDING_TEXT_SIZE];
        size_t count = policy_binding_targets(&check->model->bindings[i], targets);
        for (size_t k = 0; k < count; k++)
            if (strcmp(targets[k].host, request->host.name) == 0)
                printf("  bound to the host: %s\n", policy_binding_text(&check->model->bindings[i], text));
    }
}

static void print_verdict_json(const struct request *request, const struct request_verdict *verdict,
                               const struct policy_rule_info *rule, const struct buf *credential, const char *hint) {
    char address[ADDR_TEXT_SIZE];
    const char *name = request->host.is_address ? NULL : request->host.name;
    print_json(json_pack("{s:s,s:s,s:s?,s:s?,s:s?,s:s?,s:o,s:s?,s:s?}", "verdict",
                         policy_verdict_name(verdict->decision.verdict), "reason",
                         policy_reason_name(verdict->decision.reason), "rule", rule->text, "source", rule->source, "name",
                         name, "address", verdict->has_address ? addr_format(&verdict->address, address) : NULL, "port",
                         request->port ? json_integer(request->port) : json_null(), "credential",
                         credential->len ? credential->data : NULL, "hint", hint[0] ? hint : NULL));
}

static void print_verdict_text(const struct check *check, const struct request *request,
                               const struct request_verdict *verdict, const struct policy_rule_info *rule,
                               const struct buf *credential, const char *hint) {
    char address[ADDR_TEXT_SIZE];
    const struct policy_decision *decision = &verdict->decision;
    printf("%s %s\n", policy_verdict_name(decision->verdict), policy_reason_name(decision->reason));
    if (rule->text) printf("rule: %s\nsource: %s\n", rule->text, rule->source);
    if (!request->host.is_address) printf("name: %s\n", request->host.name);
    if (verdict->has_address)
        printf("address: %s\n", addr_format(&verdict->address, address));
    else if (check->resolved_count == 0 && request->protocol != POLICY_DNS)
        printf("address not judged\n");
    if (request->port) printf("port: %u\n", request->port);
    print_credential(check, request, verdict, credential);
    if (hint[0]) printf("to allow it: %s\n", hint);
}

// --- the command ---

static int compile(struct check *check) {
    struct policy_warnings warnings = {0};
    int r = policy_options_finish(&check->options, &check->model, &check->type, &check->err);
    if (r == 0) r = policy_options_node(&check->options, check->model, &check->node, &check->has_node, &check->err);
    if (r == 0)
        r = policy_compile(check->model, check->has_node ? &check->node : NULL, NULL, 0, 1, &check->policy, &warnings,
                           &check->err);
    if (r == 0 && !policy_type_info(check->type)->built)
        policy_warnings_add(&warnings, "valid, but `penstock run` says \"not built yet\" to type %s",
                            policy_type_info(check->type)->word);
    for (size_t i = 0; r == 0 && policy_type_info(check->type)->built && i < check->model->binding_count; i++) {
        struct error missing = {0};
        if (daemon_secret_look(&check->model->bindings[i], &missing) < 0)
            policy_warnings_add(&warnings, "valid, but `penstock run` started here and now would refuse it: %s", missing.text);
    }
    print_warnings(&warnings);
    policy_warnings_done(&warnings);
    return r;
}

static int judge(struct check *check) {
    struct request request;
    if (request_parse(check->request_text, strlen(check->request_text), &request, &check->err) < 0)
        return cli_fail(CLI_INVALID, &check->err);
    if (check->resolved_count && (request.host.is_address || request.protocol == POLICY_DNS)) {
        error_set(&check->err, -EINVAL,
                  "--resolved goes with the name of a destination, not with \"%.200s\"; remove it",
                  check->request_text);
        return cli_fail(CLI_INVALID, &check->err);
    }
    struct request_verdict verdict =
        request_judge(check->policy, &request, check->resolved_count ? check->resolved : NULL, check->resolved_count);
    struct policy_rule_info rule = {0};
    if (check->type == POLICY_TYPE_HOST) {
        verdict.decision = (struct policy_decision){.verdict = POLICY_ALLOW, .reason = POLICY_ALLOWED_BASE};
        rule = check_unenforced;
    } else if (verdict.decision.rule != POLICY_RULE_NONE) {
        rule = policy_rule_info(check->policy, verdict.decision.rule);
    }
    char hint[POLICY_HINT_SIZE];
    CLEANUP(buf_done) struct buf credential = BUF_INIT;
    credential_names(check, &request, &verdict, &credential);
    request_hint(check->policy, &request, &verdict, hint);
    if (check->json)
        print_verdict_json(&request, &verdict, &rule, &credential, hint);
    else
        print_verdict_text(check, &request, &verdict, &rule, &credential, hint);
    return verdict.decision.verdict == POLICY_ALLOW ? CLI_OK : CLI_DENIED;
}

static int run(struct check *check) {
    if (check->cases) {
        const struct policy_options *options = &check->options;
        if (!options->policy_file && !options->model && !options->dialect && !options->type && !options->node_config &&
            !check->request_text && !check->resolved_count && !check->json)
            return check_cases_file(check->cases);
        error_set(&check->err, -EINVAL, "--cases \"%.200s\" stands alone; remove the other arguments", check->cases);
        return cli_fail(CLI_INVALID, &check->err);
    }
    if (check->resolved_count && !check->request_text) {
        error_set(&check->err, -EINVAL, "--resolved goes with a request; add such as https://api.example.com/");
        return cli_fail(CLI_INVALID, &check->err);
    }
    if (compile(check) < 0) return cli_fail(CLI_INVALID, &check->err);
    if (check->request_text) return judge(check);
    if (check->json)
        print_policy_json(check);
    else
        print_policy_text(check);
    return CLI_OK;
}

// Also where the arguments before or behind it are wrong.
static bool wants_json(int argc, char **argv) {
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--json") == 0) return true;
    return false;
}

int cli_check(int argc, char **argv) {
    struct check check = {0};
    int status = parse_arguments(&check, argc, argv);
    if (status == 0) status = run(&check);
    if (status == CLI_INVALID && check.err.text[0] && wants_json(argc, argv))
        print_json(json_pack("{s:b,s:s}", "valid", 0, "error", check.err.text));
    check_done(&check);
    return status;
}
