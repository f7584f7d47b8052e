// SPDX-License-Identifier: Apache-2.0
// `penstock doctor` and `penstock self-test`: arguments only; the work is the daemon room's.
#include <string.h>

#include "base/mem.h"
#include "cli/cli.h"
#include "daemon/daemon.h"

struct flag {
    const char *name;
    bool *value;
};

// 0, or the exit status of an error that has been printed.
static int take_flags(int argc, char **argv, const struct flag *flags, size_t count) {
    for (int i = 1; i < argc; i++) {
        size_t at = 0;
        while (at < count && strcmp(argv[i], flags[at].name) != 0) at++;
        if (at == count) return cli_unknown(CLI_INVALID, argv[0], argv[i]);
        *flags[at].value = true;
    }
    return 0;
}

int cli_doctor(int argc, char **argv) {
    bool json = false;
    const struct flag flags[] = {{"--json", &json}};
    int status = take_flags(argc, argv, flags, ARRAY_LENGTH(flags));
    return status ? status : daemon_doctor(json);
}

int cli_self_test(int argc, char **argv) {
    struct daemon_self_test options = {0};
    const struct flag flags[] = {{"--json", &options.json}, {"--keep-going", &options.keep_going}, {"--direct", &options.direct}};
    int status = take_flags(argc, argv, flags, ARRAY_LENGTH(flags));
    return status ? status : daemon_self_test(&options);
}
