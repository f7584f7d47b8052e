// SPDX-License-Identifier: Apache-2.0
// What is in a URL behind the path: parameters, the filter by metadata, tokens of pages. Private to the api room.
#pragma once

#include "api/api_state.h"

// Percent escapes decoded; plus: '+' is a blank. To free. NULL: a malformed escape, a NUL, or no memory.
char *query_decode(const void *bytes, size_t len, bool plus);
// Fills request->query. 0, or -EINVAL with a message.
int query_read(struct api_request *request, struct wire_slice query, struct error *err);
// NULL: not given. A name that is given twice counts once, the first.
const char *query_get(const struct api_request *request, const char *name);
bool query_is_true(const struct api_request *request, const char *name); // 1 or true

// "k=v&k2=v2" whose whole and whose keys and values are escaped once more each (E2B's clients do so). The pairs and their
// texts are *ret_text's, to free. 0, or -EINVAL with a message.
#define QUERY_PAIRS_MAX 32
int query_metadata(const char *value, char **ret_text, struct store_pair ret_pairs[QUERY_PAIRS_MAX], size_t *ret_count,
                   struct error *err);
// The state list "running,paused". *ret_states: bits. 0, or -EINVAL with a message.
int query_states(const char *value, unsigned *ret_states, struct error *err);
// limit 1 to 100, 100 if absent. 0, or -EINVAL with a message.
int query_limit(const struct api_request *request, size_t *ret_limit, struct error *err);
// The row behind which a page begins: "MICROSECONDS_ID". *ret_id points into the query; NULL: from the start.
int query_page(const struct api_request *request, int64_t *ret_us, const char **ret_id, struct error *err);
void query_next(struct api_call *call, int64_t time_us, const char *id); // x-next-token
// RFC 3339, UTC or with an offset. Microseconds since 1970. 0, or -EINVAL.
int query_time(const char *text, int64_t *ret_us);
