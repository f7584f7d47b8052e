// SPDX-License-Identifier: Apache-2.0
#include "daemon/credential.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>

#include "base/mem.h"
#include "daemon/helper.h"
#include "daemon/secret_place.h"
#include "vault/vault.h"

#define SEND_TRIES 10
#define SEND_WAIT_MS 500
#define COPY_LEAST 8 // bytes of a secret that is looked for inside the values of other variables

struct credential_value {
    struct ipc_vault_env head;
    int fd;
};

struct credentials {
    struct ipc_vault_rule *rules;
    size_t rule_count;
    struct credential_value *values;
    size_t value_count;
    char **environment; // of the vault and its helper; NULL: that of this process
    uint8_t certificate[IPC_CERTIFICATE_MAX];
    struct sandbox_trust trust;
};

void credentials_free(struct credentials *credentials) {
    if (!credentials) return;
    for (size_t i = 0; i < credentials->value_count; i++) close(credentials->values[i].fd);
    helper_environment_free(credentials->environment);
    free(credentials->values);
    free(credentials->rules);
    free(credentials);
}

// ---- rules ----

static bool credential_copy(char *target, size_t size, const char *text) {
    return snprintf(target, size, "%s", text) < (int)size;
}

static int credential_rule(struct credentials *credentials, const struct policy_binding *binding,
                           const struct policy_binding_target *target, struct error *err) {
    struct ipc_vault_rule *rule = &credentials->rules[credentials->rule_count];
    const char *reference = strstr(target->value, "{secret}") ? policy_binding_secret(binding) : "";
    if (credentials->rule_count >= IPC_RULES_MAX)
        return error_set(err, -E2BIG, "more than %d headers are bound; remove some", IPC_RULES_MAX);
    rule->basic = target->basic;
    if (!credential_copy(rule->host, sizeof(rule->host), target->host) ||
        !credential_copy(rule->value, sizeof(rule->value), target->value))
        return error_set(err, -E2BIG, "%s: the value for %s is longer than %zu bytes; move what is in it to the secret",
                         binding->source ? binding->source : "binding", target->host, sizeof(rule->value) - 1);
    int r = secret_place_expand(reference, rule->reference, sizeof(rule->reference), err);
    if (r == 0) credentials->rule_count++;
    return r;
}

static int credential_rules(struct credentials *credentials, const struct policy_model *model, struct error *err) {
    for (size_t i = 0; i < model->binding_count; i++) {
        struct policy_binding_target targets[POLICY_BINDING_TARGETS];
        size_t count = policy_binding_targets(&model->bindings[i], targets);
        for (size_t k = 0; k < count; k++) {
            int r = credential_rule(credentials, &model->bindings[i], &targets[k], err);
            if (r < 0) return r;
        }
    }
    return 0;
}

const char *credentials_file(const struct credentials *credentials, size_t index) {
    for (size_t i = 0; i < credentials->rule_count; i++) {
        const char *reference = credentials->rules[i].reference;
        if (strncmp(reference, "file:", 5) == 0 && index-- == 0) return reference + 5;
    }
    return NULL;
}

// ---- values of the environment ----

static int value_memfd(const char *value, size_t len, int *ret_fd) {
    AUTO_CLOSE int fd = memfd_create("penstock-secret", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) return -errno;
    for (size_t done = 0; done < len;) {
        ssize_t written = write(fd, value + done, len - done);
        if (written < 0) return -errno;
        done += (size_t)written;
    }
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) < 0) return -errno;
    *ret_fd = TAKE_FD(fd);
    return 0;
}

static bool credential_has(const struct credentials *credentials, const char *name) {
    for (size_t i = 0; i < credentials->value_count; i++)
        if (strcmp(credentials->values[i].head.name, name) == 0) return true;
    return false;
}

static int credential_value(struct credentials *credentials, const char *name, const char *text, struct error *err) {
    struct credential_value *value = &credentials->values[credentials->value_count];
    if (!credential_copy(value->head.name, sizeof(value->head.name), name))
        return error_set(err, -E2BIG, "secret env:%.40s...: the name is too long", name);
    size_t len = strlen(text);
    int r = vault_secret_check(text, len, err);
    if (r < 0) return error_context(err, r, "secret env:%s", name);
    value->head.length = (uint32_t)len;
    r = value_memfd(text, len, &value->fd);
    if (r < 0) return error_set(err, r, "secret env:%s: %s", name, strerror(-r));
    credentials->value_count++;
    return 0;
}

static int credential_variable(struct credentials *credentials, const char *name, struct error *err) {
    const char *text = getenv(name);
    if (text) return credential_value(credentials, name, text, err);
    return error_set(err, -ENOENT, "secret env:%s: the variable is not set; export it, or name another secret", name);
}

// The strings of the environment are the ones that /proc shows.
static void variable_wipe(char *entry) {
    size_t len = strcspn(entry, "=");
    char name[IPC_ENV_NAME_SIZE];
    snprintf(name, sizeof(name), "%.*s", (int)(len < sizeof(name) ? len : 0), entry);
    if (entry[len]) explicit_bzero(entry + len + 1, strlen(entry + len + 1));
    unsetenv(name); // which looks for the sign behind the name
}

// The first variable that has this value, or has it in it; NULL: none. Its name is of no matter: GITHUB_TOKEN and GH_TOKEN
// are one secret.
static char *variable_with(const char *value) {
    for (char **entry = environ; *entry; entry++) {
        const char *text = strchr(*entry, '=');
        if (text && (strlen(value) >= COPY_LEAST ? strstr(text + 1, value) != NULL : strcmp(text + 1, value) == 0)) return *entry;
    }
    return NULL;
}

static int credential_wipe(const struct credentials *credentials) {
    for (size_t i = 0; i < credentials->value_count; i++) {
        const struct credential_value *value = &credentials->values[i];
        char *copy = calloc(1, value->head.length + 1);
        if (!copy || pread(value->fd, copy, value->head.length, 0) != (ssize_t)value->head.length) {
            free(copy);
            return -ENOMEM;
        }
        for (char *entry; (entry = variable_with(copy)) != NULL;) {
            size_t len = strlen(value->head.name);
            if (strncmp(entry, value->head.name, len) != 0 || entry[len] != '=')
                fprintf(stderr, "penstock: the variable %.*s holds a secret that is bound, too: the command does not get it\n",
                        (int)strcspn(entry, "="), entry);
            variable_wipe(entry);
        }
        explicit_bzero(copy, value->head.length);
        free(copy);
    }
    return 0;
}

static int credential_values(struct credentials *credentials, struct policy_model *model, struct error *err) {
    int r = 0;
    for (size_t i = 0; r == 0 && i < model->binding_count; i++) {
        char *literal = model->bindings[i].literal;
        if (!literal) continue;
        r = credential_value(credentials, policy_binding_secret(&model->bindings[i]) + strlen("env:"), literal, err);
        explicit_bzero(literal, strlen(literal));
    }
    for (size_t i = 0; r == 0 && i < credentials->rule_count; i++) {
        const char *reference = credentials->rules[i].reference;
        bool variable = strncmp(reference, "env:", 4) == 0 && !credential_has(credentials, reference + 4);
        r = variable ? credential_variable(credentials, reference + 4, err) : 0;
    }
    if (r < 0) return r;
    r = credential_wipe(credentials);
    return r < 0 ? error_set(err, r, "out of memory") : 0;
}

int credentials_new(struct policy_model *model, struct credentials **ret_credentials, struct error *err) {
    struct credentials *credentials = NEW(struct credentials);
    if (credentials) {
        size_t most = model->binding_count * POLICY_BINDING_TARGETS + 1;
        credentials->rules = NEW_ARRAY(struct ipc_vault_rule, most);
        credentials->values = NEW_ARRAY(struct credential_value, most);
    }
    int r = credentials && credentials->rules && credentials->values ? 0 : error_set(err, -ENOMEM, "out of memory");
    if (r == 0) r = credential_rules(credentials, model, err);
    if (r == 0) r = credential_values(credentials, model, err);
    if (r < 0 || credentials->rule_count == 0) {
        credentials_free(credentials);
        credentials = NULL;
    }
    if (r == 0) *ret_credentials = credentials;
    return r;
}

// ---- commands ----

static const char *credential_command(const struct ipc_vault_rule *rule) {
    return strncmp(rule->reference, "cmd:", 4) == 0 ? rule->reference + 4 : NULL;
}

static bool variable_of_kind(const struct policy_model *model, const char *name) {
    static const struct {
        enum policy_binding_kind kind;
        const char *name;
    } variables[] = {{POLICY_BINDING_GITHUB, "GITHUB_TOKEN"},
                     {POLICY_BINDING_GITHUB, "GH_TOKEN"},
                     {POLICY_BINDING_MISTRAL_API, "MISTRAL_API_KEY"}};
    for (size_t i = 0; i < model->binding_count; i++)
        for (size_t k = 0; k < ARRAY_LENGTH(variables); k++)
            if (model->bindings[i].kind == variables[k].kind && strcmp(name, variables[k].name) == 0) return true;
    return false;
}

static bool credential_suspects(const struct credentials *credentials, const struct policy_model *model, const char *entry) {
    char name[IPC_ENV_NAME_SIZE];
    if (!strchr(entry, '=') ||
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(entry, "="), entry) >= (int)sizeof(name))
        return false;
    if (variable_of_kind(model, name)) return !strstr(entry, POLICY_PLACEHOLDER);
    for (size_t i = 0; i < credentials->rule_count; i++) {
        const char *command = credential_command(&credentials->rules[i]);
        if (command && helper_names(command, name)) return true;
    }
    return false;
}

// Tools that want the variable of a bound kind find a placeholder in it.
static int variable_replace(const struct policy_model *model, char *entry) {
    char name[IPC_ENV_NAME_SIZE], text[POLICY_PLACEHOLDER_SIZE];
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(entry, "="), entry);
    const struct policy_binding binding = {.variable = name};
    bool kept = variable_of_kind(model, name);
    fprintf(stderr, "penstock: the variable %s may hold a secret that is bound: the command %s\n", name,
            kept ? "gets a placeholder" : "does not get it");
    variable_wipe(entry);
    return kept ? setenv(name, policy_binding_placeholder(&binding, text), true) : 0;
}

int credentials_part(struct credentials *credentials, const struct policy_model *model, const struct sandbox_spec *spec,
                     struct error *err) {
    struct sandbox_reach *reach = NULL;
    if (!credentials) return 0;
    int r = sandbox_reach_new(spec, &reach, err);
    if (r == 0) r = helper_environment(reach, &credentials->environment, err);
    for (size_t i = 0; r == 0 && i < credentials->rule_count; i++) {
        const char *command = credential_command(&credentials->rules[i]);
        if (command) r = helper_check(reach, credentials->environment, command, err);
    }
    sandbox_reach_free(reach);
    for (char **entry = environ; r == 0 && *entry;) {
        if (!credential_suspects(credentials, model, *entry)) {
            entry++;
            continue;
        }
        r = variable_replace(model, *entry) < 0 ? error_set(err, -ENOMEM, "out of memory") : 0;
        entry = environ;
    }
    return r;
}

// ---- the vault ----

// Many rules are more than a channel holds at once.
static int credential_send(struct role *vault, enum ipc_type type, const void *body, size_t len, const int *fd,
                           struct error *err) {
    for (int i = 0; i < SEND_TRIES; i++) {
        int r = channel_send(vault->channel, type, body, len, fd, fd ? 1 : 0);
        if (r == 0) return 0;
        struct pollfd item = {.fd = vault->channel, .events = POLLOUT};
        if (r != -EAGAIN) return error_set(err, r, "vault process: message not taken: %s", strerror(-r));
        poll(&item, 1, SEND_WAIT_MS);
    }
    return error_set(err, -ETIMEDOUT, "vault process: it takes no messages; run it again, and report it if it lasts");
}

int credentials_start(struct credentials *credentials, struct role *vault, uid_t uid, gid_t gid, struct error *err) {
    struct ipc_vault_start start = {.uid = uid, .gid = gid};
    struct channel_message message;
    int r = role_start(vault, ROLE_VAULT, 0, 0, credentials->environment ? credentials->environment : environ, err);
    if (r == 0) r = role_send(vault, IPC_VAULT_START, &start, sizeof(start), NULL, 0, err);
    if (r == 0) r = role_expect(vault, IPC_VAULT_READY, &message, err);
    if (r < 0) return r;
    struct ipc_vault_ready ready;
    memcpy(&ready, message.body, sizeof(ready));
    credentials->trust = (struct sandbox_trust){credentials->certificate, ready.length, ready.subject_hash};
    memcpy(credentials->certificate, (const uint8_t *)message.body + sizeof(ready), ready.length);
    for (size_t i = 0; i < credentials->value_count && r == 0; i++) {
        const struct credential_value *value = &credentials->values[i];
        r = credential_send(vault, IPC_VAULT_ENV, &value->head, sizeof(value->head), &value->fd, err);
    }
    return r;
}

const struct sandbox_trust *credentials_trust(const struct credentials *credentials) { return &credentials->trust; }

// The helper is not where the user is, so a relative file: gets the whole path.
static int credential_send_rule(struct role *vault, const struct ipc_vault_rule *rule, struct error *err) {
    struct ipc_vault_rule sent = *rule;
    if (strncmp(rule->reference, "file:", 5) == 0 && rule->reference[5] != '/') {
        AUTO_FREE char *cwd = getcwd(NULL, 0);
        memset(sent.reference, 0, sizeof(sent.reference));
        int len = cwd ? snprintf(sent.reference, sizeof(sent.reference), "file:%s/%s", cwd, rule->reference + 5) : -1;
        if (len < 0 || len >= (int)sizeof(sent.reference))
            return error_set(err, -E2BIG, "secret %s: the path is too long; name the file by a shorter one", rule->reference);
    }
    return credential_send(vault, IPC_VAULT_RULE, &sent, sizeof(sent), NULL, err);
}

int credentials_join(const struct credentials *credentials, struct role *vault, int *ret_fd, struct error *err) {
    int pair[2];
    int r = channel_pair(pair);
    if (r < 0) return error_set(err, r, "channel between gate and vault: %s", strerror(-r));
    AUTO_CLOSE int gate = pair[0];
    AUTO_CLOSE int other = pair[1];
    for (size_t i = 0; i < credentials->rule_count && r == 0; i++)
        r = credential_send_rule(vault, &credentials->rules[i], err);
    if (r == 0) r = credential_send(vault, IPC_VAULT_GATE, NULL, 0, &other, err);
    if (r == 0) *ret_fd = TAKE_FD(gate);
    return r;
}
