// Products. Definition: K is cut in parts of 256. Each part is one chain over k, in order, from zero:
// fma(a[i][k], b[k][j], sum). The sums of the parts are added one after the other, from the first part's on.
// Nothing else has a say: neither the other rows, nor tiles, packing or threads.
#pragma once
#include "threads.h"
#include "vec.h"
#include <vector>

constexpr long PART = 256;

constexpr int NV = W == 4 ? 3 : 2;                      // vectors side by side in a tile
constexpr int NR = NV * W;                              // its columns
constexpr int MR = W == 16 ? 14 : W == 8 ? 6 : 8;       // its rows, at most
constexpr long NC = 512 / NR * NR, MC = 168 / MR * MR;  // a block's columns and rows: what caches hold

// Lanes of two vectors, by their numbers.
#if __has_builtin(__builtin_shufflevector)
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else  // GCC before 12
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, decltype((a) == (b)){__VA_ARGS__})
#endif

INLINE void transpose8(V8 r[8]) {
    V8 t[8], u[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i += 2) {
        t[i] = SHUFFLE(r[i], r[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        t[i + 1] = SHUFFLE(r[i], r[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i += 4) {
        u[i] = SHUFFLE(t[i], t[i + 2], 0, 1, 8, 9, 4, 5, 12, 13);
        u[i + 1] = SHUFFLE(t[i], t[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        u[i + 2] = SHUFFLE(t[i + 1], t[i + 3], 0, 1, 8, 9, 4, 5, 12, 13);
        u[i + 3] = SHUFFLE(t[i + 1], t[i + 3], 2, 3, 10, 11, 6, 7, 14, 15);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 4; ++i) {
        r[i] = SHUFFLE(u[i], u[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        r[i + 4] = SHUFFLE(u[i], u[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}

// to[k * to_row + i] = from[i * from_row + k] for i < rows, k < columns
static void transpose(const float* from, long from_row, long rows, long columns, float* to, long to_row) {
    long k = 0;
    if (rows >= 8)
        for (; k + 8 <= columns; k += 8)
            for (long i = 0; i < rows; i += 8) {
                const long at = std::min(i, rows - 8);
                V8 r[8];
#pragma GCC unroll 8
                for (int j = 0; j < 8; ++j)
                    r[j] = *reinterpret_cast<const V8U*>(from + (at + j) * from_row + k);
                transpose8(r);
#pragma GCC unroll 8
                for (int j = 0; j < 8; ++j) *reinterpret_cast<V8U*>(to + (k + j) * to_row + at) = r[j];
            }
    for (; k < columns; ++k)
        for (long i = 0; i < rows; ++i) to[k * to_row + i] = from[i * from_row + k];
}

static void turn(const float* x, long samples, long rows, long columns, float* y) {
    shared(samples, 1 + 16384 / (rows * columns), [&](long begin, long end) {
        for (long i = begin; i < end; ++i)
            transpose(x + i * rows * columns, columns, rows, columns, y + i * rows * columns, rows);
    });
}

// to[k * width + i] = from[i * across + k * along] for i < rows, and zero for rows <= i < width
static void pack(const float* from, long across, long along, long rows, long depth, float* to, long width) {
    if (along == 1) transpose(from, across, rows, depth, to, width);
    for (long k = 0; k < depth; ++k) {
        if (across == 1)
            memcpy(to + k * width, from + k * along, rows * sizeof(float));
        else if (along != 1)
            for (long i = 0; i < rows; ++i) to[k * width + i] = from[i * across + k * along];
        std::fill(to + k * width + rows, to + (k + 1) * width, 0.f);
    }
}

// A tile's columns: rows of memory `stride` apart.
struct Rows {
    const float* data;
    long stride;
    inline __attribute__((always_inline)) V load(long k, int v) const {
        return ld(data + k * stride + v * W);
    }
};

// R rows and N vectors of one part. a: element (i, k) at i * row + k * column, or packed: at k * R + i.
template <int R, int N, bool PACKED, class B>
static __attribute__((noinline)) void tile_of(long depth, const float* __restrict a, long row, long column,
    const B& from, float* __restrict c, long ldc, bool add) {
    const B b = from;  // in registers
    if constexpr (PACKED) row = 1, column = R;
    V acc[R][N];
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 8
        for (int v = 0; v < N; ++v) acc[i][v] = V{};
#pragma GCC unroll 1
    for (long k = 0; k < depth; ++k, a += column) {
        V columns[N];
#pragma GCC unroll 8
        for (int v = 0; v < N; ++v) columns[v] = b.load(k, v);
#pragma GCC unroll 16
        for (int i = 0; i < R; ++i) {
            const V x = bc(a[i * row]);
#pragma GCC unroll 8
            for (int v = 0; v < N; ++v) acc[i][v] = fma(x, columns[v], acc[i][v]);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 8
        for (int v = 0; v < N; ++v) {
            float* to = c + i * ldc + v * W;
            st(to, add ? ld(to) + acc[i][v] : acc[i][v]);
        }
}

constexpr long PACKED_ROW = -1;  // in a row's place: a is packed (0 is a row that is repeated)

template <int N, class B, int R = MR>
static inline void tile(
    long rows, long depth, const float* a, long row, long column, const B& b, float* c, long ldc, bool add) {
    if constexpr (R > 0) {
        if (rows != R) return tile<N, B, R - 1>(rows, depth, a, row, column, b, c, ldc, add);
        if (row != PACKED_ROW) return tile_of<R, N, false>(depth, a, row, column, b, c, ldc, add);
        tile_of<R, N, true>(depth, a, row, column, b, c, ldc, add);
    }
}

// `columns` of a tile, which may be fewer than it has.
template <class B>
static inline void tile_at(long rows, long depth, const float* a, long row, long column, const B& b, float* c,
    long ldc, long columns, bool add) {
    if (columns == NR) return tile<NV>(rows, depth, a, row, column, b, c, ldc, add);
    float edge[MR * NR];
    if (columns <= W)
        tile<1>(rows, depth, a, row, column, b, edge, NR, false);
    else
        tile<NV>(rows, depth, a, row, column, b, edge, NR, false);
    for (long i = 0; i < rows; ++i) {
        float *to = c + i * ldc, *e = edge + i * NR;
        if (add)
            for (long j = 0; j < columns; ++j) to[j] = to[j] + e[j];
        else
            memcpy(to, e, columns * sizeof(float));
    }
}

static inline long even(long total, long most) {  // the size of equal parts of at most `most`
    const long parts = (total + most - 1) / most;
    return parts ? (total + parts - 1) / parts : 1;
}

static void add_to(const Addition& with, long row, long column, long rows, long columns, float* c, long ldc) {
    const auto& bias = with.bias;
    const V alpha = bc(with.alpha), beta = bc(with.beta);
    for (long i = 0; i < rows; ++i, c += ldc) {
        const float* from = bias.data ? bias.data + (row + i) * bias.row + column * bias.column : nullptr;
        if (with.alpha != 1) each(c, columns, [&](V p) { return alpha * p; }, c);
        if (!from) continue;
        if (bias.column == 1) {
            if (with.beta == 1)
                each(c, columns, [](V p, V b) { return b + p; }, c, from);
            else
                each(c, columns, [&](V p, V b) { return beta * b + p; }, c, from);
        } else if (!bias.column) {
            const V b = with.beta == 1 ? bc(*from) : beta * bc(*from);
            each(c, columns, [&](V p) { return b + p; }, c);
        } else {
            for (long j = 0; j < columns; ++j) {
                const float b = from[j * bias.column];
                c[j] = (with.beta == 1 ? b : with.beta * b) + c[j];
            }
        }
    }
}

// W by W, in registers: rows become columns.
INLINE void transpose_all(V r[W]) {
#if defined(__AVX512F__)
    V t[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        t[i] = SHUFFLE(r[i], r[i + 1], 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
        t[i + 1] = SHUFFLE(r[i], r[i + 1], 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4)
#pragma GCC unroll 2
        for (int j = 0; j < 2; ++j) {
            r[i + 2 * j] =
                SHUFFLE(t[i + j], t[i + 2 + j], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
            r[i + 2 * j + 1] =
                SHUFFLE(t[i + j], t[i + 2 + j], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
        }
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j)
#pragma GCC unroll 2
        for (int i = 0; i < 2; ++i) {
            t[8 * i + j] = SHUFFLE(
                r[8 * i + j], r[8 * i + 4 + j], 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27);
            t[8 * i + 4 + j] = SHUFFLE(
                r[8 * i + j], r[8 * i + 4 + j], 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31);
        }
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
        r[j] = SHUFFLE(t[j], t[8 + j], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
        r[8 + j] = SHUFFLE(t[j], t[8 + j], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    }
#elif defined(__AVX2__)
    transpose8((V8*)r);
#else
    (void)r;
#endif
}

// M rows and G vectors of `have` columns each, straight from rows of b that would otherwise be turned in
// memory for one use: of neighbouring columns, or of one vector's G `parts`, whose sums are added in order.
// From one to the next a and b move by `a_next` and `b_next`.
template <int M, int G>
static void thin(long depth, Matrix a, long a_next, const float* b, long b_next, long column, long have,
    float* c, long ldc, bool add, bool parts) {
    constexpr long LINE =
        16;  // floats: what is loaded is used at once, as such rows often share their place in a cache
    V acc[M][G];
#pragma GCC unroll 8
    for (int i = 0; i < M; ++i)
#pragma GCC unroll 4
        for (int g = 0; g < G; ++g) acc[i][g] = V{};
    const auto step = [&](int g, long h, long n, auto load) __attribute__((always_inline)) {
        V columns[W];
#pragma GCC unroll 16
        for (int j = 0; j < W; ++j)
            columns[j] = load(b + g * b_next + std::min<long>(j, have - 1) * column + h);
        transpose_all(columns);
        const float* from = a.data + g * a_next + h * a.column;
#pragma GCC unroll 16
        for (int q = 0; q < W; ++q) {
            if (q >= n) break;
#pragma GCC unroll 8
            for (int i = 0; i < M; ++i)
                acc[i][g] = fma(bc(from[i * a.row + q * a.column]), columns[q], acc[i][g]);
        }
    };
    long k = 0;
    for (; k + LINE <= depth; k += LINE)
#pragma GCC unroll 4
        for (int g = 0; g < G; ++g)
#pragma GCC unroll 2
            for (long h = k; h < k + LINE; h += W) step(g, h, W, [](const float* p) { return ld(p); });
    for (; k < depth; k += W) {
        const long n = std::min<long>(W, depth - k);
#pragma GCC unroll 4
        for (int g = 0; g < G; ++g) step(g, k, n, [n](const float* p) { return ld_some(p, n); });
    }
#pragma GCC unroll 8
    for (int i = 0; i < M; ++i) {
        float* to = c + i * ldc;
        if (parts) {
            V sum = add ? ld_some(to, have) + acc[i][0] : acc[i][0];
#pragma GCC unroll 4
            for (int g = 1; g < G; ++g) sum = sum + acc[i][g];
            st_some(to, sum, have);
            continue;
        }
#pragma GCC unroll 4
        for (int g = 0; g < G; ++g, to += W) st(to, add ? ld(to) + acc[i][g] : acc[i][g]);
    }
}

template <int M = 8>
static void thin_columns(long m, long n, long k, Matrix a, Matrix b, float* c, long ldc, bool add) {
    if constexpr (M > 0) {
        if (m != M) return thin_columns<M - 1>(m, n, k, a, b, c, ldc, add);
        constexpr int G = M == 1 ? 4 : M <= 4 ? 2 : 1;
        const auto from = [&](long k0) { return Matrix{a.data + k0 * a.column, a.row, a.column}; };
        long j = 0, k0 = 0;
        for (; j + W <= n; j += j + G * W <= n ? G * W : W)
            for (k0 = 0; k0 < k; k0 += PART) {
                const auto some = j + G * W <= n ? thin<M, G> : thin<M, 1>;
                some(std::min(PART, k - k0), from(k0), 0, b.data + j * b.column + k0, W * b.column, b.column,
                    W, c + j, ldc, add || k0, false);
            }
        if (j == n) return;
        for (k0 = 0; k0 < k;) {
            const bool several = k0 + G * PART <= k;
            const auto some = several ? thin<M, G> : thin<M, 1>;
            some(std::min(PART, k - k0), from(k0), PART * a.column, b.data + j * b.column + k0, PART,
                b.column, n - j, c + j, ldc, add || k0, true);
            k0 += several ? G * PART : PART;
        }
    }
}

// One thread's block: m rows, n columns, and all of k. `add`: to what is there, as a next part is.
static void block(long m, long n, long k, Matrix a, Matrix b, float* c, long ldc, bool add = false) {
    if (W >= 8 && m <= 8 && b.row == 1 && b.column != 1) return thin_columns(m, n, k, a, b, c, ldc, add);
    static thread_local Scratch a_kept, b_kept;
    const long mr = even(m, MR), high = MC / mr * mr;
    const bool pack_a = a.row != 1 && n > 2 * NR, pack_b = b.column != 1 || m > 4 * MR;
    float* pa = pack_a ? a_kept.get((high + MR) * PART + 64) : nullptr;
    float* pb = b_kept.get((std::min(n, NC) + NR) * PART + 64);
    for (long j0 = 0; j0 < n; j0 += NC) {
        const long wide = std::min(NC, n - j0);
        for (long k0 = 0; k0 < k; k0 += PART) {
            const long depth = std::min(PART, k - k0);
            for (long j = 0; j < wide; j += NR)
                if (const long columns = std::min<long>(NR, wide - j); pack_b || columns < NR)
                    pack(b.data + k0 * b.row + (j0 + j) * b.column, b.column, b.row, columns, depth,
                        pb + j * depth, NR);
            for (long i0 = 0; i0 < m; i0 += high) {
                const long tall = std::min(high, m - i0);
                if (pack_a)
                    for (long i = 0; i < tall; i += mr) {
                        const long rows = std::min(mr, tall - i);
                        pack(a.data + (i0 + i) * a.row + k0 * a.column, a.row, a.column, rows, depth,
                            pa + i * depth, rows);
                    }
                for (long j = 0; j < wide; j += NR) {
                    const long columns = std::min<long>(NR, wide - j);
                    const Rows from = pack_b || columns < NR ? Rows{pb + j * depth, NR}
                                                             : Rows{b.data + k0 * b.row + j0 + j, b.row};
                    for (long i = 0; i < tall; i += mr) {
                        const long rows = std::min(mr, tall - i);
                        float* to = c + (i0 + i) * ldc + j0 + j;
                        if (pack_a)
                            tile_at(rows, depth, pa + i * depth, PACKED_ROW, 0, from, to, ldc, columns,
                                add || k0);
                        else
                            tile_at(rows, depth, a.data + (i0 + i) * a.row + k0 * a.column, a.row, a.column,
                                from, to, ldc, columns, add || k0);
                    }
                }
            }
        }
    }
}

static Matrix moved(Matrix t, long rows, long columns) {
    return {t.data + rows * t.row + columns * t.column, t.row, t.column};
}

constexpr double SMALL_WORK = 1e5;  // multiplications, below which threads take longer to wake
constexpr long TINY_WORK = 64;      // multiplications, below which tiles take longer than single numbers

static void product(
    long m, long n, long k, Matrix a, Matrix b, float* c, long ldc, const Addition* addition, long threads) {
    if (!k) {
        for (long i = 0; i < m; ++i) std::fill(c + i * ldc, c + i * ldc + n, 0.f);
    } else if (m * n * k <= TINY_WORK) {
        for (long i = 0; i < m; ++i)
            for (long j = 0; j < n; ++j) {
                float sum = 0;
                for (long l = 0; l < k; ++l)
                    sum = __builtin_fmaf(
                        a.data[i * a.row + l * a.column], b.data[l * b.row + j * b.column], sum);
                c[i * ldc + j] = sum;
            }
        if (addition) add_to(*addition, 0, 0, m, n, c, ldc);
        return;
    }
    const long high = (m + MR - 1) / MR, wide = (n + NR - 1) / NR, parts = (k + PART - 1) / PART;
    if (double(m) * n * k < 2 * SMALL_WORK) threads = 1;
    if (threads > 1 && high * wide < threads && parts > 1) {
        // Too few tiles: the parts are shared out, and their sums added as they would be.
        std::unique_ptr<float[]> sums(new float[m * n * (parts - 1)]);
        const long shares = std::min(threads, parts);
        parallel(shares, [&](long s) {
            for (long p = parts * s / shares; p < parts * (s + 1) / shares; ++p)
                block(m, n, std::min(PART, k - p * PART), moved(a, 0, p * PART), moved(b, p * PART, 0),
                    p ? sums.get() + (p - 1) * m * n : c, p ? n : ldc);
        });
        shared(m, std::max(1L, 65536 / (n * parts)), [&](long begin, long end) {
            for (long p = 1; p < parts; ++p)
                for (long i = begin; i < end; ++i)
                    each(
                        c + i * ldc, n, [](V x, V y) { return x + y; }, c + i * ldc,
                        sums.get() + (p - 1) * m * n + i * n);
            if (addition) add_to(*addition, begin, 0, end - begin, n, c + begin * ldc, ldc);
        });
        return;
    }
    long down = 1;
    for (double best = INFINITY, d = 1; d <= threads; ++d) {
        if (threads % long(d)) continue;
        const double rows = double((high + long(d) - 1) / long(d)),
                     columns = double((wide * long(d) + threads - 1) / threads);
        if (const double cost = rows * MR * columns * NR + 8 * (rows * MR + columns * NR); cost < best)
            best = cost, down = long(d);
    }
    const long across = threads / down;
    parallel(down * across, [&](long t) {
        const long i = t % down, j = t / down;
        const long i0 = std::min(m, high * i / down * MR), i1 = std::min(m, high * (i + 1) / down * MR);
        const long j0 = std::min(n, wide * j / across * NR), j1 = std::min(n, wide * (j + 1) / across * NR);
        if (i0 == i1 || j0 == j1) return;
        float* to = c + i0 * ldc + j0;
        if (k) block(i1 - i0, j1 - j0, k, moved(a, i0, 0), moved(b, 0, j0), to, ldc);
        if (addition) add_to(*addition, i0, j0, i1 - i0, j1 - j0, to, ldc);
    });
}

static void product_batch(long batch, long m, long n, long k, Matrix a, long as, Matrix b, long bs, float* c,
    long ldc, long cs, const Addition* addition, long bias_step) {
    const auto one = [&](long i, long threads) {
        Addition own;
        if (addition) {
            own = *addition;
            if (own.bias.data) own.bias.data += i * bias_step;
        }
        const Matrix x{a.data + i * as, a.row, a.column}, y{b.data + i * bs, b.row, b.column};
        if (n == 1 && m > 1 && ldc == 1) {  // a column: as a row
            if (addition) std::swap(own.bias.row, own.bias.column);
            return product(1, m, k, {y.data, y.column, y.row}, {x.data, x.column, x.row}, c + i * cs, m,
                addition ? &own : nullptr, threads);
        }
        product(m, n, k, x, y, c + i * cs, ldc, addition ? &own : nullptr, threads);
    };
    const long threads = host.threads();
    if (batch < threads && double(m) * n * k > 4 * SMALL_WORK) {
        for (long i = 0; i < batch; ++i) one(i, threads);
        return;
    }
    shared(
        batch, std::max(1L, long(SMALL_WORK / std::max(1.0, double(m) * n * k))), [&](long begin, long end) {
            for (long i = begin; i < end; ++i) one(i, 1);
        });
}
