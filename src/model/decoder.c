/* What decoder-only transformers have in common: pre-norm blocks on a residual stream, between an
 * embedding and a norm with a loss head. */
#include "model/decoder.h"

/* y = r + mlp(norm_2(r)), r = x + attn(norm_1(x)). */
static void block_forward(const struct module *m, struct pass *p, const void *x, void *y)
{
    int64_t n_elem = pass_rows(p) * m->n_in;
    void *normed = tape_push(p, n_elem);
    module_forward(m->children[NORM_1], p, x, normed);

    size_t mark = stack_mark(&p->s->scratch);
    void *branch = scratch_push(p, n_elem);
    module_forward(m->children[ATTENTION], p, normed, branch);
    void *r = tape_push(p, n_elem);
    normed = tape_push(p, n_elem);
    module_forward_residual(m->children[NORM_2], p, branch, x, r, normed);
    stack_release(&p->s->scratch, mark);

    module_forward(m->children[MLP], p, normed, y);
    if (n_elem > 0)
        p->s->k->add(p->s, y, y, r, n_elem);
}

/* In place on the residual stream's gradient: each norm adds its branch's share to it. */
static void block_backward(const struct module *m, struct pass *p, const void *x, void *dy,
                           void *dx)
{
    (void)x;
    REQUIRE(!dx || dx == dy);
    size_t mark = stack_mark(&p->s->scratch);
    void *branch = scratch_push(p, pass_rows(p) * m->n_in);
    module_backward(m->children[MLP], p, dy, branch);
    module_backward(m->children[NORM_2], p, branch, dy);
    module_backward(m->children[ATTENTION], p, dy, branch);
    module_backward(m->children[NORM_1], p, branch, dy);
    stack_release(&p->s->scratch, mark);
}

const struct module_ops decoder_block_ops = {
    .cls = "Block", .forward = block_forward, .backward = block_backward};

struct decoder_frame {
    void *dout; /* gradient of the last norm's output, made by the head */
    const float *rope;
};

void decoder_forward(const struct module *m, struct pass *p, const void *x, void *y)
{
    struct module **child = m->children;
    int n_layer = m->n_children - 3;
    int64_t n_elem = pass_rows(p) * child[0]->n_out;
    const struct decoder *c = m->conf;
    REQUIRE(!x && !y);
    if (c->rope_D > 0)
        rope_push(p, c->rope_D, c->rope_theta);
    void *in = tape_push(p, n_elem), *out = tape_push(p, n_elem);
    module_forward(child[0], p, NULL, in);
    for (int i = 1; i <= n_layer; i++) {
        module_forward(child[i], p, in, out);
        void *next = p->training ? tape_push(p, n_elem) : in; /* nothing is kept in eval mode */
        in = out;
        out = next;
    }
    module_forward(child[n_layer + 1], p, in, out);
    void *dout = p->training ? tape_push(p, n_elem) : NULL;
    module_forward(child[n_layer + 2], p, out, dout);
    struct decoder_frame *f = frame_push(p, sizeof *f);
    *f = (struct decoder_frame){.dout = dout, .rope = p->rope};
}

void decoder_backward(const struct module *m, struct pass *p, const void *x, void *dy, void *dx)
{
    (void)x;
    struct module **child = m->children;
    int n_layer = m->n_children - 3;
    int64_t n_elem = pass_rows(p) * child[0]->n_out;
    REQUIRE(!dy && !dx);
    struct decoder_frame f = *(struct decoder_frame *)frame_pop(p, sizeof f);
    p->rope = f.rope;
    module_backward(child[n_layer + 2], p, f.dout, f.dout);

    size_t mark = stack_mark(&p->s->scratch);
    void *stream = scratch_push(p, n_elem);
    pass_zero(p, stream, n_elem);
    module_backward(child[n_layer + 1], p, f.dout, stream);
    for (int i = n_layer; i >= 1; i--)
        module_backward(child[i], p, stream, stream);
    module_backward(child[0], p, stream, NULL);
    stack_release(&p->s->scratch, mark);
}

int decoder_divides(const char *low_key, int64_t low, const char *high_key, int64_t high)
{
    if (high % low == 0)
        return ERR_OK;
    int64_t below = low, above = low;
    while (high % below)
        below--;
    while (above < high && high % above)
        above++;
    if (above > high)
        FAIL(ERR_USAGE, "%s = %lld must divide %s = %lld and so be at most that", low_key,
             (long long)low, high_key, (long long)high);
    FAIL(ERR_USAGE, "%s = %lld must divide %s = %lld; the nearest that do: %lld and %lld", low_key,
         (long long)low, high_key, (long long)high, (long long)below, (long long)above);
}

int decoder_check_data(struct model *m, int64_t *vocab_size, const char **key)
{
    if (m->shape.kind != SAMPLE_TOKENS) {
        *key = "type";
        FAIL(ERR_USAGE, "%s reads text, and this data has rows of numbers; for them take mlp",
             m->family->name);
    }
    if (*vocab_size == OPT_AUTO_I64)
        *vocab_size = m->shape.vocab;
    if (*vocab_size < m->shape.vocab) {
        *key = "vocab_size";
        FAIL(ERR_USAGE, "%lld ids are too few: the data has %lld (auto takes as many)",
             (long long)*vocab_size, (long long)m->shape.vocab);
    }
    m->shape.vocab = *vocab_size;
    return ERR_OK;
}
