// SPDX-License-Identifier: Apache-2.0
// The commands that speak to a node: each is one call of its REST API, or a few, which --print-api shows.
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/node_options.h"
#include "cli/rest.h"

#define NODE_PATH_SIZE 2048
#define NODE_INPUT_MAX (1 << 20) // what the API takes as stdin, and below as a body
#define NODE_BODY_MAX (2 << 20)

static void print_json(const json_t *value) {
    json_dumpf(value, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_ENCODE_ANY);
    printf("\n");
}

static int ask(const struct node_options *options, const char *method, const char *path, const json_t *body,
               struct rest_answer *ret_answer, struct error *err) {
    const struct rest_call call = {.method = method, .path = path, .body = body, .print = options->print};
    int rc = rest_ask(&call, ret_answer, err);
    if (rc == 0 && ret_answer->warning) fprintf(stderr, "penstock: warning: %s\n", ret_answer->warning);
    return rc;
}

// "/sandboxes/ID" and what follows; ID cannot be another path.
static int sandbox_path(char path[NODE_PATH_SIZE], const char *id, const char *rest, struct error *err) {
    AUTO_FREE char *escaped = rest_escape(id);
    if (!escaped) return error_set(err, -ENOMEM, "out of memory");
    if (snprintf(path, NODE_PATH_SIZE, "/sandboxes/%s%s", escaped, rest) >= NODE_PATH_SIZE)
        return error_set(err, -EINVAL, "\"%.100s\" is too long", id);
    return 0;
}

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "-";
}

static int words_needed(const struct node_options *options, int least, int most, const char *what, struct error *err) {
    if (options->word_count < least) return error_set(err, -EINVAL, "%s is missing", what);
    if (options->word_count > most) return error_set(err, -EINVAL, "unknown argument \"%.200s\"", options->words[most]);
    return 0;
}

// ---- commands ----

#define NODE_NEVER "2069-12-07T" // how the API shows the end of what has none
#define NODE_TIME_SIZE 24

// A time to the second; the API's are finer.
static const char *time_of(const json_t *object, const char *key, char ret_text[NODE_TIME_SIZE]) {
    const char *text = text_of(object, key);
    size_t len = strcspn(text, ".");
    snprintf(ret_text, NODE_TIME_SIZE, "%.*s%s", (int)len, text, text[len] ? "Z" : "");
    return ret_text;
}

static const char *end_of(const json_t *sandbox, char ret_text[NODE_TIME_SIZE]) {
    bool paused = strcmp(text_of(sandbox, "state"), "paused") == 0; // which stops the clock
    return paused || strncmp(text_of(sandbox, "endAt"), NODE_NEVER, strlen(NODE_NEVER)) == 0 ? "never" : time_of(sandbox, "endAt", ret_text);
}

static int command_ps(const struct node_options *options, struct error *err) {
    json_t *all = json_array();
    AUTO_FREE char *token = NULL;
    int rc = words_needed(options, 0, 0, "", err);
    for (bool first = true; rc == 0 && (first || token); first = false) {
        char path[NODE_PATH_SIZE];
        struct rest_answer answer = {0};
        AUTO_FREE char *escaped = token ? rest_escape(token) : NULL;
        snprintf(path, sizeof(path), "/v2/sandboxes?state=running,paused&limit=100%s%s", escaped ? "&nextToken=" : "", escaped ? escaped : "");
        rc = ask(options, "GET", path, NULL, &answer, err);
        json_array_extend(all, answer.body);
        free(token);
        token = answer.next_token;
        answer.next_token = NULL;
        rest_answer_done(&answer);
    }
    if (rc == 0 && options->json && !options->print) print_json(all);
    if (rc == 0 && !options->json && !options->print) {
        size_t index;
        json_t *sandbox;
        char started[NODE_TIME_SIZE], end[NODE_TIME_SIZE];
        printf("%-22s %-8s %-30s %-22s %s\n", "SANDBOX", "STATE", "TEMPLATE", "STARTED", "ENDS");
        json_array_foreach(all, index, sandbox)
            printf("%-22s %-8s %-30s %-22s %s\n", text_of(sandbox, "sandboxID"), text_of(sandbox, "state"),
                   text_of(sandbox, "alias")[0] == '-' ? text_of(sandbox, "templateID") : text_of(sandbox, "alias"),
                   time_of(sandbox, "startedAt", started), end_of(sandbox, end));
    }
    json_decref(all);
    return rc;
}

static int command_create(const struct node_options *options, struct error *err) {
    struct rest_answer answer = {0};
    AUTO_FREE char *policy = NULL;
    const char *image = options->image ? options->image : options->word_count > 0 && !options->template_id ? options->words[0] : NULL;
    int rc = words_needed(options, 0, image == options->image ? 0 : 1, "", err);
    if (rc == 0 && !image == !options->template_id)
        rc = error_set(err, -EINVAL, "name either an image or --template NAME to make the sandbox from");
    struct node_options closed = *options; // what is not said is none, as in `run`: the API's own is all that is public
    bool said = options->policy || options->network || options->allow || options->deny || options->open_private;
    if (!said) closed.network = "none";
    if (rc == 0) rc = node_policy_text(&closed, &policy, err);
    json_t *body = json_pack("{s:s*,s:s*,s:s*,s:s*,s:O*,s:O*}", "image", image, "templateID", options->template_id, "policy", policy,
                             "type", options->type, "envVars", options->env, "metadata", options->metadata);
    if (!options->timeout) json_object_set_new(body, "expires", json_false());
    if (rc == 0) rc = node_number_put(body, "timeout", "--timeout", options->timeout, err);
    if (rc == 0) rc = node_memory_put(body, options->memory, err);
    if (rc == 0) rc = node_number_put(body, "cpuCount", "--cpus", options->cpus, err);
    if (rc == 0) rc = ask(options, "POST", image ? "/sandboxes-cold" : "/sandboxes", body, &answer, err);
    if (rc == 0 && options->json && answer.body) print_json(answer.body);
    if (rc == 0 && !options->json && answer.body) printf("%s\n", text_of(answer.body, "sandboxID"));
    json_decref(body);
    rest_answer_done(&answer);
    return rc;
}

// A line of a command's output.
static void exec_line(const char *text, void *data) {
    int *status = data;
    json_t *line = json_loads(text, JSON_ALLOW_NUL, NULL);
    if (!line) fprintf(stderr, "penstock: the node sent a line that cannot be read; use penstock of the node's version\n");
    const struct {
        const char *key;
        FILE *file;
    } streams[] = {{"stdout", stdout}, {"stderr", stderr}};
    for (size_t i = 0; i < ARRAY_LENGTH(streams); i++) {
        char key[32];
        snprintf(key, sizeof(key), "%s_base64", streams[i].key);
        json_t *plain = json_object_get(line, streams[i].key), *coded = json_object_get(line, key);
        if (plain) fwrite(json_string_value(plain), 1, json_string_length(plain), streams[i].file);
        if (coded) rest_write_base64(json_string_value(coded), streams[i].file);
        fflush(streams[i].file);
    }
    if (json_object_get(line, "exit")) *status = (int)json_integer_value(json_object_get(line, "exit"));
    if (json_object_get(line, "error")) fprintf(stderr, "penstock: %s\n", text_of(line, "error"));
    json_decref(line);
}

// All of standard input.
static int exec_input(json_t **ret_input, struct error *err) {
    struct buf text = BUF_INIT;
    int rc = buf_read_fd(&text, STDIN_FILENO, NODE_INPUT_MAX);
    if (rc == -EFBIG) rc = error_set(err, -EINVAL, "--stdin: standard input has more than 1 MiB, which the API does not take; send less");
    else if (rc < 0) error_set(err, rc, "--stdin: %s", strerror(-rc));
    if (rc == 0) *ret_input = text.len && memchr(text.data, 0, text.len) ? NULL : json_stringn(text.data ? text.data : "", text.len);
    buf_done(&text);
    return rc == 0 && !*ret_input ? error_set(err, -EINVAL, "--stdin: standard input is not text (UTF-8 without NUL), as the API needs; encode it, "
                                                            "as in base64 FILE | penstock exec -i ID -- base64 -d") : rc;
}

static int command_exec(const struct node_options *options, struct error *err) {
    char path[NODE_PATH_SIZE];
    struct rest_answer answer = {0};
    json_t *cmd = json_array();
    int status = CLI_RUN_ERROR;
    int rc = options->word_count > 1 ? 0 : words_needed(options, 1, 1, "the sandbox's id", err);
    for (char **word = options->command; word && *word; word++) json_array_append_new(cmd, json_string(*word));
    if (rc == 0 && (json_array_size(cmd) == 0 || options->word_count > 1))
        rc = error_set(err, -EINVAL, "no command: write it behind --, as in penstock exec ID -- ls /");
    json_t *input = NULL;
    if (rc == 0 && options->input) rc = exec_input(&input, err);
    json_t *body = json_pack("{s:o,s:o*,s:O*,s:s*,s:s*}", "cmd", cmd, "stdin", input, "env", options->env,
                             "cwd", options->cwd, "user", options->user);
    if (rc == 0) rc = sandbox_path(path, options->words[0], "/exec", err);
    if (rc == 0 && json_dumpb(body, NULL, 0, JSON_COMPACT) > NODE_BODY_MAX)
        rc = error_set(err, -EINVAL, "the call would be of more than 2 MiB, which the API does not take; send less");
    const struct rest_call call = {.method = "POST", .path = path, .body = body, .print = options->print, .line = exec_line, .data = &status};
    if (rc == 0) rc = rest_ask(&call, &answer, err);
    json_decref(body);
    rest_answer_done(&answer);
    return rc < 0 ? rc : options->print ? 0 : status;
}

static int command_update(const struct node_options *options, struct error *err) {
    char path[NODE_PATH_SIZE];
    struct rest_answer answer = {0};
    AUTO_FREE char *policy = NULL;
    int rc = words_needed(options, 1, 1, "the sandbox's id", err);
    if (rc == 0) rc = node_policy_text(options, &policy, err);
    if (rc == 0 && !policy) rc = error_set(err, -EINVAL, "no policy: give --policy FILE, or --network, --allow and so on");
    if (rc == 0 && options->existing && strcmp(options->existing, "keep") != 0)
        rc = error_set(err, -EINVAL, "--existing \"%.100s\": write keep", options->existing);
    if (rc == 0) rc = sandbox_path(path, options->words[0], options->existing ? "/network?existing=keep" : "/network", err);
    json_t *body = json_pack("{s:s*}", "policy", policy);
    if (rc == 0) rc = ask(options, "PUT", path, body, &answer, err);
    if (rc == 0 && answer.update) printf("%s\n", answer.update);
    json_decref(body);
    rest_answer_done(&answer);
    return rc;
}

static void log_line(const char *text, void *data) {
    (void)data;
    printf("%s\n", text);
    fflush(stdout);
}

static int command_log(const struct node_options *options, struct error *err) {
    char path[NODE_PATH_SIZE];
    struct rest_answer answer = {0};
    int rc = words_needed(options, 1, 1, "the sandbox's id", err);
    static const char *const rests[] = {"/decisions", "/decisions?denied=1", "/decisions?follow=1", "/decisions?denied=1&follow=1"};
    if (rc == 0) rc = sandbox_path(path, options->words[0], rests[options->denied + 2 * options->follow], err);
    const struct rest_call call = {.method = "GET", .path = path, .print = options->print, .line = log_line};
    if (rc == 0) rc = rest_ask(&call, &answer, err);
    rest_answer_done(&answer);
    return rc;
}

static int command_explain(const struct node_options *options, struct error *err) {
    char path[NODE_PATH_SIZE];
    struct rest_answer answer = {0};
    AUTO_FREE char *rest = NULL, *url = NULL;
    int rc = words_needed(options, 2, 2, "the sandbox's id and a URL", err);
    if (rc == 0 && (!(url = rest_escape(options->words[1])) || asprintf(&rest, "/explain?url=%s", url) < 0))
        rc = error_set(err, -ENOMEM, "out of memory");
    if (rc == 0) rc = sandbox_path(path, options->words[0], rest, err);
    if (rc == 0) rc = ask(options, "GET", path, NULL, &answer, err);
    bool denied = strcmp(text_of(answer.body, "verdict"), "deny") == 0;
    if (rc == 0 && answer.body && options->json) print_json(answer.body);
    if (rc == 0 && answer.body && !options->json) {
        printf("%s: %s (%s, %s)\n", text_of(answer.body, "verdict"), text_of(answer.body, "reason"), text_of(answer.body, "rule"),
               text_of(answer.body, "source"));
        if (json_is_string(json_object_get(answer.body, "hint"))) printf("to allow it: %s\n", text_of(answer.body, "hint"));
    }
    rest_answer_done(&answer);
    return rc < 0 ? rc : denied ? CLI_DENIED : 0;
}

static int remove_one(const struct node_options *options, const char *id, struct error *err) {
    char path[NODE_PATH_SIZE];
    struct rest_answer answer = {0};
    int rc = sandbox_path(path, id, "", err);
    if (rc == 0) rc = ask(options, "DELETE", path, NULL, &answer, err);
    rest_answer_done(&answer);
    return rc;
}

static int command_rm(const struct node_options *options, struct error *err) {
    struct rest_answer answer = {0};
    int rc = options->all ? words_needed(options, 0, 0, "", err) : words_needed(options, 1, INT32_MAX, "the sandbox's id", err);
    for (int i = 0; rc == 0 && i < options->word_count; i++) rc = remove_one(options, options->words[i], err);
    if (rc == 0 && options->all) rc = ask(options, "GET", "/v2/sandboxes?state=running,paused&limit=100", NULL, &answer, err);
    while (rc == 0 && json_array_size(answer.body) > 0) {
        for (size_t i = 0; rc == 0 && i < json_array_size(answer.body); i++)
            rc = remove_one(options, text_of(json_array_get(answer.body, i), "sandboxID"), err);
        rest_answer_done(&answer);
        if (rc == 0) rc = ask(options, "GET", "/v2/sandboxes?state=running,paused&limit=100", NULL, &answer, err);
    }
    rest_answer_done(&answer);
    return rc;
}

// ---- templates and snapshots ----

static int list_items(const struct node_options *options, const char *path, const char *id, const char *names, struct error *err) {
    struct rest_answer answer = {0};
    int rc = ask(options, "GET", path, NULL, &answer, err);
    if (rc == 0 && answer.body && options->json) print_json(answer.body);
    for (size_t i = 0; rc == 0 && !options->json && i < json_array_size(answer.body); i++) {
        const json_t *item = json_array_get(answer.body, i), *list = json_object_get(item, names);
        printf("%-22s", text_of(item, id));
        for (size_t k = 0; k < json_array_size(list); k++) printf(" %s", json_string_value(json_array_get(list, k)));
        printf("\n");
    }
    rest_answer_done(&answer);
    return rc;
}

static int remove_templates(const struct node_options *options, struct error *err) {
    int rc = words_needed(options, 2, INT32_MAX, "the template's name or id", err);
    for (int i = 1; rc == 0 && i < options->word_count; i++) {
        char path[NODE_PATH_SIZE];
        struct rest_answer answer = {0};
        AUTO_FREE char *escaped = rest_escape(options->words[i]);
        snprintf(path, sizeof(path), "/templates/%s", escaped ? escaped : "");
        rc = ask(options, "DELETE", path, NULL, &answer, err);
        rest_answer_done(&answer);
    }
    return rc;
}

static int build_wait(const struct node_options *options, const char *template_id, const char *build_id, struct error *err) {
    char path[NODE_PATH_SIZE];
    json_int_t seen = 0;
    for (int tries = 0; tries < 7200; tries++) {
        struct rest_answer answer = {0};
        snprintf(path, sizeof(path), "/templates/%s/builds/%s/status?logsOffset=%lld", template_id, build_id, (long long)seen);
        int rc = ask(options, "GET", path, NULL, &answer, err);
        const json_t *lines = json_object_get(answer.body, "logs");
        for (size_t i = 0; i < json_array_size(lines); i++) fprintf(stderr, "%s\n", json_string_value(json_array_get(lines, i)));
        seen += (json_int_t)json_array_size(lines);
        const char *status = text_of(answer.body, "status");
        bool ready = strcmp(status, "ready") == 0;
        if (rc == 0 && strcmp(status, "error") == 0)
            rc = error_set(err, -EIO, "the build failed: %s", text_of(json_object_get(answer.body, "reason"), "message"));
        rest_answer_done(&answer);
        if (rc < 0 || ready) return rc;
        usleep(200000);
    }
    return error_set(err, -ETIMEDOUT, "the build takes too long");
}

static int create_template(const struct node_options *options, struct error *err) {
    char path[NODE_PATH_SIZE];
    struct rest_answer made = {0}, built = {0};
    AUTO_FREE char *policy = NULL;
    int rc = words_needed(options, 2, 2, "the image", err);
    if (rc == 0 && !options->name) rc = error_set(err, -EINVAL, "the template needs a name: --name NAME");
    if (rc == 0) rc = node_policy_text(options, &policy, err);
    json_t *body = json_pack("{s:s*}", "name", options->name);
    json_t *build = json_pack("{s:s*,s:s*,s:O*,s:s*,s:s*}", "fromImage", rc == 0 ? options->words[1] : NULL, "policy", policy, "steps",
                              options->steps, "startCmd", options->start, "readyCmd", options->ready);
    if (rc == 0) rc = node_memory_put(body, options->memory, err);
    if (rc == 0) rc = node_number_put(body, "cpuCount", "--cpus", options->cpus, err);
    if (rc == 0) rc = ask(options, "POST", "/v3/templates", body, &made, err);
    if (rc == 0) {
        snprintf(path, sizeof(path), "/v2/templates/%s/builds/%s", options->print ? "TEMPLATE" : text_of(made.body, "templateID"),
                 options->print ? "BUILD" : text_of(made.body, "buildID"));
        rc = ask(options, "POST", path, build, &built, err);
    }
    if (rc == 0 && !options->print) rc = build_wait(options, text_of(made.body, "templateID"), text_of(made.body, "buildID"), err);
    if (rc == 0 && !options->print) printf("%s\n", text_of(made.body, "templateID"));
    json_decref(body);
    json_decref(build);
    rest_answer_done(&made);
    rest_answer_done(&built);
    return rc;
}

static int command_template(const struct node_options *options, struct error *err) {
    const char *what = options->word_count > 0 ? options->words[0] : "";
    if (strcmp(what, "create") == 0) return create_template(options, err);
    if (strcmp(what, "ls") == 0) return list_items(options, "/templates", "templateID", "names", err);
    if (strcmp(what, "rm") == 0) return remove_templates(options, err);
    return error_set(err, -EINVAL, "\"%.100s\": write create, ls or rm", what);
}

static int command_snapshot(const struct node_options *options, struct error *err) {
    char path[NODE_PATH_SIZE];
    struct rest_answer answer = {0};
    if (options->word_count > 0 && strcmp(options->words[0], "ls") == 0) return list_items(options, "/snapshots", "snapshotID", "names", err);
    if (options->word_count > 0 && strcmp(options->words[0], "rm") == 0) return remove_templates(options, err);
    int rc = words_needed(options, 1, 1, "the sandbox's id", err);
    json_t *body = json_pack("{s:s*}", "name", options->name);
    if (rc == 0) rc = sandbox_path(path, options->words[0], "/snapshots", err);
    if (rc == 0) rc = ask(options, "POST", path, body, &answer, err);
    if (rc == 0 && answer.body) printf("%s\n", text_of(answer.body, "snapshotID"));
    json_decref(body);
    rest_answer_done(&answer);
    return rc;
}

static const struct {
    const char *word;
    char letter;
    int (*run)(const struct node_options *options, struct error *err); // >= 0: exit status
    int failure;
} node_commands[] = {
    {"ps", 'p', command_ps, CLI_DENIED},       {"create", 'c', command_create, CLI_DENIED},
    {"exec", 'e', command_exec, CLI_RUN_ERROR}, {"update", 'u', command_update, CLI_DENIED},
    {"log", 'l', command_log, CLI_DENIED},     {"explain", 'x', command_explain, CLI_INVALID},
    {"rm", 'r', command_rm, CLI_DENIED},       {"template", 't', command_template, CLI_DENIED},
    {"snapshot", 's', command_snapshot, CLI_DENIED},
};

int cli_node(int argc, char **argv) {
    for (size_t i = 0; i < ARRAY_LENGTH(node_commands); i++) {
        if (strcmp(argv[0], node_commands[i].word) != 0) continue;
        struct node_options options = {0};
        struct error err = {0};
        int rc = node_options_read(&options, node_commands[i].letter, argc, argv, &err);
        bool usage = rc < 0;
        if (rc == 0) rc = node_commands[i].run(&options, &err);
        node_options_done(&options);
        if (rc >= 0) return rc;
        return cli_fail(usage || rc == -EINVAL ? CLI_INVALID : node_commands[i].failure, &err);
    }
    return CLI_INVALID;
}
