// Sums. Definitions:
// row:      element i is added to lane i mod 64 (mod 16 in rows of at most 512), each lane a chain from zero;
// then
//           lane l takes lane l + n/2, l + n/4, ..., l + 1. Rows of more than 65,536 are cut in blocks of so
//           many, and the blocks' sums added pairwise: s0 + s1, s2 + s3, ..., then these again
// columns:  rows in parts of 128, each a chain from zero; the parts' sums are summed likewise
#pragma once
#include "threads.h"
#include "vec.h"
#include <vector>

constexpr long BLOCK = 65536, SHORT = 512, COLUMN_PART = 128;

struct All {  // a whole vector
    static V get(const float* p, float = 0) { return ld(p); }
};
struct Some {  // what is left of a row
    long n;
    V get(const float* p, float fill = 0) const { return n >= W ? ld(p) : ld_some(p, n, fill); }
};

template <int N>
INLINE float lanes_joined(V s[N / W]) {
    for (int half = N / W / 2; half; half /= 2)
        for (int l = 0; l < half; ++l) s[l] = s[l] + s[l + half];
    return sum_across(s[0]);
}

// step(get, i, sum) adds elements i ... i + W - 1 to a vector of lanes; what is beyond the end must add
// nothing.
template <int N, class F>
INLINE void to_lanes(long n, V s[N / W], F step) {
    long i = 0;
    for (; i + N <= n; i += N)
#pragma GCC unroll 16
        for (int l = 0; l < N / W; ++l) s[l] = step(All{}, i + l * W, s[l]);
    for (int l = 0; i < n; ++l, i += W) s[l] = step(Some{n - i}, i, s[l]);
}

template <int N, class F>
static inline float in_lanes(long n, F step) {
    V s[N / W];
    for (auto& lane : s) lane = V{};
    to_lanes<N>(n, s, step);
    return lanes_joined<N>(s);
}

template <class F>
static inline float lanes_of(long n, F step) {
    return n <= SHORT ? in_lanes<16>(n, step) : in_lanes<64>(n, step);
}

// Sums of blocks, pairwise, in the order in which they come.
class Pairwise {
public:
    void add(float sum) {
        long l = 0;
        for (; top_ && level_[top_ - 1] == l; ++l) sum = kept_[--top_] + sum;
        kept_[top_] = sum;
        level_[top_++] = l;
    }
    float total() {
        if (!top_) return 0;
        float s = kept_[--top_];
        while (top_) s = kept_[--top_] + s;
        return s;
    }

private:
    float kept_[64];
    long level_[64], top_ = 0;
};

// of(i, n) is the sum of n elements from i on.
template <class F>
static float row_of(long n, F of) {
    if (n <= BLOCK) return of(0, n);
    const long blocks = (n + BLOCK - 1) / BLOCK;
    std::vector<float> sums(blocks);
    shared(blocks, 4, [&](long begin, long end) {
        for (long b = begin; b < end; ++b) sums[b] = of(b * BLOCK, std::min(BLOCK, n - b * BLOCK));
    });
    Pairwise all;
    for (const float s : sums) all.add(s);
    return all.total();
}

static float row_sum(const float* x, long n) {
    return row_of(n, [&](long i, long m) {
        return lanes_of(m, [&](auto from, long k, V s) { return s + from.get(x + i + k); });
    });
}
static float row_squares(const float* x, long n, float mean) {  // of differences to the mean
    const V m = bc(mean);
    return row_of(n, [&](long i, long l) {
        return lanes_of(l, [&](auto from, long k, V s) {
            const V d = from.get(x + i + k, mean) - m;
            return fma(d, d, s);
        });
    });
}
// By differences to the first element: exact for equal numbers, whose sum / n is not.
static float row_deviations(const float* x, long n) {
    const V first = bc(x[0]);
    const float differences = row_of(n, [&](long i, long m) {
        return lanes_of(m, [&](auto from, long k, V s) { return s + (from.get(x + i + k, x[0]) - first); });
    });
    return row_squares(x, n, x[0] + differences / float(n));
}
static bool equal_numbers(const float* x, long n) { return !memcmp(x, x + 1, (n - 1) * sizeof(float)); }
// Squares / freedom, or the root of it. Where the squares leave float32's range, the numbers are first
// multiplied by a power of two.
static float row_variance(bool of_root, const float* x, long n, float freedom) {
    constexpr float UP = 0x1p96f, DOWN = 0x1p-96f;
    float squares = row_deviations(x, n), back = 1;
    const float square = squares / float(n);
    const bool small = square < 0x1p-126f;
    if ((small || !std::isfinite(square)) && !equal_numbers(x, n)) {
        const V by = bc(small ? UP : DOWN);
        std::vector<float> scaled(n);
        each(scaled.data(), n, [&](V v) { return v * by; }, x);
        squares = row_deviations(scaled.data(), n);
        back = small ? DOWN : UP;
    }
    const float variance = squares / freedom;
    return of_root ? __builtin_sqrtf(variance) * back : variance * back * back;
}
static float row_magnitudes(const float* x, long n) {
    return row_of(n, [&](long i, long m) {
        return lanes_of(m, [&](auto from, long k, V s) { return s + absolute(from.get(x + i + k)); });
    });
}
static float row_product(const float* x, const float* y, long n) {
    return row_of(n, [&](long i, long m) {
        return lanes_of(
            m, [&](auto from, long k, V s) { return fma(from.get(x + i + k), from.get(y + i + k), s); });
    });
}

static void sum_rows(int what, const float* x, long rows, long n, float* y) {
    shared(rows, std::max(1L, 16384 / std::max(n, 1L)), [&](long begin, long end) {
        for (long i = begin; i < end; ++i)
            y[i] = what == SUM       ? row_sum(x + i * n, n)
                   : what == SQUARES ? row_squares(x + i * n, n, 0)
                                     : row_magnitudes(x + i * n, n);
    });
}
static void variance_rows(bool of_root, const float* x, long rows, long n, float freedom, float* y) {
    shared(rows, std::max(1L, 16384 / std::max(n, 1L)), [&](long begin, long end) {
        for (long i = begin; i < end; ++i) y[i] = row_variance(of_root, x + i * n, n, freedom);
    });
}

// Columns `begin` to `end` of one part's rows. of(i, c) and of_one(i, c): a vector, an element of row i.
static void part_of_columns(const float* x, long rows, long columns, long begin, long end, float* y) {
    constexpr int WIDE = 4;
    long c = begin;
    for (; c + WIDE * W <= end; c += WIDE * W) {
        V s[WIDE] = {};
        for (long i = 0; i < rows; ++i)
#pragma GCC unroll 4
            for (int v = 0; v < WIDE; ++v) s[v] = s[v] + ld(x + i * columns + c + v * W);
        for (int v = 0; v < WIDE; ++v) st(y + c + v * W, s[v]);
    }
    for (; c < end; c += W) {
        const long n = std::min<long>(W, end - c);
        V s{};
        if (n == W) {
            for (long i = 0; i < rows; ++i) s = s + ld(x + i * columns + c);
            st(y + c, s);
        } else {
            float t[W] = {};
            for (long i = 0; i < rows; ++i)
                for (long l = 0; l < n; ++l) t[l] = t[l] + x[i * columns + c + l];
            memcpy(y + c, t, n * sizeof(float));
        }
    }
}

static void sum_columns(const float* x, long batch, long rows, long columns, float* y) {
    const long parts = (rows + COLUMN_PART - 1) / COLUMN_PART;
    if (parts <= 1) {
        shared(batch * columns, 16384 / std::max(rows, 1L) + 64, [&](long begin, long end) {
            for (long at = begin; at < end;) {
                const long b = at / columns, c = at % columns, last = std::min(columns, c + end - at);
                part_of_columns(x + b * rows * columns, rows, columns, c, last, y + b * columns);
                at += last - c;
            }
        });
        return;
    }
    std::vector<float> sums(batch * parts * columns);
    shared(batch * parts, std::max(1L, 128 / columns), [&](long begin, long end) {
        for (long i = begin; i < end; ++i) {
            const long first = i % parts * COLUMN_PART;
            part_of_columns(x + (i / parts * rows + first) * columns, std::min(COLUMN_PART, rows - first),
                columns, 0, columns, sums.data() + i * columns);
        }
    });
    sum_columns(sums.data(), batch, parts, columns, y);
}
