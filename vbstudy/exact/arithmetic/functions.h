// Functions of one element. Each is computed in float64 with relative errors of at most 2^-34 and rounded to
// float32 once: the results are those of correct rounding but for about one in ten thousand, which are off by
// one unit. A vector of floats is two of doubles. All steps are +, -, *, /, sqrt, fma and integers: no
// estimates.
#pragma once
#include "table.h"
#include "vec.h"
#include <utility>

typedef double VD __attribute__((vector_size(4 * W)));  // half of a V's elements
typedef int64_t VL __attribute__((vector_size(4 * W)));
typedef uint64_t VUL __attribute__((vector_size(4 * W)));

#if defined(__AVX512F__)
INLINE VD all(double x) { return (VD)_mm512_set1_pd(x); }
INLINE VD fma(VD a, VD b, VD c) { return (VD)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c); }
INLINE VD root(VD a) { return (VD)_mm512_sqrt_pd((__m512d)a); }
INLINE VD low(V x) { return (VD)_mm512_cvtps_pd(_mm512_castps512_ps256((__m512)x)); }
INLINE VD high(V x) { return (VD)_mm512_cvtps_pd(_mm512_extractf32x8_ps((__m512)x, 1)); }
INLINE V rounded(VD a, VD b) {
    return (V)_mm512_insertf32x8(
        _mm512_castps256_ps512(_mm512_cvtpd_ps((__m512d)a)), _mm512_cvtpd_ps((__m512d)b), 1);
}
INLINE V at_most(V x, float limit) { return (V)_mm512_min_ps((__m512)bc(limit), (__m512)x); }  // a NaN stays
INLINE V at_least(V x, float limit) { return (V)_mm512_max_ps((__m512)bc(limit), (__m512)x); }
INLINE VD at_most(VD x, double limit) { return (VD)_mm512_min_pd((__m512d)all(limit), (__m512d)x); }
INLINE VD at_least(VD x, double limit) { return (VD)_mm512_max_pd((__m512d)all(limit), (__m512d)x); }
#elif defined(__AVX2__)
INLINE VD all(double x) { return (VD)_mm256_set1_pd(x); }
INLINE VD fma(VD a, VD b, VD c) { return (VD)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c); }
INLINE VD root(VD a) { return (VD)_mm256_sqrt_pd((__m256d)a); }
INLINE VD low(V x) { return (VD)_mm256_cvtps_pd(_mm256_castps256_ps128((__m256)x)); }
INLINE VD high(V x) { return (VD)_mm256_cvtps_pd(_mm256_extractf128_ps((__m256)x, 1)); }
INLINE V rounded(VD a, VD b) {
    return (V)_mm256_set_m128(_mm256_cvtpd_ps((__m256d)b), _mm256_cvtpd_ps((__m256d)a));
}
INLINE V at_most(V x, float limit) { return (V)_mm256_min_ps((__m256)bc(limit), (__m256)x); }
INLINE V at_least(V x, float limit) { return (V)_mm256_max_ps((__m256)bc(limit), (__m256)x); }
INLINE VD at_most(VD x, double limit) { return (VD)_mm256_min_pd((__m256d)all(limit), (__m256d)x); }
INLINE VD at_least(VD x, double limit) { return (VD)_mm256_max_pd((__m256d)all(limit), (__m256d)x); }
#else
INLINE VD all(double x) { return vdupq_n_f64(x); }
INLINE VD fma(VD a, VD b, VD c) { return vfmaq_f64(c, a, b); }
INLINE VD root(VD a) { return vsqrtq_f64(a); }
INLINE VD low(V x) { return vcvt_f64_f32(vget_low_f32(x)); }
INLINE VD high(V x) { return vcvt_high_f64_f32(x); }
INLINE V rounded(VD a, VD b) { return vcvt_high_f32_f64(vcvt_f32_f64(a), b); }
INLINE V at_most(V x, float limit) { return vminq_f32(x, bc(limit)); }
INLINE V at_least(V x, float limit) { return vmaxq_f32(x, bc(limit)); }
INLINE VD at_most(VD x, double limit) { return vminq_f64(x, all(limit)); }
INLINE VD at_least(VD x, double limit) { return vmaxq_f64(x, all(limit)); }
#endif

template <class Mask, class T>
INLINE T choose(Mask mask, T a, T b) {
    return mask ? a : b;
}
INLINE VL all_bits(int64_t x) { return x - VL{}; }
INLINE VD absolute(VD a) { return (VD)((VL)a & all_bits(INT64_MAX)); }
INLINE VD sign_of(VD a, VD s) { return (VD)(((VL)a & all_bits(INT64_MAX)) | ((VL)s & all_bits(INT64_MIN))); }
INLINE V within(V x, float lowest, float largest) { return at_least(at_most(x, largest), lowest); }
// Whatever NaN an instruction set makes: the quiet one, positive, without a payload.
INLINE V one_nan(V x) { return choose(x != x, (V)bci(0x7fc00000), x); }

INLINE V with_nan(V r, V x, V y) { return choose((x != x) | (y != y), bc(NAN), r); }

// f of doubles, for vectors of floats
template <class F, class... X>
INLINE V in_double(F f, X... x) {
    return rounded(f(low(x)...), f(high(x)...));
}

// c0 x^n + c1 x^(n-1) + ... + cn: the even and the odd powers each by Horner's rule in x^2, then odd x + even
template <class... C>
INLINE VD polynomial(VD x, C... coefficients) {
    constexpr int N = sizeof...(C);
    const double c[] = {coefficients...};
    const VD x2 = x * x;
    VD even = all(c[(N - 1) % 2]), odd = all(c[N % 2]);
#pragma GCC unroll 32
    for (int i = 2; i < N; ++i) {
        VD& sum = (N - 1 - i) % 2 ? odd : even;
        sum = fma(sum, x2, all(c[i]));
    }
    return fma(odd, x, even);
}

constexpr double LN2 = 0x1.62e42fefa39efp-1, LOG2E = 0x1.71547652b82fep+0, PI = 0x1.921fb54442d18p+1;
constexpr double MAGIC = 0x1.8p52;  // added, it rounds to an integer, which is then in the low bits

// The exponential

// exp(x) = scale (1 + rest), scale = 2^round(x / ln 2); |x| <= 700
struct Power {
    VD scale, rest;
    VD value() const { return fma(scale, rest, scale); }
    VD less_one() const { return fma(scale, rest, scale - 1.0); }
};
INLINE VD expm1_near_0(VD f) {  // |f| <= ln(2) / 2; error 2^-37.7
    return f * polynomial(f, 2.4801561877195296e-05, 0.00019907464578792502, 0.001388897838211975,
                   0.008333283730592935, 0.0416666659508975, 0.16666666785432088, 0.5000000000120667,
                   0.9999999999955679);
}
INLINE Power power(VD x) {
    const VD shifted = fma(x, all(LOG2E), all(MAGIC)), j = shifted - MAGIC;
    return {(VD)(((VL)shifted + 1023) << 52), expm1_near_0(fma(j, all(-LN2), x))};
}
INLINE VD exponential(VD x) { return power(x).value(); }
INLINE VD power_of_2(VD x) {
    const VD shifted = x + MAGIC, j = shifted - MAGIC;
    return Power{(VD)(((VL)shifted + 1023) << 52), expm1_near_0((x - j) * LN2)}.value();
}
INLINE VD limited(VD x) { return at_least(at_most(x, 700), -700); }

INLINE V exp_(V x) { return in_double(exponential, within(x, -110, 90)); }
INLINE V exp2_(V x) { return in_double(power_of_2, within(x, -160, 130)); }
INLINE V expm1_(V x) {
    return sign_of(in_double([](VD v) { return power(v).less_one(); }, within(x, -110, 90)), x);
}
INLINE V sinh_(V x) {
    const auto f = [](VD v) {
        const VD e = power(v).less_one();
        return 0.5 * (e + e / (e + 1.0));
    };
    return sign_of(in_double(f, within(absolute(x), 0, 100)), x);
}
INLINE V cosh_(V x) {
    const auto f = [](VD v) {
        const VD e = exponential(v);
        return 0.5 * (e + 1.0 / e);
    };
    return in_double(f, within(absolute(x), 0, 100));
}
INLINE V tanh_(V x) {
    const auto f = [](VD v) {
        const VD e = power(v + v).less_one();
        return e / (e + 2.0);
    };
    return sign_of(in_double(f, within(x, -20, 20)), x);
}

// The same in float32, for softmax: exp(x) = 2^k (1 + rest), error 1.02 units; |x| <= 127
struct NearPower {
    VI k;
    V rest;
};
INLINE VI power_bits(VI k) { return (k + 127) << 23; }
INLINE NearPower near_power(V x) {
    const V shifted = fma(x, bc(0x1.715476p+0f), bc(0x1.8p23f)), j = shifted - bc(0x1.8p23f);
    const V f = fma(j, bc(0x1.05c611p-29f), fma(j, bc(-0x1.62e430p-1f), x));
    V r = bc(0x1.6c6a06p-10f);
    r = fma(r, f, bc(0x1.120b2ap-7f));
    r = fma(r, f, bc(0x1.5555bap-5f));
    r = fma(r, f, bc(0x1.5554dep-3f));
    r = fma(r, f, bc(0.5f));
    return {(VI)shifted - bci(0x4b400000), fma(f * f, r, f)};
}
INLINE V exp_near(V x) {
    const NearPower p = near_power(within(x, -104, 89));
    const VI half = p.k >> 1;
    return (bc(1) + p.rest) * (V)power_bits(half) * (V)power_bits(p.k - half);
}
INLINE VD logistic(VD x) { return 1.0 / (1.0 + exponential(-x)); }  // |x| <= 700
INLINE V sigmoid_(V x) { return in_double(logistic, within(x, -110, 110)); }

// Logarithms

// x = 2^k m, m from sqrt(1/2) to sqrt(2); x a positive normal double
struct Split {
    VD k, m, unit;  // unit = 2^-k
};
INLINE Split split(VD x) {
    constexpr int64_t ONE = 0x3ff0000000000000, ROOT = 0x3fe6a09e667f3bcd;
    const VL t = (VL)x + all_bits(ONE - ROOT), e = t & all_bits(0x7ff0000000000000);
    const VD k = (VD)((VL)((VUL)t >> 52) | all_bits(0x4330000000000000)) - (0x1p52 + 1023);
    return {k, (VD)((VL)x - e + all_bits(ONE)), (VD)(all_bits(2 * ONE) - e)};
}
INLINE VD log1p_near_0(VD f) {  // f from sqrt(1/2) - 1 to sqrt(2) - 1; error 2^-38.5
    return f * polynomial(f, -0.04833925693116737, 0.09185054806838365, -0.09331826388008269,
                   0.09030019214452571, -0.09877245878436217, 0.11105372111607076, -0.12506923022581812,
                   0.14286257211363024, -0.16666476735616007, 0.19999985271770152, -0.2500000228165039,
                   0.33333333460873227, -0.4999999999189377, 0.9999999999983442);
}
INLINE VD logarithm(VD x) {
    const Split s = split(x);
    return fma(s.k, all(LN2), log1p_near_0(s.m - 1.0));
}
INLINE VD log_of_1_plus(VD x) {  // x > -1
    const VD y = 1.0 + x, lost = x - (y - 1.0);
    const Split s = split(y);
    return fma(s.k, all(LN2), log1p_near_0(fma(lost, s.unit, s.m - 1.0)));
}
INLINE V log_specials(V x, V r) {
    r = choose(x == bc(INFINITY), x, r);
    r = choose(x == bc(0), bc(-INFINITY), r);
    return choose(x >= bc(0), r, bc(NAN));
}
INLINE V log_(V x) { return log_specials(x, in_double(logarithm, x)); }
INLINE V log2_(V x) {
    const auto f = [](VD v) {
        const Split s = split(v);
        return fma(log1p_near_0(s.m - 1.0), all(LOG2E), s.k);
    };
    return log_specials(x, in_double(f, x));
}
INLINE V log10_(V x) {
    const auto f = [](VD v) {
        const Split s = split(v);
        return fma(log1p_near_0(s.m - 1.0), all(0x1.bcb7b1526e50ep-2), s.k * 0x1.34413509f79ffp-2);
    };
    return log_specials(x, in_double(f, x));
}
INLINE V log1p_(V x) {
    V r = sign_of(in_double(log_of_1_plus, x), x);
    r = choose(x == bc(INFINITY), x, r);
    r = choose(x == bc(-1), bc(-INFINITY), r);
    return choose(x >= bc(-1), r, bc(NAN));
}
INLINE V asinh_(V x) {
    const auto f = [](VD v) { return log_of_1_plus(v + v * v / (1.0 + root(fma(v, v, all(1))))); };
    const V a = absolute(x);
    return sign_of(choose(a < bc(INFINITY), in_double(f, a), a), x);
}
INLINE V acosh_(V x) {
    const auto f = [](VD v) {
        const VD t = v - 1.0;
        return log_of_1_plus(t + root(fma(t, t, t + t)));
    };
    return choose(x < bc(INFINITY), choose(x >= bc(1), in_double(f, x), bc(NAN)), x);
}
INLINE V atanh_(V x) {
    const auto f = [](VD v) { return 0.5 * log_of_1_plus((v + v) / (1.0 - v)); };
    const V a = absolute(x), r = choose(a < bc(1), in_double(f, a), bc(INFINITY));
    return sign_of(choose(a <= bc(1), r, bc(NAN)), x);
}

// Powers

INLINE VD log2_precisely(VD x) {  // error 2^-50
    const Split s = split(x);
    const VD f = s.m - 1.0, q = f / (f + 2.0);
    const VD log = q * polynomial(q * q, 0.16838553839715006, 0.18121855504755252, 0.22222437161347073,
                           0.2857141598118582, 0.4000000006201771, 0.6666666666655222, 2.0000000000000004);
    return fma(log, all(LOG2E), s.k);
}
// As IEEE 754 and C define its special values.
INLINE V pow_(V x, V y) {
    const auto f = [](VD a, VD b) { return power_of_2(at_least(at_most(b * log2_precisely(a), 200), -200)); };
    const V a = absolute(x), b = absolute(y), zero = bc(0), one = bc(1), infinity = bc(INFINITY);
    V r = in_double(f, a, y);
    r = choose(a == zero, choose(y > zero, zero, infinity), r);
    r = choose(a == infinity, choose(y > zero, infinity, zero), r);
    r = choose(b == infinity, choose(a == one, one, choose((a > one) == (y > zero), infinity, zero)), r);
    const auto whole_part = [&](V v) {
        const V magic = bc(0x1p23f), u = absolute(v);
        return choose(u < magic, sign_of((u + magic) - magic, v), v);
    };
    const V half = y * bc(0.5f);
    const VI whole = whole_part(y) == y, odd = whole & (whole_part(half) != half);
    const VI negative = (VI)x < bci(0);
    r = choose(negative & odd, -r, r);
    r = choose((x < zero) & ~whole & (a < infinity), bc(NAN), r);
    r = choose((x != x) | (y != y), bc(NAN), r);
    return choose((x == one) | (y == zero), one, r);
}

// Trigonometric functions

constexpr double QUARTER_HIGH = 0x1.921fb54442d18p+0, QUARTER_LOW = 0x1.1a62633145c07p-54;  // pi / 2
constexpr float FAR = 0x1p26f;

// x = n pi / 2 + rest, |rest| <= pi / 4
struct Angle {
    VD rest;
    VL n;
};
INLINE Angle angle_of(VD x) {
    const VD shifted = fma(x, all(0x1.45f306dc9c883p-1), all(MAGIC)), j = shifted - MAGIC;
    return {fma(j, all(-QUARTER_LOW), fma(j, all(-QUARTER_HIGH), x)), (VL)shifted};
}
// For FAR <= |x|: x = m 2^e, and 96 bits of 2 / pi from its bit e - 2 on give the fraction of a full turn.
static double far_angle(float x, int64_t* n) {
    static const uint64_t two_over_pi[] = {
        0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041, 0xfe5163abdebbc561};
    uint32_t bits;
    memcpy(&bits, &x, 4);
    const int e = int(bits >> 23 & 255) - 150, at = e - 2, word = at / 64, shift = at % 64;
    *n = 0;
    if (e > 104) return NAN;  // infinity, NaN
    const uint64_t first =
        shift ? two_over_pi[word] << shift | two_over_pi[word + 1] >> (64 - shift) : two_over_pi[word];
    const uint64_t second = shift ? two_over_pi[word + 1] << shift | two_over_pi[word + 2] >> (64 - shift)
                                  : two_over_pi[word + 1];
    typedef unsigned __int128 Wide;
    const Wide window = (Wide)first << 32 | second >> 32, m = (bits & 0x7fffff) | 0x800000;
    const Wide turn = m * window << 32;  // in 2^-128 turns
    const uint64_t quarter = uint64_t(turn >> 64) + (uint64_t(1) << 61);
    *n = int64_t(quarter >> 62);
    const Wide rest = turn - ((Wide)(quarter >> 62) << 126);
    const double angle =
        (double(int64_t(rest >> 64)) * 0x1p-64 + double(uint64_t(rest) >> 32) * 0x1p-96) * (2 * PI);
    if (bits >> 31) *n = -*n;
    return bits >> 31 ? -angle : angle;
}
template <class F>
static __attribute__((noinline)) V far_angles(V x, F f) {
    alignas(64) float from[W];
    alignas(64) double rest[W];
    alignas(64) int64_t n[W];
    st(from, x);
    for (int i = 0; i < W; i += W / 2) {
        VD half{};
        for (int l = 0; l < W / 2; ++l) half[l] = from[i + l];
        const Angle near = angle_of(half);
        for (int l = 0; l < W / 2; ++l) {
            rest[i + l] = near.rest[l];
            n[i + l] = near.n[l];
            if (!(__builtin_fabsf(from[i + l]) < FAR)) rest[i + l] = far_angle(from[i + l], &n[i + l]);
        }
    }
    VD a[2];
    for (int h = 0; h < 2; ++h) {
        Angle part;
        memcpy(&part.rest, rest + h * W / 2, sizeof part.rest);
        memcpy(&part.n, n + h * W / 2, sizeof part.n);
        a[h] = f(part);
    }
    return rounded(a[0], a[1]);
}
template <class F>
INLINE V of_angle(V x, F f) {
    if (any(~(absolute(x) < bc(FAR)))) return far_angles(x, f);
    return in_double([&](VD v) { return f(angle_of(v)); }, x);
}
INLINE VD sine(VD f) {  // error 2^-37.7
    return f * polynomial(f * f, 2.717148970039793e-06, -0.00019839177930214982, 0.008333328688683183,
                   -0.16666666630429547, 0.9999999999954464);
}
INLINE VD cosine(VD f) {  // error 2^-43.8
    return polynomial(f * f, -2.7167939234531567e-07, 2.479884365213567e-05, -0.0013888879931340554,
        0.04166666653362943, -0.49999999999270783, 0.9999999999999343);
}
INLINE VD turned(VD f, VL n) {
    const VD r = choose((n & 1) != 0, cosine(f), sine(f));
    return (VD)((VL)r ^ (VL)((VUL)(n & 2) << 62));
}
INLINE V sin_(V x) {
    return of_angle(x, [](Angle a) { return turned(a.rest, a.n); });
}
INLINE V cos_(V x) {
    return of_angle(x, [](Angle a) { return turned(a.rest, a.n + 1); });
}
INLINE V tan_(V x) {
    return of_angle(x, [](Angle a) {
        const VD s = sine(a.rest), c = cosine(a.rest);
        const VL odd = (a.n & 1) != 0;
        return choose(odd, -c, s) / choose(odd, s, c);
    });
}
INLINE VD atan_up_to_1(VD q) {  // error 2^-36.6
    return q * polynomial(q * q, 0.0004329551131351547, -0.0032782863667707935, 0.011646594616022963,
                   -0.02633862037839735, 0.043967290880527206, -0.060426393928423215, 0.07503965526891113,
                   -0.09051621545906505, 0.11105742006045617, -0.14285271473615643, 0.19999980839747822,
                   -0.33333333005357907, 0.9999999999906515);
}
INLINE V atan_(V x) {
    const auto f = [](VD a) {
        const VL over = a > all(1);
        const VD r = atan_up_to_1(choose(over, all(1), a) / choose(over, a, all(1)));
        return choose(over, PI / 2 - r, r);
    };
    return sign_of(in_double(f, absolute(x)), x);
}
INLINE V atan2_(V y, V x) {
    const V ax = absolute(x), ay = absolute(y);
    const VI far = (ax == bc(INFINITY)) & (ay == bc(INFINITY)), none = (ax == bc(0)) & (ay == bc(0));
    const auto f = [](VD b, VD a, VD sign) {
        const VL over = b > a;
        VD r = atan_up_to_1(choose(over, a, b) / choose(over, b, a));
        r = choose(over, PI / 2 - r, r);
        return choose(sign < all(0), PI - r, r);
    };
    const V r = in_double(
        f, choose(far, bc(1), choose(none, bc(0), ay)), choose(far | none, bc(1), ax), sign_of(bc(1), x));
    return choose((x != x) | (y != y), bc(NAN), sign_of(r, y));
}
// asin(s) for s up to 1/2, t = s^2; error 2^-40
INLINE VD asin_up_to_half(VD s, VD t) {
    return s * polynomial(t, 0.03315880144848936, 0.0017149323282704214, 0.02076260786092408,
                   0.021838608602606446, 0.030430118653882933, 0.04464043807258196, 0.07500006049067667,
                   0.16666666608635583, 1.0000000000009148);
}
INLINE V asin_(V x) {
    const auto f = [](VD a) {
        const VL over = a > all(0.5);
        const VD t = choose(over, (1.0 - a) * 0.5, a * a);
        const VD r = asin_up_to_half(choose(over, root(t), a), t);
        return choose(over, PI / 2 - (r + r), r);
    };
    return sign_of(in_double(f, absolute(x)), x);
}
INLINE V acos_(V x) {
    const auto f = [](VD v) {
        const VD a = absolute(v);
        const VL over = a > all(0.5);
        const VD t = choose(over, (1.0 - a) * 0.5, a * a);
        const VD r = asin_up_to_half(choose(over, root(t), a), t);
        return choose(over, choose(v < all(0), PI - (r + r), r + r), PI / 2 - sign_of(r, v));
    };
    return in_double(f, x);
}

// The error function

// exp(z^2) erfc(z) for 0 <= z <= 10.3, t = (z - 4) / (z + 4); error 2^-37
INLINE VD erfc_scaled(VD t) {
    return polynomial(t, -9.751497948349065e-06, -2.8269086945584284e-05, 8.080234019991868e-05,
        -1.7845138966310813e-05, -0.0007984822401130527, 0.0040593514956548645, -0.012844215663981078,
        0.031299157707122514, -0.06310778266995722, 0.1089631716667956, -0.16425781818792942,
        0.21871967906216322, -0.2590680487428288, 0.1369994576243759);
}
INLINE VD erfc_positive(VD z) { return exponential(-(z * z)) * erfc_scaled((z - 4.0) / (z + 4.0)); }
INLINE VD erf_near_0(VD a) {  // up to 1; error 2^-40
    return a * polynomial(a * a, 1.0562984194009056e-06, -1.3898701481612682e-05, 0.00011954818650056387,
                   -0.0008542488919919371, 0.005223776404056935, -0.026866131408221354, 0.11283791285357396,
                   -0.3761263888850345, 1.1283791670945857);
}
INLINE V erf_(V x) {
    const auto f = [](VD a) { return choose(a < all(1), erf_near_0(a), 1.0 - erfc_positive(a)); };
    return sign_of(in_double(f, within(absolute(x), 0, 10)), x);
}
// One step of Halley's method from Giles's approximation
INLINE V erfinv_(V x) {
    const auto f = [](VD v) {
        const VD a = absolute(v), tail = 1.0 - a,
                 w = -logarithm(choose(tail > all(0), tail * (1.0 + a), all(1)));
        const VD p = w - 2.5, q = root(w) - 3.0;
        const VD inner = polynomial(p, 2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06,
            0.00021858087, -0.00125372503, -0.00417768164, 0.246640727, 1.50140941);
        const VD outer = polynomial(q, -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844,
            0.00573950773, -0.0076224613, 0.00943887047, 1.00167406, 2.83297682);
        const VD y = a * choose(w < all(5), inner, outer);
        const VD over = choose(y < all(1), erf_near_0(y) - a, tail - erfc_positive(y));
        const VD step = over * exponential(y * y) * 0x1.c5bf891b4ef6bp-1;  // sqrt(pi) / 2
        const VD r = y - step / fma(y, step, all(1));
        return choose(a < all(1), r, choose(a == all(1), all(INFINITY), all(NAN)));
    };
    return sign_of(in_double(f, x), x);
}
INLINE V erfc_(V x) {
    const auto f = [](VD v) {
        const VD h = erfc_positive(absolute(v));
        return choose(v < all(0), 2.0 - h, h);
    };
    return in_double(f, within(x, -10.25f, 10.25f));
}
INLINE V hypot_(V x, V y) {
    const V a = absolute(x), b = absolute(y);
    const V r = in_double([](VD u, VD v) { return root(fma(u, u, v * v)); }, a, b);
    return choose((a == bc(INFINITY)) | (b == bc(INFINITY)), bc(INFINITY), r);
}
INLINE V logaddexp_(V x, V y) {
    const auto f = [](VD a, VD b) {
        const VD top = choose(a < b, b, a);
        return top + log_of_1_plus(exponential(at_least(-absolute(a - b), -700)));
    };
    return choose((x == y) & (absolute(x) == bc(INFINITY)), x, with_nan(in_double(f, x, y), x, y));
}
INLINE V logaddexp2_(V x, V y) {
    const auto f = [](VD a, VD b) {
        const VD top = choose(a < b, b, a);
        return fma(log_of_1_plus(power_of_2(at_least(-absolute(a - b), -700))), all(LOG2E), top);
    };
    return choose((x == y) & (absolute(x) == bc(INFINITY)), x, with_nan(in_double(f, x, y), x, y));
}
INLINE V xlogy_(V x, V y) {
    const auto f = [](VD a, VD b) {
        return a * choose(b == all(INFINITY), b, choose(b > all(0), logarithm(b), all(-INFINITY)));
    };
    const V r = choose(y < bc(0), bc(NAN), in_double(f, x, y));
    return with_nan(choose((x == bc(0)) & (y == y), bc(0), r), x, y);
}
// Of a probability and its target, with logarithms of at least -100
INLINE V binary_cross_entropy_(V x, V t) {
    const auto f = [](VD p, VD target) {
        const VD none = choose(p < all(1), log_of_1_plus(-p), all(-100)),
                 one = choose(p > all(0), logarithm(p), all(-100));
        return (target - 1.0) * at_least(none, -100) - target * at_least(one, -100);
    };
    return with_nan(in_double(f, x, t), x, t);
}
INLINE V logit_(V x, double eps) {  // eps is NaN: without
    const auto f = [&](VD v) {
        const VD p = eps == eps ? at_most(at_least(v, eps), 1 - eps) : v;
        const VD q = p / (1.0 - p);
        const VD near =
            choose(absolute(p - 0.5) < all(0.1), log_of_1_plus((p + p - 1.0) / (1.0 - p)), logarithm(q));
        const VD ends = choose(p == all(0), all(-INFINITY), choose(p == all(1), all(INFINITY), near));
        return choose((p >= all(0)) & (p <= all(1)), ends, all(NAN));
    };
    return in_double(f, x);
}

// Activations and their derivatives. Where the formula is minus infinity times zero, the result is NaN, as in
// torch.

constexpr double SQRT_2 = 0x1.6a09e667f3bcdp+0, SQRT_HALF = SQRT_2 / 2,
                 NORMAL = 0x1.9884533d43651p-2;                      // 1 / sqrt(2 pi)
constexpr double CUBE = 0.044715, SQRT_2_PI = 0x1.9884533d43651p-1;  // sqrt(2 / pi)

// The normal distribution: `below`, its integral up to x, and its density; |x| <= 14.5
struct Normal {
    VD below, density;
};
INLINE Normal normal_at(VD x) {
    const VD a = absolute(x), e = exponential(x * x * -0.5);
    const VD tail = 0.5 * e * erfc_scaled((a - 4 * SQRT_2) / (a + 4 * SQRT_2));
    return {choose(x < all(0), tail, 1.0 - tail), e * NORMAL};
}
INLINE V minus_infinity_gives_nan(V x, V r) { return choose(x == bc(-INFINITY), bc(NAN), r); }
INLINE V gelu_(V x) {
    const auto f = [](VD v) { return v * normal_at(at_most(v, 14.5)).below; };
    return minus_infinity_gives_nan(x, in_double(f, at_least(x, -14.5f)));
}
INLINE V gelu_backward_(V g, V x) {
    const auto f = [](VD d, VD v) {
        const Normal n = normal_at(at_most(v, 14.5));
        return d * fma(at_most(v, 14.5), n.density, n.below);
    };
    return minus_infinity_gives_nan(x, in_double(f, g, at_least(x, -14.5f)));
}
// x / (1 + exp(-2u)), u = sqrt(2 / pi) (x + 0.044715 x^3): what x (1 + tanh(u)) / 2 is
INLINE VD tanh_exponent(VD x) { return (x * fma(x * x, all(CUBE), all(1))) * (2 * SQRT_2_PI); }
INLINE V gelu_tanh_(V x) {
    const auto f = [](VD v) { return v / (1.0 + exponential(limited(-tanh_exponent(v)))); };
    return minus_infinity_gives_nan(x, in_double(f, at_least(x, -100)));
}
INLINE V gelu_tanh_backward_(V g, V x) {
    const auto f = [](VD d, VD v) {
        const VD e = exponential(limited(-tanh_exponent(v))), s = 1.0 / (1.0 + e);
        const VD slope = fma(v * v, all(3 * CUBE), all(1)) * (2 * SQRT_2_PI);
        return d * (s * fma(v * slope, e * s, all(1)));
    };
    return minus_infinity_gives_nan(x, in_double(f, g, within(x, -100, 100)));
}
INLINE V silu_(V x) {
    const auto f = [](VD v) { return v / (1.0 + exponential(-at_most(v, 100))); };
    return minus_infinity_gives_nan(x, in_double(f, at_least(x, -130)));
}
INLINE V silu_backward_(V g, V x) {
    const auto f = [](VD d, VD v) {
        const VD e = exponential(-v), s = 1.0 / (1.0 + e);
        return d * (s * fma(v, e * s, all(1)));
    };
    return minus_infinity_gives_nan(x, in_double(f, g, within(x, -130, 100)));
}
// x tanh(log(1 + e^x)) = x n / (n + 2), n = e^x (e^x + 2)
INLINE V mish_(V x) {
    const auto f = [](VD v) {
        const VD e = exponential(at_most(v, 40)), n = e * (e + 2.0);
        return v * n / (n + 2.0);
    };
    return minus_infinity_gives_nan(x, in_double(f, at_least(x, -130)));
}
INLINE V mish_backward_(V g, V x) {
    const auto f = [](VD d, VD v) {
        const VD e = exponential(v), n = e * (e + 2.0), below = n + 2.0;
        return d * (fma(4.0 * v * e, e + 1.0, n * below) / (below * below));
    };
    return minus_infinity_gives_nan(x, in_double(f, g, within(x, -130, 40)));
}
INLINE V softplus_(V x, double beta, double threshold) {
    const auto f = [&](VD v) {
        const VD b = v * beta;
        return choose(b > all(threshold), v, log_of_1_plus(exponential(limited(b))) / beta);
    };
    return in_double(f, x);
}
INLINE V softplus_backward_(V g, V x, double beta, double threshold) {
    const auto f = [&](VD d, VD v) {
        const VD b = v * beta;
        return choose(b > all(threshold), d, d / (1.0 + exponential(limited(-b))));
    };
    return in_double(f, g, x);
}
INLINE V log_sigmoid_(V x) {
    const auto f = [](VD v) {
        return at_most(v, 0) - log_of_1_plus(exponential(at_least(-absolute(v), -700)));
    };
    return in_double(f, x);
}
INLINE V log_sigmoid_kept_(V x) { return exp_(-absolute(x)); }  // what torch keeps of it for its backward
INLINE V log_sigmoid_backward_(V g, V x) {
    return in_double([](VD d, VD v) { return d / (1.0 + exponential(limited(v))); }, g, x);
}
INLINE V elu_(V x, double alpha, double scale, double input_scale) {
    const auto f = [&](VD v) {
        return choose(
            v < all(0), power(at_least(v * input_scale, -700)).less_one() * (alpha * scale), v * scale);
    };
    return in_double(f, x);
}
INLINE V elu_backward_(V g, V x, double alpha, double scale, double input_scale, bool of_result) {
    const auto f = [&](VD d, VD v) {
        const VD e = of_result ? v + alpha * scale : (alpha * scale) * exponential(limited(v * input_scale));
        return choose(v <= all(0), d * input_scale * e, d * scale);
    };
    return in_double(f, g, x);
}
INLINE V tanh_backward_(V g, V y) {
    return in_double([](VD d, VD v) { return d * fma(-v, v, all(1)); }, g, y);
}
INLINE V sigmoid_backward_(V g, V y) {
    return in_double([](VD d, VD v) { return d * fma(-v, v, v); }, g, y);
}
INLINE V logit_backward_(V g, V x, double eps) {
    const auto f = [&](VD d, VD v) {
        const double least = eps == eps ? eps : 0, most = eps == eps ? 1 - eps : 1;
        const VL in = (v >= all(least)) & (v <= all(most));
        return choose(in, d / fma(-v, v, v), all(eps == eps ? 0 : NAN));
    };
    return in_double(f, g, x);
}

// Correctly rounded steps of float32, as they stand; FMA where torch leaves it to the compiler.
INLINE V smooth_l1_loss_backward_(V g, V x, V target, float norm, float beta) {
    const V d = x - target, one = bc(1), limit = bc(beta);
    return bc(norm) * choose(d <= -limit, -one, choose(d >= limit, one, d / limit)) * g;
}
INLINE V huber_loss_backward_(V g, V x, V target, float norm, float delta) {
    const V d = x - target, limit = bc(delta);
    return bc(norm) * choose(d < -limit, -limit, choose(d > limit, limit, d)) * g;
}

INLINE V sqrt_(V x) { return root(x); }
INLINE V rsqrt_(V x) { return bc(1) / root(x); }
INLINE V reciprocal_(V x) { return bc(1) / x; }
INLINE V add_(V x, V y, float alpha) { return fma(bc(alpha), y, x); }
INLINE V lerp_(V x, V end, V weight) {
    const V d = end - x;
    return choose(absolute(weight) < bc(0.5f), fma(weight, d, x), fma(weight - bc(1), d, end));
}
INLINE V addcmul_(V x, V a, V b, float value) { return fma(bc(value) * a, b, x); }
INLINE V addcdiv_(V x, V a, V b, float value) { return fma(bc(value), a / b, x); }
// x to a power that is the same for all
INLINE V cube_(V x) {
    return in_double([](VD v) { return v * v * v; }, x);
}
INLINE V inverse_square_(V x) {
    return in_double([](VD v) { return 1.0 / (v * v); }, x);
}

// What the library offers by name: y[i] = f(x0[i], x1[i], ...), and numbers that are the same for all
// elements. y may be one of the x.
template <class F, size_t... I>
INLINE void elementwise(long n, const float* const* x, float* y, F f, std::index_sequence<I...>) {
    long i = 0;
    for (; i + W <= n; i += W) st(y + i, one_nan(f(ld(x[I] + i)...)));
    if (i < n) st_some(y + i, one_nan(f(ld_some(x[I] + i, n - i)...)), n - i);
}
#define ALL(inputs, expression, ...)                                                            \
    [](long n, const float* const* in, const double* c, float* out) {                           \
        (void)c;                                                                                \
        elementwise(                                                                            \
            n, in, out, [&](__VA_ARGS__) __attribute__((always_inline)) { return expression; }, \
            std::make_index_sequence<inputs>());                                                \
    }
#define UNARY(name) {#name, ALL(1, name##_(x), V x)}
#define BINARY(name) {#name, ALL(2, name##_(x, y), V x, V y)}

// x^c by the steps that torch takes: 1/2, 2, 3 and so on are no logarithms
static void pow_number(long n, const float* const* in, const double* c, float* out) {
    const double p = c[0];
    const auto run = [&](auto f) { elementwise(n, in, out, f, std::make_index_sequence<1>()); };
    if (p == 0)
        run([](V) { return bc(1); });
    else if (p == 1)
        run([](V x) { return x; });
    else if (p == 2)
        run([](V x) { return x * x; });
    else if (p == 3)
        run(cube_);
    else if (p == 0.5)
        run(sqrt_);
    else if (p == -0.5)
        run(rsqrt_);
    else if (p == -1)
        run(reciprocal_);
    else if (p == -2)
        run(inverse_square_);
    else
        run([y = bc(float(p))](V x) { return pow_(x, y); });
}

static const Function functions[] = {
    UNARY(exp),
    UNARY(exp2),
    UNARY(expm1),
    UNARY(log),
    UNARY(log2),
    UNARY(log10),
    UNARY(log1p),
    UNARY(sin),
    UNARY(cos),
    UNARY(tan),
    UNARY(asin),
    UNARY(acos),
    UNARY(atan),
    UNARY(sinh),
    UNARY(cosh),
    UNARY(tanh),
    UNARY(asinh),
    UNARY(acosh),
    UNARY(atanh),
    UNARY(sigmoid),
    UNARY(erf),
    UNARY(erfc),
    UNARY(erfinv),
    UNARY(sqrt),
    UNARY(rsqrt),
    UNARY(reciprocal),
    UNARY(gelu),
    UNARY(gelu_tanh),
    UNARY(silu),
    UNARY(mish),
    UNARY(log_sigmoid),
    UNARY(log_sigmoid_kept),
    BINARY(pow),
    BINARY(atan2),
    BINARY(hypot),
    BINARY(logaddexp),
    BINARY(logaddexp2),
    BINARY(xlogy),
    BINARY(binary_cross_entropy),
    BINARY(gelu_backward),
    BINARY(gelu_tanh_backward),
    BINARY(silu_backward),
    BINARY(mish_backward),
    BINARY(log_sigmoid_backward),
    BINARY(tanh_backward),
    BINARY(sigmoid_backward),
    {"pow_number", pow_number},
    {"number_pow", ALL(1, pow_(bc(float(c[0])), x), V x)},
    {"logit", ALL(1, logit_(x, c[0]), V x)},
    {"logit_backward", ALL(2, logit_backward_(g, x, c[0]), V g, V x)},
    {"softplus", ALL(1, softplus_(x, c[0], c[1]), V x)},
    {"softplus_backward", ALL(2, softplus_backward_(g, x, c[0], c[1]), V g, V x)},
    {"elu", ALL(1, elu_(x, c[0], c[1], c[2]), V x)},
    {"elu_backward", ALL(2, elu_backward_(g, x, c[0], c[1], c[2], c[3] != 0), V g, V x)},
    {"add", ALL(2, add_(x, y, float(c[0])), V x, V y)},
    {"sub", ALL(2, add_(x, y, float(-c[0])), V x, V y)},
    {"rsub", ALL(2, add_(y, x, float(-c[0])), V x, V y)},
    {"lerp", ALL(3, lerp_(x, y, z), V x, V y, V z)},
    {"lerp_number", ALL(2, lerp_(x, y, bc(float(c[0]))), V x, V y)},
    {"addcmul", ALL(3, addcmul_(x, y, z, float(c[0])), V x, V y, V z)},
    {"smooth_l1_loss_backward",
        ALL(3, smooth_l1_loss_backward_(g, x, t, float(c[0]), float(c[1])), V g, V x, V t)},
    {"huber_loss_backward",
        ALL(3, huber_loss_backward_(g, x, t, float(c[0]), float(c[1])), V g, V x, V t)},
    {"addcdiv", ALL(3, addcdiv_(x, y, z, float(c[0])), V x, V y, V z)},
    {},
};
#undef ALL
#undef UNARY
#undef BINARY
