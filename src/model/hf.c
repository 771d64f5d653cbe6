/* Both directions walk the family's table: what is no key of it is none of the weights' business
 * (tokens, versions), but for the few that would change the numbers. */
#include "model/model.h"

#include "base/text.h"
#include <stdlib.h>
#include <string.h>

static const struct model_family *family_of(const char *model_type)
{
    for (int i = 0; model_list[i]; i++)
        if (model_list[i]->hf && strcmp(model_list[i]->hf->model_type, model_type) == 0)
            return model_list[i];
    return NULL;
}

/* A scalar as it would stand in a job file; NULL for null, lists and objects. */
static const char *as_value(const struct json *j)
{
    switch (j->type) {
    case JSON_FALSE:
        return "false";
    case JSON_TRUE:
        return "true";
    case JSON_NUMBER:
    case JSON_STRING:
        return j->text;
    default:
        return NULL;
    }
}

static const char *other_word(const char *const *words, const char *word, int from)
{
    for (const char *const *w = words; w && *w; w += 2)
        if (strcmp(w[from], word) == 0)
            return w[1 - from];
    return word;
}

static const char *missing_value(const struct hf_family *hf, const char *key)
{
    for (const char *const *m = hf->missing; m && *m; m += 2)
        if (strcmp(m[0], key) == 0)
            return m[1];
    return NULL;
}

static int check_fixed(const struct json *config, const struct hf_family *hf)
{
    for (const char *const *f = hf->fixed; *f; f += 2) {
        const struct json *j = json_get(config, f[0]);
        const char *want = f[1], *is = j ? as_value(j) : NULL;
        char plain[64];
        size_t n = strlen(want);
        if (!j || (j->type == JSON_NULL) || !is)
            continue;
        if (*want == '"' && n < sizeof plain + 2) { /* a text */
            memcpy(plain, want + 1, n - 2);
            plain[n - 2] = 0;
            want = plain;
        }
        if (strcmp(is, want) != 0)
            FAIL(ERR_DATA, "%s = %.100s: only %s is computed here", f[0], is, want);
    }
    return ERR_OK;
}

/* Newer files keep the rotary base in an object of its own, with the name of a scaling. */
static int rope_of(const struct json *config, struct text *out)
{
    static const char *const places[] = {"rope_parameters", "rope_scaling"};
    for (int i = 0; i < 2; i++) {
        const struct json *r = json_get(config, places[i]);
        if (!r || r->type != JSON_OBJECT)
            continue;
        const struct json *kind = json_get(r, "rope_type"), *theta = json_get(r, "rope_theta");
        if (!kind)
            kind = json_get(r, "type");
        if (kind && kind->type == JSON_STRING && strcmp(kind->text, "default") != 0)
            FAIL(ERR_DATA, "%s: rope_type = %.100s: only default is computed here", places[i],
                 kind->text);
        if (theta && theta->type == JSON_NUMBER && !json_get(config, "rope_theta"))
            text_printf(out, "rope_theta = %s\n", theta->text);
    }
    return ERR_OK;
}

int hf_config_to_model(const struct json *config, struct arena *a, struct text *out)
{
    const char *type;
    TRY(json_get_string(config, "model_type", &type));
    const struct model_family *f = family_of(type);
    if (!f)
        FAIL(ERR_DATA, "model_type = %.100s: no such model can be computed here", type);
    TRY(check_fixed(config, f->hf));
    text_printf(out, "type = %s\n", f->name);
    for (const char *const *k = f->hf->keys; *k; k += 2) {
        const struct json *j = json_get(config, k[0]);
        const char *value = j ? as_value(j) : missing_value(f->hf, k[0]);
        if (!value)
            continue;
        const struct opt *o = opt_find(f->opts, k[1]);
        REQUIRE(o);
        value = other_word(f->hf->words, value, 1);
        /* what the job's own reader would say, but with the place that it really has */
        if (opt_parse(o, value, arena_alloc(a, f->conf_bytes), a) != ERR_OK) {
            err_prefix("%s = %.100s", k[0], value);
            return err_set(ERR_DATA, "%s", arena_strdup(a, err_text()));
        }
        text_printf(out, "%s = %s\n", k[1], value);
    }
    return rope_of(config, out);
}

static void put_value(const struct opt *o, const char *key, const char *value, struct text *out)
{
    text_printf(out, ",\n  \"%s\": ", key);
    if (o->type == OPT_ENUM || o->type == OPT_STR)
        text_json_string(out, value);
    else
        text_printf(out, "%s", value);
}

int hf_config_from_model(const struct model *m, enum dtype dtype, struct arena *a, struct text *out)
{
    const struct hf_family *hf = m->family->hf;
    if (!hf)
        FAIL(ERR_DATA, "a model of type %s has no config.json", m->family->name);
    text_printf(out, "{\n  \"model_type\": \"%s\",\n  \"architectures\": [\"%s\"]", hf->model_type,
                hf->architecture);
    text_printf(out, ",\n  \"torch_dtype\": \"%s\"", dtype_name(dtype));
    for (const char *const *k = hf->keys; *k; k += 2) {
        const struct opt *o = opt_find(m->family->opts, k[1]);
        REQUIRE(o);
        const char *value = opt_print(o, m->conf, a);
        if (value && strcmp(value, "auto") != 0)
            put_value(o, k[0], other_word(hf->words, value, 0), out);
    }
    for (const char *const *f = hf->fixed; *f; f += 2)
        text_printf(out, ",\n  \"%s\": %s", f[0], f[1]);
    text_printf(out, "\n}\n");
    return ERR_OK;
}
