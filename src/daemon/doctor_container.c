// SPDX-License-Identifier: Apache-2.0
// Checks for sandboxes that run images: what is missing there is missing to root alone, and to no process sandbox.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/random.h"
#include "daemon/doctor.h"
#include "vault/vault.h"

static bool is_tried(const struct doctor *doctor, struct doctor_finding *finding) {
    if (doctor->identity.from_root && doctor->net_namespace >= 0) return true;
    doctor_say(finding, DOCTOR_OK, doctor->identity.from_root ? "not tried: there is no namespace for one"
                                                              : "not tried: they are root's; run sudo penstock doctor if you need them");
    return false;
}

// Words of a container's start and what they mean.
static const struct {
    const char *words, *fix;
} faults[] = {
    {"not installed", "sudo apt-get install crun"},
    {"idmapped", "use Linux 5.19 or later, and set PENSTOCK_STATE_FOLDER to a folder on ext4, xfs or btrfs"},
    {"overlay", "sudo modprobe overlay; or set PENSTOCK_STATE_FOLDER to a folder that is no overlay itself"},
    {"cgroup", "sudo mount -t cgroup2 cgroup2 /sys/fs/cgroup; in a container: docker run --privileged --cgroupns=private"},
    {"numbers of users", "in a container: docker run --privileged; where all numbers of users are mapped"},
    {"crun", "sudo apt-get install crun (1.8 or later)"},
    {"", "run penstock run --type container --image oci:FOLDER -- true for the whole message"},
};

// An empty root is enough: the first process is ours. folder: of this container.
static int try_container(const struct doctor *doctor, const char *id, const char *folder, struct error *err) {
    struct sandbox_container *container = NULL;
    char *const environment[] = {NULL};
    AUTO_FREE char *layer = NULL;
    if (asprintf(&layer, "%s/layer", folder) < 0) return error_set(err, -ENOMEM, "out of memory");
    if (mkdir(layer, 0755) < 0 || chown(layer, CONTAINER_DISK_BASE, CONTAINER_DISK_BASE) < 0)
        return error_set(err, -errno, "%s: %s", layer, strerror(errno));
    const char *const layers[] = {layer};
    const struct sandbox_container_spec spec = {.id = id, .folder = folder, .layers = layers, .layer_count = 1, .tied = true,
                                                .environment = environment, .memory_bytes = 64 << 20, .cpu_millis = 1000,
                                                .stdio = {-1, -1, -1}};
    int rc = sandbox_container_create(&spec, doctor->user_namespace, doctor->net_namespace, &container, err);
    if (rc == 0) rc = sandbox_container_start(container, err);
    sandbox_container_free(container);
    return rc;
}

// Where containers are kept, if there is such a folder yet.
static int make_folder(const char *id, char **ret_folder, struct error *err) {
    AUTO_FREE char *state = NULL;
    struct error ignored;
    bool there = vault_state_folder(false, &state, &ignored) == 0 && access(state, W_OK) == 0;
    if (asprintf(ret_folder, "%s/penstock-%s", there ? state : "/var/tmp", id) < 0) {
        *ret_folder = NULL;
        return error_set(err, -ENOMEM, "out of memory");
    }
    return mkdir(*ret_folder, 0700) < 0 ? error_set(err, -errno, "%s: %s", *ret_folder, strerror(errno)) : 0;
}

void doctor_container_run(struct doctor *doctor, struct doctor_finding *finding) {
    AUTO_FREE char *folder = NULL;
    struct error err = {0}, left;
    char id[32];
    if (!is_tried(doctor, finding)) return;
    snprintf(id, sizeof(id), "doctor-%08x", random_u32());
    int rc = make_folder(id, &folder, &err);
    if (rc == 0) rc = try_container(doctor, id, folder, &err);
    if (folder && sandbox_container_clean(id, folder, rc == 0 ? &err : &left) < 0 && rc == 0) rc = -EIO;
    if (rc == 0) {
        doctor_say(finding, DOCTOR_OK, "started one by crun, with limits");
        return;
    }
    doctor_say(finding, DOCTOR_WARNING, "%s", err.text);
    for (size_t i = 0; i < ARRAY_LENGTH(faults) && !finding->fix[0]; i++)
        if (strstr(err.text, faults[i].words)) doctor_fix(finding, "%s", faults[i].fix);
}

void doctor_container_images(struct doctor *doctor, struct doctor_finding *finding) {
    static const char *const programs[] = {"skopeo", "umoci"};
    if (!is_tried(doctor, finding)) return;
    for (size_t i = 0; i < ARRAY_LENGTH(programs); i++) {
        if (sandbox_has_program(programs[i])) continue;
        doctor_say(finding, DOCTOR_WARNING, "\"%s\" is not installed", programs[i]);
        doctor_fix(finding, "sudo apt-get install %s", programs[i]);
        return;
    }
    doctor_say(finding, DOCTOR_OK, "skopeo, umoci");
}
