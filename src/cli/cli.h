// SPDX-License-Identifier: Apache-2.0
// The table of sub-commands and what they share.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

enum cli_exit { CLI_OK = 0, CLI_DENIED = 1, CLI_INVALID = 2, CLI_RUN_ERROR = 125, CLI_CANNOT_EXECUTE = 126, CLI_NOT_FOUND = 127 };

struct cli_command {
    const char *name;
    int (*run)(int argc, char **argv); // argv[0] is the command's name
    const char *summary; // one line for `penstock help`
    const char *usage;   // "run [POLICY] [OPTION]... -- CMD..."
    const char *help;    // the options, for `penstock COMMAND --help`
};
const struct cli_command *cli_command_find(const char *name);

// Dispatches argv by the table; the exit status. "penstock", "help", "--help", "--version" are handled here.
int cli_main(int argc, char **argv);
// For what is wrong with the command line: one line with a hint at --help. Returns status.
int cli_usage_error(int status, const char *command, const char *format, ...) __attribute__((format(printf, 3, 4)));

// The same for a word of the command line that nobody knows.
int cli_unknown(int status, const char *command, const char *word);

int cli_run(int argc, char **argv);
int cli_check(int argc, char **argv);
int cli_types(int argc, char **argv);
int cli_presets(int argc, char **argv);
int cli_secret(int argc, char **argv);
int cli_ca(int argc, char **argv);
int cli_doctor(int argc, char **argv);
int cli_self_test(int argc, char **argv);
int cli_serve(int argc, char **argv);
int cli_node(int argc, char **argv); // ps create exec update log explain rm template snapshot

// "penstock: ..." on standard error. Returns status.
int cli_fail(int status, const struct error *err);
