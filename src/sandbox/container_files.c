// SPDX-License-Identifier: Apache-2.0
// Files that a container has from us are on a tmpfs that only its mounts keep: nothing of them is on a disk, and with the
// container they are gone.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "net/net.h"
#include "sandbox/container_plan.h"

extern const unsigned char container_init_image[], container_init_image_end[]; // made by embed.sh

int container_files_add(struct container_plan *plan, const char *name, const void *bytes, size_t len, mode_t mode) {
    AUTO_CLOSE int fd = openat(plan->files, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd < 0) return -errno;
    for (size_t done = 0; done < len;) {
        ssize_t n = write(fd, (const char *)bytes + done, len - done);
        if (n < 0) return -errno;
        done += (size_t)n;
    }
    return fchmod(fd, mode) < 0 ? -errno : 0; // whatever the umask
}

static int bind_file(struct container_plan *plan, const char *name, const char *target, const char *access) {
    buf_printf(&plan->mounts, ",\n{\"destination\":");
    container_config_text(&plan->mounts, target);
    buf_printf(&plan->mounts, ",\"type\":\"bind\",\"source\":\"%s/files/%s\",\"options\":[\"bind\",\"%s\",\"nosuid\",\"nodev\"%s]}",
               plan->place, name, access, name[0] ? ",\"noexec\"" : "");
    return plan->mounts.failed ? -ENOMEM : 0;
}

int container_files_bind(struct container_plan *plan, const char *name, const char *target) {
    return bind_file(plan, name, target, "ro");
}

static int add_text(struct container_plan *plan, const char *name, const char *target, struct buf *text, const char *access) {
    int r = text->failed ? -ENOMEM : container_files_add(plan, name, text->data, text->len, 0644);
    return r < 0 ? r : bind_file(plan, name, target, access);
}

// The container's root may write it, as programs do; nothing of ours reads it again.
static int add_hosts(struct container_plan *plan, struct buf *text) {
    int r = add_text(plan, "hosts", "/etc/hosts", text, "rw");
    return r == 0 && fchownat(plan->files, "hosts", plan->base, plan->base, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : r;
}

static int make_all(struct container_plan *plan, struct buf *text) {
    const char *name = plan->spec->hostname ? plan->spec->hostname : plan->spec->id;
    int r = container_files_add(plan, "init", container_init_image, (size_t)(container_init_image_end - container_init_image), 0555);
    if (r == 0) r = container_files_bind(plan, "", "/run/penstock");
    buf_printf(text, "nameserver " KEEPER_SERVER4 "\noptions edns0\n");
    if (r == 0) r = add_text(plan, "resolv.conf", "/etc/resolv.conf", text, "ro");
    buf_done(text);
    buf_printf(text, "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n127.0.1.1 %s\n", name);
    if (r == 0) r = add_hosts(plan, text);
    buf_done(text);
    buf_printf(text, "%s\n", name);
    return r == 0 ? add_text(plan, "hostname", "/etc/hostname", text, "ro") : r;
}

int container_files_make(struct container_plan *plan, struct error *err) {
    struct buf text = BUF_INIT;
    int r = make_all(plan, &text);
    buf_done(&text);
    return r < 0 ? error_set(err, r, "the sandbox's own files cannot be made: %s", strerror(-r)) : 0;
}
