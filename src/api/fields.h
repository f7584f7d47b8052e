// SPDX-License-Identifier: Apache-2.0
// Members of a request's body, typed and bounded. null counts as absent. Private to the api room. All return 1 and the value,
// 0 if it is absent (nothing is written), or -EINVAL with a message that names the member.
#pragma once

#include "api/api_state.h"

int field_string(json_t *body, const char *name, size_t max, const char **ret_text, struct error *err); // not empty
int field_bool(json_t *body, const char *name, bool *ret_bool, struct error *err);
int field_number(json_t *body, const char *name, uint32_t min, uint32_t max, uint32_t *ret_number, struct error *err);
// An object of strings, as JSON text of at most max bytes, to free. Keys are not empty.
int field_pairs(json_t *body, const char *name, size_t max, char **ret_text, struct error *err);
// The same for environment variables: nor do they hold a "=".
int field_variables(json_t *body, const char *name, size_t max, char **ret_text, struct error *err);
// A list of strings: a borrowed, NULL-terminated array to free (not its strings).
int field_strings(json_t *body, const char *name, size_t max_count, char ***ret_list, size_t *ret_count, struct error *err);
// What we cannot do: absent, null, {} and [] are fine.
int field_unsupported(json_t *body, const char *name, struct error *err);
