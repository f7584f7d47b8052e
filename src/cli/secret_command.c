// SPDX-License-Identifier: Apache-2.0
// `penstock secret set|ls|rm`: the value comes from standard input only, and is wiped from this process's memory.
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <termios.h>

#include "base/mem.h"
#include "cli/cli.h"
#include "vault/vault.h"

#define VALUE_MAX 65536

enum { SECRET_FAILED = 1 };

static char secret_value[VALUE_MAX];

// A terminal must not be left without its echo by Ctrl-C: the signal comes only while we wait for input, ends that, and
// us after the echo is back.
static volatile sig_atomic_t secret_signal;

static void note_signal(int number) { secret_signal = number; }

static void hold_signals(sigset_t *ret_before) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGQUIT, SIGHUP};
    struct sigaction action = {.sa_handler = note_signal, .sa_flags = (int)SA_RESETHAND};
    sigset_t held;
    sigemptyset(&held);
    for (size_t i = 0; i < ARRAY_LENGTH(numbers); i++) {
        sigaction(numbers[i], &action, NULL);
        sigaddset(&held, numbers[i]);
    }
    signal(SIGTSTP, SIG_IGN);
    sigprocmask(SIG_BLOCK, &held, ret_before);
}

// A terminal does not show what is typed; of one, a line is read.
static bool echo_off(struct termios *ret_before) {
    struct termios quiet;
    if (tcgetattr(STDIN_FILENO, ret_before) < 0) return false;
    quiet = *ret_before;
    quiet.c_lflag &= ~(tcflag_t)ECHO;
    return tcsetattr(STDIN_FILENO, TCSAFLUSH, &quiet) == 0;
}

// Length, or negative errno. line: of a terminal, with the signals that may end the wait.
static ssize_t read_value(bool line, const sigset_t *signals) {
    size_t len = 0;
    while (len < sizeof(secret_value)) {
        struct pollfd item = {.fd = STDIN_FILENO, .events = POLLIN};
        if (line && ppoll(&item, 1, NULL, signals) < 0 && secret_signal) return -EINTR;
        ssize_t got = read(STDIN_FILENO, secret_value + len, sizeof(secret_value) - len);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -errno;
        len += (size_t)got;
        if (got == 0 || (line && len > 0 && secret_value[len - 1] == '\n')) {
            if (len > 0 && secret_value[len - 1] == '\n') len--;
            if (len > 0 && secret_value[len - 1] == '\r') len--;
            return (ssize_t)len;
        }
    }
    return -EFBIG;
}

static ssize_t ask_value(const char *name) {
    struct termios before;
    sigset_t signals;
    bool terminal = isatty(STDIN_FILENO) == 1;
    if (!terminal) return read_value(false, NULL);
    hold_signals(&signals);
    if (!echo_off(&before)) return -EIO;
    fprintf(stderr, "Value of %s (not shown): ", name);
    ssize_t len = read_value(true, &signals);
    tcsetattr(STDIN_FILENO, TCSAFLUSH, &before);
    fprintf(stderr, "\n");
    if (secret_signal) raise(secret_signal);
    sigprocmask(SIG_SETMASK, &signals, NULL);
    return len;
}

static int secret_set(const char *name) {
    struct error err = {0};
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    prctl(PR_SET_DUMPABLE, 0);
    ssize_t len = ask_value(name);
    int r = len < 0 ? error_set(&err, (int)len,
                                "cannot read the secret from standard input: %s; write it there, as in: "
                                "penstock secret set %.64s < FILE",
                                strerror((int)-len), name)
                    : vault_secret_set(name, secret_value, (size_t)len, &err);
    explicit_bzero(secret_value, sizeof(secret_value));
    return r < 0 ? cli_fail(r == -EINVAL ? CLI_INVALID : SECRET_FAILED, &err) : CLI_OK;
}

static int secret_remove(const char *name) {
    struct error err = {0};
    int r = vault_secret_remove(name, &err);
    return r < 0 ? cli_fail(r == -EINVAL ? CLI_INVALID : SECRET_FAILED, &err) : CLI_OK;
}

static int secret_list(const char *name) {
    struct error err = {0};
    char **names;
    size_t count;
    (void)name;
    if (vault_secret_list(&names, &count, &err) < 0) return cli_fail(SECRET_FAILED, &err);
    for (size_t i = 0; i < count; i++) printf("%s\n", names[i]);
    vault_secret_list_free(names, count);
    return CLI_OK;
}

static const struct {
    const char *word;
    int arguments;
    int (*run)(const char *name);
} secret_actions[] = {{"set", 1, secret_set}, {"ls", 0, secret_list}, {"rm", 1, secret_remove}};

int cli_secret(int argc, char **argv) {
    for (size_t i = 0; argc > 1 && i < ARRAY_LENGTH(secret_actions); i++) {
        if (strcmp(argv[1], secret_actions[i].word) != 0) continue;
        int given = argc - 2;
        if (given < secret_actions[i].arguments)
            return cli_usage_error(CLI_INVALID, "secret", "%s needs a NAME", argv[1]);
        // What was given too much may be the value itself: it is not shown.
        if (given > secret_actions[i].arguments)
            return cli_usage_error(CLI_INVALID, "secret", "%s takes %s; a value goes to standard input", argv[1],
                                   secret_actions[i].arguments ? "one NAME" : "no argument");
        return secret_actions[i].run(given ? argv[2] : NULL);
    }
    if (argc < 2) return cli_usage_error(CLI_INVALID, "secret", "say what to do: set, ls or rm");
    return cli_unknown(CLI_INVALID, "secret", argv[1]);
}
