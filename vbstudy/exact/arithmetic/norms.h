// Normalisations. Variances are means of squares of differences to the mean, in the same lanes as the sums.
// Batch norm: a channel's elements in one sample go to lanes as those of a row do, and the lanes go on from
// one sample to the next; they are joined and begin anew after max(1, 65536 / places) samples. These sums are
// a chain.
#pragma once
#include "sums.h"

// Sum over samples and places of channel c: step(from, pointer offset of the element, lane).
template <class F>
static float over_samples(const BatchNorm& s, long c, F step) {
    const long together = std::max(1L, BLOCK / s.places);
    float sum = 0;
    const auto some = [&](auto n) {
        constexpr int N = decltype(n)::value;
        for (long n0 = 0; n0 < s.samples; n0 += together) {
            V lanes[N / W];
            for (auto& lane : lanes) lane = V{};
            for (long i = n0; i < std::min(s.samples, n0 + together); ++i) {
                const long at = (i * s.channels + c) * s.places;
                to_lanes<N>(s.places, lanes, [&](auto from, long k, V l) { return step(from, at + k, l); });
            }
            sum = sum + lanes_joined<N>(lanes);
        }
    };
    if (s.places <= SHORT)
        some(std::integral_constant<int, 16>{});
    else
        some(std::integral_constant<int, 64>{});
    return sum;
}

// The same for the W channels from c on, where channels lie side by side: a lane is a vector.
template <class F>
static V over_samples_of(const BatchNorm& s, F step) {
    const long together = std::max(1L, BLOCK / s.places);
    V sum{};
    const auto some = [&](auto n) {
        constexpr int N = decltype(n)::value;
        for (long n0 = 0; n0 < s.samples; n0 += together) {
            V lanes[N];
            for (auto& lane : lanes) lane = V{};
            for (long i = n0; i < std::min(s.samples, n0 + together); ++i) {
                const long at = i * s.places;
                long k = 0;
                for (; k + N <= s.places; k += N)
#pragma GCC unroll 64
                    for (int l = 0; l < N; ++l) lanes[l] = step((at + k + l) * s.channels, lanes[l]);
                for (int l = 0; k < s.places; ++k, ++l) lanes[l] = step((at + k) * s.channels, lanes[l]);
            }
            for (int half = N / 2; half; half /= 2)
                for (int l = 0; l < half; ++l) lanes[l] = lanes[l] + lanes[l + half];
            sum = sum + lanes[0];
        }
    };
    if (s.places <= SHORT)
        some(std::integral_constant<int, 16>{});
    else
        some(std::integral_constant<int, 64>{});
    return sum;
}

static bool side_by_side(const BatchNorm& s) { return s.last || s.places == 1; }

// work(c, n) for the n <= W channels from c on.
template <class Work>
static void over_channels(const BatchNorm& s, const Work& work) {
    shared((s.channels + W - 1) / W, 16384 / (s.samples * s.places * W) + 1, [&](long begin, long end) {
        for (long c = begin * W; c < std::min(end * W, s.channels); c += W)
            work(c, std::min<long>(W, s.channels - c));
    });
}
static V some_of(const float* p, long n) { return n == W ? ld(p) : ld_some(p, n); }

// Mean and variance of each channel.
static void moments(const BatchNorm& s, const float* x, float* mean, float* squares) {
    const float count = float(s.samples * s.places);
    if (side_by_side(s)) {
        over_channels(s, [&](long c, long n) {
            const V m =
                over_samples_of(s, [&](long at, V l) { return l + some_of(x + at + c, n); }) / bc(count);
            st_some(mean + c, m, n);
            st_some(squares + c,
                over_samples_of(s,
                    [&](long at, V l) {
                        const V d = some_of(x + at + c, n) - m;
                        return fma(d, d, l);
                    }),
                n);
        });
        return;
    }
    shared(s.channels, 16384 / (s.samples * s.places) + 1, [&](long begin, long end) {
        for (long c = begin; c < end; ++c) {
            mean[c] =
                over_samples(s, c, [&](auto from, long at, V l) { return l + from.get(x + at); }) / count;
            const V m = bc(mean[c]);
            squares[c] = over_samples(s, c, [&](auto from, long at, V l) {
                const V d = from.get(x + at, mean[c]) - m;
                return fma(d, d, l);
            });
        }
    });
}

// y = x * scale + shift, one FMA; scale = inverse * weight, shift = bias - mean * scale, one FMA.
static void batch_norm_apply(
    const BatchNorm& s, const float* x, const float* mean, const float* inverse, float* y) {
    std::vector<float> scale(s.channels), shift(s.channels);
    for (long c = 0; c < s.channels; ++c) {
        scale[c] = s.weight ? inverse[c] * s.weight[c] : inverse[c];
        shift[c] = __builtin_fmaf(-mean[c], scale[c], s.bias ? s.bias[c] : 0.f);
    }
    shared(s.samples, 16384 / (s.channels * s.places) + 1, [&](long begin, long end) {
        for (long i = begin; i < end; ++i) {
            const long at = i * s.channels * s.places;
            if (side_by_side(s)) {
                for (long p = at; p < at + s.channels * s.places; p += s.channels)
                    each(
                        y + p, s.channels, [](V v, V a, V b) { return fma(v, a, b); }, x + p, scale.data(),
                        shift.data());
                continue;
            }
            for (long c = 0; c < s.channels; ++c) {
                const V a = bc(scale[c]), b = bc(shift[c]);
                each(
                    y + at + c * s.places, s.places, [&](V v) { return fma(v, a, b); },
                    x + at + c * s.places);
            }
        }
    });
}

// Training: also the mean, 1 / sqrt(variance + eps), and the running statistics (or null): new = momentum *
// batch's + (1 - momentum) * old, with the variance over count - 1.
static void batch_norm(const BatchNorm& s, const float* x, float* y, float* mean, float* inverse,
    float* running_mean, float* running_variance, double momentum) {
    moments(s, x, mean, inverse);
    const long count = s.samples * s.places;
    const float a = float(momentum), b = float(1 - momentum);
    for (long c = 0; c < s.channels; ++c) {
        if (running_mean) running_mean[c] = a * mean[c] + b * running_mean[c];
        if (running_variance)
            running_variance[c] = a * (inverse[c] / float(count - 1)) + b * running_variance[c];
        inverse[c] = 1.f / __builtin_sqrtf(inverse[c] / float(count) + s.eps);
    }
    batch_norm_apply(s, x, mean, inverse, y);
}

// s1 = sum of dy, s2 = sum of dy * (x - mean); dx = ((dy - s1 / count) - (x - mean) * s2 * inverse^2 / count)
// * scale in training, dy * scale otherwise. Each output may be null.
static void batch_norm_backward(const BatchNorm& s, const float* dy, const float* x, const float* mean,
    const float* inverse, bool training, float* dx, float* dw, float* db) {
    const float count = float(s.samples * s.places);
    std::vector<float> sums(s.channels), products(s.channels);
    if (side_by_side(s)) {
        over_channels(s, [&](long c, long n) {
            const V m = some_of(mean + c, n);
            st_some(sums.data() + c,
                over_samples_of(s, [&](long at, V l) { return l + some_of(dy + at + c, n); }), n);
            st_some(products.data() + c,
                over_samples_of(
                    s, [&](long at,
                           V l) { return fma(some_of(dy + at + c, n), some_of(x + at + c, n) - m, l); }),
                n);
        });
    } else {
        shared(s.channels, 16384 / (s.samples * s.places) + 1, [&](long begin, long end) {
            for (long c = begin; c < end; ++c) {
                const V m = bc(mean[c]);
                sums[c] = over_samples(s, c, [&](auto from, long at, V l) { return l + from.get(dy + at); });
                products[c] = over_samples(s, c, [&](auto from, long at, V l) {
                    return fma(from.get(dy + at), from.get(x + at, mean[c]) - m, l);
                });
            }
        });
    }
    std::vector<float> k1(s.channels), k2(s.channels), scale(s.channels);
    for (long c = 0; c < s.channels; ++c) {
        if (db) db[c] = sums[c];
        if (dw) dw[c] = products[c] * inverse[c];
        k1[c] = products[c] * inverse[c] * inverse[c] / count;
        k2[c] = sums[c] / count;
        scale[c] = s.weight ? inverse[c] * s.weight[c] : inverse[c];
    }
    if (!dx) return;
    const auto value = [&](V g, V v, V m, V a, V b, V f) {
        return training ? fma(-(v - m), a, g - b) * f : g * f;
    };
    shared(s.samples, 16384 / (s.channels * s.places) + 1, [&](long begin, long end) {
        for (long i = begin; i < end; ++i) {
            const long at = i * s.channels * s.places;
            if (side_by_side(s)) {
                for (long p = at; p < at + s.channels * s.places; p += s.channels)
                    each(dx + p, s.channels, value, dy + p, x + p, mean, k1.data(), k2.data(), scale.data());
                continue;
            }
            for (long c = 0; c < s.channels; ++c) {
                const long to = at + c * s.places;
                const V m = bc(mean[c]), a = bc(k1[c]), b = bc(k2[c]), f = bc(scale[c]);
                each(dx + to, s.places, [&](V g, V v) { return value(g, v, m, a, b, f); }, dy + to, x + to);
            }
        }
    });
}

// y = (x - mean) * inverse * weight + bias: two products and an FMA. Rows of n; weight and bias may be null.
static void layer_norm(long rows, long n, const float* x, const float* weight, const float* bias, float eps,
    float* y, float* mean, float* inverse) {
    shared(rows, 16384 / n + 1, [&](long begin, long end) {
        for (long i = begin; i < end; ++i) {
            const float* from = x + i * n;
            float* to = y + i * n;
            mean[i] = row_sum(from, n) / float(n);
            inverse[i] = 1.f / __builtin_sqrtf(row_squares(from, n, mean[i]) / float(n) + eps);
            const V m = bc(mean[i]), f = bc(inverse[i]);
            if (weight && bias)
                each(to, n, [&](V v, V w, V b) { return fma((v - m) * f, w, b); }, from, weight, bias);
            else if (weight)
                each(to, n, [&](V v, V w) { return (v - m) * f * w; }, from, weight);
            else if (bias)
                each(to, n, [&](V v, V b) { return (v - m) * f + b; }, from, bias);
            else
                each(to, n, [&](V v) { return (v - m) * f; }, from);
        }
    });
}

// With h = (x - mean) * inverse and g = dy * weight: dx = ((g - sum(g) / n) - h * (sum(g * h) / n)) *
// inverse. Sums over rows for weight and bias: columns. Outputs may be null.
static void layer_norm_backward(long rows, long n, const float* dy, const float* x, const float* weight,
    const float* mean, const float* inverse, float* dx, float* dw, float* db) {
    const long parts = (rows + COLUMN_PART - 1) / COLUMN_PART;
    std::vector<float> sums(dw || db ? parts * 2 * n : 0);
    const std::vector<float> ones(weight ? 0 : n, 1.f);
    const float* w = weight ? weight : ones.data();
    shared(parts, std::max(1L, 128 / n), [&](long begin, long end) {
        for (long p = begin; p < end; ++p) {
            float* part = sums.data() + p * 2 * n;
            for (long i = p * COLUMN_PART; i < std::min(rows, (p + 1) * COLUMN_PART); ++i) {
                const float *g = dy + i * n, *v = x + i * n;
                const V m = bc(mean[i]), f = bc(inverse[i]);
                if (dx) {
                    const float s = row_of(n, [&](long at, long l) {
                        return lanes_of(l, [&](auto from, long k, V a) {
                            return fma(from.get(g + at + k), from.get(w + at + k), a);
                        });
                    }) / float(n);
                    const float d = row_of(n, [&](long at, long l) {
                        return lanes_of(l, [&](auto from, long k, V a) {
                            return fma(from.get(g + at + k) * from.get(w + at + k),
                                (from.get(v + at + k) - m) * f, a);
                        });
                    }) / float(n);
                    const V sv = bc(s), dv = bc(d);
                    each(
                        dx + i * n, n,
                        [&](V gv, V xv, V wv) { return (fma(gv, wv, -sv) - (xv - m) * f * dv) * f; }, g, v,
                        w);
                }
                if (sums.empty()) continue;
                each(part, n, [&](V a, V gv, V xv) { return fma(gv, (xv - m) * f, a); }, part, g, v);
                each(part + n, n, [](V a, V gv) { return a + gv; }, part + n, g);
            }
        }
    });
    if (!dw && !db) return;
    std::vector<float> total(2 * n);
    sum_columns(sums.data(), 1, parts, 2 * n, total.data());
    if (dw) memcpy(dw, total.data(), n * sizeof(float));
    if (db) memcpy(db, total.data() + n, n * sizeof(float));
}

// Groups of channels: a sample's group is a row of channels * places / groups elements.
static void group_norm(
    const BatchNorm& s, long groups, const float* x, float* y, float* mean, float* inverse) {
    const long each_ = s.channels / groups, n = each_ * s.places;
    shared(s.samples * groups, 16384 / n + 1, [&](long begin, long end) {
        for (long i = begin; i < end; ++i) {
            mean[i] = row_sum(x + i * n, n) / float(n);
            inverse[i] = 1.f / __builtin_sqrtf(row_squares(x + i * n, n, mean[i]) / float(n) + s.eps);
            for (long k = 0; k < each_; ++k) {
                const long c = i % groups * each_ + k;
                const float scale = s.weight ? inverse[i] * s.weight[c] : inverse[i];
                const V a = bc(scale), b = bc(__builtin_fmaf(-mean[i], scale, s.bias ? s.bias[c] : 0.f));
                each(
                    y + i * n + k * s.places, s.places, [&](V v) { return fma(v, a, b); },
                    x + i * n + k * s.places);
            }
        }
    });
}

// Of each sample's channel: s1 = sum of dy, s2 = sum of dy * (x - mean). Over a group's channels, in order:
// t1 = sum of s1 * weight, t2 = sum of s2 * weight, by FMA. dx as for batch norm.
static void group_norm_backward(const BatchNorm& s, long groups, const float* dy, const float* x,
    const float* mean, const float* inverse, float* dx, float* dw, float* db) {
    const long each_ = s.channels / groups, n = each_ * s.places;
    std::vector<float> sums(s.samples * s.channels), products(s.samples * s.channels);
    shared(s.samples * groups, 16384 / n + 1, [&](long begin, long end) {
        for (long i = begin; i < end; ++i) {
            float t1 = 0, t2 = 0;
            const V m = bc(mean[i]);
            for (long k = 0; k < each_; ++k) {
                const long c = i % groups * each_ + k, at = i * n + k * s.places, plane = i * each_ + k;
                sums[plane] = row_sum(dy + at, s.places);
                products[plane] = row_of(s.places, [&](long b, long l) {
                    return lanes_of(l, [&](auto from, long j, V a) {
                        return fma(from.get(dy + at + b + j), from.get(x + at + b + j, mean[i]) - m, a);
                    });
                });
                t1 = __builtin_fmaf(sums[plane], s.weight ? s.weight[c] : 1.f, t1);
                t2 = __builtin_fmaf(products[plane], s.weight ? s.weight[c] : 1.f, t2);
                products[plane] = products[plane] * inverse[i];
            }
            if (!dx) continue;
            const V a = bc(t2 * inverse[i] * inverse[i] / float(n)), b = bc(t1 / float(n)),
                    f = bc(inverse[i]);
            for (long k = 0; k < each_; ++k) {
                const long c = i % groups * each_ + k, at = i * n + k * s.places;
                const V w = bc(s.weight ? s.weight[c] : 1.f);
                each(
                    dx + at, s.places, [&](V g, V v) { return fma(-(v - m), a, fma(g, w, -b)) * f; }, dy + at,
                    x + at);
            }
        }
    });
    if (dw) sum_columns(products.data(), 1, s.samples, s.channels, dw);
    if (db) sum_columns(sums.data(), 1, s.samples, s.channels, db);
}
