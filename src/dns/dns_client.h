// SPDX-License-Identifier: Apache-2.0
// What the rest of the dns room needs of a client beyond its door.
#pragma once

struct dns_client;
struct event_base;

struct event_base *dns_client_base(const struct dns_client *client);
