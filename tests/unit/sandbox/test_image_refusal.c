// SPDX-License-Identifier: Apache-2.0
// What skopeo says (as it does for real registries), and what a person is told.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>

#include "base/mem.h"
#include "sandbox/image_refusal.h"

#define LINE "skopeo: time=\"2026-11-30T08:06:47Z\" level=fatal msg=\"initializing source docker://r/x: "
#define NOTHING "docker://r/x cannot be fetched: what is there is no registry of images, or it failed; check the name" // of what was said

static const struct {
    const char *said;
    int code;
    const char *told;
} rows[] = {
    {LINE "reading manifest latest in r/x: manifest unknown: manifest unknown\"", -ENOENT,
     "docker://r/x is not in its registry; check its name and tag"},
    {LINE "reading manifest latest in r/x: name unknown: repository name not known to registry\"", -ENOENT,
     "docker://r/x is not in its registry; check its name and tag"},
    {"skopeo: time=\"t\" level=fatal msg=\"Invalid source name docker://r/X: invalid reference format: must be lowercase\"", -EINVAL,
     "docker://r/x is no name of an image: lower-case letters, digits, and . _ - / between them, then a :TAG"},
    {LINE "reading manifest latest in r/x: requested access to the resource is denied\"", -EACCES,
     "docker://r/x is not there, or not for everybody; check its name, or use a mirror that has it (images.mirrors)"},
    {LINE "unable to retrieve auth token: invalid username/password: unauthorized\"", -EACCES,
     "docker://r/x is not there, or not for everybody; check its name, or use a mirror that has it (images.mirrors)"},
    {LINE "pinging container registry r: Get \\\"https://r/v2/\\\": dial tcp: lookup r: no such host\"", -EAGAIN,
     "docker://r/x is in a registry whose name does not resolve; check the name, or use a mirror (images.mirrors)"},
    {LINE "pinging container registry r: Get \\\"https://r/v2/\\\": dial tcp 127.0.0.1:1: connect: connection refused\"", -EAGAIN,
     "docker://r/x is in a registry that cannot be reached; check the network, or use a mirror (images.mirrors)"},
    {LINE "Get \\\"https://r/v2/\\\": http: server gave HTTP response to HTTPS client\"", -EINVAL,
     "docker://r/x is in a registry that speaks plain HTTP; list the registry in images.plain_http if it may"},
    {LINE "Get \\\"https://r/v2/\\\": x509: certificate signed by unknown authority\"", -EINVAL,
     "docker://r/x is in a registry whose certificate this system does not trust; add its authority to the system's"},
    {"skopeo: time=\"t\" level=fatal msg=\"what \\\"it\\\" says \\\\ here\" more=\"x\"", -EBADMSG, NOTHING},
    {LINE "writing blob: write /x: no space left on device\"", -EAGAIN, "docker://r/x cannot be stored: the disk of this machine is full; make room"},
    {"skopeo: msg=\"cut \\", -EBADMSG, NOTHING},
    {"skopeo: it says nothing", -EBADMSG, NOTHING},
};

static void test_rows(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct error err;
        snprintf(err.text, sizeof(err.text), "%s", rows[i].said);
        assert_int_equal(image_refusal("docker://r/x", &err), rows[i].code);
        assert_string_equal(err.text, rows[i].told);
    }
    assert_int_equal(image_refusal("docker://r/x", NULL), -EBADMSG);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
