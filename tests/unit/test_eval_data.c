/* Data of its own to evaluate on: all of it, by the classes and the scale of what is trained on.
 * RUN: -n 1 */
#include "train_run.h"

static const char *write_rows(struct arena *a, const char *folder, const char *name,
                              const char *rows)
{
    const char *path = arena_printf(a, "%s/%s", folder, name);
    train_must(file_write(path, rows, strlen(rows)));
    return path;
}

/* The status of setting up a job with two data sections. */
static int set_up(struct comm *self, struct arena *a, const char *model, const char *train,
                  const char *val, const char *val_keys, struct run *r)
{
    const char *ini = arena_printf(a,
                                   "[job]\nmax_steps = 1\n[model]\n%sdata = a\neval_data = b\n"
                                   "[data.a]\npath = %s\n[data.b]\npath = %s\n%s",
                                   model, train, val, val_keys);
    return train_setup(self, ini, NULL, a, r);
}

int main(void)
{
    static const char mlp[] = "type = mlp\n", gpt[] = "n_layer = 1\nn_head = 1\nn_embd = 8\n"
                                                      "block_size = 4\n";
    struct arena *a = arena_create();
    struct comm *self = comm_self();
    struct run r;
    char folder[256];
    train_folder(self, folder, sizeof folder);
    const char *train = write_rows(a, folder, "a.csv", "1,x\n2,y\n3,z\n4,x\n5,y\n");
    const char *val = write_rows(a, folder, "b.csv", "1,z\n2,x\n3,x\n");
    const char *text = write_rows(a, folder, "c.txt", "abcdefghijklmnopqrstuvwxyz0123456");

    TEST ("nothing is held out where there is data to evaluate on, and all of that is used") {
        enum data_part part;
        train_must(set_up(self, a, mlp, train, val, "", &r));
        const struct data *d = run_eval_source(&r, &part);
        CHECK(r.data->n_samples[DATA_TRAIN] == 5 && r.data->n_samples[DATA_EVAL] == 0);
        CHECK(d->n_samples[part] == 3);
        int32_t target = -1;
        float x;
        d->ops->get(d, part, 0, &(struct batch_row){.features = &x, .targets = &target});
        CHECK(target == 2);
        run_clear(&r);
        train_must(set_up(self, a, gpt, text, text, "", &r));
        d = run_eval_source(&r, &part);
        CHECK(r.data->n_samples[DATA_TRAIN] == 8 && d->n_samples[part] == 8);
        run_clear(&r);
    }
    TEST ("a part of it is refused in words") {
        CHECK(set_up(self, a, mlp, train, val, "split = 0.5\n", &r) == ERR_USAGE);
        CHECK_HAS(err_text(), "[data.b] split = 0.5: is all to evaluate on");
        run_clear(&r);
        train_must(set_up(self, a, mlp, train, val, "split = 1\n", &r));
        run_clear(&r);
    }
    TEST ("a checkpoint keeps its classes: data that numbers them otherwise is refused") {
        static const char job[] = "[job]\nmax_steps = 1\noutput_dir = %s/out\n[model]\ntype = mlp\n"
                                  "[data]\nsplit = 1\npath = %s\n";
        const char *other = write_rows(a, folder, "d.csv", "1,x\n2,y\n3,w\n");
        const char *dir;
        struct train_run t;
        struct ckpt *k;
        train_open(&t, self, arena_printf(a, job, folder, train), NULL);
        train_must(train_save(&t, CKPT_FULL));
        train_close(&t);
        train_must(ckpt_find(arena_printf(a, "%s/out", folder), a, &dir));
        train_must(ckpt_open(dir, &k));
        CHECK(train_setup(self, arena_printf(a, job, folder, other), k, a, &r) == ERR_DATA);
        CHECK_HAS(err_text(), "class 0 is \"w\", and was \"x\"");
        run_clear(&r);
        train_must(ckpt_open(dir, &k));
        train_must(train_setup(self, arena_printf(a, job, folder, train), k, a, &r));
        run_clear(&r);
    }
    arena_destroy(&a);
    return train_end(&self, folder);
}
