// The arithmetic for one instruction set, as one library with one function.
#include "convolutions.h"
#include "products.h"
#include "table.h"
#include "threads.h"
#include "vec.h"

static const Kernels table = {
#if defined(__AVX512F__)
    .instructions = "avx512",
#elif defined(__AVX2__)
    .instructions = "avx2",
#else
    .instructions = "neon",
#endif
    .product = product_batch,
    .convolution = convolution,
    .convolution_input = convolution_input,
    .convolution_weight = convolution_weight,
};

extern "C" __attribute__((visibility("default"))) const Kernels* vbstudy_kernels(const Host* with) {
    host = *with;
    return &table;
}
