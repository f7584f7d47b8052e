// SPDX-License-Identifier: Apache-2.0
// A terminal of the sandbox's own in the place of the caller's: what is typed goes in, what is printed comes out. The sandbox
// never holds the caller's, whose settings and input it could change, also after its end. Ctrl-C, Ctrl-Z and job control
// are the inner terminal's.
#pragma once

#include "base/error.h"

struct event_base;
struct terminal;

// Streams are what the command gets in the place of our 0 to 2: the inner terminal where ours is a terminal, else ours.
// *ret_terminal: NULL if none is. 0, or a negative errno with a message.
int terminal_open(struct event_base *base, int ret_streams[3], struct terminal **ret_terminal, struct error *err);
// The command has the streams. From now on, in the event loop.
void terminal_begin(struct terminal *terminal);
// The caller's window has another size (SIGWINCH), or we were continued (SIGCONT).
void terminal_adapt(struct terminal *terminal);
// The sandbox has ended: what it has printed last, and the caller's terminal as it was. NULL is fine.
void terminal_close(struct terminal *terminal);
