/* A job: the entries of an INI file and the command line's overrides, checked against tables.
 *
 * job_load() reads files (rank 0); job_pack()/job_unpack() carry the entries to the other ranks, so
 * that all parse the same bytes; everything else is local and gives the same answer on every rank.
 * Errors are ERR_USAGE and begin with the place as far as there is one: "FILE:LINE: [section] key =
 * value: ", or "command line: [section] key = value: ".
 *
 * Section and key names are case-insensitive and kept in lower case.  A value is the rest of the
 * line, or stands in "" or ''; an empty one must be quoted.  In values $VAR and ${VAR} are replaced
 * ($$ is a dollar sign), and ~/ at the start of the value or of a list's item.  The key include in
 * [job] names a file, relative to the one it stands in, whose entries are defaults for this one. */
#pragma once
#include "base/text.h"
#include "job/opt.h"

/* One choice of a section's type key, with the keys that only this choice has. */
struct section_variant {
    const char *word;       /* value of the type key, any case */
    const struct opt *opts; /* NULL: no keys of its own */
};

/* Another name of a kind's plain section, as files of other systems have it: what stands there is
 * of that type. */
struct section_alias {
    const char *name, *type;
    const char *refused; /* what to say instead; NULL: it is taken */
};

/* One kind of section.  A kind that may be named appears as [model] and as [model.NAME]. */
struct section_kind {
    const char *name;
    bool may_be_named;
    const struct opt *opts;
    const char *type_key;                   /* the key of opts that picks a variant, or NULL */
    const struct section_variant *variants; /* ends with .word == NULL; NULL if type_key is */
    const struct section_alias *aliases;    /* ends with .name == NULL; or NULL */
    const char *help;
};

struct job; /* lives in the arena that it was loaded into */

/* Read path ("-" is refused) with its includes, scan it, let iniparser read the same bytes and
 * compare, apply overrides "section.key=value" (of two for one key the later), expand values.
 * kinds (NULL-terminated) tells which sections exist: an override's section is the longest name
 * that fits, out of the files' sections and the kinds' own names.  Local. */
int job_load(const char *path, int n_overrides, const char *const *overrides,
             const struct section_kind *const *kinds, struct arena *a, struct job **out);

/* The same from text in memory; name stands for the file in messages, ./ for its folder.  Local. */
int job_parse(const char *name, const char *text, size_t n_bytes, int n_overrides,
              const char *const *overrides, const struct section_kind *const *kinds,
              struct arena *a, struct job **out);

/* Entries to bytes and back, for the broadcast.  *bytes is owned by the caller (free).  Local. */
void job_pack(const struct job *j, char **bytes, size_t *n_bytes);
struct job *job_unpack(const char *bytes, size_t n_bytes, struct arena *a);

/* Every section and key must be known to kinds (nearest spelling in the error), a variant's keys
 * only under that variant (in a plain [KIND] also those of its named sections' variants), every
 * value must parse, and no key may be set to two values by two spellings in one file.  Local. */
int job_check(const struct job *j, const struct section_kind *const *kinds);

/* For a section whose type job_check() could not know, since its word (auto) is none of the kind's
 * variants, and which turned out as type: each of its keys must be the kind's own or this type's.
 * Local. */
int job_check_type(const struct job *j, const struct section_kind *k, const char *name,
                   const char *type);

/* Fill conf from section KIND or, where name is not NULL, [KIND.NAME] over [KIND] over defaults.
 * opts is the table to read with (the kind's own or a variant's).  The job remembers what was
 * read, for job_print_resolved(), job_error() and job_unread().  Local. */
int job_read(const struct job *j, const char *kind, const char *name, const struct opt *opts,
             void *conf);

/* Keys of one section that stand for keys of another, as DeepSpeed's optimizer.params.lr does for
 * lr of [optimizer].  from_key of [from_section] becomes row's key in [KIND.NAME], or [KIND] where
 * name is NULL, for every job_read() that follows; auto, or a key that nobody set, changes nothing.
 * Of two the command line's counts, or the including file's; of one file both must say the same:
 * ERR_USAGE names both lines.  Local. */
int job_adopt(const struct job *j, const char *from_section, const char *from_key, const char *kind,
              const char *name, const struct opt *row);

/* The same where from_key's value, whatever it is, stands for value.  Local. */
int job_adopt_as(const struct job *j, const char *from_section, const char *from_key,
                 const char *value, const char *kind, const char *name, const struct opt *row);

/* Another default for row's key of [KIND.NAME]: its value unless something sets it.  Local. */
void job_adopt_default(const struct job *j, const char *kind, const char *name,
                       const struct opt *row, const char *value);

/* Forget what was adopted.  Local. */
void job_adopt_reset(const struct job *j);

/* The raw text of a key, NULL if neither file nor command line sets it.  section is the full name
 * ("model.student").  Aliases are not looked at.  Local. */
const char *job_value(const struct job *j, const char *section, const char *key);

bool job_has_section(const struct job *j, const char *section); /* Local. */

/* Names NAME of all [KIND.NAME], in file order; *n of them; in the job's arena.  Local. */
const char *const *job_names(const struct job *j, const char *kind, int *n);

/* An error about one key: sets "FILE:LINE: [section] key = value: text" and returns ERR_USAGE.
 * Looks in [KIND.NAME], then [KIND]; a key that nobody set is named without a line.  Local. */
int job_error(const struct job *j, const char *kind, const char *name, const char *key,
              const char *fmt, ...) PRINTF_LIKE(5, 6);

/* Where key of [KIND.NAME] stands, "FILE:LINE: [section] key = value", for an error that names two
 * places; in the job's arena.  Local. */
const char *job_where(const struct job *j, const char *kind, const char *name, const char *key);

/* Full names of the file's sections that no job_read() looked at so far; as job_names.  Local. */
const char *const *job_unread(const struct job *j, int *n);

/* Append the resolved job as an INI text that job_load() reads back to the same values: every key
 * of every section that job_read() was asked for, in that order, defaults included.  What was read
 * for a name without a section of its own stands in the plain section.  Local. */
void job_print_resolved(const struct job *j, struct text *out);

/* The job's own file name as given.  Local. */
const char *job_file(const struct job *j);

/* Append a kind's help: a header line, its keys, each variant's keys.  a is scratch.  Local. */
void job_help_kind(const struct section_kind *kind, struct text *out, struct arena *a);

/* Prove the kinds' tables sound: opt_check_table() on each, variants that their type key can have,
 * no key both in a kind and its variant.  ERR_INTERNAL.  Local. */
int job_check_kinds(const struct section_kind *const *kinds, struct arena *a);
