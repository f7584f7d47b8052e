// SPDX-License-Identifier: Apache-2.0
// The options that say a policy, by table: a row gives the name, whether it takes a value, and what is done with it.
#include "cli/policy_options.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"

#define POLICY_FILE_MAX ((size_t)1 << 20)
#define NODE_VARIABLES "PENSTOCK_NETWORK_"

static int set_once(const char **target, const char *value, struct error *err) {
    if (*target) return error_set(err, -EINVAL, "given twice (\"%.100s\" and \"%.100s\"); keep one", *target, value);
    *target = value;
    return 0;
}

static int take_policy(struct policy_options *options, const char *value, const char *source, struct error *err) {
    (void)source;
    return set_once(&options->policy_file, value, err);
}

static int take_dialect(struct policy_options *options, const char *value, const char *source, struct error *err) {
    (void)source;
    return set_once(&options->dialect, value, err);
}

static int take_type(struct policy_options *options, const char *value, const char *source, struct error *err) {
    enum policy_type type;
    (void)source;
    if (!policy_type_from_word(value, &type))
        return error_set(err, -EINVAL, "there is no sandbox type \"%.100s\"; `penstock types` lists them", value);
    return set_once(&options->type, value, err);
}

static int take_node_config(struct policy_options *options, const char *value, const char *source, struct error *err) {
    (void)source;
    return set_once(&options->node_config, value, err);
}

static int take_network(struct policy_options *options, const char *value, const char *source, struct error *err) {
    struct policy_model *model = options->model;
    bool all = strcmp(value, "all") == 0;
    if (!all && strcmp(value, "none") != 0)
        return error_set(err, -EINVAL, "\"%.100s\" is neither none nor all; write one of them, or --allow HOST", value);
    if (options->has_network) return error_set(err, -EINVAL, "given twice; keep one");
    options->has_network = model->has_network = true;
    model->network = all ? POLICY_NETWORK_ALL : POLICY_NETWORK_NONE;
    model->base_allow = all;
    free(model->base_source);
    model->base_source = strdup(source);
    return model->base_source ? 0 : error_set(err, -ENOMEM, "out of memory");
}

static int take_allow(struct policy_options *options, const char *value, const char *source, struct error *err) {
    return policy_model_allow(options->model, value, source, err);
}

static int take_allow_cidr(struct policy_options *options, const char *value, const char *source, struct error *err) {
    return policy_model_allow_cidr(options->model, value, source, err);
}

static int take_deny_cidr(struct policy_options *options, const char *value, const char *source, struct error *err) {
    return policy_model_deny_cidr(options->model, value, source, err);
}

static int take_allow_private(struct policy_options *options, const char *value, const char *source,
                              struct error *err) {
    (void)value;
    (void)source;
    (void)err;
    options->model->block_private = false;
    return 0;
}

static int take_bind(struct policy_options *options, const char *value, const char *source, struct error *err) {
    return policy_model_bind(options->model, value, source, err);
}

static const struct policy_option {
    const char *name;
    const char *example; // value, for messages; NULL: takes none
    bool builds;         // part of a policy made of options
    // source is the option as written.
    int (*take)(struct policy_options *options, const char *value, const char *source, struct error *err);
} policy_option_table[] = {
    {"--policy", "policy.yaml", false, take_policy},
    {"--dialect", "native", false, take_dialect},
    {"--type", "process", false, take_type},
    {"--node-config", "/etc/penstock/penstock.yaml", false, take_node_config},
    {"--network", "all", true, take_network},
    {"--allow", "api.github.com", true, take_allow},
    {"--allow-cidr", "203.0.113.0/24", true, take_allow_cidr},
    {"--deny-cidr", "198.51.100.0/24", true, take_deny_cidr},
    {"--allow-private", NULL, true, take_allow_private},
    {"--bind", "github=env:GITHUB_TOKEN", true, take_bind},
};

// The row of "--name" or "--name=value"; *ret_value is behind the '=', or NULL.
static const struct policy_option *find_option(const char *argument, const char **ret_value) {
    size_t len = strcspn(argument, "=");
    for (size_t i = 0; i < ARRAY_LENGTH(policy_option_table); i++) {
        if (strlen(policy_option_table[i].name) != len || memcmp(policy_option_table[i].name, argument, len) != 0)
            continue;
        *ret_value = argument[len] == '=' ? argument + len + 1 : NULL;
        return &policy_option_table[i];
    }
    return NULL;
}

static int take_option(struct policy_options *options, const struct policy_option *option, const char *value,
                       struct error *err) {
    if (option->builds && !options->model) {
        options->model = policy_model_new(POLICY_DIALECT_NATIVE);
        if (!options->model) return error_set(err, -ENOMEM, "out of memory");
    }
    // A secret reference is part of --bind's value; it names a secret, it is none.
    AUTO_FREE char *source = NULL;
    if (asprintf(&source, "%s%s%s", option->name, value ? " " : "", value ? value : "") < 0) {
        source = NULL;
        return error_set(err, -ENOMEM, "out of memory");
    }
    int r = option->take(options, value, source, err);
    return r < 0 ? error_context(err, r, "%s", option->name) : 1;
}

int policy_options_take(struct policy_options *options, int argc, char **argv, int *index, struct error *err) {
    const char *value;
    const struct policy_option *option = find_option(argv[*index], &value);
    if (!option) return 0;
    int next = *index + 1;
    if (!option->example && value)
        return error_set(err, -EINVAL, "%s takes no value, not \"%.100s\"; remove it", option->name, value);
    if (option->example && !value) {
        if (next >= argc || strcmp(argv[next], "--") == 0)
            return error_set(err, -EINVAL, "%s needs a value; write such as %s %s", option->name, option->name,
                             option->example);
        value = argv[next++];
    }
    int r = take_option(options, option, value, err);
    if (r > 0) *index = next;
    return r;
}

// A file that was standard input is not the command's, who could read it again, or open it to write the next policy.
static int leave_input(void) {
    struct stat status;
    if (fstat(STDIN_FILENO, &status) < 0 || !S_ISREG(status.st_mode)) return 0;
    AUTO_CLOSE int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return null < 0 || dup2(null, STDIN_FILENO) < 0 ? -errno : 0;
}

// A whole file, or standard input for "-".
static int read_text(const char *path, const char *what, struct buf *text, struct error *err) {
    int r = strcmp(path, "-") == 0 ? buf_read_fd(text, STDIN_FILENO, POLICY_FILE_MAX)
                                   : buf_read_file(text, path, POLICY_FILE_MAX);
    if (r == 0 && strcmp(path, "-") == 0) r = leave_input();
    if (r == -EFBIG) return error_set(err, r, "%s \"%.400s\" is larger than 1 MiB; make it smaller", what, path);
    if (r < 0)
        return error_set(err, r, "%s \"%.400s\" cannot be read: %s; name a readable file", what, path, strerror(-r));
    return 0;
}

static int dialect_of(const struct policy_options *options, enum policy_dialect *ret_dialect, struct error *err) {
    static const char *const words[] = {"network", "e2b", "native"};
    *ret_dialect = POLICY_DIALECT_AUTO;
    if (!options->dialect) return 0;
    for (size_t i = 0; i < ARRAY_LENGTH(words); i++) {
        if (strcmp(options->dialect, words[i]) != 0) continue;
        *ret_dialect = (enum policy_dialect)(i + 1);
        return 0;
    }
    return error_set(err, -EINVAL, "--dialect: \"%.100s\" is not a dialect; write network, e2b or native",
                     options->dialect);
}

static int read_policy(const struct policy_options *options, struct policy_model **ret_model, struct error *err) {
    enum policy_dialect dialect;
    int r = dialect_of(options, &dialect, err);
    if (r < 0) return r;
    struct buf text = BUF_INIT;
    r = read_text(options->policy_file, "policy file", &text, err);
    const char *name = strcmp(options->policy_file, "-") == 0 ? "standard input" : options->policy_file;
    if (r == 0) r = policy_read(text.data ? text.data : "", text.len, name, dialect, ret_model, err);
    if (text.data) explicit_bzero(text.data, text.len); // E2B policies hold secrets
    buf_done(&text);
    return r;
}

static int finish_model(struct policy_options *options, struct policy_model **ret_model, struct error *err) {
    if (options->policy_file && options->model)
        return error_set(err, -EINVAL,
                         "--policy stands alone; remove it, or the options that build a policy (--network, "
                         "--allow and so on)");
    if (options->dialect && !options->policy_file)
        return error_set(err, -EINVAL, "--dialect \"%.100s\" says how to read a file; add --policy FILE",
                         options->dialect);
    if (options->policy_file) return read_policy(options, ret_model, err);
    *ret_model = options->model ? TAKE_POINTER(options->model) : policy_model_new(POLICY_DIALECT_NATIVE);
    return *ret_model ? 0 : error_set(err, -ENOMEM, "out of memory");
}

int policy_options_finish(struct policy_options *options, struct policy_model **ret_model, enum policy_type *ret_type,
                          struct error *err) {
    struct policy_model *model = NULL;
    int r = finish_model(options, &model, err);
    if (r < 0) return r;
    enum policy_type type = model->has_type ? model->type : POLICY_TYPE_PROCESS;
    if (options->type) policy_type_from_word(options->type, &type);
    r = policy_model_set_type(model, type, err);
    if (r == 0) r = policy_check_type(model, type, err);
    if (r < 0) {
        policy_model_free(model);
        return r;
    }
    *ret_model = model;
    *ret_type = type;
    return 0;
}

static bool has_variables(void) {
    for (char **variable = environ; *variable; variable++)
        if (strncmp(*variable, NODE_VARIABLES, strlen(NODE_VARIABLES)) == 0) return true;
    return false;
}

static int read_node(const struct policy_options *options, struct policy_node *ret_node, bool *ret_has,
                     struct error *err) {
    struct buf text = BUF_INIT;
    int r = 0;
    *ret_has = false;
    if (options->node_config) r = read_text(options->node_config, "node configuration", &text, err);
    if (r < 0 || (!options->node_config && !has_variables())) {
        buf_done(&text);
        return r;
    }
    const char *bytes = !options->node_config ? NULL : text.data ? text.data : "";
    r = policy_node_read(bytes, text.len, options->node_config, environ, ret_node, err);
    buf_done(&text);
    *ret_has = r == 0;
    return r;
}

int policy_options_node(const struct policy_options *options, struct policy_model *model, struct policy_node *ret_node,
                        bool *ret_has, struct error *err) {
    int r = read_node(options, ret_node, ret_has, err);
    return r < 0 ? r : policy_bind_workspace(model, *ret_has ? ret_node : NULL, err);
}

void policy_options_done(struct policy_options *options) {
    policy_model_free(options->model);
    *options = (struct policy_options){0};
}
