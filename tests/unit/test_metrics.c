/* What a run says of itself: the rate of its progress is training's own. */
#include "train_run.h"

#include "train/metrics.h"

/* The line of a step that took `training` seconds, behind `apart` seconds of something else. */
static double rate(struct comm *c, const char *folder, double training, double apart)
{
    char ini[1024];
    struct train_run t;
    struct metrics m;
    snprintf(ini, sizeof ini,
             "[job]\nmax_steps = 3\noutput_dir = %s/out\n[model]\ntype = gpt2\nn_layer = 1\n"
             "n_head = 1\nn_embd = 8\nblock_size = 8\n[data]\npath = %s/book.txt\n"
             "batch_size = 2\n",
             folder, folder);
    train_open(&t, c, ini, NULL);
    train_must(file_make_dirs(t.run.conf.main.output_dir));
    train_must(metrics_open(&m, &t.run, 0, t.arena));
    struct step_report s = train_step(&t);
    m.last_s -= training + apart;
    metrics_apart(&m, apart);
    train_must(metrics_step(&m, t.engine, &s, NULL));
    double first = m.rate;
    CHECK(m.apart_s == 0);
    metrics_close(&m);
    train_close(&t);
    return first;
}

int main(void)
{
    struct comm *c;
    train_must(comm_open_world(&c));
    char folder[200];
    train_folder(c, folder, sizeof folder);
    train_book(c, folder, 4000);
    TEST ("evaluations, samples and saves are no part of the rate") {
        /* 16 tokens; whatever the machine needs for them and for the line comes on top */
        double slow = rate(c, folder, 1e6, 0), fast = rate(c, folder, 1e3, 1e6);
        CHECK(slow > 0 && slow <= 16 / 1e6);
        CHECK(fast > 100 * slow && fast <= 16 / 1e3);
    }
    return train_end(&c, folder);
}
