// SPDX-License-Identifier: Apache-2.0
// The inside of `penstock self-test`: attempts to get out, each made by a child of its own.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#define PROBE_TEXT_SIZE 512
#define PROBE_DETAIL_SIZE 160
#define PROBE_TOKEN "penstock-self-test-reached" // what every server of the test says to whoever reaches it

enum probe_result {
    PROBE_HELD,    // refused
    PROBE_ESCAPED, // it worked
    PROBE_HUNG,    // neither: no refusal came in time
    PROBE_BROKEN,  // the attempt could not be made
    PROBE_RESULT_COUNT,
};

struct probe {
    char *const *targets; // "NAME=VALUE", NULL-terminated: what to aim at
    uint64_t slowest_us;  // the longest that one refusal took
    char detail[PROBE_DETAIL_SIZE];
};

// Where a case runs. The order is that of the table and of the run.
enum probe_place { PROBE_NONE, PROBE_ALL, PROBE_NAMES, PROBE_INTRUDER, PROBE_PLACE_COUNT };

struct probe_case {
    enum probe_place place;
    const char *group, *name;
    enum probe_result (*attempt)(struct probe *probe, const char *argument);
    const char *argument;  // {NAME} stands for a target's value
    const char *forbidden; // file that must not be on the host afterwards, same form; or NULL
    bool may_die;          // the kernel's answer may be a signal
};
extern const struct probe_case probe_cases[];
extern const size_t probe_case_count;

// `penstock @probe PLACE NAME=VALUE...`: makes the attempts of a place; for each, "begin N" and "end N RESULT US DETAIL" on
// standard output. PLACE "neighbour": a service in its own sandbox; "wait": nothing; both say "ready" and stay. "decoy":
// a process on the host that others must not see.
int probe_main(int argc, char **argv);
const char *probe_place_name(enum probe_place place);

// ---- for attempts ----

const char *probe_target(const struct probe *probe, const char *name); // "" if there is none
// Puts targets in. Returns buf.
const char *probe_expand(const struct probe *probe, const char *text, char buf[PROBE_TEXT_SIZE]);
// "ADDRESS PORT" after expansion. The length of the address, 0 if it is none; *ret_rest is what follows.
socklen_t probe_sockaddr(const char *text, struct sockaddr_storage *ret_address, const char **ret_rest);
enum probe_result probe_say(struct probe *probe, enum probe_result result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// For calls that must fail: escaped if value is not negative, with what as the detail.
enum probe_result probe_refused(struct probe *probe, long value, const char *what);
// Counts the time since then as that of one refusal.
void probe_took(struct probe *probe, uint64_t since_us);

// probe_network.c. Argument "ADDRESS PORT" or as said.
enum probe_result network_tcp(struct probe *probe, const char *argument);
enum probe_result network_udp(struct probe *probe, const char *argument);
enum probe_result network_shout(struct probe *probe, const char *argument); // multicast, broadcast: no answer is due
enum probe_result network_ping(struct probe *probe, const char *argument);  // "ADDRESS 0"
enum probe_result network_raw(struct probe *probe, const char *argument);   // which
enum probe_result network_source(struct probe *probe, const char *argument); // "ADDRESS PORT FROM"
enum probe_result network_steal(struct probe *probe, const char *argument);  // bind and listen there
enum probe_result network_nested(struct probe *probe, const char *argument);
enum probe_result network_nested_raw(struct probe *probe, const char *argument);
enum probe_result network_links(struct probe *probe, const char *argument);
enum probe_result network_flood(struct probe *probe, const char *argument);
// Connects, sends bytes, looks for the token (or an answer that starts with `bad`).
enum probe_result network_talk(struct probe *probe, const char *argument, const void *bytes, size_t len, const char *bad);

// probe_dns.c. "ADDRESS PORT KIND NAME"
enum probe_result question_udp(struct probe *probe, const char *argument);
enum probe_result question_tcp(struct probe *probe, const char *argument);
// The address that the server gives for a name: "ADDRESS PORT NAME". 0, or -1.
int question_address(const char *argument, char *ret_text, size_t size);

// probe_claim.c
enum probe_result claim_tls(struct probe *probe, const char *argument);     // "ADDRESS PORT SNI", "-": none
enum probe_result claim_http(struct probe *probe, const char *argument);    // "ADDRESS PORT REQUEST"
enum probe_result claim_rebound(struct probe *probe, const char *argument); // "DNS-ADDRESS PORT NAME"

// probe_host.c: files, processes, secrets, UNIX sockets
enum probe_result host_unix(struct probe *probe, const char *argument); // path, or @abstract
enum probe_result host_read(struct probe *probe, const char *argument);
enum probe_result host_write(struct probe *probe, const char *argument);
enum probe_result host_create(struct probe *probe, const char *argument);
enum probe_result host_devices(struct probe *probe, const char *argument);
enum probe_result host_environ(struct probe *probe, const char *argument);
enum probe_result host_variable(struct probe *probe, const char *argument);
enum probe_result host_process(struct probe *probe, const char *argument); // a word of its command line
enum probe_result host_kill(struct probe *probe, const char *argument);
enum probe_result host_trace(struct probe *probe, const char *argument);
enum probe_result host_namespaces(struct probe *probe, const char *argument);
enum probe_result host_parent(struct probe *probe, const char *argument);
enum probe_result host_roots(struct probe *probe, const char *argument);
enum probe_result host_descriptors(struct probe *probe, const char *argument);
enum probe_result host_memory(struct probe *probe, const char *argument); // a System V key
enum probe_result host_rights(struct probe *probe, const char *argument);

// probe_kernel.c
enum probe_result kernel_family(struct probe *probe, const char *argument); // family number
enum probe_result kernel_uring(struct probe *probe, const char *argument);
enum probe_result kernel_foreign(struct probe *probe, const char *argument); // "i386" or "x32"
enum probe_result kernel_keys(struct probe *probe, const char *argument);
enum probe_result kernel_surface(struct probe *probe, const char *argument); // name of a call
enum probe_result kernel_terminal(struct probe *probe, const char *argument);

// probe_intruder.c: with every capability over the sandbox's network
int intruder_enter(const struct probe *probe); // 0, or a negative errno
enum probe_result intruder_routes(struct probe *probe, const char *argument); // routes of its own, then network_tcp
enum probe_result intruder_link(struct probe *probe, const char *argument);   // a link to the host's namespace
enum probe_result intruder_return(struct probe *probe, const char *argument); // into the host's namespace through /proc
