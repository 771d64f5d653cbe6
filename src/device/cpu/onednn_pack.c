/* B of a product in the layout that oneDNN's kernels want.  Panels of columns, which all of its
 * processor kernels for bf16 and fp32 read, are made by our own kernel: it takes a quarter to two
 * thirds of the time of the library's reorder (2.6), which makes every other layout. */
#ifdef HAVE_ONEDNN
#include "device/cpu/onednn.h"

dnnl_memory_t onednn_memory(struct onednn_shared *d, const_desc md)
{
    dnnl_memory_t m;
    DNNL(dnnl_memory_create(&m, md, d->engine, DNNL_MEMORY_NONE));
    return m;
}

/* oneDNN's interface has no const. */
void onednn_handle(dnnl_memory_t m, const void *p)
{
    union {
        const void *in;
        void *out;
    } u = {p};
    DNNL(dnnl_memory_set_data_handle(m, u.out));
}

/* Whether it lies in panels, all of K in each: blocks of words along K, of columns, and of the
 * elements of a word. */
static bool in_panels(const_desc d, struct cpu_side *s)
{
    enum { ALONG_K, ALONG_N };
    struct blocks b;
    if (!desc_blocks(d, &b) || b.n != (s->pair == 2 ? 3 : 2) || b.dim[0] != ALONG_K ||
        b.dim[1] != ALONG_N || (s->pair == 2 && (b.dim[2] != ALONG_K || b.size[2] != 2)))
        return false;
    int64_t block_k = b.size[0] * s->pair, width = b.size[1];
    s->rows = b.padded[0] / s->pair;
    s->width = width;
    return width % 16 == 0 && b.padded[0] % block_k == 0 && b.outer[0] == block_k * width &&
           b.outer[1] == b.padded[0] * width;
}

void packing_make(struct onednn_shared *d, struct packing *k, const struct cpu_side *side,
                  const_desc plain, const_desc wanted, size_t *pad_bytes)
{
    dnnl_primitive_desc_t pd;
    if (dnnl_memory_desc_equal(plain, wanted))
        return;
    k->at = onednn_place(pad_bytes, desc_bytes(wanted));
    k->side = *side;
    if (in_panels(wanted, &k->side)) {
        k->pack = d->build->pack_panels;
        return;
    }
    DNNL(dnnl_reorder_primitive_desc_create(&pd, plain, d->engine, wanted, d->engine, NULL));
    DNNL(dnnl_primitive_create(&k->reorder, pd));
    DNNL(dnnl_primitive_desc_destroy(pd));
    k->from = onednn_memory(d, plain);
}

void packing_drop(struct packing *k)
{
    if (!k->reorder)
        return;
    dnnl_primitive_destroy(k->reorder);
    dnnl_memory_destroy(k->from);
}

void packing_run(const struct packing *k, struct onednn_shared *d, dnnl_memory_t m, const void *p)
{
    char *to = (char *)d->pad + k->at;
    if (k->pack) {
        struct cpu_side s = k->side;
        s.from = p;
        s.to = to;
        k->pack(&s, d->n_threads);
    } else if (k->reorder) {
        onednn_handle(k->from, p);
        onednn_handle(m, to);
        const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, k->from}, {DNNL_ARG_TO, m}};
        DNNL(dnnl_primitive_execute(k->reorder, d->stream, 2, args));
    }
    onednn_handle(m, k->pack || k->reorder ? to : p);
}

#else
typedef int onednn_pack_is_not_built; /* a file may not be empty */
#endif
