// SPDX-License-Identifier: Apache-2.0
// Learn mode: what a command reached, and the policy that comes of it.
//
// The sandbox runs under an opened policy (policy_model_learn): names still get synthetic addresses, so that each
// connection has its name, and first bytes are read, so that it has its protocol. Private addresses and whatever the
// guardrails deny stay closed. Each allowed decision becomes a row (name or address, protocol, port); learn_text.c makes
// a policy of the rows. Beside it the policy that was given is kept compiled: it answers what a run without --learn
// would have refused.
//
// The sandbox may write to the folder of the file. So the folder is opened before the command starts, the file is
// written once the command has ended, under a name that nobody can have prepared, and is never put over another one. If
// it cannot be put there any more, its text goes to standard error.
#include "daemon/learn.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "base/random.h"
#include "daemon/learn_state.h"

#define LEARN_SUMMARY_LINES 20

// ---- before the command ----

// The folder is held from here on; the file must not be there.
static int learn_place(struct learn *learn, const char *path, struct error *err) {
    AUTO_FREE char *folder = strdup(path);
    AUTO_FREE char *file = strdup(path);
    learn->path = strdup(path);
    if (!folder || !file || !learn->path) return error_set(err, -ENOMEM, "out of memory");
    size_t len = strlen(path);
    if (len == 0 || path[len - 1] == '/')
        return error_set(err, -EINVAL, "--learn \"%s\": not the name of a file; write such as policy.yaml", path);
    learn->file = strdup(basename(file));
    if (!learn->file) return error_set(err, -ENOMEM, "out of memory");
    learn->way = strdup(dirname(folder));
    if (!learn->way) return error_set(err, -ENOMEM, "out of memory");
    learn->folder = open(learn->way, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (learn->folder < 0 || faccessat(learn->folder, ".", W_OK | X_OK, AT_EACCESS) < 0)
        return error_set(err, -errno, "--learn \"%s\": its folder: %s; name a file in a folder that you can write to", path,
                         strerror(errno));
    struct stat status;
    if (fstatat(learn->folder, learn->file, &status, AT_SYMLINK_NOFOLLOW) == 0)
        return error_set(err, -EEXIST, "--learn \"%s\": the file exists; remove it, or name another one", path);
    return errno == ENOENT ? 0 : error_set(err, -errno, "--learn \"%s\": %s", path, strerror(errno));
}

static int learn_prepare(struct learn *learn, const char *path, struct policy_model *model,
                         const struct policy_node *node, struct error *err) {
    int rc = learn_place(learn, path, err);
    learn->given_count = model->allow_count;
    if (rc == 0) rc = policy_compile(model, node, NULL, 0, 1, &learn->reference, NULL, err); // the run warns
    if (rc < 0) return rc;
    rc = policy_model_learn(model, err);
    return rc < 0 ? error_context(err, rc, "--learn") : 0;
}

int daemon_learn_new(const char *path, struct policy_model *model, const struct policy_node *node,
                     struct learn **ret_learn, struct error *err) {
    struct learn *learn = NEW(struct learn);
    if (!learn) return error_set(err, -ENOMEM, "out of memory");
    learn->folder = -1;
    learn->model = model;
    int rc = learn_prepare(learn, path, model, node, err);
    if (rc < 0) {
        daemon_learn_free(learn);
        return rc;
    }
    *ret_learn = learn;
    return 0;
}

void daemon_learn_free(struct learn *learn) {
    if (!learn) return;
    if (learn->folder >= 0) close(learn->folder);
    policy_free(learn->reference);
    free(learn->rows);
    free(learn->path);
    free(learn->file);
    free(learn->way);
    free(learn);
}

// ---- while it runs ----

static int learn_compare(const struct learn_row *a, const struct learn_row *b) {
    if (!a->name[0] != !b->name[0]) return a->name[0] ? -1 : 1; // names first
    int order = a->name[0] ? strcmp(a->name, b->name) : addr_compare(&a->address, &b->address);
    if (order == 0) order = (int)a->protocol - (int)b->protocol;
    return order ? order : (int)a->port - (int)b->port;
}

// Where the row is, or belongs.
static size_t learn_find(const struct learn *learn, const struct learn_row *row) {
    size_t low = 0, high = learn->row_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (learn_compare(&learn->rows[middle], row) < 0) low = middle + 1;
        else high = middle;
    }
    return low;
}

static void learn_add(struct learn *learn, const struct learn_row *row) {
    if (!learn->rows) learn->rows = NEW_ARRAY(struct learn_row, LEARN_ROWS_MAX);
    size_t at = learn->rows ? learn_find(learn, row) : 0;
    if (at < learn->row_count && learn_compare(&learn->rows[at], row) == 0) {
        learn->rows[at].count += row->count;
        learn->rows[at].private_ok |= row->private_ok;
    } else if (!learn->rows || learn->row_count == LEARN_ROWS_MAX) {
        learn->lost++;
    } else {
        memmove(&learn->rows[at + 1], &learn->rows[at], (learn->row_count - at) * sizeof(*row));
        learn->rows[at] = *row;
        learn->row_count++;
    }
}

static enum learn_protocol learn_tcp(const struct ipc_decision *record) {
    if (!record->name[0]) return LEARN_TCP; // an address rule looks at no bytes
    switch ((enum policy_app)record->app) {
    case POLICY_APP_TLS:
        return LEARN_HTTPS;
    case POLICY_APP_HTTP:
        return LEARN_HTTP;
    case POLICY_APP_OTHER:
        return LEARN_TCP;
    case POLICY_APP_UNKNOWN:
        break;
    }
    return record->reason == POLICY_UPSTREAM_FAILED ? LEARN_UNANSWERED : LEARN_TCP;
}

static enum learn_protocol learn_protocol_of(const struct ipc_decision *record) {
    switch ((enum policy_protocol)record->protocol) {
    case POLICY_TCP:
        return learn_tcp(record);
    case POLICY_UDP:
        return LEARN_UDP;
    case POLICY_ICMP:
        return LEARN_ICMP;
    case POLICY_DNS:
        break;
    }
    return LEARN_LOOKUP;
}

const char *learn_folder(const struct learn *learn) { return learn->way; }

void learn_record(struct learn *learn, const struct ipc_decision *record) {
    // What no rule decided (localhost, the root of the DNS) needs none.
    if (record->event != IPC_EVENT_DECISION || record->verdict != POLICY_ALLOW || record->rule == POLICY_RULE_NONE) return;
    struct learn_row row = {.protocol = learn_protocol_of(record), .count = 1};
    if (row.protocol != LEARN_LOOKUP) row.port = record->port;
    if (record->name[0]) memcpy(row.name, record->name, strnlen(record->name, NAME_SIZE - 1));
    else if (record->address.family != ADDR_NONE) row.address = record->address;
    else return;
    row.private_ok = record->rule < learn->given_count && learn->model->allow[record->rule].private_ok;
    learn_add(learn, &row);
}

bool learn_would_deny(const struct learn *learn, const struct ipc_decision *record, struct policy_decision *ret_decision,
                      char hint[POLICY_HINT_SIZE]) {
    if (record->event != IPC_EVENT_DECISION || record->verdict != POLICY_ALLOW || record->rule == POLICY_RULE_NONE)
        return false;
    struct policy_request request = {.protocol = record->protocol,
                                     .app = record->app,
                                     .dialled = record->name[0] ? record->name : NULL,
                                     .address = record->address.family != ADDR_NONE ? &record->address : NULL,
                                     .port = record->port};
    // What is asked for in the DNS is the name; the address in the record is the server's.
    if (request.protocol == POLICY_DNS) request.address = NULL;
    *ret_decision = policy_decide(learn->reference, &request);
    if (ret_decision->verdict != POLICY_DENY) return false;
    policy_hint(learn->reference, &request, ret_decision, hint);
    return true;
}

// ---- after the command ----

static int learn_write_text(int fd, const char *text) {
    size_t len = strlen(text);
    while (len > 0) {
        ssize_t written = write(fd, text, len);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return -errno;
        text += written;
        len -= (size_t)written;
    }
    return fsync(fd) < 0 ? -errno : 0;
}

// A link fails where something has the name by now, on every file system; a rename would replace it.
static int learn_publish(const struct learn *learn, const char *temporary) {
    if (renameat2(learn->folder, temporary, learn->folder, learn->file, RENAME_NOREPLACE) == 0) return 0;
    if (errno != EINVAL && errno != ENOSYS) return -errno;
    if (linkat(learn->folder, temporary, learn->folder, learn->file, 0) < 0) return -errno;
    unlinkat(learn->folder, temporary, 0);
    return 0;
}

int learn_write(const struct learn *learn, struct error *err) {
    char temporary[64];
    AUTO_FREE char *text = learn_text(learn);
    if (!text) return error_set(err, -ENOMEM, "--learn \"%s\": out of memory", learn->path);
    snprintf(temporary, sizeof(temporary), ".penstock-learn-%08x%08x", random_u32(), random_u32());
    AUTO_CLOSE int fd =
        openat(learn->folder, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
               learn->model->binding_count > 0 ? 0600 : 0644); // a command that gives a secret may hold more than it should
    int rc = fd < 0 ? -errno : learn_write_text(fd, text);
    if (rc == 0) rc = learn_publish(learn, temporary);
    if (rc == 0) return 0;
    if (fd >= 0) unlinkat(learn->folder, temporary, 0);
    fputs(text, stderr); // what was learned cannot be had again without running it all again
    return error_set(err, rc, "--learn \"%s\": %s; the policy was not written there, it is printed above", learn->path,
                     rc == -EEXIST ? "something has taken this name while the command ran" : strerror(-rc));
}

static void learn_print_row(const struct learn_row *row) {
    char address[ADDR_TEXT_SIZE], port[16] = "";
    const char *where = row->name[0] ? row->name : addr_format(&row->address, address);
    bool brackets = !row->name[0] && row->address.family == ADDR_IPV6 && row->port;
    if (row->port) snprintf(port, sizeof(port), ":%u", row->port);
    fprintf(stderr, "penstock: learned %s %s%s%s%s, %llu time%s\n", learn_protocol_name(row->protocol),
            brackets ? "[" : "", where, brackets ? "]" : "", port, (unsigned long long)row->count,
            row->count == 1 ? "" : "s");
}

// A lookup is the last row of its name: it says nothing where the name was used too.
static bool learn_is_said(const struct learn *learn, size_t at) {
    const struct learn_row *row = &learn->rows[at];
    return row->protocol == LEARN_LOOKUP && at > 0 && strcmp(row->name, learn->rows[at - 1].name) == 0;
}

void learn_summary(const struct learn *learn) {
    size_t shown = 0, more = 0;
    for (size_t i = 0; i < learn->row_count; i++) {
        if (learn_is_said(learn, i)) continue;
        if (shown++ < LEARN_SUMMARY_LINES) learn_print_row(&learn->rows[i]);
        else more++;
    }
    if (more) fprintf(stderr, "penstock: learned %zu more, see %s\n", more, learn->path);
    if (learn->lost)
        fprintf(stderr, "penstock: the policy is incomplete: only %d different destinations are kept\n", LEARN_ROWS_MAX);
    fprintf(stderr, "penstock: wrote %s; read it, then use it with --policy %s\n", learn->path, learn->path);
}
