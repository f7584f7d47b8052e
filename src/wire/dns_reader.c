// SPDX-License-Identifier: Apache-2.0
// Theory of operation: responses of the resolver process, which had them from the Internet. Only the answer section is
// read. RDATA is re-encoded through a table of layouts, since RDATA of the older types may hold compressed names (RFC
// 3597 4) that mean nothing in another message. SVCB and HTTPS lose what would lead a client round the gate: ECH keys
// and HTTP/3.
#include "wire/dns_cursor.h"
#include "wire/dns_message.h"

enum { FLAG_RESPONSE = 0x8000, FLAG_TRUNCATED = 0x0200, FLAG_AUTHENTIC = 0x0020 };
enum { SVC_MANDATORY = 0, SVC_ALPN = 1, SVC_NO_DEFAULT_ALPN = 2, SVC_ECH = 5 };

enum wire_result dns_reader_init(struct dns_reader *reader, const uint8_t *bytes, size_t len) {
    struct dns_cursor cursor = dns_cursor_at(bytes, 0, len);
    struct dns_reader result = {.bytes = bytes, .len = len};
    uint8_t name[DNS_CURSOR_NAME_MAX];
    result.id = dns_cursor_read16(&cursor);
    uint16_t flags = dns_cursor_read16(&cursor);
    uint16_t questions = dns_cursor_read16(&cursor);
    result.answers_left = dns_cursor_read16(&cursor);
    dns_cursor_read32(&cursor); // authority and additional records are not read
    dns_cursor_name(&cursor, false, name);
    dns_cursor_read32(&cursor); // type and class
    *reader = (struct dns_reader){.bad = true};
    if (cursor.bad || !(flags & FLAG_RESPONSE) || questions != 1 || len > DNS_MESSAGE_MAX) return WIRE_BAD;
    result.rcode = flags & 15;
    result.truncated = flags & FLAG_TRUNCATED;
    result.authenticated = flags & FLAG_AUTHENTIC;
    result.position = cursor.position;
    *reader = result;
    return WIRE_OK;
}

int dns_reader_next(struct dns_reader *reader, struct dns_record *ret_record) {
    if (reader->bad) return -1;
    if (reader->answers_left == 0) return 0;
    struct dns_cursor cursor = dns_cursor_at(reader->bytes, reader->position, reader->len);
    struct dns_record record = {0};
    uint8_t owner[DNS_CURSOR_NAME_MAX];
    dns_cursor_name(&cursor, true, owner);
    record.type = dns_cursor_read16(&cursor);
    record.class = dns_cursor_read16(&cursor);
    record.ttl = dns_cursor_read32(&cursor);
    record.rdata_len = dns_cursor_read16(&cursor);
    record.rdata_offset = cursor.position;
    record.rdata = dns_cursor_take(&cursor, record.rdata_len);
    if (cursor.bad) {
        reader->bad = true;
        return -1;
    }
    dns_cursor_name_text(owner, record.owner);
    reader->position = cursor.position;
    reader->answers_left--;
    *ret_record = record;
    return 1;
}

int dns_reader_name(const struct dns_reader *reader, size_t offset, char ret_name[NAME_SIZE]) {
    struct dns_cursor cursor = dns_cursor_at(reader->bytes, offset, reader->len);
    uint8_t wire[DNS_CURSOR_NAME_MAX];
    char text[NAME_SIZE];
    if (dns_cursor_name(&cursor, true, wire) == 0 || !dns_cursor_name_text(wire, text)) return -1;
    memcpy(ret_name, text, sizeof(text));
    return (int)(cursor.position - offset);
}

// Layouts: a number is that many bytes, n a name, s a character string, + one or more of the previous, * the rest.
static const struct {
    uint16_t type;
    const char *layout;
} layouts[] = {
    {DNS_A, "4"},           {DNS_AAAA, "16"},          {DNS_NS, "n"},
    {DNS_CNAME, "n"},       {DNS_SOA, "nn20"},         {DNS_PTR, "n"},
    {DNS_MX, "2n"},         {DNS_TXT, "s+"},           {DNS_SRV, "6n"},
    {3 /* MD */, "n"},      {4 /* MF */, "n"},         {7 /* MB */, "n"},
    {8 /* MG */, "n"},      {9 /* MR */, "n"},         {13 /* HINFO */, "ss"},
    {14 /* MINFO */, "nn"}, {17 /* RP */, "nn"},       {18 /* AFSDB */, "2n"},
    {21 /* RT */, "2n"},    {24 /* SIG */, "18n*"},    {26 /* PX */, "2nn"},
    {30 /* NXT */, "n*"},   {35 /* NAPTR */, "4sssn"}, {36 /* KX */, "2n"},
    {39 /* DNAME */, "n"},
};

static const char *layout_of(uint16_t type) {
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++)
        if (layouts[i].type == type) return layouts[i].layout;
    return "*";
}

struct output {
    uint8_t *bytes;
    size_t len, size;
    bool bad;
};

static void output_put(struct output *output, const uint8_t *bytes, size_t len) {
    if (!bytes || len > output->size - output->len) output->bad = true;
    if (output->bad) return;
    memcpy(output->bytes + output->len, bytes, len);
    output->len += len;
}

static void output_put16(struct output *output, size_t value) {
    output_put(output, (uint8_t[]){(uint8_t)(value >> 8), (uint8_t)value}, 2);
}

static void copy_name(struct dns_cursor *cursor, bool pointers_allowed, struct output *output) {
    uint8_t name[DNS_CURSOR_NAME_MAX];
    output_put(output, name, dns_cursor_name(cursor, pointers_allowed, name));
}

static void copy_bytes(struct dns_cursor *cursor, size_t len, struct output *output) {
    output_put(output, dns_cursor_take(cursor, len), len);
}

static void copy_string(struct dns_cursor *cursor, struct output *output) {
    uint8_t len = dns_cursor_read8(cursor);
    output_put(output, &len, 1);
    copy_bytes(cursor, len, output);
}

static void copy_layout(struct dns_cursor *cursor, const char *layout, struct output *output) {
    while (*layout && !cursor->bad) {
        if (*layout == 'n') copy_name(cursor, true, output);
        if (*layout == 's') copy_string(cursor, output);
        if (*layout == '*') copy_bytes(cursor, cursor->end - cursor->position, output);
        if (*layout >= '0' && *layout <= '9') {
            size_t len = 0;
            for (; *layout >= '0' && *layout <= '9'; layout++) len = len * 10 + (size_t)(*layout - '0');
            copy_bytes(cursor, len, output);
            continue;
        }
        layout++;
        while (*layout == '+' && cursor->position < cursor->end && !cursor->bad) copy_string(cursor, output);
        if (*layout == '+') layout++;
    }
}

// What was left out of one SVCB record, and what then follows for the whole of it.
struct svc_filter {
    bool dropped_alpn, dropped_ech, no_default_alpn;
    bool mandatory_alpn, mandatory_ech;
};

static bool is_http3(const uint8_t *id, size_t len) {
    return len >= 2 && memcmp(id, "h3", 2) == 0 && (len == 2 || id[2] == '-');
}

// RFC 9460 7.1.1: a list of protocol ids; those of HTTP/3 are left out, and the parameter with the last of them.
static void copy_alpn(struct dns_cursor *value, struct output *output, struct svc_filter *filter) {
    struct output start = *output;
    output_put16(output, SVC_ALPN);
    output_put16(output, 0);
    if (value->position == value->end) value->bad = true;
    while (value->position < value->end && !value->bad) {
        uint8_t len = dns_cursor_read8(value);
        const uint8_t *id = dns_cursor_take(value, len);
        if (len == 0 || !id) value->bad = true;
        if (value->bad || is_http3(id, len)) continue;
        output_put(output, &len, 1);
        output_put(output, id, len);
    }
    if (value->bad || output->bad) return;
    size_t len = output->len - start.len - 4;
    filter->dropped_alpn = len == 0;
    if (filter->dropped_alpn) {
        output->len = start.len;
        return;
    }
    output->bytes[start.len + 2] = (uint8_t)(len >> 8);
    output->bytes[start.len + 3] = (uint8_t)len;
}

// RFC 9460 8: keys in strictly increasing order, without itself.
static void read_mandatory(struct dns_cursor value, struct dns_cursor *cursor, struct svc_filter *filter) {
    uint16_t last = SVC_MANDATORY;
    if (value.position == value.end) value.bad = true;
    while (value.position < value.end && !value.bad) {
        uint16_t key = dns_cursor_read16(&value);
        if (key <= last) value.bad = true;
        last = key;
        if (key == SVC_ALPN) filter->mandatory_alpn = true;
        if (key == SVC_ECH) filter->mandatory_ech = true;
    }
    if (value.bad) cursor->bad = true;
}

static void copy_svc_parameter(struct dns_cursor *cursor, uint16_t key, struct output *output,
                               struct svc_filter *filter) {
    size_t len = dns_cursor_read16(cursor);
    struct dns_cursor value = dns_cursor_at(cursor->bytes, cursor->position, cursor->position + len);
    const uint8_t *bytes = dns_cursor_take(cursor, len);
    if (!bytes) return;
    if (key == SVC_MANDATORY) read_mandatory(value, cursor, filter);
    if (key == SVC_NO_DEFAULT_ALPN) filter->no_default_alpn = true;
    if (key == SVC_ECH) {
        filter->dropped_ech = true;
        return;
    }
    if (key == SVC_ALPN) {
        copy_alpn(&value, output, filter);
        if (value.bad) cursor->bad = true;
        return;
    }
    output_put16(output, key);
    output_put16(output, len);
    output_put(output, bytes, len);
}

// RFC 9460 2.2: priority, target, parameters in strictly increasing order of keys. False: the record must go, since
// what was dropped is mandatory, or no protocol is left.
static bool copy_svcb(struct dns_cursor *cursor, struct output *output) {
    struct svc_filter filter = {0};
    copy_bytes(cursor, 2, output);
    copy_name(cursor, true, output);
    int last = -1;
    while (cursor->position < cursor->end && !cursor->bad) {
        uint16_t key = dns_cursor_read16(cursor);
        if (key <= last) cursor->bad = true;
        last = key;
        copy_svc_parameter(cursor, key, output, &filter);
    }
    if (filter.dropped_alpn && (filter.mandatory_alpn || filter.no_default_alpn)) return false;
    return !(filter.dropped_ech && filter.mandatory_ech);
}

int dns_reader_rdata(const struct dns_reader *reader, const struct dns_record *record, uint8_t *ret_rdata,
                     size_t size) {
    struct dns_cursor cursor =
        dns_cursor_at(reader->bytes, record->rdata_offset, record->rdata_offset + record->rdata_len);
    struct output output = {.bytes = ret_rdata, .size = size < UINT16_MAX ? size : UINT16_MAX};
    bool keep = true;
    if (record->type == DNS_SVCB || record->type == DNS_HTTPS)
        keep = copy_svcb(&cursor, &output);
    else
        copy_layout(&cursor, layout_of(record->type), &output);
    if (cursor.bad || output.bad || cursor.position != cursor.end) return -1;
    return keep ? (int)output.len : 0;
}
