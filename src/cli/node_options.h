// SPDX-License-Identifier: Apache-2.0
// Options of the commands that speak to a node, and what of them goes into a call. Private to node_command.c.
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/error.h"

struct node_options {
    bool json, print, denied, follow, all, detach, open_private, input;
    const char *image, *template_id, *name, *timeout, *existing, *policy, *network, *memory, *cpus, *user, *cwd, *type;
    const char *start, *ready;
    json_t *allow, *deny, *steps, *env, *metadata; // native entries; of a build; objects of strings
    char **words; // arguments that are no options
    int word_count;
    char **command; // behind --; NULL: none
};

// letter: of the command (see the table). 0, or a negative errno with a message; node_options_done in any case.
int node_options_read(struct node_options *options, char letter, int argc, char **argv, struct error *err);
void node_options_done(struct node_options *options);
// The policy of the options as a text: a file's, or one of --network, --allow and so on. NULL with 0: none was given.
int node_policy_text(const struct node_options *options, char **ret_text, struct error *err);
// A whole number; text NULL: nothing is put.
int node_number_put(json_t *body, const char *key, const char *option, const char *text, struct error *err);
// memoryMB of MiB, or with a unit as of `run`.
int node_memory_put(json_t *body, const char *text, struct error *err);
