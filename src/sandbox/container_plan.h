// SPDX-License-Identifier: Apache-2.0
// What a container is going to be, put together step by step before crun is asked. Private to container*.c.
#pragma once

#include "base/buf.h"
#include "sandbox/container_user.h"
#include "sandbox/sandbox.h"

// Folders of ours in the sandbox's folder.
#define CONTAINER_BUNDLE "bundle" // config.json, the container's pid and start
#define CONTAINER_STATE "state"   // crun's
#define CONTAINER_DISK "disk"     // upper and work: what the container writes

#define CONTAINER_LAYERS_MAX 100
#define CONTAINER_VARIABLES_MAX 32

struct container_plan {
    const struct sandbox_container_spec *spec;
    uint32_t base;     // the container's root, outside
    int map;           // user namespace: from numbers on disk to those of the container
    int net_namespace;
    int words;         // memory file for the init
    // Filled in the child:
    char place[16];    // a folder that everybody may enter, where mounts are made that only crun sees
    int root;          // the container's root folder
    int files;         // the folder that is /run/penstock inside
    struct container_user user;
    struct buf mounts; // JSON, of files that are bound
    char *variables[CONTAINER_VARIABLES_MAX + 1]; // "NAME=value", NULL-terminated
    size_t variable_count;
};

// container_files.c: /run/penstock, and what of it is bound over the image's files. 0, or a negative errno with a message.
int container_files_make(struct container_plan *plan, struct error *err);
int container_files_add(struct container_plan *plan, const char *name, const void *bytes, size_t len, mode_t mode);
int container_files_bind(struct container_plan *plan, const char *name, const char *target);
// container_trust.c: the CA, for programs of the image.
int container_trust_make(struct container_plan *plan, struct error *err);
// container_config.c
void container_config_text(struct buf *text, const char *string); // as JSON
int container_config_write(const struct container_plan *plan, struct error *err);
// The same for a command: crun's process.json.
int container_config_process(const struct container_user *user, const char *cwd, const char *path, struct error *err);
// container_root.c: in a child that is going to be crun: all of the above.
int container_root_enter(struct container_plan *plan, struct error *err);
// container_words.c: what the init executes, into a memory file. tied: it ends with us.
int container_words_write(int fd, bool tied, char *const *argv, char *const *environment);
