/* A JSON tree as text again. */
#include "base/json.h"
#include "base/text.h"

void json_print(const struct json *j, struct text *out)
{
    static const char *const words[] = {
        [JSON_NULL] = "null", [JSON_FALSE] = "false", [JSON_TRUE] = "true"};
    switch (j->type) {
    case JSON_NUMBER:
        text_printf(out, "%s", j->text);
        return;
    case JSON_STRING:
        text_json_string(out, j->text);
        return;
    case JSON_ARRAY:
    case JSON_OBJECT:
        break;
    default:
        text_printf(out, "%s", words[j->type]);
        return;
    }
    text_printf(out, j->type == JSON_ARRAY ? "[" : "{");
    for (const struct json *c = j->child; c; c = c->next) {
        if (c->key) {
            text_json_string(out, c->key);
            text_printf(out, ":");
        }
        json_print(c, out);
        if (c->next)
            text_printf(out, ",");
    }
    text_printf(out, j->type == JSON_ARRAY ? "]" : "}");
}
