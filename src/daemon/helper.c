// SPDX-License-Identifier: Apache-2.0
// Each element of each colon-separated list that is an absolute path which the sandbox could write is left out: of PATH, and of
// what loaders, interpreters and tools are pointed to (LD_LIBRARY_PATH, PYTHONPATH, GIT_DIR, BASH_ENV). Folders of PATH are
// given by their real paths, without links that could be changed. Relative ones mean nothing in / (see role.c).
//
// Any word of a command that is a program in PATH, or a path, is looked at: scripts are full of pipes and substitutions. What a
// program reads or runs by itself is not seen here, but for what it does by the home folder.
#include "daemon/helper.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"

static const char safe_path[] = "/usr/local/bin:/usr/bin:/bin";

static const char *value_of(char *const *environment, const char *name) {
    size_t len = strlen(name);
    for (; *environment; environment++)
        if (strncmp(*environment, name, len) == 0 && (*environment)[len] == '=') return *environment + len + 1;
    return NULL;
}

// ---- the environment ----

// Where the vault finds its own, which is hidden from the sandbox; and the home folder, which helper_check looks at.
static bool kept(const char *entry) {
    static const char *const words[] = {"HOME=", "XDG_STATE_HOME=", "PENSTOCK_"};
    for (size_t i = 0; i < ARRAY_LENGTH(words); i++)
        if (strncmp(entry, words[i], strlen(words[i])) == 0) return true;
    return false;
}

// What becomes of an element: NULL if it is left out. real: to free.
static const char *element(const struct sandbox_reach *reach, const char *text, bool is_path, char **real) {
    if (text[0] != '/') return is_path ? NULL : text;
    if (sandbox_reach_has(reach, text)) return NULL;
    return is_path ? *real = realpath(text, NULL) : text;
}

// An entry without them, to free; "": nothing is left of it. NULL: out of memory.
static char *filtered(const struct sandbox_reach *reach, const char *entry) {
    size_t name = strcspn(entry, "=");
    bool is_path = strncmp(entry, "PATH=", 5) == 0, first = true, dropped = false;
    if (!entry[name] || kept(entry)) return strdup(entry);
    AUTO_FREE char *result = strndup(entry, name + 1);
    for (const char *at = entry + name + 1; result; at++) {
        size_t len = strcspn(at, ":");
        AUTO_FREE char *text = strndup(at, len);
        AUTO_FREE char *real = NULL;
        char *longer = NULL;
        if (!text) return NULL;
        const char *keep = element(reach, text, is_path, &real);
        dropped |= !keep;
        if (keep && asprintf(&longer, "%s%s%s", result, first ? "" : ":", keep) < 0) return NULL;
        if (keep) {
            free(result);
            result = longer;
            first = false;
        }
        at += len;
        if (!*at) break;
    }
    if (result && dropped && first) return strdup(is_path ? "PATH=/usr/local/bin:/usr/bin:/bin" : "");
    return result ? TAKE_POINTER(result) : NULL;
}

int helper_environment(const struct sandbox_reach *reach, char ***ret_environment, struct error *err) {
    size_t count = 0, used = 0;
    while (environ[count]) count++;
    char **environment = NEW_ARRAY(char *, count + 1);
    for (size_t i = 0; environment && i < count; i++) {
        char *entry = filtered(reach, environ[i]);
        if (!entry) {
            helper_environment_free(environment);
            environment = NULL;
        } else if (*entry) {
            environment[used++] = entry;
        } else {
            free(entry);
        }
    }
    if (!environment) return error_set(err, -ENOMEM, "out of memory");
    *ret_environment = environment;
    return 0;
}

void helper_environment_free(char **environment) {
    for (char **entry = environment; entry && *entry; entry++) {
        explicit_bzero(*entry, strlen(*entry));
        free(*entry);
    }
    free(environment);
}

// ---- commands ----

// The path of a word's file, if it is one: absolute, below the home folder, or a program in PATH.
static bool word_path(const char *word, const char *home, const char *path, char ret_file[PATH_MAX]) {
    static const char *const homes[] = {"~/", "$HOME/", "${HOME}/"};
    for (size_t i = 0; i < ARRAY_LENGTH(homes); i++)
        if (home && strncmp(word, homes[i], strlen(homes[i])) == 0)
            return snprintf(ret_file, PATH_MAX, "%s/%s", home, word + strlen(homes[i])) < PATH_MAX;
    if (word[0] == '/') return snprintf(ret_file, PATH_MAX, "%s", word) < PATH_MAX;
    if (strchr(word, '/')) return false;
    for (const char *at = path; *at;) {
        size_t len = strcspn(at, ":");
        if (snprintf(ret_file, PATH_MAX, "%.*s/%s", (int)len, at, word) < PATH_MAX && access(ret_file, X_OK) == 0) return true;
        at += len + (at[len] == ':');
    }
    return false;
}

static int check_word(const struct sandbox_reach *reach, char *const *environment, const char *command, const char *word,
                      bool first, struct error *err) {
    char file[PATH_MAX];
    const char *path = value_of(environment, "PATH");
    bool found = word_path(word, value_of(environment, "HOME"), path ? path : safe_path, file);
    if (found && sandbox_reach_has(reach, file))
        return error_set(err, -EINVAL, "secret cmd:%s: it runs outside of the sandbox, which could change \"%s\"; keep that out "
                         "of the folders that the sandbox may write", command, file);
    if (!found && first && strchr(word, '/') && word[0] != '$')
        return error_set(err, -EINVAL, "secret cmd:%s: it runs in the folder /, where there is no \"%s\"; write the whole path",
                         command, word);
    return 0;
}

int helper_check(const struct sandbox_reach *reach, char *const *environment, const char *command, struct error *err) {
    static const char between[] = " \t\r\n;|&<>()`\"'=\\:,";
    const char *home = value_of(environment, "HOME");
    AUTO_FREE char *text = strdup(command);
    if (!text) return error_set(err, -ENOMEM, "out of memory");
    if (home && home[0] == '/' && sandbox_reach_has(reach, home))
        return error_set(err, -EINVAL, "secret cmd:%s: it runs outside of the sandbox by what the home folder \"%s\" says, "
                         "which the sandbox could change; share less of it", command, home);
    bool first = true;
    for (char *rest = text, *word; (word = strtok_r(rest, between, &rest)) != NULL; first = false) {
        int r = check_word(reach, environment, command, word, first, err);
        if (r < 0) return r;
    }
    return 0;
}

bool helper_names(const char *command, const char *variable) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";
    static const char *const ordinary[] = {"HOME", "LANG", "LOGNAME", "PATH", "PWD", "SHELL", "TERM", "TMPDIR", "USER"};
    size_t len = strlen(variable);
    for (size_t i = 0; i < ARRAY_LENGTH(ordinary); i++)
        if (strcmp(variable, ordinary[i]) == 0) return false;
    if (len == 0 || strncmp(variable, "XDG_", 4) == 0 || strncmp(variable, "PENSTOCK_", 9) == 0) return false;
    for (const char *at = command; *(at += strcspn(at, letters));) {
        size_t word = strspn(at, letters);
        if (word == len && strncmp(at, variable, len) == 0) return true;
        at += word;
    }
    return false;
}
