/* UTF-8 (RFC 3629), one character at a time: no overlong forms, no surrogates. */
#pragma once
#include <stddef.h>
#include <stdint.h>

/* The character that begins at byte *at (< n_bytes); moves *at behind it.  Returns its code point,
 * or -1, with *at where it was, if the bytes there are no character.  Local. */
int32_t utf8_next(const char *text, size_t n_bytes, size_t *at);

/* Bytes of a code point, NUL-terminated; returns their number, 1 … 4.  Local. */
int utf8_put(uint32_t code_point, char out[5]);
