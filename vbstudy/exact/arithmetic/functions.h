// Functions of one element (a first few; the rest follows).
#pragma once
#include "vec.h"

INLINE V exp_(V x) {
    const V magic = bc(12582912.f);
    V clamped = pick(x > bc(89.f), bc(89.f), x);
    clamped = pick(clamped < bc(-104.f), bc(-104.f), clamped);
    V j = fma(clamped, bc(1.44269502f), magic);
    const VI whole = (VI)j - bci(0x4b400000);
    j = j - magic;
    V f = fma(j, bc(-6.93145752e-1f), clamped);
    f = fma(j, bc(-1.42860677e-6f), f);
    V r = bc(1.37805939e-3f);
    r = fma(r, f, bc(8.37312452e-3f));
    r = fma(r, f, bc(4.16695364e-2f));
    r = fma(r, f, bc(1.66664720e-1f));
    r = fma(r, f, bc(4.99999851e-1f));
    r = fma(r, f, bc(1.f));
    r = fma(r, f, bc(1.f));
    const VI half = whole >> 1;
    const V a = (V)((half + bci(127)) << 23), b = (V)((whole - half + bci(127)) << 23);
    return r * a * b;
}

INLINE V log_(V x) {
    const VI tiny = x < bc(1.17549435e-38f);
    const V a = pick(tiny, x * bc(8388608.f), x);
    const VI e = ((VI)a - bci(0x3f2aaaab)) & bci(int32_t(0xff800000));
    const V m = (V)((VI)a - e);
    const V i = __builtin_convertvector(e >> 23, V) + pick(tiny, bc(-23.f), bc(0.f));
    const V f = m - bc(1.f), s = f * f;
    V r = bc(-0.130310059f), t = bc(0.140869141f);
    r = fma(r, s, bc(-0.121483989f));
    t = fma(t, s, bc(0.139814854f));
    r = fma(r, s, bc(-0.166846052f));
    t = fma(t, s, bc(0.200120345f));
    r = fma(r, s, bc(-0.249996200f));
    r = fma(t, f, r);
    r = fma(r, f, bc(0.333331972f));
    r = fma(r, f, bc(-0.5f));
    r = fma(r, s, f);
    r = fma(i, bc(0.693147182f), r);
    r = pick(x == bc(INFINITY), x, r);
    r = pick(x == bc(0.f), bc(-INFINITY), r);
    return pick(~(x >= bc(0.f)), (V)bci(0x7fc00000), r);
}

INLINE V sigmoid_(V x) { return bc(1.f) / (bc(1.f) + exp_(-x)); }

INLINE V tanh_(V x) {
    const V a = absolute(x), s = x * x;
    V r = bc(1.57394409e-2f);
    r = fma(r, s, bc(-5.23025580e-2f));
    r = fma(r, s, bc(1.33152470e-1f));
    r = fma(r, s, bc(-3.33327681e-1f));
    r = r * s;
    r = fma(r, x, x);
    const V large = sign_of(bc(1.f) - bc(2.f) / (exp_(a + a) + bc(1.f)), x);
    return pick(a > bc(0.55f), large, r);
}
