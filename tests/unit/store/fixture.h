// SPDX-License-Identifier: Apache-2.0
// A store in a folder of its own, and rows to put into it.
#pragma once

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "store/store.h"

#define ASSERT_OK(call) \
    do { \
        int result_ = (call); \
        if (result_ < 0) fail_msg("%s: %d: %s", #call, result_, err.text); \
    } while (0)

struct fixture {
    char folder[64], path[96];
    struct store *store;
};

static inline int fixture_remove(const char *path, const struct stat *status, int kind, struct FTW *at) {
    (void)status, (void)kind, (void)at;
    return remove(path);
}

static inline void fixture_open(struct fixture *fixture) {
    struct error err = {0};
    ASSERT_OK(store_open(fixture->path, &fixture->store, &err));
}

static inline void fixture_init(struct fixture *fixture) {
    snprintf(fixture->folder, sizeof(fixture->folder), "/tmp/penstock-store-XXXXXX");
    assert_non_null(mkdtemp(fixture->folder));
    snprintf(fixture->path, sizeof(fixture->path), "%s/store.db", fixture->folder);
    fixture_open(fixture);
}

static inline void fixture_done(struct fixture *fixture) {
    store_close(fixture->store);
    nftw(fixture->folder, fixture_remove, 8, FTW_DEPTH | FTW_PHYS);
}

static inline struct store_sandbox fixture_sandbox(const char *id) {
    return (struct store_sandbox){
        .id = (char *)(uintptr_t)id,
        .state = STORE_STARTING,
        .type = POLICY_TYPE_CONTAINER,
        .template_id = (char *)(uintptr_t) "tbase",
        .alias = (char *)(uintptr_t) "base",
        .started_us = 1000,
        .end_us = 2000,
        .timeout_s = 300,
        .auto_resume = true,
        .secure = true,
        .cpu_count = 2,
        .memory_mb = 512,
        .disk_mb = 1024,
        .metadata = (char *)(uintptr_t) "{\"k\":\"v w\",\"n\":\"1\"}",
        .policy = (char *)(uintptr_t) "{\"network\":{}}",
        .dialect = POLICY_DIALECT_E2B,
        .allow_public_traffic = true,
        .layers = (char *)(uintptr_t) "[\"a\",\"b\"]",
    };
}
