// SPDX-License-Identifier: Apache-2.0
// The POLICY options that `run` and `check` share (semantics section 12).
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "policy/model.h"

struct policy_options {
    const char *policy_file;
    const char *dialect;
    const char *type;
    const char *node_config;
    struct policy_model *model; // built from --network, --allow, ...; NULL until one was given
    bool has_network;
};

// If argv[*index] is one of these options, takes it (and its value), moves *index behind it and returns 1. 0: another
// option. Negative errno with a message: a bad value. Both "--allow X" and "--allow=X" are understood.
int policy_options_take(struct policy_options *options, int argc, char **argv, int *index, struct error *err);
// The model: from the file, or from the options (base deny unless --network all), checked for the type
// (--type, else the file's, else process). --policy beside the other options is an error.
int policy_options_finish(struct policy_options *options, struct policy_model **ret_model, enum policy_type *ret_type,
                          struct error *err);
// The node configuration: --node-config, else nothing, and PENSTOCK_ variables. *ret_has is false if there is neither. The
// operator's rules in it take the place of a workspace binding of the model.
int policy_options_node(const struct policy_options *options, struct policy_model *model, struct policy_node *ret_node,
                        bool *ret_has, struct error *err);
void policy_options_done(struct policy_options *options);
