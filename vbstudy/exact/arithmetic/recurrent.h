// One direction of one LSTM layer. Gates: (x w_x + b_x) + (h w_h + b_h), both products as ever; then
//   i, f, o = sigmoid, g = tanh;  c' = fma(f, c, i * g);  h' = o * tanh(c')
// Backward, with t = tanh(c'):  d = fma(dh * o, fma(-t, t, 1), dc);  of the gates before their functions
//   i: d * g * (i * (1 - i))   f: d * c * (f * (1 - f))   g: d * i * fma(-g, g, 1)   o: dh * t * (o * (1 -
//   o)) dc = d * f, dh = gates' gradient * w_h + the output's. Those of the weights, of x and of the biases
//   are products and sums of columns over all steps in order.
#pragma once
#include "functions.h"
#include "products.h"
#include "sums.h"

constexpr long KEPT = 6;  // of each step, sample and unit: i, f, g, o, tanh(c'), c'

static void lstm(const Lstm& s, const float* x, const float* h0, const float* c0, float* y, float* kept) {
    const long units = s.units, gates = 4 * units;
    std::unique_ptr<float[]> from_x(new float[s.steps * s.samples * gates]),
        from_h(new float[s.samples * gates]);
    const Addition with_x{{s.bias_x, 0, 1}, 1, 1}, with_h{{s.bias_h, 0, 1}, 1, 1};
    const Matrix w_x{s.weight_x, 1, s.inputs}, w_h{s.weight_h, 1, units};
    product_batch(1, s.steps * s.samples, gates, s.inputs, {x, s.inputs, 1}, 0, w_x, 0, from_x.get(), gates,
        0, &with_x, 0);
    for (long i = 0; i < s.steps; ++i) {
        const long t = s.reverse ? s.steps - 1 - i : i, before = s.reverse ? t + 1 : t - 1;
        const float* h = i ? y + before * s.samples * units : h0;
        product_batch(
            1, s.samples, gates, units, {h, units, 1}, 0, w_h, 0, from_h.get(), gates, 0, &with_h, 0);
        shared(s.samples, 1024 / units + 1, [&](long begin, long end) {
            for (long b = begin; b < end; ++b) {
                const float *gx = from_x.get() + (t * s.samples + b) * gates, *gh = from_h.get() + b * gates;
                float* k = kept + (t * s.samples + b) * KEPT * units;
                const float* c =
                    i ? kept + (before * s.samples + b) * KEPT * units + 5 * units : c0 + b * units;
                const auto add = [](V p, V q) { return p + q; };
                each(k, units, [&](V p, V q) { return sigmoid_(add(p, q)); }, gx, gh);
                each(k + units, units, [&](V p, V q) { return sigmoid_(add(p, q)); }, gx + units, gh + units);
                each(
                    k + 2 * units, units, [&](V p, V q) { return tanh_(add(p, q)); }, gx + 2 * units,
                    gh + 2 * units);
                each(
                    k + 3 * units, units, [&](V p, V q) { return sigmoid_(add(p, q)); }, gx + 3 * units,
                    gh + 3 * units);
                each(
                    k + 5 * units, units, [](V i_, V f, V g, V cv) { return fma(f, cv, i_ * g); }, k,
                    k + units, k + 2 * units, c);
                each(k + 4 * units, units, [](V cv) { return tanh_(cv); }, k + 5 * units);
                each(
                    y + (t * s.samples + b) * units, units, [](V o, V tc) { return o * tc; }, k + 3 * units,
                    k + 4 * units);
            }
        });
    }
}

// dh and dc hold the gradients of the last states, and receive those of the first.
static void lstm_backward(const Lstm& s, const float* x, const float* h0, const float* c0, const float* y,
    const float* kept, const float* dy, float* dh, float* dc, float* dx, float* dw_x, float* dw_h,
    float* db) {
    const long units = s.units, gates = 4 * units, rows = s.steps * s.samples;
    std::unique_ptr<float[]> all(new float[rows * gates]), before(new float[rows * units]);
    for (long i = s.steps - 1; i >= 0; --i) {
        const long t = s.reverse ? s.steps - 1 - i : i, last = s.reverse ? t + 1 : t - 1;
        float* of_step = all.get() + t * s.samples * gates;
        memcpy(before.get() + t * s.samples * units, i ? y + last * s.samples * units : h0,
            s.samples * units * sizeof(float));
        shared(s.samples, 1024 / units + 1, [&](long begin, long end) {
            for (long b = begin; b < end; ++b) {
                const float *k = kept + (t * s.samples + b) * KEPT * units, *in = k, *f = k + units,
                            *g = k + 2 * units, *o = k + 3 * units, *tc = k + 4 * units;
                const float* c =
                    i ? kept + (last * s.samples + b) * KEPT * units + 5 * units : c0 + b * units;
                float *to = of_step + b * gates, *h = dh + b * units, *cell = dc + b * units;
                const V one = bc(1.f);
                if (dy) each(h, units, [](V a, V v) { return a + v; }, h, dy + (t * s.samples + b) * units);
                each(
                    to + 3 * units, units, [&](V hv, V tv, V ov) { return hv * tv * (ov * (one - ov)); }, h,
                    tc, o);
                each(
                    cell, units, [&](V cv, V hv, V ov, V tv) { return fma(hv * ov, fma(-tv, tv, one), cv); },
                    cell, h, o, tc);
                each(to, units, [&](V d, V gv, V iv) { return d * gv * (iv * (one - iv)); }, cell, g, in);
                each(
                    to + units, units, [&](V d, V cv, V fv) { return d * cv * (fv * (one - fv)); }, cell, c,
                    f);
                each(
                    to + 2 * units, units, [&](V d, V iv, V gv) { return d * iv * fma(-gv, gv, one); }, cell,
                    in, g);
                each(cell, units, [](V d, V fv) { return d * fv; }, cell, f);
            }
        });
        product_batch(1, s.samples, units, gates, {of_step, gates, 1}, 0, {s.weight_h, units, 1}, 0, dh,
            units, 0, nullptr, 0);
    }
    if (dx)
        product_batch(1, rows, s.inputs, gates, {all.get(), gates, 1}, 0, {s.weight_x, s.inputs, 1}, 0, dx,
            s.inputs, 0, nullptr, 0);
    product_batch(1, gates, s.inputs, rows, {all.get(), 1, gates}, 0, {x, s.inputs, 1}, 0, dw_x, s.inputs, 0,
        nullptr, 0);
    product_batch(1, gates, units, rows, {all.get(), 1, gates}, 0, {before.get(), units, 1}, 0, dw_h, units,
        0, nullptr, 0);
    sum_columns(all.get(), 1, rows, gates, db);
}
