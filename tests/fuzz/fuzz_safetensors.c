/* Any bytes as a file of safetensors's. */
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    return fuzz_source(&safetensors_source, data, n_bytes);
}
