// One hardware vector of W floats. What stands above it is written once for every instruction set: only W,
// the spelling of an FMA and that of a square root differ. All of these are rounded correctly, so that the
// bits of a result never depend on W. Compiled with -ffp-contract=off: an FMA is one only where it is
// written.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__AVX512F__)
#include <immintrin.h>
constexpr int W = 16;
#elif defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
constexpr int W = 8;
#elif defined(__aarch64__)
#include <arm_neon.h>
constexpr int W = 4;
#else
#error "an instruction set with FMA is needed: AVX2, AVX-512 or ARMv8"
#endif

typedef float V __attribute__((vector_size(4 * W)));
typedef int32_t VI __attribute__((vector_size(4 * W)));
typedef float VU __attribute__((vector_size(4 * W), aligned(4), may_alias));
typedef float V8 __attribute__((vector_size(32)));
typedef float V8U __attribute__((vector_size(32), aligned(4), may_alias));

#define INLINE static inline __attribute__((always_inline))

INLINE V ld(const float* p) { return *reinterpret_cast<const VU*>(p); }
INLINE void st(float* p, V v) { *reinterpret_cast<VU*>(p) = v; }

#if defined(__AVX512F__)
INLINE V bc(float x) { return (V)_mm512_set1_ps(x); }
INLINE V fma(V a, V b, V c) { return (V)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
INLINE V root(V a) { return (V)_mm512_sqrt_ps((__m512)a); }
#elif defined(__AVX2__)
INLINE V bc(float x) { return (V)_mm256_set1_ps(x); }
INLINE V fma(V a, V b, V c) { return (V)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
INLINE V root(V a) { return (V)_mm256_sqrt_ps((__m256)a); }
#else
INLINE V bc(float x) { return vdupq_n_f32(x); }
INLINE V fma(V a, V b, V c) { return vfmaq_f32(c, a, b); }
INLINE V root(V a) { return vsqrtq_f32(a); }
#endif

INLINE VI bci(int32_t x) { return x - VI{}; }
INLINE V pick(VI mask, V a, V b) { return (V)((mask & (VI)a) | (~mask & (VI)b)); }
INLINE V absolute(V a) { return (V)((VI)a & bci(0x7fffffff)); }
INLINE V sign_of(V a, V s) { return (V)(((VI)a & bci(0x7fffffff)) | ((VI)s & bci(int32_t(0x80000000)))); }

// Lane l with lane l + n/2, then l + n/4, ..., l + 1; and whether a comparison holds anywhere.
template <class Join>
INLINE float across(V v, Join join) {
#if defined(__aarch64__)
    const float32x2_t pair = join(vget_low_f32(v), vget_high_f32(v));
    return join(pair, vdup_lane_f32(pair, 1))[0];
#else
#if defined(__AVX512F__)
    const __m256 eight = join(_mm512_castps512_ps256((__m512)v), _mm512_extractf32x8_ps((__m512)v, 1));
#else
    const __m256 eight = (__m256)v;
#endif
    __m128 four = join(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = join(four, _mm_movehl_ps(four, four));
    return join(four, _mm_movehdup_ps(four))[0];
#endif
}
INLINE float sum_across(V v) {
    return across(v, [](auto a, auto b) { return a + b; });
}
INLINE float largest_across(V v) {
    return across(v, [](auto a, auto b) { return a > b ? a : b; });
}
#if defined(__AVX512F__)
INLINE bool any(VI mask) { return _mm512_movepi32_mask((__m512i)mask); }
#elif defined(__AVX2__)
INLINE bool any(VI mask) { return _mm256_movemask_ps((__m256)mask); }
#else
INLINE bool any(VI mask) { return vmaxvq_u32((uint32x4_t)mask); }
#endif

// The first n floats, at most W, and `fill` for the others.
#if defined(__AVX512F__)
INLINE __mmask16 first(long n) { return __mmask16((1u << std::clamp(n, 0L, 16L)) - 1); }
INLINE V ld_some(const float* p, long n, float fill = 0) {
    return (V)_mm512_mask_loadu_ps((__m512)bc(fill), first(n), p);
}
INLINE void st_some(float* p, V v, long n) { _mm512_mask_storeu_ps(p, first(n), (__m512)v); }
#elif defined(__AVX2__)
INLINE VI first(long n) { return VI{0, 1, 2, 3, 4, 5, 6, 7} < bci(int32_t(std::clamp(n, 0L, 8L))); }
INLINE V ld_some(const float* p, long n, float fill = 0) {
    return pick(first(n), (V)_mm256_maskload_ps(p, (__m256i)first(n)), bc(fill));
}
INLINE void st_some(float* p, V v, long n) { _mm256_maskstore_ps(p, (__m256i)first(n), (__m256)v); }
#else
INLINE V ld_some(const float* p, long n, float fill = 0) {
    float t[W];
    for (int i = 0; i < W; ++i) t[i] = i < n ? p[i] : fill;
    return ld(t);
}
INLINE void st_some(float* p, V v, long n) {
    for (int i = 0; i < n; ++i) p[i] = v[i];
}
#endif

// y[i] = f(x[i], ...) for i < n: f takes and gives vectors.
template <class F, class... X>
static inline void each(float* y, long n, F f, const X*... x) {
    long i = 0;
    for (; i + W <= n; i += W) st(y + i, f(ld(x + i)...));
    if (i < n) st_some(y + i, f(ld_some(x + i, n - i)...), n - i);
}
