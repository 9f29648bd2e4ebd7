// Fused optimizers: for each element, the float32 steps that torch's other forms take one operation after the
// other (add, mul, lerp, addcmul, sqrt, div, addcdiv as `functions.h` has them). All forms of an optimizer
// give the same bits.
#pragma once
#include "functions.h"
#include "threads.h"

// step(i, elements): the vectors from i on, or the first so many of one
template <class Step>
static void for_elements(long n, Step step) {
    shared(n / W + 1, 4096, [&](long begin, long end) {
        for (long i = begin * W; i < std::min(end * W, n); i += W) step(i, std::min<long>(n - i, W));
    });
}
INLINE V take(const float* p, long i, long n) { return n == W ? ld(p + i) : ld_some(p + i, n); }
INLINE void give(float* p, long i, long n, V v) {
    n == W ? st(p + i, one_nan(v)) : st_some(p + i, one_nan(v), n);
}

// The gradient, with weight decay; `scale` is what it was multiplied by: what it was before goes where it
// lies.
INLINE V gradient(const Decay& s, float* g, long i, long n, V p) {
    V v = take(g, i, n);
    if (s.scale != 1) {
        v = v / bc(s.scale);
        give(g, i, n, v);
    }
    if (s.maximize) v = -v;
    return s.decay != 0 ? add_(v, p, s.decay) : v;
}

static void sgd(const Sgd& s, long n, float* p, float* g, float* momentum) {
    for_elements(n, [&](long i, long m) __attribute__((always_inline)) {
        const V at = take(p, i, m);
        V v = gradient(s.of, g, i, m, at);
        if (s.momentum != 0) {
            const V buffer = s.first ? v : add_(take(momentum, i, m) * bc(s.momentum), v, s.rest);
            give(momentum, i, m, buffer);
            v = s.nesterov ? add_(v, buffer, s.momentum) : buffer;
        }
        give(p, i, m, add_(at, v, -s.rate));
    });
}

static void adam(const Adam& s, long n, float* p, float* g, float* mean, float* square, float* largest) {
    for_elements(n, [&](long i, long m) __attribute__((always_inline)) {
        V at = take(p, i, m);
        const V v = gradient(s.of, g, i, m, at);
        if (s.shrink != 1) at = at * bc(s.shrink);
        const V first = lerp_(take(mean, i, m), v, bc(s.mean_rest));
        const V second = addcmul_(take(square, i, m) * bc(s.square_keeps), v, v, s.square_rest);
        give(mean, i, m, first);
        give(square, i, m, second);
        V of = second;
        if (largest) {
            const V before = take(largest, i, m);
            of = choose((before > second) | (before != before), before, second);
            give(largest, i, m, of);
        }
        give(p, i, m, addcdiv_(at, first, sqrt_(of) / bc(s.correction) + bc(s.eps), -s.rate));
    });
}

static void adagrad(const Adagrad& s, long n, float* p, float* g, float* sum) {
    for_elements(n, [&](long i, long m) __attribute__((always_inline)) {
        const V at = take(p, i, m), v = gradient(s.of, g, i, m, at), to = addcmul_(take(sum, i, m), v, v, 1);
        give(sum, i, m, to);
        give(p, i, m, addcdiv_(at, v, sqrt_(to) + bc(s.eps), -s.rate));
    });
}
