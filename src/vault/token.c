// SPDX-License-Identifier: Apache-2.0
// A node's own secrets: the key that its clients show, and the seed of the tokens that it gives them for their sandboxes.
// Those that it makes itself are kept in its state folder, one file each.
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/random.h"
#include "vault/crypto.h"
#include "vault/state_folder.h"
#include "vault/vault.h"

#define KEY_FILE "api-key"
#define SEED_FILE "sandbox-access-token-hash-seed"
#define SECRET_FILE "/run/secrets/api-key"
#define TEXT_MAX 4096

static void hex(const uint8_t *bytes, size_t len, char *ret_text) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < len; i++) {
        ret_text[2 * i] = digits[bytes[i] >> 4];
        ret_text[2 * i + 1] = digits[bytes[i] & 15];
    }
    ret_text[2 * len] = '\0';
}

int vault_token(const char *seed, const char *message, char ret_token[VAULT_TOKEN_SIZE]) {
    uint8_t digest[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    if (!HMAC(EVP_sha256(), seed, (int)strlen(seed), (const uint8_t *)message, strlen(message), digest, &len) || len != 32)
        return -EIO;
    hex(digest, len, ret_token);
    explicit_bzero(digest, sizeof(digest));
    return 0;
}

static int open_folder(const char *path, struct state_folder *ret_folder, struct error *err) {
    struct stat status;
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &status) < 0) return error_set(err, -errno, "state folder \"%s\": %s", path, strerror(errno));
    if (status.st_uid != geteuid() || status.st_mode & 022)
        return error_set(err, -EPERM, "state folder \"%s\" can be changed by others; run: chmod go-w '%s'", path, path);
    snprintf(ret_folder->path, sizeof(ret_folder->path), "%s", path);
    ret_folder->fd = TAKE_FD(fd);
    return 0;
}

// 1 and the text, 0: the variable is not set.
static int from_variable(const char *name, char **ret_text, struct error *err) {
    const char *text = getenv(name);
    if (!text) return 0;
    if (!*text) return error_set(err, -EINVAL, "%s is empty; set it to a key, or unset it", name);
    *ret_text = strdup(text);
    return *ret_text ? 1 : error_set(err, -ENOMEM, "out of memory");
}

// Without the end of its line. It must be something.
static int take_line(char *text, size_t len, const char *path, char **ret_text, struct error *err) {
    while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == '\r')) len--;
    if (len == 0 || memchr(text, '\n', len) || memchr(text, '\0', len))
        return error_set(err, -EINVAL, "\"%s\" must hold one line that is not empty; write one", path);
    *ret_text = strndup(text, len);
    return *ret_text ? 1 : error_set(err, -ENOMEM, "out of memory");
}

static int from_secret_file(char **ret_text, struct error *err) {
    struct buf buf = BUF_INIT;
    int r = buf_read_file(&buf, SECRET_FILE, TEXT_MAX);
    if (r == 0) r = take_line(buf.data ? buf.data : (char[]){0}, buf.len, SECRET_FILE, ret_text, err);
    else if (r != -ENOENT && r != -ENOTDIR) error_set(err, r, "\"%s\": %s", SECRET_FILE, strerror(-r));
    if (buf.data) explicit_bzero(buf.data, buf.len);
    buf_done(&buf);
    return r == -ENOENT || r == -ENOTDIR ? 0 : r;
}

static int make(const struct state_folder *folder, const char *name, char **ret_text, struct error *err) {
    uint8_t bytes[32];
    char text[2 * sizeof(bytes) + 1];
    random_bytes(bytes, sizeof(bytes));
    hex(bytes, sizeof(bytes), text);
    explicit_bzero(bytes, sizeof(bytes));
    int r = state_folder_write(folder, name, text, strlen(text), err);
    if (r == 0 && !(*ret_text = strdup(text))) r = error_set(err, -ENOMEM, "out of memory");
    explicit_bzero(text, sizeof(text));
    return r;
}

// What the folder keeps under this name, made if it is missing. 0 or negative.
static int kept(const char *path, const char *name, char **ret_text, struct error *err) {
    struct state_folder folder = {.fd = -1};
    char text[TEXT_MAX], file[PATH_MAX + 64];
    size_t len;
    int r = open_folder(path, &folder, err);
    if (r < 0) return r;
    r = state_folder_read(&folder, name, text, sizeof(text), &len, err);
    snprintf(file, sizeof(file), "%s/%s", path, name);
    if (r == -ENOENT)
        r = make(&folder, name, ret_text, err);
    else if (r == 0)
        r = take_line(text, len, file, ret_text, err);
    explicit_bzero(text, sizeof(text));
    state_folder_close(&folder);
    return r < 0 ? r : 0;
}

int vault_api_key(const char *folder, char **ret_key, struct error *err) {
    int r = from_variable("PENSTOCK_API_KEY", ret_key, err);
    if (r == 0) r = from_variable("AENV_API_KEY", ret_key, err);
    if (r == 0) r = from_secret_file(ret_key, err);
    return r == 0 ? kept(folder, KEY_FILE, ret_key, err) : r < 0 ? r : 0;
}

int vault_token_seed(const char *folder, char **ret_seed, struct error *err) {
    char *seed = NULL;
    int r = from_variable("PENSTOCK_SANDBOX_ACCESS_TOKEN_HASH_SEED", ret_seed, err);
    if (r == 0) r = from_variable("AENV_SANDBOX_ACCESS_TOKEN_HASH_SEED", ret_seed, err);
    if (r != 0) return r < 0 ? r : 0;
    r = kept(folder, SEED_FILE, &seed, err);
    if (r < 0) return r;
    if (strlen(seed) != 64 || strspn(seed, "0123456789abcdefABCDEF") != 64) {
        free(seed);
        return error_set(err, -EINVAL, "\"%s/%s\" does not hold 64 hex digits; tokens of sandboxes depend on it: restore it",
                         folder, SEED_FILE);
    }
    *ret_seed = seed;
    return 0;
}
