// Work on several threads. How it is split never shows in the bits.
#pragma once
#include "table.h"
#include <algorithm>
#include <cstdlib>
#include <memory>

static Host host;

// Calls work(0) ... work(count - 1), in any order, on as many threads as there are.
template <class Work>
static void parallel(long count, const Work& work) {
    if (count <= 1 || host.threads() <= 1) {
        for (long i = 0; i < count; ++i) work(i);
        return;
    }
    host.run(count, [](const void* data, long i) { (*static_cast<const Work*>(data))(i); }, &work);
}

// Calls work(begin, end) for shares of 0 ... count - 1 of at least `grain` each.
template <class Work>
static void shared(long count, long grain, const Work& work) {
    const long shares = std::max(1L, std::min(host.threads(), count / std::max(grain, 1L)));
    parallel(shares, [&](long i) { work(count * i / shares, count * (i + 1) / shares); });
}

// Memory of a thread, kept for the next use.
struct Scratch {
    float* data = nullptr;
    size_t size = 0;
    ~Scratch() { free(data); }
    float* get(size_t n) {
        if (n > size) {
            free(data);
            size = (n * 4 + 4095) / 4096 * 1024;
            data = static_cast<float*>(aligned_alloc(4096, size * 4));
            if (!data) {
                size = 0;
                throw std::bad_alloc();
            }
        }
        return data;
    }
};
