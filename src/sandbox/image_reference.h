// SPDX-License-Identifier: Apache-2.0
// What an image is called.
#pragma once

#include <stdbool.h>

#include "sandbox/sandbox.h"

struct image_reference {
    char source[600]; // for skopeo; a local one is at JAIL_PLACE/source
    char *path;       // of the host, malloc'd; NULL: it comes from a registry
    char name[256];   // for a file: what was asked for
    bool plain;       // without TLS
};

int image_reference_read(const char *text, const struct sandbox_image_place *place, struct image_reference *ret_reference,
                         struct error *err);
