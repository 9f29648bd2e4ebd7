// The arithmetic for one instruction set, as one library with one function.
#include "attention.h"
#include "convolutions.h"
#include "functions.h"
#include "norms.h"
#include "optimizers.h"
#include "products.h"
#include "random.h"
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
    .variance_rows = variance_rows,
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
    .sgd = sgd,
    .adam = adam,
    .adagrad = adagrad,
    .normal_blocks = normal_blocks,
    .normal_pair = normal_pair,
    .functions = functions,
};

extern "C" __attribute__((visibility("default"))) const Kernels* vbstudy_kernels(const Host* with) {
    host = *with;
    return &table;
}

// The functions of one element alone, for comparisons.
extern "C" __attribute__((visibility("default"))) const Function* vbstudy_functions() { return functions; }
