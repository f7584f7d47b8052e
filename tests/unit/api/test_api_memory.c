// SPDX-License-Identifier: Apache-2.0
// Each allocation of a request fails once: what is answered is an answer or nothing, success means that all was taken (a
// policy above all), and no call stays open. The linker leads our allocations, and those of libraries that are copied into
// the program, to the functions below.
#include "api_rig.h"

#include <sys/socket.h>
#include <unistd.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);

static long left = -1; // allocations until one fails; -1: none will

static bool fails(void) { return left >= 0 && left-- == 0; }
void *__wrap_malloc(size_t size) { return fails() ? NULL : __real_malloc(size); }
void *__wrap_calloc(size_t count, size_t size) { return fails() ? NULL : __real_calloc(count, size); }
void *__wrap_realloc(void *memory, size_t size) { return fails() ? NULL : __real_realloc(memory, size); }

#define LISTS "\"allowOut\":[\"*.a.org\",\"1.1.1.1\"],\"denyOut\":[\"0.0.0.0/0\"]"

static const struct row {
    const char *method, *path, *body;
    const char *log; // what the backend is asked where the answer is success; NULL: nothing to look at
} rows[] = {
    {"POST", "/sandboxes-cold",
     "{\"image\":\"a\",\"metadata\":{\"k\":\"v\"},\"allowInternetAccess\":false,\"network\":{" LISTS "}}",
     "metadata={\"k\":\"v\"} env=- public=1 mask=- policy={\"network\":{" LISTS "},\"allow_internet_access\":false}"},
    {"POST", "/v2/sandboxes", "{\"templateID\":\"base\",\"network\":{\"allowPublicTraffic\":false}}", "secure=1"},
    {"PUT", "/sandboxes/i1/network", "{\"allow_internet_access\":false," LISTS "}",
     "policy={\"network\":{" LISTS "},\"allow_internet_access\":false}"},
    {"POST", "/sandboxes/i1/exec", "{\"cmd\":[\"a\",\"b\"],\"env\":{\"A\":\"1\"}}", "exec i1 [a] [b] {A=1}"},
    {"GET", "/sandboxes/i1", NULL, NULL},
    {"GET", "/v2/sandboxes?metadata=k%3Dv&limit=1", NULL, NULL},
    {"GET", "/templates/base", NULL, NULL},
    {"GET", "/sandboxes/i1/decisions", NULL, NULL},
};

// One request whose nth allocation fails. False: it has not so many.
static bool ask(struct rig *rig, const struct row *row, long n) {
    char text[1024], answer[65536] = "";
    const char *body = row->body ? row->body : "";
    int len = snprintf(text, sizeof(text), "%s %s HTTP/1.1\r\nHost: x\r\nX-API-Key: " RIG_KEY "\r\nContent-Length: %zu\r\n\r\n%s",
                       row->method, row->path, strlen(body), body);
    int fd = rig_connect(rig);
    rig_turn(rig, 1);
    assert_int_equal(send(fd, text, (size_t)len, 0), len);
    buf_done(&rig->log);
    left = n;
    for (int i = 0; i < 4; i++) event_base_loop(rig->base, EVLOOP_NONBLOCK);
    bool failed = left < 0;
    left = -1;
    for (int i = 0; i < 4; i++) event_base_loop(rig->base, EVLOOP_NONBLOCK);
    ssize_t got = recv(fd, answer, sizeof(answer) - 1, MSG_DONTWAIT);
    if (got > 0 && strncmp(answer, "HTTP/1.1 ", 9) != 0) fail_msg("%s %ld: %s", row->path, n, answer);
    if (!failed) assert_int_equal(answer[9], '2');
    if (answer[0] && answer[9] == '2' && row->log && !rig->log.failed && !strstr(rig->log.data, row->log))
        fail_msg("%s %ld: %s", row->path, n, rig->log.data);
    close(fd);
    rig_turn(rig, 2);
    assert_int_equal(api_counts(rig->api).calls, 0);
    return failed;
}

static void test_each(void **state) {
    (void)state;
    struct rig rig;
    rig_init(&rig, NULL);
    rig_add(&rig, "i1", STORE_RUNNING);
    rig_add_template(&rig, "tbase", "base", STORE_TEMPLATE, "[\"one\"]");
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        long n = 0;
        ask(&rig, &rows[i], 1000000); // what is made once is there
        while (ask(&rig, &rows[i], n)) n++;
        assert_in_range(n, 10, 5000);
    }
    rig_done(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_each)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
