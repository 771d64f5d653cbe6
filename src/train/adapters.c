/* Hu et al. 2021, arXiv:2106.09685: W + (alpha / rank) B A. */
#include "train/adapters.h"

#include "tensor/convert.h"
#include <stdlib.h>
#include <string.h>

struct adapter adapter_find(const struct source_model *m, int i, struct arena *a)
{
    const struct tensor_row *row = &m->model->table.rows[i];
    const struct lora *lora = m->model->lora;
    struct adapter x = {.a = -1, .b = -1};
    size_t n = strlen(row->name), k = strlen("weight");
    if (!lora || (row->flags & TENSOR_ADAPTER) || n <= k ||
        strcmp(row->name + n - k, "weight") != 0)
        return x;
    x.a = weights_find(&m->weights, arena_printf(a, "%.*slora_A.weight", (int)(n - k), row->name));
    x.b = weights_find(&m->weights, arena_printf(a, "%.*slora_B.weight", (int)(n - k), row->name));
    x.scale = lora->alpha / (double)lora->rank;
    x.in_out = strcmp(row->layout, "in_out") == 0;
    return x;
}

static int load(const struct weights *w, int i, float **out)
{
    int64_t n = shape_elems(&w->rows[i].x.shape);
    *out = malloc((size_t)n * sizeof **out);
    if (!*out)
        FAIL(ERR_RESOURCE, "no memory for %s", w->rows[i].x.name);
    return weights_read_as(w, i, DTYPE_F32, 0, n, *out);
}

int adapter_add(struct adapter *x, const struct weights *w, int64_t begin, int64_t end,
                const struct shape *shape, float *values)
{
    int64_t R = w->rows[x->a].x.shape.dim[0], n_in = w->rows[x->a].x.shape.dim[1];
    int64_t C = shape->dim[1];
    if (!x->A)
        TRY(load(w, x->a, &x->A));
    if (!x->B)
        TRY(load(w, x->b, &x->B));
    for (int64_t at = begin; at < end; at++) {
        int64_t row = at / C, col = at % C;
        int64_t in = x->in_out ? row : col, out = x->in_out ? col : row;
        double sum = 0;
        for (int64_t r = 0; r < R; r++)
            sum += (double)x->B[out * R + r] * (double)x->A[r * n_in + in];
        values[at - begin] = (float)((double)values[at - begin] + x->scale * sum);
    }
    return ERR_OK;
}

void adapter_clear(struct adapter *x)
{
    free(x->A);
    free(x->B);
    x->A = x->B = NULL;
}

/* The last part of the names of layers that have one, each once. */
static void put_targets(const struct source_model *m, struct arena *a, struct text *out)
{
    const struct tensor_table *t = &m->model->table;
    const char **seen = arena_alloc(a, ((size_t)t->n_rows + 1) * sizeof *seen);
    int n = 0;
    for (int i = 0; i < t->n_rows; i++) {
        const char *end = strstr(t->rows[i].name, ".lora_A.weight");
        if (!end)
            continue;
        const char *begin = end;
        while (begin > t->rows[i].name && begin[-1] != '.')
            begin--;
        const char *word = arena_strndup(a, begin, (size_t)(end - begin));
        int k = 0;
        while (k < n && strcmp(seen[k], word) != 0)
            k++;
        if (k < n)
            continue;
        seen[n++] = word;
        text_printf(out, "%s", n > 1 ? ", " : "");
        text_json_string(out, word);
    }
}

void adapter_config(const struct source_model *m, struct arena *a, struct text *out)
{
    const struct lora *lora = m->model->lora;
    bool conv = strcmp(m->model->family->name, "gpt2") == 0;
    text_printf(out,
                "{\n  \"peft_type\": \"LORA\",\n  \"task_type\": \"CAUSAL_LM\",\n"
                "  \"base_model_name_or_path\": null,\n  \"r\": %lld,\n  \"lora_alpha\": %.17g,\n"
                "  \"lora_dropout\": %.17g,\n  \"fan_in_fan_out\": %s,\n  \"bias\": \"none\",\n"
                "  \"inference_mode\": true,\n  \"target_modules\": [",
                (long long)lora->rank, lora->alpha, lora->dropout, conv ? "true" : "false");
    put_targets(m, a, out);
    text_printf(out, "]\n}\n");
}
