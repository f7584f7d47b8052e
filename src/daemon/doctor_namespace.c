// SPDX-License-Identifier: Apache-2.0
// Checks that make namespaces: each is done as `penstock run` does it, with the same code where there is some.
//
// Ubuntu (23.10 and later) lets anybody make a user namespace but takes the capabilities in it away, unless an AppArmor
// profile of the program says "userns,". So a namespace only counts once something was done in it that needs a
// capability.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/if_ether.h>

#include "base/buf.h"
#include "base/mem.h"
#include "daemon/doctor.h"
#include "daemon/skeleton_choice.h"

// ---- a user and a network namespace, and power over the latter ----

struct step_report {
    int step, error;
};

static struct step_report try_steps(void) {
    if (unshare(CLONE_NEWUSER) < 0) return (struct step_report){DOCTOR_STEP_USER, errno};
    if (unshare(CLONE_NEWNET) < 0) return (struct step_report){DOCTOR_STEP_NET, errno};
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request) < 0) return (struct step_report){DOCTOR_STEP_ADMIN, errno};
    return (struct step_report){DOCTOR_STEP_DONE, 0};
}

static struct step_report try_in_child(void) {
    struct step_report report = {DOCTOR_STEP_USER, EAGAIN};
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0) return report;
    pid_t pid = fork();
    if (pid == 0) {
        struct step_report own = try_steps();
        _exit(write(ends[1], &own, sizeof(own)) != (ssize_t)sizeof(own));
    }
    close(ends[1]);
    if (pid > 0 && read(ends[0], &report, sizeof(report)) != (ssize_t)sizeof(report)) report.error = EIO;
    close(ends[0]);
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR) continue;
    return report;
}

// A profile that names the program and gives it user namespaces; its path, or false.
static bool profile_file(const struct doctor *doctor, char *ret_path, size_t size) {
    char folder[512];
    bool found = false;
    snprintf(folder, sizeof(folder), "%s/etc/apparmor.d", doctor->root);
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir && !found && (entry = readdir(dir));) {
        struct buf text = BUF_INIT;
        char path[1024];
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        found = buf_read_file(&text, path, 1 << 20) == 0 && text.data && strstr(text.data, doctor->program) &&
                strstr(text.data, "userns,");
        buf_done(&text);
        if (found) snprintf(ret_path, size, "%s", path + strlen(doctor->root));
    }
    if (dir) closedir(dir);
    return found;
}

static void explain_apparmor(const struct doctor *doctor, struct doctor_finding *finding) {
    char path[512];
    if (profile_file(doctor, path, sizeof(path))) {
        doctor_say(finding, DOCTOR_MISSING, "AppArmor takes the capabilities away, though %s allows them: it is not loaded", path);
        doctor_fix(finding, "sudo apparmor_parser -r %s", path);
        return;
    }
    doctor_say(finding, DOCTOR_MISSING, "AppArmor takes the capabilities of user namespaces away (Ubuntu: "
                                        "kernel.apparmor_restrict_unprivileged_userns is 1)");
    doctor_fix(finding, "write this to /etc/apparmor.d/penstock, then: sudo apparmor_parser -r /etc/apparmor.d/penstock");
    snprintf(finding->file, sizeof(finding->file),
             "abi <abi/4.0>,\ninclude <tunables/global>\n\nprofile penstock %s flags=(unconfined) {\n  userns,\n"
             "  include if exists <local/penstock>\n}\n",
             doctor->program);
}

static void explain_setting(struct doctor_finding *finding, const char *setting, const char *value, const char *wanted) {
    doctor_say(finding, DOCTOR_MISSING, "%s is %s", setting, value);
    doctor_fix(finding, "echo '%s = %s' | sudo tee /etc/sysctl.d/60-penstock.conf && sudo sysctl --system", setting, wanted);
}

void doctor_namespace_explain(const struct doctor *doctor, enum doctor_step step, int error,
                              struct doctor_finding *finding) {
    static const char *const words[] = {"", "a user namespace cannot be made", "a network namespace cannot be made in it",
                                        "the user namespace gives no power over its network"};
    unsigned long number;
    if (doctor_number(doctor, "/proc/sys/kernel/unprivileged_userns_clone", &number) && number == 0) {
        explain_setting(finding, "kernel.unprivileged_userns_clone", "0", "1");
    } else if (doctor_number(doctor, "/proc/sys/user/max_user_namespaces", &number) && number == 0) {
        explain_setting(finding, "user.max_user_namespaces", "0", "15000");
    } else if (doctor_number(doctor, "/proc/sys/user/max_net_namespaces", &number) && number == 0) {
        explain_setting(finding, "user.max_net_namespaces", "0", "15000");
    } else if (doctor_number(doctor, "/proc/sys/kernel/apparmor_restrict_unprivileged_userns", &number) && number > 0) {
        explain_apparmor(doctor, finding);
    } else {
        doctor_say(finding, DOCTOR_MISSING, "%s: %s", words[step], strerror(error));
        doctor_fix(finding, "%s", error == ENOSPC || error == EUSERS
                                      ? "sudo sysctl user.max_user_namespaces=15000 user.max_net_namespaces=15000"
                                      : error == EPERM ? "in a container: docker run --security-opt seccomp=unconfined "
                                                         "--security-opt apparmor=unconfined"
                                                       : "use a kernel with CONFIG_USER_NS and CONFIG_NET_NS");
    }
}

void doctor_namespace_user(struct doctor *doctor, struct doctor_finding *finding) {
    struct step_report report = try_in_child();
    if (report.step == DOCTOR_STEP_DONE) doctor_say(finding, DOCTOR_OK, "with capabilities, and a network namespace in it");
    else doctor_namespace_explain(doctor, (enum doctor_step)report.step, report.error, finding);
    doctor->no_namespaces = report.step != DOCTOR_STEP_DONE;
}

static void not_tried(const char *lacks, struct doctor_finding *finding) {
    doctor_say(finding, DOCTOR_MISSING, "not tried: there is no %s", lacks);
    doctor_fix(finding, "mend what is missing above, then run penstock doctor again");
}

// ---- the network of a sandbox ----

void doctor_namespace_skeleton(struct doctor *doctor, struct doctor_finding *finding) {
    struct error err = {0};
    struct channel_message message;
    char words[512];
    if (doctor->no_namespaces) {
        not_tried("user namespace", finding);
        return;
    }
    struct ipc_keeper_start start = {.uid = doctor->identity.uid, .gid = doctor->identity.gid,
                                     .ports = {.count = 3, .ports = {53, 80, 443}}}; // of a policy that can do without nft
    int rc = skeleton_choice_wish(&start.skeleton, &err);
    if (rc == 0) rc = role_start(&doctor->keeper, ROLE_KEEPER, 0, 0, NULL, &err);
    if (rc == 0) rc = role_send(&doctor->keeper, IPC_KEEPER_START, &start, sizeof(start), NULL, 0, &err);
    struct channel_message namespaces;
    if (rc == 0) rc = role_expect(&doctor->keeper, IPC_KEEPER_NAMESPACES, &namespaces, &err);
    if (rc == 0) {
        doctor->user_namespace = TAKE_FD(namespaces.fds[0]);
        doctor->net_namespace = TAKE_FD(namespaces.fds[1]);
        rc = role_expect(&doctor->keeper, IPC_KEEPER_READY, &message, &err);
    }
    if (rc == 0) {
        struct ipc_keeper_ready ready;
        memcpy(&ready, message.body, sizeof(ready));
        doctor->skeleton = ready.skeleton;
        if (!skeleton_choice_words(&ready, words, sizeof(words))) {
            doctor_say(finding, DOCTOR_OK, "built: routes, nft rules with tproxy, listeners");
            return;
        }
        doctor_say(finding, DOCTOR_WARNING, "built without nft: %s; policies with an open base, address ranges, UDP or ICMP are "
                                            "refused at the start", words);
        if (!ready.lacks[0]) {
            doctor_fix(finding, "unset PENSTOCK_SKELETON");
            return;
        }
    } else {
        doctor_say(finding, DOCTOR_MISSING, "%s", err.text);
        if (doctor->net_namespace >= 0) close(TAKE_FD(doctor->net_namespace)); // what comes next is not tried without a skeleton
    }
    doctor_fix(finding, "sudo modprobe -a nf_tables nft_tproxy nft_socket nft_fib_inet nft_reject_inet; "
                        "echo nft_tproxy | sudo tee /etc/modules-load.d/penstock.conf");
}

static bool no_skeleton(const struct doctor *doctor, struct doctor_finding *finding) {
    if (doctor->net_namespace >= 0) return false;
    not_tried("network skeleton", finding);
    return true;
}

static const struct {
    const char *name;
    int family, type, protocol;
} sockets[] = {
    {"raw IPv4", AF_INET, SOCK_RAW, IPPROTO_RAW},
    {"raw IPv6", AF_INET6, SOCK_RAW, IPPROTO_RAW},
    {"packet", AF_PACKET, SOCK_DGRAM, 0},
};

// The exit status is 0, or which socket failed, from 1; 100: the namespaces cannot be entered.
static int try_sockets(const struct doctor *doctor) {
    if (setns(doctor->user_namespace, CLONE_NEWUSER) < 0 || setns(doctor->net_namespace, CLONE_NEWNET) < 0) return 100;
    for (size_t i = 0; i < ARRAY_LENGTH(sockets); i++) {
        if (sockets[i].family == AF_PACKET && doctor->skeleton == IPC_SKELETON_ROUTES) continue; // does without
        int protocol = sockets[i].family == AF_PACKET ? htons(ETH_P_ALL) : sockets[i].protocol;
        if (socket(sockets[i].family, sockets[i].type | SOCK_CLOEXEC, protocol) < 0) return (int)i + 1;
    }
    return 0;
}

void doctor_namespace_sockets(struct doctor *doctor, struct doctor_finding *finding) {
    int status = 0;
    if (no_skeleton(doctor, finding)) return;
    pid_t pid = fork();
    if (pid == 0) _exit(try_sockets(doctor));
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    int failed = pid < 0 || !WIFEXITED(status) ? 100 : WEXITSTATUS(status);
    if (failed == 0) {
        doctor_say(finding, DOCTOR_OK, "raw IPv4, raw IPv6%s", doctor->skeleton == IPC_SKELETON_ROUTES ? "" : ", packet");
        return;
    }
    doctor_say(finding, DOCTOR_MISSING, "%s%s", failed == 100 ? "the sandbox's namespaces cannot be entered"
                                                              : sockets[failed - 1].name,
               failed == 100 ? "" : " sockets cannot be made");
    doctor_fix(finding, "sudo modprobe af_packet; use a kernel with CONFIG_PACKET and IPv6");
}

// ---- the command ----

// Words of bubblewrap and what they mean.
static const struct {
    const char *words, *fix;
} bubblewrap_faults[] = {
    {"not installed", "sudo apt-get install bubblewrap"},
    {"mount proc", "in a container: docker run --security-opt systempaths=unconfined --security-opt seccomp=unconfined "
                   "--security-opt apparmor=unconfined"},
    {"idmapped", "sudo chown -R USER . and run penstock as that user, or change to a folder on ext4, xfs or btrfs"},
    {"working directory", "cd PROJECT"},
    {"user namespace", "sudo sysctl user.max_user_namespaces=15000"},
    {"", "run the command of README.md's first lines for the whole message"},
};

// Runs /bin/true in a sandbox. 0, or a negative errno with a message.
static int try_command(const struct doctor *doctor, const char *cwd, struct error *err) {
    char *argv[] = {"true", NULL}, *environment[] = {"PATH=/usr/bin:/bin", NULL};
    struct sandbox_spec spec = {.argv = argv, .environment = environment, .cwd = cwd, .identity = doctor->identity};
    struct sandbox_process *process = NULL;
    int status = 0, rc = sandbox_process_check(&spec, err);
    if (rc == 0) rc = sandbox_process_start(&spec, doctor->user_namespace, doctor->net_namespace, &process, err);
    if (rc < 0) return rc;
    while (waitpid(sandbox_process_pid(process), &status, 0) < 0 && errno == EINTR) continue;
    status = sandbox_process_status(process, status);
    sandbox_process_free(process);
    return status == 0 ? 0 : error_set(err, -EIO, "the command \"true\" ended with status %d", status);
}

static void say_command(struct doctor_finding *finding, enum doctor_state state, const char *words) {
    doctor_say(finding, state, "%s", words);
    for (size_t i = 0; i < ARRAY_LENGTH(bubblewrap_faults) && !finding->fix[0]; i++)
        if (strstr(words, bubblewrap_faults[i].words)) doctor_fix(finding, "%s", bubblewrap_faults[i].fix);
}

// In a folder of the sandbox's own user, so that nothing but bubblewrap is tried.
void doctor_namespace_bubblewrap(struct doctor *doctor, struct doctor_finding *finding) {
    struct error err = {0};
    char folder[] = "/tmp/penstock-doctor-XXXXXX";
    if (no_skeleton(doctor, finding)) return;
    int rc = mkdtemp(folder) && chown(folder, doctor->identity.uid, doctor->identity.gid) == 0 ? 0 : -errno;
    if (rc < 0) error_set(&err, rc, "no folder can be made in /tmp: %s", strerror(-rc));
    else rc = try_command(doctor, folder, &err);
    rmdir(folder);
    if (rc == 0) doctor_say(finding, DOCTOR_OK, "ran a command in the sandbox's namespaces");
    else say_command(finding, DOCTOR_MISSING, err.text);
}

// The folder may just be the wrong one to stand in: a warning.
void doctor_namespace_cwd(struct doctor *doctor, struct doctor_finding *finding) {
    struct error err = {0};
    AUTO_FREE char *cwd = getcwd(NULL, 0);
    if (no_skeleton(doctor, finding)) return;
    if (try_command(doctor, cwd, &err) == 0) doctor_say(finding, DOCTOR_OK, "usable: %.500s", cwd);
    else say_command(finding, DOCTOR_WARNING, err.text);
}
