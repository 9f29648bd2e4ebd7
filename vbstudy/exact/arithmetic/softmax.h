// Softmax of rows: e = exp(x - largest), y = e * (1 / sum(e)); its logarithm: (x - largest) - log(sum(e)).
// Rows whose largest element is minus infinity give NaN, as torch has it.
//
// Element k of row r is at (r / inner * n + k) * inner + r % inner. Rows are computed one by one where they
// are long and dense, else W of them side by side, one in each lane. Both add in the same order.
#pragma once
#include "functions.h"
#include "products.h"
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

static void softmax_of_rows(bool logarithm, const float* x, long rows, long n, float* y) {
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

static void softmax_backward_of_rows(
    bool logarithm, const float* dy, const float* y, long rows, long n, float* dx) {
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

// Rows side by side

struct Aside {
    long outer, n, inner;
    long rows() const { return outer * inner; }
    long width() const { return n <= 256 ? 4 * W : W; }  // rows of a block
    // Whether a block is best read where it is: what is read twice stays in a cache, and vectors are full.
    bool in_place(long first, long rows) const {
        return (n <= 32 || n * inner <= 65536) && inner > 1 && rows % W == 0 && first % inner + rows <= inner;
    }
    long place_of(long row) const { return row / inner * n * inner + row % inner; }
};

// Calls work(i, length, place) for a block's rows from i on that are neighbours in memory.
template <class Work>
static inline void stretches_of(const Aside& s, long first, long rows, const Work& work) {
    for (long i = 0, length; i < rows; i += length) {
        length = std::min(rows - i, s.inner - (first + i) % s.inner);
        work(i, length, s.place_of(first + i));
    }
}

static void copy(const float* from, long n, float* to) {
    each(to, n, [](V v) { return v; }, from);
}

// to[k * width + i] is element k of row first + i, and zero for rows <= i.
static void bring_together(const Aside& s, const float* x, long first, long rows, float* to) {
    const long width = s.width();
    if (s.inner == 1)
        transpose(x + first * s.n, s.n, rows, s.n, to, width);
    else
        stretches_of(s, first, rows, [&](long i, long length, long place) {
            for (long k = 0; k < s.n; ++k) copy(x + place + k * s.inner, length, to + k * width + i);
        });
    for (long k = 0; rows < width && k < s.n; ++k)
        std::fill(to + k * width + rows, to + (k + 1) * width, 0.f);
}

static void bring_back(const Aside& s, const float* from, long first, long rows, float* y) {
    const long width = s.width();
    if (s.inner == 1) return transpose(from, width, s.n, rows, y + first * s.n, s.n);
    stretches_of(s, first, rows, [&](long i, long length, long place) {
        for (long k = 0; k < s.n; ++k) copy(from + k * width + i, length, y + place + k * s.inner);
    });
}

// Calls work(step, y, x) for W rows each: element k of them is at k * step. y may be x[0].
template <class Work, class... X>
static void in_lanes_of_rows(const Aside& s, const Work& work, float* y, const X*... x) {
    const long width = s.width(), size = s.n * width, blocks = (s.rows() + width - 1) / width;
    shared(blocks, 8192 / size + 1, [&](long begin, long end) {
        static thread_local Scratch kept;
        float* const block = kept.get(size * sizeof...(x));
        for (long b = begin; b < end; ++b) {
            const long first = b * width, rows = std::min(width, s.rows() - first);
            if (s.in_place(first, rows)) {
                for (long i = s.place_of(first), last = i + rows; i < last; i += W) {
                    const float* const from[] = {x + i...};
                    work(s.inner, y + i, from);
                }
                continue;
            }
            float* to = block;
            ((bring_together(s, x, first, rows, to), to += size), ...);
            for (long i = 0; i < rows; i += W) {
                const float* const from[] = {block + i, block + size + i};
                work(width, block + i, from);
            }
            bring_back(s, block, first, rows, y);
        }
    });
}

// The sums of W rows of at most BLOCK elements: step(k, sum) adds element k of each to their lanes.
template <int LANES, class F>
INLINE V sums_aside(long n, F step) {
    V s[LANES];
    long have = std::min<long>(n, LANES), k = have;
    for (long l = 0; l < have; ++l) s[l] = step(l, V{});
    for (; k + LANES <= n; k += LANES)
        for (long l = 0; l < LANES; ++l) s[l] = step(k + l, s[l]);
    for (long l = 0; k + l < n; ++l) s[l] = step(k + l, s[l]);
    for (long half = LANES / 2; half; half /= 2) {
        for (long l = 0; l < std::min(have, half); ++l) s[l] = s[l] + (l + half < have ? s[l + half] : V{});
        have = std::min(have, half);
    }
    return s[0];
}
template <class F>
INLINE V sum_aside(long n, F step) {
    return n <= SHORT ? sums_aside<16>(n, step) : sums_aside<64>(n, step);
}

static void softmax_aside(bool logarithm, const float* x, const Aside& s, float* y) {
    const long n = s.n;
    const auto work = [&](long step, float* to, const float* const* x) {
        const float* const from = x[0];
        V top = ld(from);
        for (long k = 1; k < n; ++k) {
            const V v = ld(from + k * step);
            top = choose(v > top, v, top);  // a NaN comes by way of the sum
        }
        if (logarithm) {
            const V l = log_(sum_aside(
                n, [&](long k, V a) { return a + exp_near(ld(from + k * step) - top); }));
            for (long k = 0; k < n; ++k) st(to + k * step, (ld(from + k * step) - top) - l);
            return;
        }
        const V f = bc(1) / sum_aside(n, [&](long k, V a) {
            const V e = exp_near(ld(from + k * step) - top);
            st(to + k * step, e);
            return a + e;
        });
        for (long k = 0; k < n; ++k) st(to + k * step, ld(to + k * step) * f);
    };
    in_lanes_of_rows(s, work, y, x);
}

static void softmax_backward_aside(
    bool logarithm, const float* dy, const float* y, const Aside& s, float* dx) {
    const long n = s.n;
    const auto work = [&](long step, float* to, const float* const* x) {
        const float *const g = x[0], *const v = x[1];
        if (logarithm) {
            const V sum = sum_aside(n, [&](long k, V a) { return a + ld(g + k * step); });
            for (long i = 0; i < n * step; i += step) st(to + i, fma(-exp_near(ld(v + i)), sum, ld(g + i)));
            return;
        }
        const V sum =
            sum_aside(n, [&](long k, V a) { return fma(ld(g + k * step), ld(v + k * step), a); });
        for (long i = 0; i < n * step; i += step) st(to + i, ld(v + i) * (ld(g + i) - sum));
    };
    in_lanes_of_rows(s, work, dx, dy, y);
}

// Whether to compute rows side by side: up to `dense` elements where a row's are neighbours in memory.
static bool aside(const Aside& s, long dense) {
    if (s.n > BLOCK || s.rows() < W) return false;
    if (s.inner > 1 && s.inner < 4 && s.n > 64) return false;  // they would be brought together in pieces
    return s.inner == 1 ? s.n <= dense : s.n <= 256 || s.rows() >= W * host.threads();
}

// Other rows are computed one by one; they are turned in memory first where they are not dense.

static void softmax(bool logarithm, const float* x, long outer, long n, long inner, float* y) {
    const Aside s{outer, n, inner};
    if (aside(s, 64)) return softmax_aside(logarithm, x, s, y);
    if (inner == 1) return softmax_of_rows(logarithm, x, outer, n, y);
    std::unique_ptr<float[]> rows(new float[outer * n * inner]);
    turn(x, outer, n, inner, rows.get());
    softmax_of_rows(logarithm, rows.get(), outer * inner, n, rows.get());
    turn(rows.get(), outer, inner, n, y);
}

static void softmax_backward(
    bool logarithm, const float* dy, const float* y, long outer, long n, long inner, float* dx) {
    const Aside s{outer, n, inner};
    if (aside(s, 24)) return softmax_backward_aside(logarithm, dy, y, s, dx);
    if (inner == 1) return softmax_backward_of_rows(logarithm, dy, y, outer, n, dx);
    std::unique_ptr<float[]> g(new float[outer * n * inner]), v(new float[outer * n * inner]);
    turn(dy, outer, n, inner, g.get());
    turn(y, outer, n, inner, v.get());
    softmax_backward_of_rows(logarithm, g.get(), v.get(), outer * inner, n, g.get());
    turn(g.get(), outer, inner, n, dx);
}
