// SPDX-License-Identifier: Apache-2.0
// Secrets by reference, in the vault process: where a value comes from, the value in locked memory, and its epoch,
// which counts how often it became another one or was lost.
//
//   env:NAME       what main handed over; never changes
//   file:PATH      opened at each use; read again if it is another file or was written
//   store:NAME     the same, decrypted
//   cmd:COMMAND    run at use if the last result is older than SECRET_COMMAND_US
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/list.h"
#include "net/net.h"

struct event;
struct event_base;

#define SECRET_COMMAND_US 60000000
#define SECRET_LOOK_S 2          // files and stored secrets in use are looked at this often without a request
#define SECRET_ROUND_US 15000000 // a source that has not answered by then has failed
#define SECRET_ENVIRONMENT_MAX 256

enum secret_kind { SECRET_ENVIRONMENT, SECRET_FILE, SECRET_COMMAND, SECRET_STORE };

// Somebody who waits for a secret to be fresh.
struct secret_waiter {
    struct list link;
    void (*done)(struct secret_waiter *waiter, int status); // 0: secret->value is what it is now; else negative errno
};

struct secret {
    struct list link;
    struct secret_pool *pool;
    enum secret_kind kind;
    unsigned users;
    uint32_t epoch; // 0: never known
    uint8_t *value; // secure memory; NULL: none
    size_t len;
    int status;     // of the last round
    uint32_t asked; // the round's question to the source; 0: no round
    uint64_t asked_us, known_us;
    struct list waiting; // for the end of this round
    struct list later;   // came during this round: what it finds may be older than their question
    struct stat file;    // that the value was read from
    // of a command that runs
    int pipe;
    struct event *readable;
    uint8_t *output;
    size_t output_len;
    int output_status;
    int told; // the status of the last notice about it; 0: none since it worked
    char reference[];
};

struct secret_pool {
    struct event_base *base;
    int source;  // channel
    uid_t owner; // of the store's files
    uint32_t next_id;
    struct list secrets;
    struct list environment;
    size_t environment_count;
    void (*changed)(struct secret *secret, void *data);
    void (*notice)(const char *text, void *data);
    void *data;
};

void secret_pool_init(struct secret_pool *pool);
void secret_pool_done(struct secret_pool *pool);
// A value of main's environment, from a memory file. 0, or negative errno.
int secret_pool_environment(struct secret_pool *pool, const char *name, int fd, size_t len);

// The secret of a reference; users share it. -EINVAL: not a reference. -ENOMEM.
int secret_ref(struct secret_pool *pool, const char *reference, struct secret **ret_secret);
void secret_unref(struct secret *secret); // NULL is fine
// Makes sure that the value is what its source says now; done is called, maybe from inside.
void secret_fetch(struct secret *secret, struct secret_waiter *waiter, uint64_t now_us);
// Every SECRET_LOOK_S: looks at what can change without a request, gives up on rounds that take too long.
void secret_pool_look(struct secret_pool *pool, uint64_t now_us);
// Of a reference, what is behind the kind.
const char *secret_place(const struct secret *secret);
// Tells the operator why it cannot be used, once for each way, until it works again.
void secret_tell(struct secret *secret, int status);
// The round is over. Takes value (secure memory), which may be NULL on failure.
void secret_finish(struct secret *secret, int status, uint8_t *value, size_t len, uint64_t now_us);

// ---- secret_answer.c ----

// A message of the source. False: it is none that a source sends.
bool secret_pool_message(struct secret_pool *pool, struct channel_message *message, uint64_t now_us);
void secret_output_close(struct secret *secret);

// ---- secret_read.c: values from descriptors ----

// Ends of lines at the end of what files and commands say are not part of a secret: "\n" or "\r\n", once.
size_t secret_trim(const uint8_t *bytes, size_t len);
bool secret_same_file(const struct stat *a, const struct stat *b);
// Reads the file into value (secure memory, room for IPC_SECRET_MAX + 2): its length, or negative errno. -EPERM: what
// is no regular file.
int secret_read_file(int fd, uint8_t *value);
// The same for a stored secret: key file, and the file of the name.
int secret_read_stored(int key_fd, int fd, uid_t owner, const char *name, uint8_t *value);
