// SPDX-License-Identifier: Apache-2.0
// The vault process as main and gates see it, isolated, by root and by an ordinary user: what it gives and to whom, how
// rotation reaches a gate, what is left in its memory, how it ends.
#include "rig.h"

#include <dirent.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <openssl/x509v3.h>

#include "base/random.h"
#include "net/isolate_table.h"
#include "vault/certificate.h"
#include "vault/secure.h"
#include "vault/vault.h"

#define NOBODY 65534

static uid_t runner; // of the vault
static pid_t vault;
static int channel;
static _Alignas(max_align_t) char buffer[CHANNEL_BUFFER_SIZE];
static uint8_t ca[IPC_CERTIFICATE_MAX];
static size_t ca_len;

// ---- main's side ----

// Executed again, as the real one is: nothing of this process is in its memory.
static void fork_vault(const int pair[2]) {
    vault = fork();
    if (vault == 0) {
        if (runner != getuid() && (setresgid(runner, runner, runner) < 0 || setresuid(runner, runner, runner) < 0))
            _exit(99);
        if (dup2(pair[1], 3) < 0 || syscall(SYS_close_range, 4U, ~0U, 0) < 0) _exit(98);
        execl("/proc/self/exe", "vault", "@vault", NULL);
        _exit(97);
    }
    close(pair[1]);
    channel = pair[0];
}

static void start_vault(void) {
    int pair[2];
    struct channel_message message;
    struct ipc_vault_start start = {.uid = runner ? 0 : NOBODY, .gid = runner ? 0 : NOBODY};
    assert_int_equal(channel_pair(pair), 0);
    fork_vault(pair);
    assert_int_equal(channel_send(channel, IPC_VAULT_START, &start, sizeof(start), NULL, 0), 0);
    assert_int_equal(channel_wait(channel, 20000, buffer, sizeof(buffer), &message), 1);
    if (message.type == IPC_ERROR) fail_msg("%s", (const char *)message.body);
    assert_int_equal(message.type, IPC_VAULT_READY);
    struct ipc_vault_ready ready;
    memcpy(&ready, message.body, sizeof(ready));
    ca_len = ready.length;
    memcpy(ca, (const char *)message.body + sizeof(ready), ca_len);
}

static int end_vault(void) {
    int status;
    if (channel >= 0) close(channel);
    channel = -1;
    assert_int_equal(waitpid(vault, &status, 0), vault);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int setup(void **state) {
    (void)state;
    rig_init();
    if (geteuid() == 0 && runner) assert_int_equal(chown(rig_path("."), runner, runner), 0);
    start_vault();
    return 0;
}

static int teardown(void **state) {
    (void)state;
    int status = end_vault();
    rig_done();
    return status;
}

static void give(enum ipc_type type, const void *body, size_t len, const int *fd) {
    struct pollfd item = {.fd = channel, .events = POLLOUT};
    int r;
    while ((r = channel_send(channel, type, body, len, fd, fd ? 1 : 0)) == -EAGAIN) poll(&item, 1, 1000);
    assert_int_equal(r, 0);
}

static void give_environment(const char *name, const void *value, size_t len) {
    struct ipc_vault_env env = {.length = (uint32_t)len};
    snprintf(env.name, sizeof(env.name), "%s", name);
    int fd = memfd_create("test", MFD_CLOEXEC);
    assert_int_equal(write(fd, value, len), len);
    give(IPC_VAULT_ENV, &env, sizeof(env), &fd);
    close(fd);
}

static void give_rule(const char *host, const char *value, bool basic, const char *kind, const char *place) {
    struct ipc_vault_rule rule = {.basic = basic};
    snprintf(rule.host, sizeof(rule.host), "%s", host);
    snprintf(rule.value, sizeof(rule.value), "%s", value);
    snprintf(rule.reference, sizeof(rule.reference), "%s%s", kind, place);
    give(IPC_VAULT_RULE, &rule, sizeof(rule), NULL);
}

static int give_gate(void) {
    int pair[2];
    assert_int_equal(channel_pair(pair), 0);
    give(IPC_VAULT_GATE, NULL, 0, &pair[1]);
    close(pair[1]);
    return pair[0];
}

static void give_file(const char *name, const char *text) {
    rig_replace(name, text);
    if (geteuid() == 0 && runner) assert_int_equal(chown(rig_path(name), runner, runner), 0);
}

// ---- a gate's side ----

static struct ipc_value answered;
static char value[IPC_SECRET_MAX + 1];

static void take(int gate, enum ipc_type type, struct channel_message *ret_message) {
    assert_int_equal(channel_wait(gate, 20000, buffer, sizeof(buffer), ret_message), 1);
    assert_int_equal(ret_message->type, type);
}

static void ask(int gate, uint32_t id, uint32_t rule) {
    struct ipc_value_ask question = {.id = id, .rule = rule};
    assert_int_equal(channel_send(gate, IPC_VALUE_ASK, &question, sizeof(question), NULL, 0), 0);
}

// The next answer; one message can hold several.
static int take_value(int gate) {
    static uint8_t values[IPC_VALUES_SIZE];
    static size_t len, at;
    const uint8_t *bytes;
    if (at == len) {
        struct channel_message message;
        take(gate, IPC_VALUE, &message);
        assert_true(message.length <= sizeof(values));
        memcpy(values, message.body, message.length);
        len = message.length;
        at = 0;
    }
    assert_true(ipc_value_next(values, len, &at, &answered, &bytes));
    memcpy(value, bytes, answered.length);
    value[answered.length] = '\0';
    return answered.status;
}

static int ask_value(int gate, uint32_t rule) {
    ask(gate, 7, rule);
    return take_value(gate);
}

static struct ipc_value_changed take_changed(int gate) {
    struct channel_message message;
    struct ipc_value_changed changed;
    take(gate, IPC_VALUE_CHANGED, &message);
    memcpy(&changed, message.body, sizeof(changed));
    return changed;
}

static void assert_closed(int gate) {
    struct channel_message message;
    assert_int_equal(channel_wait(gate, 20000, buffer, sizeof(buffer), &message), 0);
    close(gate);
}

// ---- tests ----

static void test_leaf(void **state) {
    (void)state;
    give_rule("github.com", "{secret}", false, "env:", "A");
    give_rule("api.github.com", "{secret}", false, "env:", "A");
    int gate = give_gate();
    uint8_t first[IPC_KEY_SIZE] = {0};
    for (uint32_t rule = 0; rule < 2; rule++) {
        struct ipc_leaf_ask question = {.rule = rule};
        struct channel_message message;
        struct ipc_leaf leaf;
        assert_int_equal(channel_send(gate, IPC_LEAF_ASK, &question, sizeof(question), NULL, 0), 0);
        take(gate, IPC_LEAF, &message);
        memcpy(&leaf, message.body, sizeof(leaf));
        const uint8_t *der = (const uint8_t *)message.body + sizeof(leaf);
        assert_int_equal(leaf.status, 0);
        assert_int_equal(leaf.rule, rule);
        assert_in_range(leaf.renew_at - time(NULL), 3 * CERTIFICATE_DAY, 4 * CERTIFICATE_DAY);
        assert_int_equal(leaf.ca_length, ca_len);
        assert_memory_equal(der + leaf.leaf_length, ca, ca_len);
        X509 *certificate = certificate_decode(der, leaf.leaf_length), *issuer = certificate_decode(ca, ca_len);
        EVP_PKEY *key = NULL;
        assert_int_equal(vault_client_key(certificate, leaf.key, &key), 0);
        assert_int_equal(X509_verify(certificate, X509_get0_pubkey(issuer)), 1);
        assert_int_equal(X509_check_host(certificate, rule ? "api.github.com" : "github.com", 0, 0, NULL), 1);
        assert_memory_not_equal(leaf.key, first, sizeof(first));
        memcpy(first, leaf.key, sizeof(first));
        EVP_PKEY_free(key);
        X509_free(certificate);
        X509_free(issuer);
    }
    close(gate);
}

static void test_values(void **state) {
    (void)state;
    give_environment("A", "alpha", 5);
    give_file("token", "beta\n");
    give_rule("a.example", "Bearer {secret}", false, "env:", "A");
    give_rule("b.example", "user:{secret}", true, "file:", rig_path("token"));
    give_rule("c.example", "constant", false, "", "");
    give_rule("d.example", "{secret}", false, "env:", "NOT_GIVEN");
    give_rule("e.example", "{secret}", false, "cmd:", "printf gamma");
    give_file("blank", "delta \n"); // one end of line is no part of it, a blank is
    give_rule("f.example", "{secret}", false, "file:", rig_path("blank"));
    give_rule("g.example", "{secret}.", false, "file:", rig_path("blank"));
    int gate = give_gate();
    assert_int_equal(ask_value(gate, 0), 0);
    assert_string_equal(value, "Bearer alpha");
    assert_int_equal(answered.id, 7);
    assert_int_equal(ask_value(gate, 1), 0);
    assert_string_equal(value, "Basic dXNlcjpiZXRh");
    assert_int_equal(ask_value(gate, 2), 0);
    assert_string_equal(value, "constant");
    assert_int_equal(ask_value(gate, 3), -ENOENT);
    struct channel_message message;
    take(channel, IPC_VAULT_NOTICE, &message);
    assert_non_null(strstr(message.body, "env:NOT_GIVEN"));
    assert_int_equal(ask_value(gate, 4), 0);
    assert_string_equal(value, "gamma");
    assert_int_equal(ask_value(gate, 5), -EILSEQ);
    take(channel, IPC_VAULT_NOTICE, &message);
    assert_non_null(strstr(message.body, "blank: it begins or ends with a blank"));
    assert_int_equal(ask_value(gate, 6), 0);
    assert_string_equal(value, "delta .");
    assert_int_equal(ask_value(gate, 5), -EILSEQ);
    assert_int_equal(channel_receive(channel, buffer, sizeof(buffer), &message), -EAGAIN); // said once
    close(gate);
}

// A gate has its own rules only, and what is no question of a gate costs it the channel.
static void test_only_its_own(void **state) {
    (void)state;
    give_environment("A", "alpha", 5);
    give_environment("B", "beta", 4);
    give_rule("a.example", "{secret}", false, "env:", "A");
    int first = give_gate();
    give_rule("b.example", "{secret}", false, "env:", "B");
    int second = give_gate(), none = give_gate();
    assert_int_equal(ask_value(first, 0), 0);
    assert_string_equal(value, "alpha");
    assert_int_equal(ask_value(second, 0), 0);
    assert_string_equal(value, "beta");
    ask(first, 1, 1);
    assert_closed(first);
    ask(none, 1, 0);
    assert_closed(none);
    struct ipc_value_changed changed = {0};
    assert_int_equal(channel_send(second, IPC_VALUE_CHANGED, &changed, sizeof(changed), NULL, 0), 0);
    assert_closed(second);
    int third = give_gate();
    assert_int_equal(send(third, "junk", 4, 0), 4);
    assert_closed(third);
    assert_int_equal(kill(vault, 0), 0);
}

// Several questions in one message: so are those answers that fit; the rest, and those that take longer, follow. One that
// no gate asks is the end, whatever stands before it.
static void test_together(void **state) {
    (void)state;
    static char large[20000];
    memset(large, 'x', sizeof(large));
    give_environment("A", "alpha", 5);
    give_environment("LARGE", large, sizeof(large));
    give_rule("a.example", "{secret}", false, "env:", "A");
    give_rule("b.example", "{secret}", false, "env:", "LARGE");
    give_rule("c.example", "{secret}", false, "cmd:", "printf slow");
    give_rule("d.example", "{secret}", false, "env:", "NONE");
    int gate = give_gate();
    struct ipc_value_ask questions[] = {{1, 0}, {2, 2}, {3, 3}, {4, 1}, {5, 0}, {6, 1}, {7, 0}};
    static const uint32_t order[] = {1, 3, 4, 5, 6, 7, 2};
    struct channel_message message;
    assert_int_equal(channel_send(gate, IPC_VALUE_ASK, questions, sizeof(questions), NULL, 0), 0);
    for (size_t i = 0; i < ARRAY_LENGTH(order); i++) {
        take_value(gate);
        assert_int_equal(answered.id, order[i]);
        assert_int_equal(answered.rule, questions[order[i] - 1].rule);
        assert_int_equal(answered.status, answered.id == 3 ? -ENOENT : 0);
        if (answered.rule == 0) assert_string_equal(value, "alpha");
        if (answered.rule == 1) assert_int_equal(answered.length, sizeof(large));
        if (answered.rule == 2) assert_string_equal(value, "slow");
    }
    const struct ipc_value_ask small[] = {{8, 0}, {9, 0}};
    assert_int_equal(channel_send(gate, IPC_VALUE_ASK, small, sizeof(small), NULL, 0), 0);
    take(gate, IPC_VALUE, &message);
    assert_int_equal(message.length, 2 * (sizeof(struct ipc_value) + 5));
    const struct ipc_value_ask strange[] = {{10, 0}, {11, 4}};
    assert_int_equal(channel_send(gate, IPC_VALUE_ASK, strange, sizeof(strange), NULL, 0), 0);
    assert_closed(gate);
}

static void test_rotation(void **state) {
    (void)state;
    give_file("token", "first");
    give_rule("a.example", "{secret}", false, "file:", rig_path("token"));
    give_rule("a.example", "x{secret}", false, "file:", rig_path("token"));
    int gate = give_gate();
    assert_int_equal(ask_value(gate, 0), 0);
    assert_int_equal(answered.epoch, 1);
    give_file("token", "second");
    struct ipc_value_changed changed = take_changed(gate); // without a question; the other rule was not given
    assert_int_equal(changed.rule, 0);
    assert_int_equal(changed.epoch, 2);
    assert_int_equal(ask_value(gate, 1), 0);
    assert_string_equal(value, "xsecond");
    assert_int_equal(answered.epoch, 2);
    unlink(rig_path("token"));
    assert_int_equal(take_changed(gate).rule, 0);
    changed = take_changed(gate);
    assert_int_equal(changed.rule, 1);
    assert_int_equal(changed.epoch, 3);
    assert_int_equal(ask_value(gate, 1), -ENOENT);
    assert_int_equal(answered.length, 0);
    close(gate);
}

static void test_store(void **state) {
    (void)state;
    if (runner != getuid()) return; // who sets it is who runs
    assert_int_equal(vault_secret_set("token", "first", 5, NULL), 0);
    give_rule("a.example", "{secret}", false, "store:", "token");
    int gate = give_gate();
    assert_int_equal(ask_value(gate, 0), 0);
    assert_string_equal(value, "first");
    assert_int_equal(vault_secret_set("token", "second", 6, NULL), 0);
    assert_int_equal(take_changed(gate).epoch, 2);
    assert_int_equal(ask_value(gate, 0), 0);
    assert_string_equal(value, "second");
    assert_int_equal(vault_secret_remove("token", NULL), 0);
    assert_int_equal(take_changed(gate).epoch, 3);
    assert_int_equal(ask_value(gate, 0), -ENOENT);
    close(gate);
}

// More questions than may be open, and a gate that takes no answers: nobody else is kept waiting, and none is lost.
static void test_slow_gate(void **state) {
    (void)state;
    static char large[30000];
    memset(large, 'x', sizeof(large));
    give_environment("LARGE", large, sizeof(large));
    give_rule("a.example", "{secret}", false, "env:", "LARGE");
    give_rule("b.example", "{secret}", false, "cmd:", "sleep 1; printf slow");
    int gate = give_gate();
    give_rule("a.example", "{secret}", false, "env:", "LARGE");
    int other = give_gate();
    uint32_t sent = 0, slow = 0;
    for (; sent < 600; sent++) {
        struct ipc_value_ask question = {.id = sent, .rule = sent % 2};
        if (channel_send(gate, IPC_VALUE_ASK, &question, sizeof(question), NULL, 0) < 0) break;
    }
    assert_true(sent > 20);
    assert_int_equal(ask_value(other, 0), 0);
    assert_int_equal(answered.length, sizeof(large));
    for (uint32_t i = 0; i < sent; i++) {
        assert_int_equal(take_value(gate), 0);
        assert_int_equal(answered.rule, answered.id % 2);
        slow += strcmp(value, "slow") == 0;
    }
    assert_int_equal(slow, sent / 2);
    close(gate);
    close(other);
}

static void test_many_rules(void **state) {
    (void)state;
    char host[32];
    give_environment("A", "alpha", 5);
    for (int i = 0; i < IPC_RULES_MAX; i++) {
        snprintf(host, sizeof(host), "h%d.example", i);
        give_rule(host, "{secret}", false, "env:", "A");
    }
    int gate = give_gate();
    assert_int_equal(ask_value(gate, IPC_RULES_MAX - 1), 0);
    assert_string_equal(value, "alpha");
    close(gate);
}

static void test_ends_with_main(void **state) {
    (void)state;
    int gate = give_gate();
    assert_int_equal(end_vault(), 0);
    assert_closed(gate);
    start_vault();
}

static pid_t helper_of(pid_t parent) {
    char path[64], text[512];
    DIR *processes = opendir("/proc");
    pid_t found = 0;
    for (struct dirent *entry; !found && (entry = readdir(processes));) {
        int pid, above;
        char name[32], kind;
        snprintf(path, sizeof(path), "/proc/%.20s/stat", entry->d_name);
        FILE *file = fopen(path, "re");
        if (!file) continue;
        if (fgets(text, sizeof(text), file) && sscanf(text, "%d (%31[^)]) %c %d", &pid, name, &kind, &above) == 4 &&
            above == parent)
            found = pid;
        fclose(file);
    }
    closedir(processes);
    return found;
}

// Without its helper it could give old values only: it ends, and main can start another.
static void test_ends_with_helper(void **state) {
    (void)state;
    int gate = give_gate();
    pid_t helper = helper_of(vault);
    assert_true(helper > 0);
    assert_int_equal(kill(helper, SIGKILL), 0);
    struct channel_message message;
    assert_int_equal(channel_wait(channel, 20000, buffer, sizeof(buffer), &message), 0);
    assert_int_equal(end_vault(), 1);
    assert_closed(gate);
    start_vault();
}

static void test_bad_start(void **state) {
    (void)state;
    int pair[2];
    struct channel_message message;
    chmod(rig_path("state/ca/authority"), 0644);
    assert_int_equal(end_vault(), 0);
    assert_int_equal(channel_pair(pair), 0);
    fork_vault(pair);
    struct ipc_vault_start start = {0};
    assert_int_equal(channel_send(channel, IPC_VAULT_START, &start, sizeof(start), NULL, 0), 0);
    take(channel, IPC_ERROR, &message);
    assert_non_null(strstr(message.body, "chmod 600"));
    assert_int_equal(end_vault(), 1);
    chmod(rig_path("state/ca/authority"), 0600);
    start_vault();
}

// ---- memory ----

// How often the bytes are in the process's memory, outside of what is locked for secrets (where asked) or anywhere.
static int found_in_memory(pid_t pid, const uint8_t *bytes, size_t len) {
    char path[64], line[512];
    int found = 0;
    snprintf(path, sizeof(path), "/proc/%d/maps", pid);
    FILE *maps = fopen(path, "re");
    snprintf(path, sizeof(path), "/proc/%d/mem", pid);
    int memory = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(maps && memory >= 0);
    while (fgets(line, sizeof(line), maps)) {
        unsigned long first, end;
        char rights[8];
        if (sscanf(line, "%lx-%lx %7s", &first, &end, rights) != 3 || rights[1] != 'w' || strstr(line, "[vvar]"))
            continue;
        if (end - first > 64UL << 20) continue; // a sanitizer's shadow
        uint8_t *copy = malloc(end - first);
        ssize_t got = pread(memory, copy, end - first, (off_t)first);
        for (uint8_t *at = copy; got > 0 && (at = memmem(at, (size_t)(copy + got - at), bytes, len)) != NULL; at += len)
            found++;
        free(copy);
    }
    fclose(maps);
    close(memory);
    return found;
}

// An answer is here before the vault has wiped what it was made in: until it sleeps again.
static void settle(pid_t pid) {
    char path[64], text[256], kind = 0;
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    for (int i = 0; i < 500 && kind != 'S'; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
        FILE *file = fopen(path, "re");
        assert_non_null(fgets(text, sizeof(text), file));
        sscanf(text, "%*d (%*[^)]) %c", &kind);
        fclose(file);
    }
    assert_int_equal(kind, 'S');
}

// What was given out is once in its memory, in the arena; once revoked it is nowhere.
static void test_wiped(void **state) {
    (void)state;
    char secret[33] = "", plain[64], basic[64] = "";
    uint8_t key[IPC_KEY_SIZE];
    for (size_t i = 0; i < 32; i++) secret[i] = (char)('a' + random_u32() % 26);
    give_file("token", secret);
    give_rule("a.example", "Bearer {secret}", false, "file:", rig_path("token"));
    give_rule("b.example", "u:{secret}", true, "file:", rig_path("token"));
    give_rule("c.example", "{secret}", false, "cmd:", "cat \"$PENSTOCK_STATE_FOLDER/../token\"");
    int gate = give_gate();
    assert_int_equal(ask_value(gate, 0), 0);
    snprintf(plain, sizeof(plain), "Bearer %s", secret);
    assert_string_equal(value, plain);
    assert_int_equal(ask_value(gate, 1), 0);
    memcpy(basic, value + 6, 40);
    if (geteuid() != 0) { // what an ordinary user may not even look at
        char path[64];
        snprintf(path, sizeof(path), "/proc/%d/mem", (int)vault);
        assert_int_equal(open(path, O_RDONLY), -1);
        close(gate);
        return;
    }
    settle(vault);
    int fd = open(rig_path("state/ca/authority"), O_RDONLY);
    assert_int_equal(pread(fd, key, sizeof(key), 14), sizeof(key));
    close(fd);
    uint8_t *copy = (uint8_t *)secret;
    assert_int_equal(found_in_memory(vault, copy, 32), 1);
    assert_int_equal(found_in_memory(vault, (uint8_t *)basic, 40), 0);
    // The CA's key is there as OpenSSL's number, not as it is in the file.
    assert_int_equal(found_in_memory(vault, key, sizeof(key)), 0);
    assert_int_equal(found_in_memory(helper_of(vault), copy, 32), 0);
    assert_int_equal(found_in_memory(helper_of(vault), key, sizeof(key)), 0);
    for (size_t i = 0; i < sizeof(key) / 2; i++) {
        uint8_t byte = key[i];
        key[i] = key[sizeof(key) - 1 - i];
        key[sizeof(key) - 1 - i] = byte;
    }
    assert_int_equal(found_in_memory(vault, key, sizeof(key)), 1);
    assert_int_equal(found_in_memory(helper_of(vault), key, sizeof(key)), 0);
    assert_int_equal(ask_value(gate, 2), 0);
    assert_string_equal(value, secret);
    settle(vault);
    assert_int_equal(found_in_memory(vault, copy, 32), 2); // two sources
    close(gate);                                           // the last user of both
    for (int i = 0; i < 100 && found_in_memory(vault, copy, 32) > 0; i++)
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    assert_int_equal(found_in_memory(vault, copy, 32), 0);
    assert_int_equal(found_in_memory(helper_of(vault), copy, 32), 0);
}

static void test_status(void **state) {
    (void)state;
    char path[64], line[256];
    unsigned seen = 0;
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
    unsigned locked =
        !ISOLATE_SANITIZED && limit.rlim_cur >= 8 << 20 ? 4096 : 0; // KiB: the arena, where it may be locked
    snprintf(path, sizeof(path), "/proc/%d/status", (int)vault);
    FILE *file = fopen(path, "re");
    while (fgets(line, sizeof(line), file)) {
        unsigned long long caps;
        unsigned number;
        if (sscanf(line, "CapPrm: %llx", &caps) == 1) seen += caps == 0;
        if (sscanf(line, "NoNewPrivs: %u", &number) == 1) seen += number == 1;
        if (sscanf(line, "Seccomp: %u", &number) == 1) seen += number == 2;
        if (sscanf(line, "Uid: %u", &number) == 1) seen += number == (runner ? runner : NOBODY);
        if (sscanf(line, "VmLck: %u", &number) == 1) seen += number >= locked;
    }
    fclose(file);
    assert_int_equal(seen, 5);
    snprintf(path, sizeof(path), "/proc/%d/limits", (int)vault);
    file = fopen(path, "re");
    unsigned none = 0;
    while (fgets(line, sizeof(line), file)) none += sscanf(line, "Max core file size 0 %u", &seen) == 1 && seen == 0;
    fclose(file);
    assert_int_equal(none, 1);
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "@vault") == 0) return vault_main(3);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_leaf, setup, teardown),
        cmocka_unit_test_setup_teardown(test_values, setup, teardown),
        cmocka_unit_test_setup_teardown(test_only_its_own, setup, teardown),
        cmocka_unit_test_setup_teardown(test_together, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rotation, setup, teardown),
        cmocka_unit_test_setup_teardown(test_store, setup, teardown),
        cmocka_unit_test_setup_teardown(test_slow_gate, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many_rules, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ends_with_main, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ends_with_helper, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_start, setup, teardown),
        cmocka_unit_test_setup_teardown(test_wiped, setup, teardown),
        cmocka_unit_test_setup_teardown(test_status, setup, teardown),
    };
    signal(SIGPIPE, SIG_IGN);
    int failed = 0;
    runner = getuid();
    if (runner == 0) failed += cmocka_run_group_tests_name("vault by root", tests, NULL, NULL);
    if (runner == 0) runner = NOBODY;
    return failed + cmocka_run_group_tests_name("vault by an ordinary user", tests, NULL, NULL);
}
