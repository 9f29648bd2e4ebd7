// Convolutions of one to three dimensions, with groups, strides and dilations, of dense tensors (sample,
// channel, depth, height, width). Definitions; every tap in the padding counts as a zero:
//
// forward:         the product of the weights and the unfolded input: k runs over (channel, kz, ky, kx), in
//                  parts of 256 as in every product; then the bias is added
// gradient of x:   the same over (output channel, kz, ky, kx) of the taps that the stride reaches at this
//                  place; over the output channels alone where the output is one place
// gradient of w:   over all samples' places in order, cut in parts: as many whole samples as have together at
//                  most 256 places; where one sample has more, as many of its rows (at least one). A part is
//                  one chain. The parts are in four runs of equal length (by count * i / 4); the sums of a
//                  run are added one after the other, and the runs as (0 + 1) + (2 + 3)
#pragma once
#include "depthwise.h"
#include "outputs.h"
#include "products.h"

// The product of a matrix and what is gathered from padded images: out[r][place] = sum over k of w[r][k] *
// image[place's corner + offset[k]].
struct Gather {
    long rows, depth;         // of the matrix
    std::vector<int> offset;  // [depth]
    long out[3];              // places
    long step_z, step_y;      // from a place's corner to the next one's; in x it is 1
    const float* matrix;      // packed: [tile of rows][k][row]
    long tall;                // rows of a tile
};

// `fill(tile's first row, rows, to)` writes [k][row].
template <class Fill>
static void pack_matrix(Gather& g, std::vector<float>& kept, const Fill& fill) {
    g.tall = even(g.rows, MR);
    kept.resize(g.rows * g.depth);
    g.matrix = kept.data();
    const long tiles = (g.rows + g.tall - 1) / g.tall;
    shared(tiles, 1 + 65536 / (g.tall * g.depth + 1), [&](long begin, long end) {
        for (long i = begin * g.tall; i < std::min(g.rows, end * g.tall); i += g.tall)
            fill(i, std::min(g.tall, g.rows - i), kept.data() + i * g.depth);
    });
}

// C lanes of a tile from each place: a row's neighbours.
template <int C>
struct Places {
    const float* at[NR / C];
    const int* offset;
    inline __attribute__((always_inline)) V load(long k, int v) const {
        if constexpr (C == W) return ld(at[v] + offset[k]);
#if defined(__AVX512F__)
        const __m256 low = _mm256_loadu_ps(at[2 * v] + offset[k]);
        return (V)_mm512_insertf32x8(
            _mm512_castps256_ps512(low), _mm256_loadu_ps(at[2 * v + 1] + offset[k]), 1);
#else
        return V{};
#endif
    }
};

// Where the places of an image go.
struct Target {
    float* data;          // of the first place of the first row
    long plane, z, y, x;  // from one row, or place, to the next
};

static void put(const float* from, float* to, long n, long step, bool add) {
    if (add)
        for (long i = 0; i < n; ++i) to[i * step] = to[i * step] + from[i];
    else if (step == 1)
        memcpy(to, from, n * sizeof(float));
    else
        for (long i = 0; i < n; ++i) to[i * step] = from[i];
}

// One image, straight from the padded one; rows `first` to `last` of the matrix.
template <int C>
static void gather_rows(const Gather& g, const float* image, const Target& to, long first, long last) {
    constexpr long HELD = NR / C;
    const long across = (g.out[2] + C - 1) / C, all = g.out[0] * g.out[1] * across;
    for (long k = 0; k < g.depth; k += PART) {
        const long depth = std::min(PART, g.depth - k);
        for (long p = 0; p < all; p += HELD) {
            Places<C> from;
            from.offset = g.offset.data() + k;
            const long have = std::min(HELD, all - p);
            float* targets[HELD];
            long lengths[HELD];
            bool together = to.x == 1 && have == HELD;
            for (long q = 0; q < HELD; ++q) {
                const long chunk = p + std::min(q, have - 1), x = chunk % across * C;
                const long y = chunk / across % g.out[1], z = chunk / across / g.out[1];
                from.at[q] = image + z * g.step_z + y * g.step_y + x;
                targets[q] = to.data + z * to.z + y * to.y + x * to.x;
                lengths[q] = std::min<long>(C, g.out[2] - x);
                together = together && lengths[q] == C && targets[q] == targets[0] + q * C;
            }
            for (long i = first; i < last; i += g.tall) {
                const long rows = std::min(g.tall, last - i);
                const float* a = g.matrix + i * g.depth + k * rows;
                if (together) {
                    tile<NV>(rows, depth, a, PACKED_ROW, 0, from, targets[0] + i * to.plane, to.plane, k);
                    continue;
                }
                float edge[MR * NR];
                if (have * C <= W)
                    tile<1>(rows, depth, a, PACKED_ROW, 0, from, edge, NR, false);
                else
                    tile<NV>(rows, depth, a, PACKED_ROW, 0, from, edge, NR, false);
                for (long r = 0; r < rows; ++r)
                    for (long q = 0; q < have; ++q)
                        put(edge + r * NR + q * C, targets[q] + (i + r) * to.plane, lengths[q], to.x, k);
            }
        }
    }
}

// Several images (`apart` and `to_apart` from one to the next) by way of packed columns: where rows are too
// short to fill vectors, or the matrix is so large that it is better read once for all of them: `all` of
// the images' places from `begin` on.
static void gather_stretch(const Gather& g, long begin, long all, const float* image, long apart,
    const Target& to, long to_apart, long first, long last) {
    static thread_local Scratch kept;
    const long each_ = product_of(g.out), tiles = (all + NR - 1) / NR;
    struct Run {  // neighbours in an image's row
        const float* from;
        long at, length;
    };
    struct Stretch {  // neighbours where they go
        float* to;
        long at, length;
    };
    std::vector<Run> runs;
    std::vector<Stretch> stretches;
    std::vector<long> run_of(tiles + 1), stretch_of(tiles + 1);
    for (long t = 0; t < tiles; ++t) {
        const long p = t * NR, columns = std::min<long>(NR, all - p);
        for (long j = 0; j < columns;) {
            const long n = (begin + p + j) / each_, place = (begin + p + j) % each_, x = place % g.out[2];
            const long y = place / g.out[2] % g.out[1], z = place / g.out[2] / g.out[1];
            const long length = std::min(columns - j, g.out[2] - x);
            runs.push_back({image + n * apart + z * g.step_z + y * g.step_y + x, j, length});
            float* target = to.data + n * to_apart + z * to.z + y * to.y + x * to.x;
            if (long(stretches.size()) > stretch_of[t] && to.x == 1 &&
                stretches.back().to + stretches.back().length == target)
                stretches.back().length += length;
            else
                stretches.push_back({target, j, length});
            j += length;
        }
        run_of[t + 1] = long(runs.size());
        stretch_of[t + 1] = long(stretches.size());
    }
    float* packed = kept.get(PART * NR * tiles + 64);
    for (long k = 0; k < g.depth; k += PART) {
        const long depth = std::min(PART, g.depth - k);
        for (long t = 0; t < tiles; ++t) {
            float* panel = packed + t * PART * NR;
            const long columns = std::min<long>(NR, all - t * NR);
            for (long d = 0; d < depth; ++d) {
                float* line = panel + d * NR;
                const long offset = g.offset[k + d];
                // Whole vectors: what is too much is written over by what comes next.
                for (long r = run_of[t]; r < run_of[t + 1]; ++r)
                    for (long l = 0; l < runs[r].length; l += W)
                        st(line + runs[r].at + l, ld(runs[r].from + offset + l));
                for (long j = columns; j < NR; ++j) line[j] = 0;
            }
        }
        for (long i = first; i < last; i += g.tall) {
            const long rows = std::min(g.tall, last - i);
            const float* a = g.matrix + i * g.depth + k * rows;
            for (long t = 0; t < tiles; ++t) {
                const Rows from{packed + t * PART * NR, NR};
                const auto& only = stretches[stretch_of[t]];
                if (stretch_of[t + 1] - stretch_of[t] == 1 && only.length == NR && to.x == 1) {
                    tile<NV>(rows, depth, a, PACKED_ROW, 0, from, only.to + i * to.plane, to.plane, k);
                    continue;
                }
                float edge[MR * NR];
                if (all - t * NR <= W)
                    tile<1>(rows, depth, a, PACKED_ROW, 0, from, edge, NR, false);
                else
                    tile<NV>(rows, depth, a, PACKED_ROW, 0, from, edge, NR, false);
                for (long r = 0; r < rows; ++r)
                    for (long q = stretch_of[t]; q < stretch_of[t + 1]; ++q)
                        put(edge + r * NR + stretches[q].at, stretches[q].to + (i + r) * to.plane,
                            stretches[q].length, to.x, k);
            }
        }
    }
}

constexpr long PLACES = 128 * NR;  // packed at a time: some 4 MB

static void gather_columns(const Gather& g, long images, const float* image, long apart, const Target& to,
    long to_apart, long first, long last) {
    const long all = images * product_of(g.out);
    for (long begin = 0; begin < all; begin += PLACES)
        gather_stretch(g, begin, std::min(PLACES, all - begin), image, apart, to, to_apart, first, last);
}

constexpr long COLUMNS_FROM = 64;  // rows, from which it pays to pack columns where vectors are not full

static void gather(const Gather& g, long images, const float* image, long apart, const Target& to,
    long to_apart, long first, long last) {
    const double best = std::max(filled(g.out[2], W), W == 16 ? filled(g.out[2], 8) : 0.0);
    if ((best < 0.8 && last - first >= 8) || (best < 1 && last - first >= COLUMNS_FROM))
        return gather_columns(g, images, image, apart, to, to_apart, first, last);
    const bool halves = W == 16 && (g.out[2] + 7) / 8 % 2;
    for (long n = 0; n < images; ++n) {
        const Target own{to.data + n * to_apart, to.plane, to.z, to.y, to.x};
        if (halves)
            gather_rows<8>(g, image + n * apart, own, first, last);
        else
            gather_rows<W>(g, image + n * apart, own, first, last);
    }
}

// A group's channels of one sample as planes: turned, where channels are last.
static const float* planes_of(
    const float* x, bool last, long groups, long channels, long pixels, long sample, long group) {
    if (!last) return x + (sample * groups + group) * channels * pixels;
    static thread_local Scratch kept;
    float* to = kept.get(channels * pixels);
    transpose(x + sample * groups * channels * pixels + group * channels, groups * channels, pixels, channels,
        to, pixels);
    return to;
}

// Where a group's planes of `images` samples go; `finish` brings rows `first` to `last` there.
struct Planes {
    float* y;
    bool turned;
    long groups, channels, places, sample, group;
    float* data;
    long apart;
    Planes(float* to, bool last, long groups_, long channels_, long places_, long sample_, long group_,
        long images)
        : y(to),
          turned(last),
          groups(groups_),
          channels(channels_),
          places(places_),
          sample(sample_),
          group(group_) {
        static thread_local Scratch kept;
        data =
            turned ? kept.get(images * channels * places) : y + (sample * groups + group) * channels * places;
        apart = turned ? channels * places : groups * channels * places;
    }
    void finish(long images, long first, long last) const {
        for (long i = 0; turned && i < images; ++i)
            transpose(data + i * apart + first * places, places, last - first, places,
                y + (sample + i) * groups * channels * places + group * channels + first, groups * channels);
    }
};

static bool padded(const Convolution& s) { return s.padding[0] | s.padding[1] | s.padding[2]; }

// Whether each place is a column of a product: a sample's are enough to fill tiles.
static bool as_columns(const Convolution& s) {
    return product_of(s.kernel) == 1 && product_of(s.stride) == 1 && !padded(s) && !s.last &&
           s.inputs * s.outputs > 16 && filled(product_of(s.out), NR) > 0.85;
}

// Whether each place is a row of a product: each sample is one place, or channels are last and a place has
// one tap.
static bool as_rows(const Convolution& s) {
    const long taps = product_of(s.kernel);
    if (padded(s) || (taps > 1 && s.last)) return false;
    return product_of(s.out) == 1 ? product_of(s.in) == taps : s.last && product_of(s.stride) == 1;
}

static void convolution(const Convolution& s, const float* x, const float* w, const float* bias, float* y) {
    const long taps = product_of(s.kernel), places = product_of(s.out), pixels = product_of(s.in),
               split = s.stride[2];
    Axis axes[3] = {forward_axis(s, 0), forward_axis(s, 1), forward_axis(s, 2)};
    axes[2].size = (axes[2].size + split - 1) / split * split;
    const long plane = axes[1].size * axes[2].size, volume = axes[0].size * plane,
               quarter = axes[2].size / split;
    if (depthwise(s)) return depthwise_output(s, x, w, bias, y);
    if (as_rows(s)) {
        const long depth = s.inputs * taps;
        for (long g = 0; g < s.groups; ++g) {
            const Addition own{{bias ? bias + g * s.outputs : nullptr, 0, 1}, 1, 1};
            product_batch(1, s.samples * places, s.outputs, depth, {x + g * depth, s.groups * depth, 1}, 0,
                {w + g * s.outputs * depth, 1, depth}, 0, y + g * s.outputs, s.groups * s.outputs, 0, &own,
                0);
        }
        return;
    }
    if (volume == pixels && as_columns(s)) {
        for (long g = 0; g < s.groups; ++g) {
            const Addition own{{bias ? bias + g * s.outputs : nullptr, 1, 0}, 1, 1};
            product_batch(s.samples, s.outputs, places, s.inputs, {w + g * s.outputs * s.inputs, s.inputs, 1},
                0, {x + g * s.inputs * pixels, pixels, 1}, s.groups * s.inputs * pixels,
                y + g * s.outputs * places, places, s.groups * s.outputs * places, &own, 0);
        }
        return;
    }
    if (by_outputs(s, s.outputs, s.inputs, s.out[2], volume)) {
        axes[2] = forward_axis(s, 2);  // not split
        return convolution_by_outputs(s,
            {s.outputs, s.inputs, s.inputs * taps, taps, x, w, bias, y, s.in, s.out, s.stride, ONE},
            {forward_grid(s, axes)}, axes);
    }
    std::vector<Gather> matrices(s.groups);
    std::vector<std::vector<float>> kept(s.groups);
    for (long i = 0; i < s.groups; ++i) {
        auto& g = matrices[i];
        g.rows = s.outputs;
        g.depth = s.inputs * taps;
        g.step_z = s.stride[0] * plane;
        g.step_y = s.stride[1] * axes[2].size;
        std::copy(s.out, s.out + 3, g.out);
        if (i)
            g.offset = matrices[0].offset;
        else
            for (long c = 0; c < s.inputs; ++c)
                for (long z = 0; z < s.kernel[0]; ++z)
                    for (long v = 0; v < s.kernel[1]; ++v)
                        for (long h = 0; h < s.kernel[2]; ++h) {
                            const long column = h * s.dilation[2];
                            g.offset.push_back(c * volume + z * s.dilation[0] * plane +
                                               v * s.dilation[1] * axes[2].size + column % split * quarter +
                                               column / split);
                        }
        pack_matrix(g, kept[i], [&](long row, long rows, float* to) {
            pack(w + (i * s.outputs + row) * g.depth, g.depth, 1, rows, g.depth, to, rows);
        });
    }
    const long tall = matrices[0].tall, tiles = (s.outputs + tall - 1) / tall;
    const long apart = s.groups * s.inputs * volume;
    over_images(s.samples, places, tiles * s.groups, [&](long n, long images, long share, long shares) {
        static thread_local Scratch scratch;
        float* image = scratch.get(images * apart + 64);  // lanes beyond a row's end read what comes next
        const long begin = tiles * s.groups * share / shares, end = tiles * s.groups * (share + 1) / shares;
        for (long i = 0; i < images; ++i)
            for (long g = begin / tiles; g * tiles < end; ++g)
                pad_image(planes_of(x, s.last, s.groups, s.inputs, pixels, n + i, g), s.inputs, s.in, axes,
                    split, image + i * apart + g * s.inputs * volume);
        for (long g = begin / tiles; g * tiles < end; ++g) {
            const long first = std::max(0L, begin - g * tiles) * tall;
            const long last = std::min(s.outputs, (end - g * tiles) * tall);
            const Planes to(y, s.last, s.groups, s.outputs, places, n, g, images);
            gather(matrices[g], images, image + g * s.inputs * volume, apart,
                {to.data, places, s.out[1] * s.out[2], s.out[2], 1}, to.apart, first, last);
            for (long i = 0; bias && i < images; ++i)
                for (long o = first; o < last; ++o) {
                    const V b = bc(bias[g * s.outputs + o]);
                    float* row = to.data + i * to.apart + o * places;
                    each(row, places, [&](V v) { return v + b; }, row);
                }
            to.finish(images, first, last);
        }
    });
}

// The output is one place: no more than one tap reaches a place of the input.
static void input_of_one_place(const Convolution& s, const float* dy, const float* w, float* dx) {
    const long taps = product_of(s.kernel), pixels = product_of(s.in);
    std::vector<long> place, tap;
    for (long i = 0; i < taps; ++i) {
        const long at[3] = {i / s.kernel[2] / s.kernel[1], i / s.kernel[2] % s.kernel[1], i % s.kernel[2]};
        long flat = 0;
        bool inside = true;
        for (int d = 0; d < 3; ++d) {
            const long p = at[d] * s.dilation[d] - s.padding[d];
            inside = inside && p >= 0 && p < s.in[d];
            flat = flat * s.in[d] + p;
        }
        if (!inside) continue;
        place.push_back(flat);
        tap.push_back(i);
    }
    const long reached = long(tap.size()), wide = s.inputs * reached;
    const bool direct = !s.last && reached == taps && reached == pixels;
    std::unique_ptr<float[]> kept(direct ? nullptr : new float[(s.outputs + s.samples) * wide]);
    if (!direct) std::fill(dx, dx + s.samples * s.groups * s.inputs * pixels, 0.f);
    for (long g = 0; g < s.groups; ++g) {
        const float* weights = w + g * s.outputs * s.inputs * taps;
        const Matrix gradient{dy + g * s.outputs, s.groups * s.outputs, 1};
        if (direct) {
            product_batch(1, s.samples, wide, s.outputs, gradient, 0, {weights, wide, 1}, 0, dx + g * wide,
                s.groups * wide, 0, nullptr, 0);
            continue;
        }
        float *packed = kept.get(), *result = packed + s.outputs * wide;  // [output][channel][tap]
        for (long r = 0; r < s.outputs * s.inputs; ++r)
            for (long t = 0; t < reached; ++t) packed[r * reached + t] = weights[r * taps + tap[t]];
        product_batch(
            1, s.samples, wide, s.outputs, gradient, 0, {packed, wide, 1}, 0, result, wide, 0, nullptr, 0);
        const long channel = s.last ? 1 : pixels, next = s.last ? s.groups * s.inputs : 1;
        for (long n = 0; n < s.samples; ++n)
            for (long c = 0; c < s.inputs; ++c) {
                float* to = dx + n * s.groups * s.inputs * pixels + (g * s.inputs + c) * channel;
                for (long t = 0; t < reached; ++t) to[place[t] * next] = result[n * wide + c * reached + t];
            }
    }
}

static void convolution_input(const Convolution& s, const float* dy, const float* w, float* dx) {
    const long taps = product_of(s.kernel), places = product_of(s.out), pixels = product_of(s.in);
    if (places == 1) return input_of_one_place(s, dy, w, dx);
    if (depthwise(s)) return depthwise_input(s, dy, w, dx);
    if (as_rows(s)) {
        for (long g = 0; g < s.groups; ++g)
            product_batch(1, s.samples * places, s.inputs, s.outputs,
                {dy + g * s.outputs, s.groups * s.outputs, 1}, 0, {w + g * s.outputs * s.inputs, s.inputs, 1},
                0, dx + g * s.inputs, s.groups * s.inputs, 0, nullptr, 0);
        return;
    }
    if (places == pixels && as_columns(s)) {
        for (long g = 0; g < s.groups; ++g)
            product_batch(s.samples, s.inputs, places, s.outputs, {w + g * s.outputs * s.inputs, 1, s.inputs},
                0, {dy + g * s.outputs * places, places, 1}, s.groups * s.outputs * places,
                dx + g * s.inputs * pixels, pixels, s.groups * s.inputs * pixels, nullptr, 0);
        return;
    }
    std::vector<Phase> phases[3];
    const Axis axes[3] = {
        backward_axis(s, 0, phases[0]), backward_axis(s, 1, phases[1]), backward_axis(s, 2, phases[2])};
    const long plane = axes[1].size * axes[2].size, volume = axes[0].size * plane;
    const std::vector<Grid> grids = backward_grids(s, phases, axes);
    if (by_outputs(s, s.inputs, s.outputs, grids[0].count[2], volume)) {
        return convolution_by_outputs(s,
            {s.inputs, s.outputs, taps, s.inputs * taps, dy, w, nullptr, dx, s.out, s.in, ONE, s.stride},
            grids, axes);
    }
    struct Place {
        long at;  // of dx
        Gather gather;
        std::vector<float> kept;
    };
    const long per_group = long(grids.size());
    std::vector<Place> all(s.groups * per_group);
    for (long i = 0; i < long(all.size()); ++i) {
        const long group = i / per_group;
        const Grid& grid = grids[i % per_group];
        auto& g = all[i].gather;
        all[i].at = grid.first;
        std::copy(grid.count, grid.count + 3, g.out);
        g.rows = s.inputs;
        g.step_z = plane;
        g.step_y = axes[2].size;
        const long count = long(grid.tap.size());
        g.depth = s.outputs * count;
        for (long o = 0; o < s.outputs; ++o)
            for (const long at : grid.image) g.offset.push_back(int(o * volume + at));
        pack_matrix(g, all[i].kept, [&](long row, long rows, float* to) {
            for (long o = 0; o < s.outputs; ++o, to += count * rows) {
                const float* from = w + ((group * s.outputs + o) * s.inputs + row) * taps;
                pack_taps(grid, from, taps, rows, taps, to, rows);
            }
        });
    }
    const long tall = all[0].gather.tall, tiles = (s.inputs + tall - 1) / tall;
    const long apart = s.groups * s.outputs * volume;
    const long least = all[0].gather.out[0] * all[0].gather.out[1] * all[0].gather.out[2];
    over_images(s.samples, least, tiles * s.groups, [&](long n, long images, long share, long shares) {
        static thread_local Scratch scratch;
        float* image = scratch.get(images * apart + 64);
        const long begin = tiles * s.groups * share / shares, end = tiles * s.groups * (share + 1) / shares;
        for (long i = 0; i < images; ++i)
            for (long g = begin / tiles; g * tiles < end; ++g)
                pad_image(planes_of(dy, s.last, s.groups, s.outputs, places, n + i, g), s.outputs, s.out,
                    axes, 1, image + i * apart + g * s.outputs * volume);
        for (long g = begin / tiles; g * tiles < end; ++g) {
            const long first = std::max(0L, begin - g * tiles) * tall;
            const long last = std::min(s.inputs, (end - g * tiles) * tall);
            const Planes planes(dx, s.last, s.groups, s.inputs, pixels, n, g, images);
            for (long p = 0; p < per_group; ++p) {
                const auto& one = all[g * per_group + p];
                const Target to{planes.data + one.at, pixels, s.stride[0] * s.in[1] * s.in[2],
                    s.stride[1] * s.in[2], s.stride[2]};
                if (one.gather.depth) {
                    gather(one.gather, images, image + g * s.outputs * volume, apart, to, planes.apart, first,
                        last);
                    continue;
                }
                for (long i = 0; i < images; ++i)  // no tap reaches these places
                    for (long r = first; r < last; ++r)
                        for (long z = 0; z < one.gather.out[0]; ++z)
                            for (long y = 0; y < one.gather.out[1]; ++y)
                                for (long v = 0; v < one.gather.out[2]; ++v)
                                    to.data[i * planes.apart + r * to.plane + z * to.z + y * to.y +
                                            v * to.x] = 0;
            }
            planes.finish(images, first, last);
        }
    });
}

// Gradient of the weights. R rows (taps, or runs of T neighbouring taps) and N vectors of output channels,
// over one part: `lines` rows of places, `line[i]` from where the first begins.
template <int R, int T, int N>
static __attribute__((noinline)) void taps_of(long lines, const int* line, long length, long step,
    const float* g, long ldo, const float* const* rows, float* to, bool add) {
    V acc[R][T][N];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t)
#pragma GCC unroll 4
            for (int v = 0; v < N; ++v) acc[r][t][v] = V{};
    for (long y = 0; y < lines; ++y) {
        const float* x[R];
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) x[r] = rows[r] + line[y];
#pragma GCC unroll 1
        for (long p = 0; p < length; ++p, g += ldo) {
            V column[N];
#pragma GCC unroll 4
            for (int v = 0; v < N; ++v) column[v] = ld(g + v * W);
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
                for (int t = 0; t < T; ++t) {
                    const V b = bc(x[r][t]);
#pragma GCC unroll 4
                    for (int v = 0; v < N; ++v) acc[r][t][v] = fma(b, column[v], acc[r][t][v]);
                }
                x[r] += step;
            }
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t)
#pragma GCC unroll 4
            for (int v = 0; v < N; ++v) {
                float* at = to + (r * T + t) * ldo + v * W;
                st(at, add ? ld(at) + acc[r][t][v] : acc[r][t][v]);
            }
}

template <int R, int T, int N>
static inline void taps_with(long count, long lines, const int* line, long length, long step, const float* g,
    long ldo, const float* const* rows, float* to, bool add) {
    if constexpr (R > 0) {
        if (count == R) return taps_of<R, T, N>(lines, line, length, step, g, ldo, rows, to, add);
        taps_with<R - 1, T, N>(count, lines, line, length, step, g, ldo, rows, to, add);
    }
}

// Rows `first` to `last` of T taps each, all output channels.
template <int T>
static void taps(long lines, const int* line, long length, long step, const float* g, long ldo,
    const float* image, const std::vector<int>& offset, long first, long last, float* to, bool add) {
    constexpr int BUDGET = W == 8 ? 12 : 24;  // accumulators
    constexpr int ONE = std::max(1, std::min(BUDGET / T, 6)), TWO = std::max(1, std::min(BUDGET / T / 2, 6));
    constexpr int FOUR = std::max(1, std::min(BUDGET / T / 4, 6));
    const auto tile = [&](auto n, auto most, long o) {
        constexpr int N = decltype(n)::value, MOST = decltype(most)::value;
        const long tall = even(last - first, MOST);
        for (long r = first; r < last; r += tall) {
            const long have = std::min(tall, last - r);
            const float* rows[8];
            for (long i = 0; i < have; ++i) rows[i] = image + offset[(r + i) * T];
            taps_with<MOST, T, N>(
                have, lines, line, length, step, g + o, ldo, rows, to + r * T * ldo + o, add);
        }
        return N * W;
    };
    for (long o = 0; o < ldo;) {
        if (T == 1 && W != 8 && ldo - o >= 4 * W)
            o += tile(std::integral_constant<int, 4>{}, std::integral_constant<int, FOUR>{}, o);
        else if (ldo - o >= 2 * W)
            o += tile(std::integral_constant<int, 2>{}, std::integral_constant<int, TWO>{}, o);
        else
            o += tile(std::integral_constant<int, 1>{}, std::integral_constant<int, ONE>{}, o);
    }
}

static void weight_of_group(
    const Convolution& s, long group, const float* x, const float* dy, float* dw, long threads) {
    const long all_taps = product_of(s.kernel), places = product_of(s.out), pixels = product_of(s.in);
    const long ldo = (s.outputs + W - 1) / W * W, depth = s.inputs * all_taps;
    const Axis axes[3] = {forward_axis(s, 0), forward_axis(s, 1), forward_axis(s, 2)};
    const long plane = axes[1].size * axes[2].size, volume = axes[0].size * plane, apart = s.inputs * volume;
    std::vector<int> offset;
    const Grid grid = forward_grid(s, axes);
    for (long c = 0; c < s.inputs; ++c)
        for (const long at : grid.image) offset.push_back(int(c * volume + at));
    const Parts of(s);
    const long width = s.out[2], images = of.images;
    const bool by_columns = s.outputs >= 64 && width < 16;
    const long T = by_columns ? 1
                   : s.dilation[2] == 1 && (s.kernel[2] == 3 || s.kernel[2] == 5 || s.kernel[2] == 7)
                       ? s.kernel[2]
                       : 1;
    const long rows = depth / T, runs = of.runs;
    const long shares = runs >= threads ? 1 : std::min(rows, (threads + runs - 1) / runs);
    std::unique_ptr<float[]> sums(new float[runs * depth * ldo]);
    parallel(runs * shares, [&](long i) {
        static thread_local Scratch x_kept, g_kept, columns_kept;
        const long run = i / shares, first = rows * (i % shares) / shares,
                   last = rows * (i % shares + 1) / shares;
        float *image = x_kept.get(images * apart + 64), *g = g_kept.get((images * places + 16) * ldo + 64);
        std::vector<int> line;
        for (long part = of.begin(run), begin = part; part < of.begin(run + 1); ++part) {
            const auto [n, have, top, high] = of.at(part);
            if (part == begin || !top)
                for (long k = 0; k < have; ++k)
                    pad_image(planes_of(x, s.last, s.groups, s.inputs, pixels, n + k, group), s.inputs, s.in,
                        axes, 1, image + k * apart);
            line.clear();
            for (long k = 0; k < have; ++k) {
                const float* from = dy + (n + k) * s.groups * s.outputs * places;
                if (s.last)
                    pack(from + top * width * s.groups * s.outputs + group * s.outputs, 1,
                        s.groups * s.outputs, s.outputs, high * width, g + k * places * ldo, ldo);
                else
                    pack(from + group * s.outputs * places + top * width, places, 1, s.outputs, high * width,
                        g + k * places * ldo, ldo);
                for (long l = top; l < top + high; ++l)
                    line.push_back(k * apart + l / s.out[1] * s.stride[0] * plane +
                                   l % s.out[1] * s.stride[1] * axes[2].size);
            }
            float* to = sums.get() + run * depth * ldo;
            if (by_columns) {
                const long wide = long(line.size()) * width;
                float* columns = columns_kept.get(MR * (wide + W) + 64);
                for (long r = first; r < last; r += MR) {
                    const long have = std::min<long>(MR, last - r);
                    for (long j = 0; j < have; ++j)
                        for (long l = 0; l < long(line.size()); ++l) {
                            const float* from = image + offset[r + j] + line[l];
                            float* at = columns + j * wide + l * width;
                            if (s.stride[2] == 1)
                                for (long p = 0; p < width; p += W) st(at + p, ld(from + p));
                            else
                                for (long p = 0; p < width; ++p) at[p] = from[p * s.stride[2]];
                        }
                    for (long o = 0; o < ldo; o += NR)
                        tile_at(have, wide, columns, wide, 1, Rows{g + o, ldo}, to + r * ldo + o, ldo,
                            std::min<long>(NR, ldo - o), part != begin);
                }
                continue;
            }
            const auto with = T == 1 ? taps<1> : T == 3 ? taps<3> : T == 5 ? taps<5> : taps<7>;
            with(long(line.size()), line.data(), width, s.stride[2], g, ldo, image, offset, first, last, to,
                part != begin);
        }
    });
    shared((depth + 7) / 8, std::max(1L, 2048 / (ldo * runs)), [&](long begin, long end) {
        begin *= 8;
        end = std::min(depth, end * 8);
        float* p = sums.get() + begin * ldo;
        of.join(p, (end - begin) * ldo, depth * ldo);
        transpose(p, ldo, end - begin, s.outputs, dw + begin, depth);
    });
}

// Each place is a row of both.
static void weight_of_rows(
    const Convolution& s, long group, const float* x, const float* dy, float* dw, long threads) {
    const Parts of(s);
    const long places = product_of(s.out), depth = s.inputs * product_of(s.kernel), size = s.outputs * depth;
    const long wide = s.groups * depth, outputs = s.groups * s.outputs;
    const long shares = std::min(s.outputs, (threads + of.runs - 1) / of.runs);
    std::unique_ptr<float[]> sums(new float[of.runs * size]);
    parallel(of.runs * shares, [&](long i) {
        const long run = i / shares, first = s.outputs * (i % shares) / shares,
                   last = s.outputs * (i % shares + 1) / shares;
        for (long part = of.begin(run), begin = part; part < of.begin(run + 1); ++part) {
            const auto [n, have, top, high] = of.at(part);
            const long row = n * places + top * s.out[2];
            block(last - first, depth, have * high * s.out[2],
                {dy + row * outputs + group * s.outputs + first, 1, outputs},
                {x + row * wide + group * depth, wide, 1}, sums.get() + run * size + first * depth, depth,
                part != begin);
        }
    });
    shared(size, 65536 / of.runs, [&](long begin, long end) {
        of.join(sums.get() + begin, end - begin, size);
        memcpy(dw + begin, sums.get() + begin, (end - begin) * sizeof(float));
    });
}

static void convolution_weight(const Convolution& s, const float* x, const float* dy, float* dw) {
    if (depthwise(s)) return depthwise_weight(s, x, dy, dw);
    const long size = s.outputs * s.inputs * product_of(s.kernel);
    const auto of = as_rows(s) && s.out[2] <= PART ? weight_of_rows : weight_of_group;
    const auto one = [&](long g, long threads) { of(s, g, x, dy, dw + g * size, threads); };
    if (s.groups == 1) return one(0, host.threads());
    parallel(s.groups, [&](long g) { one(g, 1); });
}
