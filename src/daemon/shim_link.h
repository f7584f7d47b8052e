// SPDX-License-Identifier: Apache-2.0
// The daemon's end of a connection to a shim: starts one, or finds one that runs; calls with an answer each.
#pragma once

#include <jansson.h>
#include <stddef.h>

#include "base/error.h"
#include "wire/ipc.h"

struct event_base;
struct shim_link;

struct shim_link_handlers {
    void (*up)(const struct ipc_shim_up *up, void *data); // it runs; once
    void (*counted)(const struct ipc_counters *counters, void *data); // as IPC_SHIM_COUNT asks for
    // The shim has gone, or its connection has; why it could not start (-EINVAL: what was asked for cannot be had, -EAGAIN: not
    // now, else another negative errno), or 0 and "" if it did not say. Calls under way have been answered with NULL. The link
    // may be freed here.
    void (*gone)(int failure, const char *text, void *data);
};

// Answered once, or with NULL when the shim went away.
typedef void shim_link_done(const struct ipc_shim_done *done, void *data);
typedef void shim_link_exit(int status, void *data); // of a command; -1: the shim went away

// A shim that has nothing to do yet: loading programs is most of the time that a start takes.
struct shim_spare {
    int fd; // -1: there is none
    pid_t pid;
    char *place, *errors; // its folder's name until it has one; a file
};
// Starts one for a folder that will be below this one. 0, or a negative errno with a message.
int shim_spare_start(struct shim_spare *spare, const char *parent, uint32_t users, struct error *err);
void shim_spare_end(struct shim_spare *spare);

// Starts a shim, or takes the spare one, for the folder, which has its specification. 0, or a negative errno with a message.
int shim_link_spawn(struct event_base *base, const char *folder, uint32_t users, struct shim_spare *spare, const struct shim_link_handlers *handlers,
                    void *data, struct shim_link **ret_link, struct error *err);
// Finds one that runs. -ENOENT, -ECONNREFUSED: there is none. -EAGAIN: it has not answered for long.
int shim_link_connect(struct event_base *base, const char *folder, const struct shim_link_handlers *handlers, void *data,
                      struct shim_link **ret_link, struct error *err);
// Asks. argument: what the verb takes, or NULL; stays the caller's. streams: standard streams of a command, or NULL; stay the
// caller's. exited: of a command, called only if done said that it has begun. 0 (done will be called), or a negative errno with
// a message (it will not).
int shim_link_call(struct shim_link *link, enum ipc_shim_verb verb, const json_t *argument, const int streams[3],
                   shim_link_done *done, shim_link_exit *exited, void *data, struct error *err);
// Whoever called and has gone: nothing is told to it any more.
void shim_link_forget(struct shim_link *link, const void *data);
// Ends the shim by force; gone follows. NULL is fine.
void shim_link_kill(struct shim_link *link);
void shim_link_end(struct shim_link *link); // as if the shim had gone: gone is called
void shim_link_free(struct shim_link *link); // NULL is fine; the shim lives on
void shim_link_reap(void); // those that have ended since their links were freed
