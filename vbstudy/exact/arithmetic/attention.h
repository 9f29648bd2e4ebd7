// Attention of each sample's head. s = (q k) * scale, then + mask; row i of causal attention has its first i
// + 1 elements alone. Rows of s go through softmax, and p v is a product. A row of nothing but minus infinity
// gives zeros. Backward: p = exp(s - l), where l = largest + log(sum) is kept; d = p * (dy v - dot(dy, y)),
// as fma(p, dy v, -p * dot); dv = p dy, dq = (d k) * scale, dk = (d q) * scale, products over keys or queries
// as ever.
#pragma once
#include "products.h"
#include "softmax.h"

static Matrix matrix_of(const Heads& t, long sample, long head) {
    return {t.data + sample * t.step[0] + head * t.step[1], t.step[2], t.step[3]};
}

static float* row_of_heads(const HeadsOut& t, long sample, long head) {
    return t.data + sample * t.step[0] + head * t.step[1];
}

// Scores of queries `begin` to `end`, `columns` apart, before softmax.
static long scores(const Attention& s, long sample, long head, long begin, long end, float* to) {
    const long columns = s.causal ? std::min(s.keys, end) : s.keys;
    const auto k = matrix_of(s.k, sample, head);
    block(end - begin, columns, s.width, moved(matrix_of(s.q, sample, head), begin, 0),
        {k.data, k.column, k.row}, to, columns);
    const V scale = bc(s.scale);
    for (long i = begin; i < end; ++i) {
        float* row = to + (i - begin) * columns;
        const long n = s.causal ? std::min(s.keys, i + 1) : s.keys;
        if (!s.mask.data) {
            each(row, n, [&](V v) { return v * scale; }, row);
            continue;
        }
        const auto mask = moved(matrix_of(s.mask, sample, head), i, 0);
        if (mask.column == 1)
            each(row, n, [&](V v, V m) { return v * scale + m; }, row, mask.data);
        else
            for (long j = 0; j < n; ++j) row[j] = row[j] * s.scale + mask.data[j * mask.column];
    }
    return columns;
}

constexpr long QUERIES = 128;

static void attention(const Attention& s, const HeadsOut& y, float* kept) {
    const long blocks = (s.queries + QUERIES - 1) / QUERIES;
    parallel(s.samples * s.heads * blocks, [&](long task) {
        static thread_local Scratch scratch;
        const long sample = task / blocks / s.heads, head = task / blocks % s.heads;
        const long begin = task % blocks * QUERIES, end = std::min(s.queries, begin + QUERIES);
        float* p = scratch.get((end - begin) * s.keys + 64);
        const long columns = scores(s, sample, head, begin, end, p);
        for (long i = begin; i < end; ++i) {
            float* row = p + (i - begin) * columns;
            const long n = s.causal ? std::min(s.keys, i + 1) : s.keys;
            const float largest = largest_of(row, n);
            float& l = kept[(sample * s.heads + head) * s.queries + i];
            std::fill(row + n, row + columns, 0.f);
            if (largest == -INFINITY) {
                std::fill(row, row + n, 0.f);
                l = 0;  // as torch's, whose backward may follow: it gives weights of 0
                continue;
            }
            const V top = bc(largest);
            each(row, n, [&](V v) { return exp_near(v - top); }, row);
            const float sum = row_sum(row, n);
            const V f = bc(1.f / sum);
            each(row, n, [&](V v) { return v * f; }, row);
            l = largest + logarithm_of(sum);
        }
        block(end - begin, s.value_width, columns, {p, columns, 1}, matrix_of(s.v, sample, head),
            row_of_heads(y, sample, head) + begin * y.step[2], y.step[2]);
    });
}

static void attention_backward(const Attention& s, const Heads& dy, const Heads& y, const float* kept,
    const HeadsOut& dq, const HeadsOut& dk, const HeadsOut& dv) {
    parallel(s.samples * s.heads, [&](long task) {
        static thread_local Scratch scratch;
        const long sample = task / s.heads, head = task % s.heads;
        const long q_row = dq.step[2], k_row = dk.step[2], v_row = dv.step[2];
        float *to_q = row_of_heads(dq, sample, head), *to_k = row_of_heads(dk, sample, head),
              *to_v = row_of_heads(dv, sample, head);
        float *p = scratch.get(2 * PART * s.keys + 2 * PART * s.value_width + 128), *d = p + PART * s.keys;
        float *g_row = d + PART * s.keys, *y_row = g_row + s.value_width;
        const auto q = matrix_of(s.q, sample, head), k = matrix_of(s.k, sample, head),
                   v = matrix_of(s.v, sample, head);
        const auto g = matrix_of(dy, sample, head), out = matrix_of(y, sample, head);
        const V scale = bc(s.scale);
        for (long begin = 0; begin < s.queries; begin += PART) {  // one part of the products over queries
            const long end = std::min(s.queries, begin + PART), rows = end - begin;
            const long columns = scores(s, sample, head, begin, end, p);
            block(rows, columns, s.value_width, moved(g, begin, 0), {v.data, v.column, v.row}, d, columns);
            for (long i = begin; i < end; ++i) {
                float *pr = p + (i - begin) * columns, *dr = d + (i - begin) * columns;
                const long n = s.causal ? std::min(s.keys, i + 1) : s.keys;
                const float l = kept[(sample * s.heads + head) * s.queries + i];
                std::fill(pr + n, pr + columns, 0.f);
                std::fill(dr + n, dr + columns, 0.f);
                for (long c = 0; c < s.value_width; ++c) {
                    g_row[c] = g.data[i * g.row + c * g.column];
                    y_row[c] = out.data[i * out.row + c * out.column];
                }
                const V lv = bc(l), delta = bc(row_product(g_row, y_row, s.value_width));
                each(pr, n, [&](V x) { return exp_near(x - lv); }, pr);
                each(dr, n, [&](V x, V w) { return fma(w, x, -(w * delta)); }, dr, pr);
            }
            block(rows, s.width, columns, {d, columns, 1}, k, to_q + begin * q_row, q_row);
            for (long i = begin; i < end; ++i)
                each(to_q + i * q_row, s.width, [&](V x) { return x * scale; }, to_q + i * q_row);
            if (begin == 0 && columns < s.keys)  // not reached by the first part
                for (long j = columns; j < s.keys; ++j) {
                    std::fill(to_k + j * k_row, to_k + j * k_row + s.width, 0.f);
                    std::fill(to_v + j * v_row, to_v + j * v_row + s.value_width, 0.f);
                }
            block(columns, s.value_width, rows, {p, 1, columns}, moved(g, begin, 0), to_v, v_row, begin);
            block(columns, s.width, rows, {d, 1, columns}, moved(q, begin, 0), to_k, k_row, begin);
        }
        for (long j = 0; j < s.keys; ++j)
            each(to_k + j * k_row, s.width, [&](V x) { return x * scale; }, to_k + j * k_row);
    });
}
