// Normally distributed numbers from the draws that torch makes, by its methods, with functions of our own.
#pragma once
#include "functions.h"
#include "threads.h"

// Box and Muller's numbers of two uniform ones: sqrt(-2 log1p(-u)) and the angle 2 pi v
struct Polar {
    VD cosine, sine;
};
INLINE Polar box_muller(VD u, VD v) {
    const VD radius = root(log_of_1_plus(-u) * -2.0);
    const Angle a = angle_of(v * (2 * PI));
    return {radius * turned(a.rest, a.n + 1), radius * turned(a.rest, a.n)};
}

// `x` holds uniform numbers from [0, 1), a multiple of 16: of each 16, the first eight give radii, the others
// angles.
static void normal_blocks(long n, float* x, double mean, double deviation) {
    constexpr long H = W / 2;
    shared(n / 16, 1024, [&](long begin, long end) {
        for (float* block = x + begin * 16; block < x + end * 16; block += 16)
            for (float *u = block, *v = u + 8; u < block + 8; u += H, v += H) {
                float both[W];
                memcpy(both, u, H * sizeof(float));
                memcpy(both + H, v, H * sizeof(float));
                const V uniform = ld(both);
                const Polar z = box_muller(low(uniform), high(uniform));
                st(both, rounded(fma(z.cosine, all(deviation), all(mean)),
                             fma(z.sine, all(deviation), all(mean))));
                memcpy(u, both, H * sizeof(float));
                memcpy(v, both + H, H * sizeof(float));
            }
    });
}

// Two numbers at a time, in float64: `angle` and `radius` are uniform, the second number is for the next
// time.
static void normal_pair(double angle, double radius, double* first, double* second) {
    const Polar z = box_muller(all(radius), all(angle));
    *first = z.cosine[0];
    *second = z.sine[0];
}
