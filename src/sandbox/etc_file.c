// SPDX-License-Identifier: Apache-2.0
// /etc is the host's, read-only; these files are laid over it. Where one is a symbolic link (resolv.conf of
// systemd-resolved leads into /run, that of WSL into /mnt) the file is put where the link leads, which in a sandbox is
// mostly empty ground.
//
// resolv.conf: whatever server is asked, the gate answers; 192.0.0.1 is no address of the sandbox itself (that is
// 192.0.0.2), so the question leaves it. edns0 lets refusals carry their reason (RFC 8914). No search list: names go
// out as typed. nsswitch.conf: the host's, but hosts are looked up by files and DNS only. Modules such as resolve and
// mdns ask daemons of the host, and "resolve [!UNAVAIL=return]" would end the lookup there.
#include "sandbox/etc_file.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/number.h"
#include "net/net.h"
#include "sandbox/environment.h"
#include "sandbox/identity.h"
#include "sandbox/place.h"

#define ETC_SIZE_MAX (4 << 20)
#define LINKS_MAX 40

static void write_resolv(const struct sandbox_spec *spec, const char *home, struct buf *old, struct buf *text) {
    (void)spec, (void)home, (void)old;
    buf_printf(text, "nameserver " KEEPER_SERVER4 "\noptions edns0\n");
}

static void write_hosts(const struct sandbox_spec *spec, const char *home, struct buf *old, struct buf *text) {
    (void)spec, (void)home, (void)old;
    char name[HOST_NAME_MAX + 1] = "";
    buf_printf(text, "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n");
    if (gethostname(name, sizeof(name) - 1) < 0 || !name[0] || strcmp(name, "localhost") == 0) return;
    buf_printf(text, "127.0.1.1 %s\n::1 %s\n", name, name);
}

static void write_nsswitch(const struct sandbox_spec *spec, const char *home, struct buf *old, struct buf *text) {
    (void)spec, (void)home;
    bool written = false;
    for (const char *line = old->data; line && *line;) {
        size_t len = strcspn(line, "\n"), name = strspn(line, " \t"), value = name + 6;
        bool hosts = strncmp(line + name, "hosts:", 6) == 0;
        if (hosts) value += strspn(line + value, " \t");
        bool right = hosts && len - value == 9 && strncmp(line + value, "files dns", 9) == 0;
        if (!hosts || (right && !written))
            buf_printf(text, "%.*s\n", (int)len, line);
        else if (!written)
            buf_printf(text, "hosts: files dns\n");
        written |= hosts;
        line += len + (line[len] == '\n');
    }
    if (!written) buf_printf(text, "hosts: files dns\n");
}

// Whether a line of passwd or group has this number as its third field.
static bool has_number(const struct buf *file, uint64_t wanted) {
    for (const char *line = file->data; line && *line;) {
        const char *end = line + strcspn(line, "\n"), *at = line;
        for (int field = 0; at && field < 2; field++) {
            at = memchr(at, ':', (size_t)(end - at));
            if (at) at++;
        }
        uint64_t number;
        if (at && number_parse(at, strspn(at, "0123456789"), 0, UINT32_MAX, &number) == 0 && number == wanted)
            return true;
        line = *end ? end + 1 : end;
    }
    return false;
}

static void copy_lines(const struct buf *old, struct buf *text) {
    if (old->len == 0) return;
    buf_append(text, old->data, old->len);
    if (old->data[old->len - 1] != '\n') buf_append(text, "\n", 1);
}

// A user of a directory service is not in the file, and the service's socket is hidden.
static const char *user_name(const struct sandbox_spec *spec) {
    const char *name = identity_name(&spec->identity);
    if (!name) name = environment_get(spec->environment, "USER");
    bool good = name && name[0] && strlen(name) <= 32 && !strpbrk(name, ":\n/ ");
    return good ? name : "sandbox";
}

static void write_passwd(const struct sandbox_spec *spec, const char *home, struct buf *old, struct buf *text) {
    copy_lines(old, text);
    if (has_number(old, spec->identity.uid)) return;
    const char *folder = spec->identity.from_root || !home ? spec->cwd : home;
    if (strpbrk(folder, ":\n")) folder = "/tmp";
    buf_printf(text, "%s:x:%u:%u:Penstock sandbox:%s:/bin/sh\n", user_name(spec), spec->identity.uid,
               spec->identity.gid, folder);
}

static void write_group(const struct sandbox_spec *spec, const char *home, struct buf *old, struct buf *text) {
    (void)home;
    copy_lines(old, text);
    if (!has_number(old, spec->identity.gid)) buf_printf(text, "%s:x:%u:\n", user_name(spec), spec->identity.gid);
}

static const struct {
    const char *path;
    void (*write)(const struct sandbox_spec *spec, const char *home, struct buf *old, struct buf *text);
} writers[] = {
    {"/etc/resolv.conf", write_resolv}, {"/etc/hosts", write_hosts}, {"/etc/nsswitch.conf", write_nsswitch},
    {"/etc/passwd", write_passwd},      {"/etc/group", write_group},
};
static_assert(ARRAY_LENGTH(writers) == ETC_FILES, "one writer a file");

// Folders on the way that are links themselves (/var/run) are resolved as far as they exist; the last name is kept.
static bool resolve_folders(char path[PATH_MAX]) {
    char folder[PATH_MAX], resolved[2 * PATH_MAX];
    snprintf(folder, sizeof(folder), "%s", path);
    for (char *slash = strrchr(folder, '/'); slash && slash > folder; slash = strrchr(folder, '/')) {
        *slash = '\0';
        AUTO_FREE char *real = realpath(folder, NULL);
        if (!real) continue;
        int len =
            snprintf(resolved, sizeof(resolved), "%s%s", strcmp(real, "/") == 0 ? "" : real, path + strlen(folder));
        return len < PATH_MAX && memcpy(path, resolved, (size_t)len + 1);
    }
    return true;
}

// One step along a chain of links; false at its end.
static bool follow(char path[PATH_MAX]) {
    char link[PATH_MAX], folder[PATH_MAX];
    ssize_t len = readlink(path, link, sizeof(link) - 1);
    if (len <= 0) return false;
    link[len] = '\0';
    snprintf(folder, sizeof(folder), "%s", path);
    *strrchr(folder, '/') = '\0';
    return place_normalise(link, folder, path) && resolve_folders(path);
}

// Where the content goes, or NULL: the file is missing in a folder that is read-only inside.
static char *find_target(const char *name) {
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s", name);
    for (int i = 0; i < LINKS_MAX && follow(path); i++) {
    }
    struct stat st;
    if (place_in_system(path) && (lstat(path, &st) < 0 || !S_ISREG(st.st_mode))) return NULL;
    return strdup(path);
}

static int memory_file(const struct buf *text) {
    AUTO_CLOSE int fd = memfd_create("penstock-etc", MFD_CLOEXEC);
    if (fd < 0) return -errno;
    for (size_t done = 0; done < text->len;) {
        ssize_t n = write(fd, text->data + done, text->len - done);
        if (n < 0) return -errno;
        done += (size_t)n;
    }
    if (lseek(fd, 0, SEEK_SET) < 0) return -errno;
    return TAKE_FD(fd);
}

// 1: made; 0: the host's own file is right as it is.
static int make_one(const struct sandbox_spec *spec, const char *home, size_t index, const char *target, int *ret_fd) {
    struct buf old = BUF_INIT, text = BUF_INIT;
    int r = buf_read_file(&old, writers[index].path, ETC_SIZE_MAX);
    if (r == -ENOENT) r = 0; // a link that leads nowhere
    bool same = false;
    if (r == 0) {
        writers[index].write(spec, home, &old, &text);
        same =
            !text.failed && place_in_system(target) && old.len == text.len && memcmp(old.data, text.data, old.len) == 0;
        if (!same) r = text.failed ? -ENOMEM : memory_file(&text);
    }
    buf_done(&old);
    buf_done(&text);
    if (r < 0 || same) return r;
    *ret_fd = r;
    return 1;
}

int etc_file_make(const struct sandbox_spec *spec, const char *home, struct etc_file files[ETC_FILES],
                  size_t *ret_count, struct error *err) {
    size_t count = 0;
    for (size_t i = 0; i < ETC_FILES; i++) {
        AUTO_FREE char *target = find_target(writers[i].path);
        int fd, r = target ? make_one(spec, home, i, target, &fd) : 0;
        if (r < 0) {
            etc_file_done(files, count);
            return error_set(err, r, "no \"%s\" can be made for the sandbox: %s", writers[i].path, strerror(-r));
        }
        if (r > 0) files[count++] = (struct etc_file){.target = TAKE_POINTER(target), .fd = fd};
    }
    *ret_count = count;
    return 0;
}

void etc_file_done(struct etc_file files[ETC_FILES], size_t count) {
    for (size_t i = 0; i < count; i++) {
        free(files[i].target);
        close(files[i].fd);
    }
}
