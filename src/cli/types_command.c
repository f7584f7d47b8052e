// SPDX-License-Identifier: Apache-2.0
// `penstock types`: the capability table, for people and as JSON.
#include <jansson.h>

#include "base/mem.h"
#include "cli/cli.h"
#include "policy/types.h"

#define NETWORK_WORDS 4
static size_t network_words(const struct policy_type_info *info, const char *words[NETWORK_WORDS]) {
    size_t count = 0;
    if (info->none) words[count++] = "none";
    if (info->all) words[count++] = "all";
    if (info->allow) words[count++] = "allow";
    if (info->native) words[count++] = "native";
    return count;
}

static size_t credential_words(const struct policy_type_info *info, const char *words[POLICY_BINDING_COUNT]) {
    size_t count = 0;
    for (size_t i = 0; i < POLICY_BINDING_COUNT; i++)
        if (info->bindings[i]) words[count++] = policy_binding_word((enum policy_binding_kind)i);
    return count;
}

static json_t *json_words(const char *const *words, size_t count) {
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++) json_array_append_new(array, json_string(words[i]));
    return array;
}

static void print_json(void) {
    json_t *rows = json_array();
    for (size_t i = 0; i < POLICY_TYPE_COUNT; i++) {
        const struct policy_type_info *info = policy_type_info((enum policy_type)i);
        const char *networks[NETWORK_WORDS], *credentials[POLICY_BINDING_COUNT];
        size_t network_count = network_words(info, networks), credential_count = credential_words(info, credentials);
        json_array_append_new(rows,
                              json_pack("{s:s,s:s,s:o,s:b,s:o}", "type", info->word, "name", info->display, "network",
                                        json_words(networks, network_count), "cidr", info->cidr != POLICY_CIDR_NO,
                                        "credentials", json_words(credentials, credential_count)));
    }
    json_dumpf(rows, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
    printf("\n");
    json_decref(rows);
}

static const char *join(const char *const *words, size_t count, char text[80]) {
    size_t used = 0;
    snprintf(text, 80, "none");
    for (size_t i = 0; i < count && used < 80; i++)
        used += (size_t)snprintf(text + used, 80 - used, "%s%s", i ? ", " : "", words[i]);
    return text;
}

static void print_row(const struct policy_type_info *info) {
    static const char *const cidr_words[] = {
        [POLICY_CIDR_NO] = "no", [POLICY_CIDR_CUSTOM] = "custom", [POLICY_CIDR_YES] = "yes"};
    const char *words[POLICY_BINDING_COUNT > NETWORK_WORDS ? POLICY_BINDING_COUNT : NETWORK_WORDS];
    char networks[80], credentials[80];
    const char *declared = info->declared ? "as declared" : NULL;
    join(words, network_words(info, words), networks);
    bool all = credential_words(info, words) == POLICY_BINDING_COUNT;
    join(words, credential_words(info, words), credentials);
    printf("%-10s %-27s %-24s %-12s %-34s %s%s\n", info->word, info->display, declared ? declared : networks,
           declared ? declared : cidr_words[info->cidr],
           declared ? declared
           : all    ? "all kinds"
                    : credentials,
           info->runs, info->built ? "" : " (not built yet)");
}

int cli_types(int argc, char **argv) {
    bool json = argc > 1 && strcmp(argv[1], "--json") == 0;
    int known = json ? 2 : 1;
    if (argc > known) return cli_unknown(CLI_INVALID, "types", argv[known]);
    if (json) {
        print_json();
        return CLI_OK;
    }
    printf("%-10s %-27s %-24s %-12s %-34s %s\n", "TYPE", "NAME", "NETWORK", "CIDR EGRESS", "CREDENTIALS", "RUNS");
    for (size_t i = 0; i < POLICY_TYPE_COUNT; i++) print_row(policy_type_info((enum policy_type)i));
    return CLI_OK;
}
