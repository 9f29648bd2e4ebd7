// One hardware vector of W floats. What stands above it is written once for every instruction set: only W, the
// spelling of an FMA and that of a square root differ. All of these are rounded correctly, so that the bits of
// a result never depend on W. Compiled with -ffp-contract=off: an FMA is one only where it is written.
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
INLINE V sign_of(V a, V s) {
    return (V)(((VI)a & bci(0x7fffffff)) | ((VI)s & bci(int32_t(0x80000000))));
}

// The first n < W floats, and `fill` for the others.
INLINE V ld_some(const float* p, long n, float fill = 0) {
    float t[W];
    for (int i = 0; i < W; ++i) t[i] = i < n ? p[i] : fill;
    return ld(t);
}
INLINE void st_some(float* p, V v, long n) {
    float t[W];
    st(t, v);
    memcpy(p, t, n * sizeof(float));
}

// y[i] = f(x[i], ...) for i < n: f takes and gives vectors.
template <class F, class... X>
static inline void each(float* y, long n, F f, const X*... x) {
    long i = 0;
    for (; i + W <= n; i += W) st(y + i, f(ld(x + i)...));
    if (i < n) st_some(y + i, f(ld_some(x + i, n - i)...), n - i);
}
