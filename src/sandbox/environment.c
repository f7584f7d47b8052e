// SPDX-License-Identifier: Apache-2.0
#include "sandbox/environment.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"

// What these name is out of reach in the sandbox: programs would wait for it or fail with a message about it.
static const char *const removed[] = {
    // Proxies of the host's network (the gate replaces them); also in lower case, as curl, Python and wget read them.
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "FTP_PROXY",
    "SOCKS_PROXY",
    "RSYNC_PROXY",
    "WS_PROXY",
    "WSS_PROXY",
    "GRPC_PROXY",
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

char **environment_filter(char *const *environment, const struct exposure *exposure) {
    size_t count = 0, used = 0;
    while (environment[count]) count++;
    char **filtered = NEW_ARRAY(char *, count + 1);
    if (!filtered) return NULL;
    for (size_t i = 0; i < count; i++) {
        const char *entry = filter_entry(environment[i], exposure);
        if (entry) filtered[used++] = (char *)(uintptr_t)entry; // execve takes char *const *, and changes nothing
    }
    return filtered;
}

const char *environment_get(char *const *environment, const char *name) {
    size_t len = strlen(name);
    for (size_t i = 0; environment[i]; i++)
        if (strncmp(environment[i], name, len) == 0 && environment[i][len] == '=') return environment[i] + len + 1;
    return NULL;
}
