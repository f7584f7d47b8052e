// SPDX-License-Identifier: Apache-2.0
// Why an image could not be fetched, in words for whoever asked for it.
#pragma once

#include "base/error.h"

// err: what skopeo has said, whose place the sentence takes. source: what it was asked for. Returns -ENOENT, -EINVAL, -EACCES, -EAGAIN (its
// registry cannot be reached), or -EBADMSG. Nothing that a server said is part of it.
int image_refusal(const char *source, struct error *err);
