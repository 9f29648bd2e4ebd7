// The arithmetic for one instruction set, as one library with one function.
#include "attention.h"
#include "convolutions.h"
#include "norms.h"
#include "products.h"
#include "recurrent.h"
#include "softmax.h"
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
    .turn = turn,
    .sum_rows = sum_rows,
    .sum_columns = sum_columns,
    .row_product = row_product,
    .batch_norm = batch_norm,
    .batch_norm_apply = batch_norm_apply,
    .batch_norm_backward = batch_norm_backward,
    .layer_norm = layer_norm,
    .layer_norm_backward = layer_norm_backward,
    .group_norm = group_norm,
    .group_norm_backward = group_norm_backward,
    .softmax = softmax,
    .softmax_backward = softmax_backward,
    .attention = attention,
    .attention_backward = attention_backward,
    .lstm = lstm,
    .lstm_backward = lstm_backward,
};

extern "C" __attribute__((visibility("default"))) const Kernels* vbstudy_kernels(const Host* with) {
    host = *with;
    return &table;
}
