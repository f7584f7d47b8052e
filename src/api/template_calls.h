// SPDX-License-Identifier: Apache-2.0
// What endpoints of templates share. Private to the api room.
#pragma once

#include "api/api_state.h"

// The template or snapshot of the first parameter, or the call is answered with 404.
bool template_get(struct api_request *request, struct store_template *ret_item);
// Answers with 404 and this text; r < 0 but -ENOENT: with what err says.
void template_missing(struct api_request *request, int r, const struct error *err, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
// A template that has no layers cannot be used: -EINVAL and why, with name as the caller called it.
int template_unbuilt(struct store *store, const struct store_template *item, const char *name, struct error *err);
