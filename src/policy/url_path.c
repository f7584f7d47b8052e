// SPDX-License-Identifier: Apache-2.0
// A path decides which repository a credential is for, and the server that gets it may normalise it in another way than
// we do: decode twice, take "\" or an encoded "/" for a separator, join empty segments before or after taking out dots,
// drop parameters, fold compatibility characters. So nothing is normalised into a match. The prefix must stand there
// literally (decoded once), and what follows must stay below it in each of those readings: bytes that could become
// "/", ".", "%", "?" or "#" on a further pass are refused, and ".." is counted as if no empty segment were there, which
// is the reading that climbs highest.
#include "policy/url_path.h"

#include <stdint.h>
#include <string.h>

#include "base/mem.h"

// Blocks with characters that compatibility folding or a best fit turns into ASCII punctuation, and invisible ones.
static const struct {
    uint32_t first, last;
} url_path_folding[] = {
    {0x80, 0xbf},     {0x37e, 0x37e},   {0x2000, 0x206f}, {0x2100, 0x218f},   {0x2200, 0x22ff},   {0x2460, 0x24ff},
    {0x29f0, 0x29ff}, {0x3000, 0x303f}, {0xd800, 0xf8ff}, {0xfe10, 0xfe1f},   {0xfe30, 0xfe6f},   {0xfeff, 0xfeff},
    {0xff00, 0xffff}, {0x1f100, 0x1f1ff}, {0xe0000, 0x10ffff},
};

static int hex_digit(unsigned char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// Bytes of a decoded path that nobody reads as anything but a character of a segment. "/" is one if it was sent as such.
static bool byte_ok(unsigned char c) { return c >= 0x20 && c != 0x7f && c != '/' && !strchr("\\%?#;", c); }

// The length of the UTF-8 sequence at text if it is well-formed and of an ordinary character, else 0.
static size_t sequence_length(const unsigned char *text) {
    size_t more = text[0] >= 0xf0 && text[0] < 0xf8 ? 3 : text[0] >= 0xe0 ? 2 : 1;
    if (text[0] < 0xc2 || text[0] >= 0xf8) return 0;
    uint32_t code = text[0] & (0x3fu >> more);
    for (size_t i = 1; i <= more; i++) {
        if ((text[i] & 0xc0) != 0x80) return 0;
        code = code << 6 | (text[i] & 0x3f);
    }
    if ((more == 2 && code < 0x800) || (more == 3 && code < 0x10000) || code > 0x10ffff) return 0;
    for (size_t i = 0; i < ARRAY_LENGTH(url_path_folding); i++)
        if (code >= url_path_folding[i].first && code <= url_path_folding[i].last) return 0;
    return more + 1;
}

static bool sequences_ok(const char *path) {
    for (const unsigned char *at = (const unsigned char *)path; *at;) {
        size_t len = *at < 0x80 ? 1 : sequence_length(at);
        if (len == 0) return false;
        at += len;
    }
    return true;
}

bool url_path_read(const void *target, size_t len, char ret_path[URL_PATH_SIZE]) {
    const unsigned char *bytes = target, *query = len > 0 ? memchr(bytes, '?', len) : NULL;
    if (query) len = (size_t)(query - bytes);
    if (len == 0 || bytes[0] != '/') return false; // "*", or the absolute form
    size_t used = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = bytes[i];
        if (c == '%') {
            int high = i + 2 < len ? hex_digit(bytes[i + 1]) : -1, low = i + 2 < len ? hex_digit(bytes[i + 2]) : -1;
            if (high < 0 || low < 0) return false;
            c = (unsigned char)(high << 4 | low);
            i += 2;
            if (!byte_ok(c)) return false;
        } else if (c != '/' && (!byte_ok(c) || c == ' ' || c >= 0x80)) {
            return false;
        }
        if (used + 1 >= URL_PATH_SIZE) return false;
        ret_path[used++] = (char)c;
    }
    ret_path[used] = '\0';
    return sequences_ok(ret_path);
}

bool url_path_stays(const char *rest) {
    if (*rest != '/') return *rest == '\0';
    size_t depth = 0;
    while (*rest == '/') {
        rest++;
        size_t len = strcspn(rest, "/"), dots = strspn(rest, ". +");
        if (dots >= len && len > 0 && strncmp(rest, ".", len) != 0) {
            // "..." or ".. " is the parent to some.
            if (len != 2 || rest[0] != '.' || rest[1] != '.' || depth == 0) return false;
            depth--;
        } else if (dots < len) {
            depth++;
        }
        rest += len;
    }
    return true;
}

bool url_path_below(const char *path, const char *prefix) {
    size_t len = strlen(prefix);
    return strncmp(path, prefix, len) == 0 && url_path_stays(path + len);
}

bool url_path_repo(const char *path, const char *root, char ret_repo[URL_PATH_REPO_SIZE]) {
    size_t root_len = strlen(root);
    if (root_len > 0) {
        if (path[0] != '/' || strncmp(path + 1, root, root_len) != 0) return false;
        path += root_len + 1;
    }
    if (path[0] != '/') return false;
    const char *owner = path + 1;
    size_t owner_len = strcspn(owner, "/");
    if (owner[owner_len] != '/') return false;
    size_t len = owner_len + 1 + strcspn(owner + owner_len + 1, "/");
    if (len >= URL_PATH_REPO_SIZE || !url_path_stays(owner + len)) return false;
    size_t i = 0;
    for (; i < len; i++) {
        unsigned char c = (unsigned char)owner[i];
        ret_repo[i] = (char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
    }
    if (len - owner_len > 5 && memcmp(ret_repo + len - 4, ".git", 4) == 0) len -= 4;
    ret_repo[len] = '\0';
    return true;
}
