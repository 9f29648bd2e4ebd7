// Prints a hash of every function of one element, optimizer and normal distribution over numbers of all
// binades: to be compared between sets of instructions and compilers.
#include "functions.h"
#include "optimizers.h"
#include "random.h"

#include <cstdio>
#include <vector>

static uint64_t hash_of(const float* x, long n) {
    uint64_t h = 14695981039346656037u;
    for (long i = 0; i < n; ++i) {
        uint32_t bits;
        memcpy(&bits, x + i, 4);
        h = (h ^ bits) * 1099511628211u;
    }
    return h;
}

int main(int, char** arguments) {
    const uint64_t step = strtoull(arguments[1], nullptr, 10);
    host.threads = [] { return 1L; };
    std::vector<float> x[3];
    for (uint64_t bits = 0; bits < uint64_t(1) << 32; bits += step) {
        uint32_t k = uint32_t(bits);
        for (auto& list : x) {  // the second and third: in another order, and mostly of ordinary size
            float f;
            memcpy(&f, &k, 4);
            list.push_back(&list == x || k % 4 == 0 ? f : float(int32_t(k)) * 0x1p-28f);
            k = k * 1664525u + 1013904223u;
        }
    }
    const long n = long(x[0].size());
    const float* in[] = {x[0].data(), x[1].data(), x[2].data()};
    std::vector<float> y(n);
    const double numbers[] = {1.5, 1.25, 1, 0};
    for (const auto* f = functions; f->name; ++f) {
        f->of(n, in, numbers, y.data());
        printf("%s %016llx\n", f->name, (unsigned long long)hash_of(y.data(), n));
    }
    for (const double power : {0., 1., 2., 3., 0.5, -0.5, -1., -2., -3.}) {
        for (const auto* f = functions; f->name; ++f)
            if (!strcmp(f->name, "pow_number")) f->of(n, in, &power, y.data());
        printf("pow_number %g %016llx\n", power, (unsigned long long)hash_of(y.data(), n));
    }
    const auto print = [&](const char* name, const std::vector<float>& p) {
        printf("%s %016llx\n", name, (unsigned long long)hash_of(p.data(), n));
    };
    std::vector<float> p = x[1], g = x[2], a(n), b(n), c(n);
    for (int i = 0; i < 3; ++i)
        sgd({{0.1f, 1, i == 1}, 0.1f, 0.9f, 0.5f, i == 2, i == 0}, n, p.data(), g.data(), a.data());
    print("sgd", p);
    p = x[1], a.assign(n, 0);
    for (int i = 0; i < 3; ++i)
        adam({{0.1f, 2, false}, 0.99f, 0.1f, 0.1f, 0.999f, 0.001f, 0.5f, 1e-8f}, n, p.data(), g.data(),
            a.data(), b.data(), i ? c.data() : nullptr);
    print("adam", p);
    p = x[1], a.assign(n, 0);
    for (int i = 0; i < 3; ++i) adagrad({{0.1f, 1, true}, 0.1f, 1e-8f}, n, p.data(), g.data(), a.data());
    print("adagrad", p);
    std::vector<float> u(160000);
    for (uint32_t i = 0, k = 1; i < u.size(); ++i, k = k * 1664525u + 1013904223u)
        u[i] = float(k >> 8) * 0x1p-24f;
    normal_blocks(long(u.size()), u.data(), 0.5, 2);
    printf("normal_blocks %016llx\n", (unsigned long long)hash_of(u.data(), long(u.size())));
    double pair[2];
    normal_pair(0.3, 0.7, pair, pair + 1);
    printf("normal_pair %a %a\n", pair[0], pair[1]);
}
