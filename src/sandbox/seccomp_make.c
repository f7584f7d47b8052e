// SPDX-License-Identifier: Apache-2.0
// Part of the build: compiles the sandbox's filter, proves it, and prints it as C. Made here and not at each start, where it
// took a tenth of the time.
#include <errno.h>
#include <seccomp.h>
#include <stdint.h>
#include <stdio.h>

#include "base/call_filter.h"
#include "base/mem.h"
#include "sandbox/container_calls.h"
#include "sandbox/seccomp_rules.h"

static int fill_open(struct call_filter *filter) { return seccomp_rules_fill(filter, false); }
static int fill_fixed(struct call_filter *filter) { return seccomp_rules_fill(filter, true); }

static const struct {
    const char *name;
    uint32_t other;
    int (*fill)(struct call_filter *filter);
} programs[] = {
    {"seccomp_program", SCMP_ACT_ALLOW, fill_open},
    {"seccomp_program_fixed_mounts", SCMP_ACT_ALLOW, fill_fixed},
    {"seccomp_program_container", SCMP_ACT_ERRNO(ENOSYS), container_calls_fill},
};

int main(void) {
    int result = 0;
    printf("#include \"sandbox/seccomp_program.h\"\n");
    for (size_t i = 0; result == 0 && i < ARRAY_LENGTH(programs); i++) {
        struct call_filter *filter = call_filter_new(programs[i].other);
        const char *name = programs[i].name;
        result = filter ? programs[i].fill(filter) : -ENOMEM;
        printf("const struct sock_filter %s[] = ", name);
        if (result == 0) result = call_filter_print(filter, stdout);
        printf(";\nconst size_t %s_count = sizeof(%s) / sizeof(%s[0]);\n", name, name, name);
        call_filter_free(filter);
    }
    if (result < 0) fprintf(stderr, "seccomp_make: %d\n", result);
    return result < 0;
}
