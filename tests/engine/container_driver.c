// SPDX-License-Identifier: Apache-2.0
// The container engine by itself: one JSON object a line in, what to do ("op"), one out: {"ok": true, ...}, or {"error": the
// negative errno, "text": the message}. One container at a time a name.
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "sandbox/sandbox.h"

#define NAMES_MAX 64
#define OUTPUT_MAX (1 << 20)

static struct {
    char id[80];
    struct sandbox_container *container;
} containers[NAMES_MAX];

static struct sandbox_container **slot(const char *id) {
    for (size_t i = 0; i < NAMES_MAX; i++)
        if (containers[i].container && strcmp(containers[i].id, id) == 0) return &containers[i].container;
    for (size_t i = 0; i < NAMES_MAX; i++) {
        if (containers[i].container) continue;
        snprintf(containers[i].id, sizeof(containers[i].id), "%s", id);
        return &containers[i].container;
    }
    exit(2);
}

static const char *text_of(const json_t *in, const char *key) { return json_string_value(json_object_get(in, key)); }

// Strings are the object's.
static char **words_of(const json_t *in, const char *key) {
    const json_t *list = json_object_get(in, key);
    if (!list || json_is_null(list)) return NULL;
    size_t count = json_array_size(list);
    char **words = NEW_ARRAY(char *, count + 1);
    for (size_t i = 0; i < count; i++) words[i] = (char *)(uintptr_t)json_string_value(json_array_get(list, i));
    return words;
}

static json_t *words_json(char *const *words) {
    json_t *list = json_array();
    for (; words && *words; words++) json_array_append_new(list, json_string(*words));
    return list;
}

static int open_output(const json_t *in, const char *key) {
    const char *path = text_of(in, key);
    return path ? open(path, O_RDWR | O_CREAT | O_APPEND | O_NOCTTY | O_CLOEXEC, 0600) : -1;
}

static int do_image(const json_t *in, json_t *out, struct error *err) {
    const char *key;
    json_t *value, *mirrors = json_object_get(in, "mirrors");
    struct sandbox_registry list[8];
    struct sandbox_image image;
    AUTO_FREE char **plain = words_of(in, "plain");
    struct sandbox_image_place place = {.folder = text_of(in, "folder"), .mirrors = list, .plain_registries = (const char *const *)plain,
                                        .local = json_is_true(json_object_get(in, "local"))};
    json_object_foreach(mirrors, key, value) list[place.mirror_count++] = (struct sandbox_registry){key, json_string_value(value)};
    while (plain && plain[place.plain_count]) place.plain_count++;
    int r = sandbox_image_get(text_of(in, "reference"), &place, &image, err);
    if (r < 0) return r;
    json_object_set_new(out, "digest", json_string(image.digest));
    json_object_set_new(out, "layer", json_string(image.layer));
    json_object_set_new(out, "cwd", json_string(image.cwd));
    json_object_set_new(out, "user", json_string(image.user));
    json_object_set_new(out, "argv", words_json(image.argv));
    json_object_set_new(out, "environment", words_json(image.environment));
    sandbox_image_done(&image);
    return 0;
}

static int do_create(const json_t *in, json_t *out, struct error *err) {
    AUTO_FREE char **layers = words_of(in, "layers"), **argv = words_of(in, "argv"), **environment = words_of(in, "environment"),
                   **placeholders = words_of(in, "placeholders");
    AUTO_CLOSE int net = open(text_of(in, "net"), O_RDONLY | O_CLOEXEC);
    AUTO_CLOSE int output = open_output(in, "output");
    struct buf certificate = BUF_INIT;
    struct sandbox_trust trust = {.subject_hash = 0xabcd1234};
    struct sandbox_container_spec spec = {
        .id = text_of(in, "id"), .folder = text_of(in, "folder"), .layers = (const char *const *)layers, .argv = argv,
        .environment = environment, .placeholders = placeholders, .proxy = json_is_true(json_object_get(in, "proxy")),
        .cwd = text_of(in, "cwd"), .user = text_of(in, "user"), .hostname = text_of(in, "hostname"),
        .memory_bytes = (uint64_t)json_integer_value(json_object_get(in, "memory")),
        .cpu_millis = (uint32_t)json_integer_value(json_object_get(in, "cpu")),
        .pids_max = (uint32_t)json_integer_value(json_object_get(in, "pids")), .stdio = {-1, output, output},
        .early = json_is_true(json_object_get(in, "early"))};
    while (layers && layers[spec.layer_count]) spec.layer_count++;
    if (text_of(in, "certificate") && buf_read_file(&certificate, text_of(in, "certificate"), 65536) == 0) {
        trust.certificate = certificate.data;
        trust.len = certificate.len;
        spec.trust = &trust;
    }
    struct sandbox_container *container = NULL;
    int r = sandbox_container_create(&spec, -1, net, &container, err);
    buf_done(&certificate);
    if (r < 0) return r;
    *slot(spec.id) = container;
    json_object_set_new(out, "pid", json_integer(sandbox_container_pid(container)));
    return 0;
}

static void set_status(json_t *out, int status) {
    json_object_set_new(out, "status", json_integer(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status)));
}

// Runs a command to its end, with what it writes. In bytes that are not UTF-8 '?' stands for the high ones.
static int do_exec(struct sandbox_container *container, const json_t *in, json_t *out, struct error *err) {
    AUTO_FREE char **argv = words_of(in, "argv"), **environment = words_of(in, "environment");
    int pipes[2], status = 0;
    pid_t pid;
    struct buf text = BUF_INIT;
    AUTO_CLOSE int named = open_output(in, "output");
    if (pipe2(pipes, O_CLOEXEC) < 0) return -errno;
    int output = named >= 0 ? named : pipes[1];
    const struct sandbox_exec exec = {.argv = argv, .environment = environment, .cwd = text_of(in, "cwd"), .user = text_of(in, "user"),
                                      .stdio = {named, output, output}};
    int r = sandbox_container_exec(container, &exec, &pid, err);
    close(pipes[1]);
    if (r == 0 && json_is_true(json_object_get(in, "background"))) {
        json_object_set_new(out, "pid", json_integer(pid));
    } else if (r == 0) {
        buf_read_fd(&text, pipes[0], OUTPUT_MAX);
        waitpid(pid, &status, 0);
        for (size_t i = 0; i < text.len; i++)
            if ((unsigned char)text.data[i] >= 0x80 || text.data[i] == '\0') text.data[i] = '?';
        set_status(out, status);
        json_object_set_new(out, "output", json_string(text.data ? text.data : ""));
    }
    buf_done(&text);
    close(pipes[0]);
    return r;
}

// How long create and start take, in microseconds; the container is gone afterwards.
static int do_time(const json_t *in, json_t *out, struct error *err) {
    uint64_t begin = clock_us();
    int r = do_create(in, out, err);
    struct sandbox_container **container = slot(text_of(in, "id"));
    if (r == 0) r = sandbox_container_start(*container, err);
    json_object_set_new(out, "us", json_integer((json_int_t)(clock_us() - begin)));
    sandbox_container_free(TAKE_POINTER(*container));
    return r;
}

static int do_one(const json_t *in, json_t *out, struct error *err) {
    const char *op = text_of(in, "op"), *id = text_of(in, "id");
    if (strcmp(op, "image") == 0) return do_image(in, out, err);
    if (strcmp(op, "create") == 0) return do_create(in, out, err);
    if (strcmp(op, "time") == 0) return do_time(in, out, err);
    if (strcmp(op, "clean") == 0) return sandbox_container_clean(id, text_of(in, "folder"), err);
    if (strcmp(op, "open") == 0) return sandbox_container_open(id, text_of(in, "folder"), slot(id), err);
    struct sandbox_container **container = slot(id);
    if (!*container) return error_set(err, -ENOENT, "no container \"%s\"", id);
    if (strcmp(op, "start") == 0) return sandbox_container_start(*container, err);
    if (strcmp(op, "settle") == 0) return sandbox_container_settle(*container, err);
    if (strcmp(op, "exec") == 0) return do_exec(*container, in, out, err);
    if (strcmp(op, "pause") == 0) return sandbox_container_pause(*container, err);
    if (strcmp(op, "resume") == 0) return sandbox_container_resume(*container, err);
    if (strcmp(op, "snapshot") == 0) return sandbox_container_snapshot(*container, text_of(in, "layer"), err);
    if (strcmp(op, "signal") == 0) return sandbox_container_signal(*container, (int)json_integer_value(json_object_get(in, "signal")));
    if (strcmp(op, "wait") == 0) {
        int status = 0;
        if (waitpid(sandbox_container_pid(*container), &status, 0) < 0) return -errno;
        set_status(out, status);
        return 0;
    }
    if (strcmp(op, "free") == 0) {
        sandbox_container_free(TAKE_POINTER(*container));
        return 0;
    }
    return error_set(err, -EINVAL, "unknown op \"%s\"", op);
}

static size_t descriptors(void) {
    size_t count = 0;
    for (int fd = 0; fd < 1024; fd++) count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

int main(void) {
    char *line = NULL;
    size_t size = 0;
    signal(SIGPIPE, SIG_IGN);
    while (getline(&line, &size, stdin) > 0) {
        struct error err = {{0}};
        json_t *in = json_loads(line, 0, NULL), *out = json_object();
        int r = do_one(in, out, &err);
        if (r == 0) json_object_set_new(out, "ok", json_true());
        if (r < 0) json_object_set_new(out, "error", json_integer(r));
        if (r < 0) json_object_set_new(out, "text", json_string(err.text));
        json_object_set_new(out, "descriptors", json_integer((json_int_t)descriptors()));
        json_dumpf(out, stdout, JSON_COMPACT);
        printf("\n");
        fflush(stdout);
        json_decref(in);
        json_decref(out);
    }
    free(line);
    return 0;
}
