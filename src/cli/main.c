// SPDX-License-Identifier: Apache-2.0
// The program: an internal role if it was re-executed as one, else a command of the table.
#include "cli/cli.h"
#include "daemon/daemon.h"

int main(int argc, char **argv);

int main(int argc, char **argv) {
    int status;
    if (daemon_role(argc, argv, &status)) return status;
    return cli_main(argc, argv);
}
