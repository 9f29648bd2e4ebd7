// Convolutions in which every channel has a kernel of its own, as in MobileNet. Lanes are channels: they lie
// side by side where channels are last, and are turned so where they are not.
#pragma once
#include "places.h"
#include "products.h"

constexpr long WIDE = 64;  // channels of one piece of work, at most

static bool depthwise(const Convolution& s) {
    return s.inputs == 1 && s.outputs == 1 && s.groups >= 8 && product_of(s.kernel) <= PART;
}

// The channels of a convolution in pieces.
struct Pieces {
    long channels, count, lanes;  // of a piece: whole vectors
    explicit Pieces(long all)
        : channels(all), count((all + WIDE - 1) / WIDE), lanes(std::min(WIDE, (all + W - 1) / W * W)) {}
    long first(long piece) const { return piece * WIDE; }
    long have(long piece) const { return std::min(WIDE, channels - piece * WIDE); }
};

// A piece of one sample as [place][lane], with zeros around it.
static void lanes_of(const float* x, bool last, const Pieces& pieces, long piece, const long in[3],
    const Axis axes[3], float* to) {
    static thread_local Scratch kept;
    const long have = pieces.have(piece), lanes = pieces.lanes, pixels = product_of(in);
    if (last) return pad_pixels(x + pieces.first(piece), pieces.channels, have, in, axes, to, lanes);
    float* turned = kept.get(pixels * lanes);
    transpose(x + pieces.first(piece) * pixels, pixels, have, pixels, turned, lanes);
    pad_pixels(turned, lanes, have, in, axes, to, lanes);
}

// [piece][tap][lane]
static std::vector<float> weights_of(const float* w, const Pieces& pieces, long taps) {
    std::vector<float> kept(pieces.count * taps * pieces.lanes);
    for (long p = 0; p < pieces.count; ++p)
        transpose(w + pieces.first(p) * taps, taps, pieces.have(p), taps,
            kept.data() + p * taps * pieces.lanes, pieces.lanes);
    return kept;
}

// N vectors of all places of a grid. `corner` and `next` are the steps from a place to the next one in z, y
// and x.
template <int N>
static void depthwise_grid(const Grid& g, const float* image, const long corner[3], const float* w,
    const float* bias, long have, float* to, const long next[3]) {
    V added[N];
    for (int v = 0; v < N; ++v) added[v] = bias ? ld_some(bias + v * W, have - v * W) : V{};
    const long taps = long(g.image.size());
    const long *at = g.image.data(), *with = g.tap.data();
    for (long z = 0; z < g.count[0]; ++z)
        for (long y = 0; y < g.count[1]; ++y)
            for (long x = 0; x < g.count[2]; ++x) {
                const float* from = image + z * corner[0] + y * corner[1] + x * corner[2];
                V acc[N];
#pragma GCC unroll 4
                for (int v = 0; v < N; ++v) acc[v] = V{};
                for (long t = 0; t < taps; ++t)
#pragma GCC unroll 4
                    for (int v = 0; v < N; ++v)
                        acc[v] = fma(ld(w + with[t] + v * W), ld(from + at[t] + v * W), acc[v]);
                float* y_ = to + z * next[0] + y * next[1] + x * next[2];
#pragma GCC unroll 4
                for (int v = 0; v < N; ++v) {
                    if (bias) acc[v] = acc[v] + added[v];
                    have - v* W >= W ? st(y_ + v * W, acc[v]) : st_some(y_ + v * W, acc[v], have - v * W);
                }
            }
}

// `from`, padded by `axes`, whose places are `step` apart for neighbours of a grid; to images of `size`, in
// which these are `stride` apart.
static void depthwise_grids(const Convolution& s, std::vector<Grid> grids, const float* from,
    const long in[3], const Axis axes[3], const long step[3], const float* w, const float* bias, float* to,
    const long size[3], const long stride[3]) {
    const Pieces pieces(s.groups);
    const long taps = product_of(s.kernel), pixels = product_of(in), places = product_of(size),
               lanes = pieces.lanes;
    const std::vector<float> weights = weights_of(w, pieces, taps);
    for (Grid& g : grids)
        for (long i = 0; i < long(g.tap.size()); ++i) g.tap[i] *= lanes, g.image[i] *= lanes;
    const long row = axes[2].size * lanes, plane = axes[1].size * row;
    const long corner[3] = {step[0] * plane, step[1] * row, step[2] * lanes};
    shared(s.samples * pieces.count, 1 + 65536 / (places * taps * lanes), [&](long begin, long end) {
        static thread_local Scratch image_kept, turned_kept;
        float* image = image_kept.get(axes[0].size * plane);
        float* turned = s.last ? nullptr : turned_kept.get(places * lanes);
        for (long i = begin; i < end; ++i) {
            const long n = i / pieces.count, p = i % pieces.count, first = pieces.first(p),
                       have = pieces.have(p);
            lanes_of(from + n * s.groups * pixels, s.last, pieces, p, in, axes, image);
            float* out = to + n * s.groups * places + (s.last ? first : first * places);
            const long width = s.last ? s.groups : lanes;
            const long next[3] = {
                stride[0] * size[1] * size[2] * width, stride[1] * size[2] * width, stride[2] * width};
            for (const Grid& g : grids)
                for (long v = 0; v < have; v += 4 * W) {
                    const float* added = bias ? bias + first + v : nullptr;
                    const auto some = have - v > 2 * W ? depthwise_grid<4>
                                      : have - v > W   ? depthwise_grid<2>
                                                       : depthwise_grid<1>;
                    some(g, image + v, corner, weights.data() + p * taps * lanes + v, added, have - v,
                        (s.last ? out : turned) + g.first * width + v, next);
                }
            if (!s.last) transpose(turned, lanes, places, have, out, places);
        }
    });
}

static void depthwise_output(
    const Convolution& s, const float* x, const float* w, const float* bias, float* y) {
    const Axis axes[3] = {forward_axis(s, 0), forward_axis(s, 1), forward_axis(s, 2)};
    depthwise_grids(s, {forward_grid(s, axes)}, x, s.in, axes, s.stride, w, bias, y, s.out, ONE);
}

static void depthwise_input(const Convolution& s, const float* dy, const float* w, float* dx) {
    std::vector<Phase> phases[3];
    const Axis axes[3] = {
        backward_axis(s, 0, phases[0]), backward_axis(s, 1, phases[1]), backward_axis(s, 2, phases[2])};
    depthwise_grids(s, backward_grids(s, phases, axes), dy, s.out, axes, ONE, w, nullptr, dx, s.in, s.stride);
}

// R taps over one part: lines of places, `line[i]` from where the first begins.
template <int R>
static void depthwise_taps(const std::vector<long>& line, long length, long step, const float* g, long lanes,
    const float* image, const long* offset, float* to, bool add) {
    for (long v = 0; v < lanes; v += W) {
        V acc[R];
#pragma GCC unroll 9
        for (int r = 0; r < R; ++r) acc[r] = V{};
        const float* dy = g + v;
        for (const long l : line) {
            const float* x = image + l + v;
            for (long p = 0; p < length; ++p, dy += lanes, x += step) {
                const V d = ld(dy);
#pragma GCC unroll 9
                for (int r = 0; r < R; ++r) acc[r] = fma(ld(x + offset[r]), d, acc[r]);
            }
        }
#pragma GCC unroll 9
        for (int r = 0; r < R; ++r) {
            float* at = to + r * lanes + v;
            st(at, add ? ld(at) + acc[r] : acc[r]);
        }
    }
}

template <int R = 9, class... Arguments>
static void depthwise_some_taps(long count, const Arguments&... with) {
    if constexpr (R > 0) {
        if (count == R) return depthwise_taps<R>(with...);
        depthwise_some_taps<R - 1>(count, with...);
    }
}

static void depthwise_weight(const Convolution& s, const float* x, const float* dy, float* dw) {
    const Pieces pieces(s.groups);
    const Axis axes[3] = {forward_axis(s, 0), forward_axis(s, 1), forward_axis(s, 2)};
    const Axis outs[3] = {{s.out[0], 0, s.out[0]}, {s.out[1], 0, s.out[1]}, {s.out[2], 0, s.out[2]}};
    const long taps = product_of(s.kernel), places = product_of(s.out), pixels = product_of(s.in),
               lanes = pieces.lanes;
    const long row = axes[2].size * lanes, plane = axes[1].size * row, volume = axes[0].size * plane;
    std::vector<long> offset = forward_grid(s, axes).image;
    for (long& at : offset) at *= lanes;
    const Parts of(s);
    const long size = taps * lanes, runs = of.runs;
    std::unique_ptr<float[]> sums(new float[pieces.count * runs * size]);
    parallel(pieces.count * runs, [&](long i) {
        static thread_local Scratch x_kept, g_kept;
        const long p = i / runs, run = i % runs;
        float *image = x_kept.get(of.images * volume), *g = g_kept.get(of.images * places * lanes);
        float* to = sums.get() + i * size;
        std::vector<long> line;
        for (long part = of.begin(run), begin = part; part < of.begin(run + 1); ++part) {
            const auto [n, have, top, high] = of.at(part);
            if (part == begin || !top)
                for (long k = 0; k < have; ++k) {
                    lanes_of(
                        x + (n + k) * s.groups * pixels, s.last, pieces, p, s.in, axes, image + k * volume);
                    lanes_of(dy + (n + k) * s.groups * places, s.last, pieces, p, s.out, outs,
                        g + k * places * lanes);
                }
            line.clear();
            for (long k = 0; k < have; ++k)
                for (long l = top; l < top + high; ++l)
                    line.push_back(
                        k * volume + l / s.out[1] * s.stride[0] * plane + l % s.out[1] * s.stride[1] * row);
            for (long t = 0; t < taps; t += 9)
                depthwise_some_taps(std::min(9L, taps - t), line, s.out[2], s.stride[2] * lanes,
                    g + top * s.out[2] * lanes, lanes, image, offset.data() + t, to + t * lanes,
                    part != begin);
        }
    });
    for (long p = 0; p < pieces.count; ++p) {
        float* own = sums.get() + p * runs * size;
        of.join(own, size, size);
        transpose(own, lanes, taps, pieces.have(p), dw + pieces.first(p) * taps, taps);
    }
}
