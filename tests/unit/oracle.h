/* Tensors of the oracle files (tests/data/gen_debug_states.py) under our names and orientation. */
#pragma once
#include "safetensors.h"
#include "tensor/tensor.h"

#include <stdio.h>
#include <stdlib.h>

/* Meta's name of a Llama tensor; what has no other name there keeps its own. */
static inline void oracle_name(const char *ours, char *to, size_t cap)
{
    static const char *const pairs[][2] = {
        {"input_layernorm", "attention_norm"}, {"post_attention_layernorm", "ffn_norm"},
        {"self_attn.q_proj", "attention.wq"},  {"self_attn.k_proj", "attention.wk"},
        {"self_attn.v_proj", "attention.wv"},  {"self_attn.o_proj", "attention.wo"},
        {"mlp.gate_proj", "feed_forward.w1"},  {"mlp.up_proj", "feed_forward.w3"},
        {"mlp.down_proj", "feed_forward.w2"},  {"embed_tokens", "tok_embeddings"},
    };
    if (strncmp(ours, "model.", 6) == 0)
        ours += 6;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const char *at = strstr(ours, pairs[i][0]);
        if (!at)
            continue;
        snprintf(to, cap, "%.*s%s%s", (int)(at - ours), ours, pairs[i][1],
                 at + strlen(pairs[i][0]));
        return;
    }
    snprintf(to, cap, "%s", ours);
}

/* what is "weight" or "grad"; the files have every linear weight as (n_out, n_in), rows that are
 * "in_out" get it transposed.  The caller frees. */
static inline float *oracle_tensor(const struct safetensors *f, const char *what,
                                   const struct tensor_row *row)
{
    char theirs[96], name[128];
    int64_t n = shape_elems(&row->shape), n_in = row->shape.dim[0], n_out = row->shape.dim[1];
    float *x = malloc((size_t)n * sizeof *x), *y = malloc((size_t)n * sizeof *y);
    REQUIRE(x && y);
    oracle_name(row->name, theirs, sizeof theirs);
    snprintf(name, sizeof name, "%s.%s", what, theirs);
    safetensors_get(f, name, x, n);
    bool in_out = row->layout && strcmp(row->layout, "in_out") == 0;
    for (int64_t i = 0; i < n; i++)
        y[in_out ? i % n_in * n_out + i / n_in : i] = x[i];
    free(x);
    return y;
}
