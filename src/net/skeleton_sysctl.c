// SPDX-License-Identifier: Apache-2.0
// Settings of the sandbox's network namespace. /proc/sys/net shows the namespace of the process that looks.
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/mem.h"
#include "net/skeleton.h"

struct skeleton_setting {
    const char *path;  // below /proc/sys/net/
    const char *value; // NULL: the sandbox's group, twice
    bool required;     // safety rests on it
};

static const struct skeleton_setting skeleton_settings[] = {
    // The host's values are inherited, and may be anything.
    {"ipv4/ip_forward", "0", false},
    {"ipv6/conf/all/disable_ipv6", "0", false},
    {"ipv6/conf/lo/disable_ipv6", "0", false},
    {"ipv4/conf/all/rp_filter", "0", false},
    {"ipv4/conf/lo/rp_filter", "0", false},
    {"ipv4/conf/all/src_valid_mark", "0", false},
    {"ipv4/fwmark_reflect", "0", false},
    {"ipv6/fwmark_reflect", "0", false},
    {"ipv4/tcp_fwmark_accept", "0", false},
    // Services of the sandbox may use any port, and its users may ping.
    {"ipv4/ip_unprivileged_port_start", "0", false},
    {"ipv4/ping_group_range", NULL, false},
    // Many short connections to one address.
    {"ipv4/tcp_tw_reuse", "1", false},
    {"ipv4/tcp_max_syn_backlog", "8192", false},
    {"core/somaxconn", "4096", false},
    // Nothing is ever lost or late on lo: no congestion control, no rate limit of refusals.
    {"ipv4/tcp_congestion_control", "reno", false},
    {"ipv4/tcp_slow_start_after_idle", "0", false},
    {"ipv4/icmp_ratemask", "0", false},
    {"ipv6/icmp/ratelimit", "0", false},
};

static int skeleton_sysctl_write(const struct skeleton_setting *setting, gid_t gid) {
    char path[128], value[64];
    snprintf(path, sizeof(path), "/proc/sys/net/%s", setting->path);
    if (setting->value) {
        snprintf(value, sizeof(value), "%s", setting->value);
    } else {
        snprintf(value, sizeof(value), "%u %u", (unsigned)gid, (unsigned)gid);
    }
    AUTO_CLOSE int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return -errno;
    return write(fd, value, strlen(value)) < 0 ? -errno : 0;
}

int skeleton_sysctl(gid_t gid, struct error *err) {
    for (size_t i = 0; i < ARRAY_LENGTH(skeleton_settings); i++) {
        int result = skeleton_sysctl_write(&skeleton_settings[i], gid);
        if (result < 0 && skeleton_settings[i].required)
            return error_set(err, result,
                             "cannot set net/%s to \"%s\" in the sandbox's namespace: %s; use Linux 4.15 or later with "
                             "a writable /proc/sys/net",
                             skeleton_settings[i].path, skeleton_settings[i].value, strerror(-result));
    }
    return 0;
}
