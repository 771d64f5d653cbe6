/* Losses against plain loops in fp64: cross-entropy of dense rows and of panels, mean squares. */
/* RUN: -n 1 */
#include "kernel_test.h"
#include "tensor/half.h"

static float as_output(enum dtype output, float x)
{
    return output == DTYPE_F32 ? x : half_widen(output, half_narrow(output, x));
}

/* In fp32, an output dtype is a cast in front and one of the gradient behind, bit for bit. */
static void check_casts(struct stream *s, const float *x, const int32_t *target, int64_t rows,
                        int64_t V, enum dtype output)
{
    int64_t n = rows * V;
    float *cast = copy_array(x, n), *dx = noise_array(n), *want = noise_array(n);
    float *loss = noise_array(rows), *want_loss = noise_array(rows);
    for (int64_t i = 0; i < n; i++)
        cast[i] = as_output(output, x[i]);
    s->k->cross_entropy(s, want_loss, want, cast, target, rows, V, V, 0.25f, DTYPE_F32);
    s->k->cross_entropy(s, loss, dx, x, target, rows, V, V, 0.25f, output);
    for (int64_t i = 0; i < n; i++)
        want[i] = as_output(output, want[i]);
    CHECK(same_bits(loss, want_loss, rows) && same_bits(dx, want, n));
    s->k->mse(s, want_loss, want, cast, x, rows, V, 0.25f, DTYPE_F32);
    s->k->mse(s, loss, dx, x, x, rows, V, 0.25f, output);
    for (int64_t i = 0; i < n; i++)
        want[i] = as_output(output, want[i]);
    CHECK(same_bits(loss, want_loss, rows) && same_bits(dx, want, n));
    free(cast), free(dx), free(want), free(loss), free(want_loss);
}

static void check_cross_entropy(struct stream *s, int64_t rows, int64_t V, float spread,
                                enum dtype output)
{
    double cast = output == DTYPE_F32 ? 0 : output == DTYPE_BF16 ? 0x1p-9 : 0x1p-12;
    float *x = noise_array(rows * V), *loss = noise_array(rows), *dx = noise_array(rows * V);
    int32_t *target = calloc((size_t)rows + 1, sizeof *target);
    double *want = calloc((size_t)(rows * V) + 1, sizeof *want);
    double *want_loss = calloc((size_t)rows + 1, sizeof *want_loss);
    float *seen = noise_array(V);
    int64_t right = 0, want_right = 0;
    for (int64_t r = 0; r < rows; r++) {
        float *row = x + r * V;
        double sum = 0.0, top = -1e30;
        int64_t best = 0;
        for (int64_t i = 0; i < V; i++) {
            row[i] = as_elem(row[i] * spread);
            seen[i] = as_output(output, row[i]);
            top = seen[i] > top ? seen[i] : top;
            best = seen[i] > seen[best] ? i : best;
        }
        target[r] = r % 3 == 2 ? -1 : r % 2 ? (int32_t)best : (int32_t)((r * 7) % V);
        want_right += target[r] == best;
        for (int64_t i = 0; i < V; i++)
            sum += exp(seen[i] - top);
        if (target[r] < 0)
            continue;
        want_loss[r] = log(sum) + top - seen[target[r]];
        for (int64_t i = 0; i < V; i++)
            want[r * V + i] = 0.25 * (exp(seen[i] - top) / sum - (i == target[r]));
    }
    s->k->count_correct(s, &right, x, target, rows, V, output);
    CHECK(right == want_right);
    s->k->cross_entropy(s, loss, dx, x, target, rows, V, V, 0.25f, output);
    CHECK_CLOSE(loss, want_loss, rows, 1e-6);
    CHECK_WITHIN(dx, want, rows * V, allowed(3e-7) + 0.25 * cast);
    if (test_dtype == DTYPE_F32 && output != DTYPE_F32)
        check_casts(s, x, target, rows, V, output);
    float *again = noise_array(rows);
    s->k->cross_entropy(s, again, NULL, x, target, rows, V, V, 0.25f, output);
    CHECK(same_bits(again, loss, rows));
    for (int64_t r = 0; r < rows; r++) /* a row alone, and in place */
        s->k->cross_entropy(s, again + r, x + r * V, x + r * V, target + r, 1, V, V, 0.25f, output);
    CHECK(same_bits(again, loss, rows));
    CHECK(same_bits(x, dx, rows * V));
    free(x), free(loss), free(dx), free(target), free(want), free(want_loss), free(again);
    free(seen);
}

/* Where column v of row r lies. */
static int64_t panel_place(int64_t rows, int64_t V, int64_t panel, int64_t r, int64_t v)
{
    int64_t first = v / panel * panel, n = V - first < panel ? V - first : panel;
    return first * rows + r * n + v - first;
}

/* Columns in panels: the numbers of dense rows, and for a row alone the same bits. */
static void check_panels(struct stream *s, int64_t rows, int64_t V, int64_t panel)
{
    float *dense = noise_array(rows * V), *x = noise_array(rows * V), *row = noise_array(rows * V);
    float *loss = noise_array(rows), *want = noise_array(rows), *again = noise_array(rows);
    int32_t *target = calloc((size_t)rows, sizeof *target);
    for (int64_t r = 0; r < rows; r++) {
        target[r] = r % 4 == 3 ? -1 : (int32_t)((r * 5 + V - 1) % V);
        for (int64_t v = 0; v < V; v++)
            row[r * V + v] = x[panel_place(rows, V, panel, r, v)] = dense[r * V + v];
    }
    s->k->cross_entropy(s, want, dense, dense, target, rows, V, V, 0.5f, DTYPE_F32);
    s->k->cross_entropy(s, loss, x, x, target, rows, V, panel, 0.5f, DTYPE_F32);
    for (int64_t r = 0; r < rows; r++) {
        float *alone = row + r * V;
        s->k->cross_entropy(s, again + r, alone, alone, target + r, 1, V, panel, 0.5f, DTYPE_F32);
    }
    CHECK(same_bits(again, loss, rows));
    double *wide_loss = widen(want, rows), *wide_dx = widen(dense, rows * V);
    for (int64_t i = 0; i < rows * V; i++)
        dense[i] = x[panel_place(rows, V, panel, i / V, i % V)];
    CHECK(same_bits(row, dense, rows * V));
    CHECK_CLOSE(loss, wide_loss, rows, 1e-6);
    CHECK_WITHIN(dense, wide_dx, rows * V, allowed(3e-7));
    free(dense), free(x), free(row), free(loss), free(want), free(again), free(target);
    free(wide_loss), free(wide_dx);
}

static void check_mse(struct stream *s, int64_t rows, int64_t N)
{
    float *y = noise_array(rows * N), *v = noise_array(rows * N), *loss = noise_array(rows);
    float *dy = noise_array(rows * N);
    double *want = calloc((size_t)rows + 1, sizeof *want), *wd = widen(dy, rows * N);
    for (int64_t i = 0; i < rows * N; i++) {
        double d = (double)y[i] - v[i];
        want[i / N] += d * d;
        wd[i] = 2.0 * 0.3 * d;
    }
    s->k->mse(s, loss, NULL, y, v, rows, N, 0.3f, DTYPE_F32);
    CHECK_CLOSE(loss, want, rows, 3e-7);
    s->k->mse(s, loss, dy, y, v, rows, N, 0.3f, DTYPE_F32);
    CHECK_CLOSE(loss, want, rows, 3e-7);
    CHECK_CLOSE(dy, wd, rows * N, 3e-7);
    free(y), free(v), free(loss), free(dy), free(want), free(wd);
}

static void losses(struct stream *s)
{
    static const int64_t sizes[][2] = {{0, 5}, {1, 1}, {7, 2}, {5, 65}, {9, 1030}, {40, 1300}};
    static const enum dtype outputs[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (size_t o = 0; o < sizeof outputs / sizeof *outputs; o++) {
            check_cross_entropy(s, sizes[i][0], sizes[i][1], 3.0f, outputs[o]);
            check_cross_entropy(s, sizes[i][0], sizes[i][1], 90.0f, outputs[o]);
        }
        for (int64_t panel = 1; panel <= sizes[i][1]; panel = 5 * panel + 59)
            check_panels(s, sizes[i][0], sizes[i][1], panel);
        check_mse(s, sizes[i][0], sizes[i][1]);
    }
    /* of equal logits the first one is the answer */
    static const float tie[] = {1.0f, 2.0f, 2.0f};
    static const int32_t first = 1, second = 2;
    int64_t right = 0;
    s->k->count_correct(s, &right, tie, &first, 1, 3, DTYPE_F32);
    CHECK(right == 1);
    s->k->count_correct(s, &right, tie, &second, 1, 3, DTYPE_F32);
    CHECK(right == 1);
}

int main(void)
{
    on_every_device("losses", losses);
    return check_done();
}
