/* XXH64: four lanes of 64-bit multiply-rotate, then an avalanche.  Little-endian machines. */
#include "base/hash.h"

#include <string.h>

#define P1 0x9E3779B185EBCA87ull
#define P2 0xC2B2AE3D27D4EB4Full
#define P3 0x165667B19E3779F9ull
#define P4 0x85EBCA77C2B2AE63ull
#define P5 0x27D4EB2F165667C5ull

static uint64_t rotl(uint64_t x, int r)
{
    return (x << r) | (x >> (64 - r));
}

static uint64_t read64(const unsigned char *p)
{
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

static uint64_t read32(const unsigned char *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}

static uint64_t lane(uint64_t acc, uint64_t v)
{
    return rotl(acc + v * P2, 31) * P1;
}

static uint64_t merge(uint64_t h, uint64_t acc)
{
    return (h ^ lane(0, acc)) * P1 + P4;
}

uint64_t hash64(const void *bytes, size_t n_bytes, uint64_t seed)
{
    const unsigned char *p = bytes;
    size_t left = n_bytes;
    uint64_t h = seed + P5;
    if (left >= 32) {
        uint64_t a = seed + P1 + P2, b = seed + P2, c = seed, d = seed - P1;
        for (; left >= 32; left -= 32, p += 32) {
            a = lane(a, read64(p));
            b = lane(b, read64(p + 8));
            c = lane(c, read64(p + 16));
            d = lane(d, read64(p + 24));
        }
        h = rotl(a, 1) + rotl(b, 7) + rotl(c, 12) + rotl(d, 18);
        h = merge(merge(merge(merge(h, a), b), c), d);
    }
    h += n_bytes;
    for (; left >= 8; left -= 8, p += 8)
        h = rotl(h ^ lane(0, read64(p)), 27) * P1 + P4;
    if (left >= 4) {
        h = rotl(h ^ read32(p) * P1, 23) * P2 + P3;
        left -= 4;
        p += 4;
    }
    for (; left > 0; left--, p++)
        h = rotl(h ^ *p * P5, 11) * P1;
    h = (h ^ h >> 33) * P2;
    h = (h ^ h >> 29) * P3;
    return h ^ h >> 32;
}

uint64_t hash64_string(const char *s)
{
    return hash64(s, strlen(s), 0);
}
