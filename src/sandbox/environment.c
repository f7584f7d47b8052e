// SPDX-License-Identifier: Apache-2.0
#include "sandbox/environment.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "net/net.h"

// What these name is out of reach in the sandbox: programs would wait for it or fail with a message about it.
static const char *const removed[] = {
    // Proxies of the host's network (the gate replaces them); also in lower case, as curl, Python and wget read them.
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "FTP_PROXY",
    "FTPS_PROXY",
    "GOPHER_PROXY",
    "GRPC_PROXY",
    "NO_GRPC_PROXY",
    "SOCKS_PROXY",
    "SOCKS5_PROXY",
    "SOCKS_SERVER",
    "SOCKS5_SERVER",
    "RSYNC_PROXY",
    "WS_PROXY",
    "WSS_PROXY",
    "AUTO_PROXY",
    "CGI_HTTP_PROXY",
    // The same in the spelling of one program's own settings.
    "NPM_CONFIG_PROXY",
    "NPM_CONFIG_HTTP_PROXY",
    "NPM_CONFIG_HTTPS_PROXY",
    "NPM_CONFIG_NOPROXY",
    "YARN_PROXY",
    "YARN_HTTP_PROXY",
    "YARN_HTTPS_PROXY",
    "PIP_PROXY",
    "CARGO_HTTP_PROXY",
    "GLOBAL_AGENT_HTTP_PROXY",
    "GLOBAL_AGENT_HTTPS_PROXY",
    "GLOBAL_AGENT_NO_PROXY",
    "GIT_PROXY_COMMAND",
    // Agents and buses.
    "SSH_AUTH_SOCK",
    "SSH_AGENT_PID",
    "GPG_AGENT_INFO",
    "DBUS_SESSION_BUS_ADDRESS",
    "DBUS_SYSTEM_BUS_ADDRESS",
    "DBUS_SESSION_BUS_PID",
    "GNOME_KEYRING_CONTROL",
    "XDG_RUNTIME_DIR",
    "AT_SPI_BUS_ADDRESS",
    // Displays and sound.
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "WAYLAND_SOCKET",
    "XAUTHORITY",
    "ICEAUTHORITY",
    "SESSION_MANAGER",
    "PULSE_SERVER",
    "PIPEWIRE_REMOTE",
    "SWAYSOCK",
    "I3SOCK",
    // Container engines.
    "DOCKER_HOST",
    "CONTAINER_HOST",
    "BUILDKIT_HOST",
    "CONTAINERD_ADDRESS",
    // Terminal multiplexers and editors that are driven over a socket.
    "TMUX",
    "STY",
    "VSCODE_IPC_HOOK_CLI",
    "VSCODE_GIT_IPC_HANDLE",
    "NVIM",
    "NVIM_LISTEN_ADDRESS",
    "EMACS_SOCKET_NAME",
    // Service managers.
    "NOTIFY_SOCKET",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
    "JOURNAL_STREAM",
    "CREDENTIALS_DIRECTORY",
};

// Of `--proxy`. ALL_PROXY is not the SOCKS door: many clients for HTTP fail at their start over a scheme that they lack.
#define DOOR_HTTP "http://" KEEPER_SERVER4 ":" TEXT(KEEPER_PORT_HTTP)
#define DOOR_SOCKS "socks5h://" KEEPER_SERVER4 ":" TEXT(KEEPER_PORT_SOCKS)
#define NOT_THROUGH_DOORS "localhost,127.0.0.1,::1"
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
static const char *const doors[] = {
    "HTTP_PROXY=" DOOR_HTTP,   "http_proxy=" DOOR_HTTP,
    "HTTPS_PROXY=" DOOR_HTTP,  "https_proxy=" DOOR_HTTP,
    "ALL_PROXY=" DOOR_HTTP,    "all_proxy=" DOOR_HTTP,
    "SOCKS_PROXY=" DOOR_SOCKS, "socks_proxy=" DOOR_SOCKS,
    "NO_PROXY=" NOT_THROUGH_DOORS, "no_proxy=" NOT_THROUGH_DOORS,
};

static const struct {
    const char *name, *entry;
} temporary[] = {{"TMPDIR", "TMPDIR=/tmp"}, {"TMP", "TMP=/tmp"}, {"TEMP", "TEMP=/tmp"}};

static bool is_named(const char *entry, size_t len, const char *name) {
    return strlen(name) == len && strncasecmp(entry, name, len) == 0;
}

// The entry to pass on, or NULL.
static const char *filter_entry(const char *entry, const struct exposure *exposure) {
    size_t len = strcspn(entry, "=");
    for (size_t i = 0; i < ARRAY_LENGTH(removed); i++)
        if (is_named(entry, len, removed[i])) return NULL;
    if (entry[len] != '=') return entry;
    for (size_t i = 0; i < ARRAY_LENGTH(temporary); i++)
        if (strlen(temporary[i].name) == len && memcmp(entry, temporary[i].name, len) == 0)
            return exposure_writable(exposure, entry + len + 1) ? entry : temporary[i].entry;
    return entry;
}

static size_t list_length(char *const *list) {
    size_t count = 0;
    while (list && list[count]) count++;
    return count;
}

static bool is_replaced(const char *entry, char *const *extra) {
    size_t len = strcspn(entry, "=");
    for (size_t i = 0; extra && extra[i]; i++)
        if (strcspn(extra[i], "=") == len && memcmp(entry, extra[i], len) == 0) return true;
    return false;
}

char **environment_filter(char *const *environment, const struct exposure *exposure, bool proxy, char *const *extra) {
    size_t count = list_length(environment), extra_count = list_length(extra), used = 0;
    char **filtered = NEW_ARRAY(char *, count + ARRAY_LENGTH(doors) + extra_count + 1);
    if (!filtered) return NULL;
    for (size_t i = 0; i < count; i++) {
        const char *entry = is_replaced(environment[i], extra) ? NULL : filter_entry(environment[i], exposure);
        if (entry) filtered[used++] = (char *)(uintptr_t)entry; // execve takes char *const *, and changes nothing
    }
    for (size_t i = 0; proxy && i < ARRAY_LENGTH(doors); i++) filtered[used++] = (char *)(uintptr_t)doors[i];
    for (size_t i = 0; i < extra_count; i++) filtered[used++] = extra[i];
    return filtered;
}

static bool is_door(const char *entry) {
    for (size_t i = 0; i < ARRAY_LENGTH(doors); i++)
        if (strncmp(entry, doors[i], strcspn(doors[i], "=") + 1) == 0) return true;
    return false;
}

char **environment_merge(char *const *environment, bool proxy, char *const *extra) {
    size_t count = list_length(environment), extra_count = list_length(extra), used = 0;
    char **merged = NEW_ARRAY(char *, count + ARRAY_LENGTH(doors) + extra_count + 1);
    if (!merged) return NULL;
    for (size_t i = 0; i < count; i++)
        if (!is_replaced(environment[i], extra) && !(proxy && is_door(environment[i]))) merged[used++] = environment[i];
    for (size_t i = 0; proxy && i < ARRAY_LENGTH(doors); i++) merged[used++] = (char *)(uintptr_t)doors[i];
    for (size_t i = 0; i < extra_count; i++) merged[used++] = extra[i];
    return merged;
}

const char *environment_get(char *const *environment, const char *name) {
    size_t len = strlen(name);
    for (size_t i = 0; environment[i]; i++)
        if (strncmp(environment[i], name, len) == 0 && environment[i][len] == '=') return environment[i] + len + 1;
    return NULL;
}
