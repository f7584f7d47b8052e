// SPDX-License-Identifier: Apache-2.0
// The front door of the sandbox room. Type `process`: a command in namespaces made by bubblewrap on top of the keeper's
// user and network namespace. Type `container`: an OCI image run by crun in the keeper's network namespace.
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

// Who the sandboxed processes are. For an ordinary user: that user. For root: an unprivileged user that owns nothing.
struct sandbox_identity {
    uid_t uid;
    gid_t gid;
    bool from_root;
};
struct sandbox_identity sandbox_identity(void);

// Whether this process runs in a sandbox of ours, where no other one can be started.
bool sandbox_inside(void);

// The CA that signs for hosts with a credential: programs inside are made to trust it.
struct sandbox_trust {
    const void *certificate; // DER
    size_t len;
    uint32_t subject_hash;   // as OpenSSL's c_rehash has it
};

struct sandbox_spec {
    char *const *argv;         // NULL-terminated, at least one
    char *const *environment;  // NULL-terminated; proxy variables of the host and the like are removed by the room
    bool proxy;                // the gate has doors: the usual variables name them
    char *const *placeholders; // "NAME=VALUE", NULL-terminated: variables that are added, or replaced; or NULL
    const struct sandbox_trust *trust; // NULL: nothing is bound
    const char *cwd;           // absolute, real path; writable inside
    const char *const *reads;  // --read paths
    size_t read_count;
    const char *const *writes; // --write paths
    size_t write_count;
    const char *const *protects; // files that the host trusts, as they were named: read-only inside wherever the sandbox
    size_t protect_count;        // could write them, and neither moved nor removed; refused if that cannot be had
    const char *outcome;         // folder where something will be written when it has ended, or NULL: refused if the way to it
                                 // leads through a link that the sandbox could replace
    const char *const *hides;    // files and folders of ours that are empty inside, wherever they are shown
    size_t hide_count;
    const char *const *secrets;  // files with secrets: refused where the sandbox would see them
    size_t secret_count;
    struct sandbox_identity identity;
    const sigset_t *signal_mask; // of the command; NULL: the caller's. A caller that blocks signals for a signalfd should do
                                 // so before the start (else Ctrl-C in between ends it) and give the mask of before here.
};

// Everything that can be checked before anything is started: that this is no sandbox of ours itself, the working
// directory (not /, a home folder, /tmp, /run or a system folder), standard streams (no folder), what is to be protected,
// that --read and --write paths exist, that the command exists and can be executed (-ENOENT: exit 127,
// -EACCES: exit 126), that bubblewrap is there. 0 or a negative errno with one message that quotes the input.
int sandbox_process_check(const struct sandbox_spec *spec, struct error *err);

// What the command will be able to change of the host's files, so that nobody outside executes or opens that for it.
struct sandbox_reach;
// spec NULL: a container, which can change none.
int sandbox_reach_new(const struct sandbox_spec *spec, struct sandbox_reach **ret_reach, struct error *err);
// Whether it could change the file of this path, or to which file the path leads: now, or once there is one.
bool sandbox_reach_has(const struct sandbox_reach *reach, const char *path);
void sandbox_reach_free(struct sandbox_reach *reach); // NULL is fine

struct sandbox_process;
// The start in three steps. Prepare checks as above, and makes what the start needs. Begin starts bubblewrap, whose settings
// are the caller's at this moment (see below); the command waits for its release, which fails if anything did. What the spec
// points to has to last until then. A process that is not released is ended by sandbox_process_free.
int sandbox_process_prepare(const struct sandbox_spec *spec, struct sandbox_process **ret_process, struct error *err);
int sandbox_process_begin(struct sandbox_process *process, int user_namespace, int net_namespace, struct error *err);
int sandbox_process_release(struct sandbox_process *process, struct error *err);
// All three: starts the command inside the keeper's namespaces. The terminal, standard streams, process group, signal mask and
// ignored signals (but SIGPIPE) are the caller's at this moment. Waits until the command is executed: 0; -ENOENT (exit
// 127: it, or its interpreter, is not there), -EACCES (exit 126: any other reason not to execute it, such as too many
// arguments), or another negative errno (exit 125) with one message, and then nothing is left running.
// Call it from a process with one thread.
int sandbox_process_start(const struct sandbox_spec *spec, int user_namespace, int net_namespace,
                          struct sandbox_process **ret_process, struct error *err);
pid_t sandbox_process_pid(const struct sandbox_process *process); // of the helper (bwrap), the caller's child
// Readable when the command stopped, continued or ended; then call one of the two below.
int sandbox_process_fd(const struct sandbox_process *process);
// 2: the command stopped (Ctrl-Z, kill -STOP). The caller should bring its own affairs in order, stop itself so that its
// shell sees that, and call sandbox_process_resume when it is continued. 1: nothing to do. 0: no more will come (remove
// the descriptor from the loop).
int sandbox_process_observe(struct sandbox_process *process);
void sandbox_process_resume(struct sandbox_process *process); // continues a command that stopped
// All of that at once, for callers without such affairs: stops the calling process when the command stopped. 1, or 0
// when no more will come.
int sandbox_process_dispatch(struct sandbox_process *process);
// Sends a signal to the command itself (the first process of the sandbox's PID namespace that is not its init). 0, or
// -ESRCH when it has ended. A terminal's Ctrl-C reaches the command without help: do not pass on what the kernel sent
// (SI_KERNEL).
int sandbox_process_signal(struct sandbox_process *process, int signal);
// The exit status that `penstock run` has for a wait status of that pid: the command's, or 128+N.
int sandbox_process_status(struct sandbox_process *process, int wait_status);
// Frees; kills what is left.
void sandbox_process_free(struct sandbox_process *process);

// ---- images: an OCI image becomes one folder, that containers share read-only ----

struct sandbox_registry {
    const char *from, *to; // "docker.io", "mirror.example:5000"
};
struct sandbox_image_place {
    const char *folder;                // the node's: images/ and layers/ are made in it. Only root may enter it
    const struct sandbox_registry *mirrors; // asked instead
    size_t mirror_count;
    const char *const *plain_registries;    // after mirrors: by HTTP, or HTTPS with any certificate
    size_t plain_count;
    bool local;                        // oci: and docker-archive: may be named, files of this host
};
struct sandbox_image {
    char *digest;        // of the manifest, "sha256:..."
    char *layer;         // folder of the root file system
    char *cwd, *user;    // "" where the image says nothing
    char **argv;         // entry point and command; NULL-terminated, may be empty
    char **environment;  // NULL-terminated
};
// "NAME[:TAG]" (docker://docker.io/library/NAME), docker://..., oci:FOLDER[:TAG], docker-archive:FILE. Fetched, unless its
// parts are there; unpacked once a digest, by programs that have no right on this host; several processes may ask at the same
// time. Blocks for as long as that takes. Root only. 0, or a negative errno with a message.
int sandbox_image_get(const char *reference, const struct sandbox_image_place *place, struct sandbox_image *ret_image,
                      struct error *err);
void sandbox_image_done(struct sandbox_image *image);

// Whether a program that containers or images need is there, where it would be looked for.
bool sandbox_has_program(const char *name);

// ---- type `container` ----

// On disks, all that belongs to containers is owned by numbers from here: nobody on the host is one of these, so a
// set-user-ID file of a container's root is nobody's outside. Each container sees them through a mount that shows them as
// its own range.
#define CONTAINER_DISK_BASE UINT32_C(0x80000000)

struct sandbox_container_spec {
    const char *id;            // letters, digits, '-', '_' (at most 64): also the name of its cgroup, penstock/ID
    const char *folder;        // of this sandbox; absolute, there, owned by root, mode 0700. bundle/, state/ and disk/ are made in it
    const char *const *layers; // folders, uppermost first; made by sandbox_image_get or sandbox_container_snapshot
    size_t layer_count;
    char *const *argv;         // PID 1. NULL: one of ours that reaps, until SIGTERM
    bool tied;                 // with argv NULL: the container ends when the caller does, by whatever signal
    char *const *environment;  // NULL-terminated; the image's and the caller's, none of the host
    char *const *placeholders; // as in sandbox_spec
    bool proxy;
    const struct sandbox_trust *trust;
    const char *cwd;           // NULL or "": /
    const char *user;          // "NAME|UID[:GROUP|GID]" as inside; NULL or "": root
    const char *hostname;      // NULL: id
    uint64_t memory_bytes;     // 0: no limit
    uint32_t cpu_millis;       // 0: no limit
    uint32_t pids_max;         // 0: SANDBOX_PIDS_MAX
    int stdio[3];              // -1: /dev/null
    bool early;                // create does not wait for crun's own end: call sandbox_container_settle then
};
#define SANDBOX_PIDS_MAX 4096

// What every container needs is made ready for the next create; if that fails it is made then.
void sandbox_container_ahead(void);
struct sandbox_container;
// The container is made and waits; nothing of the image has run. It is the caller's child (PR_SET_CHILD_SUBREAPER is set): wait
// for its pid. Users inside are a range of numbers that nobody else on this host has. Call it from a process with one thread.
// 0, or a negative errno with a message, and then nothing is left.
int sandbox_container_create(const struct sandbox_container_spec *spec, int user_namespace, int net_namespace,
                             struct sandbox_container **ret_container, struct error *err);
// Its argv runs: 0. -ENOENT (exit 127): it is not there, -EACCES (exit 126): it cannot be executed; other errors.
int sandbox_container_start(struct sandbox_container *container, struct error *err);
// How crun, which made it, has ended; whatever that is, the container has been looked at, and runs.
int sandbox_container_settle(struct sandbox_container *container, struct error *err);
int sandbox_container_crun(const struct sandbox_container *container); // to read from when it has, and to close; -1: it has
// Takes over a container that another process made, for exec, pause, snapshot and so on; wait does not work then.
int sandbox_container_open(const char *id, const char *folder, struct sandbox_container **ret_container, struct error *err);
pid_t sandbox_container_pid(const struct sandbox_container *container);

struct sandbox_exec {
    char *const *argv;
    char *const *environment; // beside the container's own, which it replaces by name; may be NULL
    const char *cwd;          // NULL or "": the container's
    const char *user;         // NULL or "": the container's
    int stdio[3];             // -1: /dev/null. A terminal becomes the controlling one
    unsigned own;             // bits 1 << 0 to 2: streams that nobody else uses. They become the command's user's, who can then
                              // open /dev/stdout and its like
};
// Runs a command in a container that runs. It is the caller's child, and the leader of a session. Errors as start's; -EBUSY
// while it is paused.
int sandbox_container_exec(struct sandbox_container *container, const struct sandbox_exec *exec, pid_t *ret_pid,
                           struct error *err);
int sandbox_container_pause(struct sandbox_container *container, struct error *err);  // all its processes stand still
int sandbox_container_resume(struct sandbox_container *container, struct error *err);
int sandbox_container_signal(struct sandbox_container *container, int signal); // to PID 1. 0 or -ESRCH
// A copy of what the container has changed, as a layer that others can be made from. The folder must not be there; it is
// there with all or not at all. The container stands still meanwhile.
int sandbox_container_snapshot(struct sandbox_container *container, const char *layer_folder, struct error *err);
int sandbox_container_drop(const char *layer_folder, struct error *err); // removes such a layer
// Ends it and removes what create made; waits for its processes, those of commands too. NULL is fine.
void sandbox_container_free(struct sandbox_container *container);
// The same for a container whose holder died, at whatever moment; removes the folder too. Can be repeated. 0, or a negative
// errno with a message; -EBUSY: a holder lives.
int sandbox_container_clean(const char *id, const char *folder, struct error *err);
// Ends its holders by force, whatever they do. Returns how many there were; their end is not waited for.
int sandbox_container_end_holders(const char *id, const char *folder);
