// SPDX-License-Identifier: Apache-2.0
// A container that is there. Private to container*.c.
#pragma once

#include "sandbox/sandbox.h"

struct sandbox_container {
    char *id, *folder;
    pid_t pid;  // PID 1 of it; 0: none
    int pidfd;  // -1: none
    int status; // socket to its init until it runs, or -1
    int claim;  // of its range of users, or -1
    int lock;   // its folder, with a shared lock: as long as we live, and whatever of crun we have started
    struct tool_process *crun; // that made it, until it has ended, or NULL
    char *command; // what start executes, for messages; NULL: nothing of the image
    unsigned execs; // so far
    int *commands;  // pidfds of those that nobody has waited for yet
    size_t command_count;
};

#define CONTAINER_PATH_MAX 3800 // of its folder: names of files in it have room behind

// ---- container_crun.c ----

// Starts crun, as container->crun, in a mount namespace where it agrees to; fds become 3, 4, ... enter: in the child. One that
// was started before is settled first.
int container_call(struct sandbox_container *container, char *const *arguments, const int *fds, size_t fd_count,
                   int (*enter)(void *data, struct error *err), void *data, struct error *err);
// A socket to an init, and a memory file for its words: what crun hands it as 3 and 4.
int container_channel(int ret_pair[2], int *ret_words, struct error *err);
// Waits until the init says that it is ready.
int container_await(int status, struct error *err);
// Lets it execute the command. Errors as sandbox_container_start.
int container_release(int status, const char *command, struct error *err);
// Copies of standard streams, /dev/null where there is none; folders are refused.
int container_streams(const int stdio[3], int ret_streams[3], struct error *err);
// That crun did as it was told, where a mistake would open the host: no namespace of the process is ours; its network
// namespace is this one, or, where like is not 0, all are those of the process like.
int container_verify(pid_t pid, pid_t like, int net_namespace, struct error *err);
// The process that crun wrote to this file; a child of ours, or where id is not NULL a process of that container.
int container_child(const char *path, const char *id, pid_t *ret_pid, int *ret_pidfd, struct error *err);
// The process that has just said something at status, which container_await will read; false if it is no child of ours.
bool container_reported(int status, pid_t *ret_pid, int *ret_pidfd);
