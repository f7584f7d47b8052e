// SPDX-License-Identifier: Apache-2.0
#include "daemon/nameserver.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/name.h"
#include "base/number.h"
#include "net/net.h"

static int nameserver_bad(const char *text, struct error *err) {
    return error_set(err, -EINVAL, "DNS server \"%s\": expected an address, ADDR:PORT or [ADDR6]:PORT; write for example "
                                   "192.0.2.53 or [2001:db8::53]:53", text);
}

int nameserver_parse(const char *text, struct ipc_resolver_server *ret_server, struct error *err) {
    struct addr address;
    uint16_t port = 0;
    size_t len = strlen(text);
    if (addr_parse(text, len, &address) < 0) {
        struct name_host host;
        if (name_authority_from_wire(text, len, &host, &port) < 0 || !host.is_address) return nameserver_bad(text, err);
        address = host.address;
        if (port == 0 && text[len - 1] != ']') return nameserver_bad(text, err);
    }
    *ret_server = (struct ipc_resolver_server){.address = address, .port = port ? port : 53};
    return 0;
}

static void nameserver_resolv_conf(struct ipc_resolver_start *start) {
    FILE *file = fopen("/etc/resolv.conf", "re");
    char line[512];
    if (!file) return;
    while (start->count < IPC_SERVERS_MAX && fgets(line, sizeof(line), file)) {
        char word[16], text[256];
        struct addr address;
        if (sscanf(line, " %15s %255s", word, text) != 2 || strcmp(word, "nameserver") != 0) continue;
        if (addr_parse(text, strcspn(text, "%"), &address) < 0) continue;
        start->servers[start->count++] = (struct ipc_resolver_server){.address = address, .port = 53};
    }
    fclose(file);
}

int nameserver_collect(const char *const *texts, size_t count, struct ipc_resolver_start *ret_start, struct error *err) {
    struct ipc_resolver_start start = {0};
    if (count > IPC_SERVERS_MAX) {
        return error_set(err, -EINVAL, "%zu DNS servers: at most %d can be used; leave some out", count, IPC_SERVERS_MAX);
    }
    for (size_t i = 0; i < count; i++) {
        int rc = nameserver_parse(texts[i], &start.servers[start.count], err);
        if (rc < 0) return rc;
        if (!host_has_route(&start.servers[start.count++].address)) {
            return error_set(err, -EHOSTUNREACH, "DNS server \"%s\": the host has no route to it; give a server that "
                                                 "this machine can reach", texts[i]);
        }
    }
    if (count == 0) nameserver_resolv_conf(&start);
    *ret_start = start;
    return 0;
}
