// Level machine: operations in float32 by an arithmetic of our own (`arithmetic/`), whose bits depend on
// nothing but the inputs. Here its kernels meet torch's operations: each function below takes an operation's
// arguments and gives its results, or says that they are not its own: other types, devices, layouts, and
// mistakes, which are left to torch.
#pragma once

#include "arithmetic/table.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/TensorUtils.h>
#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/ops/_adaptive_avg_pool2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/stack.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <bitset>
#include <exception>
#include <limits>
#include <map>
#include <string>
#include <vector>

extern "C" {  // of the OpenMP library that torch has loaded
void GOMP_parallel(void (*work)(void*), void* data, unsigned threads, unsigned flags);
int omp_get_max_threads();
int omp_get_num_threads();
int omp_get_thread_num();
void omp_set_num_threads(int);
}

namespace machine {

using at::IntArrayRef;
using at::Tensor;
using torch::jit::Stack;

const Kernels* kernels = nullptr;

// Subnormal numbers are kept. torch.set_flush_denormal, and libraries that were compiled with -ffast-math, make
// single threads take them for zeros, so that a thread's share would show in the bits.
void keep_subnormals() { at::globalContext().setFlushDenormal(false); }
bool flushes_subnormals() {
    const volatile float tiny = 1e-40f;
    return tiny * 1 == 0;
}

long threads() { return at::in_parallel_region() ? 1 : at::get_num_threads(); }

// Calls work(0) ... work(count - 1), on as many threads as torch may use. As at::parallel_for does it, but
// without a compiler's OpenMP: clang's has a library of its own, a second one in the process.
template <class Work>
void in_threads(long count, const Work& work) {
    struct Team {
        long count;
        const Work& work;
        std::atomic_flag failed = ATOMIC_FLAG_INIT;
        std::exception_ptr problem = nullptr;
    } team{count, work};
    const auto member = [](void* data) {
        auto& team = *static_cast<Team*>(data);
        const int thread = omp_get_thread_num(), threads = omp_get_num_threads();
        at::internal::ThreadIdGuard number(thread);
        c10::ParallelGuard parallel(true);
        keep_subnormals();
        try {
            for (long i = thread; i < team.count; i += threads) team.work(i);
        } catch (...) {
            if (!team.failed.test_and_set()) team.problem = std::current_exception();
        }
    };
    if (count <= 1 || at::in_parallel_region() || at::get_num_threads() == 1) {
        for (long i = 0; i < count; ++i) work(i);
        return;
    }
    GOMP_parallel(member, &team, 0, 0);
    if (team.problem) std::rethrow_exception(team.problem);
}

void run(long count, void (*work)(const void*, long), const void* data) {
    std::atomic<long> next{0};
    in_threads(std::min<long>(count, at::get_num_threads()), [&](long) {
        for (long i; (i = next.fetch_add(1)) < count;) work(data, i);
    });
}

constexpr Host HOST{threads, run};

// An operation's arguments, and where its results go.
class Call {
public:
    Call(Stack& stack, size_t arguments) : stack_(stack), size_(arguments) {}
    const c10::IValue& operator[](size_t i) const { return torch::jit::peek(stack_, i, size_); }

    // float32, on the CPU, dense, with elements
    bool ours(std::initializer_list<size_t> arguments) const {
        return std::all_of(arguments.begin(), arguments.end(),
            [&](size_t i) { return (*this)[i].isTensor() && is_ours((*this)[i].toTensor()); });
    }
    bool ours_or_none(std::initializer_list<size_t> arguments) const {
        return std::all_of(
            arguments.begin(), arguments.end(), [&](size_t i) { return is_none(i) || ours({i}); });
    }
    bool is_none(size_t i) const {
        const auto& v = (*this)[i];
        return v.isNone() || (v.isTensor() && !v.toTensor().defined());
    }
    Tensor tensor(size_t i) const { return (*this)[i].toTensor(); }
    Tensor dense(size_t i) const { return tensor(i).contiguous(); }
    Tensor dense_or_none(size_t i) const { return is_none(i) ? Tensor() : dense(i); }
    float number(size_t i) const { return (*this)[i].toScalar().toFloat(); }

    std::vector<c10::IValue> results;

    static bool is_ours(const Tensor& t, at::ScalarType type = at::kFloat) {
        return t.scalar_type() == type && t.device().is_cpu() && t.layout() == at::kStrided && !t.is_neg() &&
               t.numel() > 0 && !t.is_quantized();
    }

private:
    Stack& stack_;
    size_t size_;
};

using Own = bool (*)(Call&);

const float* in(const Tensor& t) { return t.defined() ? t.const_data_ptr<float>() : nullptr; }
float* out(const Tensor& t) { return t.defined() ? t.mutable_data_ptr<float>() : nullptr; }
Tensor made(IntArrayRef sizes, const Tensor& like) {
    return at::empty(sizes, like.options().memory_format(at::MemoryFormat::Contiguous));
}
Tensor made_if(bool wanted, IntArrayRef sizes, const Tensor& like) {
    return wanted ? made(sizes, like) : Tensor();
}

// y[i] = f(y[i]): of a contiguous tensor
template <class F>
void replace_each(const Tensor& y, const F& f) {
    float* const values = out(y);
    for (long i = 0, n = y.numel(); i < n; ++i) values[i] = f(values[i]);
}

// Products

Matrix matrix(const Tensor& t) { return {in(t), t.stride(-2), t.stride(-1)}; }

// In bfloat16 too: as in float32, and rounded once.
bool product(Call& call, size_t a_at, size_t b_at, bool batched, bool added) {
    const auto type = call.tensor(a_at).scalar_type();
    if (type != at::kFloat && type != at::kBFloat16) return false;
    for (const size_t i : {a_at, b_at, added ? 0 : b_at})
        if (!Call::is_ours(call.tensor(i), type)) return false;
    const auto a = call.tensor(a_at).to(at::kFloat), b = call.tensor(b_at).to(at::kFloat);
    const long dims = batched ? 3 : 2;
    if (a.dim() != dims || b.dim() != dims || a.size(-1) != b.size(-2) || (batched && a.size(0) != b.size(0)))
        return false;
    auto sizes = a.sizes().vec();
    sizes.back() = b.size(-1);
    Addition addition{};
    Tensor bias;
    if (added) {
        bias = call.tensor(0).to(at::kFloat);
        if (bias.dim() > dims || !at::is_expandable_to(bias.sizes(), sizes)) return false;
        bias = bias.expand(sizes);
        addition = {matrix(bias), call.number(a_at + 3), call.number(a_at + 2)};
        if (addition.beta == 0) addition.bias.data = nullptr;  // its NaN do not count
    }
    const auto c = made(sizes, a);
    kernels->product(batched ? sizes[0] : 1, sizes[dims - 2], sizes[dims - 1], a.size(-1), matrix(a),
        batched ? a.stride(0) : 0, matrix(b), batched ? b.stride(0) : 0, out(c), sizes[dims - 1],
        sizes[dims - 2] * sizes[dims - 1], added ? &addition : nullptr,
        batched && added ? bias.stride(0) : 0);
    call.results = {c.to(type)};
    return true;
}

bool mm(Call& call) { return product(call, 0, 1, false, false); }
bool bmm(Call& call) { return product(call, 0, 1, true, false); }
bool addmm(Call& call) { return product(call, 1, 2, false, true); }
bool baddbmm(Call& call) { return product(call, 1, 2, true, true); }

bool matrix_vector(Call& call, size_t at, bool added) {
    if (!call.ours({at, at + 1}) || (added && !call.ours({0}))) return false;
    const auto a = call.tensor(at), x = call.tensor(at + 1);
    if (a.dim() != 2 || x.dim() != 1 || a.size(1) != x.size(0)) return false;
    Addition addition{};
    Tensor bias;
    if (added) {
        bias = call.tensor(0);
        if (bias.dim() > 1 || !at::is_expandable_to(bias.sizes(), {a.size(0)})) return false;
        bias = bias.expand({a.size(0)});
        addition = {{in(bias), bias.stride(0), 0}, call.number(at + 3), call.number(at + 2)};
        if (addition.beta == 0) addition.bias.data = nullptr;
    }
    const auto y = made({a.size(0)}, a);
    kernels->product(1, a.size(0), 1, a.size(1), matrix(a), 0, {in(x), x.stride(0), 0}, 0, out(y), 1, 0,
        added ? &addition : nullptr, 0);
    call.results = {y};
    return true;
}

bool mv(Call& call) { return matrix_vector(call, 0, false); }
bool addmv(Call& call) { return matrix_vector(call, 1, true); }

bool dot(Call& call) {
    if (!call.ours({0, 1})) return false;
    const auto x = call.dense(0), y = call.dense(1);
    if (x.dim() != 1 || y.dim() != 1 || x.size(0) != y.size(0)) return false;
    const auto sum = made({}, x);
    *out(sum) = kernels->row_product(in(x), in(y), x.size(0));
    call.results = {sum};
    return true;
}

// Convolutions

bool channels_last(const Tensor& t) {
    return t.suggest_memory_format() == at::MemoryFormat::ChannelsLast ||
           t.suggest_memory_format() == at::MemoryFormat::ChannelsLast3d;
}

at::MemoryFormat last_of(const Tensor& t) {
    return t.dim() == 5 ? at::MemoryFormat::ChannelsLast3d : at::MemoryFormat::ChannelsLast;
}

// Dense, with channels last or not.
Tensor dense_in(const Tensor& t, bool last) {
    return last && t.dim() > 3 ? t.contiguous(last_of(t)) : t.contiguous();
}

Tensor made_in(IntArrayRef sizes, const Tensor& like, bool last) {
    const auto format = !last || sizes.size() < 4 ? at::MemoryFormat::Contiguous
                        : sizes.size() == 5       ? at::MemoryFormat::ChannelsLast3d
                                                  : at::MemoryFormat::ChannelsLast;
    return at::empty(sizes, like.options().memory_format(format));
}

// Weights as planes, and back.
Tensor planes(const Tensor& w) {
    if (w.is_contiguous() || w.dim() < 4 || !w.is_contiguous(last_of(w))) return w.contiguous();
    const auto y = made(w.sizes(), w);
    kernels->turn(in(w), w.size(0), w.numel() / w.size(0) / w.size(1), w.size(1), out(y));
    return y;
}

Tensor with_channels_last(const Tensor& w) {
    const auto y = made_in(w.sizes(), w, true);
    kernels->turn(in(w), w.size(0), w.size(1), w.numel() / w.size(0) / w.size(1), out(y));
    return y;
}

// A value for each dimension, also where one is given for all; -1, which fits none, where their number is
// wrong.
std::vector<int64_t> of_dims(const c10::IValue& given, size_t dims) {
    auto values = given.toIntVector();
    if (values.size() == 1) values.resize(dims, values[0]);
    if (values.size() != dims) values.assign(dims, -1);
    return values;
}

// Whether the kernels' places in padded samples are within `int`: of one sample, or of the samples with together 256
// places whose gradient of the weights is one part.
bool fits(const Convolution& s) {
    double x = double(s.inputs), y = double(s.outputs), places = 1;
    for (int d = 0; d < 3; ++d) {
        const long reach = (s.kernel[d] - 1) * s.dilation[d];
        x *= double(s.in[d] + 2 * s.padding[d] + s.stride[d]);
        y *= double((s.in[d] + s.padding[d]) / s.stride[d] + 1 + reach);
        places *= double(s.out[d]);
    }
    return std::max(x * std::max(1.0, 256 / places), y) < double(std::numeric_limits<int>::max());
}

// As for a convolution from x to y, both (sample, channel, places...).
bool shape_of(IntArrayRef x, IntArrayRef y, IntArrayRef w, const std::vector<int64_t>& stride,
    const std::vector<int64_t>& padding, const std::vector<int64_t>& dilation, int64_t groups,
    Convolution& s) {
    const long dims = long(x.size()) - 2;
    if (groups < 1 || y[1] % groups || x[1] % groups || w[0] != y[1] || w[1] != x[1] / groups) return false;
    s = {x[0], groups, x[1] / groups, y[1] / groups, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0},
        {1, 1, 1}, false};
    for (long d = 0; d < dims; ++d) {
        const long at = 3 - dims + d;
        s.in[at] = x[d + 2];
        s.out[at] = y[d + 2];
        s.kernel[at] = w[d + 2];
        s.stride[at] = stride[d];
        s.padding[at] = padding[d];
        s.dilation[at] = dilation[d];
        if (s.stride[at] < 1 || s.padding[at] < 0 || s.dilation[at] < 1 || s.kernel[at] < 1 ||
            s.out[at] < 1 ||
            (s.out[at] - 1) * s.stride[at] + (s.kernel[at] - 1) * s.dilation[at] + 1 >
                s.in[at] + 2 * s.padding[at])
            return false;
    }
    return fits(s);
}

bool convolution(Call& call) {
    if (!call.ours({0, 1}) || !call.ours_or_none({2})) return false;
    const auto x = call.tensor(0), w = call.tensor(1);
    const int64_t groups = call[8].toInt(), dims = x.dim() - 2;
    if (dims < 1 || dims > 3 || w.dim() != x.dim()) return false;
    const auto stride = of_dims(call[3], dims), padding = of_dims(call[4], dims),
               dilation = of_dims(call[5], dims), extra = of_dims(call[7], dims);
    const bool transposed = call[6].toBool();
    std::vector<int64_t> sizes{x.size(0), transposed ? w.size(1) * groups : w.size(0)};
    for (long d = 0; d < dims; ++d) {
        if (stride[d] < 1 || extra[d] < 0) return false;
        if (transposed && extra[d] >= std::max(stride[d], dilation[d])) return false;
        const long reach = dilation[d] * (w.size(d + 2) - 1) + 1;
        sizes.push_back(transposed ? (x.size(d + 2) - 1) * stride[d] - 2 * padding[d] + reach + extra[d]
                                   : (x.size(d + 2) + 2 * padding[d] - reach) / stride[d] + 1);
        if (sizes.back() < 1) return false;
    }
    const auto bias = call.dense_or_none(2);
    if (bias.defined() && (bias.dim() != 1 || bias.size(0) != sizes[1])) return false;
    Convolution s;
    if (transposed ? !shape_of(sizes, x.sizes(), w.sizes(), stride, padding, dilation, groups, s)
                   : !shape_of(x.sizes(), sizes, w.sizes(), stride, padding, dilation, groups, s))
        return false;
    s.last = (channels_last(x) || channels_last(w)) && dims > 1;
    const auto xc = dense_in(x, s.last), wc = planes(w);
    auto y = made_in(sizes, x, s.last);
    if (transposed) {
        kernels->convolution_input(s, in(xc), in(wc), out(y));
        if (bias.defined()) {
            std::vector<int64_t> shape(x.dim(), 1);
            shape[1] = sizes[1];
            y.add_(bias.view(shape));
        }
    } else {
        kernels->convolution(s, in(xc), in(wc), in(bias), out(y));
    }
    call.results = {y};
    return true;
}

using Dims = std::bitset<at::dim_bitset_size>;

Tensor sum_over(const Tensor& t, Dims gone, bool keep);

bool convolution_backward(Call& call) {
    if (!call.ours({0, 1, 2})) return false;
    const auto dy = call.tensor(0), x = call.tensor(1), w = call.tensor(2);
    const bool transposed = call[7].toBool();
    const int64_t groups = call[9].toInt(), dims = x.dim() - 2;
    const auto wanted = call[10].toBoolList();
    if (dims < 1 || dims > 3 || w.dim() != x.dim() || dy.dim() != x.dim() || dy.size(0) != x.size(0))
        return false;
    const auto stride = of_dims(call[4], dims), padding = of_dims(call[5], dims),
               dilation = of_dims(call[6], dims);
    Convolution s;
    if (transposed ? !shape_of(dy.sizes(), x.sizes(), w.sizes(), stride, padding, dilation, groups, s)
                   : !shape_of(x.sizes(), dy.sizes(), w.sizes(), stride, padding, dilation, groups, s))
        return false;
    s.last = (channels_last(x) || channels_last(w)) && dims > 1;
    const auto g = dense_in(dy, s.last), xc = dense_in(x, s.last), wc = planes(w);
    Tensor dx, dw, db;
    if (wanted[0]) {
        dx = made_in(x.sizes(), x, s.last);
        if (transposed)
            kernels->convolution(s, in(g), in(wc), nullptr, out(dx));
        else
            kernels->convolution_input(s, in(g), in(wc), out(dx));
    }
    if (wanted[1]) {
        dw = made(w.sizes(), w);
        if (transposed)
            kernels->convolution_weight(s, in(g), in(xc), out(dw));
        else
            kernels->convolution_weight(s, in(xc), in(g), out(dw));
    }
    if (wanted[2]) db = sum_over(g, Dims().set().reset(1), false);
    call.results = {dx, s.last && dw.defined() ? with_channels_last(dw) : dw, db};
    return true;
}

// torch divides a window's sum by height and width one after the other where images are contiguous, and by their
// product where channels are last: here all are computed as contiguous ones.
bool adaptive_pool(Call& call) {
    const auto x = call.tensor(0);
    if (!call.ours({0}) || !channels_last(x)) return false;
    const auto y = at::_adaptive_avg_pool2d(x.clone(at::MemoryFormat::Contiguous), call[1].toIntVector());
    call.results = {y.contiguous(at::MemoryFormat::ChannelsLast)};
    return true;
}

// Sums

// Innermost dimensions that are summed are rows; outer ones are columns, one run of dimensions after the
// other.
Tensor sum_over(const Tensor& t, Dims gone, bool keep) {
    std::vector<int64_t> sizes = t.sizes().vec();
    Tensor x = t.contiguous();
    const long dims = x.dim();
    bool summed = false;
    for (long end = dims; end > 0;) {
        if (!gone[end - 1]) {
            --end;
            continue;
        }
        long begin = end;
        while (begin > 0 && gone[begin - 1]) --begin;
        long before = 1, middle = 1, after = 1;
        for (long d = 0; d < dims; ++d) (d < begin ? before : d < end ? middle : after) *= sizes[d];
        if (middle > 1 || !summed) {
            for (long d = begin; d < end; ++d) sizes[d] = 1;
            const auto y = made(sizes, x);
            if (after == 1)
                kernels->sum_rows(SUM, in(x), before, middle, out(y));
            else
                kernels->sum_columns(in(x), before, middle, after, out(y));
            x = y;
            summed = true;
        }
        end = begin;
    }
    if (keep) return x;
    std::vector<int64_t> kept;
    for (long d = 0; d < dims; ++d)
        if (!gone[d]) kept.push_back(sizes[d]);
    return x.view(kept);
}

// Which dimensions are named; all where none is.
Dims dims_of(const c10::IValue& named, long dims) {
    if (named.isNone() || named.toIntList().empty()) return Dims().set();
    return at::dim_list_to_bitset(named.toIntVector(), dims);
}

bool keeps_type(const c10::IValue& type) { return type.isNone() || type.toScalarType() == at::kFloat; }

bool sum_named(Call& call, const c10::IValue& named, bool keep, const c10::IValue& type, bool mean) {
    if (!call.ours({0}) || !keeps_type(type)) return false;
    const auto number = call.tensor(0).dim() == 0;  // a row of one element
    const auto x = number ? call.tensor(0).view(1) : call.tensor(0),
               y = sum_over(x, dims_of(named, x.dim()), keep && !number);
    if (mean) {
        const float count = float(x.numel() / y.numel());
        replace_each(y, [&](float sum) { return sum / count; });
    }
    call.results = {y};
    return true;
}

bool sum(Call& call) { return sum_named(call, {}, false, call[1], false); }
bool sum_dims(Call& call) { return sum_named(call, call[1], call[2].toBool(), call[3], false); }
bool mean(Call& call) { return sum_named(call, {}, false, call[1], true); }
bool mean_dims(Call& call) { return sum_named(call, call[1], call[2].toBool(), call[3], true); }

// Dimensions that go are moved to the end: rows. `results` has a place for each.
struct Rows {
    Tensor elements, results;
    long length() const { return elements.numel() / results.numel(); }
    void sum(int what) const {
        kernels->sum_rows(what, in(elements), results.numel(), length(), out(results));
    }
};
Rows rows_of(const Tensor& x, const c10::IValue& named, bool keep) {
    const auto gone = dims_of(named, x.dim());
    std::vector<int64_t> kept, sizes;
    for (long d = 0; d < x.dim(); ++d) {
        if (!gone[d]) kept.push_back(d);
        if (!gone[d] || keep) sizes.push_back(gone[d] ? 1 : x.size(d));
    }
    for (long d = 0; d < x.dim(); ++d)
        if (gone[d]) kept.push_back(d);
    return {x.permute(kept).contiguous(), made(sizes, x)};
}

bool vector_norm(Call& call) {
    if (!call.ours({0}) || !keeps_type(call[4]) || call[1].toScalar().isComplex()) return false;
    const double order = call[1].toScalar().toDouble();
    const auto x = call.tensor(0);
    if (order != 1 && order != 2) return false;
    const auto rows = rows_of(x, call[2], call[3].toBool());
    const auto& y = rows.results;
    rows.sum(order == 1 ? MAGNITUDES : SQUARES);
    if (order == 2) replace_each(y, [](float squares) { return __builtin_sqrtf(squares); });
    call.results = {y};
    return true;
}

// self, dim, correction, keepdim
template <bool ROOT, bool MEAN>
bool variance(Call& call) {
    if (!call.ours({0})) return false;
    const auto rows = rows_of(call.tensor(0), call[1], call[3].toBool());
    const auto& y = rows.results;
    const double correction = call[2].isNone() ? 1 : call[2].toScalar().toDouble();
    const double freedom = double(rows.length()) - correction;
    if (!(freedom > 0)) return false;  // no number, and torch's warning
    kernels->variance_rows(ROOT, in(rows.elements), y.numel(), rows.length(), float(freedom), out(y));
    call.results = {y};
    if (MEAN) {
        const Rows means{rows.elements, made(y.sizes(), y)};
        means.sum(SUM);
        const float count = float(rows.length());
        replace_each(means.results, [&](float sum) { return sum / count; });
        call.results.push_back(means.results);
    }
    return true;
}

// Normalisations

bool plain(const Tensor& t, long size) {
    return !t.defined() || (t.dim() == 1 && t.size(0) == size && t.is_contiguous());
}

Tensor inverse_of(const Tensor& variance, double eps) {
    const auto f = made(variance.sizes(), variance);
    for (long c = 0; c < f.numel(); ++c) out(f)[c] = 1.f / __builtin_sqrtf(in(variance)[c] + float(eps));
    return f;
}

bool batch_norm_of(Call& call, size_t mean_at, bool stats, bool training, double momentum, double eps) {
    if (!call.ours({0}) || !call.ours_or_none({1, 2})) return false;
    if (stats && !call.ours_or_none({mean_at, mean_at + 1})) return false;
    const auto x = call.tensor(0);
    if (x.dim() < 2) return false;
    const long channels = x.size(1);
    const auto w = call.dense_or_none(1), b = call.dense_or_none(2);
    const auto of = [&](size_t i) { return !stats || call[i].isNone() ? Tensor() : call[i].toTensor(); };
    const auto running_mean = of(mean_at), running_variance = of(mean_at + 1);
    if (!plain(w, channels) || !plain(b, channels) || !plain(running_mean, channels) ||
        !plain(running_variance, channels))
        return false;
    if (running_mean.defined() != running_variance.defined() || !(training || running_mean.defined()))
        return false;  // an error, in torch's words
    const BatchNorm s{
        x.size(0), channels, x.numel() / x.size(0) / channels, in(w), in(b), float(eps), channels_last(x)};
    if (training && s.samples * s.places < 2 && running_variance.defined()) return false;
    const auto xc = dense_in(x, s.last), y = made_in(x.sizes(), x, s.last),
               mean = made({training ? channels : 0}, x), inverse = made({training ? channels : 0}, x);
    if (training) {
        kernels->batch_norm(
            s, in(xc), out(y), out(mean), out(inverse), out(running_mean), out(running_variance), momentum);
    } else {
        kernels->batch_norm_apply(s, in(xc), in(running_mean), in(inverse_of(running_variance, eps)), out(y));
    }
    call.results = {y, mean, inverse};
    return true;
}

bool batch_norm(Call& call) {
    return batch_norm_of(call, 3, true, call[5].toBool(), call[6].toDouble(), call[7].toDouble());
}
bool batch_norm_alone(Call& call) {
    return batch_norm_of(call, 3, false, call[3].toBool(), call[4].toDouble(), call[5].toDouble());
}
bool batch_norm_inference(Call& call) {
    return batch_norm_of(call, 3, true, false, call[5].toDouble(), call[6].toDouble());
}

bool batch_norm_backward(Call& call) {
    const bool training = call[7].toBool();
    const size_t at = training ? 5 : 3;
    if (!call.ours({0, 1, at, at + 1}) || !call.ours_or_none({2})) return false;
    const auto x = call.tensor(1), g = call.tensor(0);
    const long channels = x.dim() < 2 ? 0 : x.size(1);
    const auto w = call.dense_or_none(2), mean = call.dense(at);
    auto inverse = call.dense(at + 1);
    if (!channels || g.sizes() != x.sizes() || !plain(w, channels) || !plain(mean, channels) ||
        !plain(inverse, channels))
        return false;
    if (!training) inverse = inverse_of(inverse, call[8].toDouble());
    const auto wanted = call[9].toBoolList();
    const BatchNorm s{
        x.size(0), channels, x.numel() / x.size(0) / channels, in(w), nullptr, 0, channels_last(x)};
    const auto xc = dense_in(x, s.last), gc = dense_in(g, s.last);
    const Tensor dx = wanted[0] ? made_in(x.sizes(), x, s.last) : Tensor(),
                 dw = made_if(wanted[1], {channels}, x), db = made_if(wanted[2], {channels}, x);
    kernels->batch_norm_backward(
        s, in(gc), in(xc), in(mean), in(inverse), training, out(dx), out(dw), out(db));
    call.results = {dx, dw, db};
    return true;
}

// How many elements a row of the last dimensions has, where these are they; else none.
long row_of(const Tensor& x, IntArrayRef shape) {
    const long first = x.dim() - long(shape.size());
    return shape.empty() || first < 0 || x.sizes().slice(first) != shape ? 0 : c10::multiply_integers(shape);
}

bool layer_norm(Call& call) {
    if (!call.ours({0}) || !call.ours_or_none({2, 3})) return false;
    const auto x = call.dense(0);
    const auto w = call.dense_or_none(2), b = call.dense_or_none(3);
    const auto shape = call[1].toIntVector();
    const long n = row_of(x, shape);
    if (!n || (w.defined() && w.sizes() != shape) || (b.defined() && b.sizes() != shape)) return false;
    auto sizes = x.sizes().vec();
    for (size_t i = 0; i < shape.size(); ++i) sizes[sizes.size() - 1 - i] = 1;
    const auto y = made(x.sizes(), x), mean = made(sizes, x), inverse = made(sizes, x);
    kernels->layer_norm(
        x.numel() / n, n, in(x), in(w), in(b), float(call[4].toDouble()), out(y), out(mean), out(inverse));
    call.results = {y, mean, inverse};
    return true;
}

bool layer_norm_backward(Call& call) {
    if (!call.ours({0, 1, 3, 4}) || !call.ours_or_none({5})) return false;
    const auto g = call.dense(0), x = call.dense(1), mean = call.dense(3), inverse = call.dense(4);
    const auto w = call.dense_or_none(5);
    const auto shape = call[2].toIntVector();
    const long n = row_of(x, shape);
    if (!n || g.sizes() != x.sizes() || (w.defined() && w.sizes() != shape)) return false;
    const auto wanted = call[7].toBoolList();
    const auto dx = made_if(wanted[0], x.sizes(), x), dw = made_if(wanted[1], shape, x),
               db = made_if(wanted[2], shape, x);
    kernels->layer_norm_backward(
        x.numel() / n, n, in(g), in(x), in(w), in(mean), in(inverse), out(dx), out(dw), out(db));
    call.results = {dx, dw, db};
    return true;
}

bool group_norm(Call& call) {
    if (!call.ours({0}) || !call.ours_or_none({1, 2})) return false;
    const auto x = call.tensor(0);
    const long n = call[3].toInt(), c = call[4].toInt(), places = call[5].toInt(), groups = call[6].toInt();
    const auto w = call.dense_or_none(1), b = call.dense_or_none(2);
    if (n * c * places != x.numel() || groups < 1 || c % groups || !plain(w, c) || !plain(b, c)) return false;
    const auto xc = x.contiguous(), y = made(x.sizes(), x), mean = made({n, groups}, x),
               inverse = made({n, groups}, x);
    kernels->group_norm({n, c, places, in(w), in(b), float(call[7].toDouble()), false}, groups, in(xc),
        out(y), out(mean), out(inverse));
    call.results = {dense_in(y, channels_last(x)), mean, inverse};
    return true;
}

bool group_norm_backward(Call& call) {
    if (!call.ours({0, 1, 2, 3}) || !call.ours_or_none({4})) return false;
    const auto g = call.dense(0), mean = call.dense(2), inverse = call.dense(3);
    const auto x = call.tensor(1);
    const long n = call[5].toInt(), c = call[6].toInt(), places = call[7].toInt(), groups = call[8].toInt();
    const auto w = call.dense_or_none(4);
    if (n * c * places != x.numel() || g.sizes() != x.sizes() || groups < 1 || c % groups || !plain(w, c))
        return false;
    const auto xc = x.contiguous();
    const auto wanted = call[9].toBoolList();
    const auto dx = made_if(wanted[0], x.sizes(), x), dw = made_if(wanted[1], {c}, x),
               db = made_if(wanted[2], {c}, x);
    kernels->group_norm_backward({n, c, places, in(w), nullptr, 0, false}, groups, in(g), in(xc), in(mean),
        in(inverse), out(dx), out(dw), out(db));
    call.results = {wanted[0] ? dense_in(dx, channels_last(x)) : dx, dw, db};
    return true;
}

// Softmax

// kernel(outer, n, inner) of contiguous tensors, along n
template <class Kernel>
bool along(Call& call, size_t inputs, int64_t dim, const Kernel& kernel) {
    if (!call.ours({0, inputs - 1})) return false;
    const auto x = call.tensor(0);
    if (x.dim() == 0 || dim < -x.dim() || dim >= x.dim() || call.tensor(inputs - 1).sizes() != x.sizes())
        return false;
    dim = at::maybe_wrap_dim(dim, x.dim());
    long outer = 1, inner = 1;
    for (long d = 0; d < x.dim(); ++d)
        if (d != dim) (d < dim ? outer : inner) *= x.size(d);
    const auto y = made(x.sizes(), x);
    kernel(outer, x.size(dim), inner, out(y));
    call.results = {y};
    return true;
}

template <bool LOG>
bool softmax(Call& call) {
    if (call[2].toBool()) return false;
    return along(call, 1, call[1].toInt(), [&](long outer, long n, long inner, float* y) {
        const auto x = call.dense(0);
        kernels->softmax(LOG, in(x), outer, n, inner, y);
    });
}

template <bool LOG>
bool softmax_backward(Call& call) {
    return along(call, 2, call[2].toInt(), [&](long outer, long n, long inner, float* dx) {
        const auto g = call.dense(0), y = call.dense(1);
        kernels->softmax_backward(LOG, in(g), in(y), outer, n, inner, dx);
    });
}

// LSTM layers: above autograd, because their backward needs what their forward kept.
class LstmFunction : public torch::autograd::Function<LstmFunction> {
public:
    using Tensors = std::vector<Tensor>;  // x, w_x, w_h, b_x, b_h, h0, c0

    // Output, last states, and what is kept.
    static Tensors forward_of(const Tensors& t, bool reverse) {
        const auto s = shape(t, reverse);
        const auto y = made({s.steps, s.samples, s.units}, t[0]),
                   kept = made({s.steps, s.samples, 6, s.units}, t[0]);
        kernels->lstm(s, in(t[0]), in(t[5]), in(t[6]), out(y), out(kept));
        const long last = reverse ? 0 : s.steps - 1;
        return {y, y.select(0, last).clone().view(t[5].sizes()),
            kept.select(0, last).select(1, 5).clone().view(t[6].sizes()), kept};
    }

    static Tensors forward(torch::autograd::AutogradContext* context, bool reverse, const Tensor& x,
        const Tensor& w_x, const Tensor& w_h, const Tensor& b_x, const Tensor& b_h, const Tensor& h0,
        const Tensor& c0) {
        at::AutoDispatchBelowAutograd below;
        Tensors t{x, w_x, w_h, b_x, b_h, h0, c0};
        auto found = forward_of(t, reverse);
        t.push_back(found[0]);
        t.push_back(found[3]);
        context->save_for_backward(t);
        context->set_materialize_grads(false);
        context->saved_data["reverse"] = reverse;
        context->saved_data["kernels"] = int64_t(reinterpret_cast<intptr_t>(kernels));
        found.pop_back();
        return found;
    }

    static Tensors backward(torch::autograd::AutogradContext* context, Tensors gradients) {
        c10::impl::ExcludeDispatchKeyGuard unseen(c10::python_ks);
        const auto t = context->get_saved_variables();
        const bool reverse = context->saved_data["reverse"].toBool();
        const bool batched = std::any_of(gradients.begin(), gradients.end(), [](const Tensor& g) {
            return g.defined() && g.key_set().has_any(c10::DispatchKeySet(
                                      {c10::DispatchKey::Batched, c10::DispatchKey::FuncTorchBatched}));
        });
        auto found = batched || at::GradMode::is_enabled()
                         ? differentiable(t, reverse, gradients)
                         : backward_of(kernels_of(context), t, reverse, gradients);
        found.insert(found.begin(), Tensor());
        return found;
    }

private:
    // The forward's: exact mode may be off by now, or at level threads.
    static const Kernels* kernels_of(torch::autograd::AutogradContext* context) {
        return reinterpret_cast<const Kernels*>(intptr_t(context->saved_data["kernels"].toInt()));
    }

    static Lstm shape(const Tensors& t, bool reverse) {
        return {t[0].size(0), t[0].size(1), t[0].size(2), t[2].size(1), reverse, in(t[1]), in(t[2]), in(t[3]),
            in(t[4])};
    }

    static Tensors backward_of(
        const Kernels* kernels, const Tensors& t, bool reverse, const Tensors& gradients) {
        at::AutoDispatchBelowAutograd below;
        const auto s = shape(t, reverse);
        const auto own = [](const Tensor& g, const Tensor& like) {
            return g.defined() ? g.clone(at::MemoryFormat::Contiguous) : at::zeros_like(like);
        };
        const auto dy = gradients[0].defined() ? gradients[0].contiguous() : Tensor();
        const auto dh = own(gradients[1], t[5]), dc = own(gradients[2], t[6]);
        const auto dx = made(t[0].sizes(), t[0]), dw_x = made(t[1].sizes(), t[1]),
                   dw_h = made(t[2].sizes(), t[2]);
        const auto db = made({4 * s.units}, t[0]);
        kernels->lstm_backward(s, in(t[0]), in(t[5]), in(t[6]), in(t[7]), in(t[8]), in(dy), out(dh), out(dc),
            out(dx), out(dw_x), out(dw_h), out(db));
        return {dx, dw_x, dw_h, db, db.clone(), dh, dc};
    }

    // To be differentiated again, or by many gradients at once (vmap's): by operations that can be. By an
    // alias of each argument, because one tensor may be several of them.
    static Tensors differentiable(Tensors t, bool reverse, const Tensors& gradients) {
        const bool again = at::GradMode::is_enabled();
        at::AutoGradMode recorded(true);
        for (auto& one : t)
            one = again ? one.view_as(one) : one.detach().set_requires_grad(one.requires_grad());
        const auto s = shape(t, reverse);
        auto h = t[5].view({s.samples, s.units}), c = t[6].view({s.samples, s.units});
        Tensors outputs(s.steps);
        for (long i = 0; i < s.steps; ++i) {
            const long step = reverse ? s.steps - 1 - i : i;
            const auto gates =
                at::linear(t[0].select(0, step), t[1], t[3]).add(at::linear(h, t[2], t[4])).chunk(4, 1);
            c = gates[1].sigmoid().mul(c).add(gates[0].sigmoid().mul(gates[2].tanh()));
            h = gates[3].sigmoid().mul(c.tanh());
            outputs[step] = h;
        }
        const Tensor results[] = {at::stack(outputs), h.view(t[5].sizes()), c.view(t[6].sizes())};
        Tensors of, by, given;
        for (size_t i = 0; i < 3; ++i)
            if (gradients[i].defined()) of.push_back(results[i]), given.push_back(gradients[i]);
        for (size_t i = 0; i < 7; ++i)
            if (t[i].requires_grad()) by.push_back(t[i]);
        auto next = torch::autograd::grad(of, by, given, std::nullopt, again, true);
        Tensors found;
        for (size_t i = 0, j = 0; i < 7; ++i) found.push_back(t[i].requires_grad() ? next[j++] : Tensor());
        return found;
    }
};

// Python's modes see a layer as one operation at most, and nothing within it.
bool lstm(Call& call) {
    c10::impl::ExcludeDispatchKeyGuard unseen(c10::python_ks);
    if (!call.ours({0, 1, 2, 3, 4, 5, 6})) return false;
    if (call[9].toInt() != 2 || !call[8].toIntVector().empty()) return false;
    const bool reverse = call[7].toBool();
    const auto x = call.tensor(0);
    const long units = call[10].toInt();
    if (x.dim() != 3 || call.tensor(1).sizes() != IntArrayRef{4 * units, x.size(2)} ||
        call.tensor(2).sizes() != IntArrayRef{4 * units, units} ||
        call.tensor(5).numel() != x.size(1) * units || call.tensor(6).numel() != x.size(1) * units)
        return false;
    LstmFunction::Tensors t;
    for (size_t i = 0; i < 7; ++i) t.push_back(call.dense(i));
    for (const size_t i : {3, 4})  // biases that are not wanted are zeros in the shape of the weights
        if (t[i].dim() != 1) t[i] = at::zeros({4 * units}, x.options());
        else if (t[i].numel() != 4 * units) return false;
    auto found = at::GradMode::is_enabled()
                     ? LstmFunction::apply(reverse, t[0], t[1], t[2], t[3], t[4], t[5], t[6])
                     : LstmFunction::forward_of(t, reverse);
    call.results = {found[0], found[1], found[2], at::empty({0}, x.options().dtype(at::kByte))};
    return true;
}

// Below autograd torch's own backward may want a workspace, but not in inference.
bool lstm_below(Call& call) { return c10::InferenceMode::is_enabled() && lstm(call); }

// Attention, without dropout

Heads heads(const Tensor& t) { return {in(t), {t.stride(0), t.stride(1), t.stride(2), t.stride(3)}}; }

// Arguments from `at` on are query, key and value; the mask and the scale follow at `mask_at`.
bool attention_of(const Call& call, size_t at, size_t mask_at, bool causal, Attention& s, Tensor& mask) {
    const auto q = call.tensor(at), k = call.tensor(at + 1), v = call.tensor(at + 2);
    if (q.dim() != 4 || k.dim() != 4 || v.dim() != 4 || q.size(0) != k.size(0) || q.size(0) != v.size(0) ||
        q.size(1) != k.size(1) || q.size(1) != v.size(1) || q.size(3) != k.size(3) || k.size(2) != v.size(2) ||
        q.size(3) != v.size(3))
        return false;
    const float scale = call[mask_at + 1].isNone() ? float(1 / std::sqrt(double(q.size(3))))
                                                   : float(call[mask_at + 1].toDouble());
    s = {q.size(0), q.size(1), q.size(2), k.size(2), q.size(3), v.size(3), causal, scale, heads(q), heads(k),
        heads(v), {}};
    if (!call.is_none(mask_at)) {
        mask = call.tensor(mask_at);
        const int64_t sizes[] = {s.samples, s.heads, s.queries, s.keys};
        if (!call.ours({mask_at}) || mask.dim() > 4 || !at::is_expandable_to(mask.sizes(), sizes))
            return false;
        mask = mask.expand(sizes);
        s.mask = heads(mask);
    }
    return true;
}

HeadsOut heads_out(const Tensor& t) { return {out(t), {t.stride(0), t.stride(1), t.stride(2)}}; }

// Lies in memory as `t` does, as torch's own; the kernels write rows.
Tensor laid_as(const Tensor& t) {
    const auto like = at::empty_like(t);
    return like.stride(3) == 1 ? like : made(t.sizes(), t);
}

bool attention(Call& call) {
    Attention s;
    Tensor mask;
    if (!call.ours({0, 1, 2}) || call[3].toDouble() != 0 ||
        !attention_of(call, 0, 5, call[4].toBool(), s, mask))
        return false;
    const auto y = laid_as(call.tensor(0)), kept = made({s.samples, s.heads, s.queries}, y);
    kernels->attention(s, heads_out(y), out(kept));
    call.results = {y, kept};
    return true;
}

// Lies in memory as (sample, row, head, number), as the gradients of torch's own do.
Tensor rows_first(const Tensor& t) {
    return made({t.size(0), t.size(2), t.size(1), t.size(3)}, t).transpose(1, 2);
}

bool attention_backward(Call& call) {
    Attention s;
    Tensor mask;
    if (!call.ours({0, 1, 2, 3, 4, 5})) return false;
    if (call[6].toDouble() != 0 || !attention_of(call, 1, 8, call[7].toBool(), s, mask)) return false;
    const auto dy = call.tensor(0), y = call.tensor(4), kept = call.dense(5);
    const auto dq = rows_first(call.tensor(1)), dk = rows_first(call.tensor(2)),
               dv = rows_first(call.tensor(3));
    kernels->attention_backward(
        s, heads(dy), heads(y), in(kept), heads_out(dq), heads_out(dk), heads_out(dv));
    call.results = {dq, dk, dv};
    return true;
}

}  // namespace machine

#include "functions_glue.h"

namespace machine {

const std::map<std::string, Own> OWN = {
    {"mm", mm},
    {"bmm", bmm},
    {"addmm", addmm},
    {"baddbmm", baddbmm},
    {"mv", mv},
    {"addmv", addmv},
    {"dot", dot},
    {"convolution", convolution},
    {"convolution_backward", convolution_backward},
    {"sum", sum},
    {"sum_dims", sum_dims},
    {"mean", mean},
    {"mean_dims", mean_dims},
    {"vector_norm", vector_norm},
    {"var", variance<false, false>},
    {"std", variance<true, false>},
    {"var_mean", variance<false, true>},
    {"std_mean", variance<true, true>},
    {"batch_norm", batch_norm},
    {"batch_norm_alone", batch_norm_alone},
    {"batch_norm_inference", batch_norm_inference},
    {"batch_norm_backward", batch_norm_backward},
    {"layer_norm", layer_norm},
    {"layer_norm_backward", layer_norm_backward},
    {"group_norm", group_norm},
    {"group_norm_backward", group_norm_backward},
    {"softmax", softmax<false>},
    {"log_softmax", softmax<true>},
    {"softmax_backward", softmax_backward<false>},
    {"log_softmax_backward", softmax_backward<true>},
    {"attention", attention},
    {"attention_backward", attention_backward},
    {"fused_sgd", fused_sgd},
    {"fused_adam", fused_adam<false>},
    {"fused_adamw", fused_adam<true>},
    {"fused_adagrad", fused_adagrad},
    {"adaptive_pool", adaptive_pool},
    {"uniform", uniform},
    {"normal", normal},
    {"normal_of", normal_of},
    {"binary_cross_entropy", binary_cross_entropy},
    {"smooth_l1_loss_backward", loss_backward<false>},
    {"huber_loss_backward", loss_backward<true>},
    {"lstm", lstm_below},
};

}  // namespace machine
