// SPDX-License-Identifier: Apache-2.0
// What a decision costs with 1,000 and with 10,000 names and as many address ranges, as a ratio to one with 10 of each. The
// requests of all are of the same kinds and spread over all entries. The best of several rounds counts: noise only adds.
#include <inttypes.h>

#include "base/clock.h"
#include "base/mem.h"
#include "policy/model.h"

#define ROUNDS 15
#define DECISIONS 200000
#define REQUESTS 1024

struct set {
    struct policy *policy;
    struct policy_request requests[REQUESTS];
    struct addr addresses[REQUESTS];
    char names[REQUESTS][NAME_SIZE];
};

static uint32_t roll(uint32_t below) {
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((state >> 33) % below);
}

static void die(const char *what) {
    fprintf(stderr, "verdict_cost: %s\n", what);
    exit(1);
}

// Public /24 networks, none of them in a special block, and every fourth one nested in the one before.
static struct addr_prefix range(uint32_t index) {
    uint32_t base = 0x14000000u + (index / 4 * 4 + (index % 4 == 3 ? 2 : index % 4)) * 0x100u;
    return (struct addr_prefix){.addr = addr_ipv4(base), .length = index % 4 == 3 ? 28 : 24};
}

static void entry_name(uint32_t index, char *name) {
    snprintf(name, NAME_SIZE, "host-%u.region-%u.example.com", index, index % 7);
}

static struct policy *compile(uint32_t count) {
    struct policy_model *model = policy_model_new(POLICY_DIALECT_NATIVE);
    struct policy *policy = NULL;
    struct error err = {0};
    if (!model) die("out of memory");
    model->allow_count = 2 * (size_t)count;
    model->allow = NEW_ARRAY(struct policy_entry, model->allow_count);
    if (!model->allow) die("out of memory");
    for (uint32_t i = 0; i < count; i++) {
        struct policy_entry *name = &model->allow[i], *cidr = &model->allow[count + i];
        name->kind = i % 10 == 9 ? POLICY_ENTRY_WILDCARD : POLICY_ENTRY_NAME;
        name->protocol = POLICY_ENTRY_HTTPS;
        entry_name(i, name->name);
        name->source = strdup("--allow");
        cidr->kind = POLICY_ENTRY_CIDR;
        cidr->protocol = POLICY_ENTRY_ANY;
        cidr->prefix = range(i);
        cidr->source = strdup("--allow-cidr");
    }
    uint64_t start = clock_us();
    if (policy_compile(model, NULL, NULL, 0, 1, &policy, NULL, &err) != 0) die(err.text);
    size_t size;
    policy_block(policy, &size);
    printf("  compile %u names and %u ranges: %" PRIu64 " us, %zu bytes\n", count, count, clock_us() - start, size);
    policy_model_free(model);
    return policy;
}

// A third each: a listed name with an answer, an unlisted name, a literal address in or beside a range.
static void fill(struct set *set, uint32_t count) {
    set->policy = compile(count);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        struct policy_request *request = &set->requests[i];
        *request = (struct policy_request){.protocol = POLICY_TCP, .app = POLICY_APP_TLS, .port = 443};
        struct addr_prefix prefix = range(roll(count));
        set->addresses[i] = prefix.addr;
        set->addresses[i].bytes[3] = (uint8_t)roll(256);
        request->address = &set->addresses[i];
        if (i % 3 == 2) continue;
        entry_name(i % 3 == 0 ? roll(count) : 1000000 + roll(count), set->names[i]);
        request->dialled = set->names[i];
    }
}

static double round_ns(const struct set *set) {
    unsigned sum = 0;
    uint64_t start = clock_us();
    for (uint32_t i = 0; i < DECISIONS; i++) sum += policy_decide(set->policy, &set->requests[i % REQUESTS]).verdict;
    uint64_t end = clock_us();
    if (sum == UINT32_MAX) die("impossible"); // the sum is used, so the loop stays
    return (double)(end - start) * 1000.0 / DECISIONS;
}

static const struct {
    uint32_t entries;
    double target; // of the ratio to the first
} sizes[] = {{10, 1}, {1000, 3}, {10000, 4}};

int main(void) {
    static struct set sets[ARRAY_LENGTH(sizes)];
    double best[ARRAY_LENGTH(sizes)];
    for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
        fill(&sets[i], sizes[i].entries);
        best[i] = 1e9;
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
            double cost = round_ns(&sets[i]);
            if (cost < best[i]) best[i] = cost;
        }
    }
    for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
        double ratio = best[i] / best[0];
        printf("  decide with %u entries: %.0f ns\n", 2 * sizes[i].entries, best[i]);
        if (i > 0) printf("ratio decide_%u_to_10 %.2f target <= %g %s\n", sizes[i].entries, ratio, sizes[i].target,
                          ratio <= sizes[i].target ? "ok" : "short");
        policy_free(sets[i].policy);
    }
    return 0;
}
