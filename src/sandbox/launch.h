// SPDX-License-Identifier: Apache-2.0
// All that a start of bubblewrap needs, made before the fork, and the child's side of it.
#pragma once

#include <signal.h>

#include "sandbox/etc_file.h"
#include "sandbox/exposure.h"
#include "sandbox/hidden.h"
#include "sandbox/trust.h"
#include "sandbox/unix_mask.h"

struct launch {
    const struct sandbox_spec *spec;
    struct exposure exposure;
    struct hidden hidden;
    struct unix_mask mask;
    struct etc_file etc_files[ETC_FILES];
    size_t etc_file_count;
    struct trust trust;
    const char *program; // bubblewrap
    char *command;       // file to execute inside
    char **environment;
    int seccomp, init, options, arguments; // memory files: filter, the init program, bubblewrap's options, the command's
                                           // path and arguments
};

// Only what sandbox_process_check looks at: exposure, program, command. Release with launch_done in any case.
int launch_check(struct launch *launch, const struct sandbox_spec *spec, struct error *err);
// The same and the rest.
int launch_prepare(struct launch *launch, const struct sandbox_spec *spec, struct error *err);
void launch_done(struct launch *launch);

struct launch_child {
    int user_namespace, net_namespace;
    int status;    // the sandbox's end of the report socket
    int messages;  // standard error of all until the command runs
    sigset_t mask; // the command's signal mask; now all are blocked
};
// In the forked child: enters the namespaces, gives up what rights there are, executes. Errors are text in messages.
_Noreturn void launch_run(const struct launch *launch, const struct launch_child *child);
