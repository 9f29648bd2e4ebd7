// Convolutions as products of places and weights, with output channels in lanes: no lane is lost where rows
// of places are short, and nothing is turned where channels are last.
#pragma once
#include "places.h"

// R places and N vectors of one part: out[r][lane] = sum over k of at[r][offset[k]] * w[k][lane].
template <int R, int N>
static __attribute__((noinline)) void place_tile(long depth, const float* const* at, const int* offset,
    const float* w, float* const* to, long shift, long have, bool add) {
    const float* from[R];
    V acc[R][N];
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
        from[r] = at[r];
#pragma GCC unroll 4
        for (int v = 0; v < N; ++v) acc[r][v] = V{};
    }
    for (long k = 0; k < depth; ++k, w += N * W) {
        const long o = offset[k];
        V b[N];
#pragma GCC unroll 4
        for (int v = 0; v < N; ++v) b[v] = ld(w + v * W);
#pragma GCC unroll 12
        for (int r = 0; r < R; ++r) {
            const V a = bc(from[r][o]);
#pragma GCC unroll 4
            for (int v = 0; v < N; ++v) acc[r][v] = fma(a, b[v], acc[r][v]);
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int v = 0; v < N; ++v) {
            float* p = to[r] + shift + v * W;
            const long lanes = have - v * W;
            if (lanes >= W)
                st(p, add ? ld(p) + acc[r][v] : acc[r][v]);
            else if (lanes > 0)
                st_some(p, add ? ld_some(p, lanes) + acc[r][v] : acc[r][v], lanes);
        }
}

template <int R, int N, class... Arguments>
static inline void place_tiles(long count, const Arguments&... with) {
    if constexpr (R > 0) {
        if (count == R) return place_tile<R, N>(with...);
        place_tiles<R - 1, N>(count, with...);
    }
}

// One direction of a convolution: `rows` output channels of `channels` input channels, in every group.
// Weights of (row, channel, tap) are at row * row_step + channel * channel_step + tap.
struct Direction {
    long rows, channels, row_step, channel_step;
    const float *from, *w, *bias;
    float* to;
    const long *in, *size, *step, *stride;  // images, and from a place to the next one in them
};

// Whether that is faster, for rows of `width` places and padded planes of `volume` elements.
static bool by_outputs(const Convolution& s, long rows, long channels, long width, long volume) {
    const double planes = std::max(filled(width, W), W == 16 ? filled(width, 8) : 0.0);
    const bool whole = double(volume) * double(s.groups * channels) < double(1 << 30);
    return whole && filled(rows, W) > 0.6 && (s.last || planes < 0.8);
}

// N vectors of rows and R places at a time.
template <int R, int N>
static void tiles_by_outputs(
    const Convolution& s, const Direction& d, const std::vector<Grid>& grids, const Axis axes[3]) {
    constexpr long WIDTH = N * W;
    const long pixels = product_of(d.in), places = product_of(d.size), taps = product_of(s.kernel);
    const long row = axes[2].size, plane = axes[1].size * row, volume = axes[0].size * plane;
    const long tiles = (d.rows + WIDTH - 1) / WIDTH, all_in = s.groups * d.channels,
               all_out = s.groups * d.rows;
    const long unit = s.last ? all_in : 1, channel = s.last ? 1 : volume;  // of padded images
    struct Part {
        std::vector<int> offset;
        std::vector<float> weights;  // [group][tile][k][lane]
    };
    std::vector<Part> parts(grids.size());
    for (size_t i = 0; i < grids.size(); ++i) {
        const Grid& g = grids[i];
        const long count = long(g.tap.size()), depth = d.channels * count;
        for (long c = 0; c < d.channels; ++c)
            for (const long at : g.image) parts[i].offset.push_back(int(c * channel + at * unit));
        parts[i].weights.resize(s.groups * tiles * depth * WIDTH);
        shared(s.groups * tiles, 1 + 65536 / (depth * WIDTH + 1), [&](long begin, long end) {
            for (long j = begin; j < end; ++j) {
                const long first = j % tiles * WIDTH, have = std::min(WIDTH, d.rows - first);
                const float* w = d.w + j / tiles * d.rows * d.channels * taps + first * d.row_step;
                float* to = parts[i].weights.data() + j * depth * WIDTH;
                if (count == taps && d.channel_step == taps) {
                    transpose(w, d.row_step, have, depth, to, WIDTH);
                    continue;
                }
                for (long c = 0; c < d.channels; ++c, w += d.channel_step, to += count * WIDTH)
                    pack_taps(g, w, d.row_step, have, taps, to, WIDTH);
            }
        });
    }
    over_images(s.samples, places, tiles * s.groups, [&](long n, long images, long share, long shares) {
        static thread_local Scratch image_kept, turned_kept;
        float* image = image_kept.get(images * volume * all_in);
        float* turned = s.last ? d.to + n * places * all_out : turned_kept.get(images * places * all_out);
        const long begin = tiles * s.groups * share / shares, end = tiles * s.groups * (share + 1) / shares;
        const long low = begin / tiles, high = (end + tiles - 1) / tiles;  // groups
        for (long i = 0; i < images; ++i) {
            float* to = image + i * volume * all_in;
            const float* from = d.from + (n + i) * pixels * all_in;
            if (s.last)
                pad_pixels(from, all_in, all_in, d.in, axes, to, all_in);
            else
                pad_image(from + low * d.channels * pixels, (high - low) * d.channels, d.in, axes, 1,
                    to + low * d.channels * volume);
        }
        std::vector<const float*> at;
        std::vector<float*> goes;
        for (size_t i = 0; i < grids.size(); ++i) {
            const Grid& g = grids[i];
            const long depth = long(parts[i].offset.size());
            at.clear(), goes.clear();
            for (long m = 0; m < images; ++m)
                for (long z = 0; z < g.count[0]; ++z)
                    for (long y = 0; y < g.count[1]; ++y)
                        for (long x = 0; x < g.count[2]; ++x) {
                            at.push_back(
                                image + m * volume * all_in +
                                (z * d.step[0] * plane + y * d.step[1] * row + x * d.step[2]) * unit);
                            const long line = z * d.stride[0] * d.size[1] + y * d.stride[1];
                            goes.push_back(
                                turned +
                                (m * places + g.first + line * d.size[2] + x * d.stride[2]) * all_out);
                        }
            const long count = long(at.size());
            for (long j = begin; j < end; ++j) {
                const long group = j / tiles, first = j % tiles * WIDTH,
                           have = std::min(WIDTH, d.rows - first);
                const long column = group * d.rows + first, away = group * d.channels * channel;
                const float* w = parts[i].weights.data() + j * depth * WIDTH;
                for (long k = 0; k < depth; k += PART)
                    for (long p = 0; p < count; p += R) {
                        const long some = std::min<long>(R, count - p);
                        const float* from[R];
                        for (long r = 0; r < some; ++r) from[r] = at[p + r] + away;
                        place_tiles<R, N>(some, std::min(PART, depth - k), from, parts[i].offset.data() + k,
                            w + k * WIDTH, goes.data() + p, column, have, k > 0);
                    }
                if (!depth)
                    for (float* p : goes) std::fill(p + column, p + column + have, 0.f);
                if (d.bias)
                    for (float* p : goes)
                        each(
                            p + column, have, [](V v, V b) { return v + b; }, p + column, d.bias + column);
            }
        }
        const long first = low * d.rows + begin % tiles * WIDTH,
                   last =
                       std::min(high * d.rows, (end - 1) / tiles * d.rows + ((end - 1) % tiles + 1) * WIDTH);
        for (long i = 0; !s.last && i < images; ++i)
            transpose(turned + i * places * all_out + first, all_out, places, last - first,
                d.to + (n + i) * places * all_out + first * places, places);
    });
}

static void convolution_by_outputs(
    const Convolution& s, const Direction& d, const std::vector<Grid>& grids, const Axis axes[3]) {
    constexpr int TALL = W == 8 ? 6 : 12;
    if constexpr (W != 8)
        if (d.rows > 2 * W) return tiles_by_outputs<6, 4>(s, d, grids, axes);
    if (d.rows > W) return tiles_by_outputs<TALL, 2>(s, d, grids, axes);
    tiles_by_outputs<12, 1>(s, d, grids, axes);
}
