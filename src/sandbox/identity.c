// SPDX-License-Identifier: Apache-2.0
// Who the sandboxed processes are.
//
// An ordinary user stays who they are: the user namespace keeps other users' files out by itself. Root gives way to a
// user that owns nothing. Its number comes from 0x70000000 to 0x7FFFFFFF (1879048192 to 2147483647), the block that
// systemd's UID table lists as unused: no distribution, no systemd service (61184 to 65519), no container range (524288
// to 1879048191) and no subordinate range of shadow-utils lies in it, and it is below 2^31, so no program sees a
// negative number. Each run takes base + its own PID: sandboxes that live at the same time share neither files nor the
// kernel's limits per user. Nothing on a disk ever gets that owner, because root's folders come in by idmapped mounts.
#include "sandbox/sandbox.h"

#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/number.h"
#include "sandbox/identity.h"

#define IDENTITY_BASE UINT64_C(1879048192)
#define IDENTITY_SPAN UINT64_C(268435456)

static const char *next_number(const char *at, uint64_t *ret_number) {
    at += strspn(at, " \t");
    size_t len = strspn(at, "0123456789");
    if (number_parse(at, len, 0, UINT32_MAX, ret_number) < 0) return NULL;
    return at + len;
}

// Where root itself is in a user namespace (a container), only mapped numbers exist: then the last one below the
// wanted.
static uint64_t mapped_number(const char *map, uint64_t wanted) {
    uint64_t best = 0;
    for (const char *line = map; *line;) {
        uint64_t first, outside, count;
        const char *at = next_number(line, &first);
        if (at) at = next_number(at, &outside);
        if (at) at = next_number(at, &count);
        if (!at || count == 0) return best;
        uint64_t last = first + count - 1;
        if (first <= wanted && wanted <= last) return wanted;
        if (last < wanted && last > best) best = last;
        const char *end = strchr(at, '\n');
        if (!end) return best;
        line = end + 1;
    }
    return best;
}

static uint64_t mapped_in(const char *path, uint64_t wanted) {
    struct buf map = BUF_INIT;
    uint64_t number = wanted;
    if (buf_read_file(&map, path, 65536) == 0 && map.data) number = mapped_number(map.data, wanted);
    buf_done(&map);
    return number;
}

struct sandbox_identity sandbox_identity(void) {
    struct sandbox_identity identity = {.uid = geteuid(), .gid = getegid()};
    if (identity.uid != 0) return identity;
    uint64_t wanted = IDENTITY_BASE + (uint64_t)getpid() % IDENTITY_SPAN;
    uint64_t uid = mapped_in("/proc/self/uid_map", wanted), gid = mapped_in("/proc/self/gid_map", wanted);
    // Root of a namespace with one user (unshare -r) is that user in disguise, with nobody to give way to.
    if (uid == 0 || gid == 0) return identity;
    return (struct sandbox_identity){.uid = (uid_t)uid, .gid = (gid_t)gid, .from_root = true};
}

const char *identity_name(const struct sandbox_identity *identity) { return identity->from_root ? "sandbox" : NULL; }
