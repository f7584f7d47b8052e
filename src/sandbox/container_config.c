// SPDX-License-Identifier: Apache-2.0
// What crun is told (OCI runtime specification 1.0.2). Everything that a container could use against the host is decided here
// and in container_calls.c.
//
// The filter is given as a program, made when penstock was built: compiling it at each start would take a third of crun's
// time. A crun that did not know that annotation would find a filter that lets nothing through, and the container would not
// start.
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "sandbox/cgroup.h"
#include "sandbox/container_plan.h"
#include "sandbox/seccomp_program.h"

#define FILES_MAX 1048576
#define SHARED_MEMORY "67108864"

void container_config_text(struct buf *text, const char *string) {
    buf_append(text, "\"", 1);
    for (const char *at = string; *at; at++) {
        if (*at == '"' || *at == '\\') buf_printf(text, "\\%c", *at);
        else if ((unsigned char)*at < 0x20) buf_printf(text, "\\u%04x", (unsigned char)*at);
        else buf_append(text, at, 1);
    }
    buf_append(text, "\"", 1);
}

// ---- the process ----

// Those of Docker without MKNOD, NET_RAW (neither gives anything in a user namespace without a network of its own).
#define CAPABILITIES \
    "[\"CAP_CHOWN\",\"CAP_DAC_OVERRIDE\",\"CAP_FSETID\",\"CAP_FOWNER\",\"CAP_SETGID\",\"CAP_SETUID\",\"CAP_SETFCAP\"," \
    "\"CAP_SETPCAP\",\"CAP_NET_BIND_SERVICE\",\"CAP_SYS_CHROOT\",\"CAP_KILL\",\"CAP_AUDIT_WRITE\"]"

static void write_process(struct buf *text, const struct container_user *user, const char *cwd) {
    struct rlimit files = {.rlim_cur = 1024, .rlim_max = 1024};
    getrlimit(RLIMIT_NOFILE, &files);
    unsigned long long limit = files.rlim_max < FILES_MAX ? files.rlim_max : FILES_MAX;
    // Without HOME crun would read the container's /etc/passwd, which may be a FIFO, and wait.
    buf_printf(text, "{\"args\":[\"/run/penstock/init\"],\"env\":[\"PATH=/\",\"HOME=/\"],\"cwd\":");
    container_config_text(text, cwd);
    buf_printf(text, ",\"user\":{\"uid\":%u,\"gid\":%u,\"additionalGids\":[", user->uid, user->gid);
    for (size_t i = 0; i < user->group_count; i++) buf_printf(text, "%s%u", i ? "," : "", user->groups[i]);
    buf_printf(text, "]},\"noNewPrivileges\":true,\"capabilities\":{\"bounding\":" CAPABILITIES ",\"effective\":" CAPABILITIES
                     ",\"permitted\":" CAPABILITIES "},\n\"rlimits\":[{\"type\":\"RLIMIT_NOFILE\",\"hard\":%llu,\"soft\":%llu},"
                     "{\"type\":\"RLIMIT_CORE\",\"hard\":0,\"soft\":0}]}",
               limit, limit);
}

// ---- the rest ----

static const char mounts[] =
    "{\"destination\":\"/proc\",\"type\":\"proc\",\"source\":\"proc\",\"options\":[\"nosuid\",\"noexec\",\"nodev\"]},\n"
    "{\"destination\":\"/dev\",\"type\":\"tmpfs\",\"source\":\"tmpfs\","
    "\"options\":[\"nosuid\",\"noexec\",\"strictatime\",\"mode=755\",\"size=65536\",\"nr_inodes=1024\"]},\n"
    "{\"destination\":\"/dev/pts\",\"type\":\"devpts\",\"source\":\"devpts\","
    "\"options\":[\"nosuid\",\"noexec\",\"newinstance\",\"ptmxmode=0666\",\"mode=0620\",\"gid=5\"]},\n"
    "{\"destination\":\"/dev/shm\",\"type\":\"tmpfs\",\"source\":\"shm\","
    "\"options\":[\"nosuid\",\"noexec\",\"nodev\",\"mode=1777\",\"size=" SHARED_MEMORY "\"]},\n"
    "{\"destination\":\"/dev/mqueue\",\"type\":\"mqueue\",\"source\":\"mqueue\",\"options\":[\"nosuid\",\"noexec\",\"nodev\"]}";

static const char paths[] =
    "\"maskedPaths\":[\"/proc/acpi\",\"/proc/asound\",\"/proc/kcore\",\"/proc/keys\",\"/proc/latency_stats\","
    "\"/proc/timer_list\",\"/proc/timer_stats\",\"/proc/sched_debug\",\"/proc/scsi\",\"/proc/interrupts\",\"/sys/firmware\","
    "\"/sys/devices/virtual/powercap\",\"/sys/devices/virtual/dmi\",\"/sys/kernel\",\"/sys/fs\",\"/sys/module\"],\n"
    "\"readonlyPaths\":[\"/proc/bus\",\"/proc/fs\",\"/proc/irq\",\"/proc/sys\",\"/proc/sysrq-trigger\",\"/proc/fb\"]";

static void write_resources(struct buf *text, const struct sandbox_container_spec *spec) {
    buf_printf(text, "\"resources\":{\"pids\":{\"limit\":%u}", spec->pids_max ? spec->pids_max : SANDBOX_PIDS_MAX);
    if (spec->memory_bytes > 0) {
        unsigned long long bytes = spec->memory_bytes;
        buf_printf(text, ",\"memory\":{\"limit\":%llu", bytes);
        if (cgroup_has_swap()) buf_printf(text, ",\"swap\":%llu", bytes);
        buf_printf(text, "}");
    }
    if (spec->cpu_millis > 0) buf_printf(text, ",\"cpu\":{\"period\":100000,\"quota\":%llu}", 100ULL * spec->cpu_millis);
    buf_printf(text, "}");
}

static void write_base64(struct buf *text, const void *bytes, size_t len) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < len; i += 3) {
        uint32_t group = 0;
        char out[4] = "====";
        for (size_t j = 0; j < 3; j++) group = group << 8 | (i + j < len ? ((const unsigned char *)bytes)[i + j] : 0);
        for (size_t j = 0; j < 4 && i + j <= len; j++) out[j] = digits[group >> (18 - 6 * j) & 63];
        buf_append(text, out, 4);
    }
}

static void write_linux(struct buf *text, const struct container_plan *plan) {
    // crun is in the keeper's network namespace already; only what is named here is entered by later commands too.
    buf_printf(text, "\"linux\":{\"cgroupsPath\":\"/" CGROUP_PARENT "/%s\",\n\"namespaces\":[{\"type\":\"pid\"},{\"type\":\"ipc\"},"
                     "{\"type\":\"uts\"},{\"type\":\"mount\"},{\"type\":\"cgroup\"},{\"type\":\"user\"},"
                     "{\"type\":\"network\",\"path\":\"/proc/self/ns/net\"}],\n", plan->spec->id);
    buf_printf(text, "\"uidMappings\":[{\"containerID\":0,\"hostID\":%u,\"size\":%u}],", plan->base, CONTAINER_USERS);
    buf_printf(text, "\"gidMappings\":[{\"containerID\":0,\"hostID\":%u,\"size\":%u}],\n", plan->base, CONTAINER_USERS);
    write_resources(text, plan->spec);
    buf_printf(text, ",\n%s,\n\"seccomp\":{\"defaultAction\":\"SCMP_ACT_KILL_PROCESS\"}}", paths);
}

static void write_config(struct buf *text, const struct container_plan *plan) {
    const struct sandbox_container_spec *spec = plan->spec;
    buf_printf(text, "{\"ociVersion\":\"1.0.2\",\"root\":{\"path\":\"%s/root\"},\"hostname\":", plan->place);
    container_config_text(text, spec->hostname ? spec->hostname : spec->id);
    buf_printf(text, ",\n\"process\":");
    write_process(text, &plan->user, spec->cwd && spec->cwd[0] ? spec->cwd : "/");
    buf_printf(text, ",\n\"mounts\":[%s", mounts);
    buf_append(text, plan->mounts.data, plan->mounts.len);
    buf_printf(text, "],\n");
    write_linux(text, plan);
    buf_printf(text, ",\n\"annotations\":{\"run.oci.seccomp_bpf_data\":\"");
    write_base64(text, seccomp_program_container, seccomp_program_container_count * sizeof(seccomp_program_container[0]));
    buf_printf(text, "\"}}\n");
}

static int write_file(const char *path, const struct buf *text, struct error *err) {
    AUTO_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    int r = text->failed ? -ENOMEM : fd < 0 ? -errno : 0;
    if (r == 0 && write(fd, text->data, text->len) != (ssize_t)text->len) r = errno ? -errno : -ENOSPC;
    return r < 0 ? error_set(err, r, "\"%s\" cannot be written: %s", path, strerror(-r)) : 0;
}

int container_config_write(const struct container_plan *plan, struct error *err) {
    char path[4096];
    struct buf text = BUF_INIT;
    write_config(&text, plan);
    snprintf(path, sizeof(path), "%s/" CONTAINER_BUNDLE "/config.json", plan->spec->folder);
    int r = write_file(path, &text, err);
    buf_done(&text);
    return r;
}

int container_config_process(const struct container_user *user, const char *cwd, const char *path, struct error *err) {
    struct buf text = BUF_INIT;
    write_process(&text, user, cwd);
    int r = write_file(path, &text, err);
    buf_done(&text);
    return r;
}
