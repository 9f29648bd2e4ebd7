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

// Places that read the same taps: the first one's number among all, how many there are, and each tap's number
// and where it is in the padded image, from a place's corner on.
struct Grid {
    long first, count[3];
    std::vector<long> tap, image;
};

static Grid forward_grid(const Convolution& s, const Axis axes[3]) {
    Grid all{0, {s.out[0], s.out[1], s.out[2]}, {}, {}};
    for (long z = 0; z < s.kernel[0]; ++z)
        for (long y = 0; y < s.kernel[1]; ++y)
            for (long x = 0; x < s.kernel[2]; ++x) {
                const long line = z * s.dilation[0] * axes[1].size + y * s.dilation[1];
                all.tap.push_back(long(all.tap.size()));
                all.image.push_back(line * axes[2].size + x * s.dilation[2]);
            }
    return all;
}

static std::vector<Grid> backward_grids(
    const Convolution& s, const std::vector<Phase> phases[3], const Axis axes[3]) {
    std::vector<Grid> grids;
    for (const Phase& z : phases[0])
        for (const Phase& y : phases[1])
            for (const Phase& x : phases[2]) {
                const long first = (z.phase * s.in[1] + y.phase) * s.in[2] + x.phase;
                Grid g{first, {z.count, y.count, x.count}, {}, {}};
                for (const auto& [kz, sz] : z.taps)
                    for (const auto& [ky, sy] : y.taps)
                        for (const auto& [kx, sx] : x.taps) {
                            const long line = (sz + axes[0].before) * axes[1].size + sy + axes[1].before;
                            g.tap.push_back((kz * s.kernel[1] + ky) * s.kernel[2] + kx);
                            g.image.push_back(line * axes[2].size + sx + axes[2].before);
                        }
                grids.push_back(g);
            }
    return grids;
}

// to[tap * lanes + r] = w[r * row_step + the tap's number] for the taps of a grid.
static void pack_taps(
    const Grid& g, const float* w, long row_step, long rows, long all, float* to, long lanes) {
    const long count = long(g.tap.size());
    if (count == all) return transpose(w, row_step, rows, all, to, lanes);
    for (long t = 0; t < count; ++t)
        for (long r = 0; r < rows; ++r) to[t * lanes + r] = w[r * row_step + g.tap[t]];
}

constexpr long ONE[3] = {1, 1, 1};
constexpr long RUNS = 4;

// How the sums of a weight's gradient are cut: whole images or lines of one in parts, and these in runs.
struct Parts {
    long samples, lines, images, tall, in_one, count, runs;
    explicit Parts(const Convolution& s) : samples(s.samples) {
        const long places = product_of(s.out);
        lines = s.out[0] * s.out[1];
        images = std::max(1L, PART / places);
        tall = places > PART ? std::max(1L, PART / s.out[2]) : lines;
        in_one = (lines + tall - 1) / tall;
        count = (samples + images - 1) / images * in_one;
        runs = std::min(RUNS, count);
    }
    long begin(long run) const { return count * run / runs; }
    // A part's first sample, how many these are, and its first line and how many there are in each.
    struct Part {
        long sample, have, top, high;
    };
    Part at(long part) const {
        const long sample = part / in_one * images, top = part % in_one * tall;
        return {sample, std::min(images, samples - sample), top, std::min(tall, lines - top)};
    }
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

// One sample, with zeros around it. Rows are split by the column modulo `split`, so that the places of a row
// lie side by side for every tap: column x is at x % split * (row / split) + x / split.
static void pad_image(
    const float* x, long channels, const long in[3], const Axis axes[3], long split, float* to) {
    const Axis &z = axes[0], &y = axes[1], &w = axes[2];
    const long row = w.size, quarter = row / split, plane = y.size * row;
    for (long c = 0; c < channels; ++c, x += in[0] * in[1] * in[2])
        for (long i = 0; i < z.size; ++i, to += plane) {
            if (i < z.before || i >= z.before + z.real) {
                std::fill(to, to + plane, 0.f);
                continue;
            }
            std::fill(to, to + y.before * row, 0.f);
            const float* from = x + (i - z.before) * in[1] * in[2];
            for (long j = 0; j < y.real; ++j, from += in[2]) {
                float* line = to + (y.before + j) * row;
                if (split == 1) {
                    std::fill(line, line + w.before, 0.f);
                    memcpy(line + w.before, from, w.real * sizeof(float));
                    std::fill(line + w.before + w.real, line + row, 0.f);
                    continue;
                }
                std::fill(line, line + row, 0.f);
                for (long f = 0; f < split; ++f) {
                    const long first = ((f - w.before) % split + split) % split;
                    float* at = line + f * quarter + (first + w.before) / split;
                    for (long l = first; l < w.real; l += split) *at++ = from[l];
                }
            }
            std::fill(to + (y.before + y.real) * row, to + plane, 0.f);
        }
}

// The same where channels are last: `channels` of each pixel, which are `step` apart, and `lanes` in the
// image.
static void pad_pixels(
    const float* x, long step, long channels, const long in[3], const Axis axes[3], float* to, long lanes) {
    const Axis &z = axes[0], &y = axes[1], &w = axes[2];
    std::fill(to, to + z.size * y.size * w.size * lanes, 0.f);
    for (long i = 0; i < z.real; ++i)
        for (long j = 0; j < y.real; ++j) {
            float* line = to + (((z.before + i) * y.size + y.before + j) * w.size + w.before) * lanes;
            const float* row = x + (i * in[1] + j) * in[2] * step;
            if (step == channels && lanes == channels)
                memcpy(line, row, w.real * channels * sizeof(float));
            else
                for (long l = 0; l < w.real; ++l)
                    memcpy(line + l * lanes, row + l * step, channels * sizeof(float));
        }
}

// Calls work(image, images, share, shares) for groups of images of a batch and shares of the rows: as many as
// there are threads, but groups of no fewer than some 128 places, and no more than some 512.
template <class Work>
static void over_images(long count, long places, long tiles, const Work& work) {
    const long threads = host.threads();
    const long least = std::min(count, (127 + places) / places),
               most = std::max(1L, std::min(32L, 512 / places));
    const long size = std::min(most, std::max(least, (count + threads - 1) / threads));
    const long groups = (count + size - 1) / size;
    const long shares = groups >= threads ? 1 : std::min(tiles, (threads + groups - 1) / groups);
    parallel(groups * shares, [&](long i) {
        const long n = i / shares * size;
        work(n, std::min(size, count - n), i % shares, shares);
    });
}

// How well rows of `width` fill chunks of C lanes.
static double filled(long width, long c) { return double(width) / double((width + c - 1) / c * c); }
