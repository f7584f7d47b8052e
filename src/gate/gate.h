// SPDX-License-Identifier: Apache-2.0
// The front door of the gate room: the process that holds every socket by which one sandbox can reach anything.
#pragma once

// Role main of a gate. Returns an exit status.
int gate_main(int channel);
