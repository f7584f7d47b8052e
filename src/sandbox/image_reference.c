// SPDX-License-Identifier: Apache-2.0
#include "sandbox/image_reference.h"

#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "sandbox/jail.h"

#define DEFAULT_REGISTRY "docker.io"

static int fail(struct error *err, const char *text) {
    return error_set(err, -EINVAL, "expected an image as \"NAME:TAG\", \"docker://REGISTRY/NAME:TAG\", \"oci:/FOLDER[:TAG]\" or "
                     "\"docker-archive:/FILE\", got \"%s\"", text);
}

// The rest's characters without those that a file name cannot have, or that mean something.
static bool write_name(const char *text, char ret_name[256]) {
    size_t used = 0;
    for (const char *at = text; *at; at++) {
        bool plain = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') || (*at >= '0' && *at <= '9') || *at == '-' || *at == '_' ||
                     (*at == '.' && used > 0);
        if (used + 4 + sizeof(".lock") > 256) return false;
        if (plain) ret_name[used++] = *at;
        else used += (size_t)snprintf(ret_name + used, 4, "%%%02X", (unsigned char)*at);
    }
    ret_name[used] = '\0';
    return used > 0;
}

static int read_local(const char *text, size_t transport, struct image_reference *reference, struct error *err) {
    const char *path = text + transport + 1;
    size_t len = strcspn(path, ":");
    const char *tag = path + len;
    if (path[0] != '/' || strspn(tag, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:._-/") != strlen(tag))
        return fail(err, text);
    if (snprintf(reference->source, sizeof(reference->source), "%.*s:" JAIL_PLACE "/source%s", (int)transport, text, tag) >=
        (int)sizeof(reference->source))
        return fail(err, text);
    reference->path = strndup(path, len);
    return reference->path ? 0 : error_set(err, -ENOMEM, "out of memory");
}

// Whether the first part of a name is a registry's and not a folder of Docker's own.
static bool names_registry(const char *name, size_t len) {
    return name[len] == '/' && (memchr(name, '.', len) || memchr(name, ':', len) || (len == 9 && memcmp(name, "localhost", 9) == 0));
}

// Of skopeo's other ways to name an image; Docker has no image of such a name.
static bool names_transport(const char *text) {
    static const char *const others[] = {"oci", "docker-archive", "dir", "docker-daemon", "containers-storage", "oci-archive",
                                         "ostree", "sif", "tarball"};
    for (size_t i = 0; i < ARRAY_LENGTH(others); i++)
        if (strncmp(text, others[i], strlen(others[i])) == 0 && text[strlen(others[i])] == ':') return true;
    return false;
}

static int read_registry(const char *text, const char *name, const struct sandbox_image_place *place,
                         struct image_reference *reference, struct error *err) {
    size_t len = strcspn(name, "/");
    bool named = names_registry(name, len);
    char registry[256];
    const char *rest = named ? name + len + 1 : name;
    const char *library = !named && !strchr(name, '/') ? "library/" : "";
    bool good = name[0] != '-' && rest[0] && !names_transport(name) && len < sizeof(registry) &&
                strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:._-/@+[]") == strlen(name);
    if (!good) return fail(err, text);
    snprintf(registry, sizeof(registry), "%.*s", named ? (int)len : (int)strlen(DEFAULT_REGISTRY), named ? name : DEFAULT_REGISTRY);
    if (strcmp(registry, DEFAULT_REGISTRY) == 0 && !strchr(rest, '/')) library = "library/";
    const char *asked = registry;
    for (size_t i = 0; i < place->mirror_count; i++)
        if (strcmp(place->mirrors[i].from, registry) == 0) asked = place->mirrors[i].to;
    for (size_t i = 0; i < place->plain_count; i++) reference->plain |= strcmp(place->plain_registries[i], asked) == 0;
    int n = snprintf(reference->source, sizeof(reference->source), "docker://%s/%s%s", asked, library, rest);
    return n < (int)sizeof(reference->source) ? 0 : fail(err, text);
}

int image_reference_read(const char *text, const struct sandbox_image_place *place, struct image_reference *ret_reference,
                         struct error *err) {
    static const char *const local[] = {"oci", "docker-archive"};
    struct image_reference reference = {0};
    int r = 1;
    if (!text || !write_name(text, reference.name)) return fail(err, text ? text : "");
    for (size_t i = 0; r == 1 && i < ARRAY_LENGTH(local); i++) {
        size_t len = strlen(local[i]);
        if (strncmp(text, local[i], len) != 0 || text[len] != ':' || text[len + 1] != '/') continue;
        if (!place->local)
            return error_set(err, -EACCES, "\"%s\" is a file of this host, which is not to be read here; use an image of a registry, or "
                             "set images.local in the node's configuration", text);
        r = read_local(text, len, &reference, err);
    }
    if (r == 1) r = read_registry(text, strncmp(text, "docker://", 9) == 0 ? text + 9 : text, place, &reference, err);
    if (r == 0) *ret_reference = reference;
    return r;
}
