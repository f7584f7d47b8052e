// SPDX-License-Identifier: Apache-2.0
// Rows of the store as JSON, with the members that AgentENV and E2B give them. Private to the api room. All return a new
// reference, or NULL if out of memory.
#pragma once

#include "api/api_state.h"

json_t *render_error(int code, const char *message);
json_t *render_sandbox(const struct api *api, const struct store_sandbox *sandbox); // of create, connect, resume
json_t *render_detail(const struct api *api, const struct store_sandbox *sandbox);
json_t *render_listed(const struct store_sandbox *sandbox);
json_t *render_snapshot(const struct store_template *item);
json_t *render_template(const struct store_template *item, const struct store_build *build); // build NULL: none
json_t *render_template_builds(const struct store_template *item, json_t *builds); // takes the list
json_t *render_build(const struct store_build *build, uint32_t disk_mb);
json_t *render_time(int64_t time_us); // RFC 3339, UTC, microseconds
// A text that may not be UTF-8: bytes that are not become '?'.
json_t *render_text(const char *text);
// As compact text, to free. json_dumps leaves out keys for which it has no memory, and says nothing.
char *render_dump(const json_t *json);
json_t *render_names(const char *name); // [] or [name]
