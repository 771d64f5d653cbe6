/* Groups: who matches whom, and what a step is for each of them. */
#include "optim/group.h"

#include <fnmatch.h>
#include <string.h>

static const char *const frozen_words[] = {"auto", "true", "false", NULL};

static const struct opt group_opts[] = {
    STRS(group_conf, match, NULL, "shell patterns over tensor names: h.0.*, *.bias"),
    F64_AUTO(group_conf, lr, "auto", 0, 1e3, "peak learning rate; auto: the optimizer's"),
    F64(group_conf, lr_scale, "1", 0, 1e6, "multiplies the learning rate of every step"),
    F64_AUTO(group_conf, weight_decay, "auto", 0, 1e3,
             "of all tensors of the group; auto: the optimizer's, where decay_on has it"),
    ENUM(group_conf, frozen, "auto", frozen_words,
         "true: no gradient, no moments, no change; auto: as the model has it (LoRA freezes all "
         "but its adapters)"),
    {.type = OPT_END},
};

const struct section_kind kind_group = {.name = "group",
                                        .may_be_named = true,
                                        .opts = group_opts,
                                        .help = "tensors with other rates, or frozen ones"};

static int read_one(const struct job *j, const char *name, struct group_conf *c)
{
    TRY(job_read(j, "group", name, group_opts, c));
    if (c->match.n == 0)
        return job_error(j, "group", name, "match", "shell patterns over tensor names are needed");
    if (c->frozen == FROZEN_TRUE &&
        (!opt_is_auto(c->lr) || c->lr_scale != 1 || !opt_is_auto(c->weight_decay)))
        return job_error(j, "group", name, "frozen",
                         "frozen tensors take no lr, lr_scale or weight_decay");
    return ERR_OK;
}

int groups_read(const struct job *j, struct arena *a, struct groups *out)
{
    static const char *const plain[] = {NULL};
    *out = (struct groups){0};
    out->name = job_names(j, "group", &out->n);
    if (out->n == 0 && job_has_section(j, "group")) {
        out->name = plain;
        out->n = 1;
    }
    out->conf = arena_alloc(a, sizeof *out->conf * (size_t)(out->n + 1));
    for (int i = 0; i < out->n; i++)
        TRY(read_one(j, out->name[i], &out->conf[i]));
    return ERR_OK;
}

static bool matches(const char *pattern, const struct tensor_row *row)
{
    return fnmatch(pattern, row->name, 0) == 0 ||
           (row->alias && fnmatch(pattern, row->alias, 0) == 0);
}

static int no_tensor(const struct job *j, const struct groups *g, int i, const char *pattern,
                     const struct tensor_table *t, struct arena *a)
{
    const char **words = arena_alloc(a, sizeof *words * (size_t)(t->n_rows + 1));
    for (int r = 0; r < t->n_rows; r++)
        words[r] = t->rows[r].name;
    const char *near = text_nearest(pattern, words);
    return job_error(j, "group", g->name[i], "match", "no tensor is called \"%s\"%s%s%s", pattern,
                     near ? "; the nearest is " : "", near ? near : "",
                     near ? "" : ": stretto inspect lists a model's tensors");
}

/* Patterns that match nothing are mistakes; so is a group that earlier ones leave nothing. */
static int assign_one(const struct job *j, struct groups *g, int i, const struct tensor_table *t,
                      struct arena *a)
{
    int n_taken = 0, earlier = 0;
    for (int k = 0; k < g->conf[i].match.n; k++) {
        const char *pattern = g->conf[i].match.v[k];
        bool any = false;
        for (int r = 0; r < t->n_rows; r++) {
            if (!matches(pattern, &t->rows[r]))
                continue;
            any = true;
            if (g->of_row[r] < 0)
                g->of_row[r] = i;
            if (g->of_row[r] == i)
                n_taken++;
            else
                earlier = g->of_row[r];
        }
        if (!any)
            return no_tensor(j, g, i, pattern, t, a);
    }
    if (n_taken > 0)
        return ERR_OK;
    return job_error(j, "group", g->name[i], "match",
                     "every tensor that matches is in an earlier group, as in [group.%s]: the "
                     "first one has it",
                     g->name[earlier]);
}

int groups_assign(const struct job *j, struct groups *g, struct tensor_table *t, struct arena *a)
{
    bool trains = false;
    g->of_row = arena_alloc(a, sizeof *g->of_row * (size_t)(t->n_rows + 1));
    for (int r = 0; r < t->n_rows; r++)
        g->of_row[r] = -1;
    for (int i = 0; i < g->n; i++)
        TRY(assign_one(j, g, i, t, a));
    for (int r = 0; r < t->n_rows; r++) {
        int frozen = g->of_row[r] < 0 ? FROZEN_AUTO : g->conf[g->of_row[r]].frozen;
        if (frozen == FROZEN_TRUE)
            t->rows[r].flags |= TENSOR_FROZEN;
        if (frozen == FROZEN_FALSE)
            t->rows[r].flags &= ~(unsigned)TENSOR_FROZEN;
        trains = trains || !(t->rows[r].flags & TENSOR_FROZEN);
    }
    if (g->n > 0 && t->n_rows > 0 && !trains)
        return job_error(j, "group", g->name[g->n - 1], "frozen",
                         "all tensors are frozen: nothing is left to train");
    return ERR_OK;
}

static double rate(const struct group_conf *c, const struct groups_base *b,
                   const struct optim_step *all)
{
    if (opt_is_auto(c->lr))
        return all->lr * c->lr_scale;
    struct schedule_conf own = *b->schedule;
    own.warmup_max_lr = own.cycle_max_lr = own.lr_range_test_min_lr = OPT_AUTO_F64;
    return schedule_lr(&own, c->lr, all->t, b->total_steps) * c->lr_scale;
}

void groups_step(const struct groups *g, const struct tensor_table *t,
                 const struct groups_base *base, const struct optim_step *all,
                 struct optim_step *step)
{
    bool all_decay = base->optim->decay_on == DECAY_ON_ALL;
    for (int r = 0; r < t->n_rows; r++) {
        const struct group_conf *c = g->of_row[r] < 0 ? NULL : &g->conf[g->of_row[r]];
        step[r] = *all;
        if (!all_decay && !(t->rows[r].flags & TENSOR_DECAY))
            step[r].weight_decay = 0;
        if (!c)
            continue;
        step[r].lr = rate(c, base, all);
        if (!opt_is_auto(c->weight_decay))
            step[r].weight_decay = c->weight_decay;
    }
}

void groups_describe(const struct groups *g, const struct tensor_table *t, struct text *out)
{
    for (int i = 0; i < g->n; i++) {
        const struct group_conf *c = &g->conf[i];
        int n_tensors = 0, n_frozen = 0;
        int64_t n_params = 0;
        for (int r = 0; r < t->n_rows; r++)
            if (g->of_row[r] == i) {
                n_tensors++;
                n_frozen += (t->rows[r].flags & TENSOR_FROZEN) != 0;
                n_params += shape_elems(&t->rows[r].shape);
            }
        text_printf(out, "group    %s: %d tensor%s, %lld parameters",
                    g->name[i] ? g->name[i] : "[group]", n_tensors, n_tensors == 1 ? "" : "s",
                    (long long)n_params);
        if (n_frozen > 0)
            text_printf(out, n_frozen == n_tensors ? ", frozen" : ", %d tensors frozen", n_frozen);
        if (!opt_is_auto(c->lr))
            text_printf(out, ", lr %g", c->lr);
        if (c->lr_scale != 1)
            text_printf(out, ", lr x %g", c->lr_scale);
        if (!opt_is_auto(c->weight_decay))
            text_printf(out, ", weight decay %g", c->weight_decay);
        text_printf(out, "\n");
    }
}
