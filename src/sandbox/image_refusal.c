// SPDX-License-Identifier: Apache-2.0
// skopeo has one exit status for everything, so its words are all there is: a line as logfmt has it, whose msg="..." nests what
// each of its parts adds. Half of these words are a registry's: they choose among sentences, and decide nothing else.
#include "sandbox/image_refusal.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/mem.h"

// The first row whose word is found.
static const struct {
    const char *word;
    int code;
    const char *sentence;
} rows[] = {
    {"manifest unknown", -ENOENT, "is not in its registry; check its name and tag"},
    {"name unknown", -ENOENT, "is not in its registry; check its name and tag"},
    {"repository name not known", -ENOENT, "is not in its registry; check its name and tag"},
    {"invalid reference format", -EINVAL, "is no name of an image: lower-case letters, digits, and . _ - / between them, then a :TAG"},
    {"authentication required", -EACCES, "is not there, or not for everybody; check its name, or use a mirror that has it (images.mirrors)"},
    {"unauthorized", -EACCES, "is not there, or not for everybody; check its name, or use a mirror that has it (images.mirrors)"},
    {"denied", -EACCES, "is not there, or not for everybody; check its name, or use a mirror that has it (images.mirrors)"},
    {"HTTP response to HTTPS client", -EINVAL, "is in a registry that speaks plain HTTP; list the registry in images.plain_http if it may"},
    {"x509:", -EINVAL, "is in a registry whose certificate this system does not trust; add its authority to the system's"},
    {"no such host", -EAGAIN, "is in a registry whose name does not resolve; check the name, or use a mirror (images.mirrors)"},
    {"dial tcp", -EAGAIN, "is in a registry that cannot be reached; check the network, or use a mirror (images.mirrors)"},
    {"no space left", -EAGAIN, "cannot be stored: the disk of this machine is full; make room"},
    {"i/o timeout", -EAGAIN, "is in a registry that does not answer; try again, or use a mirror (images.mirrors)"},
};

int image_refusal(const char *source, struct error *err) {
    struct error said = {0};
    if (err) said = *err;
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++)
        if (strstr(said.text, rows[i].word)) return error_set(err, rows[i].code, "%s %s", source, rows[i].sentence);
    if (strncmp(source, "docker://", strlen("docker://")) != 0)
        return error_set(err, -EINVAL, "it is no image of that kind, or a damaged one; name another");
    // None of the words themselves: a name that a stranger chose may lead to a server that was not to be read.
    return error_set(err, -EBADMSG, "%s cannot be fetched: what is there is no registry of images, or it failed; check the name", source);
}
