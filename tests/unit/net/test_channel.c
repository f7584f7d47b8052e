// SPDX-License-Identifier: Apache-2.0
#include "lab.h"

static _Alignas(max_align_t) char buffer[CHANNEL_BUFFER_SIZE];

static int fd_count(void) {
    int count = 0;
    for (int fd = 0; fd < 1024; fd++) count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static void test_message_with_descriptors(void **state) {
    struct channel_message message;
    int pair[2], pipes[2], before = fd_count();
    (void)state;
    assert_int_equal(channel_pair(pair), 0);
    for (int i = 0; i < 2; i++) {
        assert_true(fcntl(pair[i], F_GETFD) & FD_CLOEXEC);
        assert_true(fcntl(pair[i], F_GETFL) & O_NONBLOCK);
    }
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(channel_send(pair[0], IPC_KEEPER_NAMESPACES, NULL, 0, pipes, 2), 0);
    assert_int_equal(channel_receive(pair[1], buffer, sizeof(buffer), &message), 1);
    assert_int_equal(message.type, IPC_KEEPER_NAMESPACES);
    assert_int_equal(message.length, 0);
    assert_int_equal(message.fd_count, 2);
    assert_true(fcntl(message.fds[0], F_GETFD) & FD_CLOEXEC);
    assert_int_equal(message.fds[2], -1);
    char byte = 0;
    assert_int_equal(write(message.fds[1], "k", 1), 1);
    assert_int_equal(read(pipes[0], &byte, 1), 1);
    assert_int_equal(byte, 'k');
    channel_message_close(&message);
    assert_int_equal(message.fd_count, 0);
    for (int i = 0; i < 2; i++) close(pair[i]), close(pipes[i]);
    assert_int_equal(fd_count(), before);
}

static void test_body_and_tail(void **state) {
    static uint8_t dns[DNS_ANSWER_MAX];
    struct channel_message message;
    struct ipc_answer answer = {.id = 9, .status = 0, .length = sizeof(dns)};
    int pair[2];
    (void)state;
    assert_int_equal(channel_pair(pair), 0);
    for (size_t i = 0; i < sizeof(dns); i++) dns[i] = (uint8_t)(i * 7);
    assert_int_equal(channel_send_tail(pair[0], IPC_ANSWER, &answer, sizeof(answer), dns, sizeof(dns)), 0);
    assert_int_equal(channel_receive(pair[1], buffer, sizeof(buffer), &message), 1);
    assert_int_equal(message.length, sizeof(answer) + sizeof(dns));
    assert_memory_equal(message.body, &answer, sizeof(answer));
    assert_memory_equal((const char *)message.body + sizeof(answer), dns, sizeof(dns));
    assert_int_equal(channel_receive(pair[1], buffer, sizeof(buffer), &message), -EAGAIN);
    close(pair[0]);
    assert_int_equal(channel_receive(pair[1], buffer, sizeof(buffer), &message), 0);
    assert_int_equal(channel_send(pair[1], IPC_GATE_READY, NULL, 0, NULL, 0), -EPIPE);
    close(pair[1]);
}

// Whatever a hostile peer writes: refused, and its descriptors are closed.
static void test_bad_messages(void **state) {
    struct channel_message message;
    struct ipc_mapping mapping = {.index = 1, .name = "a.example"};
    struct ipc_header header = {.type = IPC_GATE_READY, .length = 4};
    int pair[2], zero = open("/dev/zero", O_RDONLY), before;
    (void)state;
    assert_int_equal(channel_pair(pair), 0);
    before = fd_count();
    // descriptors where none belong
    assert_int_equal(channel_send(pair[0], IPC_MAPPING, &mapping, sizeof(mapping), &zero, 1), 0);
    assert_int_equal(channel_receive(pair[1], buffer, sizeof(buffer), &message), -EBADMSG);
    // a short body
    assert_int_equal(channel_send(pair[0], IPC_MAPPING, &mapping, sizeof(mapping) - 1, NULL, 0), 0);
    assert_int_equal(channel_receive(pair[1], buffer, sizeof(buffer), &message), -EBADMSG);
    // the header promises more than there is
    assert_int_equal(send(pair[0], &header, sizeof(header), 0), sizeof(header));
    assert_int_equal(channel_receive(pair[1], buffer, sizeof(buffer), &message), -EBADMSG);
    // not even a header
    assert_int_equal(send(pair[0], "x", 1, 0), 1);
    assert_int_equal(channel_receive(pair[1], buffer, sizeof(buffer), &message), -EBADMSG);
    // more than the buffer takes
    assert_int_equal(channel_send(pair[0], IPC_MAPPING, &mapping, sizeof(mapping), NULL, 0), 0);
    assert_int_equal(channel_receive(pair[1], buffer, 64, &message), -EBADMSG);
    // too many descriptors to send
    int many[IPC_FDS_MAX + 1] = {0};
    assert_int_equal(channel_send(pair[0], IPC_MAPPING, &mapping, sizeof(mapping), many, IPC_FDS_MAX + 1), -EINVAL);
    // more descriptors than the control buffer takes: sent by hand
    union {
        char bytes[CMSG_SPACE(sizeof(int) * 20)];
        struct cmsghdr align;
    } control = {0};
    struct iovec part = {&header, sizeof(header)};
    struct msghdr raw = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)};
    control.align = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int) * 20)};
    for (size_t i = 0; i < 20; i++) memcpy(CMSG_DATA(&control.align) + i * sizeof(int), &zero, sizeof(int));
    assert_int_equal(sendmsg(pair[0], &raw, 0), sizeof(header));
    assert_int_equal(channel_receive(pair[1], buffer, sizeof(buffer), &message), -EBADMSG);
    assert_int_equal(fd_count(), before);
    close(zero);
    for (int i = 0; i < 2; i++) close(pair[i]);
}

static void test_slow_peer_and_wait(void **state) {
    struct channel_message message;
    struct ipc_mapping mapping = {.index = 1, .name = "a.example"};
    int pair[2], sent = 0, result;
    (void)state;
    assert_int_equal(channel_pair(pair), 0);
    uint64_t start = clock_us();
    assert_int_equal(channel_wait(pair[1], 50, buffer, sizeof(buffer), &message), -ETIMEDOUT);
    assert_in_range(clock_us() - start, 49000, 2000000);
    while ((result = channel_send(pair[0], IPC_MAPPING, &mapping, sizeof(mapping), NULL, 0)) == 0 && sent < 100000) sent++;
    assert_int_equal(result, -EAGAIN);
    for (int i = 0; i < sent; i++) assert_int_equal(channel_wait(pair[1], 0, buffer, sizeof(buffer), &message), 1);
    pid_t pid = fork();
    if (pid == 0) {
        usleep(50000);
        _exit(channel_send(pair[0], IPC_GATE_READY, NULL, 0, NULL, 0) == 0 ? 0 : 1);
    }
    assert_int_equal(channel_wait(pair[1], 5000, buffer, sizeof(buffer), &message), 1);
    assert_int_equal(message.type, IPC_GATE_READY);
    assert_int_equal(lab_reap(pid), 0);
    close(pair[0]);
    assert_int_equal(channel_wait(pair[1], 5000, buffer, sizeof(buffer), &message), 0);
    close(pair[1]);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_message_with_descriptors),
        cmocka_unit_test(test_body_and_tail),
        cmocka_unit_test(test_bad_messages),
        cmocka_unit_test(test_slow_peer_and_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
