// How operations are cut, by their shapes and layouts alone.
#pragma once

#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace {

using at::Tensor;
using c10::IValue;
using Arguments = c10::ArrayRef<IValue>;

constexpr int64_t SUM = -1;  // an output whose pieces are added, instead of laid side by side

// How finely operations are cut. A change here changes the bits of models that are trained at level threads.
//
// The number of pieces is a power of two, so that it suits two, four and eight threads, and grows more slowly
// than the work: each piece has costs of its own, such as the weights that are laid out again for it. Two
// pieces take four times the work that is named here (eight times in products), four pieces four (eight)
// times as much again.
constexpr int64_t MOST_PIECES = 16;              // no more than 64: `kernels.cpp` has a bit for each
constexpr int64_t GEMM_WORK = 500'000;           // floating-point operations, and 64 for each output element
constexpr int64_t CONVOLUTION_WORK = 7'500'000;  // the same
constexpr int64_t ELEMENT_WORK = 32768;          // elements; torch itself stays on one thread below
constexpr int64_t BLOCK = 16;  // rows, columns and elements are cut at multiples of it: a vector of float32

struct Cut {
    int64_t argument, dim;
};

struct Plan {
    int64_t pieces;               // at most; none: left as it is
    int64_t size;                 // of what is cut
    int64_t align = 1;            // pieces but the last are multiples of it
    std::vector<Cut> cuts;        // the arguments that are cut, and along which dimension
    std::vector<int64_t> join;    // of each output: the dimension along which it is put together, or SUM
    int64_t count_argument = -1;  // an integer that tells the size of what is cut
    bool flat = false;            // all tensors are one-dimensional for the purpose
    int64_t step() const {
        const int64_t even = (size + pieces - 1) / pieces;
        return (even + align - 1) / align * align;
    }
};

using Planner = std::optional<Plan> (*)(Arguments);

// A power of two, at most `most`: 2 from 2^root times the limit on, 4 from 4^root times, and so on.
int64_t pieces_of(double work, int64_t limit, int root, int64_t most) {
    int64_t pieces = 1;
    while (2 * pieces <= std::min(most, MOST_PIECES)) {
        double needed = static_cast<double>(limit);
        for (int i = 0; i < root; ++i) needed *= static_cast<double>(2 * pieces);
        if (work < needed) break;
        pieces *= 2;
    }
    return pieces;
}

bool is_tensor(const IValue& value) { return value.isTensor() && value.toTensor().defined(); }

// Some of torch's kernels are spread over its threads however little there is to do. To wake those takes as
// long as one needs for so many elements.
bool small(Arguments a) {
    return std::all_of(a.begin(), a.end(),
        [](const IValue& value) { return !is_tensor(value) || value.toTensor().numel() < ELEMENT_WORK / 4; });
}

// How operations are cut: nothing, where one thread is to compute the whole.

// What is the same on any number of threads: left as it is, but by one thread where it is small, for speed
// alone.
std::optional<Plan> unless_small(Arguments a) { return small(a) ? std::nullopt : std::optional(Plan{}); }

// Batch normalisation of contiguous images is computed channel by channel, each by one thread.
bool per_channel(const IValue& images) {
    const auto& t = images.toTensor();
    return t.dim() > 2 && t.is_contiguous() && !t.is_contiguous(at::MemoryFormat::ChannelsLast);
}

std::optional<Plan> contiguous(Arguments a) { return per_channel(a[0]) ? unless_small(a) : std::nullopt; }

std::optional<Plan> contiguous_backward(Arguments a) {  // grad_out, input, ...
    return per_channel(a[1]) ? contiguous(a) : std::nullopt;
}

int64_t pieces_of_convolution(double flops, double elements, int64_t most) {
    return pieces_of(flops + 64 * elements, CONVOLUTION_WORK, 2, most);
}

std::optional<Plan> convolution(
    Arguments a) {  // input, weight, bias, stride, padding, dilation, transposed, ...
    const auto &input = a[0].toTensor(), &weight = a[1].toTensor();
    if (input.dim() < 3 || !input.numel()) return {};
    double places = 1;
    const bool transposed = a[6].toBool();
    const auto stride = a[3].toIntVector();
    for (int64_t i = 2; i < input.dim(); ++i)
        places *=
            static_cast<double>(input.size(i)) / (transposed ? 1 : stride[stride.size() == 1 ? 0 : i - 2]);
    const int64_t batch = input.size(0),
                  outputs = transposed ? weight.size(1) * a[8].toInt() : weight.size(0);
    const double flops = 2.0 * weight.numel() * places * batch, elements = places * batch * outputs;
    if (batch == 1 && !transposed && a[8].toInt() == 1) {  // by output channels
        Plan plan{pieces_of_convolution(flops, elements, weight.size(0) / BLOCK), weight.size(0), BLOCK,
            {{1, 0}}, {1}};
        if (is_tensor(a[2])) plan.cuts.push_back({2, 0});
        return plan;
    }
    return Plan{pieces_of_convolution(flops, elements, batch), batch, 1, {{0, 0}}, {0}};
}

// Partial sums of half precision would be rounded, or overflow: such sums are not cut.
bool rounds(const Tensor& t, const IValue& type = {}) {
    return at::isReducedFloatingType(type.isNone() ? t.scalar_type() : type.toScalarType());
}

std::optional<Plan> convolution_backward(
    Arguments a) {  // grad_output, input, weight, bias_sizes, ..., transposed, ...
    const auto &gradient = a[0].toTensor(), &input = a[1].toTensor(), &weight = a[2].toTensor();
    if (input.dim() < 3 || !input.numel() || rounds(gradient)) return {};
    double places = 1;
    const auto& larger = a[7].toBool() ? input : gradient;
    for (int64_t i = 2; i < larger.dim(); ++i) places *= larger.size(i);
    const int64_t batch = input.size(0);
    const int64_t pieces =
        pieces_of_convolution(2.0 * weight.numel() * places * batch, gradient.numel(), batch);
    return Plan{pieces, batch, 1, {{0, 0}, {1, 0}}, {0, SUM, SUM}};
}

// Products, with a bias first or without. The sum is cut where partial sums are no larger than the factors,
// and b can be cut in whole rows: in the weight gradients of linear layers, for one, whose factors lie in the
// caches of the threads that computed their rows. Otherwise the output is: along the batch, in rows, or in
// columns where it is more than four times as wide as high.
std::optional<Plan> gemm(Arguments arguments) {
    const int64_t at = arguments.size() > 2;
    const auto &a = arguments[at].toTensor(), &b = arguments[at + 1].toTensor();
    const int64_t dims = a.dim();
    if (dims < 2 || b.dim() != dims || !a.numel() || !b.numel() || a.size(-1) != b.size(-2) ||
        (dims == 3 && a.size(0) != b.size(0)))
        return {};
    auto sizes = a.sizes().vec();
    sizes.back() = b.size(-1);
    const auto& bias = arguments[0].toTensor();
    if (at && !at::is_expandable_to(bias.sizes(), sizes)) return {};
    const int64_t m = a.size(-2), n = b.size(-1), k = a.size(-1);
    const double work = (2.0 * k + 64) * c10::multiply_integers(sizes);  // elements have costs of their own
    const auto pieces = [&](int64_t most) { return pieces_of(work, GEMM_WORK, 3, most); };
    // Partial sums of half precision would be rounded.
    const bool precise = a.scalar_type() == at::kFloat || a.scalar_type() == at::kDouble;
    const int64_t parts = pieces(k / BLOCK);
    if (parts > 1 && dims == 2 && !at && precise && b.stride(1) == 1 && parts * m * n <= k * (m + n))
        return Plan{parts, k, BLOCK, {{0, 1}, {1, 0}}, {SUM}};
    const int64_t dim = dims == 3 && a.size(0) >= m / BLOCK ? 0 : n > 4 * m ? dims - 1 : dims - 2;
    const int64_t size = sizes[dim], align = dims == 3 && dim == 0 ? 1 : BLOCK;
    Plan plan{pieces(size / align), size, align, {}, {dim}};
    if (dim < dims - 1) plan.cuts.push_back({at, dim});
    if (dim != dims - 2) plan.cuts.push_back({at + 1, dim});
    const int64_t of_bias = dim - dims + bias.dim();  // its dimensions are the last ones
    if (at && of_bias >= 0 && bias.size(of_bias) == size) plan.cuts.push_back({0, of_bias});
    return plan;
}

constexpr int64_t SUMMED = 4;      // elements that are only added take a fraction of the time
constexpr int64_t NORMALISED = 4;  // those of a layer norm's weight and bias take a multiple of it

std::optional<Plan> by_elements(int64_t elements, Plan plan) {
    plan.pieces = pieces_of(static_cast<double>(elements), ELEMENT_WORK, 2, plan.size);
    return plan;
}

int64_t largest(const Tensor& t, int64_t but) {
    int64_t found = -1;
    for (int64_t i = 0; i < t.dim(); ++i)
        if (i != but && (found < 0 || t.size(i) > t.size(found))) found = i;
    return found;
}

std::optional<Plan> layer_norm_backward(Arguments a) {  // grad_out, input, normalized_shape, mean, rstd, ...
    const auto& input = a[1].toTensor();
    const int64_t rows = input.dim() - static_cast<int64_t>(a[2].toIntVector().size());
    int64_t dim = 0;
    while (dim + 1 < rows && input.size(dim) == 1) ++dim;  // torch reads pieces of mean and rstd as if dense
    if (rows < 1) return {};
    return by_elements(input.numel() * NORMALISED,
        {0, input.size(dim), 1, {{0, dim}, {1, dim}, {3, dim}, {4, dim}}, {dim, SUM, SUM}});
}

// Channels-last images of 1,024 places and more are summed by threads together: such are cut by samples.
std::optional<Plan> group_norm(Arguments a) {  // input, weight, bias, N, ...
    const auto& input = a[0].toTensor();
    if (input.suggest_memory_format() == at::MemoryFormat::Contiguous) return unless_small(a);
    return by_elements(input.numel(), {0, input.size(0), 1, {{0, 0}}, {0, 0, 0}, 3});
}

std::optional<Plan> group_norm_backward(Arguments a) {  // grad_out, input, mean, rstd, weight, N, ...
    const auto& input = a[1].toTensor();
    if (rounds(input)) return {};
    return by_elements(
        input.numel(), {0, input.size(0), 1, {{0, 0}, {1, 0}, {2, 0}, {3, 0}}, {0, SUM, SUM}, 5});
}

// Cut along the largest dimension but one.
std::optional<Plan> across(Arguments a, int64_t along, Plan plan) {
    const auto& t = a[0].toTensor();
    const int64_t dim = largest(t, along < 0 ? along + t.dim() : along);
    if (dim < 0) return {};
    plan.size = t.size(dim);
    plan.join = {dim};
    for (auto& cut : plan.cuts) cut.dim = dim;
    return by_elements(t.numel(), plan);
}

std::optional<Plan> softmax(Arguments a) {  // self, dim, ...
    const int64_t along = a[1].toInt();
    if (along == -1 || along == a[0].toTensor().dim() - 1) return unless_small(a);  // each row by one thread
    return across(a, along, {0, 0, 1, {{0, 0}}});
}

std::optional<Plan> softmax_backward(Arguments a) {  // grad_output, output, dim, ...
    return across(a, a[2].toInt(), {0, 0, 1, {{0, 0}, {1, 0}}});
}

std::optional<Plan> sum_all(Arguments a) {  // self, dtype
    const auto& t = a[0].toTensor();
    const int64_t dim = largest(t, -1);
    if (dim < 0 || rounds(t, a[1])) return {};
    return by_elements(t.numel() / SUMMED, {0, t.size(dim), 1, {{0, dim}}, {SUM}});
}

std::optional<Plan> sum_dims(Arguments a) {  // self, dim, keepdim, dtype
    const auto& t = a[0].toTensor();
    if (!t.dim()) return {};
    std::vector<bool> summed(t.dim(), false);
    const auto dims = a[1].isNone() ? std::vector<int64_t>{} : a[1].toIntVector();
    for (auto dim : dims) {
        if (dim < -t.dim() || dim >= t.dim()) return {};
        summed[dim < 0 ? dim + t.dim() : dim] = true;
    }
    if (dims.empty()) summed.assign(t.dim(), true);
    int64_t kept = -1, gone = -1;
    for (int64_t i = 0; i < t.dim(); ++i) {
        auto& best = summed[i] ? gone : kept;
        if (best < 0 || t.size(i) > t.size(best)) best = i;
    }
    if (kept >= 0 && t.size(kept) >= BLOCK) {
        int64_t at = kept;
        if (!a[2].toBool()) at -= std::count(summed.begin(), summed.begin() + kept, true);
        return by_elements(t.numel() / SUMMED, {0, t.size(kept), BLOCK, {{0, kept}}, {at}});
    }
    if (gone < 0 || rounds(t, a[3])) return {};
    return by_elements(t.numel() / SUMMED, {0, t.size(gone), 1, {{0, gone}}, {SUM}});
}

// q, k, v at `first`; every tensor whose first two sizes are the batch and the heads is cut along the larger.
std::optional<Plan> attention_of(Arguments a, size_t first, size_t mask, std::vector<int64_t> outputs) {
    const auto& q = a[first].toTensor();
    if (q.dim() != 4) return {};
    const int64_t dim = q.size(0) >= q.size(1) ? 0 : 1;
    Plan plan{0, q.size(dim), 1, {}, std::vector<int64_t>(outputs.size(), dim)};
    for (size_t i = 0; i < a.size(); ++i) {
        if (!is_tensor(a[i])) continue;
        const auto& t = a[i].toTensor();
        if (i != mask && (t.dim() < 3 || t.size(dim) != plan.size))
            return {};  // fewer heads in keys than in queries
        if (i != mask || (t.dim() == 4 && t.size(dim) == plan.size && plan.size > 1))
            plan.cuts.push_back({static_cast<int64_t>(i), dim});
    }
    return by_elements(q.numel() * a[first + 1].toTensor().size(2) / std::max<int64_t>(q.size(3), 1), plan);
}

std::optional<Plan> attention(Arguments a) { return attention_of(a, 0, 5, {0, 0}); }
std::optional<Plan> attention_backward(Arguments a) { return attention_of(a, 1, 8, {0, 0, 0}); }

// Element by element: the last elements of a thread's share may be computed by other instructions than the
// rest.
std::optional<Plan> elementwise(Arguments a, bool in_place) {
    const Tensor* model = nullptr;
    Plan plan{0, 0, BLOCK, {}, {}, -1, true};
    for (size_t i = 0; i < a.size(); ++i) {
        if (!is_tensor(a[i])) continue;
        const auto& t = a[i].toTensor();
        if (!model) model = &t;
        if (!(t.is_floating_point() || t.is_complex()) || t.scalar_type() != model->scalar_type() ||
            t.sizes() != model->sizes() || t.strides() != model->strides() ||
            !t.is_non_overlapping_and_dense())
            return {};
        plan.cuts.push_back({static_cast<int64_t>(i), 0});
    }
    if (!model) return {};
    if (!in_place) plan.join = {0};
    plan.size = model->numel();
    return by_elements(plan.size, plan);
}
std::optional<Plan> elementwise_new(Arguments a) { return elementwise(a, false); }
std::optional<Plan> elementwise_in_place(Arguments a) { return elementwise(a, true); }

// Additions and the like: only of complex numbers, and with a factor in half precision or of tensors that do not
// lie alike (broadcast, of integers, or a number), are the last elements computed by other instructions.
bool plain(Arguments a) {
    bool half = false, factor = false, alike = true;
    const at::Tensor* first = nullptr;
    for (const auto& value : a) {
        if (is_tensor(value)) {
            const auto& t = value.toTensor();
            if (t.is_complex()) return false;
            half |= at::isReducedFloatingType(t.scalar_type());
            if (!first) first = &t;
            alike &= t.scalar_type() == first->scalar_type() && t.sizes() == first->sizes() &&
                     t.strides() == first->strides() && t.is_non_overlapping_and_dense();
        } else if (value.isScalar()) {
            factor |= !value.toScalar().equal(1);
        }
    }
    return !factor || (alike && !half);
}
std::optional<Plan> arithmetic(Arguments a) { return plain(a) ? Plan{} : elementwise(a, false); }
std::optional<Plan> arithmetic_in_place(Arguments a) { return plain(a) ? Plan{} : elementwise(a, true); }
std::optional<Plan> arithmetic_out(Arguments a) { return plain(a) ? std::optional(Plan{}) : std::nullopt; }

// By one thread, but for integers.
std::optional<Plan> shares(Arguments a) {
    for (const auto& value : a)
        if (value.isDouble() ||
            (is_tensor(value) && !at::isIntegralType(value.toTensor().scalar_type(), true)))
            return {};
    return Plan{};
}

// Of whole tensors threads take the largest elements of their shares, and one of these at last.
std::optional<Plan> extreme(Arguments a) {  // self, a dimension, dimensions or nothing, ...
    bool whole = a.size() == 1 || a[1].isNone() || a[1].isTensor();
    if (!whole && a[1].isIntList()) {
        const auto &t = a[0].toTensor();
        const auto dims = a[1].toIntVector();
        int64_t gone = 1;
        for (const auto dim : dims) gone *= dim < -t.dim() || dim >= t.dim() ? 0 : t.size(dim);
        whole = dims.empty() || gone == t.numel() || !t.dim();
    }
    return whole ? shares(a) : Plan{};
}

const std::pair<const char*, Planner> PLANNERS[] = {
    {"", [](Arguments) { return std::optional(Plan{}); }},  // stays torch's
    {"one thread", nullptr},
    {"small", unless_small},
    {"contiguous", contiguous},
    {"contiguous_backward", contiguous_backward},
    {"gemm", gemm},
    {"convolution", convolution},
    {"convolution_backward", convolution_backward},
    {"layer_norm_backward", layer_norm_backward},
    {"group_norm", group_norm},
    {"group_norm_backward", group_norm_backward},
    {"softmax", softmax},
    {"softmax_backward", softmax_backward},
    {"sum_all", sum_all},
    {"sum_dims", sum_dims},
    {"attention", attention},
    {"attention_backward", attention_backward},
    {"arithmetic", arithmetic},
    {"arithmetic_in_place", arithmetic_in_place},
    {"arithmetic_out", arithmetic_out},
    {"shares", shares},
    {"extreme", extreme},
    {"elementwise", elementwise_new},
    {"elementwise_in_place", elementwise_in_place},
};

}  // namespace
