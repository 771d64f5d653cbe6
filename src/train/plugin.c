/* Plugin sections: which there are, which one is in use. */
#include "train/plugin.h"

#include "train/sections.h"
#include "train/strategy.h"
#include <string.h>

static const struct plugin_type *const plugin_list[] = {&plugin_fsdp, &plugin_deepspeed};
static const char *const plugin_words[] = {"fsdp", "deepspeed", NULL};

struct plugin_conf {
    int type;
};
static const struct opt plugin_opts[] = {
    ENUM(plugin_conf, type, "fsdp", plugin_words, "system whose keys the section has"),
    {.type = OPT_END},
};

static const struct section_alias plugin_aliases[] = {
    {.name = "fsdp_config", .type = "fsdp"},
    {.name = "deepspeed_config", .type = "deepspeed"},
    {.name = "megatron_lm_config",
     .type = "megatron_lm",
     .refused = "there is no tensor or pipeline parallelism yet: [fsdp_config] and "
                "[deepspeed_config] share a model among ranks"},
    {.name = NULL},
};

const struct section_kind *plugin_kind(struct arena *a)
{
    enum { N = sizeof plugin_list / sizeof *plugin_list };
    struct section_variant *v = arena_alloc(a, sizeof *v * (N + 1));
    for (int i = 0; i < N; i++)
        v[i] = (struct section_variant){plugin_list[i]->name, plugin_list[i]->opts};
    struct section_kind *k = arena_alloc(a, sizeof *k);
    *k = (struct section_kind){.name = "plugin",
                               .may_be_named = true,
                               .opts = plugin_opts,
                               .type_key = "type",
                               .variants = v,
                               .aliases = plugin_aliases,
                               .help = "keys of the system named by type; [fsdp_config] and "
                                       "[deepspeed_config] are [plugin] of that type"};
    return k;
}

static int read_plugin(const struct run_conf *c, const char *name, struct arena *a,
                       struct plugin *out)
{
    struct plugin_conf head;
    TRY(job_read(c->job, "plugin", name, plugin_opts, &head));
    const struct plugin_type *t = plugin_list[head.type];
    *out = (struct plugin){.section = name ? arena_printf(a, "plugin.%s", name) : "plugin",
                           .name = name,
                           .type = t,
                           .conf = arena_alloc(a, t->conf_bytes)};
    TRY(job_read(c->job, "plugin", name, t->opts, out->conf));
    TRY(plugin_refuse(c, out));
    return t->check(c, out);
}

/* All plugin sections; *n of them. */
static int read_plugins(const struct run_conf *c, struct arena *a, struct plugin **out, int *n)
{
    int n_names;
    const char *const *names = job_names(c->job, "plugin", &n_names);
    struct plugin *p = arena_alloc(a, sizeof *p * (size_t)(n_names + 1));
    *n = 0;
    if (job_has_section(c->job, "plugin"))
        TRY(read_plugin(c, NULL, a, &p[(*n)++]));
    for (int i = 0; i < n_names; i++)
        TRY(read_plugin(c, names[i], a, &p[(*n)++]));
    *out = p;
    return ERR_OK;
}

/* The type that [strategy] asks for, with its keys' defaults. */
static int make_default(const struct run_conf *c, struct arena *a, const struct plugin **out)
{
    for (size_t i = 0; i < sizeof plugin_list / sizeof *plugin_list; i++) {
        const struct plugin_type *t = plugin_list[i];
        if (t->family != c->strategy.distributed_type)
            continue;
        struct plugin *p = arena_alloc(a, sizeof *p);
        *p = (struct plugin){.section = "plugin", .type = t, .conf = arena_alloc(a, t->conf_bytes)};
        *out = p;
        return opt_defaults(t->opts, p->conf, a);
    }
    return ERR_OK;
}

int plugin_find(const struct run_conf *c, struct arena *a, const struct plugin **out)
{
    const struct strategy_conf *s = &c->strategy;
    int family = s->distributed_type, n, n_fit = 0;
    struct plugin *p;
    bool any = family == TYPE_AUTO, used = any;
    for (size_t i = 0; i < sizeof plugin_list / sizeof *plugin_list; i++)
        used |= plugin_list[i]->family == family;
    *out = NULL;
    TRY(read_plugins(c, a, &p, &n));
    for (int i = 0; i < n; i++) {
        if (s->plugin && p[i].name && text_same(p[i].name, s->plugin))
            *out = &p[i];
        else if (!s->plugin && !any && p[i].type->family == family && n_fit++ == 0)
            *out = &p[i];
    }
    if (s->plugin && !*out)
        return job_error(c->job, "strategy", NULL, "plugin", "there is no section [plugin.%s]",
                         s->plugin);
    if (n_fit > 1)
        return job_error(c->job, "strategy", NULL, "plugin", "must say which of %d plugins", n_fit);
    if (*out && !any && used && (*out)->type->family != family) {
        return job_error(c->job, "strategy", NULL, "distributed_type",
                         "does not go with the plugin in use, %s",
                         job_where(c->job, "plugin", (*out)->name, "type"));
    }
    if (!used)
        *out = NULL;
    return *out ? ERR_OK : make_default(c, a, out);
}

void plugin_notes(const struct run_conf *c, const struct plugin *p, struct text *out)
{
    for (const struct opt *o = p->type->opts; o->type != OPT_END; o++)
        if (strncmp(o->help, "no effect", 9) == 0 && job_value(c->job, p->section, o->name))
            text_printf(out, "note: [%s] %s has %s\n", p->section, o->name, o->help);
    if (p->type->notes)
        p->type->notes(c, p, out);
}

int plugin_refuse(const struct run_conf *c, const struct plugin *p)
{
    struct arena *a = arena_create();
    int rc = ERR_OK;
    for (const struct opt *o = p->type->opts; o->type != OPT_END && rc == ERR_OK; o++) {
        if (strncmp(o->help, "only", 4) != 0)
            continue;
        const char *value = opt_print(o, p->conf, a);
        if (value && !text_same(value, o->dflt ? o->dflt : ""))
            rc = job_error(c->job, "plugin", p->name, o->name, "can be %s", o->help);
    }
    arena_destroy(&a);
    return rc;
}
