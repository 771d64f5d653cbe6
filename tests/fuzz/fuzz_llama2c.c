/* Any bytes as a file of llama2c's. */
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    return fuzz_source(&llama2c_source, data, n_bytes);
}
