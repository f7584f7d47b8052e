// SPDX-License-Identifier: Apache-2.0
// `penstock run`: options to one struct daemon_run; type host runs the command directly.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/number.h"
#include "cli/cli.h"
#include "cli/policy_options.h"
#include "daemon/daemon.h"

#define RUN_LIST_MAX 64 // of --dns, --read, --write, --env each
#define RUN_MEMORY_MIN (UINT64_C(8) << 20) // bytes: what its programs need to start at all

struct run_list {
    const char *items[RUN_LIST_MAX];
    size_t count;
};

struct run_options {
    struct policy_options policy;
    struct run_list dns, reads, writes, variables;
    const char *image, *memory, *cpus, *pids, *user, *cwd;
    const char *log;
    const char *learn;
    const char *upstream_ca;
    bool quiet, proxy;
    char **command; // NULL: none
};

enum run_option_kind { RUN_OPTION_LIST, RUN_OPTION_TEXT, RUN_OPTION_FLAG };

struct run_option {
    const char *name;
    enum run_option_kind kind;
    size_t offset; // in struct run_options
    const char *lacks[3]; // what there is none of, by enum run_engine, so that the option cannot stand there; NULL: it can
};

enum run_engine { RUN_HOST, RUN_PROCESS, RUN_CONTAINER };
#define FILES "view of this host's files"
#define LIMITS "limits of its own"

static const struct run_option run_table[] = {
    {"--dns", RUN_OPTION_LIST, offsetof(struct run_options, dns), {"resolver", NULL, NULL}},
    {"--read", RUN_OPTION_LIST, offsetof(struct run_options, reads), {"view of the files of its own", NULL, FILES}},
    {"--write", RUN_OPTION_LIST, offsetof(struct run_options, writes), {"view of the files of its own", NULL, FILES}},
    {"--image", RUN_OPTION_TEXT, offsetof(struct run_options, image), {"image", "image", NULL}},
    {"--memory", RUN_OPTION_TEXT, offsetof(struct run_options, memory), {LIMITS, LIMITS, NULL}},
    {"--cpus", RUN_OPTION_TEXT, offsetof(struct run_options, cpus), {LIMITS, LIMITS, NULL}},
    {"--pids", RUN_OPTION_TEXT, offsetof(struct run_options, pids), {LIMITS, LIMITS, NULL}},
    {"--env", RUN_OPTION_LIST, offsetof(struct run_options, variables), {"variables but yours", "variables but yours", NULL}},
    {"--user", RUN_OPTION_TEXT, offsetof(struct run_options, user), {"users of its own", "users of its own", NULL}},
    {"--workdir", RUN_OPTION_TEXT, offsetof(struct run_options, cwd), {"working directory but yours", "working directory but yours", NULL}},
    {"--log", RUN_OPTION_TEXT, offsetof(struct run_options, log), {"gate that could write a log", NULL, NULL}},
    {"--learn", RUN_OPTION_TEXT, offsetof(struct run_options, learn), {"gate that could learn", NULL, NULL}},
    {"--upstream-ca", RUN_OPTION_TEXT, offsetof(struct run_options, upstream_ca), {"gate that could open TLS", NULL, NULL}},
    {"--proxy", RUN_OPTION_FLAG, offsetof(struct run_options, proxy), {"gate that could be a proxy", NULL, NULL}},
    {"--quiet", RUN_OPTION_FLAG, offsetof(struct run_options, quiet), {NULL, NULL, NULL}},
};

static int run_store(struct run_options *options, const struct run_option *option, const char *value,
                     struct error *err) {
    void *field = (char *)options + option->offset;
    switch (option->kind) {
    case RUN_OPTION_FLAG:
        *(bool *)field = true;
        return 0;
    case RUN_OPTION_TEXT:
        if (*(const char **)field)
            return error_set(err, -EINVAL, "%s: given twice (\"%.100s\" and \"%.100s\"); keep one", option->name,
                             *(const char **)field, value);
        *(const char **)field = value;
        return 0;
    case RUN_OPTION_LIST:
        break;
    }
    struct run_list *list = field;
    if (list->count == RUN_LIST_MAX) {
        return error_set(err, -EINVAL, "%s \"%s\": at most %d of them; leave some out", option->name, value, RUN_LIST_MAX);
    }
    list->items[list->count++] = value;
    return 0;
}

// 1: taken, 0: not one of ours, negative: bad.
static int run_take(struct run_options *options, int argc, char **argv, int *index, struct error *err) {
    const char *word = argv[*index];
    for (size_t i = 0; i < ARRAY_LENGTH(run_table); i++) {
        const struct run_option *option = &run_table[i];
        size_t len = strlen(option->name);
        if (strncmp(word, option->name, len) != 0 || (word[len] != 0 && word[len] != '=')) continue;
        const char *value = word[len] == '=' ? word + len + 1 : NULL;
        if (option->kind == RUN_OPTION_FLAG && value) {
            return error_set(err, -EINVAL, "%s takes no value, not \"%.100s\"; remove it", option->name, value);
        }
        if (option->kind != RUN_OPTION_FLAG && !value) {
            value = *index + 1 < argc ? argv[++*index] : NULL;
            if (!value || strcmp(value, "--") == 0) {
                return error_set(err, -EINVAL, "%s needs a value; see `penstock run --help`", option->name);
            }
        }
        if (value && !*value) return error_set(err, -EINVAL, "%s \"\": the value is empty; write one", option->name);
        ++*index;
        int rc = run_store(options, option, value, err);
        return rc < 0 ? rc : 1;
    }
    return 0;
}

static int run_parse(struct run_options *options, int argc, char **argv, struct error *err) {
    int index = 1;
    while (index < argc) {
        const char *word = argv[index];
        if (strcmp(word, "--") == 0) {
            options->command = argv + index + 1;
            break;
        }
        if (word[0] != '-') { // the command may follow the options without "--"
            options->command = argv + index;
            break;
        }
        int rc = policy_options_take(&options->policy, argc, argv, &index, err);
        if (rc == 0) rc = run_take(options, argc, argv, &index, err);
        if (rc == 0) rc = error_set(err, -EINVAL, "unknown option \"%.200s\"; see `penstock run --help`", word);
        if (rc < 0) return rc;
    }
    if (options->command && !options->command[0]) options->command = NULL;
    return 0;
}

// The number in "fd:N" and in the names that systems have for the same; NULL: a file.
static const char *run_log_number(const char *log) {
    static const char *const prefixes[] = {"fd:", "/dev/fd/", "/proc/self/fd/"};
    for (size_t i = 0; i < ARRAY_LENGTH(prefixes); i++)
        if (strncmp(log, prefixes[i], strlen(prefixes[i])) == 0) return log + strlen(prefixes[i]);
    if (strcmp(log, "/dev/stdout") == 0) return "1";
    return strcmp(log, "/dev/stderr") == 0 ? "2" : NULL;
}

// A disk that was full has left a part of a line: it ends here, and ours are whole.
static void run_end_line(int fd) {
    char path[32], last;
    struct stat status;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode) || status.st_size == 0) return;
    AUTO_CLOSE int again = open(path, O_RDONLY | O_CLOEXEC);
    if (pread(again, &last, 1, status.st_size - 1) == 1 && last != '\n') (void)!write(fd, "\n", 1); // what fails will fail again
}

// "FILE" or "fd:N". 0 and the descriptor (-1: no log).
static int run_open_log(const char *log, int *ret_fd, struct error *err) {
    uint64_t number;
    *ret_fd = -1;
    if (!log) return 0;
    const char *text = run_log_number(log);
    if (text) {
        if (number_parse(text, strlen(text), 0, 1 << 20, &number) < 0 || fcntl((int)number, F_GETFD) < 0) {
            return error_set(err, -EINVAL, "--log \"%s\": not an open descriptor; write fd:N with a descriptor that is "
                                           "open for writing, or a file name", log);
        }
        int flags = fcntl((int)number, F_GETFL);
        if ((flags & O_ACCMODE) == O_RDONLY) {
            return error_set(err, -EINVAL, "--log \"%s\": the descriptor is not open for writing", log);
        }
        *ret_fd = fcntl((int)number, F_DUPFD_CLOEXEC, 3);
    } else {
        // Neither a link that a sandbox left there nor a pipe without a reader: a plain file, or a device such as /dev/null.
        int follow = strncmp(log, "/dev/", 5) == 0 ? 0 : O_NOFOLLOW;
        *ret_fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | follow, 0600);
        if (*ret_fd >= 0) fcntl(*ret_fd, F_SETFL, O_APPEND);
        if (*ret_fd >= 0) run_end_line(*ret_fd);
    }
    if (*ret_fd >= 0) return 0;
    const char *why = errno == ENOENT ? "its folder does not exist" : strerror(errno);
    return error_set(err, -EINVAL, "--log \"%s\": %s; name a file that can be written", log, why);
}

static bool run_given(const struct run_options *options, const struct run_option *option) {
    const void *field = (const char *)options + option->offset;
    switch (option->kind) {
    case RUN_OPTION_FLAG:
        return *(const bool *)field;
    case RUN_OPTION_TEXT:
        return *(const char *const *)field != NULL;
    case RUN_OPTION_LIST:
        break;
    }
    return ((const struct run_list *)field)->count > 0;
}

static enum run_engine run_engine(enum policy_type type) {
    bool image = type == POLICY_TYPE_CONTAINER || type == POLICY_TYPE_MISTRAL;
    return image ? RUN_CONTAINER : type == POLICY_TYPE_HOST ? RUN_HOST : RUN_PROCESS;
}

// Options that are nothing to the type, and what it needs.
static int run_check(const struct run_options *options, enum policy_type type, struct error *err) {
    enum run_engine engine = run_engine(type);
    const char *display = policy_type_info(type)->display;
    for (size_t i = 0; i < ARRAY_LENGTH(run_table); i++) {
        const struct run_option *option = &run_table[i];
        if (!option->lacks[engine] || !run_given(options, option)) continue;
        bool elsewhere = engine != RUN_CONTAINER && !option->lacks[RUN_CONTAINER] && option->lacks[RUN_PROCESS];
        return error_set(err, -EINVAL, "%s: %s has no %s; leave %s out%s", option->name, display, option->lacks[engine],
                         option->name, elsewhere ? ", or add --type container" : "");
    }
    if (engine == RUN_CONTAINER && !options->image)
        return error_set(err, -EINVAL, "%s runs an image: add --image, as in penstock run --type %s --image debian:12 -- "
                                       "cat /etc/os-release", display, policy_type_info(type)->word);
    if (engine == RUN_CONTAINER || options->command) return 0;
    return error_set(err, -EINVAL, "no command: write it behind --, as in penstock run --allow api.github.com -- "
                                   "curl https://api.github.com");
}

// ---- sizes ----

// A decimal number of thousandths.
static int run_cpus(const char *text, uint32_t *ret_millis, struct error *err) {
    size_t whole = strcspn(text, "."), parts = text[whole] ? strlen(text + whole + 1) : 0;
    uint64_t number = 0;
    uint32_t part = 0;
    bool good = number_parse(text, whole, 0, 1024, &number) == 0 && parts <= 3 && (!text[whole] || parts > 0) &&
                strspn(text + whole + (parts > 0), "0123456789") == parts;
    for (size_t i = 0; good && i < 3; i++) part = part * 10 + (i < parts ? (uint32_t)(text[whole + 1 + i] - '0') : 0);
    *ret_millis = (uint32_t)number * 1000 + part;
    if (good && *ret_millis >= 10) return 0;
    return error_set(err, -EINVAL, "--cpus \"%.100s\": expected a number from 0.01 to 1024, such as 1.5", text);
}

static int run_memory(const char *text, uint64_t *ret_bytes, struct error *err) {
    static const struct {
        const char *suffix;
        unsigned shift;
    } units[] = {{"", 0}, {"b", 0}, {"k", 10}, {"KiB", 10}, {"m", 20}, {"MiB", 20}, {"g", 30}, {"GiB", 30}};
    size_t digits = strspn(text, "0123456789");
    uint64_t number = 0;
    for (size_t i = 0; i < ARRAY_LENGTH(units); i++) {
        if (strcasecmp(text + digits, units[i].suffix) != 0) continue;
        if (number_parse(text, digits, 0, UINT64_C(1) << (50 - units[i].shift), &number) < 0) break;
        *ret_bytes = number << units[i].shift;
        if (*ret_bytes >= RUN_MEMORY_MIN) return 0;
    }
    return error_set(err, -EINVAL, "--memory \"%.100s\": expected at least 8m, such as 512m or 2g", text);
}

static int run_sizes(const struct run_options *options, struct daemon_container *container, struct error *err) {
    uint64_t pids = 0;
    int rc = options->memory ? run_memory(options->memory, &container->memory_bytes, err) : 0;
    if (rc == 0 && options->cpus) rc = run_cpus(options->cpus, &container->cpu_millis, err);
    if (rc == 0 && options->pids && number_parse(options->pids, strlen(options->pids), 0, 1 << 22, &pids) == 0 && pids > 0)
        container->pids = (uint32_t)pids;
    else if (rc == 0 && options->pids)
        rc = error_set(err, -EINVAL, "--pids \"%.100s\": expected a number from 1, such as 256", options->pids);
    for (size_t i = 0; rc == 0 && i < options->variables.count; i++)
        if (options->variables.items[i][0] == '=')
            rc = error_set(err, -EINVAL, "--env \"%.100s\": expected NAME=VALUE, or NAME for the value that you have", options->variables.items[i]);
    return rc;
}

// Type host: no sandbox at all. The type's check has made sure that nothing else than "all" was asked for.
static int run_directly(const struct run_options *options, struct error *err) {
    char **command = options->command;
    const char *display = policy_type_info(POLICY_TYPE_HOST)->display;
    if (!options->quiet) fprintf(stderr, "penstock: warning: %s enforces nothing: the command runs on this host as it is\n", display);
    execvp(command[0], command);
    int status = errno == ENOENT ? CLI_NOT_FOUND : CLI_CANNOT_EXECUTE;
    error_set(err, -errno, "\"%s\": %s; check its name and PATH", command[0], strerror(errno));
    return cli_fail(status, err);
}

// Type bashkit: one argument, the text of a script. The caller's list is replaced by that of the shell.
static int run_script(struct run_options *options, const char *argv[5], struct error *err) {
    size_t count = 0;
    while (options->command[count]) count++;
    if (count != 1)
        return error_set(err, -EINVAL, "%s takes exactly one argument, the text of a shell script, not %zu; put it in "
                                       "quotes, as in penstock run --type bashkit -- 'curl -s https://example.com | wc -l'",
                         policy_type_info(POLICY_TYPE_BASHKIT)->display, count);
    const char *words[] = {"/bin/bash", "-c", "--", options->command[0], NULL}; // "--": a script may begin with '-'
    memcpy(argv, words, sizeof(words));
    return 0;
}

static int run_learn(const struct run_options *options, struct policy_model *model, enum policy_type type,
                     const struct policy_node *node, struct learn **ret_learn, struct error *err) {
    if (!options->learn) return 0;
    if (!policy_type_info(type)->native)
        return error_set(err, -EINVAL, "--learn \"%s\": what it writes is a native policy, which is learned with type process or "
                                       "container, not %s", options->learn, policy_type_info(type)->word);
    return daemon_learn_new(options->learn, model, node, ret_learn, err);
}

static int run_typed(struct run_options *options, struct policy_model *model, enum policy_type type,
                     struct error *err) {
    const struct policy_type_info *info = policy_type_info(type);
    if (type == POLICY_TYPE_NONE && options->command) {
        error_set(err, -EINVAL, "%s runs nothing, so \"%s\" cannot be run; leave type none out or name another type",
                  info->display, options->command[0]);
        return cli_fail(CLI_RUN_ERROR, err);
    }
    if (!info->built) {
        if (options->policy.type)
            error_set(err, -ENOTSUP, "%s: not built yet; use --type process", info->display);
        else
            error_set(err, -ENOTSUP, "%s: not built yet; write \"process\" as the type in \"%s\", or leave it out there",
                      info->display, options->policy.policy_file);
        return cli_fail(CLI_RUN_ERROR, err);
    }
    if (run_check(options, type, err) < 0) return cli_fail(CLI_RUN_ERROR, err);
    if (type == POLICY_TYPE_HOST) return run_directly(options, err);
    struct policy_node node = {0};
    struct learn *learn = NULL;
    struct daemon_container container = {.image = options->image, .user = options->user, .cwd = options->cwd,
                                         .environment = options->variables.items, .environment_count = options->variables.count};
    const char *script[5];
    bool has_node = false;
    AUTO_CLOSE int log_fd = -1;
    int rc = type == POLICY_TYPE_BASHKIT ? run_script(options, script, err) : 0;
    if (rc == 0) rc = run_sizes(options, &container, err);
    if (rc == 0) rc = policy_options_node(&options->policy, model, &node, &has_node, err);
    if (rc == 0) rc = run_learn(options, model, type, has_node ? &node : NULL, &learn, err);
    if (rc == 0) rc = run_open_log(options->log, &log_fd, err);
    int status = CLI_RUN_ERROR;
    if (rc < 0) {
        cli_fail(CLI_RUN_ERROR, err);
    } else {
        struct daemon_run run = {.model = model, .node = has_node ? &node : NULL, .learn = learn,
                                 .container = run_engine(type) == RUN_CONTAINER ? &container : NULL,
                                 .argv = type == POLICY_TYPE_BASHKIT ? (char *const *)script : options->command,
                                 .dns_servers = options->dns.items, .dns_server_count = options->dns.count,
                                 .reads = options->reads.items, .read_count = options->reads.count,
                                 .writes = options->writes.items, .write_count = options->writes.count,
                                 .log_fd = log_fd, .quiet = options->quiet, .proxy = options->proxy,
                                 .policy_file = options->policy.policy_file,
                                 .node_config = options->policy.node_config, .upstream_ca = options->upstream_ca,
                                 .log_file = options->log && !run_log_number(options->log) ? options->log : NULL};
        status = daemon_run(&run);
    }
    daemon_learn_free(learn);
    policy_node_done(&node);
    return status;
}

int cli_run(int argc, char **argv) {
    struct run_options options = {0};
    struct error err = {0};
    struct policy_model *model = NULL;
    enum policy_type type = POLICY_TYPE_PROCESS;
    int rc = run_parse(&options, argc, argv, &err);
    if (rc == 0) rc = policy_options_finish(&options.policy, &model, &type, &err);
    int status = rc < 0 ? cli_fail(CLI_RUN_ERROR, &err) : run_typed(&options, model, type, &err);
    policy_model_free(model);
    policy_options_done(&options.policy);
    return status;
}
