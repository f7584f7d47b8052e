// SPDX-License-Identifier: Apache-2.0
// The program: an internal role if it was re-executed as one, else a command of the table.
#include <fcntl.h>
#include <stdbool.h>
#include <unistd.h>

#include "cli/cli.h"
#include "daemon/daemon.h"

int main(int argc, char **argv);

// Descriptors 0 to 2 that the caller closed would be taken by our own files, and be handed to the command.
static void standard_descriptors(void) {
    int fd;
    do {
        fd = open("/dev/null", O_RDWR);
    } while (fd >= 0 && fd <= 2);
    if (fd > 2) close(fd);
}

int main(int argc, char **argv) {
    int status;
    standard_descriptors();
    if (daemon_role(argc, argv, &status)) return status;
    return cli_main(argc, argv);
}
