// SPDX-License-Identifier: Apache-2.0
// From rows to the text of a native policy. Rows of one host stand together; of each port the broadest protocol that was
// seen is written and the narrower ones left out, because an entry that another one covers can never match.
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "daemon/learn.h"
#include "daemon/learn_state.h"
#include "policy/preset.h"

#define TEXT_RANGES 64 // of one entry; more ports make more entries

// The rows of one host, and which of their ports are written already.
struct host {
    const struct learn_row *rows;
    size_t count;
    struct buf *out;
};

static const char *const protocol_names[] = {
    [LEARN_TCP] = "tcp",     [LEARN_UDP] = "udp",   [LEARN_ICMP] = "icmp",
    [LEARN_HTTPS] = "https", [LEARN_HTTP] = "http", [LEARN_UNANSWERED] = "tcp (no answer)",
    [LEARN_LOOKUP] = "lookup of",
};
_Static_assert(ARRAY_LENGTH(protocol_names) == LEARN_PROTOCOL_COUNT, "a name for each protocol");

const char *learn_protocol_name(enum learn_protocol protocol) { return protocol_names[protocol]; }

static bool same_host(const struct learn_row *a, const struct learn_row *b) {
    return strcmp(a->name, b->name) == 0 && (a->name[0] || addr_equal(&a->address, &b->address));
}

static bool is_named(const struct host *host) { return host->rows[0].name[0] != '\0'; }

// ---- which ports ----

static const struct learn_row *find_row(const struct host *host, enum learn_protocol protocol, uint16_t port) {
    for (size_t i = 0; i < host->count; i++)
        if (host->rows[i].protocol == protocol && host->rows[i].port == port) return &host->rows[i];
    return NULL;
}

// Whether an entry of another protocol opens this row too.
static bool is_covered(const struct host *host, const struct learn_row *row) {
    bool tcp = find_row(host, LEARN_TCP, row->port) != NULL;
    switch (row->protocol) {
    case LEARN_HTTPS:
    case LEARN_HTTP:
        return tcp;
    case LEARN_UNANSWERED:
        return tcp || find_row(host, LEARN_HTTPS, row->port) || find_row(host, LEARN_HTTP, row->port);
    case LEARN_TCP:
    case LEARN_UDP:
    case LEARN_ICMP:
    case LEARN_LOOKUP:
    case LEARN_PROTOCOL_COUNT:
        break;
    }
    return false;
}

// As what a row is written. Where nobody answered, the port says what was meant; any other than the usual two may be for
// anything (ssh, a database), which an entry of HTTPS would not open.
static enum learn_protocol written_as(const struct learn_row *row) {
    if (row->protocol != LEARN_UNANSWERED) return row->protocol;
    return row->port == 80 ? LEARN_HTTP : row->port == 443 ? LEARN_HTTPS : LEARN_TCP;
}

// Ports of one protocol, sorted, and how often they were used.
struct ports {
    uint16_t list[LEARN_ROWS_MAX];
    size_t count;
    uint64_t times;
    bool private_ok;
};

static void add_port(struct ports *ports, const struct learn_row *row) {
    size_t at = ports->count;
    ports->times += row->count;
    ports->private_ok |= row->private_ok;
    while (at > 0 && ports->list[at - 1] > row->port) at--;
    if (at > 0 && ports->list[at - 1] == row->port) return;
    memmove(&ports->list[at + 1], &ports->list[at], (ports->count - at) * sizeof(row->port));
    ports->list[at] = row->port;
    ports->count++;
}

static void collect_ports(const struct host *host, enum learn_protocol protocol, struct ports *ports) {
    *ports = (struct ports){0};
    for (size_t i = 0; i < host->count; i++)
        if (written_as(&host->rows[i]) == protocol && !is_covered(host, &host->rows[i])) add_port(ports, &host->rows[i]);
}

// ---- one entry ----

// name: where a preset could stand instead, else "".
static void print_comment(struct buf *out, const char *what, uint64_t times, const char *name) {
    const struct policy_preset *preset = name[0] ? policy_preset_of(name) : NULL;
    buf_printf(out, "  # %s, %llu time%s", what, (unsigned long long)times, times == 1 ? "" : "s");
    if (preset) buf_printf(out, "; part of the preset @%s", preset->name);
    buf_printf(out, "\n");
}

static void print_destination(const struct host *host) {
    char text[ADDR_TEXT_SIZE];
    // Quoted, so that no name (such as "true") is anything but text to YAML.
    if (is_named(host)) buf_printf(host->out, "  - host: \"%s\"\n", host->rows[0].name);
    else buf_printf(host->out, "  - cidr: \"%s\"\n", addr_format(&host->rows[0].address, text));
}

// Writes at most TEXT_RANGES ranges from ports->list[first] on; returns where it stopped.
static size_t print_ports(struct buf *out, const struct ports *ports, size_t first) {
    size_t at = first;
    buf_printf(out, "    ports: [");
    for (size_t ranges = 0; at < ports->count && ranges < TEXT_RANGES; ranges++) {
        size_t last = at;
        while (last + 1 < ports->count && ports->list[last + 1] == ports->list[last] + 1) last++;
        if (ranges) buf_printf(out, ", ");
        if (last == at) buf_printf(out, "%u", ports->list[at]);
        else buf_printf(out, "\"%u-%u\"", ports->list[at], ports->list[last]);
        at = last + 1;
    }
    buf_printf(out, "]\n");
    return at;
}

static bool is_default(enum learn_protocol protocol, const struct ports *ports) {
    uint16_t port = protocol == LEARN_HTTPS ? 443 : protocol == LEARN_HTTP ? 80 : 0;
    return ports->count == 1 && ports->list[0] == port;
}

// One protocol of one host. word: what the policy calls it, NULL where that is the default.
static void print_entry(const struct host *host, enum learn_protocol protocol, const char *word, const char *comment,
                        const struct ports *ports) {
    size_t at = 0;
    bool preset = protocol == LEARN_HTTPS && is_default(protocol, ports); // HTTPS on 443 is all that one opens
    while (at < ports->count) {
        if (at == 0) print_comment(host->out, comment, ports->times, preset ? host->rows[0].name : "");
        print_destination(host);
        if (word) buf_printf(host->out, "    protocol: %s\n", word);
        at = is_default(protocol, ports) ? 1 : print_ports(host->out, ports, at);
        if (ports->private_ok) buf_printf(host->out, "    private: true\n");
    }
}

// ---- one host ----

static void print_name_entries(const struct host *host, struct ports *ports) {
    static const struct {
        enum learn_protocol protocol;
        const char *word;
    } order[] = {{LEARN_HTTPS, NULL}, {LEARN_HTTP, "http"}, {LEARN_TCP, "tcp"}};
    size_t written = 0;
    for (size_t i = 0; i < ARRAY_LENGTH(order); i++) {
        collect_ports(host, order[i].protocol, ports);
        print_entry(host, order[i].protocol, order[i].word, protocol_names[order[i].protocol], ports);
        written += ports->count;
    }
    if (written) return;
    *ports = (struct ports){.list = {443}, .count = 1, .times = host->rows[0].count};
    print_entry(host, LEARN_HTTPS, NULL, "only looked up", ports);
}

// Whether policy input takes the name: the DNS has more names than hosts can have (such as "_dmarc.example.com").
static bool is_host_name(const char *name) {
    struct name_host host;
    return name_from_policy(name, strlen(name), &host, NULL) == 0 && !host.is_address && strcmp(host.name, name) == 0;
}

static void print_named(const struct host *host, struct ports *ports) {
    const char *name = host->rows[0].name;
    if (is_host_name(name)) {
        print_name_entries(host, ports);
        return;
    }
    const char *dot = strchr(name, '.');
    buf_printf(host->out, "  # \"%s\" was used, but is no host name and so no entry", name);
    if (dot && is_host_name(dot + 1)) buf_printf(host->out, "; \"*.%s\" would cover it", dot + 1);
    buf_printf(host->out, "\n");
}

static bool same_ports(const struct ports *a, const struct ports *b) {
    return a->count == b->count && memcmp(a->list, b->list, a->count * sizeof(a->list[0])) == 0;
}

static void print_address(const struct host *host, struct ports *ports, struct ports *others) {
    collect_ports(host, LEARN_TCP, ports);
    collect_ports(host, LEARN_UDP, others);
    // `private` is for hosts: a range opens what it says, private or not.
    ports->private_ok = others->private_ok = false;
    if (ports->count && same_ports(ports, others)) {
        ports->times += others->times;
        print_entry(host, LEARN_TCP, NULL, "tcp and udp", ports);
    } else {
        print_entry(host, LEARN_TCP, "tcp", "tcp", ports);
        print_entry(host, LEARN_UDP, "udp", "udp", others);
    }
    const struct learn_row *echo = find_row(host, LEARN_ICMP, 0);
    if (!echo) return;
    print_comment(host->out, "icmp echo", echo->count, "");
    print_destination(host);
    buf_printf(host->out, "    protocol: icmp\n");
}

// ---- the policy ----

static void print_head(const struct learn *learn, struct buf *out) {
    char time[CLOCK_TEXT_SIZE];
    buf_printf(out, "# Written by penstock run --learn, %.10s: what the command reached, and nothing else.\n"
                    "# Read it before you use it: it says what was done, not what ought to be.\n", clock_text(time));
    if (learn->lost) buf_printf(out, "# Incomplete: only %d different destinations are kept.\n", LEARN_ROWS_MAX);
    buf_printf(out, "version: 1\nbase: deny\n");
    if (!learn->model->block_private) buf_printf(out, "block_private: false # as the run had it\n");
    if (learn->model->max_connections != LEARN_CONNECTIONS)
        buf_printf(out, "limits: {connections: %u}\n", learn->model->max_connections);
}

char *learn_text(const struct learn *learn) {
    CLEANUP(buf_done) struct buf out = BUF_INIT;
    AUTO_FREE struct ports *ports = NEW_ARRAY(struct ports, 2);
    if (!ports) return NULL;
    CLEANUP(buf_done) struct buf entries = BUF_INIT;
    for (size_t i = 0; i < learn->row_count;) {
        struct host host = {.rows = &learn->rows[i], .out = &entries};
        while (i < learn->row_count && same_host(&learn->rows[i], host.rows)) {
            host.count++;
            i++;
        }
        if (is_named(&host)) print_named(&host, &ports[0]);
        else print_address(&host, &ports[0], &ports[1]);
    }
    CLEANUP(buf_done) struct buf credentials = BUF_INIT;
    learn_print_credentials(learn, &entries, &credentials);
    print_head(learn, &out);
    bool any = entries.data && strstr(entries.data, "\n  - ");
    buf_printf(&out, "allow:%s\n%s", any ? "" : " []", entries.data ? entries.data : "");
    bool bound = credentials.data && strstr(credentials.data, "  - ");
    if (credentials.len) buf_printf(&out, "%s%s", bound ? "credentials:\n" : "", credentials.data);
    if (entries.failed || credentials.failed) return NULL;
    return buf_take(&out);
}
