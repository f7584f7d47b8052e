// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "sandbox/container_plan.h"

static void add_list(struct buf *text, char *const *list) {
    for (; list && *list; list++) buf_append(text, *list, strlen(*list) + 1);
}

int container_words_write(int fd, bool tied, char *const *argv, char *const *environment) {
    struct buf text = BUF_INIT;
    size_t count = 0;
    while (argv && argv[count]) count++;
    buf_printf(&text, "%s%zu", tied ? "+" : "", count);
    buf_append(&text, "", 1);
    add_list(&text, argv);
    add_list(&text, environment);
    int r = text.failed ? -ENOMEM : 0;
    for (size_t done = 0; r == 0 && done < text.len;) {
        ssize_t n = write(fd, text.data + done, text.len - done);
        if (n < 0) r = -errno;
        else done += (size_t)n;
    }
    buf_done(&text);
    return r;
}
