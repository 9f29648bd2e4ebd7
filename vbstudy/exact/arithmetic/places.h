// Places and taps of convolutions.
#pragma once
#include "products.h"
#include <utility>

static long product_of(const long t[3]) { return t[0] * t[1] * t[2]; }

// A dimension of an image that is padded: place i and tap k of a convolution read element i * step +
// shift(k).
struct Axis {
    long size;    // of the padded image
    long before;  // where its first real element lies
    long real;    // real elements that are read
};

static Axis forward_axis(const Convolution& s, int d) {
    const long needed = (s.out[d] - 1) * s.stride[d] + (s.kernel[d] - 1) * s.dilation[d] + 1;
    const long before = std::min(s.padding[d], needed);  // a wide stride may read the padding alone
    return {needed, before, std::min(s.in[d], needed - before)};
}

// Places q = i * stride + phase read dy[i + shift] through tap k, where stride * shift = phase + padding - k
// * dilation has a solution.
struct Phase {
    long phase, count;                        // places
    std::vector<std::pair<long, long>> taps;  // tap, shift
};

static std::vector<Phase> phases_of(const Convolution& s, int d, long& low, long& high) {
    std::vector<Phase> found;
    low = 0, high = 0;
    for (long f = 0; f < std::min(s.stride[d], s.in[d]); ++f) {
        Phase one{f, (s.in[d] - f + s.stride[d] - 1) / s.stride[d], {}};
        for (long k = 0; k < s.kernel[d]; ++k) {
            const long shift = f + s.padding[d] - k * s.dilation[d];
            if (shift % s.stride[d]) continue;
            one.taps.push_back({k, shift / s.stride[d]});
            low = std::min(low, shift / s.stride[d]);
            high = std::max(high, one.count - 1 + shift / s.stride[d]);
        }
        found.push_back(one);
    }
    return found;
}

// The padded image of the output's gradient that these read.
static Axis backward_axis(const Convolution& s, int d, std::vector<Phase>& phases) {
    long low, high;
    phases = phases_of(s, d, low, high);
    return {high - low + 1, -low, std::min(s.out[d], high + 1)};
}

constexpr long RUNS = 4;

// How the sums of a weight's gradient are cut: whole images or lines of one in parts, and these in runs.
struct Parts {
    long lines, images, tall, in_one, count, runs;
    explicit Parts(const Convolution& s) {
        const long places = product_of(s.out);
        lines = s.out[0] * s.out[1];
        images = std::max(1L, PART / places);
        tall = places > PART ? std::max(1L, PART / s.out[2]) : lines;
        in_one = (lines + tall - 1) / tall;
        count = (s.samples + images - 1) / images * in_one;
        runs = std::min(RUNS, count);
    }
    long begin(long run) const { return count * run / runs; }
    // The sums of all runs, of n numbers and `next` apart, where the first ones are.
    void join(float* p, long n, long next) const {
        if (runs == 2)
            each(
                p, n, [](V a, V b) { return a + b; }, p, p + next);
        if (runs == 3)
            each(
                p, n, [](V a, V b, V c) { return (a + b) + c; }, p, p + next, p + 2 * next);
        if (runs == 4)
            each(
                p, n, [](V a, V b, V c, V d) { return (a + b) + (c + d); }, p, p + next, p + 2 * next,
                p + 3 * next);
    }
};
