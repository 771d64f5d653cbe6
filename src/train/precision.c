/* From the job's words about precision to dtypes. */
#include "train/precision.h"

#include <string.h>

static const enum dtype narrow_dtypes[] = {
    [SUM_FP32] = DTYPE_F32, [SUM_BF16] = DTYPE_BF16, [SUM_FP16] = DTYPE_F16};

enum dtype precision_compute(const struct strategy_conf *c)
{
    static const enum dtype compute[] = {
        [PRECISION_NO] = DTYPE_F32, [PRECISION_BF16] = DTYPE_BF16, [PRECISION_FP16] = DTYPE_F16};
    return compute[c->mixed_precision];
}

enum dtype precision_reduce(const struct strategy_conf *c)
{
    if (c->comm_hook == HOOK_FP16 || c->comm_hook == HOOK_BF16)
        return c->comm_hook == HOOK_FP16 ? DTYPE_F16 : DTYPE_BF16;
    return narrow_dtypes[c->reduce_dtype];
}

enum dtype precision_output(const struct strategy_conf *c)
{
    return narrow_dtypes[c->output_dtype];
}

void precision_notes(const struct strategy_conf *c, struct text *out)
{
    enum dtype output = precision_output(c);
    if (output == DTYPE_F32)
        return;
    if (output == precision_compute(c))
        text_printf(out, "note: [strategy] output_dtype has no effect: layers compute in it\n");
    else if (output == DTYPE_F16)
        text_printf(out, "note: [strategy] output_dtype = fp16 rounds the gradient of outputs too, "
                         "and only mixed_precision = fp16 scales the loss: below 3e-8 it becomes "
                         "zero\n");
}

enum { N_KINDS = 8 };
struct kind {
    const char *key, *words;
    enum dtype dtype;
};

/* Every kind of value that a step has. */
static void list_kinds(const struct shard_conf *c, enum dtype output, struct kind out[N_KINDS])
{
    const struct kind list[N_KINDS] = {
        {"parameters", "master weights", DTYPE_F32},
        {"moments", "moments", DTYPE_F32},
        {"compute", "weights and activations in layers", c->compute},
        {"statistics", "statistics of norms and softmax", DTYPE_F32},
        {"reduce", "sums over ranks", c->reduce},
        {"accumulate", "gradients formed and accumulated in", DTYPE_F32},
        {"output", "outputs that the loss sees", output},
        {"loss", "loss", DTYPE_F64},
    };
    memcpy(out, list, sizeof list);
}

void precision_describe(const struct shard_conf *c, enum dtype output, struct text *out)
{
    struct kind k[N_KINDS];
    list_kinds(c, output, k);
    text_printf(out, "dtypes   ");
    for (int i = 0; i < N_KINDS; i++)
        text_printf(out, "%s%s %s", i ? "; " : "", k[i].words, dtype_name(k[i].dtype));
    text_printf(out, "\n");
}

void precision_to_json(const struct shard_conf *c, enum dtype output, struct text *out)
{
    struct kind k[N_KINDS];
    list_kinds(c, output, k);
    for (int i = 0; i < N_KINDS; i++)
        text_printf(out, "%s\"%s\":\"%s\"", i ? "," : "{", k[i].key, dtype_name(k[i].dtype));
    text_printf(out, "}");
}
