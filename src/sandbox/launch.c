// SPDX-License-Identifier: Apache-2.0
// Order in the child, each step while it still has the right to do it:
// 1. root only: supplementary groups dropped, folders staged (staging.c);
// 2. user namespace (root gains the rights in it, an ordinary user owns it), then the network namespace that it owns;
// 3. root only: the sandbox's user and group, which are all that is mapped there, so nothing leads back;
// 4. no ambient capabilities: bubblewrap refuses to start with any, and exec as a user other than 0 drops the rest.
#include "sandbox/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <grp.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "sandbox/alias.h"
#include "sandbox/arguments.h"
#include "sandbox/environment.h"
#include "sandbox/lookup.h"
#include "sandbox/mountinfo.h"
#include "sandbox/sandbox_report.h"
#include "sandbox/seccomp_filter.h"
#include "sandbox/staging.h"

extern const unsigned char sandbox_init_image[], sandbox_init_image_end[]; // made by embed.sh

static const char *find_program(void) {
    static const char *const paths[] = {"/usr/bin/bwrap", "/bin/bwrap", "/usr/local/bin/bwrap",
                                        "/run/current-system/sw/bin/bwrap"};
    for (size_t i = 0; i < ARRAY_LENGTH(paths); i++)
        if (access(paths[i], X_OK) == 0) return paths[i];
    return NULL;
}

// PID 1 is known by its name.
bool sandbox_inside(void) {
    struct buf name = BUF_INIT;
    bool inside = buf_read_file(&name, "/proc/1/comm", 64) == 0 && name.len > 0 &&
                  strncmp(name.data, SANDBOX_INIT_NAME, strlen(SANDBOX_INIT_NAME)) == 0;
    buf_done(&name);
    return inside;
}

// A sandbox of ours has no packet sockets, which another one would need. A folder as a standard stream would lead, by
// "..", to all that is around it on the host.
static int check_caller(struct error *err) {
    static const char *const names[] = {"standard input", "standard output", "standard error"};
    if (sandbox_inside())
        return error_set(err, -EOPNOTSUPP,
                         "this is a sandbox already, and a sandbox cannot be started inside another; run the command "
                         "without penstock: the outer policy holds for it");
    struct stat st;
    for (int fd = 0; fd < 3; fd++)
        if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode))
            return error_set(err, -EINVAL, "%s is a folder, a way out of the sandbox; redirect it to a file or /dev/null",
                             names[fd]);
    return 0;
}

int launch_check(struct launch *launch, const struct sandbox_spec *spec, struct error *err) {
    *launch = (struct launch){.spec = spec, .seccomp = -1, .init = -1, .options = -1, .arguments = -1};
    int r = check_caller(err);
    if (r < 0) return r;
    r = exposure_init(&launch->exposure, spec, err);
    if (r == 0) r = hidden_collect(spec, &launch->exposure, &launch->hidden, err);
    if (r < 0) return r;
    launch->program = find_program();
    if (!launch->program)
        return error_set(err, -ENOPKG, "bubblewrap ('bwrap') is not installed; apt-get install bubblewrap");
    return lookup_command(spec, &launch->exposure, &launch->command, err);
}

// Linux 6.3 has to be asked for a file that can be executed where vm.memfd_noexec is 1; older ones lack the flag.
#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U
#endif

static int memory_file(const char *name, const void *bytes, size_t len) {
    AUTO_CLOSE int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXEC);
    if (fd < 0 && errno == EINVAL) fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) return -errno;
    for (size_t done = 0; done < len;) {
        ssize_t n = write(fd, (const char *)bytes + done, len - done);
        if (n < 0) return -errno;
        done += (size_t)n;
    }
    if (lseek(fd, 0, SEEK_SET) < 0) return -errno;
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) return -errno;
    return TAKE_FD(fd);
}

static int prepare_options(struct launch *launch) {
    struct arguments arguments = {.spec = launch->spec,
                                  .exposure = &launch->exposure,
                                  .mask = &launch->mask,
                                  .etc_files = launch->etc_files,
                                  .etc_file_count = launch->etc_file_count,
                                  .trust = &launch->trust.options,
                                  .seccomp = launch->seccomp};
    struct buf text = BUF_INIT;
    arguments_write(&arguments, &text);
    int r = text.failed ? -ENOMEM : memory_file("penstock-options", text.data, text.len);
    buf_done(&text);
    return r;
}

static int prepare_arguments(struct launch *launch) {
    struct buf text = BUF_INIT;
    buf_append(&text, launch->command, strlen(launch->command) + 1);
    for (char *const *at = launch->spec->argv; *at; at++) buf_append(&text, *at, strlen(*at) + 1);
    int r = text.failed ? -ENOMEM : memory_file("penstock-arguments", text.data, text.len);
    buf_done(&text);
    return r;
}

static char **prepare_environment(const struct launch *launch) {
    const struct sandbox_spec *spec = launch->spec;
    size_t count = 0;
    while (spec->placeholders && spec->placeholders[count]) count++;
    AUTO_FREE char **extra = NEW_ARRAY(char *, count + launch->trust.variable_count + 1);
    if (!extra) return NULL;
    for (size_t i = 0; i < launch->trust.variable_count; i++) extra[i] = launch->trust.variables[i];
    for (size_t i = 0; i < count; i++) extra[launch->trust.variable_count + i] = spec->placeholders[i];
    return environment_filter(spec->environment, &launch->exposure, spec->proxy, extra);
}

static int prepare_masks(struct launch *launch, const struct sandbox_spec *spec, struct error *err) {
    struct mountinfo mounts;
    int r = mountinfo_read(&mounts, err);
    if (r < 0) return r;
    r = alias_check(spec, &launch->exposure, &launch->hidden, &mounts, err);
    if (r == 0) r = unix_mask_collect(&launch->exposure, &launch->hidden, &mounts, &launch->mask, err);
    mountinfo_done(&mounts);
    return r;
}

int launch_prepare(struct launch *launch, const struct sandbox_spec *spec, struct error *err) {
    int r = launch_check(launch, spec, err);
    if (r < 0) return r;
    r = prepare_masks(launch, spec, err);
    if (r < 0) return r;
    r = hidden_mask_named(spec, &launch->exposure, &launch->mask);
    if (r < 0) return error_set(err, r, "penstock's own files cannot be hidden from the sandbox: %s", strerror(-r));
    r = etc_file_make(spec, launch->exposure.home, launch->etc_files, &launch->etc_file_count, err);
    if (r < 0) return r;
    r = trust_make(spec, &launch->exposure, &launch->trust, err);
    if (r < 0) return r;
    launch->seccomp = seccomp_filter_open(launch->exposure.protects, err);
    if (launch->seccomp < 0) return launch->seccomp;
    launch->environment = prepare_environment(launch);
    launch->init =
        memory_file("penstock-init", sandbox_init_image, (size_t)(sandbox_init_image_end - sandbox_init_image));
    launch->options = prepare_options(launch);
    launch->arguments = prepare_arguments(launch);
    const int files[] = {launch->init, launch->options, launch->arguments, launch->environment ? 0 : -ENOMEM};
    for (size_t i = 0; i < ARRAY_LENGTH(files); i++)
        if (files[i] < 0)
            return error_set(err, files[i], "no memory files for the sandbox's start: %s; free some memory, or raise the limit of a "
                             "file's size (ulimit -f)", strerror(-files[i]));
    return 0;
}

void launch_done(struct launch *launch) {
    exposure_done(&launch->exposure);
    hidden_done(&launch->hidden);
    unix_mask_done(&launch->mask);
    etc_file_done(launch->etc_files, launch->etc_file_count);
    trust_done(&launch->trust);
    free(launch->command);
    free(launch->environment);
    mem_close_pointer(&launch->seccomp);
    mem_close_pointer(&launch->init);
    mem_close_pointer(&launch->options);
    mem_close_pointer(&launch->arguments);
    *launch = (struct launch){.seccomp = -1, .init = -1, .options = -1, .arguments = -1};
}

// ---- the child ----

static int enter_namespaces(const struct launch *launch, const struct launch_child *child, struct error *err) {
    const struct sandbox_identity *identity = &launch->spec->identity;
    if (identity->from_root && setgroups(0, NULL) < 0)
        return error_set(err, -errno, "supplementary groups cannot be dropped: %s", strerror(errno));
    int r = identity->from_root ? staging_enter(&launch->exposure, &launch->mask, identity, err) : 0;
    if (r < 0) return r;
    if (setns(child->user_namespace, CLONE_NEWUSER) < 0)
        return error_set(err, -errno, "the sandbox's user namespace cannot be entered: %s", strerror(errno));
    if (setns(child->net_namespace, CLONE_NEWNET) < 0)
        return error_set(err, -errno, "the sandbox's network namespace cannot be entered: %s", strerror(errno));
    if (!identity->from_root) return 0;
    if (setresgid(identity->gid, identity->gid, identity->gid) < 0 ||
        setresuid(identity->uid, identity->uid, identity->uid) < 0)
        return error_set(err, -errno, "user %u is not mapped in the sandbox's user namespace: %s", identity->uid,
                         strerror(errno));
    return 0;
}

// Descriptors that bubblewrap and the init need; all others are closed by exec.
static void keep_descriptors(const struct launch *launch, const struct launch_child *child, int error) {
    const int kept[] = {launch->seccomp, launch->init, launch->options, launch->arguments, child->status, error};
    for (size_t i = 0; i < ARRAY_LENGTH(kept); i++)
        if (kept[i] >= 0) fcntl(kept[i], F_SETFD, 0);
    for (size_t i = 0; i < launch->etc_file_count; i++) fcntl(launch->etc_files[i].fd, F_SETFD, 0);
    for (size_t i = 0; i < launch->trust.file_count; i++) fcntl(launch->trust.files[i], F_SETFD, 0);
}

static uint64_t mask_bits(const sigset_t *mask) {
    uint64_t bits = 0;
    for (int number = 1; number <= 64; number++)
        if (sigismember(mask, number) == 1) bits |= UINT64_C(1) << (number - 1);
    return bits;
}

// The command's arguments go round bubblewrap, which takes no more than 9000.
static void execute(const struct launch *launch, const struct launch_child *child, int error) {
    char options[16], init[32], status[16], stderr_number[16], mask[32], arguments[16];
    snprintf(options, sizeof(options), "%d", launch->options);
    snprintf(init, sizeof(init), "/proc/self/fd/%d", launch->init);
    snprintf(status, sizeof(status), "%d", child->status);
    snprintf(stderr_number, sizeof(stderr_number), "%d", error);
    snprintf(mask, sizeof(mask), "%llx", (unsigned long long)mask_bits(&child->mask));
    snprintf(arguments, sizeof(arguments), "%d", launch->arguments);
    char name[] = "bwrap", option[] = "--args", end[] = "--";
    char *argv[] = {name, option, options, end, init, status, stderr_number, mask, arguments, NULL};
    execve(launch->program, argv, launch->environment);
}

_Noreturn void launch_run(const struct launch *launch, const struct launch_child *child) {
    struct error err = {{0}};
    signal(SIGPIPE, SIG_DFL); // ignored by penstock, not by the command
    signal(SIGXFSZ, SIG_DFL);
    signal(SIGCHLD, SIG_DFL);
    int error = fcntl(2, F_DUPFD_CLOEXEC, 3);
    dup2(child->messages, 2);
    if (enter_namespaces(launch, child, &err) == 0) {
        prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
        keep_descriptors(launch, child, error);
        if (chdir("/") == 0) execute(launch, child, error);
        error_set(&err, -errno, "\"%s\" cannot be executed: %s", launch->program, strerror(errno));
    }
    (void)!write(2, err.text, strlen(err.text));
    _exit(125);
}
