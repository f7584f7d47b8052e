// SPDX-License-Identifier: Apache-2.0
// Java's trust: a JKS file of certificates (the format that every Java reads under whatever name; its password is
// "changeit" everywhere).
#pragma once

#include <stddef.h>

#include "base/buf.h"

// Appends to `store` a key store with what `old` has, if that is a JKS of certificates only, else with the certificates of
// bundle (PEM), and one more.
void keystore_make(const struct buf *old, const char *bundle, const void *certificate, size_t len, struct buf *store);
