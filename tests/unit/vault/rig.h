// SPDX-License-Identifier: Apache-2.0
// For tests of the vault room: a state folder of its own for each test, and a pool of secrets with a real helper.
#pragma once

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "vault/secret.h"

// A new folder under /tmp, PENSTOCK_STATE_FOLDER in it. Also goes back to the first one's absence: rig_done removes it.
void rig_init(void);
void rig_done(void);
const char *rig_path(const char *name);               // in the folder; one at a time
void rig_write(const char *name, const char *text);   // in place
void rig_replace(const char *name, const char *text); // by rename
mode_t rig_mode(const char *path);

struct rig_pool {
    struct secret_pool pool;
    pid_t source;
    unsigned changes;
    uint32_t epoch; // of the last change
    char notice[1024];
    unsigned notices;
};
void rig_pool_init(struct rig_pool *rig, int command_ms);
void rig_pool_done(struct rig_pool *rig);
// Fetches at a time and waits for it: the status.
int rig_fetch_at(struct rig_pool *rig, struct secret *secret, uint64_t now_us);
int rig_fetch(struct rig_pool *rig, struct secret *secret);
void rig_turn(struct rig_pool *rig); // one turn of the loop
void assert_secret(const struct secret *secret, const char *text);
