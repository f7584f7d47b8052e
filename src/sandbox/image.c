// SPDX-License-Identifier: Apache-2.0
// From a reference to a folder: skopeo copies it into an OCI layout of its own (images/REFERENCE, where parts of the last time
// are found again), umoci unpacks that into layers/DIGEST. Both read bytes that a stranger has made, so both run in a jail
// (jail.c) as the numbers that own such files; what they have written is read here with bounds, never following a link
// out of the layout, and a manifest counts only with the digest that it has.
//
// A layer is unpacked beside its place and renamed when it is complete. Locks on files, which the kernel gives back when
// their holder dies: one for a reference, one for a digest, always in that order.
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdbool.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "sandbox/container_plan.h"
#include "sandbox/digest.h"
#include "sandbox/image_reference.h"
#include "sandbox/image_refusal.h"
#include "sandbox/inside.h"
#include "sandbox/jail.h"
#include "sandbox/tree.h"

#define FETCH_TIMEOUT_S 1800
#define UNPACK_TIMEOUT_S 1800
#define DOCUMENT_MAX (4 << 20) // bytes of index, manifest, configuration
#define WORDS_MAX 4096         // of a command, of an environment
#define PREFIX "sha256:"

struct fetching {
    const struct sandbox_image_place *place;
    struct image_reference reference;
    char *layout;      // folder of the host
    char digest[DIGEST_SIZE];
    json_t *config;
};

// ---- folders and locks ----

static int make_folder(const char *folder, const char *name, mode_t mode, uid_t owner, char **ret_path, struct error *err) {
    if (asprintf(ret_path, "%s/%s", folder, name) < 0) {
        *ret_path = NULL;
        return error_set(err, -ENOMEM, "out of memory");
    }
    struct stat st;
    bool made = mkdir(*ret_path, mode) == 0;
    if (!made && errno != EEXIST) return error_set(err, -errno, "\"%s\" cannot be made: %s", *ret_path, strerror(errno));
    if (lstat(*ret_path, &st) < 0 || !S_ISDIR(st.st_mode)) return error_set(err, -ENOTDIR, "\"%s\" is no folder", *ret_path);
    if (chmod(*ret_path, mode) == 0 && lchown(*ret_path, owner, owner) == 0) return 0;
    return error_set(err, -errno, "\"%s\" cannot be given to user %u: %s", *ret_path, owner, strerror(errno));
}

// Held until the descriptor is closed.
static int take_lock(const char *path, struct error *err) {
    AUTO_FREE char *name = NULL;
    if (asprintf(&name, "%s.lock", path) < 0) return error_set(err, -ENOMEM, "out of memory");
    AUTO_CLOSE int fd = open(name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    while (fd >= 0 && flock(fd, LOCK_EX) < 0)
        if (errno != EINTR) return error_set(err, -errno, "\"%s\" cannot be locked: %s", name, strerror(errno));
    return fd < 0 ? error_set(err, -errno, "\"%s\" cannot be opened: %s", name, strerror(errno)) : TAKE_FD(fd);
}

// ---- fetching ----

static int fetch(const struct fetching *fetching, struct error *err) {
    const struct image_reference *reference = &fetching->reference;
    char name[] = "skopeo", insecure[] = "--insecure-policy", copy[] = "copy", quiet[] = "-q", plain[] = "--src-tls-verify=false";
    char target[] = "oci:" JAIL_PLACE "/image:image", source[sizeof(reference->source)];
    char *argv[8] = {name};
    size_t used = 1;
    snprintf(source, sizeof(source), "%s", reference->source);
    if (access("/etc/containers/policy.json", R_OK) < 0) argv[used++] = insecure; // else the operator's own holds
    argv[used++] = copy;
    argv[used++] = quiet;
    if (reference->plain) argv[used++] = plain;
    argv[used++] = source;
    argv[used++] = target;
    struct jail jail = {.network = !reference->path, .folder_count = 1};
    jail.folders[0] = (struct jail_folder){.path = fetching->layout, .name = "image"};
    if (reference->path) jail.folders[jail.folder_count++] = (struct jail_folder){.path = reference->path, .name = "source", .foreign = true};
    int r = jail_run(&jail, argv, FETCH_TIMEOUT_S, err);
    return r == -EIO ? image_refusal(source, err) : r;
}

// ---- documents ----

static json_t *read_json(int layout, const char *path, char *ret_digest) {
    struct buf text = BUF_INIT;
    json_t *document = NULL;
    if (inside_read(layout, path, DOCUMENT_MAX, &text) == 0 && text.len > 0) {
        document = json_loadb(text.data, text.len, JSON_REJECT_DUPLICATES, NULL);
        if (ret_digest) digest_text(text.data, text.len, ret_digest);
    }
    buf_done(&text);
    return document;
}

// The document that another one names by its digest, if it has that digest.
static json_t *read_blob(int layout, const char *digest, char ret_digest[DIGEST_SIZE]) {
    char path[128];
    if (!digest || strncmp(digest, PREFIX, strlen(PREFIX)) != 0) return NULL;
    const char *hex = digest + strlen(PREFIX);
    if (strlen(hex) != DIGEST_SIZE - 1 || strspn(hex, "0123456789abcdef") != DIGEST_SIZE - 1) return NULL;
    snprintf(path, sizeof(path), "blobs/sha256/%s", hex);
    json_t *document = read_json(layout, path, ret_digest);
    if (document && strcmp(ret_digest, hex) == 0) return document;
    json_decref(document);
    return NULL;
}

static const char *digest_of(const json_t *descriptor) { return json_string_value(json_object_get(descriptor, "digest")); }

static int read_config(struct fetching *fetching, struct error *err) {
    char digest[DIGEST_SIZE];
    AUTO_CLOSE int layout = open(fetching->layout, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    json_t *index = layout < 0 ? NULL : read_json(layout, "index.json", NULL);
    json_t *manifests = json_object_get(index, "manifests"), *manifest = NULL, *config = NULL;
    if (json_array_size(manifests) == 1) manifest = read_blob(layout, digest_of(json_array_get(manifests, 0)), fetching->digest);
    if (manifest) config = read_blob(layout, digest_of(json_object_get(manifest, "config")), digest);
    json_decref(index);
    json_decref(manifest);
    fetching->config = config;
    return config ? 0 : error_set(err, -EBADMSG, "\"%s\" is no image of one system; name an image, not a list or another thing",
                                  fetching->reference.source);
}

static int take_text(const json_t *value, char **ret_text) {
    const char *text = json_string_value(value);
    *ret_text = strdup(text ? text : "");
    return *ret_text ? 0 : -ENOMEM;
}

// Texts of up to two lists, one behind the other.
static int take_words(const json_t *first, const json_t *second, char ***ret_words) {
    const json_t *lists[] = {first, second};
    size_t count = json_array_size(first) + json_array_size(second), used = 0;
    if (count > WORDS_MAX) return -E2BIG;
    char **words = *ret_words = NEW_ARRAY(char *, count + 1);
    if (!words) return -ENOMEM;
    for (size_t list = 0; list < 2; list++) {
        for (size_t i = 0; i < json_array_size(lists[list]); i++) {
            const json_t *word = json_array_get(lists[list], i);
            if (!json_is_string(word)) return -EBADMSG;
            if (take_text(word, &words[used]) < 0) return -ENOMEM;
            used++;
        }
    }
    return 0;
}

static int take_config(const struct fetching *fetching, struct sandbox_image *image) {
    const json_t *config = json_object_get(fetching->config, "config");
    int r = take_words(json_object_get(config, "Entrypoint"), json_object_get(config, "Cmd"), &image->argv);
    if (r == 0) r = take_words(json_object_get(config, "Env"), NULL, &image->environment);
    if (r == 0) r = take_text(json_object_get(config, "WorkingDir"), &image->cwd);
    if (r == 0) r = take_text(json_object_get(config, "User"), &image->user);
    if (r == 0 && asprintf(&image->digest, PREFIX "%s", fetching->digest) < 0) {
        image->digest = NULL;
        r = -ENOMEM;
    }
    return r;
}

// ---- unpacking ----

static int run_umoci(const struct fetching *fetching, const char *part, struct error *err) {
    char name[] = "umoci", raw[] = "raw", unpack[] = "unpack", image[] = "--image=" JAIL_PLACE "/image:image", to[] = JAIL_PLACE "/out/root";
    char *const argv[] = {name, raw, unpack, image, to, NULL};
    const struct jail jail = {.folders = {{.path = fetching->layout, .name = "image"}, {.path = part, .name = "out"}}, .folder_count = 2};
    return jail_run(&jail, argv, UNPACK_TIMEOUT_S, err);
}

// What is in the layout and no longer named; if that fails it only takes room.
static void collect(const struct fetching *fetching) {
    char name[] = "umoci", gc[] = "gc", layout[] = "--layout=" JAIL_PLACE "/image";
    char *const argv[] = {name, gc, layout, NULL};
    const struct jail jail = {.folders = {{.path = fetching->layout, .name = "image"}}, .folder_count = 1};
    jail_run(&jail, argv, UNPACK_TIMEOUT_S, NULL);
}

static int unpack_new(const struct fetching *fetching, const char *layer, struct error *err) {
    AUTO_FREE char *part = NULL, *root = NULL, *name = NULL;
    const char *slash = strrchr(layer, '/');
    AUTO_FREE char *layers = strndup(layer, (size_t)(slash - layer));
    if (!layers || asprintf(&name, "%s.part", slash + 1) < 0) return error_set(err, -ENOMEM, "out of memory");
    AUTO_CLOSE int folder = open(layers, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int r = folder < 0 ? -errno : tree_remove(folder, name); // of one that was killed
    if (r < 0) return error_set(err, r, "\"%s/%s\" cannot be removed: %s", layers, name, strerror(-r));
    r = make_folder(layers, name, 0700, CONTAINER_DISK_BASE, &part, err);
    if (r == 0) r = run_umoci(fetching, part, err);
    if (r == 0 && (asprintf(&root, "%s/root", part) < 0 || syncfs(folder) < 0 || rename(root, layer) < 0))
        r = error_set(err, -errno, "\"%s\" cannot be made: %s", layer, strerror(errno));
    tree_remove(folder, name);
    return r;
}

static int unpack(const struct fetching *fetching, char **ret_layer, struct error *err) {
    AUTO_FREE char *layers = NULL, *layer = NULL;
    int r = make_folder(fetching->place->folder, "layers", 0700, 0, &layers, err);
    if (r < 0) return r;
    if (asprintf(&layer, "%s/sha256-%s", layers, fetching->digest) < 0) {
        layer = NULL;
        return error_set(err, -ENOMEM, "out of memory");
    }
    if (access(layer, F_OK) < 0) {
        AUTO_CLOSE int lock = take_lock(layer, err);
        if (lock < 0) return lock;
        if (access(layer, F_OK) < 0) r = unpack_new(fetching, layer, err);
        if (r == 0) collect(fetching);
    }
    if (r == 0) *ret_layer = TAKE_POINTER(layer);
    return r;
}

// ---- all ----

static int get(struct fetching *fetching, const char *text, struct sandbox_image *image, struct error *err) {
    AUTO_FREE char *images = NULL;
    int r = image_reference_read(text, fetching->place, &fetching->reference, err);
    if (r == 0) r = make_folder(fetching->place->folder, "images", 0700, 0, &images, err);
    if (r == 0) r = make_folder(images, fetching->reference.name, 0700, CONTAINER_DISK_BASE, &fetching->layout, err);
    if (r < 0) return r;
    AUTO_CLOSE int lock = take_lock(fetching->layout, err);
    if (lock < 0) return lock;
    r = fetch(fetching, err);
    if (r == 0) r = read_config(fetching, err);
    if (r < 0) return r;
    r = take_config(fetching, image);
    if (r < 0) return error_set(err, r, "the configuration of \"%s\" cannot be used: %s", text, strerror(-r));
    return unpack(fetching, &image->layer, err);
}

int sandbox_image_get(const char *reference, const struct sandbox_image_place *place, struct sandbox_image *ret_image,
                      struct error *err) {
    struct fetching fetching = {.place = place};
    struct sandbox_image image = {0};
    if (geteuid() != 0)
        return error_set(err, -EPERM, "images need root: their files belong to several users; run penstock as root, or use the type process");
    int r = get(&fetching, reference, &image, err);
    if (r == 0) *ret_image = image;
    else sandbox_image_done(&image);
    free(fetching.reference.path);
    free(fetching.layout);
    json_decref(fetching.config);
    return r < 0 ? error_context(err, r, "image \"%s\"", reference ? reference : "") : 0;
}

static void free_words(char **words) {
    for (size_t i = 0; words && words[i]; i++) free(words[i]);
    free(words);
}

void sandbox_image_done(struct sandbox_image *image) {
    free(image->digest);
    free(image->layer);
    free(image->cwd);
    free(image->user);
    free_words(image->argv);
    free_words(image->environment);
    *image = (struct sandbox_image){0};
}
