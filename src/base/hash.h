/* XXH64, after its published specification (xxHash, 2012-2023): fast, not for adversaries. */
#pragma once
#include <stddef.h>
#include <stdint.h>

/* Local. */
uint64_t hash64(const void *bytes, size_t n_bytes, uint64_t seed);
uint64_t hash64_string(const char *s);
