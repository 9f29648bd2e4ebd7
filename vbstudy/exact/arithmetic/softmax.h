// Softmax of rows: e = exp(x - largest), y = e * (1 / sum(e)); its logarithm: (x - largest) - log(sum(e)).
// Rows whose largest element is minus infinity give NaN, as torch has it.
#pragma once
#include "functions.h"
#include "sums.h"

static float largest_of(const float* x, long n) {
    V t = bc(-INFINITY);
    VI nan{};
    for (long k = 0; k < n; k += W) {
        const V v = n - k >= W ? ld(x + k) : ld_some(x + k, n - k, -INFINITY);
        t = pick(v > t, v, t);
        nan = nan | (v != v);
    }
    return any(nan) ? NAN : largest_across(t);
}

static float logarithm_of(float x) {
    float t[W];
    st(t, log_(bc(x)));
    return t[0];
}

static void softmax(bool logarithm, const float* x, long rows, long n, float* y) {
    shared(rows, 4096 / n + 1, [&](long begin, long end) {
        for (long i = begin; i < end; ++i) {
            const float* from = x + i * n;
            float* to = y + i * n;
            const float largest = largest_of(from, n);
            const V top = bc(largest);
            float s;
            if (!logarithm) {
                each(to, n, [&](V v) { return exp_near(v - top); }, from);
                s = row_sum(to, n);
                const V f = bc(1.f / s);
                each(to, n, [&](V v) { return v * f; }, to);
                continue;
            }
            s = row_of(n, [&](long at, long m) {
                return lanes_of(m, [&](auto get, long k, V a) {
                    return a + exp_near(get.get(from + at + k, -INFINITY) - top);
                });
            });
            const V l = bc(logarithm_of(s));
            each(to, n, [&](V v) { return (v - top) - l; }, from);
        }
    });
}

static void softmax_backward(bool logarithm, const float* dy, const float* y, long rows, long n, float* dx) {
    shared(rows, 8192 / n + 1, [&](long begin, long end) {
        for (long i = begin; i < end; ++i) {
            const float *g = dy + i * n, *v = y + i * n;
            const V s = bc(logarithm ? row_sum(g, n) : row_product(g, v, n));
            if (logarithm)
                each(dx + i * n, n, [&](V a, V b) { return fma(-exp_near(b), s, a); }, g, v);
            else
                each(dx + i * n, n, [&](V a, V b) { return b * (a - s); }, g, v);
        }
    });
}
