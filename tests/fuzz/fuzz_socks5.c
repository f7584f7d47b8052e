// SPDX-License-Identifier: Apache-2.0
// SOCKS5: a whole conversation of a client in one piece. No message is accepted before its last byte, or longer than what
// is there; what is bad with more bytes was not good with fewer.
#include "wire/socks5.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum message { GREETING, CREDENTIALS, REQUEST };

static enum wire_result parse(enum message message, const uint8_t *data, size_t size, size_t *ret_used) {
    uint8_t *copy = malloc(size ? size : 1); // ends where the input ends
    if (!copy) abort();
    if (size) memcpy(copy, data, size);
    enum socks5_method method;
    struct socks5_request request;
    enum wire_result result = message == GREETING      ? socks5_greeting(copy, size, &method, ret_used)
                              : message == CREDENTIALS ? socks5_credentials(copy, size, ret_used)
                                                       : socks5_request(copy, size, &request, ret_used);
    if (result == WIRE_OK && message == REQUEST && !request.unknown_address) {
        bool name = request.name.len > 0, address = request.address.family != ADDR_NONE;
        if (name == address || request.name.len > 255) abort();
        if (name && (request.name.data < copy || request.name.data + request.name.len > copy + size)) abort();
    }
    free(copy);
    return result;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    for (int message = GREETING; message <= REQUEST; message++) {
        size_t used = 0, shorter = 0;
        enum wire_result result = parse((enum message)message, data, size, &used);
        if (result == WIRE_BAD) continue; // credentials are not always there
        if (result == WIRE_MORE) return 0;
        if (used == 0 || used > size) abort();
        if (parse((enum message)message, data, used, &shorter) != WIRE_OK || shorter != used) abort();
        for (size_t len = 0; len < used && len < 300; len++) {
            enum wire_result now = parse((enum message)message, data, len, &shorter);
            if (now == WIRE_BAD || (now == WIRE_OK && shorter > len)) abort();
        }
        data += used;
        size -= used;
    }
    return 0;
}
