/* Strict decoding: what is not the shortest form of a character is an error. */
#include "data/utf8.h"

int32_t utf8_next(const char *text, size_t n_bytes, size_t *at)
{
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    const unsigned char *c = (const unsigned char *)text + *at;
    if (c[0] < 0x80) {
        *at += 1;
        return c[0];
    }
    size_t more = c[0] < 0xC2 ? 0 : c[0] < 0xE0 ? 1 : c[0] < 0xF0 ? 2 : c[0] < 0xF5 ? 3 : 0;
    if (more == 0 || more >= n_bytes - *at)
        return -1;
    uint32_t v = c[0] & (0x3Fu >> more);
    for (size_t i = 1; i <= more; i++) {
        if ((c[i] & 0xC0) != 0x80)
            return -1;
        v = v << 6 | (c[i] & 0x3Fu);
    }
    if (v < least[more] || v > 0x10FFFF || (v >= 0xD800 && v < 0xE000))
        return -1;
    *at += more + 1;
    return (int32_t)v;
}

int utf8_put(uint32_t v, char out[5])
{
    int more = v < 0x80 ? 0 : v < 0x800 ? 1 : v < 0x10000 ? 2 : 3;
    static const unsigned char first[] = {0, 0xC0, 0xE0, 0xF0};
    out[0] = (char)(first[more] | v >> (6 * more));
    for (int i = 1; i <= more; i++)
        out[i] = (char)(0x80 | (v >> (6 * (more - i)) & 0x3F));
    out[more + 1] = 0;
    return more + 1;
}
