// SPDX-License-Identifier: Apache-2.0
// Part of the build: compiles the sandbox's filter, proves it, and prints it as C. Made here and not at each start, where it
// took a tenth of the time.
#include <errno.h>
#include <seccomp.h>
#include <stdio.h>

#include "base/call_filter.h"
#include "sandbox/seccomp_rules.h"

int main(void) {
    static const char *const names[] = {"seccomp_program", "seccomp_program_fixed_mounts"};
    int result = 0;
    printf("#include \"sandbox/seccomp_program.h\"\n");
    for (int fixed_mounts = 0; result == 0 && fixed_mounts <= 1; fixed_mounts++) {
        struct call_filter *filter = call_filter_new(SCMP_ACT_ALLOW);
        result = filter ? seccomp_rules_fill(filter, fixed_mounts) : -ENOMEM;
        printf("const struct sock_filter %s[] = ", names[fixed_mounts]);
        if (result == 0) result = call_filter_print(filter, stdout);
        printf(";\nconst size_t %s_count = sizeof(%s) / sizeof(%s[0]);\n", names[fixed_mounts], names[fixed_mounts],
               names[fixed_mounts]);
        call_filter_free(filter);
    }
    if (result < 0) fprintf(stderr, "seccomp_make: %d\n", result);
    return result < 0;
}
