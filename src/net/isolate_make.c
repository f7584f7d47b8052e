// SPDX-License-Identifier: Apache-2.0
// Part of the build: compiles the filter of each role from the table, proves it, and prints it as C. Made here and not at
// each start, where it took a tenth of the time.
#include <errno.h>
#include <seccomp.h>
#include <stdio.h>

#include "base/call_filter.h"
#include "base/mem.h"
#include "net/isolate_table.h"
#include "net/net.h"

static struct scmp_arg_cmp isolate_compare(const struct isolate_condition *condition) {
    switch ((enum isolate_compare)condition->compare) {
    case ISOLATE_MASKED: return SCMP_CMP64(condition->argument, SCMP_CMP_MASKED_EQ, condition->mask, condition->value);
    case ISOLATE_ABOVE: return SCMP_CMP64(condition->argument, SCMP_CMP_GT, condition->value);
    case ISOLATE_EQUAL:
    case ISOLATE_ANY: break;
    }
    return SCMP_CMP64(condition->argument, SCMP_CMP_EQ, condition->value);
}

static int isolate_filter_add(struct call_filter *filter, enum isolate_role role, const struct isolate_call *call) {
    struct scmp_arg_cmp compares[ARRAY_LENGTH(call->conditions)];
    size_t count = 0;

    if (!(call->roles & (1 << role))) return 0;
    while (count < ARRAY_LENGTH(compares) && call->conditions[count].compare != ISOLATE_ANY) {
        compares[count] = isolate_compare(&call->conditions[count]);
        count++;
    }
    uint32_t action = call->action == ISOLATE_ALLOW ? SCMP_ACT_ALLOW : SCMP_ACT_ERRNO(EACCES);
    return call_filter_add(filter, action, call->number, count, compares);
}

static int isolate_print(enum isolate_role role, const char *name) {
    struct call_filter *filter = call_filter_new(ISOLATE_SANITIZED ? SCMP_ACT_ERRNO(EPERM) : SCMP_ACT_KILL_PROCESS);
    int result = filter ? 0 : -ENOMEM;
    for (size_t i = 0; i < isolate_call_count && result == 0; i++) result = isolate_filter_add(filter, role, &isolate_calls[i]);
    printf("static const struct sock_filter %s[] = ", name);
    if (result == 0) result = call_filter_print(filter, stdout);
    printf(";\n");
    call_filter_free(filter);
    return result;
}

int main(void) {
    static const struct {
        const char *constant, *name;
    } roles[] = {
        [ISOLATE_KEEPER] = {"ISOLATE_KEEPER", "keeper"},
        [ISOLATE_GATE] = {"ISOLATE_GATE", "gate"},
        [ISOLATE_RESOLVER] = {"ISOLATE_RESOLVER", "resolver"},
        [ISOLATE_VAULT] = {"ISOLATE_VAULT", "vault"},
    };
    int result = 0;
    printf("#include \"net/isolate_table.h\"\n#include \"net/net.h\"\n");
    for (size_t i = 0; result == 0 && i < ARRAY_LENGTH(roles); i++) result = isolate_print((enum isolate_role)i, roles[i].name);
    printf("const struct isolate_program isolate_programs[] = {\n");
    for (size_t i = 0; i < ARRAY_LENGTH(roles); i++)
        printf("    [%s] = {%s, sizeof(%s) / sizeof(%s[0])},\n", roles[i].constant, roles[i].name, roles[i].name, roles[i].name);
    printf("};\n");
    if (result < 0) fprintf(stderr, "isolate_make: %d\n", result);
    return result < 0;
}
