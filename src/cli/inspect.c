/* stretto inspect: what a checkpoint holds. */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

static void print_counters(const struct ckpt *k, struct text *t)
{
    static const char *const words[] = {
        "name",  "model",   "strategy", "optimizer",    "world",        "step", "epoch",
        "index", "samples", "tokens",   "micro_global", "accumulation", "seed", "run_id", NULL};
    for (const char *const *w = words; *w; w++) {
        const struct json *v = json_get(ckpt_meta(k), *w);
        if (v && v->text)
            text_printf(t, "%-13s %s\n", *w, v->text);
    }
}

static int inspect(struct cli *c, int argc, char **argv)
{
    if (argc != 2)
        FAIL(ERR_USAGE, "one checkpoint is needed: say stretto inspect FOLDER");
    struct ckpt *k;
    c->world = comm_self();
    TRY(cli_find_checkpoint(c, argv[1], &k));
    struct text t = {0};
    text_printf(&t, "%s\n", ckpt_dir(k));
    print_counters(k, &t);
    int64_t total = 0;
    for (int i = 0; i < ckpt_n_arrays(k); i++) {
        const struct ckpt_array *a = ckpt_array_at(k, i);
        char shape[64];
        text_printf(&t, "%-18s %-32s %-8s %-14s %s%s%s\n", a->group, a->name, dtype_name(a->dtype),
                    shape_print(&a->shape, shape, sizeof shape), a->layout ? a->layout : "",
                    a->alias ? " = " : "", a->alias ? a->alias : "");
        if (strcmp(a->group, "model") == 0)
            total += shape_elems(&a->shape);
    }
    text_printf(&t, "%lld parameters\n", (long long)total);
    fputs(t.s, stdout);
    text_clear(&t);
    ckpt_close(&k);
    return ERR_OK;
}

const struct command inspect_command = {
    .name = "inspect",
    .args = "FOLDER",
    .summary = "tensors, shapes and counters of a checkpoint",
    .help = "FOLDER is a run's output_dir, one of its step folders, or its `latest`.  Needs no "
            "mpirun.\n",
    .run = inspect,
};
