// SPDX-License-Identifier: Apache-2.0
// HOME is a variable: sudo, cron and containers leave it wrong or unset. So it is one source among others, and the
// user database has the last word. /etc/passwd is also read as a file, because to enumerate a directory service may take
// minutes; a user of such a service counts as the caller or as the folder's owner.
#include "sandbox/home.h"

#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "sandbox/place.h"

#define PEOPLE_FIRST 1000 // as in login.defs
#define NOBODY 65534

static char *usable(const char *home) {
    char *real = home && home[0] == '/' ? realpath(home, NULL) : NULL;
    if (!real) return NULL;
    bool of_system = place_in_system(real) && !place_within(real, "/opt");
    if (strcmp(real, "/") != 0 && strcmp(real, "/opt") != 0 && !of_system) return real;
    free(real);
    return NULL;
}

char *home_of_environment(void) {
    const char *home = getenv("HOME");
    if (!home || home[0] != '/') {
        const struct passwd *entry = getpwuid(getuid());
        home = entry ? entry->pw_dir : NULL;
    }
    return usable(home);
}

// name NULL: the caller's own.
static void add(struct home_list *list, const char *home, const char *name) {
    AUTO_FREE char *path = usable(home);
    if (!path || list->count == HOMES_MAX) return;
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->entries[i].path, path) == 0) return;
    if (list->count == list->size) {
        size_t size = list->size ? 2 * list->size : 8;
        struct home *entries = realloc(list->entries, size * sizeof(*entries));
        if (!entries) return;
        list->entries = entries;
        list->size = size;
    }
    struct home *entry = &list->entries[list->count++];
    entry->path = TAKE_POINTER(path);
    if (name)
        snprintf(entry->whose, sizeof(entry->whose), "the home folder of \"%.48s\"", name);
    else
        snprintf(entry->whose, sizeof(entry->whose), "your home folder");
}

static void add_entry(struct home_list *list, const struct passwd *entry) {
    if (entry) add(list, entry->pw_dir, entry->pw_uid == getuid() ? NULL : entry->pw_name);
}

static void add_people(struct home_list *list) {
    FILE *file = fopen("/etc/passwd", "re");
    if (!file) return;
    for (const struct passwd *entry = fgetpwent(file); entry; entry = fgetpwent(file))
        if (entry->pw_uid >= PEOPLE_FIRST && entry->pw_uid != NOBODY) add_entry(list, entry);
    fclose(file);
}

void home_list_init(struct home_list *list, const char *cwd) {
    static const char *const callers[] = {"SUDO_USER", "DOAS_USER"};
    struct stat st;
    *list = (struct home_list){0};
    add(list, getenv("HOME"), NULL);
    add_entry(list, getpwuid(getuid()));
    for (size_t i = 0; i < ARRAY_LENGTH(callers); i++) {
        const char *name = getenv(callers[i]);
        if (name && name[0]) add_entry(list, getpwnam(name));
    }
    if (cwd && stat(cwd, &st) == 0) add_entry(list, getpwuid(st.st_uid));
    add_people(list);
}

void home_list_done(struct home_list *list) {
    for (size_t i = 0; i < list->count; i++) free(list->entries[i].path);
    free(list->entries);
    *list = (struct home_list){0};
}
