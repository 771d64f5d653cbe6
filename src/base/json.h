/* JSON reading (RFC 8259): a tree in an arena.  Numbers keep their text, so that 64-bit offsets
 * are exact; duplicate names, invalid UTF-8, control characters, trailing text and nesting deeper
 * than 64 are refused. */
#pragma once
#include "base/arena.h"

enum json_type {
    JSON_NULL,
    JSON_FALSE,
    JSON_TRUE,
    JSON_NUMBER,
    JSON_STRING,
    JSON_ARRAY,
    JSON_OBJECT
};

struct json {
    enum json_type type;
    const char *key;          /* of a member of an object, else NULL */
    const char *text;         /* number as written, or string decoded (no NUL inside) */
    const struct json *child; /* first element or member */
    const struct json *next;
    int n_children;
};

/* ERR_DATA names the byte.  Local. */
int json_parse(const char *bytes, size_t n_bytes, struct arena *a, const struct json **out);

const struct json *json_get(const struct json *object, const char *key); /* NULL: none.  Local. */
const struct json *json_at(const struct json *array, int i);             /* NULL: none.  Local. */

/* Typed members of an object; ERR_DATA names a missing key or a wrong type.  Local. */
int json_get_i64(const struct json *object, const char *key, int64_t *v);
int json_get_f64(const struct json *object, const char *key, double *v);
int json_get_string(const struct json *object, const char *key, const char **v);
int json_as_i64(const struct json *j, int64_t *v);
int json_as_f64(const struct json *j, double *v);

struct text;
/* Append a value as JSON: numbers as they were written, members in their order.  Local. */
void json_print(const struct json *j, struct text *out);
