/* Any bytes as a manifest, with the checksum that belongs to them, so that what stands behind the
 * checksum is reached. */
#include "base/hash.h"
#include "ckpt/ckpt_impl.h"
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct arena *a = arena_create();
    struct text t = {0};
    struct manifest m;
    char tail[64];
    text_add(&t, data, n_bytes);
    manifest_tail(t.s, n_bytes, tail);
    text_add(&t, tail, strlen(tail));
    if (manifest_parse("fuzz", t.s, t.n_bytes, a, &m) == ERR_OK) {
        uint64_t sum = 0; /* whatever was accepted can be walked */
        for (int i = 0; i < m.n_arrays; i++)
            for (int64_t r = m.first_range[i]; r < m.first_range[i + 1]; r++)
                sum += m.ranges[r].hash + (uint64_t)m.files[m.ranges[r].file].n_bytes;
        for (int64_t g = 0; g < m.n_gaps; g++)
            sum += m.gaps[g].hash;
        if (sum == 1)
            puts("");
    }
    text_clear(&t);
    arena_destroy(&a);
    return 0;
}
