/* Token ids for text: bytes (256 ids) or characters (the distinct Unicode characters of a file, in
 * code point order).  Stored in the checkpoint, so that generation and resuming need no data. */
#pragma once
#include "base/json.h"
#include "base/text.h"

enum vocab_kind { VOCAB_BYTES, VOCAB_CHARS };

struct vocab {
    enum vocab_kind kind;
    int n_ids;
    const uint32_t *code_point; /* VOCAB_CHARS: (n_ids), ascending; borrowed from the arena */
};

const struct vocab *vocab_bytes(void); /* Local. */

/* The characters of valid UTF-8 text.  ERR_DATA names the first bad byte.  Local. */
int vocab_from_text(const char *text, size_t n_bytes, struct arena *a, const struct vocab **out);

/* Ids of text: *ids owned by the caller (free).  ERR_DATA names a character that v lacks and where
 * it stands.  Local. */
int vocab_encode(const struct vocab *v, const char *text, size_t n_bytes, int32_t **ids,
                 int64_t *n_ids);

/* Append the bytes of one id.  Local. */
void vocab_decode(const struct vocab *v, int32_t id, struct text *out);

/* As a JSON value and back.  ERR_DATA if it is none.  Local. */
void vocab_to_json(const struct vocab *v, struct text *out);
int vocab_from_json(const struct json *j, struct arena *a, const struct vocab **out);
