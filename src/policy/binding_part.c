// SPDX-License-Identifier: Apache-2.0
// The parts of a binding, each checked as it is read. Messages do not repeat what could be a secret that was pasted
// where its template or reference belongs.
#include <errno.h>
#include <strings.h>

#include "base/mem.h"
#include "policy/binding.h"
#include "policy/entry.h"
#include "policy/yaml.h"

#define REPOS_MAX 1024
#define METHODS_MAX 32
#define TOKEN_MAX 128
#define PATH_MAX_BYTES 1024
#define PLACE "{secret}"

// They frame the message or say where it goes; a credential in one of them would be an attack on ourselves.
static const char *const framing_headers[] = {
    "Host", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "Proxy-Connection", "TE", "Trailer",
    "Upgrade", "Expect", "HTTP2-Settings",
};

static const char *const secret_kinds[] = {"env:", "file:", "cmd:", "store:"};

static int set_text(char **target, const char *text, size_t len, struct error *err) {
    char *copy = strndup(text, len);
    if (!copy) return error_set(err, -ENOMEM, "out of memory");
    free(*target);
    *target = copy;
    return 0;
}

int policy_binding_set_host(struct policy_binding *binding, const char *text, size_t len, struct error *err) {
    char quoted[YAML_QUOTE_SIZE];
    struct policy_entry entry;
    uint16_t port;
    int r = policy_entry_parse_host(text, len, false, &entry, &port, err);
    if (r < 0) return r;
    yaml_quote(text, len, quoted);
    if (port)
        return error_set(err, -EINVAL, "\"%s\" has a port; a binding takes one host name, without a port", quoted);
    if (entry.kind != POLICY_ENTRY_NAME)
        return error_set(err, -EINVAL, "\"%s\" is an address; a binding takes one host name", quoted);
    memcpy(binding->host, entry.name, sizeof(entry.name));
    return 0;
}

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool is_token(const char *text, size_t len) { // RFC 9110 section 5.6.2
    bool token = len > 0 && len <= TOKEN_MAX;
    for (size_t i = 0; i < len; i++)
        token &= is_letter(text[i]) || is_digit(text[i]) || (text[i] && strchr("!#$%&'*+-.^_`|~", text[i]));
    return token;
}

int policy_binding_set_header(struct policy_binding *binding, const char *text, size_t len, struct error *err) {
    char quoted[YAML_QUOTE_SIZE];
    yaml_quote(text, len, quoted);
    if (!is_token(text, len))
        return error_set(err, -EINVAL, "\"%s\" is not a header name; write one such as Authorization or X-Api-Key",
                         quoted);
    int r = set_text(&binding->header, text, len, err);
    if (r < 0) return r;
    for (size_t i = 0; i < ARRAY_LENGTH(framing_headers); i++)
        if (strcasecmp(binding->header, framing_headers[i]) == 0)
            return error_set(err, -EINVAL, "header \"%s\" frames or routes the request; bind another header", quoted);
    return 0;
}

// ---- values ----

static bool is_blank(char c) { return c == ' ' || c == '\t'; }

// Semantics section 7 and RFC 9110 section 5.5.
static int check_value(const char *text, size_t len, struct error *err) {
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if ((c < 0x20 && c != '\t') || c == 0x7f)
            return error_set(err, -EINVAL,
                             "the value has a line break, NUL or other control byte (\"\\x%02x\", at byte %zu), which a "
                             "header value cannot hold; remove it",
                             c, i + 1);
    }
    if (len == 0) return error_set(err, -EINVAL, "value \"\" is empty; leave it out for the secret alone");
    if (is_blank(text[0]) || is_blank(text[len - 1]))
        return error_set(err, -EINVAL, "the value begins or ends with a blank, which no header value does; remove it");
    return 0;
}

int policy_binding_set_value(struct policy_binding *binding, const char *text, size_t len, struct error *err) {
    int r = check_value(text, len, err);
    if (r < 0) return r;
    if (len > POLICY_TEMPLATE_MAX)
        return error_set(err, -EINVAL, "the value has %zu bytes, at most %d fit; move what is in it to the secret", len,
                         POLICY_TEMPLATE_MAX);
    return set_text(&binding->value, text, len, err);
}

int policy_binding_set_basic(struct policy_binding *binding, const char *text, size_t len, struct error *err) {
    char whole[POLICY_TEMPLATE_MAX + 1], quoted[YAML_QUOTE_SIZE];
    if (len == 0 || len > POLICY_TEMPLATE_MAX - strlen(":" PLACE) || memchr(text, ':', len) || memchr(text, '\0', len) ||
        memmem(text, len, PLACE, strlen(PLACE)))
        return error_set(err, -EINVAL,
                         "basic \"%s\" is not a user, whose password the secret is; write such as robot, or basic: true with "
                         "value: \"USER:PASSWORD\" where {secret} is another part",
                         yaml_quote(text, len, quoted));
    int used = snprintf(whole, sizeof(whole), "%.*s:" PLACE, (int)len, text);
    binding->basic = true;
    return policy_binding_set_value(binding, whole, (size_t)used, err);
}

int policy_binding_set_literal(struct policy_binding *binding, const char *text, size_t len, struct error *err) {
    char reference[NAME_SIZE + TOKEN_MAX + 16];
    int r = check_value(text, len, err);
    if (r < 0) return r;
    snprintf(reference, sizeof(reference), "env:=%s/%s", binding->host, binding->header);
    r = set_text(&binding->literal, text, len, err);
    return r < 0 ? r : set_text(&binding->secret, reference, strlen(reference), err);
}

// The kind of a reference, or what stands in its place: a word and a colon. 0: something else, which nobody should see.
static size_t kind_length(const char *text, size_t len) {
    size_t word = 0;
    while (word < len && text[word] >= 'a' && text[word] <= 'z') word++;
    return word > 0 && word < len && text[word] == ':' ? word + 1 : 0;
}

int policy_binding_set_secret(struct policy_binding *binding, const char *text, size_t len, struct error *err) {
    size_t kind = kind_length(text, len);
    bool good = false;
    for (size_t i = 0; i < ARRAY_LENGTH(secret_kinds); i++)
        good |= kind == strlen(secret_kinds[i]) && memcmp(text, secret_kinds[i], kind) == 0;
    good &= kind < len && len <= POLICY_REFERENCE_MAX;
    for (size_t i = 0; i < len; i++) good &= (unsigned char)text[i] >= 0x20 && text[i] != 0x7f;
    if (kind == strlen("env:") && memcmp(text, "env:", kind) == 0) good &= !memchr(text, '=', len);
    if (!good)
        return error_set(err, -EINVAL,
                         "secret \"%.*s...\" is not a reference; write env:NAME, file:PATH, cmd:COMMAND or store:NAME "
                         "(never the secret itself)",
                         (int)kind, text);
    return set_text(&binding->secret, text, len, err);
}

// ---- conditions ----

// Takes over word.
static int add_word(char ***words, size_t *count, char *word, struct error *err) {
    char **grown = policy_entry_grow(*words, *count, sizeof(*grown));
    if (!grown) {
        free(word);
        return error_set(err, -ENOMEM, "out of memory");
    }
    *words = grown;
    grown[(*count)++] = word;
    return 0;
}

static bool repo_part(const char *text, size_t len) {
    if (len == 0 || len > 100 || (len <= 2 && strspn(text, ".") >= len)) return false;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i], lower = c | 0x20;
        bool good =
            (lower >= 'a' && lower <= 'z' && c < 0x80) || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
        if (!good) return false;
    }
    return true;
}

int policy_binding_add_repo(struct policy_binding *binding, const char *text, size_t len, struct error *err) {
    char quoted[YAML_QUOTE_SIZE];
    size_t kept = len > 4 && strncasecmp(text + len - 4, ".git", 4) == 0 ? len - 4 : len;
    const char *slash = memchr(text, '/', kept);
    size_t owner = slash ? (size_t)(slash - text) : 0;
    if (!slash || !repo_part(text, owner) || !repo_part(slash + 1, kept - owner - 1))
        return error_set(
            err, -EINVAL,
            "repository \"%s\" is not of the form OWNER/REPO; write it as in octo/hello (letters, digits, '-', "
            "'_' and '.')",
            yaml_quote(text, len, quoted));
    if (binding->repo_count >= REPOS_MAX)
        return error_set(err, -EINVAL, "more than 1024 repositories are listed; leave repos out for any repository");
    char *repo = strndup(text, kept);
    if (!repo) return error_set(err, -ENOMEM, "out of memory");
    for (char *at = repo; *at; at++)
        if (*at >= 'A' && *at <= 'Z') *at = (char)(*at + 32);
    for (size_t i = 0; i < binding->repo_count; i++) {
        if (strcmp(binding->repos[i], repo) == 0) {
            free(repo);
            return 0;
        }
    }
    return add_word(&binding->repos, &binding->repo_count, repo, err);
}

// IANA's registry of HTTP methods, and two that are in wide use (Vault's LIST, PURGE of caches). A mistyped one would fit no
// request, and nobody would be told.
static const char *const known_methods[] = {
    "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "QUERY", "LIST", "PURGE", "SEARCH", "REPORT", "PROPFIND",
    "PROPPATCH", "MKCOL", "COPY", "MOVE", "LOCK", "UNLOCK", "ACL", "BIND", "REBIND", "UNBIND", "LINK", "UNLINK", "LABEL",
    "UPDATE", "MERGE", "CHECKIN", "CHECKOUT", "UNCHECKOUT", "BASELINE-CONTROL", "VERSION-CONTROL", "MKACTIVITY",
    "MKWORKSPACE", "MKCALENDAR", "MKREDIRECTREF", "UPDATEREDIRECTREF", "ORDERPATCH",
};

static bool is_listed(const char *const *words, size_t count, const char *text, size_t len) {
    for (size_t i = 0; i < count; i++)
        if (strlen(words[i]) == len && memcmp(words[i], text, len) == 0) return true;
    return false;
}

int policy_binding_add_method(struct policy_binding *binding, const char *text, size_t len, struct error *err) {
    static const char *const never[] = {"CONNECT", "TRACE", "TRACK"}; // policy_credentials
    char quoted[YAML_QUOTE_SIZE];
    yaml_quote(text, len, quoted);
    if (is_listed(never, ARRAY_LENGTH(never), text, len))
        return error_set(err, -EINVAL, "method \"%s\" never gets a credential; remove it", quoted);
    if (!is_listed(known_methods, ARRAY_LENGTH(known_methods), text, len))
        return error_set(err, -EINVAL, "\"%s\" is not an HTTP method; write such as GET, POST or PATCH, in capitals, or leave "
                                       "methods out for any", quoted);
    if (is_listed((const char *const *)binding->methods, binding->method_count, text, len)) return 0;
    if (binding->method_count >= METHODS_MAX)
        return error_set(err, -EINVAL, "more than %d methods are listed; leave methods out for any", METHODS_MAX);
    char *method = strndup(text, len);
    if (!method) return error_set(err, -ENOMEM, "out of memory");
    return add_word(&binding->methods, &binding->method_count, method, err);
}

// As the path of a request is once it is decoded, and with one reading only.
static bool is_prefix(const char *text, size_t len) {
    if (len < 2 || len > PATH_MAX_BYTES || text[0] != '/') return false;
    for (size_t i = 0; i < len;) {
        if (text[i] != '/') return false;
        size_t start = ++i;
        for (; i < len && text[i] != '/'; i++)
            if ((unsigned char)text[i] <= ' ' || (unsigned char)text[i] >= 0x7f || strchr("\\%?#;", text[i])) return false;
        size_t dots = strspn(text + start, ".+");
        if (i == start || dots >= i - start) return false;
    }
    return true;
}

int policy_binding_set_path(struct policy_binding *binding, const char *text, size_t len, struct error *err) {
    char quoted[YAML_QUOTE_SIZE];
    if (len > 2 && text[len - 1] == '/') len--;
    if (!is_prefix(text, len))
        return error_set(err, -EINVAL,
                         "path \"%s\" is not a prefix of whole segments; write such as /v1/chat (ASCII, not percent-encoded, "
                         "no empty or dot segments), or leave path out for the whole host",
                         yaml_quote(text, len, quoted));
    return set_text(&binding->path, text, len, err);
}

// What decides how programs start, where they find their parts and whom they trust: a placeholder there would break them, not
// help them. A name that ends with '_' stands for all that begin so.
static const char *const program_variables[] = {
    "PATH", "HOME", "SHELL", "USER", "LOGNAME", "PWD", "TMPDIR", "TERM", "LANG", "TZ", "IFS", "ENV", "BASH_ENV",
    "LD_", "LC_", "XDG_", "GIT_CONFIG_", "MALLOC_", "PENSTOCK_",
    "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "NODE_OPTIONS", "NODE_PATH", "PERL5LIB", "PERL5OPT", "RUBYLIB", "RUBYOPT",
    "CLASSPATH", "JAVA_HOME", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "GOPATH", "GOFLAGS",
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SOCKS_PROXY",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS",
};

static bool is_program_variable(const char *text, size_t len) {
    for (size_t i = 0; i < ARRAY_LENGTH(program_variables); i++) {
        const char *word = program_variables[i];
        size_t word_len = strlen(word);
        bool fits = word[word_len - 1] == '_' ? len >= word_len : len == word_len;
        if (fits && strncasecmp(word, text, word_len) == 0) return true;
    }
    return false;
}

int policy_binding_set_variable(struct policy_binding *binding, const char *text, size_t len, struct error *err) {
    char quoted[YAML_QUOTE_SIZE];
    bool good = len > 0 && len <= TOKEN_MAX && !is_digit(text[0]);
    for (size_t i = 0; i < len; i++) good &= is_letter(text[i]) || is_digit(text[i]) || text[i] == '_';
    if (!good)
        return error_set(err, -EINVAL, "variable \"%s\" is not the name of an environment variable; write such as GITHUB_TOKEN",
                         yaml_quote(text, len, quoted));
    if (is_program_variable(text, len))
        return error_set(err, -EINVAL, "variable \"%s\" changes how programs run, and would hold a placeholder; name the one from "
                                       "which the tool takes its token, such as GITHUB_TOKEN", yaml_quote(text, len, quoted));
    return set_text(&binding->variable, text, len, err);
}
