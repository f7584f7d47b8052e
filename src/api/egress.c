// SPDX-License-Identifier: Apache-2.0
// A member that is null counts as absent, as for AgentENV and E2B. `policy` is ours: a policy of any dialect, as an object or
// as a text (YAML or JSON), in place of all the rest. What is neither is left alone at the top of a create, where other
// clients have members that we do not know; but not what is a misspelling of the policy, which would leave a sandbox open.
#include "api/egress.h"

#include <ctype.h>
#include <errno.h>

#include "api/render.h"
#include "base/mem.h"
#include "policy/model.h"

#define SNAKE "allow_internet_access"
#define CAMEL "allowInternetAccess"
static const char *const ingress_fields[] = {"allowPublicTraffic", "maskRequestHost", NULL};

void egress_done(struct egress *egress) {
    if (egress->policy) explicit_bzero(egress->policy, strlen(egress->policy));
    free(egress->policy);
    free(egress->mask_request_host);
    *egress = (struct egress){0};
}

#define PLAIN_SIZE 256 // longer names are nobody's misspelling
#define EDITS_MAX 2

// Letters only, lower case: "AllowOut", "allow_out" are "allowout".
static void plain_key(const char *key, char ret_plain[PLAIN_SIZE]) {
    size_t used = 0;
    for (; *key && used < PLAIN_SIZE - 1; key++)
        if (isalpha((unsigned char)*key)) ret_plain[used++] = (char)tolower((unsigned char)*key);
    ret_plain[used] = '\0';
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

// At most EDITS_MAX letters are changed, left out, put in, or swapped with their neighbour.
static bool is_near(const char *plain, const char *word) {
    enum { MOST = 32 };
    size_t rows[3][MOST], len = strlen(plain), word_len = strlen(word); // the row, the one before, the one before that
    if (word_len >= MOST || len > word_len + EDITS_MAX || word_len > len + EDITS_MAX) return false;
    for (size_t k = 0; k <= word_len; k++) rows[1][k] = rows[2][k] = k;
    for (size_t i = 1; i <= len; i++) {
        rows[0][0] = i;
        for (size_t k = 1; k <= word_len; k++) {
            size_t cost = rows[1][k - 1] + (plain[i - 1] != word[k - 1]);
            cost = least(cost, least(rows[1][k], rows[0][k - 1]) + 1);
            if (i > 1 && k > 1 && plain[i - 1] == word[k - 2] && plain[i - 2] == word[k - 1]) cost = least(cost, rows[2][k - 2] + 1);
            rows[0][k] = cost;
        }
        memcpy(rows[2], rows[1], sizeof(rows[1]));
        memcpy(rows[1], rows[0], sizeof(rows[0]));
    }
    return rows[1][word_len] <= EDITS_MAX;
}

// What an unknown member was probably to be. NULL: anything else.
static const char *meant_by(const char *plain) {
    static const struct {
        const char *word, *part, *meant;
    } members[] = {{"allowinternetaccess", "internet", SNAKE}, {"network", "network", "network"}, {"policy", "polic", "policy"}};
    for (size_t i = 0; i < ARRAY_LENGTH(members); i++)
        if (strstr(plain, members[i].part) || is_near(plain, members[i].word)) return members[i].meant;
    return NULL;
}

static int check_misplaced(json_t *body, struct error *err) {
    static const char *const known[] = {SNAKE, CAMEL, "network", "policy"};
    static const char *const lists[] = {"allowout", "denyout", "egress", "egressproxy", "allowpublictraffic"};
    const char *key;
    json_t *value;
    json_object_foreach(body, key, value) {
        char plain[PLAIN_SIZE];
        bool right = false;
        for (size_t i = 0; i < ARRAY_LENGTH(known); i++) right |= strcmp(key, known[i]) == 0;
        if (right) continue;
        plain_key(key, plain);
        const char *meant = meant_by(plain);
        if (meant) return error_set(err, -EINVAL, "unknown field \"%.64s\"; did you mean \"%s\"?", key, meant);
        for (size_t i = 0; i < ARRAY_LENGTH(lists); i++)
            if (strcmp(plain, lists[i]) == 0)
                return error_set(err, -EINVAL, "unknown field \"%s\"; it belongs into \"network\"", key);
    }
    return 0;
}

// A copy without members that are null, and without those in skip (NULL-terminated).
static json_t *copy_members(json_t *object, const char *const *skip) {
    json_t *copy = json_object(), *value;
    const char *key;
    if (!copy) return NULL;
    json_object_foreach(object, key, value) {
        bool skipped = json_is_null(value);
        for (size_t i = 0; skip[i]; i++) skipped |= strcmp(key, skip[i]) == 0;
        if (!skipped && json_object_set(copy, key, value) < 0) {
            json_decref(copy);
            return NULL;
        }
    }
    return copy;
}

// False: out of memory. What is lost here would open a sandbox.
static bool set_present(json_t *object, const char *key, json_t *value) {
    return !value || json_is_null(value) || json_object_set(object, key, value) == 0;
}

// What the policy room reads: {"network": ..., the switch}. Takes network. NULL: out of memory.
static json_t *make_whole(json_t *network, json_t *body) {
    json_t *whole = json_object();
    bool good = json_object_set_new(whole, "network", network) == 0; // with NULL, too, it fails
    good = good && set_present(whole, SNAKE, json_object_get(body, SNAKE));
    good = good && set_present(whole, CAMEL, json_object_get(body, CAMEL));
    if (good) return whole;
    json_decref(whole);
    return NULL;
}

// ---- reading and compiling ----

static void add_warnings(struct api_call *call, const struct policy_warnings *warnings) {
    for (size_t i = 0; i < warnings->count && i < API_WARNINGS_MAX; i++)
        call_header(call, "x-penstock-warning", "%s", warnings->lines[i]);
    if (warnings->count > API_WARNINGS_MAX)
        call_header(call, "x-penstock-warning", "and %zu more", warnings->count + warnings->more - API_WARNINGS_MAX);
}

static int compile(const struct api *api, struct api_call *call, struct policy_model *model, enum policy_type type,
                   struct error *err) {
    struct policy *policy = NULL;
    struct policy_warnings warnings = {0};
    int r = policy_model_set_type(model, type, err);
    if (r == 0) r = policy_check_type(model, type, err);
    if (r == 0) r = policy_bind_workspace(model, api->options.node, err);
    if (r == 0) r = policy_compile(model, api->options.node, NULL, 0, 1, &policy, &warnings, err);
    if (r == 0) add_warnings(call, &warnings);
    policy_free(policy);
    policy_warnings_done(&warnings);
    return r;
}

// Takes ingress settings from the model, too.
static int check(const struct api *api, struct api_call *call, const char *text, size_t len, enum policy_type type,
                 struct egress *egress, struct error *err) {
    struct policy_model *model = NULL;
    int r = policy_read(text, len, NULL, egress->dialect, &model, err);
    if (r == 0) r = compile(api, call, model, type, err);
    if (r == 0) {
        egress->dialect = model->dialect;
        egress->allow_public_traffic = model->dialect != POLICY_DIALECT_E2B || model->allow_public_traffic;
        egress->mask_request_host = TAKE_POINTER(model->mask_request_host);
    }
    policy_model_free(model);
    return r;
}

static int no_memory(struct error *err) { return error_set(err, -ENOMEM, "out of memory"); }

static void free_text(char **text) {
    if (*text) explicit_bzero(*text, strlen(*text));
    free(*text);
}

// E2B: whole is what is checked, network what is kept of it.
static int read_e2b(const struct api *api, struct api_call *call, json_t *whole, enum policy_type type,
                    struct egress *egress, struct error *err) {
    CLEANUP(free_text) char *text = render_dump(whole);
    if (!text) return no_memory(err);
    egress->dialect = POLICY_DIALECT_E2B;
    int r = check(api, call, text, strlen(text), type, egress, err);
    if (r < 0) return r;
    json_t *camel = json_object_get(whole, CAMEL); // equal to the other, where both are there
    if (!set_present(whole, SNAKE, camel)) return no_memory(err);
    json_object_del(whole, CAMEL);
    json_t *kept = copy_members(json_object_get(whole, "network"), ingress_fields);
    if (kept && json_object_set_new(whole, "network", kept) == 0) egress->policy = render_dump(whole);
    return egress->policy ? 0 : no_memory(err);
}

static int read_policy(const struct api *api, struct api_call *call, json_t *policy, enum policy_type type,
                       struct egress *egress, struct error *err) {
    if (!json_is_object(policy) && !json_is_string(policy))
        return error_set(err, -EINVAL, "policy must be an object, or a text of YAML or JSON");
    egress->policy = json_is_string(policy) ? strdup(json_string_value(policy)) : render_dump(policy);
    if (!egress->policy) return no_memory(err);
    egress->dialect = POLICY_DIALECT_AUTO;
    return check(api, call, egress->policy, strlen(egress->policy), type, egress, err);
}

static int finish(int r, struct egress *egress, struct egress *ret_egress) {
    if (r < 0)
        egress_done(egress);
    else
        *ret_egress = *egress;
    return r;
}

int egress_create(const struct api *api, struct api_call *call, json_t *body, enum policy_type type,
                  struct egress *ret_egress, struct error *err) {
    static const char *const none[] = {NULL};
    struct egress egress = {0};
    json_t *network = json_object_get(body, "network"), *policy = json_object_get(body, "policy");
    json_t *snake = json_object_get(body, SNAKE), *camel = json_object_get(body, CAMEL);
    bool said = (network && !json_is_null(network)) || (snake && !json_is_null(snake)) || (camel && !json_is_null(camel));
    int r = check_misplaced(body, err);
    if (r < 0) return r;
    if (policy && !json_is_null(policy)) {
        if (said) return error_set(err, -EINVAL, "policy and network (or " SNAKE ") are both given; keep one");
        return finish(read_policy(api, call, policy, type, &egress, err), &egress, ret_egress);
    }
    if (!network || json_is_null(network))
        network = json_object();
    else if (json_is_object(network))
        network = copy_members(network, none);
    else
        json_incref(network); // refused by the reader
    json_t *whole = make_whole(network, body);
    r = read_e2b(api, call, whole, type, &egress, err);
    json_decref(whole);
    return finish(r, &egress, ret_egress);
}

// Of an update, whose body is the network with two members more.
static int check_unknown(json_t *body, struct error *err) {
    static const char *const known[] = {"denyOut", "allowOut", "rules", SNAKE, CAMEL, "policy", "allowPublicTraffic", "maskRequestHost",
                                        "egressProxy", "httpsPorts"};
    const char *key;
    json_t *value;
    json_object_foreach(body, key, value) {
        char plain[PLAIN_SIZE], word[PLAIN_SIZE];
        const char *meant = NULL;
        bool right = false;
        plain_key(key, plain);
        for (size_t i = 0; i < ARRAY_LENGTH(known); i++) {
            right |= strcmp(key, known[i]) == 0;
            plain_key(known[i], word);
            if (!meant && is_near(plain, word)) meant = known[i];
        }
        if (right) continue;
        if (meant) return error_set(err, -EINVAL, "unknown key \"%.64s\" in network; did you mean \"%s\"?", key, meant);
        return error_set(err, -EINVAL, "unknown key \"%.64s\" in network; the keys are: denyOut, allowOut, rules, " SNAKE
                         "; or policy alone", key);
    }
    return 0;
}

static int refuse_ingress(const char *field, struct error *err) {
    return error_set(err, -EINVAL, "%s cannot be changed by an update; it is set when a sandbox is created", field);
}

int egress_update(const struct api *api, struct api_call *call, json_t *body, enum policy_type type,
                  struct egress *ret_egress, struct error *err) {
    static const char *const apart[] = {SNAKE, CAMEL, NULL};
    struct egress egress = {0};
    json_t *policy = json_object_get(body, "policy");
    for (size_t i = 0; ingress_fields[i]; i++)
        if (json_object_get(body, ingress_fields[i]))
            return refuse_ingress(ingress_fields[i], err);
    if (policy && !json_is_null(policy)) {
        if (json_object_size(body) > 1) return error_set(err, -EINVAL, "policy stands alone; leave the other fields out");
        int r = read_policy(api, call, policy, type, &egress, err);
        if (r == 0 && (!egress.allow_public_traffic || egress.mask_request_host)) r = refuse_ingress(ingress_fields[0], err);
        return finish(r, &egress, ret_egress);
    }
    int unknown = check_unknown(body, err);
    if (unknown < 0) return unknown;
    json_t *whole = make_whole(copy_members(body, apart), body);
    int r = read_e2b(api, call, whole, type, &egress, err);
    json_decref(whole);
    return finish(r, &egress, ret_egress);
}
