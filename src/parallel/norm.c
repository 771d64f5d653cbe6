/* The global norm, exact but for one rounding of each block: block sums become integers in a unit
 * that all ranks share, and integers add up to the same bits in any order. */
#include "parallel/shard.h"

#include <math.h>

/* A block sum is below 2^(e + 1) for the largest exponent e; 2^38 blocks (2.8e14 parameters) of it
 * fit below bit 127 when one is scaled to below bit 89. */
enum { UNIT_BITS = 88, N_LIMBS = 4, LIMB_BITS = 32 };

struct sums {
    unsigned __int128 total;
    int64_t max_exp; /* of the largest block sum */
    int64_t bad;     /* a NaN or an infinity was seen */
};

/* Block sums of this rank's parts, one behind the other; returns how many. */
static int64_t sum_blocks(struct shard *s)
{
    int64_t n = 0;
    for (int r = 0; r < s->plan->n_rows; r++) {
        if (s->model->table.rows[r].flags & TENSOR_FROZEN)
            continue;
        struct shard_part g = shard_own_part(s, SHARD_GRAD, r);
        if (g.begin == g.end)
            continue;
        s->stream->k->square_sums(s->stream, s->block_sum + n, g.values, g.end - g.begin);
        n += (g.end - g.begin + BLOCK_ELEMS - 1) / BLOCK_ELEMS;
    }
    return n;
}

static void find_max(struct sums *out, double x)
{
    int e = 0;
    if (!isfinite(x))
        out->bad = 1;
    else if (x > 0 && (frexp(x, &e), e > out->max_exp))
        out->max_exp = e;
}

static void add_fixed(struct sums *out, double x)
{
    /* below 2^UNIT_BITS; a double's 53 bits in two pieces that convert exactly */
    double v = ldexp(x, UNIT_BITS - (int)out->max_exp);
    double high = floor(ldexp(v, -LIMB_BITS));
    double low = floor(v - ldexp(high, LIMB_BITS));
    out->total += (unsigned __int128)high << LIMB_BITS;
    out->total += (unsigned __int128)low;
}

double shard_grad_norm(struct shard *s, bool *finite)
{
    struct sums sums = {.max_exp = -1080}; /* below any double's exponent */
    int64_t n = sum_blocks(s);
    for (int64_t b = 0; b < n; b++)
        find_max(&sums, s->block_sum[b]);
    int64_t most[2] = {sums.bad, sums.max_exp};
    s->comm->ops->max_i64(s->comm, most, 2);
    if (s->row->averages && s->replicas)
        s->replicas->ops->max_i64(s->replicas, most, 1);
    *finite = !most[0];
    if (most[0])
        return NAN;
    sums.max_exp = most[1];
    for (int64_t b = 0; b < n; b++)
        add_fixed(&sums, s->block_sum[b]);
    int64_t limb[N_LIMBS];
    for (int i = 0; i < N_LIMBS; i++)
        limb[i] = (int64_t)(uint32_t)(sums.total >> (LIMB_BITS * i));
    s->comm->ops->sum_i64(s->comm, limb, N_LIMBS);
    unsigned __int128 total = 0;
    for (int i = N_LIMBS - 1; i >= 0; i--)
        total = (total << LIMB_BITS) + (unsigned __int128)limb[i];
    return sqrt(ldexp((double)total, (int)sums.max_exp - UNIT_BITS));
}
