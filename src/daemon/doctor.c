// SPDX-License-Identifier: Apache-2.0
// The table of checks, in the order in which a sandbox is built, and how findings are shown. A check whose ground is
// missing says so instead of guessing.
#include "daemon/doctor.h"

#include <assert.h>
#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/number.h"
#include "daemon/daemon.h"

const struct doctor_check doctor_checks[] = {
    {"proc", "namespaces are made and entered through /proc", doctor_kernel_proc},
    {"kernel calls", "sandboxes are held and ended by these system calls", doctor_kernel_calls},
    {"user namespace", "a sandbox's network is made with capabilities of its own user namespace",
     doctor_namespace_user},
    {"network skeleton", "nft rules with tproxy lead the sandbox's connections to the gate", doctor_namespace_skeleton},
    {"raw and packet sockets", "the gate answers connections in kind through them", doctor_namespace_sockets},
    {"bubblewrap", "it gives the command its own view of files and processes", doctor_namespace_bubblewrap},
    {"working directory", "it is the folder that the command may write; for root by an idmapped mount",
     doctor_namespace_cwd},
    {"seccomp", "the filter closes what namespaces do not bind", doctor_kernel_seccomp},
    {"landlock", "a second lock on the gate's files, beside its seccomp filter", doctor_kernel_landlock},
    {"descriptor limit", "each connection of a sandbox holds descriptors in the gate", doctor_kernel_descriptors},
    {"ping", "ICMP echo for rules that say icmp needs a ping socket of the host", doctor_kernel_ping},
    {"resolver", "the gate resolves the names of the policy", doctor_kernel_resolver},
    {"credentials", "where a policy binds credentials the gate opens TLS, and secrets are in memory", doctor_kernel_credentials},
    {"containers", "the types container and mistral, and nodes, run images by crun, with cgroups and overlays", doctor_container_run},
    {"images", "skopeo fetches an image, umoci unpacks it", doctor_container_images},
};
const size_t doctor_check_count = ARRAY_LENGTH(doctor_checks);

static void doctor_inside(struct doctor *doctor, struct doctor_finding *finding) {
    (void)doctor;
    doctor_say(finding, DOCTOR_MISSING, "this is a sandbox already");
    doctor_fix(finding, "run penstock doctor outside; here run commands without penstock, the outer policy holds for them");
}

// In a sandbox of ours everything would be missing, for this one reason.
static const struct doctor_check doctor_place = {"place", "a sandbox cannot be started inside another", doctor_inside};

static const char *const doctor_words[] = {
    [DOCTOR_OK] = "ok", [DOCTOR_WARNING] = "warning", [DOCTOR_MISSING] = "missing"};
static_assert(ARRAY_LENGTH(doctor_words) == DOCTOR_STATE_COUNT, "one word a state");

void doctor_say(struct doctor_finding *finding, enum doctor_state state, const char *format, ...) {
    va_list args;
    finding->state = state;
    va_start(args, format);
    vsnprintf(finding->found, sizeof(finding->found), format, args);
    va_end(args);
}

void doctor_fix(struct doctor_finding *finding, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(finding->fix, sizeof(finding->fix), format, args);
    va_end(args);
}

bool doctor_number(const struct doctor *doctor, const char *path, unsigned long *ret_number) {
    struct buf text = BUF_INIT;
    char full[512];
    uint64_t number = 0;
    snprintf(full, sizeof(full), "%s%s", doctor->root, path);
    bool good = buf_read_file(&text, full, 256) == 0 && text.data &&
                number_parse(text.data, strcspn(text.data, " \t\n"), 0, UINT32_MAX, &number) == 0;
    buf_done(&text);
    if (good) *ret_number = (unsigned long)number;
    return good;
}

static void doctor_print(const struct doctor_check *check, const struct doctor_finding *finding) {
    printf("%-8s %s: %s\n", doctor_words[finding->state], check->name, finding->found);
    if (finding->state == DOCTOR_OK) return;
    printf("         why: %s\n", check->why);
    if (finding->fix[0]) printf("         fix: %s\n", finding->fix);
    for (const char *line = finding->file; *line;) {
        size_t len = strcspn(line, "\n");
        printf("              %.*s\n", (int)len, line);
        line += len + (line[len] == '\n');
    }
}

static json_t *doctor_json(const struct doctor_check *check, const struct doctor_finding *finding) {
    json_t *object = json_pack("{s:s,s:s,s:s,s:s}", "check", check->name, "state", doctor_words[finding->state],
                               "found", finding->found, "why", check->why);
    if (object && finding->fix[0]) json_object_set_new(object, "fix", json_string(finding->fix));
    if (object && finding->file[0]) json_object_set_new(object, "file", json_string(finding->file));
    return object;
}

static void doctor_program(char *path, size_t size) {
    ssize_t len = readlink("/proc/self/exe", path, size - 1);
    if (len > 0) path[len] = '\0';
    else snprintf(path, size, "/usr/bin/penstock");
}

int daemon_doctor(bool json) {
    char program[512];
    bool missing = false;
    json_t *rows = json ? json_array() : NULL;
    struct doctor doctor = {.root = "", .program = program, .identity = sandbox_identity(), .user_namespace = -1,
                            .net_namespace = -1, .keeper = {.kind = ROLE_KEEPER, .pidfd = -1, .channel = -1}};
    doctor_program(program, sizeof(program));
    bool inside = sandbox_inside();
    const struct doctor_check *checks = inside ? &doctor_place : doctor_checks;
    for (size_t i = 0; i < (inside ? 1 : doctor_check_count); i++) {
        struct doctor_finding finding = {0};
        checks[i].examine(&doctor, &finding);
        missing |= finding.state == DOCTOR_MISSING;
        if (json) json_array_append_new(rows, doctor_json(&checks[i], &finding));
        else doctor_print(&checks[i], &finding);
        fflush(stdout);
    }
    mem_close_pointer(&doctor.user_namespace);
    mem_close_pointer(&doctor.net_namespace);
    role_stop(&doctor.keeper, 2000);
    if (!json) {
        printf("\n%s\n", missing ? "penstock run cannot work here until what is missing is mended." : "penstock run works here.");
        return missing;
    }
    json_t *object = json_pack("{s:b,s:o}", "works", !missing, "checks", rows);
    if (object) json_dumpf(object, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER);
    printf("\n");
    json_decref(object);
    return missing;
}
