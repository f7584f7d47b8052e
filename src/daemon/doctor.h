// SPDX-License-Identifier: Apache-2.0
// `penstock doctor`: one row a mechanism that a sandbox needs; each is tried, not guessed.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "daemon/role.h"
#include "sandbox/sandbox.h"

enum doctor_state { DOCTOR_OK, DOCTOR_WARNING, DOCTOR_MISSING, DOCTOR_STATE_COUNT };

struct doctor_finding {
    enum doctor_state state;
    char found[768]; // one line: what the try showed
    char fix[512];   // one line: the command that mends it; "" if ok
    char file[1024]; // a file that the fix installs, as text to show below it; "" if none
};

// What is examined, and what one check leaves for the next.
struct doctor {
    const char *root;    // put in front of /proc/sys, /etc/apparmor.d; "" but in tests
    const char *program; // the path that a profile has to name
    struct sandbox_identity identity;
    bool no_namespaces;                // none can be made: the check "user namespace" failed
    struct role keeper;                // running from the check "network skeleton" on
    int user_namespace, net_namespace; // of the keeper, or -1
    uint32_t skeleton;                 // enum ipc_skeleton: what the keeper came to
};

struct doctor_check {
    const char *name;
    const char *why; // what does not work without it
    void (*examine)(struct doctor *doctor, struct doctor_finding *finding);
};
extern const struct doctor_check doctor_checks[];
extern const size_t doctor_check_count;

// Sets state and found, printf format. The fix is set apart.
void doctor_say(struct doctor_finding *finding, enum doctor_state state, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void doctor_fix(struct doctor_finding *finding, const char *format, ...) __attribute__((format(printf, 2, 3)));
// A number from a file below root. False if it is not there or is none.
bool doctor_number(const struct doctor *doctor, const char *path, unsigned long *ret_number);

// doctor_namespace.c: what a child that makes namespaces got to.
enum doctor_step { DOCTOR_STEP_DONE, DOCTOR_STEP_USER, DOCTOR_STEP_NET, DOCTOR_STEP_ADMIN };
// Why a step failed with this errno, by the settings and profiles of the host.
void doctor_namespace_explain(const struct doctor *doctor, enum doctor_step step, int error,
                              struct doctor_finding *finding);
void doctor_namespace_user(struct doctor *doctor, struct doctor_finding *finding);
void doctor_namespace_skeleton(struct doctor *doctor, struct doctor_finding *finding);
void doctor_namespace_sockets(struct doctor *doctor, struct doctor_finding *finding);
void doctor_namespace_bubblewrap(struct doctor *doctor, struct doctor_finding *finding);
void doctor_namespace_cwd(struct doctor *doctor, struct doctor_finding *finding);

// doctor_container.c
void doctor_container_run(struct doctor *doctor, struct doctor_finding *finding);
void doctor_container_images(struct doctor *doctor, struct doctor_finding *finding);

// doctor_kernel.c
void doctor_kernel_proc(struct doctor *doctor, struct doctor_finding *finding);
void doctor_kernel_calls(struct doctor *doctor, struct doctor_finding *finding);
void doctor_kernel_seccomp(struct doctor *doctor, struct doctor_finding *finding);
void doctor_kernel_landlock(struct doctor *doctor, struct doctor_finding *finding);
void doctor_kernel_descriptors(struct doctor *doctor, struct doctor_finding *finding);
void doctor_kernel_ping(struct doctor *doctor, struct doctor_finding *finding);
void doctor_kernel_resolver(struct doctor *doctor, struct doctor_finding *finding);
void doctor_kernel_credentials(struct doctor *doctor, struct doctor_finding *finding);
