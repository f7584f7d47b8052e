// SPDX-License-Identifier: Apache-2.0
// /etc/passwd and /etc/group are whatever the image made of them: read with a bound, and only numbers that are mapped count.
#include "sandbox/container_user.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/number.h"
#include "sandbox/inside.h"

#define LIST_MAX (1 << 20)

struct field {
    const char *at;
    size_t len;
};

// Splits the next line at colons; missing fields are empty. False at the end.
static bool next_line(const char **at, struct field *fields, size_t count) {
    if (!*at || !**at) return false;
    const char *line = *at, *end = line + strcspn(line, "\n");
    for (size_t i = 0; i < count; i++) {
        const char *stop = i + 1 < count ? memchr(line, ':', (size_t)(end - line)) : NULL;
        if (!stop) stop = end;
        fields[i] = (struct field){.at = line, .len = (size_t)(stop - line)};
        line = stop < end ? stop + 1 : end;
    }
    *at = *end ? end + 1 : end;
    return true;
}

static bool is_text(const struct field *field, const struct field *text) {
    return field->len == text->len && memcmp(field->at, text->at, text->len) == 0;
}

static bool as_number(const struct field *field, uint32_t *ret_number) {
    uint64_t number;
    if (number_parse(field->at, field->len, 0, CONTAINER_USERS - 1, &number) < 0) return false;
    *ret_number = (uint32_t)number;
    return true;
}

// The name is given back in *name, for the groups: "" if there is none.
static bool find_user(const struct buf *list, struct field *name, struct container_user *user) {
    struct field fields[7];
    uint32_t wanted, number, gid;
    bool numeric = as_number(name, &wanted);
    if (numeric) user->uid = wanted;
    for (const char *at = list->data; next_line(&at, fields, ARRAY_LENGTH(fields));) {
        if (!as_number(&fields[2], &number) || !as_number(&fields[3], &gid)) continue;
        if (numeric ? number != wanted : !is_text(&fields[0], name)) continue;
        user->uid = number;
        user->gid = gid;
        if (fields[5].len > 0 && fields[5].len < sizeof(user->home) && fields[5].at[0] == '/')
            snprintf(user->home, sizeof(user->home), "%.*s", (int)fields[5].len, fields[5].at);
        *name = fields[0];
        return true;
    }
    if (numeric) name->len = 0;
    return numeric;
}

static bool find_group(const struct buf *list, const struct field *name, struct container_user *user) {
    struct field fields[4];
    if (as_number(name, &user->gid)) return true;
    for (const char *at = list->data; next_line(&at, fields, ARRAY_LENGTH(fields));)
        if (is_text(&fields[0], name) && as_number(&fields[2], &user->gid)) return true;
    return false;
}

static bool is_member(const struct field *members, const struct field *name) {
    for (const char *at = members->at, *end = at + members->len; at < end;) {
        const char *stop = memchr(at, ',', (size_t)(end - at));
        if (!stop) stop = end;
        if (is_text(&(struct field){.at = at, .len = (size_t)(stop - at)}, name)) return true;
        at = stop + 1;
    }
    return false;
}

static void find_groups(const struct buf *list, const struct field *name, struct container_user *user) {
    struct field fields[4];
    uint32_t gid;
    for (const char *at = list->data; next_line(&at, fields, ARRAY_LENGTH(fields)) && user->group_count < CONTAINER_GROUPS;)
        if (is_member(&fields[3], name) && as_number(&fields[2], &gid) && gid != user->gid)
            user->groups[user->group_count++] = gid;
}

int container_user_find(int root, const char *text, struct container_user *ret_user, struct error *err) {
    struct buf users = BUF_INIT, groups = BUF_INIT;
    struct container_user user = {.home = "/"};
    if (!text[0]) text = "0";
    const char *colon = strchr(text, ':');
    struct field name = {.at = text, .len = colon ? (size_t)(colon - text) : strlen(text)};
    struct field group = {.at = colon ? colon + 1 : "", .len = colon ? strlen(colon + 1) : 0};
    int r = inside_read(root, "/etc/passwd", LIST_MAX, &users);
    if (r < 0) buf_done(&users);
    r = inside_read(root, "/etc/group", LIST_MAX, &groups);
    if (r < 0) buf_done(&groups);
    r = 0;
    if (!find_user(&users, &name, &user))
        r = error_set(err, -EINVAL, "no user \"%.*s\" in the image's /etc/passwd; name one that is there, or a number below %d",
                      (int)name.len, name.at, CONTAINER_USERS);
    else if (group.len > 0 && !find_group(&groups, &group, &user))
        r = error_set(err, -EINVAL, "no group \"%s\" in the image's /etc/group; name one that is there, or a number below %d",
                      group.at, CONTAINER_USERS);
    else if (group.len == 0 && name.len > 0) find_groups(&groups, &name, &user);
    if (r == 0) *ret_user = user;
    buf_done(&users);
    buf_done(&groups);
    return r;
}
