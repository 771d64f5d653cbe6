/* From the job's words about precision to dtypes. */
#include "train/precision.h"

#include "train/sections.h"
#include <string.h>

enum dtype precision_compute(const struct strategy_conf *c)
{
    static const enum dtype compute[] = {
        [PRECISION_NO] = DTYPE_F32, [PRECISION_BF16] = DTYPE_BF16, [PRECISION_FP16] = DTYPE_F16};
    return compute[c->mixed_precision];
}

void precision_notes(const struct run_conf *c, struct text *out)
{
    bool half = c->strategy.mixed_precision == PRECISION_FP16;
    for (const struct opt *o = kind_strategy.opts; o->type != OPT_END && !half; o++)
        if (strncmp(o->name, "fp16.", 5) == 0 && job_value(c->job, "strategy", o->name))
            text_printf(out, "note: [strategy] %s has no effect: mixed_precision is not fp16\n",
                        o->name);
}
