// SPDX-License-Identifier: Apache-2.0
// The program: an internal role if it was re-executed as one, else a command of the table.
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <unistd.h>

#include "cli/cli.h"
#include "daemon/daemon.h"

int main(int argc, char **argv);

// Descriptors 0 to 2 that the caller closed would be taken by our own files, and be handed to the command. Nothing can be written
// to them, so that who names one of them learns it.
static void standard_descriptors(void) {
    int fd;
    do {
        fd = open("/dev/null", O_RDONLY);
    } while (fd >= 0 && fd <= 2);
    if (fd > 2) close(fd);
}

int main(int argc, char **argv) {
    int status;
    standard_descriptors();
    signal(SIGXFSZ, SIG_IGN); // a file that is too large is an error like others
    if (daemon_role(argc, argv, &status)) return status;
    return cli_main(argc, argv);
}
