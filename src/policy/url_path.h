// SPDX-License-Identifier: Apache-2.0
// Paths of requests, for rules that hold for a part of a host only. Private to the policy room.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define URL_PATH_SIZE 8192

// The path of a request target ("/octo/hello/info/refs?service=x"), percent-decoded once, without its query, as a string.
// False: a server could read it in another way than this, or it is too long; no rule for a part of a host fits it.
bool url_path_read(const void *target, size_t len, char ret_path[URL_PATH_SIZE]);

// Whether what follows a prefix ("" or "/..."), however a server takes out its dots and empty segments, stays below it.
bool url_path_stays(const char *rest);

// Whether a path is the prefix or below it, by whole segments.
bool url_path_below(const char *path, const char *prefix);

// The segments OWNER/REPO behind "/ROOT" ("" : no root) as "owner/repo" in lower case, without ".git". False: the path
// names no repository in such a place, or may leave it.
#define URL_PATH_REPO_SIZE 256
bool url_path_repo(const char *path, const char *root, char ret_repo[URL_PATH_REPO_SIZE]);
