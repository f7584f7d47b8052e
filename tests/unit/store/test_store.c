// SPDX-License-Identifier: Apache-2.0
// What is written is read, also after the file was closed; filters, pages, limits; whose file is taken.
#include "fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>

#include "base/buf.h"

static void test_sandbox(void **state) {
    (void)state;
    struct error err = {0};
    struct fixture fixture;
    struct store_sandbox sandbox = fixture_sandbox("ia"), read;
    fixture_init(&fixture);
    ASSERT_OK(store_sandbox_insert(fixture.store, &sandbox, &err));
    assert_int_equal(store_sandbox_insert(fixture.store, &sandbox, &err), -EEXIST);
    ASSERT_OK(store_sandbox_set_state_end(fixture.store, "ia", STORE_PAUSED, 0, &err));
    ASSERT_OK(store_sandbox_set_end(fixture.store, "ia", 77, &err));
    ASSERT_OK(store_sandbox_set_image(fixture.store, "ia", "[\"c\"]", "{\"cwd\":\"/\"}", &err));
    store_close(fixture.store);
    fixture_open(&fixture);
    ASSERT_OK(store_sandbox_get(fixture.store, "ia", &read, &err));
    assert_int_equal(read.state, STORE_PAUSED);
    assert_int_equal(read.type, POLICY_TYPE_CONTAINER);
    assert_string_equal(read.template_id, "tbase");
    assert_string_equal(read.alias, "base");
    assert_null(read.image);
    assert_int_equal(read.started_us, 1000);
    assert_int_equal(read.end_us, 77);
    assert_int_equal(read.timeout_s, 300);
    assert_true(!read.auto_pause && read.auto_resume && read.secure && read.allow_public_traffic);
    assert_int_equal(read.cpu_count + read.memory_mb + read.disk_mb, 2 + 512 + 1024);
    assert_string_equal(read.metadata, sandbox.metadata);
    assert_null(read.env_vars);
    assert_string_equal(read.policy, sandbox.policy);
    assert_int_equal(read.dialect, POLICY_DIALECT_E2B);
    assert_int_equal(read.generation, 1);
    assert_null(read.mask_request_host);
    assert_string_equal(read.layers, "[\"c\"]");
    assert_string_equal(read.config, "{\"cwd\":\"/\"}");
    store_sandbox_done(&read);
    assert_int_equal(store_sandbox_get(fixture.store, "ib", &read, &err), -ENOENT);
    assert_int_equal(store_sandbox_set_state(fixture.store, "ib", STORE_RUNNING, &err), -ENOENT);
    assert_int_equal(store_sandbox_set_end(fixture.store, "ib", 1, &err), -ENOENT);
    ASSERT_OK(store_sandbox_remove(fixture.store, "ia", &err));
    assert_int_equal(store_sandbox_remove(fixture.store, "ia", &err), -ENOENT);
    assert_int_equal(store_sandbox_get(fixture.store, "ia", &read, &err), -ENOENT);
    fixture_done(&fixture);
}

static void assert_policy(struct store *store, uint64_t generation, const char *policy, enum policy_dialect dialect) {
    struct error err = {0};
    struct store_sandbox read;
    ASSERT_OK(store_sandbox_get(store, "ia", &read, &err));
    assert_int_equal(read.generation, generation);
    assert_string_equal(read.policy, policy);
    assert_int_equal(read.dialect, dialect);
    store_sandbox_done(&read);
}

static void test_policy(void **state) {
    (void)state;
    struct error err = {0};
    struct fixture fixture;
    struct store_sandbox sandbox = fixture_sandbox("ia");
    uint64_t generation = 0;
    char *policy;
    enum policy_dialect dialect;
    fixture_init(&fixture);
    struct store *store = fixture.store;
    ASSERT_OK(store_sandbox_insert(store, &sandbox, &err));
    assert_int_equal(store_policy_staged(store, "ia", &policy, &dialect, &generation, &err), -ENOENT);
    assert_int_equal(store_policy_stage(store, "ix", "p", POLICY_DIALECT_E2B, &generation, &err), -ENOENT);
    ASSERT_OK(store_policy_stage(store, "ia", "two", POLICY_DIALECT_NATIVE, &generation, &err));
    assert_int_equal(generation, 2);
    assert_policy(store, 1, sandbox.policy, POLICY_DIALECT_E2B); // until it is activated
    ASSERT_OK(store_policy_staged(store, "ia", &policy, &dialect, &generation, &err));
    assert_string_equal(policy, "two");
    assert_int_equal(dialect, POLICY_DIALECT_NATIVE);
    free(policy);
    assert_int_equal(store_policy_activate(store, "ia", 3, &err), -ENOENT);
    assert_int_equal(store_policy_drop(store, "ia", 1, &err), -ENOENT); // the one in force stays
    ASSERT_OK(store_policy_drop(store, "ia", 2, &err));
    ASSERT_OK(store_policy_stage(store, "ia", "three", POLICY_DIALECT_E2B, &generation, &err));
    assert_int_equal(generation, 3); // 2 has been used
    ASSERT_OK(store_policy_stage(store, "ia", "four", POLICY_DIALECT_E2B, &generation, &err));
    assert_int_equal(store_policy_activate(store, "ia", 3, &err), -ENOENT); // replaced by 4
    ASSERT_OK(store_policy_activate(store, "ia", 4, &err));
    assert_policy(store, 4, "four", POLICY_DIALECT_E2B);
    assert_int_equal(store_policy_activate(store, "ia", 4, &err), -ENOENT);
    fixture_done(&fixture);
}

static int append_id(const struct store_sandbox *sandbox, void *data) {
    buf_printf(data, "%s ", sandbox->id);
    return 0;
}

static void assert_list(struct store *store, const struct store_filter *filter, const char *expected) {
    struct error err = {0};
    struct buf ids = BUF_INIT;
    uint64_t count = 0;
    buf_printf(&ids, " ");
    ASSERT_OK(store_sandbox_list(store, filter, append_id, &ids, &err));
    assert_string_equal(ids.data, expected);
    buf_done(&ids);
    if (filter->after_id || filter->limit) return;
    ASSERT_OK(store_sandbox_count(store, filter, &count, &err));
    size_t spaces = 0;
    for (const char *at = expected; *at; at++) spaces += *at == ' ';
    assert_int_equal(count, spaces - 1);
}

static void test_list(void **state) {
    (void)state;
    struct error err = {0};
    struct fixture fixture;
    fixture_init(&fixture);
    struct store *store = fixture.store;
    const struct {
        const char *id;
        int64_t started_us;
        enum store_state state;
        const char *metadata, *alias;
    } rows[] = {{"i1", 10, STORE_RUNNING, "{\"k\":\"v w\"}", "base"},
                {"i2", 10, STORE_PAUSED, "{\"k\":\"v w\",\"x\":\"1\"}", "base"},
                {"i3", 20, STORE_RUNNING, "{\"k\":\"V\"}", NULL},
                {"i4", 5, STORE_STARTING, NULL, NULL}};
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct store_sandbox sandbox = fixture_sandbox(rows[i].id);
        sandbox.started_us = rows[i].started_us;
        sandbox.state = rows[i].state;
        sandbox.metadata = (char *)(uintptr_t)rows[i].metadata;
        sandbox.alias = (char *)(uintptr_t)rows[i].alias;
        ASSERT_OK(store_sandbox_insert(store, &sandbox, &err));
    }
    const struct store_pair pairs[] = {{"k", "v w"}, {"x", "1"}}, quote[] = {{"k", "v' OR '1'='1"}};
    assert_list(store, &(struct store_filter){0}, " i3 i2 i1 i4 ");
    assert_list(store, &(struct store_filter){.ascending = true}, " i4 i1 i2 i3 ");
    assert_list(store, &(struct store_filter){.states = 1 << STORE_RUNNING}, " i3 i1 ");
    assert_list(store, &(struct store_filter){.states = 1 << STORE_RUNNING | 1 << STORE_PAUSED}, " i3 i2 i1 ");
    assert_list(store, &(struct store_filter){.metadata = pairs, .metadata_count = 1}, " i2 i1 ");
    assert_list(store, &(struct store_filter){.metadata = pairs, .metadata_count = 2}, " i2 ");
    assert_list(store, &(struct store_filter){.metadata = quote, .metadata_count = 1}, " ");
    assert_list(store, &(struct store_filter){.template_id = "base"}, " i2 i1 ");
    assert_list(store, &(struct store_filter){.template_id = "tbase"}, " i3 i2 i1 i4 ");
    assert_list(store, &(struct store_filter){.started_after_us = 10}, " i3 i2 i1 ");
    assert_list(store, &(struct store_filter){.limit = 2}, " i3 i2 ");
    assert_list(store, &(struct store_filter){.after_us = 10, .after_id = "i2", .limit = 5}, " i1 i4 ");
    assert_list(store, &(struct store_filter){.after_us = 10, .after_id = "i1", .ascending = true}, " i2 i3 ");
    struct store_pair many[33];
    for (size_t i = 0; i < ARRAY_LENGTH(many); i++) many[i] = pairs[0];
    assert_int_equal(store_sandbox_list(store, &(struct store_filter){.metadata = many, .metadata_count = 33}, append_id,
                                        NULL, &err), -EINVAL);
    fixture_done(&fixture);
}

#define TEXT(text) ((char *)(uintptr_t)(text))

static int append_template(const struct store_template *item, void *data) {
    buf_printf(data, "%s ", item->id);
    return 0;
}

static void assert_templates(struct store *store, struct store_template_filter filter, const char *expected) {
    struct error err = {0};
    struct buf ids = BUF_INIT;
    buf_printf(&ids, " ");
    ASSERT_OK(store_template_list(store, &filter, append_template, &ids, &err));
    assert_string_equal(ids.data, expected);
    buf_done(&ids);
}

static void test_templates(void **state) {
    (void)state;
    struct error err = {0};
    struct fixture fixture;
    fixture_init(&fixture);
    struct store *store = fixture.store;
    struct store_template template = {.id = TEXT("t1"), .kind = STORE_TEMPLATE, .name = TEXT("ubuntu"), .cpu_count = 1,
                                      .memory_mb = 512, .created_us = 10};
    struct store_template snapshot = {.id = TEXT("s1"), .kind = STORE_SNAPSHOT, .sandbox_id = TEXT("ia"),
                                      .layers = TEXT("[\"x\",\"y\"]"), .cpu_count = 1, .memory_mb = 512, .created_us = 20};
    struct store_template read, tricky = {.id = TEXT("t2"), .name = TEXT("t1"), .created_us = 5};
    ASSERT_OK(store_template_insert(store, &template, &err));
    ASSERT_OK(store_template_insert(store, &snapshot, &err));
    ASSERT_OK(store_template_insert(store, &tricky, &err));
    tricky.id = TEXT("t3");
    tricky.name = TEXT("ubuntu");
    assert_int_equal(store_template_insert(store, &tricky, &err), -EEXIST);
    ASSERT_OK(store_template_get(store, "ubuntu", &read, &err));
    assert_string_equal(read.id, "t1");
    assert_null(read.layers);
    assert_null(read.build_id);
    store_template_done(&read);
    ASSERT_OK(store_template_get(store, "t1", &read, &err));
    assert_string_equal(read.id, "t1"); // an id, not the name of t2
    store_template_done(&read);
    assert_templates(store, (struct store_template_filter){0}, " s1 t1 t2 ");
    assert_templates(store, (struct store_template_filter){.has_kind = true, .kind = STORE_SNAPSHOT}, " s1 ");
    assert_templates(store, (struct store_template_filter){.sandbox_id = "ia"}, " s1 ");
    assert_templates(store, (struct store_template_filter){.id_or_name = "ubuntu"}, " t1 ");
    assert_templates(store, (struct store_template_filter){.after_us = 20, .after_id = "s1", .limit = 1}, " t1 ");
    assert_int_equal(store_layer_used(store, "y", &err), 1);
    assert_int_equal(store_layer_used(store, "b", &err), 0);
    struct store_sandbox sandbox = fixture_sandbox("ia");
    ASSERT_OK(store_sandbox_insert(store, &sandbox, &err));
    assert_int_equal(store_layer_used(store, "b", &err), 1);
    snapshot.layers = TEXT("[\"z\"]");
    ASSERT_OK(store_template_replace(store, &snapshot, &err));
    assert_int_equal(store_layer_used(store, "y", &err), 0);
    ASSERT_OK(store_template_spawned(store, "s1", 99, &err));
    ASSERT_OK(store_template_get(store, "s1", &read, &err));
    assert_int_equal(read.spawn_count, 1);
    assert_int_equal(read.spawned_us, 99);
    assert_int_equal(read.created_us, 20);
    assert_true(read.updated_us > 20);
    store_template_done(&read);
    ASSERT_OK(store_template_remove(store, "s1", &err));
    assert_int_equal(store_template_remove(store, "s1", &err), -ENOENT);
    fixture_done(&fixture);
}

static int append_build(const struct store_build *build, void *data) {
    buf_printf(data, "%s:%s ", build->id, store_build_status_name(build->status));
    return 0;
}

static int append_line(uint64_t number, int64_t time_us, const char *level, const char *message, void *data) {
    assert_true(time_us > 0);
    buf_printf(data, "%llu:%s:%s ", (unsigned long long)number, level, message);
    return 0;
}

static void test_builds(void **state) {
    (void)state;
    struct error err = {0};
    struct fixture fixture;
    fixture_init(&fixture);
    struct store *store = fixture.store;
    struct store_template template = {.id = TEXT("t1"), .created_us = 1}, read;
    struct store_build build = {.id = TEXT("b1"), .template_id = TEXT("t1"), .cpu_count = 4, .memory_mb = 99, .created_us = 5};
    struct buf text = BUF_INIT;
    assert_true(store_build_insert(store, &build, &err) < 0); // no such template
    ASSERT_OK(store_template_insert(store, &template, &err));
    ASSERT_OK(store_build_insert(store, &build, &err));
    assert_int_equal(store_build_finish(store, "b1", "[]", "{}", 1, &err), -ENOENT); // not started
    ASSERT_OK(store_build_start(store, "b1", &err));
    assert_int_equal(store_build_start(store, "b1", &err), -EBUSY);
    ASSERT_OK(store_build_finish(store, "b1", "[\"l\"]", "{\"cwd\":\"/x\"}", 7, &err));
    assert_int_equal(store_build_fail(store, "b1", NULL, "late", &err), -ENOENT);
    for (int i = 2; i <= 3; i++) {
        build.id = TEXT(i == 2 ? "b2" : "b3");
        ASSERT_OK(store_build_insert(store, &build, &err));
        ASSERT_OK(store_build_start(store, build.id, &err));
    }
    ASSERT_OK(store_build_fail(store, "b2", "2", "no such image", &err));
    ASSERT_OK(store_template_get(store, "t1", &read, &err)); // the last that is ready stays
    assert_string_equal(read.layers, "[\"l\"]");
    assert_string_equal(read.build_id, "b1");
    assert_int_equal(read.build_count, 3);
    assert_int_equal(read.cpu_count * 1000 + read.memory_mb + read.disk_mb, 4000 + 99 + 7);
    store_template_done(&read);
    ASSERT_OK(store_build_abandon(store, "the node was restarted", &err));
    ASSERT_OK(store_build_abandon(store, "the node was restarted", &err));
    ASSERT_OK(store_build_list(store, "t1", append_build, &text, &err));
    assert_string_equal(text.data, "b3:error b2:error b1:ready ");
    buf_done(&text);
    struct store_build got;
    ASSERT_OK(store_build_get(store, "t1", "b2", &got, &err));
    assert_string_equal(got.reason, "no such image");
    assert_string_equal(got.step, "2");
    assert_true(got.finished_us > 0);
    store_build_done(&got);
    assert_int_equal(store_build_get(store, "tx", "b2", &got, &err), -ENOENT);
    for (int i = 0; i < STORE_BUILD_LINES_MAX + 3; i++) {
        char line[16];
        snprintf(line, sizeof(line), "m%d", i);
        ASSERT_OK(store_build_log(store, "b1", "info", (const char *const[]){line}, 1, &err));
    }
    ASSERT_OK(store_build_lines(store, "b1", 0, 2, append_line, &text, &err));
    assert_string_equal(text.data, "3:info:m3 4:info:m4 ");
    buf_done(&text);
    ASSERT_OK(store_build_lines(store, "b1", STORE_BUILD_LINES_MAX + 2, 9, append_line, &text, &err));
    assert_string_equal(text.data, "1002:info:m1002 ");
    buf_done(&text);
    assert_int_equal(store_build_log(store, "bx", "info", (const char *const[]){"x"}, 1, &err), -ENOENT);
    ASSERT_OK(store_template_remove(store, "t1", &err));
    assert_int_equal(store_build_get(store, "t1", "b1", &got, &err), -ENOENT);
    fixture_done(&fixture);
}

static int count_audit(const struct store_audit *audit, void *data) {
    int *count = data;
    if ((*count)++ == 0) assert_int_equal(audit->status, 299);
    return 0;
}

static void test_audit(void **state) {
    (void)state;
    struct error err = {0};
    struct fixture fixture;
    int count = 0;
    fixture_init(&fixture);
    store_audit_limit(fixture.store, 50);
    for (int i = 0; i < 300; i++)
        ASSERT_OK(store_audit_add(fixture.store, &(struct store_audit){i + 1, "127.0.0.1:1", "POST /x", "ia", i}, &err));
    ASSERT_OK(store_audit_list(fixture.store, 1000, count_audit, &count, &err));
    assert_in_range(count, 50, 50 + 65);
    count = 0;
    ASSERT_OK(store_audit_list(fixture.store, 3, count_audit, &count, &err));
    assert_int_equal(count, 3);
    fixture_done(&fixture);
}

static void assert_refused(const char *path, int code, const char *says) {
    struct error err = {0};
    struct store *store = NULL;
    int r = store_open(path, &store, &err);
    if (r != code || !strstr(err.text, says)) fail_msg("%s: %d, not %d: %s", path, r, code, err.text);
    assert_null(store);
}

static void test_file(void **state) {
    (void)state;
    struct fixture fixture;
    struct stat status;
    char other[128];
    fixture_init(&fixture);
    snprintf(other, sizeof(other), "%s-wal", fixture.path);
    assert_int_equal(stat(fixture.path, &status), 0);
    assert_int_equal(status.st_mode & 07777, 0600);
    assert_int_equal(stat(other, &status), 0);
    assert_int_equal(status.st_mode & 07777, 0600);
    pid_t child = fork(); // locks are a process's
    if (child == 0) {
        struct error err = {0};
        struct store *store;
        _exit(store_open(fixture.path, &store, &err) == -EBUSY && strstr(err.text, "another penstock") ? 0 : 1);
    }
    int exit_status;
    assert_int_equal(waitpid(child, &exit_status, 0), child);
    assert_int_equal(exit_status, 0);
    store_close(fixture.store);
    fixture.store = NULL;
    assert_int_equal(chmod(fixture.path, 0640), 0);
    assert_refused(fixture.path, -EPERM, "chmod 600");
    assert_int_equal(chmod(fixture.path, 0600), 0);
    snprintf(other, sizeof(other), "%s/link", fixture.folder);
    assert_int_equal(symlink(fixture.path, other), 0);
    assert_refused(other, -ELOOP, "cannot open");
    assert_refused(fixture.folder, -EISDIR, "cannot open");
    snprintf(other, sizeof(other), "%s/no/store.db", fixture.folder);
    assert_refused(other, -ENOENT, "cannot open");
    snprintf(other, sizeof(other), "%s/text", fixture.folder);
    int fd = open(other, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    for (int i = 0; i < 200; i++) assert_int_equal(write(fd, "this is no database\n", 20), 20);
    close(fd);
    assert_refused(other, -EBADMSG, "is not a database, or is damaged; put a copy of it back, or move it away");
    fixture_done(&fixture);
}

static void test_ids(void **state) {
    (void)state;
    char a[STORE_ID_SIZE], b[STORE_ID_SIZE];
    enum store_state read;
    assert_int_equal(strlen(store_make_id('i', a)), 21);
    assert_int_equal(strspn(a, "abcdefghijklmnopqrstuvwxyz0123456789"), 21);
    assert_string_not_equal(a, store_make_id('i', b));
    assert_true(store_state_from_name("paused", &read) && read == STORE_PAUSED);
    assert_false(store_state_from_name("Paused", &read));
    assert_string_equal(store_state_name(STORE_STOPPING), "stopping");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sandbox), cmocka_unit_test(test_policy), cmocka_unit_test(test_list),
        cmocka_unit_test(test_templates), cmocka_unit_test(test_builds), cmocka_unit_test(test_audit),
        cmocka_unit_test(test_file), cmocka_unit_test(test_ids)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
