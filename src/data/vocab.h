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

/* Ids in as few bytes each as the vocabulary allows. */
struct vocab_ids {
    void *ids; /* owned: uint8_t, uint16_t or int32_t; free */
    int width; /* 1, 2 or 4 bytes */
    int64_t n_ids;
};

const struct vocab *vocab_bytes(void);             /* Local. */
const char *vocab_kind_name(enum vocab_kind kind); /* "bytes", "chars".  Local. */

/* The characters of valid UTF-8 text.  ERR_DATA names the first bad byte.  Local. */
int vocab_from_text(const char *text, size_t n_bytes, struct arena *a, const struct vocab **out);

/* Ids of text: *ids owned by the caller (free).  ERR_DATA names a character that v lacks and where
 * it stands; ERR_RESOURCE without memory.  Local. */
int vocab_encode(const struct vocab *v, const char *text, size_t n_bytes, int32_t **ids,
                 int64_t *n_ids);

/* The same, packed, for whole files.  Local. */
int vocab_encode_packed(const struct vocab *v, const char *text, size_t n_bytes,
                        struct vocab_ids *out);

/* Id number i.  Local. */
static inline int32_t vocab_ids_at(const struct vocab_ids *p, int64_t i)
{
    if (p->width == 1)
        return ((const uint8_t *)p->ids)[i];
    return p->width == 2 ? ((const uint16_t *)p->ids)[i] : ((const int32_t *)p->ids)[i];
}

/* Append the bytes of one id, 0 … n_ids - 1.  Local. */
void vocab_decode(const struct vocab *v, int32_t id, struct text *out);

/* As a JSON value and back.  ERR_DATA if it is none.  Local. */
void vocab_to_json(const struct vocab *v, struct text *out);
int vocab_from_json(const struct json *j, struct arena *a, const struct vocab **out);
