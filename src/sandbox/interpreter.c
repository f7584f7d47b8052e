// SPDX-License-Identifier: Apache-2.0
#include "sandbox/interpreter.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"

#define SCRIPTS_MAX 5 // interpreters in a row that the kernel follows
#define SEGMENTS_MAX 64

static bool script_interpreter(const char *head, size_t len, char *ret_interpreter) {
    size_t at = 2, used = 0;
    if (len < 2 || memcmp(head, "#!", 2) != 0) return false;
    while (at < len && (head[at] == ' ' || head[at] == '\t')) at++;
    for (; at < len && head[at] && !strchr(" \t\n", head[at]); at++) ret_interpreter[used++] = head[at];
    ret_interpreter[used] = '\0';
    return used > 0;
}

// Of this machine's word size only: the kernel would not look for another one's loader.
static bool program_interpreter(int fd, const char *head, size_t len, char *ret_interpreter) {
    ElfW(Ehdr) header;
    if (len < sizeof(header)) return false;
    memcpy(&header, head, sizeof(header));
    if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_phentsize != sizeof(ElfW(Phdr))) return false;
    for (size_t i = 0; i < header.e_phnum && i < SEGMENTS_MAX; i++) {
        ElfW(Phdr) segment;
        off_t offset = (off_t)(header.e_phoff + i * sizeof(segment));
        if (pread(fd, &segment, sizeof(segment), offset) != (ssize_t)sizeof(segment)) return false;
        if (segment.p_type != PT_INTERP) continue;
        size_t size = segment.p_filesz < INTERPRETER_SIZE ? segment.p_filesz : INTERPRETER_SIZE;
        if (pread(fd, ret_interpreter, size, (off_t)segment.p_offset) != (ssize_t)size || size == 0) return false;
        ret_interpreter[size - 1] = '\0';
        return ret_interpreter[0] != '\0';
    }
    return false;
}

bool interpreter_of(const char *path, char ret_interpreter[INTERPRETER_SIZE]) {
    char head[INTERPRETER_SIZE - 1];
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    ssize_t n = fd < 0 ? -1 : pread(fd, head, sizeof(head), 0);
    if (n <= 0) return false;
    return script_interpreter(head, (size_t)n, ret_interpreter) ||
           program_interpreter(fd, head, (size_t)n, ret_interpreter);
}

bool interpreter_missing_of(const char *path, const struct exposure *exposure, char ret_interpreter[INTERPRETER_SIZE]) {
    char at[INTERPRETER_SIZE];
    for (int i = 0; i < SCRIPTS_MAX; i++) {
        if (!interpreter_of(i == 0 ? path : at, ret_interpreter)) return false;
        AUTO_FREE char *real = realpath(ret_interpreter, NULL);
        if (!real || !exposure_shows(exposure, real)) return true;
        memcpy(at, ret_interpreter, sizeof(at));
    }
    return false;
}
