// SPDX-License-Identifier: Apache-2.0
#include "gate/exchange.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct exchange_key key_to(const char *server, uint16_t port) {
    struct exchange_key key = {.port = port, .protocol = POLICY_UDP};
    assert_int_equal(addr_parse(server, strlen(server), &key.server), 0);
    return key;
}

// A UDP server on loopback; its port.
static int server_new(struct sockaddr_storage *name, uint16_t *ret_port) {
    struct addr loopback = addr_ipv4(0x7f000001);
    socklen_t len = addr_to_sockaddr(&loopback, 0, name);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)name, len), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)name, &len), 0);
    assert_int_equal(addr_from_sockaddr((struct sockaddr *)name, &loopback, ret_port), 0);
    return fd;
}

// Loopback is a destination only where the policy has said so, which is judged before.
static void test_connected(void **state) {
    (void)state;
    struct sockaddr_storage name;
    uint16_t port, mtu = 0;
    int server = server_new(&name, &port);
    struct exchange_key key = key_to("127.0.0.1", port);
    int fd = exchange_socket(&key, &mtu);
    assert_true(fd >= 0);
    assert_int_equal(mtu, EXCHANGE_MTU);
    assert_int_equal(send(fd, "x", 1, 0), 1);
    char byte;
    assert_int_equal(recv(server, &byte, 1, 0), 1);
    errno = 0;
    assert_int_equal(recv(fd, &byte, 1, 0), -1);
    assert_int_equal(errno, EAGAIN);
    close(server);
    // The network's errors are queued.
    assert_int_equal(send(fd, "x", 1, 0), 1);
    assert_int_equal(recv(fd, &byte, 1, 0), -1);
    assert_int_equal(errno, ECONNREFUSED);
    struct msghdr message = {0};
    assert_true(recvmsg(fd, &message, MSG_ERRQUEUE) >= 0);
    close(fd);
}

static void test_never_the_host_itself(void **state) {
    (void)state;
    uint16_t mtu;
    // The unspecified address is loopback to connect().
    struct exchange_key key = key_to("0.0.0.0", 9);
    assert_int_equal(exchange_socket(&key, &mtu), -ELOOP);
    struct exchange_key key6 = key_to("::", 9);
    int rc = exchange_socket(&key6, &mtu);
    assert_true(rc == -ELOOP || rc == -EAFNOSUPPORT || rc == -EADDRNOTAVAIL || rc == -ENETUNREACH);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_connected),
        cmocka_unit_test(test_never_the_host_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
