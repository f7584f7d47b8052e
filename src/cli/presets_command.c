// SPDX-License-Identifier: Apache-2.0
// `penstock presets`: the lists behind --allow @PRESET.
#include <jansson.h>

#include "base/mem.h"
#include "cli/cli.h"
#include "policy/preset.h"

static json_t *json_preset(const struct policy_preset *preset) {
    json_t *hosts = json_array();
    for (size_t i = 0; preset->hosts[i]; i++) json_array_append_new(hosts, json_string(preset->hosts[i]));
    return json_pack("{s:s,s:s,s:o}", "name", preset->name, "summary", preset->summary, "hosts", hosts);
}

static void print_json(const struct policy_preset *presets, size_t count) {
    json_t *rows = json_array();
    for (size_t i = 0; i < count; i++) json_array_append_new(rows, json_preset(&presets[i]));
    json_dumpf(rows, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
    printf("\n");
    json_decref(rows);
}

static void print_hosts(const struct policy_preset *preset, const char *indent) {
    for (size_t i = 0; preset->hosts[i]; i++) printf("%s%s\n", indent, preset->hosts[i]);
}

int cli_presets(int argc, char **argv) {
    const char *name = NULL;
    bool json = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            json = true;
        else if (argv[i][0] == '-' || name)
            return cli_unknown(CLI_INVALID, "presets", argv[i]);
        else
            name = argv[i];
    }
    size_t count;
    const struct policy_preset *presets = policy_presets(&count);
    struct error err = {0};
    if (name && policy_preset_find(name, &presets, &err) < 0) return cli_fail(CLI_INVALID, &err);
    if (name) count = 1;
    if (json) {
        print_json(presets, count);
        return CLI_OK;
    }
    if (name) print_hosts(presets, "");
    for (size_t i = 0; !name && i < count; i++) {
        printf("@%s: %s\n", presets[i].name, presets[i].summary);
        print_hosts(&presets[i], "    ");
    }
    return CLI_OK;
}
