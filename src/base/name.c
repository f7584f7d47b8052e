// SPDX-License-Identifier: Apache-2.0
// Host names in one canonical form. Two doors: the wire (whatever a sandbox sends; no message, it is refused as it is)
// and policy input (typed by a person; IDNA, stricter, and a message that says what to write). Both end in the same
// scan over ASCII labels, so that a policy name and a wire name that mean the same host are equal byte by byte.
#include "base/name.h"

#include <errno.h>
#include <idn2.h>
#include <libpsl.h>

#include "base/library.h"
#include "base/number.h"

#define LABEL_MAX 63

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static char to_lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c; }

static bool is_name_byte(char c) { return (c >= 'a' && c <= 'z') || is_digit(c) || c == '-' || c == '_'; }

// Lower-cases into out; checks bytes, label lengths and the total.
static int canonical_labels(const char *text, size_t len, char out[NAME_SIZE]) {
    if (len == 0 || len >= NAME_SIZE) return -EINVAL;
    size_t label = 0;
    for (size_t i = 0; i < len; i++) {
        char c = to_lower(text[i]);
        if (c == '.') {
            if (label == 0) return -EINVAL;
            label = 0;
        } else if (!is_name_byte(c) || ++label > LABEL_MAX) {
            return -EINVAL;
        }
        out[i] = c;
    }
    out[len] = '\0';
    return label == 0 ? -EINVAL : 0;
}

// A last label of digits only, or that starts with 0x, is what resolvers take for a number of an address.
static bool is_numeric(const char *name) {
    const char *last = strrchr(name, '.');
    last = last ? last + 1 : name;
    if (last[0] == '0' && last[1] == 'x') return true;
    return last[strspn(last, "0123456789")] == '\0';
}

// IPv6 with or without brackets. 1 found, 0 not of this form, -EINVAL bad.
static int host_ipv6(const char *text, size_t len, struct name_host *host) {
    bool bracket = len > 0 && text[0] == '[';
    if (bracket) {
        if (len < 2 || text[len - 1] != ']') return -EINVAL;
        text++;
        len -= 2;
    }
    if (!bracket && !memchr(text, ':', len)) return 0;
    if (!memchr(text, ':', len) || addr_parse(text, len, &host->address) != 0) return -EINVAL;
    host->is_address = true;
    return 1;
}

// Everything but IDNA and the rules for policy input.
static int host_ascii(const char *text, size_t len, struct name_host *ret_host) {
    struct name_host host = {0};
    int r = host_ipv6(text, len, &host);
    if (r == 0) {
        r = canonical_labels(text, len, host.name);
        if (r == 0 && is_numeric(host.name)) {
            r = addr_parse(host.name, len, &host.address);
            host.is_address = true;
            host.name[0] = '\0';
        }
    }
    if (r < 0) return -EINVAL;
    *ret_host = host;
    return 0;
}

int name_from_wire(const void *bytes, size_t len, struct name_host *ret_host) {
    const char *text = bytes;
    if (len > 1 && text[len - 1] == '.' && !memchr(text, ':', len)) len--; // not of an IPv6 address
    return host_ascii(text, len, ret_host);
}

int name_authority_from_wire(const void *bytes, size_t len, struct name_host *ret_host, uint16_t *ret_port) {
    const char *text = bytes;
    uint64_t port = 0;
    size_t host_len = len;
    const char *colon = memrchr(text, ':', len);
    if (colon && len > 0 && text[len - 1] != ']') { // not the colon inside "[ADDR6]"
        host_len = (size_t)(colon - text);
        if (memchr(text, ':', host_len) && text[0] != '[') return -EINVAL; // an IPv6 address needs brackets here
        if (number_parse(colon + 1, len - host_len - 1, 1, UINT16_MAX, &port) != 0) return -EINVAL;
    }
    int r = name_from_wire(text, host_len, ret_host);
    if (r == 0) *ret_port = (uint16_t)port;
    return r;
}

// What is wrong with a policy name, by a byte that gives the mistake away; first match wins.
static const struct {
    const char *bytes;
    const char *fix;
} name_mistakes[] = {
    {"/", "has a path; write the host name alone"},
    {"?#", "has a query; write the host name alone"},
    {"@", "has user information; write the host name alone"},
    {"*", "has a '*' that is not the whole first label; write *.example.com or an exact name"},
    {" \t\r\n", "has a blank; write one host name per entry"},
    {"_", "has an '_', which no host name has; write letters, digits and '-'"},
    {"%", "has a zone or an escape; write the host name alone"},
    {":", "has a ':' in the wrong place; write HOST, HOST:PORT, or an IPv6 address ([ADDRESS]:PORT with a port)"},
};

static int policy_mistake(const char *text, size_t len, struct error *err) {
    int shown = len > 300 ? 300 : (int)len;
    const char *scheme = memmem(text, len, "://", 3);
    if (scheme) {
        const char *host = scheme + 3;
        int host_len = (int)strcspn(host, "/?#");
        return error_set(err, -EINVAL, "\"%.*s\" is a URL, a host name is expected; write %.*s", shown, text,
                         host_len > 300 ? 300 : host_len, host_len ? host : "HOST");
    }
    if (len == 0) return error_set(err, -EINVAL, "\"\" is empty; write a host name such as api.example.com");
    for (size_t i = 0; i < sizeof(name_mistakes) / sizeof(name_mistakes[0]); i++) {
        if (strcspn(text, name_mistakes[i].bytes) < len)
            return error_set(err, -EINVAL, "host \"%.*s\" %s", shown, text, name_mistakes[i].fix);
    }
    if (text[len - 1] == '.')
        return error_set(err, -EINVAL, "host \"%.*s\" ends in a dot; write %.*s", shown, text, shown - 1, text);
    return error_set(err, -EINVAL,
                     "\"%.*s\" is not a host name; write labels of letters, digits and '-', 1 to 63 bytes each and 253 "
                     "in all, such as api.example.com",
                     shown, text);
}

static bool policy_labels_ok(const char *name) {
    for (const char *label = name; label;) {
        size_t len = strcspn(label, ".");
        if (label[0] == '-' || label[len - 1] == '-' || memchr(label, '_', len)) return false;
        label = label[len] ? label + len + 1 : NULL;
    }
    return true;
}

static bool is_ascii(const char *text) {
    for (; *text; text++) {
        if ((unsigned char)*text >= 0x80) return false;
    }
    return true;
}

// Code points that show nothing (Unicode: Default_Ignorable_Code_Point) and that UTS 46 would silently drop: a name that
// has one is not the name that its reader sees.
static const struct {
    uint32_t first, last;
} name_invisible[] = {
    {0xad, 0xad},       {0x34f, 0x34f},     {0x61c, 0x61c},     {0x115f, 0x1160},   {0x17b4, 0x17b5}, {0x180b, 0x180f},
    {0x200b, 0x200f},   {0x202a, 0x202e},   {0x2060, 0x206f},   {0x3164, 0x3164},   {0xfe00, 0xfe0f}, {0xfeff, 0xfeff},
    {0xffa0, 0xffa0},   {0xfff0, 0xfff8},   {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff},
};

// The first invisible code point of UTF-8 text, 0 if there is none. Malformed bytes are libidn2's to refuse.
static uint32_t find_invisible(const char *text) {
    for (const uint8_t *byte = (const uint8_t *)text; *byte; byte++) {
        unsigned more = *byte >= 0xf0 ? 3 : *byte >= 0xe0 ? 2 : *byte >= 0xc0 ? 1 : 0;
        uint32_t point = more == 3 ? *byte & 7u : more == 2 ? *byte & 15u : more == 1 ? *byte & 31u : 0;
        for (; more > 0 && (byte[1] & 0xc0) == 0x80; more--) point = point << 6 | (*++byte & 63u);
        for (size_t i = 0; i < sizeof(name_invisible) / sizeof(name_invisible[0]); i++)
            if (point >= name_invisible[i].first && point <= name_invisible[i].last) return point;
    }
    return 0;
}

// Two libraries with large tables, for names that most policies do not have.
#define IDN_CALLS(X) X(idn2_lookup_u8) X(idn2_strerror_name) X(idn2_free)
#define IDN_ROW(name) LIBRARY_ROW(struct idn, name)
static struct idn { IDN_CALLS(LIBRARY_MEMBER) } idn;
static const struct library_call idn_calls[] = {IDN_CALLS(IDN_ROW)};

#define PSL_CALLS(X) X(psl_builtin) X(psl_is_public_suffix)
#define PSL_ROW(name) LIBRARY_ROW(struct psl, name)
static struct psl { PSL_CALLS(LIBRARY_MEMBER) } psl;
static const struct library_call psl_calls[] = {PSL_CALLS(PSL_ROW)};

static int idn_lookup(const char *text, int flags, char **ret_ascii, struct error *err) {
    int rc = library_load("libidn2.so.0", idn_calls, sizeof(idn_calls) / sizeof(idn_calls[0]), &idn, err);
    if (rc < 0) return rc;
    rc = idn.idn2_lookup_u8((const uint8_t *)text, (uint8_t **)ret_ascii, flags);
    if (rc == IDN2_OK) return 0;
    return error_set(err, -EINVAL, "\"%s\" is not a valid international name (%s); write the name as it is registered", text,
                     idn.idn2_strerror_name(rc));
}

// IDNA2008 with the mappings of UTS 46 (case, width), without its transitional ones.
static int policy_idna(const char *text, struct name_host *ret_host, struct error *err) {
    char *ascii = NULL;
    uint32_t invisible = find_invisible(text);
    if (invisible)
        return error_set(err, -EINVAL, "\"%s\" has the invisible character U+%04X; write the name without it", text,
                         invisible);
    int rc = idn_lookup(text, IDN2_NFC_INPUT | IDN2_NONTRANSITIONAL, &ascii, err);
    if (rc < 0) return rc;
    struct name_host host;
    int r = host_ascii(ascii, strlen(ascii), &host);
    idn.idn2_free(ascii);
    if (r == 0 && host.is_address)
        return error_set(err, -EINVAL, "\"%s\" is an address in foreign digits; write it in ASCII", text);
    if (r != 0 || !policy_labels_ok(host.name)) return policy_mistake(text, strlen(text), err);
    *ret_host = host;
    return 0;
}

int name_from_policy(const char *text, size_t len, struct name_host *ret_host, struct error *err) {
    char copy[1024];
    if (len >= sizeof(copy))
        return error_set(err, -EINVAL, "\"%.60s...\" is too long for a host name; at most 253 bytes", text);
    if (memchr(text, '\0', len)) return error_set(err, -EINVAL, "\"%s\" has a NUL byte after it; remove it", text);
    memcpy(copy, text, len);
    copy[len] = '\0';
    if (!is_ascii(copy)) {
        if (strpbrk(copy, "/?#@* \t\r\n%:_")) return policy_mistake(copy, len, err);
        return policy_idna(copy, ret_host, err);
    }
    struct name_host host;
    if (host_ascii(copy, len, &host) != 0) {
        if (len > 0 && strspn(copy, "0123456789abcdefABCDEFxX.") == len && (is_digit(copy[0])))
            return error_set(err, -EINVAL,
                             "\"%s\" is a numeric name, not an address; write four decimal numbers, such as 192.0.2.1",
                             copy);
        return policy_mistake(copy, len, err);
    }
    if (!host.is_address && !policy_labels_ok(host.name)) {
        if (strchr(copy, '_')) return policy_mistake(copy, len, err);
        return error_set(err, -EINVAL, "host \"%s\" has a label that starts or ends with '-'; remove it", copy);
    }
    // A label that says it is punycode has to be (RFC 5891 5.4).
    if (strncmp(host.name, "xn--", 4) == 0 || strstr(host.name, ".xn--")) {
        char *checked = NULL;
        int rc = idn_lookup(host.name, IDN2_NONTRANSITIONAL, &checked, err);
        if (rc < 0) return rc;
        idn.idn2_free(checked);
    }
    *ret_host = host;
    return 0;
}

bool name_is_public_suffix(const char *name) {
    size_t count = sizeof(psl_calls) / sizeof(psl_calls[0]);
    const psl_ctx_t *list = library_load("libpsl.so.5", psl_calls, count, &psl, NULL) == 0 ? psl.psl_builtin() : NULL;
    return list && psl.psl_is_public_suffix(list, name);
}
