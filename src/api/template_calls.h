// SPDX-License-Identifier: Apache-2.0
// What endpoints of templates share. Private to the api room.
#pragma once

#include "api/api_state.h"

// The template or snapshot of the first parameter, or the call is answered with 404.
bool template_get(struct api_request *request, struct store_template *ret_item);
