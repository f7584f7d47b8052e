// SPDX-License-Identifier: Apache-2.0
// Messages between our processes: first byte the type, second the descriptors, then the body. In what is accepted every
// text ends inside its field.
#include "wire/ipc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    size_t len = size - 2;
    uint8_t *body = malloc(len ? len : 1);
    if (!body) abort();
    if (len) memcpy(body, data + 2, len);
    if (ipc_check(data[0], body, len, data[1]) == 0) {
        struct ipc_decision decision;
        struct ipc_query query;
        struct ipc_keeper_start start;
        struct ipc_keeper_ready ready;
        struct ipc_plain plain;
        if (data[0] == IPC_ERROR && strnlen((char *)body, len) == len) abort();
        if (data[0] == IPC_DECISION) {
            memcpy(&decision, body, sizeof(decision));
            if (strnlen(decision.name, NAME_SIZE) == NAME_SIZE) abort();
            if (strnlen(decision.hint, sizeof(decision.hint)) == sizeof(decision.hint)) abort();
        }
        if (data[0] == IPC_QUERY) {
            memcpy(&query, body, sizeof(query));
            if (strnlen(query.name, NAME_SIZE) == NAME_SIZE) abort();
        }
        if (data[0] == IPC_KEEPER_START) {
            memcpy(&start, body, sizeof(start));
            if (start.ports.count > IPC_PORTS_MAX || strnlen(start.need, sizeof(start.need)) == sizeof(start.need)) abort();
        }
        if (data[0] == IPC_KEEPER_READY) {
            memcpy(&ready, body, sizeof(ready));
            if (ready.skeleton >= IPC_SKELETON_COUNT || strnlen(ready.lacks, sizeof(ready.lacks)) == sizeof(ready.lacks)) abort();
        }
        if (data[0] == IPC_GATE_PLAIN) {
            memcpy(&plain, body, sizeof(plain));
            if (plain.listeners == 0 || plain.listeners > IPC_LISTENERS_MAX) abort();
        }
        if (data[0] == IPC_GATE_LISTENERS && (data[1] == 0 || data[1] > IPC_FDS_MAX || len > 0)) abort();
    }
    free(body);
    return 0;
}
