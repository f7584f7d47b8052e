// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
// cmocka needs the above
#include <cmocka.h>

#include "daemon/decision_log.h"

#define BOUND 4000 // bytes

// The ports of the lines of a file, which have to be whole and in order. How many there were.
static unsigned read_ports(const char *path, unsigned *first) {
    char line[1024];
    unsigned count = 0, port = 0;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file)) {
        const char *found = strstr(line, "\"port\":");
        assert_int_equal(line[0], '{');
        assert_string_equal(line + strlen(line) - 2, "}\n");
        assert_non_null(found);
        unsigned next = (unsigned)strtoul(found + strlen("\"port\":"), NULL, 10);
        if (count++ == 0) *first = next;
        else assert_int_equal(next, port + 1);
        port = next;
    }
    fclose(file);
    return count;
}

static void test_bound(void **state) {
    (void)state;
    char folder[] = "/tmp/penstock-log-XXXXXX";
    struct stat now, before;
    unsigned first = 0, old_first = 0;
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chdir(folder), 0);
    int fd = open("log", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    struct decision_log *log = decision_log_new(fd, "test");
    assert_int_equal(decision_log_bound(log, "log", BOUND), 0);
    for (uint16_t port = 1; port <= 500; port++) {
        struct ipc_decision record = {.event = IPC_EVENT_DECISION, .port = port, .name = "a.example"};
        assert_int_equal(decision_log_record(log, &record, NULL), 0);
        assert_int_equal(decision_log_flush(log), 0);
        assert_int_equal(fstat(fd, &now), 0);
        assert_true(now.st_size < BOUND + 1024);
    }
    decision_log_free(log);
    unsigned count = read_ports("log", &first), old_count = read_ports("log.1", &old_first);
    assert_int_equal(first + count - 1, 500); // none is missing, and none is in both
    assert_int_equal(old_first + old_count, first);
    assert_int_equal(stat("log", &before), 0);
    assert_true(before.st_ino == now.st_ino); // the descriptor is the new file's
    assert_int_equal(before.st_mode & 0777, 0600);
    close(fd);
    unlink("log");
    unlink("log.1");
    assert_int_equal(rmdir(folder), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bound)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
