/* stretto convert: a checkpoint or weights in another format. */
#include "cli/cli.h"

#include "train/convert.h"
#include <stdio.h>
#include <string.h>

/* An option that would do nothing was meant to do something. */
static int check_options(const struct convert_conf *conf)
{
    bool tensors = conf->to == CONVERT_SAFETENSORS;
    if (conf->ranks != 1 && conf->to != CONVERT_SHARDED && conf->to != CONVERT_LOCAL)
        FAIL(ERR_USAGE, "--ranks %lld goes with --to sharded and --to local",
             (long long)conf->ranks);
    if (!tensors && strcmp(conf->max_shard_size, "5GB") != 0)
        FAIL(ERR_USAGE, "--max_shard_size %s goes with --to safetensors", conf->max_shard_size);
    if (!tensors && conf->lora == LORA_APART)
        FAIL(ERR_USAGE, "--lora apart goes with --to safetensors");
    return ERR_OK;
}

static int convert(struct cli *c, int argc, char **argv)
{
    struct convert_conf conf = {0};
    TRY(cli_take_options(c, &argc, argv, convert_opts, &conf));
    if (argc < 3)
        FAIL(ERR_USAGE, "what and where to: say stretto convert SRC DST");
    TRY(check_options(&conf));
    struct source *s;
    struct text said = {0};
    TRY(cli_open_world(c));
    TRY(source_open_shared(c->world, argv[1], &s));
    int rc =
        convert_source(c->world, s, argv[2], &conf, argc - 3, (const char *const *)argv + 3, &said);
    if (rc == ERR_OK && said.s && c->world->rank == 0)
        fputs(said.s, stdout);
    text_clear(&said);
    source_close(&s);
    return rc;
}

const struct command convert_command = {
    .name = "convert",
    .args = "SRC DST [--to WORD] [--dtype WORD] [--ranks N] [--overwrite] …",
    .summary =
        "another kind of checkpoint, another dtype; for Hugging Face's transformers and back",
    .help =
        "SRC: a run's folder, one of its steps, its `latest`; a folder of transformers' or a\n"
        ".safetensors file; llama2.c's or llm.c's .bin.\n"
        "DST: a folder; for safetensors also a file NAME.safetensors.\n"
        "  --to safetensors       model.safetensors and config.json (the default)\n"
        "  --to full              a checkpoint of one file, as h5py reads it\n"
        "  --to sharded           one of --ranks N files\n"
        "  --to local             one of --ranks N files that a run on N ranks goes on from: cut\n"
        "                         as its job cuts there\n"
        "  --weights_only         leave out moments and counters\n"
        "  --dtype WORD           of the weights: keep, float32, bfloat16, float16, float64\n"
        "  --max_shard_size 5GB   safetensors: a larger model becomes several files\n"
        "  --lora merge|apart     safetensors: adapters in the weights, or alone for peft\n"
        "  --overwrite            replace what is there\n"
        "model.key=value says what a source does not: model.n_head=12.  Needs no mpirun; under\n"
        "it the ranks share the work, and the files are the same.  Memory stays the same however\n"
        "large the model is.\n",
    .run = convert,
};
