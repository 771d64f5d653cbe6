/* The data sources, and the keys that all of them have.  A new source is one file and two words
 * here. */
#include "data/data_impl.h"

const struct data_ops *const data_list[] = {&text_ops, &csv_ops, &idx_ops, NULL};

const char *const data_type_words[] = {"auto", "text", "csv", "idx", NULL};

const struct opt data_opts[] = {
    ENUM(data_conf, type, "auto", data_type_words,
         "kind of file; auto: .txt, .csv, -ubyte and .idx by name (.gz too), others by content"),
    STR_PATH(data_conf, path, NULL, "the file; gzip is unpacked"),
    F64_AUTO(
        data_conf, split, "auto", 0, 1,
        "share to train on, the rest evaluates: of text the first tokens (auto: 0.9), of "
        "csv (0.8) and idx (0.9; 1 with eval_path) rows drawn by the seed; auto is 1 where the "
        "model has eval_data"),
    I64(data_conf, batch_size, "8", 1, 1 << 24,
        "samples per rank and micro-step (of all ranks under split_batches)"),
    BOOL(data_conf, split_batches, "false", "batch_size counts the samples of all ranks together"),
    BOOL(data_conf, shuffle, "true", "another order of the samples in each epoch; else file order"),
    {.type = OPT_END},
};
