// SPDX-License-Identifier: Apache-2.0
// Penstock's own endpoints of a sandbox: a command in it, what its policy says of a URL, what was decided.
#include <errno.h>

#include "api/fields.h"
#include "api/query.h"
#include "api/route.h"
#include "api/render.h"
#include "base/mem.h"

#define ARGS_MAX 4096
#define TEXT_MAX (1 << 20)
#define URL_MAX 4096

struct command {
    struct api_exec exec;
    char **args; // its strings are the body's
    char **env;  // with its strings
    char *shell[4];
};

static void command_done(struct command *command) {
    for (char **at = command->env; at && *at; at++) free(*at);
    free(command->env);
    free(command->args);
}

static int read_argv(json_t *body, struct command *command, struct error *err) {
    size_t count = 0;
    const char *script = NULL;
    if (json_is_string(json_object_get(body, "cmd"))) {
        int r = field_string(body, "cmd", TEXT_MAX, &script, err);
        command->shell[0] = (char *)(uintptr_t) "/bin/sh";
        command->shell[1] = (char *)(uintptr_t) "-c";
        command->shell[2] = (char *)(uintptr_t)script;
        command->exec.argv = command->shell;
        return r < 0 ? r : 0;
    }
    int r = field_strings(body, "cmd", ARGS_MAX, &command->args, &count, err);
    if (r >= 0 && (count == 0 || !command->args[0][0]))
        return error_set(err, -EINVAL, "cmd is missing; send a list [\"program\", \"argument\"] or a shell command");
    command->exec.argv = command->args;
    return r < 0 ? r : 0;
}

static int read_env(json_t *body, struct command *command, struct error *err) {
    json_t *env = json_object_get(body, "env"), *value;
    const char *name;
    AUTO_FREE char *checked = NULL;
    size_t used = 0;
    int r = field_variables(body, "env", TEXT_MAX, &checked, err);
    command->env = r < 0 ? NULL : NEW_ARRAY(char *, json_object_size(env) + 1);
    command->exec.env = command->env;
    if (r < 0 || !command->env) return r < 0 ? r : error_set(err, -ENOMEM, "out of memory");
    if (r == 0) return 0;
    json_object_foreach(env, name, value) {
        if (asprintf(&command->env[used], "%s=%s", name, json_string_value(value)) < 0) {
            command->env[used] = NULL;
            return error_set(err, -ENOMEM, "out of memory");
        }
        used++;
    }
    return 0;
}

static int read_command(json_t *body, struct command *command, struct error *err) {
    const char *input = NULL;
    int r = read_argv(body, command, err);
    if (r == 0) r = read_env(body, command, err);
    if (r >= 0) r = field_string(body, "cwd", 4096, &command->exec.cwd, err);
    if (r >= 0 && command->exec.cwd && command->exec.cwd[0] != '/')
        r = error_set(err, -EINVAL, "cwd \"%s\" must be an absolute path", command->exec.cwd);
    if (r >= 0) r = field_string(body, "user", 256, &command->exec.user, err);
    json_t *given = json_object_get(body, "stdin");
    if (r >= 0 && !(json_is_string(given) && json_string_length(given) == 0))
        r = field_string(body, "stdin", TEXT_MAX, &input, err);
    command->exec.input = input ? input : "";
    command->exec.input_len = input ? strlen(input) : 0;
    return r < 0 ? r : 0;
}

void route_exec(struct api_request *request) {
    struct store_sandbox sandbox;
    struct command command = {0};
    struct error err = {0};
    int r = read_command(request->body, &command, &err);
    if (r < 0) {
        api_reply_errno(request->call, r, err.text);
    } else if (call_sandbox(request, &sandbox)) {
        if (sandbox.state == STORE_RUNNING) {
            request->call->handed = true;
            request->api->options.backend->exec(request->api->options.data, request->call, &sandbox, &command.exec);
        } else {
            api_reply_error(request->call, 409, "a command cannot be run in %s state", store_state_name(sandbox.state));
        }
        store_sandbox_done(&sandbox);
    }
    command_done(&command);
}

// ---- a command's output ----

static char *base64(const uint8_t *bytes, size_t len) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *text = malloc((len + 2) / 3 * 4 + 1), *at = text;
    for (size_t i = 0; text && i < len; i += 3) {
        uint32_t group = (uint32_t)bytes[i] << 16 | (i + 1 < len ? (uint32_t)bytes[i + 1] << 8 : 0) |
                         (i + 2 < len ? bytes[i + 2] : 0);
        *at++ = digits[group >> 18];
        *at++ = digits[group >> 12 & 63];
        *at++ = i + 1 < len ? digits[group >> 6 & 63] : '=';
        *at++ = i + 2 < len ? digits[group & 63] : '=';
    }
    if (text) *at = '\0';
    return text;
}

static size_t write_line(struct api_call *call, json_t *json) {
    AUTO_FREE char *text = render_dump(json);
    struct buf line = BUF_INIT;
    json_decref(json);
    call_begin(call, "application/x-ndjson");
    buf_printf(&line, "%s\n", text ? text : "{\"error\":\"out of memory\"}");
    size_t pending = call_write(call, line.data, line.len);
    buf_done(&line);
    return pending;
}

size_t api_exec_output(struct api_call *call, enum api_output output, const void *bytes, size_t len) {
    json_t *text = json_stringn(bytes, len);
    const char *name = output == API_STDOUT ? "stdout" : "stderr";
    if (text) return write_line(call, json_pack("{s:o}", name, text));
    AUTO_FREE char *encoded = base64(bytes, len);
    name = output == API_STDOUT ? "stdout_base64" : "stderr_base64";
    return write_line(call, encoded ? json_pack("{s:s}", name, encoded) : NULL);
}

void api_exec_end(struct api_call *call, int exit_status, int signal, const char *error) {
    json_t *line = error ? json_pack("{s:o}", "error", json_string(error))
                 : signal ? json_pack("{s:i,s:i}", "exit", 128 + signal, "signal", signal)
                          : json_pack("{s:i}", "exit", exit_status);
    write_line(call, line);
    call_end(call);
}

// ---- explain, decisions ----

void route_explain(struct api_request *request) {
    struct store_sandbox sandbox;
    const char *url = query_get(request, "url");
    if (!url || !*url || strlen(url) > URL_MAX) {
        api_reply_error(request->call, 400, "url is missing or too long; ask ?url=https://example.com/");
        return;
    }
    if (!call_sandbox(request, &sandbox)) return;
    request->api->options.backend->explain(request->api->options.data, request->call, &sandbox, url);
    store_sandbox_done(&sandbox);
}

void route_decisions(struct api_request *request) {
    struct store_sandbox sandbox;
    if (!call_sandbox(request, &sandbox)) return;
    request->call->want_follow = query_is_true(request, "follow");
    request->call->want_denied = query_is_true(request, "denied");
    request->api->options.backend->decisions(request->api->options.data, request->call, &sandbox);
    store_sandbox_done(&sandbox);
}
