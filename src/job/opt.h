/* Option tables: the one description of a job key.  Parsing, ranges, `--help`, the resolved echo
 * and the reference are all made from the tables, which stand beside the code that reads them. */
#pragma once
#include "base/arena.h"
#include <math.h>

struct text;

enum opt_type {
    OPT_END,
    OPT_BOOL, /* bool; true/false yes/no on/off 1/0 */
    OPT_I64,  /* int64_t */
    OPT_F64,  /* double */
    OPT_STR,  /* const char *, NULL when not given and without a default */
    OPT_ENUM, /* int, an index into words */
    OPT_I64S, /* struct opt_i64s: a list, separated by commas and/or blanks */
    OPT_F64S, /* struct opt_f64s */
    OPT_STRS  /* struct opt_strs: a list, separated by commas */
};

enum opt_flags {
    OPT_AUTO = 1,    /* the word auto is allowed and reads as OPT_AUTO_I64 / OPT_AUTO_F64 (NaN) */
    OPT_PATH = 2,    /* a path, or a list of them: may not be empty */
    OPT_HIDDEN = 4,  /* not in --help: an alias kept for files that people have */
    OPT_REQUIRED = 8 /* no default: must be given */
};

#define OPT_AUTO_I64 INT64_MIN
#define OPT_AUTO_F64 ((double)NAN)
static inline bool opt_is_auto(double v)
{
    return isnan(v);
}

enum { OPT_LIST_MAX = 32 };
struct opt_i64s {
    int n;
    int64_t v[OPT_LIST_MAX];
};
struct opt_f64s {
    int n;
    double v[OPT_LIST_MAX];
};
struct opt_strs {
    int n;
    const char *v[OPT_LIST_MAX];
};

struct opt {
    const char *name;    /* the key, lower case, dots allowed */
    const char *aliases; /* other spellings, blank-separated, or NULL */
    enum opt_type type;
    unsigned flags;
    size_t offset;            /* of the field in the section's struct */
    const char *dflt;         /* as it would be written in the file, or NULL */
    double min, max;          /* inclusive; of numbers and of the items of lists */
    const char *const *words; /* OPT_ENUM: NULL-terminated; an enum lists only what works */
    const char *help;         /* one line: meaning and unit */
};

#define OPT_ROW(key, conf, field, kind, dft, lo, hi, list, flag, text)                             \
    {                                                                                              \
        .name = (key), .type = (kind), .flags = (flag), .offset = offsetof(struct conf, field),    \
        .dflt = (dft), .min = (lo), .max = (hi), .words = (list), .help = (text)                   \
    }

/* The key is the field's name.  conf is the struct's tag without the word struct. */
#define I64(conf, field, dflt, min, max, help)                                                     \
    OPT_ROW(#field, conf, field, OPT_I64, dflt, min, max, NULL, 0, help)
#define I64_AUTO(conf, field, dflt, min, max, help)                                                \
    OPT_ROW(#field, conf, field, OPT_I64, dflt, min, max, NULL, OPT_AUTO, help)
#define F64(conf, field, dflt, min, max, help)                                                     \
    OPT_ROW(#field, conf, field, OPT_F64, dflt, min, max, NULL, 0, help)
#define F64_AUTO(conf, field, dflt, min, max, help)                                                \
    OPT_ROW(#field, conf, field, OPT_F64, dflt, min, max, NULL, OPT_AUTO, help)
#define BOOL(conf, field, dflt, help)                                                              \
    OPT_ROW(#field, conf, field, OPT_BOOL, dflt, 0, 0, NULL, 0, help)
#define STR(conf, field, dflt, help)                                                               \
    OPT_ROW(#field, conf, field, OPT_STR, dflt, 0, 0, NULL, 0, help)
#define STR_PATH(conf, field, dflt, help)                                                          \
    OPT_ROW(#field, conf, field, OPT_STR, dflt, 0, 0, NULL, OPT_PATH, help)
#define ENUM(conf, field, dflt, list, help)                                                        \
    OPT_ROW(#field, conf, field, OPT_ENUM, dflt, 0, 0, list, 0, help)
#define I64S(conf, field, dflt, min, max, help)                                                    \
    OPT_ROW(#field, conf, field, OPT_I64S, dflt, min, max, NULL, 0, help)
#define F64S(conf, field, dflt, min, max, help)                                                    \
    OPT_ROW(#field, conf, field, OPT_F64S, dflt, min, max, NULL, 0, help)
#define STRS(conf, field, dflt, help)                                                              \
    OPT_ROW(#field, conf, field, OPT_STRS, dflt, 0, 0, NULL, 0, help)
/* The same with a key that is no C name (dots, or another word): key first. */
#define ENUM_KEY(key, conf, field, dflt, list, help)                                               \
    OPT_ROW(key, conf, field, OPT_ENUM, dflt, 0, 0, list, 0, help)
#define STR_KEY(key, conf, field, dflt, help)                                                      \
    OPT_ROW(key, conf, field, OPT_STR, dflt, 0, 0, NULL, 0, help)
#define I64_KEY(key, conf, field, dflt, min, max, help)                                            \
    OPT_ROW(key, conf, field, OPT_I64, dflt, min, max, NULL, 0, help)
#define F64_KEY(key, conf, field, dflt, min, max, help)                                            \
    OPT_ROW(key, conf, field, OPT_F64, dflt, min, max, NULL, 0, help)
#define BOOL_KEY(key, conf, field, dflt, help)                                                     \
    OPT_ROW(key, conf, field, OPT_BOOL, dflt, 0, 0, NULL, 0, help)

/* The row that key names (by name or alias, any case), or NULL.  Local. */
const struct opt *opt_find(const struct opt *opts, const char *key);

/* Parse value to its last character into conf's field.  On failure the text says what is allowed,
 * without naming the place (the caller puts that in front with err_prefix): ERR_USAGE.
 * Integers are decimal, without leading zeros; 5e8 is one.  Lists may stand in [ ]; "" and [] are
 * the empty list.  Strings live in a.  Local. */
int opt_parse(const struct opt *o, const char *value, void *conf, struct arena *a);

/* Fill conf with the defaults of a whole table; a key without one becomes NULL, an empty list or 0.
 * ERR_INTERNAL: a default does not parse.  Local. */
int opt_defaults(const struct opt *opts, void *conf, struct arena *a);

/* The field's value such that opt_parse() reads it back to the same bits ("auto" included), in a;
 * NULL for a string that is not set.  Quoting is the file's matter, not done here.  Local. */
const char *opt_print(const struct opt *o, const void *conf, struct arena *a);

/* "integer 1 … 1000000", "one of: AdamW, SGD", … for help and errors, in a.  Local. */
const char *opt_allowed(const struct opt *o, struct arena *a);

/* Words of an enum are equal whatever their case, and - is _.  Local. */
bool opt_word_same(const char *a, const char *b);

/* Append one entry a key to out, in columns: "key = default", then meaning, what is allowed and
 * other spellings, wrapped at 100 columns.  Hidden keys are left out.  a is scratch.  Local. */
void opt_help(const struct opt *opts, struct text *out, struct arena *a);

/* Prove a table sound: names lower case and, with the aliases, unique; a default that parses or a
 * reason to have none; flags and ranges that fit the type; a help line.  ERR_INTERNAL.  Local. */
int opt_check_table(const struct opt *opts, struct arena *a);
