// SPDX-License-Identifier: Apache-2.0
// Every endpoint: what it answers, its refusals to the letter, and what the backend is asked.
#include "api_rig.h"

#include <jansson.h>

#define CHECK(rig, ...) \
    do { \
        const struct rig_row rows_[] = {__VA_ARGS__}; \
        rig_check(rig, rows_, ARRAY_LENGTH(rows_)); \
    } while (0)

static void test_node(void **state) {
    (void)state;
    struct rig rig;
    rig_init(&rig, NULL);
    CHECK(&rig, {"GET", "/health", NULL, 204, NULL, NULL}, {"GET", "/metrics", NULL, 200, "up 1\n", NULL},
          {"GET", "/nothing", NULL, 404, "{\"code\":404,\"message\":\"route not found: GET /nothing\"}", NULL},
          {"GET", "/sandboxes/", NULL, 404, "route not found: GET /sandboxes/", NULL},
          {"GET", "//sandboxes", NULL, 404, "route not found", NULL},
          {"GET", "/a/b/c/d/e/f/g/h/i/j/k", NULL, 404, "route not found", NULL},
          {"PUT", "/sandboxes", "{}", 405, "method not allowed: PUT /sandboxes", NULL},
          {"DELETE", "/health?x=y", NULL, 405, "method not allowed: DELETE /health\"", NULL},
          {"POST", "/sandboxes/%zz/pause", NULL, 400, "the path is not well escaped", NULL},
          {"GET", "/sandboxes?metadata=%2", NULL, 400, "the query is not well escaped", NULL});
    struct rig_reply reply;
    char value[512];
    rig_ask(&rig, "PATCH", "/sandboxes", NULL, &reply);
    assert_string_equal(rig_header(&reply, "allow", value), "POST, GET");
    rig_reply_done(&reply);
    rig_done(&rig);
}

#define DEFAULTS "timeout=300 pause=0 resume=0 secure=0 "

static void test_create_cold(void **state) {
    (void)state;
    struct rig rig;
    rig_init(&rig, NULL);
    CHECK(&rig,
          {"POST", "/sandboxes-cold", "{\"image\":\"ubuntu:24.04\"}", 201, "\"templateID\":\"ubuntu:24.04\"",
           "create template=- image=ubuntu:24.04 " DEFAULTS "cpu=1 memory=512 disk=1024 metadata=- env=- public=1 mask=- "
           "policy={\"network\":{}} dialect=2 layers=- type=7 forever=0\n"},
          // as printed in the documentation
          {"POST", "/sandboxes-cold",
           "{\"image\":\"ubuntu:24.04\",\"allowInternetAccess\":false,\"network\":{\"allowOut\":[\"8.8.8.8/32\"]}}", 201,
           "\"clientID\":\"\"", "policy={\"network\":{\"allowOut\":[\"8.8.8.8/32\"]},\"allow_internet_access\":false}"},
          {"POST", "/sandboxes-cold",
           "{\"image\":\"a\",\"timeout\":5,\"autoPause\":true,\"autoResume\":{\"enabled\":true},\"secure\":true,"
           "\"metadata\":{\"k\":\"v\"},\"envVars\":{\"A\":\"1\"},\"cpuCount\":4,\"memoryMB\":128,\"diskSizeMB\":2048,"
           "\"network\":{\"allowPublicTraffic\":false,\"maskRequestHost\":\"localhost:${PORT}\"}}",
           201, "\"trafficAccessToken\":\"token-of-sandbox-traffic-i",
           "timeout=5 pause=1 resume=1 secure=1 cpu=4 memory=128 disk=2048 metadata={\"k\":\"v\"} env={\"A\":\"1\"} "
           "public=0 mask=localhost:${PORT} policy={\"network\":{}}"},
          {"POST", "/sandboxes-cold", "{\"image\":\"a\",\"expires\":false}", 201, "\"sandboxID\":\"i", "forever=1"},
          {"POST", "/sandboxes-cold", "{\"image\":\"a\",\"network\":null,\"timeout\":null,\"mcp\":null}", 201, "sandboxID",
           "timeout=300"},
          {"POST", "/sandboxes-cold", "{\"image\":\"a\",\"newField\":{\"x\":1},\"volumeMounts\":[]}", 201, "sandboxID",
           "create"},
          {"POST", "/sandboxes-cold", "{\"image\":\"a\",\"policy\":\"version: 1\\nallow: [{host: a.org}]\\n\"}", 201,
           "sandboxID", "dialect=3"},
          {"POST", "/sandboxes-cold", "{\"image\":\"a\",\"type\":\"mistral\",\"policy\":{\"network\":\"all\"}}", 201,
           "sandboxID", "policy={\"network\":\"all\"} dialect=1 layers=- type=2"},
          {"POST", "/sandboxes-cold", "{}", 400, "image is missing", NULL},
          {"POST", "/sandboxes-cold", "{\"image\":\"\"}", 400, "image must not be empty", NULL},
          {"POST", "/sandboxes-cold", "{\"image\":\"a b\"}", 400, "holds a blank", NULL},
          {"POST", "/sandboxes-cold", "{\"image\":7}", 400, "image must be a string, not a number", NULL},
          {"POST", "/sandboxes-cold", "{\"image\":\"a\",\"cpuCount\":0}", 400, "cpuCount must be greater than 0", NULL},
          {"POST", "/sandboxes-cold", "{\"image\":\"a\",\"memoryMB\":127}", 400, "memoryMB must be at least 128", NULL},
          {"POST", "/sandboxes-cold", "{\"image\":\"a\",\"diskSizeMB\":1500}", 400,
           "diskSizeMB must be at least 1024 and divisible by 1024", NULL},
          {"POST", "/sandboxes-cold", "{\"image\":\"a\",\"timeout\":-1}", 400, "timeout must be at least 0", NULL},
          {"POST", "/sandboxes-cold", "{\"image\":\"a\",\"timeout\":1.5}", 400, "timeout must be a whole number", NULL},
          {"POST", "/sandboxes-cold", "{\"image\":\"a\",\"timeout\":99999999999}", 400, "timeout must be at most", NULL},
          {"POST", "/sandboxes-cold", "{\"image\":\"a\",\"timeout\":1,\"expires\":false}", 400, "keep one", NULL},
          {"POST", "/sandboxes-cold", "{\"image\":\"a\",\"autoPause\":1}", 400, "autoPause must be true or false", NULL},
          {"POST", "/sandboxes-cold", "{\"image\":\"a\",\"autoResume\":true}", 400, "autoResume must be an object", NULL},
          {"POST", "/sandboxes-cold", "{\"image\":\"a\",\"metadata\":{\"k\":1}}", 400, "\\\"k\\\" must be a string", NULL},
          {"POST", "/sandboxes-cold", "{\"image\":\"a\",\"metadata\":[]}", 400, "metadata must be an object", NULL},
          {"POST", "/sandboxes-cold", "{\"image\":\"a\",\"attachedDrives\":[1]}", 400, "attachedDrives is not supported", NULL},
          {"POST", "/sandboxes-cold", "{\"image\":\"a\",\"customExtensionParams\":{\"a\":1}}", 400, "custom extension", NULL},
          {"POST", "/sandboxes-cold", "{\"image\":\"a\",\"type\":\"process\"}", 400, "container and mistral", NULL},
          {"POST", "/sandboxes-cold", "{\"image\":\"a\",\"type\":\"mistral\"}", 400, "MistralSandbox", NULL},
          {"POST", "/sandboxes-cold", "", 400, "the body is empty", NULL},
          {"POST", "/sandboxes-cold", "[]", 400, "the body must be a JSON object", NULL},
          {"POST", "/sandboxes-cold", "{\"image\":\"a\",\"image\":\"b\"}", 400, "duplicate", NULL},
          {"POST", "/sandboxes-cold", "{\"image\":\"a\\u0000b\"}", 400, "stands for a NUL byte, which no text may hold; remove it", NULL},
          {"POST", "/sandboxes-cold", "{\"image\":\"a\",\"envVars\":{\"A\\u0000\":\"x\"}}", 400, "stands for a NUL byte", NULL},
          {"POST", "/sandboxes-cold", "{\"image\":\"a\",\"envVars\":{\"A=B\":\"x\"}}", 400,
           "envVars: the name \\\"A=B\\\" holds a \\\"=\\\"; remove it", NULL},
          {"POST", "/sandboxes-cold", "{\"image\":", 400, "not valid JSON", NULL});
    rig.fail = 503;
    CHECK(&rig, {"POST", "/sandboxes-cold", "{\"image\":\"a\"}", 503, "{\"code\":503,\"message\":\"the backend failed\"}",
                 "create"});
    rig_done(&rig);
}

static void test_create_warm(void **state) {
    (void)state;
    struct rig rig;
    rig_init(&rig, NULL);
    rig_add_template(&rig, "tbase", "my-ubuntu", STORE_TEMPLATE, "[\"one\"]");
    rig_add_template(&rig, "snap", NULL, STORE_SNAPSHOT, "[\"two\",\"one\"]");
    rig_add_template(&rig, "tnew", "unbuilt", STORE_TEMPLATE, NULL);
    CHECK(&rig,
          // as printed in the documentation
          {"POST", "/sandboxes",
           "{\"templateID\":\"my-ubuntu\",\"network\":{\"allowOut\":[\"*.example.com\"],\"denyOut\":[\"0.0.0.0/0\"],"
           "\"allowPublicTraffic\":false}}",
           201, "\"alias\":\"my-ubuntu\"",
           "create template=tbase image=- " DEFAULTS "cpu=2 memory=1024 disk=2048 metadata=- env=- public=0 mask=- "
           "policy={\"network\":{\"allowOut\":[\"*.example.com\"],\"denyOut\":[\"0.0.0.0/0\"]}} dialect=2 layers=[\"one\"]"},
          {"POST", "/sandboxes", "{\"templateID\":\"snap\"}", 201, "\"templateID\":\"snap\"", "layers=[\"two\",\"one\"]"},
          {"POST", "/v2/sandboxes", "{\"templateID\":\"tbase\",\"secure\":false}", 201, "\"envdAccessToken\":\"token-of-i",
           "secure=1"},
          {"POST", "/sandboxes", "{\"templateID\":\"nope\"}", 400, "template nope not found", NULL},
          {"POST", "/sandboxes", "{\"templateID\":\"unbuilt\"}", 400, "template unbuilt was never built; build it", NULL},
          {"POST", "/sandboxes", "{}", 400, "templateID is missing", NULL});
    struct rig_reply reply;
    char value[512];
    rig_ask(&rig, "POST", "/sandboxes", "{\"templateID\":\"tbase\",\"network\":{\"allowOut\":[\"1.1.1.1\"]}}", &reply);
    json_t *json = json_loads(reply.body.data, 0, NULL);
    assert_string_equal(rig_header(&reply, "x-agentenv-sandbox-id", value),
                        json_string_value(json_object_get(json, "sandboxID")));
    assert_true(json_is_null(json_object_get(json, "trafficAccessToken")));
    assert_true(json_is_null(json_object_get(json, "domain")));
    assert_non_null(rig_header(&reply, "x-penstock-warning", value));
    assert_non_null(strstr(value, "allowOut alone is not an allow list"));
    json_decref(json);
    rig_reply_done(&reply);
    rig_done(&rig);
}

// The texts are those of the policy room, and of AgentENV where it has one.
static void test_egress(void **state) {
    (void)state;
    struct rig rig;
    rig_init(&rig, NULL);
#define BAD(network, text) {"POST", "/sandboxes-cold", "{\"image\":\"a\"," network "}", 400, text, NULL}
    CHECK(&rig, BAD("\"network\":{\"allowOut\":[\"a.org\"]}",
                    "\"allowOut contains domains but denyOut is missing 0.0.0.0/0 (ALL_TRAFFIC)\""),
          BAD("\"network\":{\"denyOut\":[\"a.org\"]}", "\"denyOut entry \\\"a.org\\\" must be an IP address or CIDR block\""),
          BAD("\"network\":{\"denyOut\":[\"1.2.3.4/99\"]}", "\"invalid IP or CIDR entry \\\"1.2.3.4/99\\\"\""),
          BAD("\"network\":{\"allowOut\":[\"a_b!\"],\"denyOut\":[\"0.0.0.0/0\"]}",
              "\"invalid allowOut domain entry \\\"a_b!\\\"\""),
          BAD("\"network\":{\"allowout\":[]}", "unknown key \\\"allowout\\\" in network"),
          BAD("\"network\":{\"egressProxy\":{}}", "egressProxy is not supported"),
          BAD("\"network\":{\"httpsPorts\":[1]}", "httpsPorts is not supported"),
          BAD("\"network\":{\"allowOut\":\"1.1.1.1\"}", "network.allowOut must be a list"),
          BAD("\"network\":{\"allowOut\":[1]}", "expected a string"), BAD("\"network\":[]", "network must be a mapping"),
          BAD("\"network\":{\"maskRequestHost\":\"a b\"}", "mask request host is not valid: a b"),
          BAD("\"allow_internet_access\":true,\"allowInternetAccess\":false", "both given and differ"),
          BAD("\"allow_internet_access\":\"no\"", "allow_internet_access"),
          BAD("\"allow_Internet_access\":false", "did you mean \\\"allow_internet_access\\\""),
          BAD("\"allowOut\":[\"1.1.1.1\"]", "unknown field \\\"allowOut\\\"; it belongs into \\\"network\\\""),
          BAD("\"Network\":{}", "did you mean \\\"network\\\""),
          BAD("\"networks\":{}", "unknown field \\\"networks\\\"; did you mean \\\"network\\\"?"),
          BAD("\"netwrok\":{}", "unknown field \\\"netwrok\\\"; did you mean \\\"network\\\"?"),
          BAD("\"netork\":{}", "unknown field \\\"netork\\\"; did you mean \\\"network\\\"?"),
          BAD("\"network_config\":{}", "unknown field \\\"network_config\\\"; did you mean \\\"network\\\"?"),
          BAD("\"ntwrk\":{}", "unknown field \\\"ntwrk\\\"; did you mean \\\"network\\\"?"),
          BAD("\"sandboxNetwork\":{}", "unknown field \\\"sandboxNetwork\\\"; did you mean \\\"network\\\"?"),
          BAD("\"Policy\":{}", "unknown field \\\"Policy\\\"; did you mean \\\"policy\\\"?"),
          BAD("\"policies\":{}", "unknown field \\\"policies\\\"; did you mean \\\"policy\\\"?"),
          BAD("\"polic\":{}", "unknown field \\\"polic\\\"; did you mean \\\"policy\\\"?"),
          BAD("\"policy_\":{}", "unknown field \\\"policy_\\\"; did you mean \\\"policy\\\"?"),
          BAD("\"plicy\":{}", "unknown field \\\"plicy\\\"; did you mean \\\"policy\\\"?"),
          BAD("\"internet_access\":{}", "unknown field \\\"internet_access\\\"; did you mean \\\"allow_internet_access\\\"?"),
          BAD("\"allowInternetAcess\":{}", "unknown field \\\"allowInternetAcess\\\"; did you mean \\\"allow_internet_access\\\"?"),
          BAD("\"alow_intrnet_access\":{}", "unknown field \\\"alow_intrnet_access\\\"; did you mean \\\"allow_internet_access\\\"?"),
          BAD("\"policy\":{\"network\":\"none\"},\"network\":{}", "keep one"), BAD("\"policy\":7", "policy must be"),
          BAD("\"policy\":\"version: 2\"", "version"),
          // what E2B's clients and AgentENV's send
          {"POST", "/sandboxes-cold",
           "{\"image\":\"a\",\"templateID\":\"t\",\"timeout\":5,\"autoPause\":false,\"autoPauseMemory\":true,\"autoResume\":null,"
           "\"secure\":true,\"metadata\":{},\"envVars\":{},\"mcp\":{},\"iam\":{},\"volumeMounts\":[],\"customExtensionParams\":{},"
           "\"attachedDrives\":[],\"extraBootArgs\":null,\"lifecycle\":{}}", 201, "sandboxID", "policy={\"network\":{}} "},
          {"POST", "/sandboxes-cold", "{\"image\":\"a\",\"allow_internet_access\":false,\"allowInternetAccess\":false}", 201,
           "sandboxID", "policy={\"network\":{},\"allow_internet_access\":false}"});
    rig_done(&rig);
}

static void test_lists(void **state) {
    (void)state;
    struct rig rig;
    struct rig_reply reply;
    char value[512], path[600];
    rig_init(&rig, NULL);
    rig_add(&rig, "i1", STORE_RUNNING);
    rig_add(&rig, "i2", STORE_PAUSED);
    rig_add(&rig, "i3", STORE_STARTING);
    rig_add(&rig, "i4", STORE_RUNNING);
    CHECK(&rig,
          {"GET", "/sandboxes/i1", NULL, 200, "\"state\":\"running\"", NULL},
          {"GET", "/sandboxes/i2", NULL, 200, "\"state\":\"paused\"", NULL},
          {"GET", "/sandboxes/ix", NULL, 404, "{\"code\":404,\"message\":\"sandbox ix not found\"}", NULL},
          {"GET", "/sandboxes/a%20%22b", NULL, 404, "sandbox a \\\"b not found", NULL},
          {"GET", "/sandboxes/%ff%fe", NULL, 404, "sandbox ?? not found", NULL},
          {"GET", "/v2/sandboxes?state=running,nothing", NULL, 400, "state \\\"nothing\\\" is unknown", NULL},
          {"GET", "/v2/sandboxes?limit=0", NULL, 400, "limit \\\"0\\\" must be a number from 1 to 100", NULL},
          {"GET", "/v2/sandboxes?limit=101", NULL, 400, "limit", NULL},
          {"GET", "/v2/sandboxes?nextToken=x", NULL, 400, "invalid next token", NULL},
          {"GET", "/v2/sandboxes?order=up", NULL, 400, "order", NULL},
          {"GET", "/v2/sandboxes?startedAfter=today", NULL, 400, "RFC 3339", NULL},
          {"GET", "/v2/sandboxes?metadata=k", NULL, 400, "key=value", NULL},
          {"GET", "/v2/sandboxes?state=starting", NULL, 400, "state", NULL},
          {"GET", "/v2/sandboxes?template=other", NULL, 200, "[]", NULL},
          {"GET", "/v2/sandboxes?startedAfter=2030-01-01T00:00:00Z", NULL, 200, "[]", NULL});
    rig_ask(&rig, "GET", "/v2/sandboxes?limit=2&template=base", NULL, &reply);
    assert_non_null(strstr(reply.body.data, "i4"));
    assert_non_null(strstr(reply.body.data, "i2"));
    assert_null(strstr(reply.body.data, "\"i1\""));
    assert_string_equal(rig_header(&reply, "x-total-running", value), "2");
    assert_non_null(rig_header(&reply, "x-next-token", value));
    snprintf(path, sizeof(path), "/v2/sandboxes?limit=2&nextToken=%s", value);
    rig_reply_done(&reply);
    rig_ask(&rig, "GET", path, NULL, &reply);
    assert_non_null(strstr(reply.body.data, "\"i1\""));
    assert_null(strstr(reply.body.data, "\"i2\""));
    assert_null(rig_header(&reply, "x-next-token", value));
    rig_reply_done(&reply);
    rig_ask(&rig, "GET", "/sandboxes", NULL, &reply); // running ones only, and never those that start
    assert_null(strstr(reply.body.data, "\"i2\""));
    assert_null(strstr(reply.body.data, "\"i3\""));
    json_t *list = json_loads(reply.body.data, 0, NULL);
    assert_int_equal(json_array_size(list), 2);
    json_t *row = json_array_get(list, 0);
    static const char *const members[] = {"templateID", "alias", "sandboxID", "clientID", "startedAt", "endAt", "cpuCount",
                                          "memoryMB", "diskSizeMB", "metadata", "state", "envdVersion"};
    for (size_t i = 0; i < ARRAY_LENGTH(members); i++)
        if (!json_object_get(row, members[i])) fail_msg("no %s", members[i]);
    assert_int_equal(json_object_size(row), ARRAY_LENGTH(members));
    json_decref(list);
    rig_reply_done(&reply);
    rig_done(&rig);
}

// Escaped as the SDK does: three times for its values.
static void test_metadata_filter(void **state) {
    (void)state;
    struct rig rig;
    rig_init(&rig, NULL);
    CHECK(&rig,
          {"POST", "/sandboxes-cold", "{\"image\":\"a\",\"metadata\":{\"k\":\"v w\",\"x&y\":\"a=b+%\"}}", 201, "i", "create"},
          {"GET", "/v2/sandboxes?metadata=k%3Dv%252520w", NULL, 200, "\"k\":\"v w\"", NULL},
          {"GET", "/v2/sandboxes?metadata=x%252526y%3Da%25253Db%25252B%252525", NULL, 200, "\"k\":\"v w\"", NULL},
          {"GET", "/sandboxes?metadata=k%3Dv%252520w", NULL, 200, "\"k\":\"v w\"", NULL},
          {"GET", "/v2/sandboxes?metadata=k%3Dv", NULL, 200, "[]", NULL},
          {"GET", "/v2/sandboxes?metadata=k%3Dv%252520w%26n%3D1", NULL, 200, "[]", NULL},
          {"GET", "/v2/sandboxes?metadata=", NULL, 200, "\"k\":\"v w\"", NULL},
          {"GET", "/v2/sandboxes?metadata=k%3D%25ZZ", NULL, 400, "not well escaped", NULL});
    rig_done(&rig);
}

static void test_detail(void **state) {
    (void)state;
    struct rig rig;
    struct rig_reply reply;
    rig_init(&rig, &(struct api_options){.domain = "sandbox.test"});
    rig_ask(&rig, "POST", "/sandboxes-cold",
            "{\"image\":\"a\",\"secure\":true,\"expires\":false,\"autoPause\":true,\"allow_internet_access\":true,\"network\":{"
            "\"allowOut\":[\"Example.com\",\"8.8.8.8\",\"*.a.org\",\"*\",\"10.1.2.3/8\"],\"denyOut\":[\"0.0.0.0/0\",\"::1\"],"
            "\"rules\":{\"api.example.com\":[{\"transform\":{\"headers\":{\"X-A\":\"secret-value\"}}}]}}}", &reply);
    assert_int_equal(reply.status, 201);
    json_t *json = json_loads(reply.body.data, 0, NULL);
    char path[64];
    snprintf(path, sizeof(path), "/sandboxes/%s", json_string_value(json_object_get(json, "sandboxID")));
    assert_string_equal(json_string_value(json_object_get(json, "domain")), "sandbox.test");
    json_decref(json);
    rig_reply_done(&reply);
    rig_ask(&rig, "GET", path, NULL, &reply);
    assert_null(strstr(reply.body.data, "secret-value"));
    json = json_loads(reply.body.data, 0, NULL);
    AUTO_FREE char *network = json_dumps(json_object_get(json, "network"), JSON_COMPACT | JSON_SORT_KEYS);
    assert_string_equal(network, "{\"allowOut\":[\"8.8.8.8/32\",\"10.0.0.0/8\",\"example.com\",\"*.a.org\",\"*\"],"
                                 "\"allowPublicTraffic\":true,\"denyOut\":[\"0.0.0.0/0\",\"::1/128\"],"
                                 "\"maskRequestHost\":null}");
    AUTO_FREE char *lifecycle = json_dumps(json_object_get(json, "lifecycle"), JSON_COMPACT | JSON_SORT_KEYS);
    assert_string_equal(lifecycle, "{\"autoResume\":false,\"onTimeout\":\"pause\"}");
    assert_true(json_is_true(json_object_get(json, "allowInternetAccess")));
    assert_string_equal(json_string_value(json_object_get(json, "endAt")), "2069-12-07T00:00:00.000000Z");
    assert_null(json_object_get(json, "trafficAccessToken"));
    assert_non_null(json_object_get(json, "envdAccessToken"));
    json_decref(json);
    rig_reply_done(&reply);
    rig_add(&rig, "i1", STORE_RUNNING);
    rig_ask(&rig, "GET", "/sandboxes/i1", NULL, &reply);
    json = json_loads(reply.body.data, 0, NULL);
    assert_true(json_is_null(json_object_get(json, "allowInternetAccess"))); // never set
    assert_null(json_object_get(json, "network"));
    json_decref(json);
    rig_reply_done(&reply);
    rig_done(&rig);
}

static void test_life(void **state) {
    (void)state;
    struct rig rig;
    struct error err = {0};
    rig_init(&rig, NULL);
    rig_add(&rig, "i1", STORE_RUNNING);
    rig_add(&rig, "i2", STORE_STOPPING);
    rig_add(&rig, "i3", STORE_RUNNING);
    CHECK(&rig,
          {"POST", "/sandboxes/i1/timeout", "{\"timeout\":100}", 204, NULL, "end i1 100\n"},
          {"POST", "/sandboxes/i1/timeout", "{\"timeout\":0}", 204, NULL, "end i1 0\n"},
          {"POST", "/sandboxes/i1/timeout", "{}", 400, "timeout is missing", NULL},
          {"POST", "/sandboxes/i1/timeout", "{\"timeout\":\"5\"}", 400, "timeout must be a whole number, not a string", NULL},
          {"POST", "/sandboxes/ix/timeout", "{\"timeout\":5}", 404, "sandbox ix not found", NULL},
          {"POST", "/sandboxes/i1/refreshes", "{\"duration\":3600}", 204, NULL, "end i1 3600\n"},
          {"POST", "/sandboxes/i1/refreshes", "{\"duration\":60}", 204, NULL, NULL}, // never shorter
          {"POST", "/sandboxes/i3/refreshes", NULL, 204, NULL, "end i3 300\n"},
          {"POST", "/sandboxes/i1/refreshes", "{\"duration\":3601}", 400, "duration must be at most 3600", NULL},
          {"POST", "/sandboxes/i1/connect", "{\"timeout\":60}", 200, "\"sandboxID\":\"i1\"", NULL},
          {"POST", "/v2/sandboxes/i1/connect", NULL, 200, "\"sandboxID\":\"i1\"", NULL},
          {"POST", "/v2/sandboxes/i1/connect", "{\"timeout\":7200}", 200, "\"envdAccessToken\":\"token-of-i1\"", "end i1 7200"},
          {"POST", "/sandboxes/i1/resume", "{}", 409, "sandbox cannot be resumed from running state", NULL},
          {"POST", "/sandboxes/i1/pause", "{}", 204, NULL, "pause i1\n"},
          {"POST", "/sandboxes/i1/pause", "{}", 409, "{\"code\":409,\"message\":\"sandbox cannot be paused from paused state\"}",
           NULL},
          {"PUT", "/sandboxes/i1/network", "{}", 409, "sandbox network cannot be updated from paused state", NULL},
          {"POST", "/sandboxes/i1/fork", NULL, 409, "sandbox cannot be forked from paused state", NULL},
          {"POST", "/sandboxes/i1/exec", "{\"cmd\":[\"true\"]}", 409, "paused state", NULL},
          {"POST", "/sandboxes/i1/resume", "{\"timeout\":9}", 201, "\"sandboxID\":\"i1\"", "resume i1 9\n"},
          {"POST", "/sandboxes/i1/pause", NULL, 204, NULL, "pause"},
          {"POST", "/sandboxes/i1/connect", "{\"timeout\":8}", 201, "\"sandboxID\":\"i1\"", "resume i1 8\n"},
          {"GET", "/sandboxes/i2", NULL, 404, "sandbox i2 not found", NULL},
          {"DELETE", "/sandboxes/i2", NULL, 404, "sandbox i2 not found", NULL},
          {"GET", "/sandboxes/i1/custom-extension-params", NULL, 200, "{}", NULL},
          {"PATCH", "/sandboxes/i1/custom-extension-params", "{\"a\":1}", 400, "custom extension", NULL},
          {"DELETE", "/sandboxes/i1", NULL, 204, NULL, "remove i1\n"},
          {"DELETE", "/sandboxes/i1", NULL, 404, "{\"code\":404,\"message\":\"sandbox i1 not found\"}", NULL});
    // One that never ends stays so.
    assert_int_equal(store_sandbox_set_state_end(rig.store, "i3", STORE_PAUSED, 0, &err), 0);
    CHECK(&rig, {"POST", "/sandboxes/i3/refreshes", NULL, 204, NULL, NULL},
          {"POST", "/sandboxes/i3/resume", NULL, 201, "\"sandboxID\":\"i3\"", "resume i3 -1\n"});
    rig_done(&rig);
}

static void test_network(void **state) {
    (void)state;
    struct rig rig;
    struct rig_reply reply;
    char value[512];
    rig_init(&rig, NULL);
    rig_add(&rig, "i1", STORE_RUNNING);
#define PUT(body, status, text, log) {"PUT", "/sandboxes/i1/network", body, status, text, log}
    CHECK(&rig, PUT("{}", 204, NULL, "keep=0 policy={\"network\":{}} dialect=2"),
          PUT("{\"allowOut\":[\"8.8.8.8/32\"],\"denyOut\":[\"0.0.0.0/0\"]}", 204, NULL,
              "policy={\"network\":{\"allowOut\":[\"8.8.8.8/32\"],\"denyOut\":[\"0.0.0.0/0\"]}}"),
          PUT("{\"allowInternetAccess\":false,\"allowOut\":null}", 204, NULL,
              "policy={\"network\":{},\"allow_internet_access\":false}"),
          PUT("{\"allow_internet_access\":false}", 204, NULL, "\"allow_internet_access\":false"),
          PUT("{\"allowOut\":[\"1.1.1.1\"],\"denyOut\":[\"1.1.0.0/16\"]}", 204, NULL, "update"),
          PUT("{\"allowOut\":[\"*.a.org\",\"1.1.1.1\"],\"denyOut\":[\"0.0.0.0/0\"]}", 204, NULL, "update"),
          PUT("{\"policy\":{\"network\":\"none\"}}", 204, NULL, "dialect=1"),
          PUT("{\"policy\":{\"network\":\"none\"},\"allowOut\":[]}", 400, "policy stands alone", NULL),
          PUT("{\"denyOut\":[\"a.org\"]}", 400, "denyOut entry \\\"a.org\\\" must be an IP address or CIDR block", NULL),
          PUT("{\"denyOut\":[\"x y\"]}", 400, "denyOut entry", NULL),
          PUT("{\"denyOut\":[\"0.0.0.0/0\",\"a.org\"]}", 400, "denyOut entry", NULL),
          PUT("{\"allowOut\":[\"a.org\"]}", 400, "allowOut contains domains but denyOut is missing", NULL),
          PUT("{\"allowOut\":[\"a.org\"],\"denyOut\":[\"8.8.8.0/24\"]}", 400, "allowOut contains domains", NULL),
          PUT("{\"allowOut\":[\"*.a.org\"]}", 400, "allowOut contains domains", NULL),
          PUT("{\"allowOut\":[\"a.org\",\"1.1.1.1\"],\"denyOut\":[\"8.8.8.0/24\"]}", 400, "allowOut contains domains", NULL),
          PUT("{\"allowout\":[\"1.1.1.1\"]}", 400, "unknown key \\\"allowout\\\" in network; did you mean \\\"allowOut\\\"?", NULL),
          PUT("{\"allow_internet\":false}", 400, "unknown key \\\"allow_internet\\\" in network; the keys are: denyOut, allowOut, rules, "
              "allow_internet_access; or policy alone", NULL),
          PUT("{\"polcy\":{}}", 400, "did you mean \\\"policy\\\"?", NULL),
          PUT("{\"allowPublicTraffic\":true}", 400, "allowPublicTraffic cannot be changed by an update", NULL),
          PUT("{\"maskRequestHost\":\"a\"}", 400, "maskRequestHost cannot be changed by an update", NULL),
          PUT("{\"allowInternetAccess\":true,\"allow_internet_access\":false}", 400, "differ", NULL),
          {"PUT", "/sandboxes/i1/network?existing=keep", "{}", 204, NULL, "keep=1"},
          {"PUT", "/sandboxes/i1/network?existing=x", "{}", 400, "existing", NULL},
          {"PUT", "/sandboxes/ix/network", "{}", 404, "sandbox ix not found", NULL});
    rig_ask(&rig, "PUT", "/sandboxes/i1/network", "{\"allowOut\":[\"1.1.1.1\"]}", &reply);
    assert_string_equal(rig_header(&reply, "x-penstock-generation", value), "10");
    assert_string_equal(rig_header(&reply, "x-penstock-update-us", value), "12");
    assert_string_equal(rig_header(&reply, "x-penstock-flows-closed", value), "3");
    assert_string_equal(rig_header(&reply, "x-penstock-flows-kept", value), "4");
    assert_non_null(rig_header(&reply, "x-penstock-warning", value));
    rig_reply_done(&reply);
    CHECK(&rig, {"GET", "/sandboxes/i1", NULL, 200, "\"generation\":10", NULL});
    rig_done(&rig);
}

static void test_snapshots(void **state) {
    (void)state;
    struct rig rig;
    rig_init(&rig, NULL);
    rig_add(&rig, "i1", STORE_RUNNING);
    rig_add_template(&rig, "tbase", "base", STORE_TEMPLATE, "[\"one\"]");
    CHECK(&rig, {"POST", "/sandboxes/i1/snapshots", "{\"name\":\"Mine\"}", 201, "\"names\":[\"mine\"]",
                 "snapshot i1 name=mine replaces=0"},
          {"POST", "/sandboxes/i1/snapshots", "{\"name\":\"mine\"}", 201, "\"snapshotID\":\"s", "replaces=1"},
          {"POST", "/sandboxes/i1/snapshots", NULL, 201, "\"names\":[]", "name=- replaces=0"},
          {"POST", "/sandboxes/i1/snapshots", "{\"name\":\"base\"}", 409, "another template or snapshot", NULL},
          {"POST", "/sandboxes/i1/snapshots", "{\"name\":\"tbase\"}", 409, "another template or snapshot", NULL},
          {"POST", "/sandboxes/i1/snapshots", "{\"name\":\"a b\"}", 400, "is not valid", NULL},
          {"POST", "/sandboxes/i1/snapshots", "{\"name\":\"a:v1\"}", 400, "has a tag", NULL},
          {"POST", "/sandboxes/ix/snapshots", NULL, 404, "sandbox ix not found", NULL},
          {"GET", "/snapshots", NULL, 200, "\"names\":[\"mine\"]", NULL},
          {"GET", "/snapshots?name=mine", NULL, 200, "\"names\":[\"mine\"]", NULL},
          {"GET", "/snapshots?sandboxID=i2", NULL, 200, "[]", NULL},
          {"GET", "/snapshots?limit=x", NULL, 400, "limit", NULL},
          {"GET", "/snapshots/mine", NULL, 200, "\"createdAt\":\"20", NULL},
          {"GET", "/snapshots/base", NULL, 404, "snapshot base not found", NULL},
          {"GET", "/snapshots/nope", NULL, 404, "snapshot nope not found", NULL},
          {"POST", "/sandboxes", "{\"templateID\":\"mine\"}", 201, "\"alias\":\"mine\"", "layers=[\"snap\"]"},
          {"DELETE", "/templates/mine", NULL, 204, NULL, "remove_template s"},
          {"POST", "/sandboxes/i1/fork", "{\"count\":3,\"timeout\":5}", 201, "{\"error\":{\"code\":500,\"message\":\"no room\"}}",
           "fork i1 count=3 timeout=5 policy={\"network\":{}}"},
          {"POST", "/sandboxes/i1/fork", NULL, 201, "[{\"sandbox\":{\"templateID\":\"tbase\"", "count=1 timeout=60"},
          {"POST", "/sandboxes/i1/fork", "{\"count\":0}", 400, "count must be at least 1", NULL},
          {"POST", "/sandboxes/i1/fork", "{\"count\":101}", 400, "count must be at most 100", NULL},
          {"POST", "/sandboxes/i1/fork", "{\"timeout\":-2}", 400, "timeout must be at least 0", NULL},
          {"POST", "/sandboxes/ix/fork", NULL, 404, "sandbox ix not found", NULL});
    rig_done(&rig);
}

static void test_templates(void **state) {
    (void)state;
    struct rig rig;
    struct rig_reply reply;
    struct error err = {0};
    char path[160], status[160];
    rig_init(&rig, NULL);
    rig_ask(&rig, "POST", "/v3/templates", "{\"name\":\"web:default\",\"cpuCount\":2,\"memoryMB\":256,\"tags\":[]}", &reply);
    assert_int_equal(reply.status, 202);
    json_t *json = json_loads(reply.body.data, 0, NULL);
    const char *template = json_string_value(json_object_get(json, "templateID"));
    const char *build = json_string_value(json_object_get(json, "buildID"));
    assert_string_equal(json_string_value(json_array_get(json_object_get(json, "names"), 0)), "web");
    snprintf(path, sizeof(path), "/v2/templates/%s/builds/%s", template, build);
    snprintf(status, sizeof(status), "/templates/%s/builds/%s/status?logsOffset=0", template, build);
    rig_reply_done(&reply);
    CHECK(&rig, {"GET", status, NULL, 200, "\"status\":\"waiting\"", NULL},
          {"GET", "/templates/aliases/web", NULL, 404, "template alias not found: web", NULL},
          {"POST", path, "{}", 400, "either fromImage or fromTemplate", NULL},
          {"POST", path, "{\"fromImage\":\"a\",\"fromTemplate\":\"b\"}", 400, "either", NULL},
          {"POST", path, "{\"fromTemplate\":\"web\"}", 400, "template web: its build b", NULL},
          {"POST", "/sandboxes", "{\"templateID\":\"web\"}", 400, "has not been started; start it", NULL},
          {"POST", path, "{\"fromImage\":\"a\",\"steps\":[{\"type\":\"ENV\",\"args\":[\"a=b\",\"c\"]}]}", 400, "holds a", NULL},
          {"POST", path, "{\"fromImage\":\"a\",\"steps\":[{\"type\":\"COPY\",\"args\":[\"a\"]}]}", 400, "not supported", NULL},
          {"POST", path, "{\"fromImage\":\"a\",\"steps\":[{\"type\":\"RUN\"}]}", 400, "arguments", NULL},
          {"POST", path, "{\"fromImage\":\"a\",\"steps\":[{\"type\":\"ENV\",\"args\":[\"a\"]}]}", 400, "arguments", NULL},
          {"POST", path, "{\"fromImage\":\"a\",\"steps\":[7]}", 400, "must be an object", NULL},
          {"POST", path, "{\"fromImage\":\"a\",\"steps\":[{\"type\":\"RUN\",\"args\":[\"x\"],\"filesHash\":\"h\"}]}", 400,
           "filesHash is not supported", NULL},
          {"POST", path, "{\"fromImage\":\"a\",\"network\":{\"x\":1}}", 400, "unknown key", NULL},
          {"POST", "/v2/templates/web/builds/bx", "{\"fromImage\":\"a\"}", 404, "build bx not found for template web", NULL},
          {"POST", "/v2/templates/tx/builds/bx", "{\"fromImage\":\"a\"}", 404, "template tx not found", NULL},
          {"POST", path,
           "{\"fromImage\":\"python:3\",\"startCmd\":\"run\",\"allow_internet_access\":false,\"steps\":[{\"type\":\"run\","
           "\"args\":[\"apt update\"]},{\"type\":\"ENV\",\"args\":[\"A\",\"1\"]},{\"type\":\"WORKDIR\",\"args\":[\"/w\"]}]}",
           202, NULL,
           "image=python:3 template=- start=run policy={\"network\":{},\"allow_internet_access\":false} 0(apt update,) "
           "1(A,1,) 2(/w,)"},
          {"POST", path, "{\"fromImage\":\"a\"}", 400, "has been started already", NULL},
          {"GET", status, NULL, 200, "\"status\":\"building\"", NULL},
          {"POST", "/sandboxes", "{\"templateID\":\"web\"}", 400, "has not ended; wait until it is ready", NULL});
    assert_int_equal(store_build_log(rig.store, build, "info", (const char *const[]){"step 1"}, 1, &err), 0);
    assert_int_equal(store_build_finish(rig.store, build, "[\"l\"]", "{}", 3, &err), 0);
    CHECK(&rig, {"GET", status, NULL, 200, "\"logs\":[\"step 1\"]", NULL},
          {"GET", "/templates/aliases/web", NULL, 200, "\"public\":false", NULL},
          {"GET", "/templates/aliases/a%20b", NULL, 400, "is not valid", NULL},
          {"GET", "/templates/web", NULL, 200, "\"builds\":[{\"buildID\":\"b", NULL},
          {"GET", "/templates", NULL, 200, "\"buildStatus\":\"ready\"", NULL},
          {"GET", "/v2/templates?limit=1", NULL, 200, "\"memoryMB\":256", NULL},
          {"GET", "/v2/templates?limit=1&nextToken=1_a", NULL, 200, "[]", NULL},
          {"GET", "/templates/nope", NULL, 404, "template nope not found", NULL},
          {"POST", "/v3/templates", "{\"name\":\"web\"}", 202, template, NULL}, // another build of the same
          {"POST", "/v3/templates", "{\"alias\":\"old-style\"}", 202, "\"aliases\":[\"old-style\"]", NULL},
          {"POST", "/sandboxes", "{\"templateID\":\"old-style\"}", 400, "has not been started", NULL},
          {"POST", "/v3/templates", "{\"name\":\"web:v2\"}", 400, "has a tag", NULL},
          {"POST", "/v3/templates", "{\"name\":\"w\",\"tags\":[\"v2\"]}", 400, "tags are not supported", NULL},
          {"POST", "/v3/templates", "{\"name\":\"w\",\"memoryMB\":1}", 400, "memoryMB must be at least 128", NULL},
          {"DELETE", "/templates/nope", NULL, 404, "template nope not found", NULL},
          {"DELETE", "/templates/web", NULL, 204, NULL, "remove_template t"},
          {"GET", status, NULL, 404, "not found", NULL});
    json_decref(json);
    rig_ask(&rig, "POST", "/v3/templates", "{\"name\":\"broken\"}", &reply);
    json = json_loads(reply.body.data, 0, NULL);
    build = json_string_value(json_object_get(json, "buildID"));
    rig_reply_done(&reply);
    assert_int_equal(store_build_fail(rig.store, build, "1: RUN", "the command ended with status 3", &err), 0);
    CHECK(&rig, {"POST", "/sandboxes", "{\"templateID\":\"broken\"}", 400, "failed (the command ended with status 3); build it again", NULL});
    json_decref(json);
    rig_done(&rig);
}

static void test_exec(void **state) {
    (void)state;
    struct rig rig;
    struct rig_reply reply;
    rig_init(&rig, NULL);
    rig_add(&rig, "i1", STORE_RUNNING);
    CHECK(&rig,
          {"POST", "/sandboxes/i1/exec", "{\"cmd\":[\"ls\",\"-l\",\"\"],\"env\":{\"A\":\"b=c\"},\"cwd\":\"/w\",\"user\":\"u\"}", 200,
           "{\"stdout\":\"hello\\n\"}\n{\"stderr_base64\":\"//4A\"}\n{\"exit\":3}\n",
           "exec i1 [ls] [-l] [] {A=b=c} cwd=/w user=u stdin=\n"},
          {"POST", "/sandboxes/i1/exec", "{\"cmd\":\"echo $HOME\",\"stdin\":\"in\"}", 200, "exit",
           "exec i1 [/bin/sh] [-c] [echo $HOME] cwd=- user=- stdin=in\n"},
          {"POST", "/sandboxes/i1/exec", "{}", 400, "cmd is missing", NULL},
          {"POST", "/sandboxes/i1/exec", "{\"cmd\":[]}", 400, "cmd is missing", NULL},
          {"POST", "/sandboxes/i1/exec", "{\"cmd\":[\"\"]}", 400, "cmd is missing", NULL},
          {"POST", "/sandboxes/i1/exec", "{\"cmd\":\"\"}", 400, "cmd must not be empty", NULL},
          {"POST", "/sandboxes/i1/exec", "{\"cmd\":[1]}", 400, "cmd must be a list of strings", NULL},
          {"POST", "/sandboxes/i1/exec", "{\"cmd\":7}", 400, "cmd must be a list of strings, not a number", NULL},
          {"POST", "/sandboxes/i1/exec", "{\"cmd\":\"a\",\"cwd\":\"w\"}", 400, "absolute path", NULL},
          {"POST", "/sandboxes/i1/exec", "{\"cmd\":\"a\",\"env\":{\"A=\":\"\"}}", 400, "holds a", NULL},
          {"POST", "/sandboxes/i1/exec", "{\"cmd\":\"a\",\"env\":[]}", 400, "env must be an object", NULL},
          {"POST", "/sandboxes/ix/exec", "{\"cmd\":\"a\"}", 404, "sandbox ix not found", NULL},
          {"GET", "/sandboxes/i1/explain?url=https%3A%2F%2Fa.org%2F%3Fx%3D1", NULL, 200, "{\"verdict\":\"allow\"}",
           "explain i1 https://a.org/?x=1\n"},
          {"GET", "/sandboxes/i1/explain", NULL, 400, "url is missing", NULL},
          {"GET", "/sandboxes/ix/explain?url=a", NULL, 404, "sandbox ix not found", NULL});
    rig.fail = 500;
    CHECK(&rig, {"POST", "/sandboxes/i1/exec", "{\"cmd\":\"a\"}", 500, "the backend failed", "exec"});
    rig.fail = 0;
    rig.hold = true;
    int fd = rig_connect(&rig);
    static const char request[] = "POST /sandboxes/i1/exec HTTP/1.1\r\nHost: x\r\nx-api-key: " RIG_KEY
                                  "\r\nContent-Length: 11\r\n\r\n{\"cmd\":\"a\"}";
    rig_send(&rig, fd, request, sizeof(request) - 1);
    rig_turn(&rig, 20);
    assert_non_null(rig.held);
    api_exec_end(rig.held, 0, 9, NULL);
    rig_receive(&rig, fd, &reply);
    assert_string_equal(reply.body.data, "{\"exit\":137,\"signal\":9}\n");
    rig_reply_done(&reply);
    rig_send(&rig, fd, request, sizeof(request) - 1); // the connection goes on
    rig_turn(&rig, 20);
    api_exec_end(rig.held, 0, 0, "the sandbox was lost");
    rig_receive(&rig, fd, &reply);
    assert_string_equal(reply.body.data, "{\"error\":\"the sandbox was lost\"}\n");
    rig_reply_done(&reply);
    close(fd);
    rig_done(&rig);
}

static void test_audit(void **state) {
    (void)state;
    struct rig rig;
    rig_init(&rig, NULL);
    rig_add(&rig, "i1", STORE_RUNNING);
    CHECK(&rig, {"POST", "/sandboxes/i1/pause", NULL, 204, NULL, "pause"}, {"GET", "/sandboxes/i1", NULL, 200, "i1", NULL},
          {"POST", "/sandboxes/ix/pause", NULL, 404, "not found", NULL},
          {"GET", "/audit?limit=1", NULL, 200,
           "\"action\":\"POST /sandboxes/{sandboxID}/pause\",\"subject\":\"i1\",\"status\":204}]", NULL},
          {"GET", "/audit", NULL, 200, "\"who\":\"127.0.0.1:", NULL});
    api_stop(rig.api);
    CHECK(&rig, {"DELETE", "/sandboxes/i1", NULL, 503, "orchestrator is shutting down", NULL},
          {"GET", "/sandboxes/i1", NULL, 200, "i1", NULL});
    rig_done(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_node), cmocka_unit_test(test_create_cold), cmocka_unit_test(test_create_warm),
        cmocka_unit_test(test_egress), cmocka_unit_test(test_lists), cmocka_unit_test(test_metadata_filter),
        cmocka_unit_test(test_detail), cmocka_unit_test(test_life), cmocka_unit_test(test_network),
        cmocka_unit_test(test_snapshots), cmocka_unit_test(test_templates), cmocka_unit_test(test_exec),
        cmocka_unit_test(test_audit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
