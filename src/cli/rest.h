// SPDX-License-Identifier: Apache-2.0
// A client of the node's REST API, for the commands: PENSTOCK_API_URL (http://127.0.0.1:8000), PENSTOCK_API_KEY, else the key
// in the node's state folder where it can be read.
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/error.h"

struct rest_call {
    const char *method, *path; // "GET", "/sandboxes/ID?..."
    const json_t *body;        // or NULL
    bool print;                // --print-api: says what would be asked, and does not ask
    // For an answer that is streamed: each line as it comes, without its end. NULL: the whole of it is ret_body.
    void (*line)(const char *text, void *data);
    void *data;
};

struct rest_answer {
    int status;       // 0: nothing was asked (print)
    json_t *body;     // NULL: none, or no JSON
    char *next_token; // x-next-token; NULL: none
    char *warning;    // x-penstock-warning; NULL: none
    char *update;     // what an update did, in words; NULL: none
};

// 0: a success (2xx), or print. -EIO: an error of the node's or of the way to it, with a message.
int rest_ask(const struct rest_call *call, struct rest_answer *ret_answer, struct error *err);
void rest_answer_done(struct rest_answer *answer);
// A word of a path or query, percent-encoded; freed by the caller. NULL: out of memory.
char *rest_escape(const char *text);
// Writes what the text is the base64 form of.
void rest_write_base64(const char *text, FILE *file);
