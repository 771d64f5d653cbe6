/* Members and numbers of a JSON tree, with errors that name the member. */
#include "base/json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const struct json *json_get(const struct json *object, const char *key)
{
    if (!object || object->type != JSON_OBJECT)
        return NULL;
    for (const struct json *m = object->child; m; m = m->next)
        if (strcmp(m->key, key) == 0)
            return m;
    return NULL;
}

const struct json *json_at(const struct json *array, int i)
{
    if (!array || array->type != JSON_ARRAY || i < 0)
        return NULL;
    const struct json *j = array->child;
    while (j && i-- > 0)
        j = j->next;
    return j;
}

static const char *json_key(const struct json *j)
{
    return j->key ? j->key : "element";
}

int json_as_i64(const struct json *j, int64_t *v)
{
    if (j->type != JSON_NUMBER)
        FAIL(ERR_DATA, "JSON: %.200s is not a number", json_key(j));
    char *end;
    errno = 0;
    long long n = strtoll(j->text, &end, 10);
    if (*end || errno)
        FAIL(ERR_DATA, "JSON: %.200s = %.60s is not an integer of 64 bits", json_key(j), j->text);
    *v = n;
    return ERR_OK;
}

int json_as_f64(const struct json *j, double *v)
{
    if (j->type != JSON_NUMBER)
        FAIL(ERR_DATA, "JSON: %.200s is not a number", json_key(j));
    double n = strtod(j->text, NULL);
    if (!isfinite(n))
        FAIL(ERR_DATA, "JSON: %.200s = %.60s is too large", json_key(j), j->text);
    *v = n;
    return ERR_OK;
}

static int get_member(const struct json *object, const char *key, const struct json **out)
{
    *out = json_get(object, key);
    if (!*out)
        FAIL(ERR_DATA, "JSON: \"%s\" is missing", key);
    return ERR_OK;
}

int json_get_i64(const struct json *object, const char *key, int64_t *v)
{
    const struct json *j;
    TRY(get_member(object, key, &j));
    return json_as_i64(j, v);
}

int json_get_f64(const struct json *object, const char *key, double *v)
{
    const struct json *j;
    TRY(get_member(object, key, &j));
    return json_as_f64(j, v);
}

int json_get_string(const struct json *object, const char *key, const char **v)
{
    const struct json *j;
    TRY(get_member(object, key, &j));
    if (j->type != JSON_STRING)
        FAIL(ERR_DATA, "JSON: \"%s\" is not a string", key);
    *v = j->text;
    return ERR_OK;
}
