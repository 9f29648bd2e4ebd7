// What the arithmetic offers to `machine.h`, which puts it in place of torch's operations. All tensors are
// float32; sizes and strides are in elements. Plain C structures: each instruction set's kernels are a
// library of their own, compiled without torch's headers.
#pragma once

struct Host {
    long (*threads)();
    void (*run)(long count, void (*work)(const void* data, long i), const void* data);
};

// y[i] = f(x[0][i], x[1][i], ..., numbers) for i < n, on one thread; y may be one of the x.
struct Function {
    const char* name;
    void (*of)(long n, const float* const* x, const double* numbers, float* y);
};

// What optimizers do to a gradient first.
struct Decay {
    float decay, scale;
    bool maximize;
};
struct Sgd {
    Decay of;
    float rate, momentum, rest;  // rest = 1 - dampening
    bool nesterov, first;
};
struct Adam {
    Decay of;
    float shrink, rate, mean_rest, square_keeps, square_rest, correction, eps;
};
struct Adagrad {
    Decay of;
    float rate, eps;
};

// An element (i, k) of `a` is at i * row + k * column.
struct Matrix {
    const float* data;
    long row, column;
};

// c = beta * bias + alpha * product, element by element in this order; no bias where `bias.data` is null.
struct Addition {
    Matrix bias;
    float alpha, beta;
};

struct Convolution {
    long samples, groups, inputs, outputs;  // channels of one group
    long in[3], kernel[3], out[3];          // depth, height, width
    long stride[3], padding[3], dilation[3];
    bool last;  // x and y have their channels last
};

enum Sum { SUM, SQUARES, MAGNITUDES };

struct BatchNorm {
    long samples, channels, places;
    const float *weight, *bias;  // or null
    float eps;
    bool last;  // channels are last
};

struct Lstm {
    long steps, samples, inputs, units;
    bool reverse;
    const float *weight_x, *weight_h, *bias_x,
        *bias_h;  // (4 units, inputs), (4 units, units); biases or null
};

// (sample, head, place, width), with the steps of each
struct Heads {
    const float* data;
    long step[4];
};

struct HeadsOut {  // its width lies side by side
    float* data;
    long step[3];
};

struct Attention {
    long samples, heads, queries, keys, width, value_width;
    bool causal;
    float scale;
    Heads q, k, v, mask;  // no mask where its data is null
};

struct Kernels {
    const char* instructions;

    // c[b] (rows `ldc` apart, matrices `cs` apart) of `batch` pairs of matrices, `as` and `bs` apart
    void (*product)(long batch, long m, long n, long k, Matrix a, long as, Matrix b, long bs, float* c,
        long ldc, long cs, const Addition* addition, long bias_step);

    void (*convolution)(const Convolution&, const float* x, const float* w, const float* bias, float* y);
    void (*convolution_input)(const Convolution&, const float* dy, const float* w, float* dx);
    void (*convolution_weight)(const Convolution&, const float* x, const float* dy, float* dw);

    // (samples, rows, columns) to (samples, columns, rows)
    void (*turn)(const float* x, long samples, long rows, long columns, float* y);

    // (rows, n) and (batch, rows, columns), contiguous
    void (*sum_rows)(int what, const float* x, long rows, long n, float* y);
    void (*variance_rows)(bool root, const float* x, long rows, long n, float freedom, float* y);
    void (*sum_columns)(const float* x, long batch, long rows, long columns, float* y);
    float (*row_product)(const float* x, const float* y, long n);

    void (*batch_norm)(const BatchNorm&, const float* x, float* y, float* mean, float* inverse,
        float* running_mean, float* running_variance, double momentum);
    void (*batch_norm_apply)(
        const BatchNorm&, const float* x, const float* mean, const float* inverse, float* y);
    void (*batch_norm_backward)(const BatchNorm&, const float* dy, const float* x, const float* mean,
        const float* inverse, bool training, float* dx, float* dw, float* db);
    void (*layer_norm)(long rows, long n, const float* x, const float* weight, const float* bias, float eps,
        float* y, float* mean, float* inverse);
    void (*layer_norm_backward)(long rows, long n, const float* dy, const float* x, const float* weight,
        const float* mean, const float* inverse, float* dx, float* dw, float* db);
    void (*group_norm)(const BatchNorm&, long groups, const float* x, float* y, float* mean, float* inverse);
    void (*group_norm_backward)(const BatchNorm&, long groups, const float* dy, const float* x,
        const float* mean, const float* inverse, float* dx, float* dw, float* db);

    // (outer, n, inner), contiguous, along n
    void (*softmax)(bool logarithm, const float* x, long outer, long n, long inner, float* y);
    void (*softmax_backward)(
        bool logarithm, const float* dy, const float* y, long outer, long n, long inner, float* dx);

    // kept: (sample, head, query)
    void (*attention)(const Attention&, const HeadsOut& y, float* kept);
    void (*attention_backward)(const Attention&, const Heads& dy, const Heads& y, const float* kept,
        const HeadsOut& dq, const HeadsOut& dk, const HeadsOut& dv);

    void (*lstm)(const Lstm&, const float* x, const float* h0, const float* c0, float* y, float* kept);
    void (*lstm_backward)(const Lstm&, const float* x, const float* h0, const float* c0, const float* y,
        const float* kept, const float* dy, float* dh, float* dc, float* dx, float* dw_x, float* dw_h,
        float* db);

    void (*sgd)(const Sgd&, long n, float* p, float* gradient, float* momentum);
    void (*adam)(const Adam&, long n, float* p, float* gradient, float* mean, float* square, float* largest);
    void (*adagrad)(const Adagrad&, long n, float* p, float* gradient, float* sum);

    void (*normal_blocks)(long n, float* x, double mean, double deviation);
    void (*normal_pair)(double angle, double radius, double* first, double* second);

    const Function* functions;  // up to one without a name
};
