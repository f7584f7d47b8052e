// SPDX-License-Identifier: Apache-2.0
#include "sandbox/place.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

static const struct place_system systems[] = {
    {"/usr", false},
    {"/bin", false},
    {"/sbin", false},
    {"/lib", false},
    {"/lib32", false},
    {"/lib64", false},
    {"/libx32", false},
    {"/etc", true},
    {"/opt", true},
    {"/nix/store", false},
    {"/gnu/store", false},
    // Parts of /var that programs expect to read: CA bundles that /etc links to (SUSE), the list of packages.
    {"/var/lib/ca-certificates", false},
    {"/var/lib/dpkg", false},
};

size_t place_systems(const struct place_system **ret_systems) {
    *ret_systems = systems;
    return ARRAY_LENGTH(systems);
}

bool place_within(const char *path, const char *folder) {
    size_t len = strlen(folder);
    if (len == 1) return true; // "/"
    return strncmp(path, folder, len) == 0 && (path[len] == '\0' || path[len] == '/');
}

bool place_in_system(const char *path) {
    for (size_t i = 0; i < ARRAY_LENGTH(systems); i++)
        if (place_within(path, systems[i].path)) return true;
    return false;
}

bool place_normalise(const char *path, const char *base, char ret_path[PATH_MAX]) {
    size_t used = 0;
    const char *parts[2] = {path[0] == '/' ? "" : base, path};
    for (size_t i = 0; i < 2; i++) {
        for (const char *at = parts[i]; *at;) {
            size_t len = strcspn(at, "/");
            if (len == 2 && memcmp(at, "..", 2) == 0) {
                while (used > 0 && ret_path[--used] != '/') {
                }
            } else if (len > 0 && !(len == 1 && at[0] == '.')) {
                if (used + len + 2 > PATH_MAX) return false;
                ret_path[used++] = '/';
                memcpy(ret_path + used, at, len);
                used += len;
            }
            at += len;
            at += strspn(at, "/");
        }
    }
    if (used == 0) ret_path[used++] = '/';
    ret_path[used] = '\0';
    return true;
}

// Folders that are more than one project, or that the sandbox has its own of.
static const struct {
    const char *path;
    bool below; // refused with all that is in it
    const char *what;
} refused_cwds[] = {
    {"/proc", true, "a kernel folder"},      {"/sys", true, "a kernel folder"},
    {"/dev", true, "a kernel folder"},       {"/run", true, "private in a sandbox"},
    {"/boot", true, "a system folder"},      {"/var", false, "a system folder"},
    {"/var/lib", false, "a system folder"},  {"/var/tmp", false, "shared by all"},
    {"/tmp", false, "private in a sandbox"}, {"/home", false, "the folder of all homes"},
    {"/srv", false, "a system folder"},      {"/mnt", false, "a system folder"},
    {"/media", false, "a system folder"},
};

// Folders of a home that hold keys, or what the host executes by itself: no project.
static const struct {
    const char *name;
    bool below;
} private_folders[] = {
    {".ssh", true},           {".gnupg", true},           {".aws", true},           {".azure", true},
    {".kube", true},          {".docker", true},          {".password-store", true}, {".mozilla", true},
    {".thunderbird", true},   {".pki", true},             {".config", false},       {".config/systemd", true},
    {".config/autostart", true}, {".config/gcloud", true}, {".config/gh", true},    {".config/environment.d", true},
    {".local", false},        {".local/bin", true},       {".local/lib", true},     {".local/share", false},
    {".local/share/keyrings", true},
};

static const char *private_folder(const char *cwd, const char *home) {
    size_t len = strlen(home);
    if (!place_within(cwd, home) || cwd[len] != '/') return NULL;
    for (size_t i = 0; i < ARRAY_LENGTH(private_folders); i++) {
        const char *name = private_folders[i].name, *rest = cwd + len + 1;
        if (private_folders[i].below ? place_within(rest, name) : strcmp(rest, name) == 0) return name;
    }
    return NULL;
}

static bool home_fault(const char *cwd, const struct home_list *homes, char *ret_fault, size_t size) {
    for (size_t i = 0; i < homes->count; i++) {
        const char *path = homes->entries[i].path, *whose = homes->entries[i].whose, *name;
        if (strcmp(cwd, path) == 0) return snprintf(ret_fault, size, "%s", whose) > 0;
        if (place_within(path, cwd)) return snprintf(ret_fault, size, "a parent of %s", whose) > 0;
        name = private_folder(cwd, path);
        if (name) return snprintf(ret_fault, size, "in \"%s\" of %s", name, whose) > 0;
    }
    return false;
}

static bool cwd_fault(const char *cwd, const struct home_list *homes, char *ret_fault, size_t size) {
    if (strcmp(cwd, "/") == 0) return snprintf(ret_fault, size, "the whole file system") > 0;
    if (home_fault(cwd, homes, ret_fault, size)) return true;
    if (place_in_system(cwd)) return snprintf(ret_fault, size, "in a system folder") > 0;
    for (size_t i = 0; i < ARRAY_LENGTH(refused_cwds); i++) {
        const char *path = refused_cwds[i].path;
        if (refused_cwds[i].below ? place_within(cwd, path) : strcmp(cwd, path) == 0)
            return snprintf(ret_fault, size, "%s", refused_cwds[i].what) > 0;
    }
    return false;
}

int place_check_cwd(const char *cwd, const struct home_list *homes, struct error *err) {
    char fault[256];
    if (!cwd || cwd[0] != '/')
        return error_set(err, -EINVAL, "the working directory \"%s\" is not an absolute path", cwd ? cwd : "");
    if (cwd_fault(cwd, homes, fault, sizeof(fault)))
        return error_set(
            err, -EINVAL,
            "the working directory \"%s\" would be writable in the sandbox, but it is %s; change to a project "
            "folder (cd PROJECT) and name other folders with --write",
            cwd, fault);
    struct stat st;
    if (stat(cwd, &st) < 0 || !S_ISDIR(st.st_mode))
        return error_set(err, -EINVAL, "the working directory \"%s\" cannot be used: %s; change to a project folder", cwd,
                         strerror(errno ? errno : ENOTDIR));
    return 0;
}

// The host's /proc holds ways into the namespaces of every process of the same user.
int place_check_shared(const char *option, const char *path, struct error *err) {
    static const char *const kernel[] = {"/proc", "/sys", "/dev"};
    if (strcmp(path, "/") == 0)
        return error_set(err, -EINVAL, "%s \"/\" would show the whole file system; name the folders that are needed",
                         option);
    for (size_t i = 0; i < ARRAY_LENGTH(kernel); i++)
        if (place_within(path, kernel[i]))
            return error_set(err, -EINVAL, "%s \"%s\" is a kernel folder, which a sandbox has its own of; leave it out",
                             option, path);
    struct stat st;
    if (stat(path, &st) < 0)
        return error_set(err, -EINVAL, "%s \"%s\" cannot be used: %s", option, path, strerror(errno));
    // What neither opens nor can be entered would be an empty place inside.
    if (access(path, R_OK) < 0 && access(path, X_OK) < 0)
        return error_set(err, -EINVAL, "%s \"%s\" cannot be read: %s; name what this user can read, or leave it out", option,
                         path, strerror(errno));
    if (S_ISSOCK(st.st_mode))
        return error_set(
            err, -EINVAL,
            "%s \"%s\" is a UNIX socket, a way round the policy; open its service by address instead (--allow)", option,
            path);
    if (S_ISBLK(st.st_mode) || S_ISCHR(st.st_mode))
        return error_set(err, -EINVAL, "%s \"%s\" is a device; only files and folders can be shared", option, path);
    return 0;
}
