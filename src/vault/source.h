// SPDX-License-Identifier: Apache-2.0
// The vault's helper: it opens files and runs commands as the user who started Penstock, which the isolated vault
// cannot, and hands over descriptors. It reads no secret itself.
#pragma once

#include "base/error.h"

#define SOURCE_COMMANDS_MAX 32
#define SOURCE_COMMAND_MS 10000

// Forks it. except: a descriptor that the helper must not keep. 0, or a negative errno with a message.
int source_start(int except, int *ret_channel, struct error *err);
// The helper: serves the channel until it closes; command_ms is how long a command may run. Ends what it runs.
int source_main(int channel, int command_ms);
