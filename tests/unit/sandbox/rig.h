// SPDX-License-Identifier: Apache-2.0
// Namespaces as the keeper makes them, and commands run in real sandboxes on them.
#pragma once

#include <sys/types.h>

#include "base/buf.h"
#include "sandbox/sandbox.h"

struct rig {
    struct sandbox_identity identity;
    pid_t keeper;
    int user_namespace, net_namespace;
    char cwd[128]; // a project folder made for the test
};

struct rig_result {
    int start;           // of sandbox_process_start
    int status;          // of sandbox_process_status
    struct buf out, err; // of the command
    struct error error;
};

// As whoever the caller is.
void rig_init(struct rig *rig);
void rig_done(struct rig *rig);
void rig_remove(const char *folder); // with all that is in it
// Fills argv ("sh", "-c", script), environment and cwd.
struct sandbox_spec rig_spec(const struct rig *rig, char *argv[4], const char *script);
// Runs to the end; at most 16 MiB of output. Free with rig_result_done.
void rig_run_spec(const struct rig *rig, const struct sandbox_spec *spec, struct rig_result *ret_result);
void rig_run(const struct rig *rig, const char *script, struct rig_result *ret_result);
void rig_result_done(struct rig_result *result);
// The script's standard output must be exactly this, its status 0.
void rig_expect(const struct rig *rig, const char *script, const char *output);

// Runs a group of tests as root and again, in a child, as the ordinary user nobody; or once as the ordinary user that
// the caller is. Returns an exit status.
int rig_both(int group(void));
bool rig_is_root(void);
