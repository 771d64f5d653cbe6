/* dtype_convert against arithmetic, and weights that are turned as they are read against whole
 * tensors turned in memory.
 * RUN: -n 1 */
#include "ckpt_fixture.h"

#include "ckpt/names.h"
#include "tensor/convert.h"

/* The nearest value of a 16-bit float by search over all of them: the definition. */
static double value16(enum dtype t, uint32_t h)
{
    int n_mantissa = t == DTYPE_BF16 ? 7 : 10, bias = t == DTYPE_BF16 ? 127 : 15;
    int top = t == DTYPE_BF16 ? 255 : 31;
    uint32_t m = h & ((1u << n_mantissa) - 1);
    int e = (int)(h >> n_mantissa & (uint32_t)top);
    double sign = h >> 15 ? -1 : 1;
    if (e == top)
        return m ? NAN : sign * INFINITY;
    if (e == 0)
        return sign * ldexp((double)m, 1 - bias - n_mantissa);
    return sign * ldexp(1 + ldexp((double)m, -n_mantissa), e - bias);
}

static void test_widening(void)
{
    TEST ("every bfloat16 and float16 widens to its value and comes back") {
        for (enum dtype t = DTYPE_BF16; t <= DTYPE_F16; t++)
            for (uint32_t h = 0; h < 65536; h++) {
                uint16_t in = (uint16_t)h, back = 0;
                double want = value16(t, h), wide = 0;
                float narrow = 0;
                dtype_convert(DTYPE_F64, &wide, t, &in, 1);
                dtype_convert(DTYPE_F32, &narrow, t, &in, 1);
                bool same = isnan(want) ? isnan(wide) && isnan(narrow)
                                        : wide == want && (double)narrow == want;
                check_that(same, __FILE__, __LINE__, "%s %04x", dtype_name(t), h);
                dtype_convert(t, &back, DTYPE_F64, &wide, 1);
                check_that(isnan(want) ? isnan(value16(t, back)) : back == in, __FILE__, __LINE__,
                           "%s %04x back as %04x", dtype_name(t), h, back);
            }
    }
}

static void test_rounding(void)
{
    TEST ("between two neighbours: the nearer, a tie to the even one, whatever the source") {
        for (enum dtype t = DTYPE_BF16; t <= DTYPE_F16; t++) {
            uint32_t last = t == DTYPE_BF16 ? 0x7f7f : 0x7bff;
            for (uint32_t h = 0; h < last; h++) {
                double a = value16(t, h), b = value16(t, h + 1), middle = a + (b - a) / 2;
                double in[] = {middle, nextafter(middle, a), nextafter(middle, b), -middle};
                uint32_t even = h & 1 ? h + 1 : h, want[] = {even, h, h + 1, even | 0x8000};
                uint16_t out[4];
                CHECK(dtype_convert(t, out, DTYPE_F64, in, 4) == 0);
                for (int i = 0; i < 4; i++)
                    check_that(out[i] == want[i], __FILE__, __LINE__, "%s: %a gives %04x, not %04x",
                               dtype_name(t), in[i], out[i], want[i]);
                float f = (float)middle;
                dtype_convert(t, out, DTYPE_F32, &f, 1);
                check_that((double)f != middle || out[0] == even, __FILE__, __LINE__, "%a", middle);
            }
        }
    }
    TEST ("values beyond the range are counted, infinite ones are not") {
        double in[] = {65519.9, 65520, -1e6, INFINITY, -INFINITY, NAN, 3.4e38, 3.4e39};
        uint16_t out[8];
        float wide[8];
        CHECK(dtype_convert(DTYPE_F16, out, DTYPE_F64, in, 8) == 4);
        CHECK(out[0] == 0x7bff && out[1] == 0x7c00 && out[2] == 0xfc00 && out[4] == 0xfc00);
        CHECK(dtype_convert(DTYPE_F32, wide, DTYPE_F64, in, 8) == 1);
        CHECK(dtype_convert(DTYPE_BF16, out, DTYPE_F64, in, 8) == 2);
    }
}

/* A source in memory. */
struct memory {
    struct source s;
    struct ckpt_array array[4];
    float *values[4];
};

static int memory_read(const struct source *s, int i, int64_t begin, int64_t end, void *values)
{
    const struct memory *m = s->impl;
    memcpy(values, m->values[i] + begin, (size_t)(end - begin) * sizeof(float));
    return ERR_OK;
}

static const struct source_ops memory_ops = {.name = "memory", .read = memory_read};

static void memory_add(struct memory *m, const char *name, int64_t rows, int64_t cols)
{
    int i = m->s.n_arrays++;
    m->array[i] = (struct ckpt_array){.group = "model",
                                      .name = name,
                                      .shape = shape_make(cols ? 2 : 1, rows, cols),
                                      .dtype = DTYPE_F32};
    int64_t n = rows * (cols ? cols : 1);
    m->values[i] = malloc((size_t)n * sizeof(float));
    for (int64_t e = 0; e < n; e++)
        m->values[i][e] = (float)(1000 * i + e);
}

static void memory_init(struct memory *m)
{
    *m = (struct memory){.s = {.ops = &memory_ops, .path = "memory", .arrays = m->array}};
    m->s.impl = m;
}

static void memory_clear(struct memory *m)
{
    for (int i = 0; i < m->s.n_arrays; i++)
        free(m->values[i]);
}

/* Every range of every third beginning and length. */
static void check_ranges(const struct weights *w, int i, const float *want)
{
    int64_t n = shape_elems(&w->rows[i].x.shape);
    float *got = malloc((size_t)n * sizeof(float));
    for (int64_t begin = 0; begin < n; begin += 3)
        for (int64_t end = begin; end <= n; end += 7) {
            if (weights_read(w, i, begin, end, got) != ERR_OK ||
                memcmp(got, want + begin, (size_t)(end - begin) * sizeof(float)) != 0) {
                check_that(false, __FILE__, __LINE__, "%s [%lld, %lld)", w->rows[i].x.name,
                           (long long)begin, (long long)end);
                free(got);
                return;
            }
        }
    free(got);
}

static void test_transpose(struct arena *a)
{
    TEST ("nanoGPT's [out, in] read as [in, out], by any range") {
        struct memory m;
        struct weights w;
        float want[15 * 5];
        memory_init(&m);
        memory_add(&m, "_orig_mod.transformer.h.0.attn.c_attn.weight", 15, 5);
        memory_add(&m, "_orig_mod.transformer.ln_f.weight", 5, 0);
        CHECK(weights_name(&m.s, 0, 0, a, &w) == ERR_OK && w.n == 2);
        CHECK_STR(w.dialect, "nanoGPT");
        int i = weights_find(&w, "h.0.attn.c_attn.weight");
        CHECK(i >= 0 && w.rows[i].x.shape.dim[0] == 5 && w.rows[i].x.shape.dim[1] == 15);
        CHECK_STR(w.rows[i].x.layout, "in_out");
        for (int r = 0; r < 5; r++)
            for (int c = 0; c < 15; c++)
                want[15 * r + c] = m.values[0][5 * c + r];
        check_ranges(&w, i, want);
        check_ranges(&w, weights_find(&w, "ln_f.weight"), m.values[1]);
        memory_clear(&m);
    }
}

static void test_halves(struct arena *a)
{
    TEST ("Meta's interleaved rows read as a head's halves, by any range") {
        enum { H = 4, KV = 2, D = 6, C = 5 };
        struct memory m;
        struct weights w;
        float want[H * D * C];
        memory_init(&m);
        memory_add(&m, "layers.0.attention.wq.weight", H * D, C);
        memory_add(&m, "layers.0.attention.wk.weight", KV * D, C);
        CHECK(weights_name(&m.s, 0, 0, a, &w) == ERR_DATA);
        CHECK_HAS(err_text(), "number of heads");
        CHECK(weights_name(&m.s, 5, 2, a, &w) == ERR_DATA);
        CHECK_HAS(err_text(), "do not divide");
        CHECK(weights_name(&m.s, H, KV, a, &w) == ERR_OK && w.n == 2);
        for (int h = 0; h < H; h++)
            for (int pair = 0; pair < D / 2; pair++)
                for (int side = 0; side < 2; side++)
                    memcpy(want + (h * D + side * D / 2 + pair) * C,
                           m.values[0] + (h * D + 2 * pair + side) * C, C * sizeof(float));
        check_ranges(&w, weights_find(&w, "model.layers.0.self_attn.q_proj.weight"), want);
        memory_clear(&m);
    }
}

static void test_match(struct arena *a)
{
    struct memory m;
    struct weights w;
    struct tensor_table t = {.arena = a};
    struct opt_strs missing = {1, {"ln_*"}}, extra = {1, {"wp?.weight"}};
    struct weights_rules rules = {0};
    int from[8];
    memory_init(&m);
    memory_add(&m, "wte.weight", 6, 2);
    memory_add(&m, "wpe.weight", 3, 2);
    CHECK(weights_name(&m.s, 0, 0, a, &w) == ERR_OK);
    for (int i = 0; i < w.n; i++)
        w.rows[i].x.layout = "plain";
    TEST ("what differs between model and weights is named, and allowed by its key only") {
        struct tensor_row row = {.name = "wte.weight", .shape = {2, {8, 2}}, .layout = "plain"};
        tensor_add(&t, &row);
        CHECK(weights_match(&w, &t, &rules, from) == ERR_DATA);
        CHECK_HAS(err_text(), "init_grow_vocab");
        rules.grow_vocab = true;
        CHECK(weights_match(&w, &t, &rules, from) == ERR_DATA);
        CHECK_HAS(err_text(), "wpe.weight is no tensor of this model");
        rules.may_be_left = &extra;
        CHECK(weights_match(&w, &t, &rules, from) == ERR_OK && from[0] >= 0);
        row = (struct tensor_row){.name = "ln_f.weight", .shape = {1, {2}}, .layout = "plain"};
        tensor_add(&t, &row);
        CHECK(weights_match(&w, &t, &rules, from) == ERR_DATA);
        CHECK_HAS(err_text(), "ln_f.weight is missing");
        rules.may_miss = &missing;
        CHECK(weights_match(&w, &t, &rules, from) == ERR_OK && from[1] == -1);
        t.rows[0].shape.dim[0] = 5;
        CHECK(weights_match(&w, &t, &rules, from) == ERR_DATA);
        CHECK_HAS(err_text(), "more tokens than the model");
        t.rows[0].shape = shape_make(2, 6, 3);
        CHECK(weights_match(&w, &t, &rules, from) == ERR_DATA);
        CHECK_HAS(err_text(), "is (6, 2), the model's is (6, 3)");
        t.rows[0].shape = shape_make(2, 6, 2);
        t.rows[0].layout = "out_in";
        CHECK(weights_match(&w, &t, &rules, from) == ERR_DATA);
        CHECK_HAS(err_text(), "lies plain, the model's lies out_in");
    }
    memory_clear(&m);
}

int main(void)
{
    struct arena *a = arena_create();
    test_widening();
    test_rounding();
    test_transpose(a);
    test_halves(a);
    test_match(a);
    arena_destroy(&a);
    return check_done();
}
