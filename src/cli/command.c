// SPDX-License-Identifier: Apache-2.0
// The table of commands: one row gives dispatch, the list of `penstock help` and the text of `penstock COMMAND --help`.
#include "cli/cli.h"

#include <errno.h>
#include <stdarg.h>

#include "base/mem.h"
#include "policy/model.h"

#define POLICY_HELP                                                                                                    \
    "POLICY is one of:\n"                                                                                              \
    "  --policy FILE            a policy file, YAML or JSON (\"-\": standard input); stands alone\n"                   \
    "  --network none|all       no connection (the default), or every one to a public address\n"                       \
    "  --allow HOST[:PORT]      HTTPS to a host, an address or *.domain; on 443, or on PORT\n"                         \
    "  --allow @PRESET          HTTPS to each host of a list, such as @python; `penstock presets` prints them\n"       \
    "  --allow-cidr CIDR        TCP and UDP to an address or range, private ones too\n"                                \
    "  --deny-cidr CIDR         no connection to an address or range that no --allow-cidr covers\n"                    \
    "  --allow-private          names and --network all may lead to private addresses\n"                               \
    "  --bind BINDING[=SECRET]  add a credential: github[:REPO,...], mistral_api, workspace,\n"                        \
    "                           header:HOST:NAME[:TEMPLATE], basic:HOST:USER;\n"                            \
    "                           SECRET: env:NAME, file:PATH, cmd:COMMAND, store:NAME\n"                                \
    "and with either:\n"                                                                                               \
    "  --dialect D              of FILE: network, e2b or native (default: what the file says)\n"                       \
    "  --type TYPE              sandbox type, see `penstock types` (default: process)\n"                               \
    "  --node-config FILE       the operator's guardrails, see `penstock help config`\n"

#define NODE_JSON_HELP "  --json                   print JSON\n" NODE_HELP
#define NODE_HELP \
    "  --print-api              print the call of the REST API, and do not make it\n"                                    \
    "\nThe node is PENSTOCK_API_URL (default: http://127.0.0.1:8000), its key PENSTOCK_API_KEY or, on the same machine, its own.\n"
#define NODE_POLICY_HELP \
    "  --policy FILE            the policy, native or of the other dialects (\"-\": standard input); stands alone\n"      \
    "  --network none|all, --allow HOST[:PORT]|@PRESET, --allow-cidr CIDR, --deny-cidr CIDR\n"                           \
    "                           as of `penstock run`, like --allow-private; credentials (--bind there) only in a FILE\n"

static const struct cli_command cli_commands[] = {
    {"run", cli_run, "run a command that reaches exactly what its policy says", 
     "run [POLICY] [OPTION]... -- CMD...\n       penstock run --type bashkit [POLICY] [OPTION]... -- 'SCRIPT TEXT'\n"
     "       penstock run --type container|mistral --image IMAGE [POLICY] [OPTION]... [-- CMD...]", POLICY_HELP
     "\nOptions:\n"
     "  --dns ADDR[:PORT]        upstream DNS server, also [ADDR6]:PORT; repeatable (default: the host's)\n"
     "  --read PATH              the command may read PATH; repeatable\n"
     "  --write PATH             the command may read and write PATH; repeatable\n"
     "  --log FILE|fd:N          one JSON line per decision and per finished flow\n"
     "  --learn FILE             let everything public through, and write to FILE (which must not exist) the smallest\n"
     "                           policy that allows what CMD did; the log says what POLICY would have refused\n"
     "  --proxy                  offer an HTTP and a SOCKS5 proxy inside too, for tools that insist on one, and point\n"
     "                           HTTP_PROXY and its like to them; the policy is the same\n"
     "  --upstream-ca FILE       certificates (PEM) that servers of hosts with a credential may have theirs from, beside\n"
     "                           the system's\n"
     "  --quiet                  no warnings, and no summary of refused destinations at the end\n"
     "\nOptions of the types container and mistral (which have no --read and --write):\n"
     "  --image IMAGE            NAME[:TAG], docker://HOST/NAME[:TAG], oci:FOLDER[:TAG], docker-archive:FILE\n"
     "  --memory SIZE            at most so much, as 512m or 2g\n"
     "  --cpus N, --pids N       at most so many CPUs, as 1.5; processes\n"
     "  --env NAME[=VALUE]       a variable, with your own value if there is none here; repeatable\n"
     "  --user USER[:GROUP]      a name or number of the image (default: what the image says)\n"
     "  --workdir PATH           working directory inside (default: what the image says)\n"
     "\nExit status: that of CMD, 128+N if signal N ended it, 125 for errors of penstock itself, 126 if CMD cannot be\n"
     "executed, 127 if it is not found.\n"},
    {"check", cli_check, "check a policy, or what it says about one request",
     "check [POLICY] [--resolved ADDR]... [--json] [REQUEST]\n       penstock check --cases FILE",
     "REQUEST is https://HOST[:PORT]/..., http://..., tcp://HOST:PORT, udp://HOST:PORT, icmp://ADDR or dns://NAME.\n"
     "Without it the policy is validated and printed as compiled, each rule with its source.\n\n" POLICY_HELP
     "\nOptions:\n"
     "  --resolved ADDR          what HOST resolves to; repeatable. Without it a name is judged alone\n"
     "  --json                   print JSON\n"
     "  --cases FILE             run conformance cases, one JSON object a line (\"-\": standard input)\n"
     "\nAddresses of this host are taken to be loopback and own_addresses of --node-config only, so that the answer "
     "is\n"
     "the same on every machine; a running sandbox also knows the host's routing table.\n"
     "\nExit status: 0 allowed or valid, 1 denied (or a case failed), 2 invalid, with one line on standard error.\n"},
    {"doctor", cli_doctor, "try each mechanism that a sandbox needs; say what is missing and how to mend it", "doctor [--json]",
     "  --json                   print JSON\n"
     "\nExit status: 0 if `penstock run` works here (there may be warnings), 1 if it cannot.\n"},
    {"self-test", cli_self_test, "try to escape from real sandboxes on this machine", "self-test [--json] [--keep-going]",
     "  --json                   print JSON\n"
     "  --keep-going             do not stop at the first failure\n"
     "\nEach attempt is made inside a sandbox of this machine, against servers that the test itself starts on this host.\n"
     "Needs no Internet and takes less than a minute.\n"
     "\nExit status: 0 if every attempt failed to escape, 1 otherwise.\n"},
    {"presets", cli_presets, "print the presets of --allow @PRESET, or the hosts of one", "presets [NAME] [--json]",
     "  --json                   print JSON\n"
     "\nA preset opens HTTPS on 443 to each of its hosts, nothing else. With NAME its hosts are printed, one a line.\n"},
    {"secret", cli_secret, "keep secrets for credential bindings (store:NAME), encrypted at rest",
     "secret set NAME\n       penstock secret ls\n       penstock secret rm NAME",
     "set NAME reads the value from standard input, never from the command line, without showing it; one end of line at "
     "its\nend is not part of it. NAME is 1 to 64 letters, digits, '_', '-' or '.'. A running sandbox uses the new value "
     "from\nits next request on; after rm its requests to the bound host fail.\n"
     "\nExit status: 0, 1 if there is no such secret or it could not be kept, 2 for wrong arguments.\n"},
    {"ca", cli_ca, "the certificate authority that signs for bound hosts inside sandboxes",
     "ca export [FILE]\n       penstock ca install",
     "export prints its certificate (PEM), or writes it to FILE, which must not exist; install makes this system trust\n"
     "it (as root, on Debian and its relatives), which sandboxes of `penstock run` do not need. Each user has a CA of "
     "its own,\nmade on first use.\n"
     "\nExit status: 0, 1 if it failed, 2 for wrong arguments.\n"},
    {"serve", cli_serve, "run a node: sandboxes behind a REST API", "serve [OPTION]...",
     "  --config FILE            the node's configuration, see `penstock help config`; read again on SIGHUP\n"
     "  --listen ADDR:PORT       address of the API, also [ADDR6]:PORT (default: 127.0.0.1:8000)\n"
     "  --state DIR              where sandboxes, images and the store are kept (default: /var/lib/penstock/node)\n"
     "  --dns ADDR[:PORT]        upstream DNS server of sandboxes, also [ADDR6]:PORT; repeatable (default: the host's)\n"
     "  --upstream-ca FILE       certificates (PEM) that servers of hosts with a credential may have theirs from, beside\n"
     "                           the system's\n"
     "  --check-config           only say whether the configuration is valid\n"
     "\nThe API key is PENSTOCK_API_KEY, else AENV_API_KEY, else /run/secrets/api-key, else the file api-key in the state\n"
     "folder, which is made. Sandboxes outlive the daemon; the next one finds them again.\n"
     "\nExit status: 0 when a signal ended it, 1 if it could not start, 2 for wrong arguments.\n"},
    {"create", cli_node, "make a sandbox on a node", "create [OPTION]... IMAGE\n       penstock create [OPTION]... --template NAME",
     NODE_POLICY_HELP
     "  --type container|mistral the sandbox's type (default: container)\n"
     "  --env NAME=VALUE         variable of its commands; repeatable\n"
     "  --metadata NAME=VALUE    to find it by; repeatable\n"
     "  --timeout SECONDS        when it ends by itself (default: never)\n"
     "  --memory SIZE, --cpus N  what it may use: MiB, or such as 512m or 2g; whole CPUs\n"
     NODE_JSON_HELP "\nThe image's own command is not run: commands are run by `penstock exec`, and by a template's --start.\n"},
    {"ps", cli_node, "list the sandboxes of a node", "ps [--json]", NODE_JSON_HELP},
    {"exec", cli_node, "run a command in a sandbox of a node", "exec [OPTION]... SANDBOX -- CMD...",
     "  --env NAME=VALUE         variable of the command; repeatable\n"
     "  --cwd PATH, --user USER  where, and as whom\n"
     "  -i, --stdin              give it standard input, which is read to its end first: text, at most 1 MiB (else: none)\n" NODE_HELP
     "\nExit status: that of CMD, 128+N if signal N ended it, 125 if it could not be run, 2 for wrong arguments.\n"},
    {"update", cli_node, "give a running sandbox of a node another policy", "update [POLICY] [--existing keep] SANDBOX",
     NODE_POLICY_HELP
     "  --existing keep          connections that the new policy does not allow stay open\n"
     "  --type mistral           the sandbox is of that type, and so are --network and the like\n" NODE_HELP},
    {"log", cli_node, "print what a sandbox of a node did", "log [--denied] [--follow] SANDBOX",
     "  --denied                 only what was refused\n"
     "  --follow                 go on as it happens\n" NODE_HELP},
    {"explain", cli_node, "say what a sandbox's policy makes of a request", "explain [--json] SANDBOX URL",
     NODE_JSON_HELP "\nExit status: 0 allowed, 1 denied, 2 if it cannot be said.\n"},
    {"rm", cli_node, "end sandboxes of a node", "rm SANDBOX...\n       penstock rm --all", NODE_HELP},
    {"template", cli_node, "make, list and remove templates of a node",
     "template create --name NAME [POLICY] [OPTION]... IMAGE\n       penstock template ls\n       penstock template rm NAME...",
     NODE_POLICY_HELP "                           (default: the node's base; it holds for what --run and --start do in the build)\n"
     "  --run COMMAND            run it in the shell of the image; repeatable\n"
     "  --start COMMAND          each sandbox of the template runs it when it starts\n"
     "  --ready COMMAND          run the start command in the build too, and wait until this one succeeds\n"
     "  --memory SIZE, --cpus N  what sandboxes of the template may use, as of `penstock create`\n" NODE_JSON_HELP},
    {"snapshot", cli_node, "keep the files of a sandbox to start others from",
     "snapshot [--name NAME] SANDBOX\n       penstock snapshot ls\n       penstock snapshot rm NAME...", NODE_JSON_HELP},
    {"types", cli_types, "list the sandbox types and what each can enforce", "types [--json]",
     "  --json                   print JSON\n"},
};

const struct cli_command *cli_command_find(const char *name) {
    for (size_t i = 0; i < ARRAY_LENGTH(cli_commands); i++)
        if (strcmp(cli_commands[i].name, name) == 0) return &cli_commands[i];
    return NULL;
}

int cli_fail(int status, const struct error *err) {
    fprintf(stderr, "penstock: %s\n", err->text[0] ? err->text : "failed");
    return status;
}

int cli_usage_error(int status, const char *command, const char *format, ...) {
    struct error err = {0};
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    error_set(&err, -EINVAL, "%s; see `penstock %s%s--help`", text, command, *command ? " " : "");
    return cli_fail(status, &err);
}

int cli_unknown(int status, const char *command, const char *word) {
    return cli_usage_error(status, command, "unknown %s \"%.200s\"", word[0] == '-' ? "option" : "argument", word);
}

static void print_help(FILE *out) {
    fprintf(out,
            "penstock: the network layer for agent sandboxes\n\nUsage: penstock COMMAND [ARGUMENT]...\n\nCommands:\n");
    for (size_t i = 0; i < ARRAY_LENGTH(cli_commands); i++)
        fprintf(out, "  %-10s %s\n", cli_commands[i].name, cli_commands[i].summary);
    fprintf(out, "  %-10s %s\n", "help", "this text; `penstock help COMMAND`, `penstock help config`");
    fprintf(out, "\n`penstock COMMAND --help` explains a command, `penstock --version` prints the version.\n"
                 "\nExample: penstock run --allow api.github.com -- curl https://api.github.com/zen\n");
}

static void print_command_help(const struct cli_command *command) {
    printf("Usage: penstock %s\n\n%s.\n\n%s", command->usage, command->summary, command->help);
}

static void print_config_help(void) {
    char line[POLICY_NODE_HELP_SIZE];
    printf("The node's configuration: YAML, by path; a variable replaces the value of the file.\n\n");
    for (size_t i = 0; policy_node_help(i, line); i++) printf("%s\n", line);
}

static int help(int argc, char **argv) {
    if (argc < 2) {
        print_help(stdout);
        return CLI_OK;
    }
    const struct cli_command *command = cli_command_find(argv[1]);
    if (!command && strcmp(argv[1], "config") == 0) {
        print_config_help();
        return CLI_OK;
    }
    if (!command) return cli_usage_error(CLI_INVALID, "", "there is no command \"%.200s\" to explain", argv[1]);
    print_command_help(command);
    return CLI_OK;
}

static int dispatch(int argc, char **argv) {
    if (argc < 2) {
        print_help(stderr);
        return CLI_INVALID;
    }
    const char *word = argv[1];
    if (strcmp(word, "help") == 0) return help(argc - 1, argv + 1);
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) return help(1, argv + 1);
    if (strcmp(word, "--version") == 0) {
        printf("penstock %s\n", PENSTOCK_VERSION);
        return CLI_OK;
    }
    const struct cli_command *command = cli_command_find(word);
    if (!command)
        return cli_usage_error(CLI_INVALID, "", "unknown %s \"%.200s\"", word[0] == '-' ? "option" : "command", word);
    // The first word only: further on it may belong to the command that `run` runs.
    if (argc > 2 && (strcmp(argv[2], "--help") == 0 || strcmp(argv[2], "-h") == 0)) {
        print_command_help(command);
        return CLI_OK;
    }
    return command->run(argc - 1, argv + 1);
}

int cli_main(int argc, char **argv) {
    int status = dispatch(argc, argv);
    // What was printed only counts if it arrived.
    bool failed = ferror(stdout) != 0;
    errno = 0;
    failed |= fflush(stdout) != 0;
    if (!failed) return status;
    struct error err = {0};
    error_set(&err, -EIO, "standard output cannot be written%s%s; make room for it", errno ? ": " : "",
              errno ? strerror(errno) : "");
    return cli_fail(argc > 1 && strcmp(argv[1], "run") == 0 ? CLI_RUN_ERROR : CLI_INVALID, &err);
}
