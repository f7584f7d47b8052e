// SPDX-License-Identifier: Apache-2.0
// Theory of operation: rules go to libseccomp and into a list. The program that comes back is run here, as the kernel would
// run it (the few instructions of classic BPF that libseccomp uses), on arguments that just meet and just miss each rule,
// and its answers are compared with those of the list.
#include "base/call_filter.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"

#define RULES_MAX 768
#define CONDITIONS_MAX 2
#define X32_BIT 0x40000000
#define NO_CALL 0x3fffffff // a number that no call has
#define KILLED SECCOMP_RET_KILL_PROCESS

struct rule {
    int call;
    uint32_t action;
    size_t count;
    struct scmp_arg_cmp conditions[CONDITIONS_MAX];
};

struct call_filter {
    scmp_filter_ctx context;
    uint32_t other;
    size_t count;
    struct rule rules[RULES_MAX];
};

struct program {
    struct sock_filter code[BPF_MAXINSNS];
    size_t count;
};

struct call_filter *call_filter_new(uint32_t other) {
    struct call_filter *filter = NEW(struct call_filter);
    if (!filter) return NULL;
    filter->other = other;
    filter->context = seccomp_init(other);
    if (filter->context && seccomp_attr_set(filter->context, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS) == 0 &&
        seccomp_attr_set(filter->context, SCMP_FLTATR_CTL_OPTIMIZE, 2) == 0) // a tree: the relay's calls are many
        return filter;
    call_filter_free(filter);
    return NULL;
}

void call_filter_free(struct call_filter *filter) {
    if (filter && filter->context) seccomp_release(filter->context);
    free(filter);
}

int call_filter_add(struct call_filter *filter, uint32_t action, int call, size_t count, const struct scmp_arg_cmp *conditions) {
    if (filter->count == RULES_MAX || count > CONDITIONS_MAX) return -E2BIG;
    int result = seccomp_rule_add_array(filter->context, action, call, (unsigned)count, conditions);
    if (result == -EDOM || (result == 0 && call < 0)) return 0;
    if (result < 0) return result;
    struct rule *rule = &filter->rules[filter->count++];
    *rule = (struct rule){.call = call, .action = action, .count = count};
    for (size_t i = 0; i < count; i++) rule->conditions[i] = conditions[i];
    return 0;
}

// ---- what the rules say ----

static bool condition_holds(const struct scmp_arg_cmp *condition, uint64_t argument) {
    if (condition->op == SCMP_CMP_EQ) return argument == condition->datum_a;
    if (condition->op == SCMP_CMP_GT) return argument > condition->datum_a;
    return condition->op == SCMP_CMP_MASKED_EQ && (argument & condition->datum_a) == condition->datum_b;
}

static uint32_t wanted_action(const struct call_filter *filter, const struct seccomp_data *data) {
    for (size_t i = 0; i < filter->count; i++) {
        const struct rule *rule = &filter->rules[i];
        bool holds = rule->call == data->nr;
        for (size_t j = 0; holds && j < rule->count; j++)
            holds = condition_holds(&rule->conditions[j], data->args[rule->conditions[j].arg]);
        if (holds) return rule->action;
    }
    return filter->other;
}

// ---- what the program says ----

static bool jump_taken(uint16_t code, uint32_t accumulator, uint32_t k) {
    switch (BPF_OP(code)) {
    case BPF_JEQ:
        return accumulator == k;
    case BPF_JGT:
        return accumulator > k;
    case BPF_JGE:
        return accumulator >= k;
    case BPF_JSET:
        return (accumulator & k) != 0;
    default: // not our enumeration
        return false;
    }
}

// False: it runs out of its end, or does what is not expected of it.
static bool program_run(const struct program *program, const struct seccomp_data *data, uint32_t *ret_action) {
    uint32_t accumulator = 0;
    for (size_t at = 0; at < program->count; at++) {
        const struct sock_filter *step = &program->code[at];
        if (step->code == (BPF_RET | BPF_K)) {
            *ret_action = step->k;
            return true;
        }
        if (step->code == (BPF_LD | BPF_W | BPF_ABS) && step->k <= sizeof(*data) - sizeof(accumulator))
            memcpy(&accumulator, (const uint8_t *)data + step->k, sizeof(accumulator));
        else if (step->code == (BPF_ALU | BPF_AND | BPF_K))
            accumulator &= step->k;
        else if (step->code == (BPF_JMP | BPF_JA) && step->k < program->count)
            at += step->k;
        else if (BPF_CLASS(step->code) == BPF_JMP && BPF_SRC(step->code) == BPF_K && BPF_OP(step->code) != BPF_JA)
            at += jump_taken(step->code, accumulator, step->k) ? step->jt : step->jf;
        else
            return false;
    }
    return false;
}

static bool agrees(const struct program *program, const struct seccomp_data *data, uint32_t wanted) {
    uint32_t action;
    return program_run(program, data, &action) && action == wanted;
}

// The rule's own arguments, and those with one condition just missed.
static bool prove_rule(const struct call_filter *filter, const struct program *program, const struct rule *rule) {
    static const uint64_t changes[] = {0, 1, UINT64_C(1) << 31, UINT64_C(1) << 40, ~UINT64_C(0)};
    struct seccomp_data data = {.nr = rule->call, .arch = seccomp_arch_native()};
    for (size_t i = 0; i < rule->count; i++) {
        const struct scmp_arg_cmp *condition = &rule->conditions[i];
        uint64_t masked = condition->op == SCMP_CMP_MASKED_EQ ? condition->datum_b : condition->datum_a;
        data.args[condition->arg] = condition->op == SCMP_CMP_GT ? condition->datum_a + 1 : masked;
    }
    if (wanted_action(filter, &data) != rule->action) return false;
    for (size_t i = 0; i < (rule->count ? rule->count : 1); i++) {
        for (size_t j = 0; j < ARRAY_LENGTH(changes); j++) {
            struct seccomp_data changed = data;
            changed.args[rule->count ? rule->conditions[i].arg : 0] ^= changes[j];
            if (!agrees(program, &changed, wanted_action(filter, &changed))) return false;
        }
    }
    return true;
}

static int prove(const struct call_filter *filter, const struct program *program) {
    struct seccomp_data unknown = {.nr = NO_CALL, .arch = seccomp_arch_native()};
    struct seccomp_data foreign = {.nr = 0, .arch = ~seccomp_arch_native()};
    struct seccomp_data x32 = {.nr = X32_BIT, .arch = SCMP_ARCH_X86_64};
    bool good = agrees(program, &unknown, filter->other) && agrees(program, &foreign, KILLED);
    if (seccomp_arch_native() == SCMP_ARCH_X86_64) good = good && agrees(program, &x32, KILLED);
    for (size_t i = 0; good && i < filter->count; i++) good = prove_rule(filter, program, &filter->rules[i]);
    return good ? 0 : -EILSEQ;
}

// ---- use ----

static int program_make(const struct call_filter *filter, int fd, struct program *ret_program) {
    int result = seccomp_export_bpf(filter->context, fd);
    if (result < 0) return result;
    ssize_t len = pread(fd, ret_program->code, sizeof(ret_program->code), 0);
    if (len < 0) return -errno;
    ret_program->count = (size_t)len / sizeof(ret_program->code[0]);
    return prove(filter, ret_program);
}

int call_filter_write(const struct call_filter *filter, int fd) {
    AUTO_FREE struct program *program = NEW(struct program);
    return program ? program_make(filter, fd, program) : -ENOMEM;
}

int call_filter_print(const struct call_filter *filter, FILE *out) {
    AUTO_FREE struct program *program = NEW(struct program);
    AUTO_CLOSE int fd = memfd_create("penstock-filter", MFD_CLOEXEC);
    if (!program) return -ENOMEM;
    if (fd < 0) return -errno;
    int result = program_make(filter, fd, program);
    if (result < 0) return result;
    fprintf(out, "{\n");
    for (size_t i = 0; i < program->count; i++) {
        const struct sock_filter *step = &program->code[i];
        fprintf(out, "    {0x%x, %u, %u, 0x%x},\n", step->code, step->jt, step->jf, step->k);
    }
    fprintf(out, "}");
    return ferror(out) ? -EIO : 0;
}
