// SPDX-License-Identifier: Apache-2.0
// Opening: whose file it is, how SQLite keeps it, and the tables. A later version adds a script to schema[]; the number of
// those that a file has seen is its user_version.
#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/random.h"
#include "store/database.h"

#define APPLICATION_ID 0x50535431 // "PST1"
#define AUDIT_LIMIT 100000
#define BUSY_MS 2000

// Values of credentials may be in policies, so what is deleted is overwritten (secure_delete).
static const char *const settings[] = {
    "PRAGMA locking_mode=EXCLUSIVE", "PRAGMA journal_mode=WAL",      "PRAGMA synchronous=FULL",
    "PRAGMA foreign_keys=ON",        "PRAGMA secure_delete=ON",      "PRAGMA trusted_schema=OFF",
    "PRAGMA cell_size_check=ON",     "PRAGMA temp_store=MEMORY",     "PRAGMA journal_size_limit=4194304",
};

static const char *const schema[] = {
    "CREATE TABLE sandboxes(id TEXT PRIMARY KEY, state TEXT NOT NULL, type TEXT NOT NULL, template_id TEXT, alias TEXT,"
    " image TEXT, started_us INTEGER NOT NULL, end_us INTEGER NOT NULL, timeout_s INTEGER NOT NULL,"
    " auto_pause INTEGER NOT NULL, auto_resume INTEGER NOT NULL, secure INTEGER NOT NULL, cpu_count INTEGER NOT NULL,"
    " memory_mb INTEGER NOT NULL, disk_mb INTEGER NOT NULL, metadata TEXT, env_vars TEXT, generation INTEGER NOT NULL,"
    " last_generation INTEGER NOT NULL DEFAULT 0, allow_public_traffic INTEGER NOT NULL, mask_request_host TEXT, layers TEXT,"
    " config TEXT) STRICT, WITHOUT ROWID;"
    "CREATE INDEX sandboxes_started ON sandboxes(started_us, id);"
    "CREATE TABLE policies(sandbox_id TEXT NOT NULL REFERENCES sandboxes(id) ON DELETE CASCADE,"
    " generation INTEGER NOT NULL, dialect TEXT NOT NULL, policy TEXT NOT NULL, PRIMARY KEY(sandbox_id, generation))"
    " STRICT, WITHOUT ROWID;"
    "CREATE TABLE templates(id TEXT PRIMARY KEY, kind TEXT NOT NULL, name TEXT UNIQUE, sandbox_id TEXT, layers TEXT,"
    " config TEXT, cpu_count INTEGER NOT NULL, memory_mb INTEGER NOT NULL, disk_mb INTEGER NOT NULL,"
    " created_us INTEGER NOT NULL, updated_us INTEGER NOT NULL, spawned_us INTEGER NOT NULL,"
    " spawn_count INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE INDEX templates_created ON templates(created_us, id);"
    "CREATE TABLE builds(number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,"
    " template_id TEXT NOT NULL REFERENCES templates(id) ON DELETE CASCADE, status TEXT NOT NULL, reason TEXT, step TEXT,"
    " cpu_count INTEGER NOT NULL, memory_mb INTEGER NOT NULL, created_us INTEGER NOT NULL, updated_us INTEGER NOT NULL,"
    " finished_us INTEGER NOT NULL, line_count INTEGER NOT NULL DEFAULT 0) STRICT;"
    "CREATE INDEX builds_template ON builds(template_id, number);"
    "CREATE TABLE build_lines(build_id TEXT NOT NULL REFERENCES builds(id) ON DELETE CASCADE, number INTEGER NOT NULL,"
    " time_us INTEGER NOT NULL, level TEXT NOT NULL, message TEXT NOT NULL, PRIMARY KEY(build_id, number))"
    " STRICT, WITHOUT ROWID;"
    "CREATE TABLE audit(number INTEGER PRIMARY KEY AUTOINCREMENT, time_us INTEGER NOT NULL, who TEXT NOT NULL,"
    " action TEXT NOT NULL, subject TEXT NOT NULL, status INTEGER NOT NULL) STRICT;",
};

int64_t store_now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

const char *store_make_id(char prefix, char buf[STORE_ID_SIZE]) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    buf[0] = prefix;
    for (size_t i = 1; i < STORE_ID_SIZE - 1; i++) buf[i] = letters[random_u32() % 36]; // biased by less than 1 in 10^8
    buf[STORE_ID_SIZE - 1] = '\0';
    return buf;
}

// SQLite makes the WAL with the mode of the file, so that one is made first. It is closed before SQLite opens it: closing a
// file later would take SQLite's own locks on it away.
static int claim_file(const char *path, struct error *err) {
    struct stat status;
    AUTO_CLOSE int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
    if (fd < 0 || fstat(fd, &status) < 0)
        return error_set(err, -errno, "cannot open the store \"%s\": %s", path, strerror(errno));
    if (!S_ISREG(status.st_mode)) return error_set(err, -EPERM, "\"%s\" is not a regular file; remove it", path);
    if (status.st_uid != geteuid())
        return error_set(err, -EPERM, "\"%s\" belongs to user %u, not to %u; run: chown %u '%s'", path, status.st_uid,
                         geteuid(), geteuid(), path);
    if (status.st_mode & 077)
        return error_set(err, -EPERM, "\"%s\" is open to others (mode %04o); run: chmod 600 '%s'", path,
                         status.st_mode & 07777, path);
    return 0;
}

// The names of the file and its WAL are on the disk too.
static void sync_folder(const char *path) {
    char copy[PATH_MAX];
    snprintf(copy, sizeof(copy), "%s", path);
    AUTO_CLOSE int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) fsync(fd);
}

static int run_script(struct store *store, const char *script, struct error *err) {
    return sqlite3_exec(store->db, script, NULL, NULL, NULL) == SQLITE_OK ? 0 : database_fail(store, err);
}

static int make_tables(struct store *store, const char *path, struct error *err) {
    int64_t version = 0, application = 0, tables = 0;
    char script[64];
    int r = database_number(store, err, &version, "PRAGMA user_version", "");
    if (r >= 0) r = database_number(store, err, &application, "PRAGMA application_id", "");
    if (r >= 0) r = database_number(store, err, &tables, "SELECT count(*) FROM sqlite_schema", "");
    if (r < 0) return r;
    if (application != APPLICATION_ID && (application != 0 || version != 0 || tables != 0))
        return error_set(err, -EBADMSG, "\"%s\" is a database of another program; name another file", path);
    if (version > (int64_t)ARRAY_LENGTH(schema))
        return error_set(err, -ESTALE, "\"%s\" was written by a newer version of penstock; use that one", path);
    if (version == (int64_t)ARRAY_LENGTH(schema)) return 0;
    r = database_begin(store, DATABASE_SYNC, err);
    if (r < 0) return r;
    for (size_t i = (size_t)version; r == 0 && i < ARRAY_LENGTH(schema); i++) r = run_script(store, schema[i], err);
    snprintf(script, sizeof(script), "PRAGMA user_version=%zu; PRAGMA application_id=%d", ARRAY_LENGTH(schema),
             APPLICATION_ID);
    if (r == 0) r = run_script(store, script, err);
    return database_finish(store, r, err);
}

int store_open(const char *path, struct store **ret_store, struct error *err) {
    int r = sqlite_load(err);
    if (r == 0) r = claim_file(path, err);
    if (r < 0) return r;
    struct store *store = NEW(struct store);
    if (!store) return error_set(err, -ENOMEM, "out of memory");
    store->audit_limit = AUDIT_LIMIT;
    store->sync = DATABASE_SYNC; // as settings[] say
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE | SQLITE_OPEN_EXRESCODE;
    if (sqlite3_open_v2(path, &store->db, flags, "unix") != SQLITE_OK)
        r = store->db ? database_fail(store, err) : error_set(err, -ENOMEM, "out of memory");
    if (r == 0) sqlite3_busy_timeout(store->db, BUSY_MS);
    for (size_t i = 0; r == 0 && i < ARRAY_LENGTH(settings); i++) r = run_script(store, settings[i], err);
    if (r == 0) r = make_tables(store, path, err);
    if (r == 0) {
        sync_folder(path);
        sqlite3_db_config(store->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
        *ret_store = store;
        return 0;
    }
    if (r == -EBADMSG && err && strncmp(err->text, "the store:", 10) == 0) // in SQLite's words
        error_set(err, r, "the store \"%s\" is not a database, or is damaged; put a copy of it back, or move it away to begin with an "
                  "empty one (its sandboxes end, and its templates and snapshots are removed)", path);
    if (r == -EBUSY) error_set(err, r, "the store \"%s\" is used by another penstock; end that one", path);
    store_close(store);
    return r;
}

void store_close(struct store *store) {
    if (!store) return;
    for (size_t i = 0; i < store->statement_count; i++) {
        sqlite3_finalize(store->statements[i].statement);
        free(store->statements[i].sql);
    }
    sqlite3_close(store->db);
    free(store);
}

void store_on_step(struct store *store, void (*step)(void *data), void *data) {
    store->step = step;
    store->step_data = data;
}
