// SPDX-License-Identifier: Apache-2.0
// A line: id parent device root point options tags... - type source options, where the blanks, tabs, newlines and
// backslashes of a field are \ooo; so are the commas within an option of the last field.
#include "sandbox/mountinfo.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "sandbox/place.h"

#define MOUNTINFO_MAX (16 << 20) // bytes
#define LAYERS_MAX 4096          // of one overlay; the kernel has 500

// ---- reading ----

static void unescape(char *text) {
    char *to = text;
    for (const char *at = text; *at; at++) {
        bool octal = at[0] == '\\' && at[1] >= '0' && at[1] <= '3' && at[2] >= '0' && at[2] <= '7' && at[3] >= '0' &&
                     at[3] <= '7';
        if (octal) {
            *to++ = (char)((at[1] - '0') << 6 | (at[2] - '0') << 3 | (at[3] - '0'));
            at += 3;
        } else {
            *to++ = *at;
        }
    }
    *to = '\0';
}

// Cuts the next field off.
static char *field(char **line) {
    char *start = *line, *end = start + strcspn(start, " ");
    *line = *end ? end + 1 : end;
    *end = '\0';
    return start;
}

static bool read_line(char *line, struct mountinfo_entry *ret_entry) {
    char *end = NULL, *type = strstr(line, " - ");
    if (!type) return false;
    *type = '\0';
    type += 3;
    *ret_entry = (struct mountinfo_entry){.id = strtoul(line, &end, 10)};
    if (end == line) return false;
    field(&line);
    field(&line);
    ret_entry->device = field(&line);
    char *root = field(&line), *point = field(&line);
    unescape(root);
    unescape(point);
    ret_entry->root = root;
    ret_entry->point = point;
    ret_entry->type = field(&type);
    field(&type);
    ret_entry->options = type;
    return point[0] == '/';
}

static int add_entry(struct mountinfo *mounts, const struct mountinfo_entry *entry) {
    if (mounts->count == mounts->size) {
        size_t size = mounts->size ? 2 * mounts->size : 64;
        struct mountinfo_entry *entries = realloc(mounts->entries, size * sizeof(*entries));
        if (!entries) return -ENOMEM;
        mounts->entries = entries;
        mounts->size = size;
    }
    mounts->entries[mounts->count++] = *entry;
    return 0;
}

int mountinfo_read(struct mountinfo *mounts, struct error *err) {
    static const char file[] = "/proc/self/mountinfo";
    struct buf list = BUF_INIT;
    *mounts = (struct mountinfo){0};
    int r = buf_read_file(&list, file, MOUNTINFO_MAX);
    mounts->text = r == 0 ? buf_take(&list) : NULL;
    if (r == 0 && !mounts->text) r = -ENOMEM;
    for (char *line = mounts->text, *end; r == 0 && line && *line; line = end) {
        struct mountinfo_entry entry;
        end = line + strcspn(line, "\n");
        if (*end) *end++ = '\0';
        if (read_line(line, &entry)) r = add_entry(mounts, &entry);
    }
    buf_done(&list);
    if (r == 0) return 0;
    mountinfo_done(mounts);
    return error_set(err, r, "ways to the host's services cannot be found in \"%s\": %s", file, strerror(-r));
}

void mountinfo_done(struct mountinfo *mounts) {
    for (size_t i = 0; i < mounts->count; i++) {
        for (size_t k = 0; k < mounts->entries[i].layer_count; k++) free(mounts->entries[i].layers[k].path);
        free(mounts->entries[i].layers);
    }
    free(mounts->entries);
    free(mounts->text);
    *mounts = (struct mountinfo){0};
}

// ---- where a path is ----

// Linux 5.8.
static bool mount_id(const char *path, unsigned long *ret_id) {
    struct statx st;
    if (statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC, STATX_MNT_ID, &st) < 0) return false;
    if (!(st.stx_mask & STATX_MNT_ID)) return false;
    *ret_id = st.stx_mnt_id;
    return true;
}

bool mountinfo_is_on(const struct mountinfo_entry *entry, const char *path) {
    unsigned long id;
    return !mount_id(path, &id) || id == entry->id;
}

// By names; without the mounts of one device (or NULL).
static struct mountinfo_entry *entry_of(const struct mountinfo *mounts, const char *path, const char *except) {
    struct mountinfo_entry *best = NULL;
    for (size_t i = 0; i < mounts->count; i++) {
        struct mountinfo_entry *entry = &mounts->entries[i];
        if (!place_within(path, entry->point) || (except && strcmp(entry->device, except) == 0)) continue;
        if (!best || strlen(entry->point) >= strlen(best->point)) best = entry; // of equal ones the last is on top
    }
    return best;
}

struct mountinfo_entry *mountinfo_of(const struct mountinfo *mounts, const char *path) {
    unsigned long id;
    if (mount_id(path, &id))
        for (size_t i = 0; i < mounts->count; i++)
            if (mounts->entries[i].id == id && place_within(path, mounts->entries[i].point)) return &mounts->entries[i];
    return entry_of(mounts, path, NULL);
}

char *mountinfo_join(const char *folder, const char *rest) {
    size_t len = strlen(folder);
    while (len > 0 && folder[len - 1] == '/') len--;
    while (rest[0] == '/' && !rest[1]) rest++;
    char *path;
    if (asprintf(&path, "%.*s%s", (int)len, folder, rest) < 0) return NULL;
    if (path[0]) return path;
    free(path);
    return strdup("/");
}

// ---- overlays ----

static int add_layer(const struct mountinfo *mounts, struct mountinfo_entry *entry, const char *name) {
    if (name[0] != '/') {
        entry->relative = true;
        return 0;
    }
    AUTO_FREE char *real = realpath(name, NULL);
    if (!real && errno != EACCES) return 0; // of another mount namespace, or gone
    if (!real) real = strdup(name);         // root's, who mounted it
    if (!real) return -ENOMEM;
    struct mountinfo_entry *mount = mountinfo_of(mounts, real);
    // Mounted over a layer of its own.
    if (mount && strcmp(mount->device, entry->device) == 0) mount = entry_of(mounts, real, entry->device);
    if (!mount || entry->layer_count == LAYERS_MAX) return 0;
    struct mountinfo_layer *layers = realloc(entry->layers, (entry->layer_count + 1) * sizeof(*layers));
    if (!layers) return -ENOMEM;
    entry->layers = layers;
    char *path = mountinfo_join(mount->root, real + (mount->point[1] ? strlen(mount->point) : 0));
    if (!path) return -ENOMEM;
    entry->layers[entry->layer_count++] = (struct mountinfo_layer){.mount = mount, .path = path};
    return 0;
}

// lowerdir=A:B::C, with \: for a colon in a name.
static int add_layers(const struct mountinfo *mounts, struct mountinfo_entry *entry, char *names, bool several) {
    int r = 0;
    for (char *at = names, *name; r == 0 && *at;) {
        char *to = name = at;
        for (; *at && !(several && *at == ':'); at++) {
            if (at[0] == '\\' && at[1]) at++;
            *to++ = *at;
        }
        if (*at) at++;
        *to = '\0';
        if (name[0]) r = add_layer(mounts, entry, name);
    }
    return r;
}

int mountinfo_layers(const struct mountinfo *mounts, struct mountinfo_entry *entry) {
    static const char *const names[] = {"lowerdir=", "lowerdir+=", "datadir+=", "upperdir="};
    int r = 0;
    if (entry->layered || strcmp(entry->type, "overlay") != 0) return 0;
    entry->layered = true;
    for (char *at = entry->options, *option; r == 0 && *at;) {
        option = at;
        at += strcspn(at, ",");
        if (*at) *at++ = '\0';
        for (size_t i = 0; r == 0 && i < ARRAY_LENGTH(names); i++) {
            size_t len = strlen(names[i]);
            if (strncmp(option, names[i], len) != 0) continue;
            unescape(option + len);
            r = add_layers(mounts, entry, option + len, i == 0);
        }
    }
    return r;
}
