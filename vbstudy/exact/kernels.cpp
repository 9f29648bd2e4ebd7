// The operations of exact mode: fixed pieces, each computed by one thread, put together in a fixed order.
//
// An operation is cut by its shapes and layouts alone, never by the number of threads. Each piece is computed
// by torch's own kernel, which sees one thread (OpenMP, MKL and through them oneDNN), so that it neither
// splits its sums nor chooses its algorithm by the thread count. The pieces are spread over whatever threads
// there are. Where they are parts of one sum, they are added pairwise in a fixed tree.
//
// Which operation is cut how stands in `operations.toml`; how each way divides an operation, in `plans.h`.

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/baddbmm_cpu_dispatch.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/copy.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_cpu_dispatch.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/mkldnn_rnn_layer.h>
#include <ATen/ops/mkldnn_rnn_layer_backward.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <ATen/ops/narrow.h>
#include <ATen/ops/resize.h>
#include <c10/core/AutogradState.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "machine.h"
#include "plans.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

extern "C" int MKL_Set_Num_Threads_Local(int) __attribute__((weak));  // not in builds without MKL

namespace {

using torch::jit::Stack;

// One thread

thread_local bool alone = false;  // inside a piece: operations called from there are not cut again

class OneThread {
public:
    OneThread() : was_alone_(alone) {
        at::get_num_threads();  // a thread's first call sets its count: not later, over ours
        threads_ = omp_get_max_threads();
        omp_set_num_threads(1);
        if (MKL_Set_Num_Threads_Local) mkl_ = MKL_Set_Num_Threads_Local(1);
        alone = true;
    }
    ~OneThread() {
        alone = was_alone_;
        if (MKL_Set_Num_Threads_Local) MKL_Set_Num_Threads_Local(mkl_);
        omp_set_num_threads(threads_);
    }
    OneThread(const OneThread&) = delete;
    OneThread& operator=(const OneThread&) = delete;

private:
    int threads_, mkl_ = 0;
    bool was_alone_;
};

// Calls work(0) ... work(count - 1), each on one thread, on as many threads as torch may use; at most 64.
// Threads begin where they do in torch's own loops, because of what their caches hold, and go on with what
// others left.
template <class Work>
void spread(int64_t count, const Work& work) {
    const int64_t threads = std::min<int64_t>(count, at::get_num_threads());
    if (threads <= 1 || at::in_parallel_region()) {
        OneThread one;
        for (int64_t i = 0; i < count; ++i) work(i);
        return;
    }
    const auto keys = c10::impl::tls_local_dispatch_key_set();
    const auto autograd = c10::AutogradState::get_tls_state();
    std::atomic<uint64_t> taken{0};
    machine::in_threads(threads, [&](int64_t thread) {
        c10::impl::ForceDispatchKeyGuard same_keys(keys);
        const auto own = c10::AutogradState::get_tls_state();
        c10::AutogradState::set_tls_state(autograd);
        try {
            OneThread one;
            for (int64_t i = 0; i < count; ++i) {
                const int64_t at = (thread * count / threads + i) % count;
                if (const uint64_t bit = uint64_t{1} << at; !(taken.fetch_or(bit) & bit)) work(at);
            }
        } catch (...) {
            c10::AutogradState::set_tls_state(own);
            throw;
        }
        c10::AutogradState::set_tls_state(own);
    });
}

// A dense tensor whose dimensions lie in memory in the order of the model's, with another size of one.
Tensor like(const Tensor& model, int64_t dim, int64_t size) {
    auto sizes = model.sizes().vec();
    sizes[dim] = size;
    std::vector<int64_t> order(sizes.size()), strides(sizes.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(
        order.begin(), order.end(), [&](int64_t a, int64_t b) { return model.stride(a) > model.stride(b); });
    int64_t stride = 1;
    for (auto i = order.rbegin(); i != order.rend(); ++i) {
        strides[*i] = stride;
        stride *= std::max<int64_t>(sizes[*i], 1);
    }
    return at::empty_strided(sizes, strides, model.options());
}

// The same memory with other sizes. What `at::as_strided` does, without its way through the dispatcher: that
// took as long as the smallest pieces do.
Tensor view(const Tensor& t, c10::IntArrayRef sizes, c10::IntArrayRef strides, int64_t offset) {
    auto made = at::detail::make_tensor<c10::TensorImpl>(
        c10::TensorImpl::VIEW, c10::Storage(t.storage()), t.key_set(), t.dtype());
    made.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
    return made;
}

Tensor slice_of(const Tensor& t, int64_t dim, int64_t begin, int64_t length) {
    if (dim >= t.dim() || begin + length > t.size(dim))
        return at::narrow(t, dim, begin, length);  // an error, in torch's words
    c10::DimVector sizes(t.sizes());
    sizes[dim] = length;
    return view(t, sizes, t.strides(), t.storage_offset() + begin * t.stride(dim));
}

// Where the next contiguous tensor of just these sizes is to lie. A convolution asks `at::empty` for its
// output: it is given its place in the whole, and nothing has to be copied there.
thread_local Tensor lent;

class Lending {
public:
    explicit Lending(const Tensor& place) { lent = place; }
    ~Lending() { lent.reset(); }
    Lending(const Lending&) = delete;
    Lending& operator=(const Lending&) = delete;
};

Tensor empty(c10::SymIntArrayRef sizes, std::optional<at::ScalarType> type, std::optional<at::Layout> layout,
    std::optional<at::Device> device, std::optional<bool> pinned, std::optional<at::MemoryFormat> format) {
    if (lent.defined() && lent.sym_sizes() == sizes && lent.scalar_type() == type && lent.is_contiguous() &&
        format.value_or(at::MemoryFormat::Contiguous) == at::MemoryFormat::Contiguous &&
        !pinned.value_or(false))
        return std::exchange(lent, Tensor());
    return at::cpu::empty_symint(sizes, type, layout, device, pinned, format);
}

Tensor flattened(const Tensor& t) { return view(t, {t.numel()}, {1}, t.storage_offset()); }

// p0 + p1, p2 + p3, ..., then these again, until one is left.
Tensor tree_sum(std::vector<Tensor>& parts) {
    for (size_t width = 1; width < parts.size(); width *= 2)
        for (size_t i = 0; i + width < parts.size(); i += 2 * width) parts[i].add_(parts[i + width]);
    return parts[0];
}

class Replacement : public c10::OperatorKernel {
public:
    Replacement(c10::SafeKernelFunction native, Planner planner)
        : planner_(planner), native_(std::move(native)) {}

    void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
        if (alone) return native_.callBoxed(op, keys, stack);
        if (planner_) {
            if (auto plan = planner_(torch::jit::last(*stack, op.schema().arguments().size()));
                plan && plan->pieces != 1)
                return plan->pieces ? in_pieces(op, keys, stack, *plan) : native_.callBoxed(op, keys, stack);
        }
        OneThread one;
        native_.callBoxed(op, keys, stack);
    }

private:
    void in_pieces(
        const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack, const Plan& plan) const {
        const auto whole = torch::jit::pop(*stack, op.schema().arguments().size());
        const bool in_place = plan.join.empty();
        const int64_t step = plan.step(), count = (plan.size + step - 1) / step;
        const size_t outputs = plan.join.size();
        std::vector<Tensor> joined(outputs);
        std::vector<std::vector<Tensor>> parts(count, std::vector<Tensor>(outputs));
        std::atomic<bool> allocated{false};
        const auto place = [&](int64_t i, size_t j) {
            auto& part = parts[i][j];
            if (!part.defined()) return;
            const auto length = part.size(plan.join[j]);
            const auto target = slice_of(joined[j], plan.join[j], i * step, length);
            if (part.data_ptr() == target.data_ptr()) return part.reset();  // it was lent
            // Most are whole samples, one after the other.
            if (target.is_contiguous() && part.is_contiguous() && target.scalar_type() == part.scalar_type())
                std::memcpy(target.data_ptr(), part.data_ptr(), part.nbytes());
            else
                target.copy_(part);
            part.reset();
        };
        spread(count, [&](int64_t i) {
            const int64_t begin = i * step, length = std::min(step, plan.size - begin);
            Stack own(whole.begin(), whole.end());
            for (const auto& [argument, dim] : plan.cuts) {
                const auto& t = own[argument].toTensor();
                own[argument] = slice_of(plan.flat ? flattened(t) : t, dim, begin, length);
            }
            if (plan.count_argument >= 0) own[plan.count_argument] = length;
            const bool ready = allocated.load(std::memory_order_acquire);
            const auto slot =
                ready && joined[0].defined() ? slice_of(joined[0], plan.join[0], begin, length) : Tensor();
            {
                Lending lending(slot);
                native_.callBoxed(op, keys, &own);
            }
            if (in_place) return;
            for (size_t j = 0; j < outputs; ++j) {
                if (!is_tensor(own[j])) continue;
                const auto& t = own[j].toTensor();
                const bool astray =
                    slot.defined() && t.is_alias_of(slot) && (j || !t.is_contiguous());  // another took it
                parts[i][j] = astray ? t.clone() : t;
            }
            if (i == 0) {  // all pieces take its layout, whichever ends first
                for (size_t j = 0; j < outputs; ++j)
                    if (plan.join[j] != SUM && parts[0][j].defined())
                        joined[j] = like(parts[0][j], plan.join[j], plan.size);
                allocated.store(true, std::memory_order_release);
            }
            if (allocated.load(std::memory_order_acquire))
                for (size_t j = 0; j < outputs; ++j)
                    if (plan.join[j] != SUM) place(i, j);
        });
        if (in_place) return torch::jit::push(*stack, whole[0]);
        for (size_t j = 0; j < outputs; ++j) {
            if (plan.join[j] == SUM) {
                std::vector<Tensor> summands;
                for (auto& piece : parts) summands.push_back(piece[j]);
                joined[j] = summands[0].defined() ? tree_sum(summands) : Tensor();
            } else {
                for (int64_t i = 0; i < count; ++i) place(i, j);  // those that were done before the first
                if (plan.flat) {
                    const auto& model = whole[plan.cuts[0].argument].toTensor();
                    joined[j] = view(joined[j], model.sizes(), model.strides(), 0);
                }
            }
            torch::jit::push(*stack, joined[j]);
        }
    }

    Planner planner_;

protected:
    c10::SafeKernelFunction native_;
};

// mm, bmm, addmm, baddbmm: the output is cut in rows and columns (or matrices and rows), each block written
// in place. Boxed arguments and the dispatcher would take as long as the smallest blocks do: there are none.
namespace products {

// Whether it is an ordinary product; everything else, mistakes too, is left to torch.
bool fits(const Tensor& a, const Tensor& b, const Tensor& bias) {
    const auto dims = a.dim();
    return (dims == 2 || dims == 3) && b.dim() == dims && a.size(-1) == b.size(-2) &&
           (dims == 2 || a.size(0) == b.size(0)) && a.scalar_type() == b.scalar_type() && a.numel() &&
           b.numel() && (!bias.defined() || (bias.dim() <= dims && bias.scalar_type() == a.scalar_type()));
}

// block(output, a, b, bias) computes one.
template <class Block>
Tensor in_blocks(const Tensor& a, const Tensor& b, const Tensor& bias, const Grid& grid, const Block& block) {
    const bool batched = a.dim() == 3;
    auto sizes = a.sizes().vec();
    sizes.back() = b.size(-1);
    const auto whole = at::empty(sizes, a.options());
    const auto expanded = bias.defined() ? bias.expand(sizes) : bias;
    const int64_t step0 = Plan{grid.first, sizes[0], batched ? 1 : limits.block}.step();
    const int64_t step1 = Plan{grid.second, sizes[1], limits.block}.step();
    const int64_t rows = (sizes[0] + step0 - 1) / step0, columns = (sizes[1] + step1 - 1) / step1;
    spread(rows * columns, [&](int64_t i) {
        const int64_t at0 = i / columns * step0, at1 = i % columns * step1;
        const int64_t long0 = std::min(step0, sizes[0] - at0), long1 = std::min(step1, sizes[1] - at1);
        const auto part = [&](const Tensor& t) {
            c10::DimVector lengths(t.sizes());
            lengths[0] = long0;
            lengths[1] = long1;
            return view(t, lengths, t.strides(), t.storage_offset() + at0 * t.stride(0) + at1 * t.stride(1));
        };
        auto output = part(whole);
        block(output, batched ? part(a) : slice_of(a, 0, at0, long0),
            batched ? slice_of(b, 0, at0, long0) : slice_of(b, 1, at1, long1),
            expanded.defined() ? part(expanded) : expanded);
    });
    return whole;
}

Tensor in_sums(const Tensor& a, const Tensor& b, int64_t pieces) {
    const int64_t depth = a.size(1);
    const int64_t step = Plan{pieces, depth, limits.block}.step(), count = (depth + step - 1) / step;
    std::vector<Tensor> parts(count);
    spread(count, [&](int64_t i) {
        const int64_t begin = i * step, length = std::min(step, depth - begin);
        parts[i] = at::cpu::mm(slice_of(a, 1, begin, length), slice_of(b, 0, begin, length));
    });
    return tree_sum(parts);
}

template <class Native, class Block>
Tensor product(
    const Tensor& a, const Tensor& b, const Tensor& bias, const Native& native, const Block& block) {
    if (alone) return native();
    if (fits(a, b, bias)) {
        const auto cut = grid(a, b, bias.defined());
        if (cut.depth > 1) return in_sums(a, b, cut.depth);
        if (cut.first * cut.second > 1) return in_blocks(a, b, bias, cut, block);
    }
    OneThread one;
    return native();
}

Tensor mm(const Tensor& a, const Tensor& b) {
    return product(
        a, b, {}, [&] { return at::cpu::mm(a, b); },
        [](Tensor& output, const Tensor& x, const Tensor& y, const Tensor&) {
            at::cpu::mm_out(output, x, y);
        });
}

Tensor bmm(const Tensor& a, const Tensor& b) {
    return product(
        a, b, {}, [&] { return at::cpu::bmm(a, b); },
        [](Tensor& output, const Tensor& x, const Tensor& y, const Tensor&) {
            at::cpu::bmm_out(output, x, y);
        });
}

Tensor addmm(
    const Tensor& bias, const Tensor& a, const Tensor& b, const at::Scalar& beta, const at::Scalar& alpha) {
    return product(
        a, b, bias, [&] { return at::cpu::addmm(bias, a, b, beta, alpha); },
        [&](Tensor& output, const Tensor& x, const Tensor& y, const Tensor& z) {
            at::cpu::addmm_out(output, z, x, y, beta, alpha);
        });
}

Tensor baddbmm(
    const Tensor& bias, const Tensor& a, const Tensor& b, const at::Scalar& beta, const at::Scalar& alpha) {
    return product(
        a, b, bias, [&] { return at::cpu::baddbmm(bias, a, b, beta, alpha); },
        [&](Tensor& output, const Tensor& x, const Tensor& y, const Tensor& z) {
            at::cpu::baddbmm_out(output, z, x, y, beta, alpha);
        });
}

}  // namespace products

// A layer norm's gradient by its input is computed row by row: only those by weight and bias are cut. So
// nothing but sums is put together.
class LayerNormBackward : public Replacement {
public:
    explicit LayerNormBackward(c10::SafeKernelFunction native)
        : Replacement(std::move(native), layer_norm_backward) {}
    void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
        if (alone || small(torch::jit::last(*stack, op.schema().arguments().size())))
            return Replacement::operator()(op, keys, stack);
        auto mask = torch::jit::pop(*stack).toBoolList().vec();
        Stack rows = *stack;
        rows.emplace_back(std::vector<bool>{mask[0], false, false});
        native_.callBoxed(op, keys, &rows);
        mask[0] = false;
        stack->emplace_back(mask);
        Replacement::operator()(op, keys, stack);
        torch::jit::peek(*stack, 0, 3) = std::move(rows[0]);
    }
};

// sum.IntList_out, in which means and losses end, is sum.dim_IntList and a copy.
class SumOut : public c10::OperatorKernel {
public:
    SumOut(c10::SafeKernelFunction native)
        : native_(std::move(native)),
          sum_(c10::Dispatcher::singleton().findSchemaOrThrow("aten::sum", "dim_IntList")) {}
    void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
        if (alone) return native_.callBoxed(op, keys, stack);
        auto out = torch::jit::pop(*stack).toTensor();
        sum_.callBoxed(*stack);
        const auto sum = torch::jit::pop(*stack).toTensor();
        out.resize_(sum.sizes()).copy_(sum);
        torch::jit::push(*stack, std::move(out));
    }

private:
    c10::SafeKernelFunction native_;
    c10::OperatorHandle sum_;
};

// LSTM layers: groups of a batch's samples, each by oneDNN's layer. They are cut above autograd, because a
// layer that was computed in pieces must be differentiated in pieces: each has a workspace, in a layout that
// only oneDNN knows.
class Lstm : public torch::autograd::Function<Lstm> {
public:
    struct Settings {
        bool reverse;
        int64_t mode, size, layers;
        bool biases, bidirectional, batch_first, train;
    };
    using Tensors = std::vector<Tensor>;             // input, four weights, hidden state, cell state
    static constexpr int64_t INPUT = 1, STATE = -2;  // the dimensions of samples
    static constexpr size_t TENSORS = 7, OUTPUTS = 3;
    static constexpr int64_t OUTPUT_DIMS[] = {INPUT, STATE, STATE};

    static Settings settings_of(Arguments a) {
        return {a[7].toBool(), a[9].toInt(), a[10].toInt(), a[11].toInt(), a[12].toBool(), a[13].toBool(),
            a[14].toBool(), a[15].toBool()};
    }

    // Below autograd, and below the modes of Python's, which other threads do not have.
    struct Below {
        at::AutoDispatchBelowAutograd autograd;
        c10::impl::ExcludeDispatchKeyGuard modes{c10::python_ks};
    };

    // Output, hidden state and cell state of all samples, and the workspaces of all pieces.
    static Tensors in_pieces(int64_t pieces, const Settings& s, const Tensors& t, bool to_be_differentiated) {
        Below below;
        std::vector<Tensors> parts(pieces);
        spread(pieces, [&](int64_t i) {
            at::AutoGradMode workspaces(to_be_differentiated);  // else there are none
            auto [output, hidden, cells, workspace] = at::mkldnn_rnn_layer(part(t[0], INPUT, i, pieces), t[1],
                t[2], t[3], t[4], part(t[5], STATE, i, pieces), part(t[6], STATE, i, pieces), s.reverse, {},
                s.mode, s.size, s.layers, s.biases, s.bidirectional, s.batch_first, s.train);
            parts[i] = {output, hidden, cells, workspace};
        });
        Tensors found;
        for (size_t j = 0; j < OUTPUTS; ++j) found.push_back(joined(parts, j, OUTPUT_DIMS[j]));
        for (const auto& piece : parts) found.push_back(piece[OUTPUTS]);
        return found;
    }

    static Tensors forward(torch::autograd::AutogradContext* context, int64_t pieces, const Settings& s,
        const Tensor& input, const Tensor& w1, const Tensor& w2, const Tensor& w3, const Tensor& w4,
        const Tensor& hidden, const Tensor& cells) {
        const Tensors t{input, w1, w2, w3, w4, hidden, cells};
        auto found = in_pieces(pieces, s, t, true);
        auto kept = t;
        kept.insert(kept.end(), found.begin(), found.end());
        context->save_for_backward(std::move(kept));
        context->set_materialize_grads(false);
        context->saved_data["settings"] = std::vector<int64_t>{
            s.reverse, s.mode, s.size, s.layers, s.biases, s.bidirectional, s.batch_first, s.train};
        found.resize(OUTPUTS);
        return found;
    }

    static Tensors backward(torch::autograd::AutogradContext* context, Tensors gradients) {
        const auto n = context->saved_data["settings"].toIntVector();
        const Settings s{n[0] != 0, n[1], n[2], n[3], n[4] != 0, n[5] != 0, n[6] != 0, n[7] != 0};
        const auto kept = context->get_saved_variables();
        auto found =
            at::GradMode::is_enabled() ? differentiable(s, kept, gradients) : of_pieces(s, kept, gradients);
        found.insert(found.begin(), 2, Tensor());  // of the number of pieces, and the settings
        return found;
    }

private:
    static Tensors of_pieces(const Settings& s, const Tensors& kept, const Tensors& gradients) {
        Below below;
        const int64_t pieces = static_cast<int64_t>(kept.size() - TENSORS - OUTPUTS);
        std::vector<Tensors> parts(pieces);
        spread(pieces, [&](int64_t i) {
            const auto cut = [&](const Tensor& t, int64_t dim) { return part(t, dim, i, pieces); };
            const auto state = [&](size_t j) { return cut(kept[j], STATE); };
            auto [input, w1, w2, w3, w4, hidden, cells] =
                at::mkldnn_rnn_layer_backward(cut(kept[0], INPUT), kept[1], kept[2], kept[3], kept[4],
                    state(5), state(6), cut(kept[7], INPUT), state(8), state(9), cut(gradients[0], INPUT),
                    cut(gradients[1], STATE), cut(gradients[2], STATE), s.reverse, s.mode, s.size, s.layers,
                    s.biases, s.train, s.bidirectional, {}, s.batch_first, kept[TENSORS + OUTPUTS + i]);
            parts[i] = {input, w1, w2, w3, w4, hidden, cells};
        });
        Tensors found{joined(parts, 0, INPUT)};
        for (size_t j = 1; j < 5; ++j) {
            Tensors summands;
            for (const auto& piece : parts) summands.push_back(piece[j]);
            found.push_back(tree_sum(summands));
        }
        found.push_back(joined(parts, 5, STATE));
        found.push_back(joined(parts, 6, STATE));
        return found;
    }

    // To be differentiated again, which torch does of a whole layer.
    static Tensors differentiable(const Settings& s, const Tensors& t, const Tensors& gradients) {
        OneThread whole;
        const auto [output, hidden, cells, workspace] =
            at::mkldnn_rnn_layer(t[0], t[1], t[2], t[3], t[4], t[5], t[6], s.reverse, {}, s.mode, s.size,
                s.layers, s.biases, s.bidirectional, s.batch_first, s.train);
        const Tensor outputs[] = {output, hidden, cells};
        Tensors of, by, given;
        for (size_t i = 0; i < OUTPUTS; ++i)
            if (gradients[i].defined()) of.push_back(outputs[i]), given.push_back(gradients[i]);
        for (size_t i = 0; i < TENSORS; ++i)
            if (t[i].requires_grad()) by.push_back(t[i]);
        auto next = torch::autograd::grad(of, by, given, std::nullopt, true, true);
        Tensors found;
        for (size_t i = 0, j = 0; i < TENSORS; ++i)
            found.push_back(t[i].requires_grad() ? next[j++] : Tensor());
        return found;
    }

    // Contiguous: oneDNN's layer takes that for granted.
    static Tensor part(const Tensor& t, int64_t dim, int64_t i, int64_t pieces) {
        if (!t.defined()) return t;
        const int64_t at = dim < 0 ? dim + t.dim() : dim, length = t.size(at) / pieces;
        return slice_of(t, at, i * length, length).contiguous();
    }

    static Tensor joined(const std::vector<Tensors>& parts, size_t j, int64_t dim) {
        Tensors found;
        for (const auto& piece : parts) found.push_back(piece[j]);
        return at::cat(found, dim);
    }
};

class LstmLayer : public c10::OperatorKernel {
public:
    LstmLayer(c10::SafeKernelFunction native, bool above) : native_(std::move(native)), above_(above) {}

    void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
        if (alone) return native_.callBoxed(op, keys, stack);
        // Below autograd a workspace may be asked for, but not in inference.
        const auto arguments = torch::jit::last(*stack, op.schema().arguments().size());
        const bool cut = above_ ? !transformed() : c10::InferenceMode::is_enabled();
        if (machine::kernels && cut) {
            machine::Call call(*stack, arguments.size());
            if (machine::lstm(call)) {
                torch::jit::drop(*stack, op.schema().arguments().size());
                for (auto& result : call.results) torch::jit::push(*stack, std::move(result));
                return;
            }
        }
        const int64_t pieces = cut ? pieces_of_lstm(arguments) : 1;
        if (pieces > 1) {
            Lstm::Tensors t;
            for (size_t i = 0; i < Lstm::TENSORS; ++i) t.push_back(arguments[i].toTensor());
            const auto settings = Lstm::settings_of(arguments);
            const auto found = above_ && at::GradMode::is_enabled()
                                   ? Lstm::apply(pieces, settings, t[0], t[1], t[2], t[3], t[4], t[5], t[6])
                                   : Lstm::in_pieces(pieces, settings, t, false);
            torch::jit::drop(*stack, op.schema().arguments().size());
            for (size_t j = 0; j < Lstm::OUTPUTS; ++j) torch::jit::push(*stack, found[j]);
            return torch::jit::push(*stack, at::empty({0}, at::kByte));
        }
        if (above_) return native_.callBoxed(op, keys, stack);
        OneThread one;
        native_.callBoxed(op, keys, stack);
    }

private:
    // By functorch, which knows nothing of autograd's functions in C++.
    static bool transformed() {
        const auto keys = c10::impl::tls_local_dispatch_key_set().included_;
        return keys.has(c10::DispatchKey::FuncTorchDynamicLayerFrontMode) ||
               keys.has(c10::DispatchKey::FuncTorchDynamicLayerBackMode);
    }

    c10::SafeKernelFunction native_;
    bool above_;
};

std::unique_ptr<torch::Library> library;
std::string message;

c10::SafeKernelFunction kernel_of(
    const std::string& name, const std::string& overload, c10::DispatchKey key = c10::DispatchKey::CPU) {
    return c10::Dispatcher::singleton()
        .findSchemaOrThrow(name.c_str(), overload.c_str())
        .getComputedKernelForDispatchKey(key);
}

using Way = std::function<void(const c10::OperatorHandle&, c10::DispatchKeySet, Stack*)>;

template <class Functor, class... Arguments>
Way as_way(Arguments&&... arguments) {
    auto functor = std::make_shared<Functor>(std::forward<Arguments>(arguments)...);
    return [functor](const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
        (*functor)(op, keys, stack);
    };
}

// The way at level threads; empty where an operation stays torch's.
Way way_of(const std::string& name, const std::string& overload, const std::string& way) {
    const auto native = kernel_of(name, overload);
    if (way.empty())
        return [native](const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
            native.callBoxed(op, keys, stack);
        };
    if (way == "sum_out") return as_way<SumOut>(native);
    if (way == "lstm") return as_way<LstmLayer>(native, false);
    if (way == "layer_norm_backward") return as_way<LayerNormBackward>(native);
    for (const auto& [known, planner] : PLANNERS)
        if (way == known) return as_way<Replacement>(native, planner);
    TORCH_CHECK(false, "there is no way to compute called ", way);
}

thread_local int64_t left_to_torch = 0;  // operations of our own whose arguments were not

// How often an operation was computed since exact mode was last switched on, in all threads.
struct Tally {
    std::atomic<int64_t> own{0}, otherwise{0};  // `otherwise`: on numbers with fractions, not within another
};
std::map<std::string, Tally> tallies;  // by operation; they stay where they are

bool has_fractions(const Stack& stack, size_t arguments) {
    const auto fractional = [](const Tensor& t) {
        return t.defined() && t.numel() && (t.is_floating_point() || t.is_complex());
    };
    for (const auto& value : torch::jit::last(stack, arguments)) {
        if (value.isDouble() || value.isComplexDouble()) return true;
        if (value.isTensor() && fractional(value.toTensor())) return true;
        if (value.isTensorList())
            for (const Tensor& t : value.toTensorList())
                if (fractional(t)) return true;
    }
    return false;
}

void count_otherwise(Tally& tally, const c10::OperatorHandle& op, const Stack& stack) {
    if (!alone && has_fractions(stack, op.schema().arguments().size()))
        tally.otherwise.fetch_add(1, std::memory_order_relaxed);
}

void leave_to_torch(Tally& tally, const c10::OperatorHandle& op, const Stack& stack) {
    ++left_to_torch;
    count_otherwise(tally, op, stack);
}

// An operation at level machine where it is our own, at level threads where not. What it gives may go into
// the last argument (`out`), or into the first (`in place`).
class Machine : public c10::OperatorKernel {
public:
    Machine(Tally& tally, Way otherwise, machine::Own own, std::string into)
        : tally_(tally), otherwise_(std::move(otherwise)), own_(own), into_(std::move(into)) {}

    void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
        const size_t size = op.schema().arguments().size();
        machine::Call call(*stack, size);
        if (!own_(call)) {
            leave_to_torch(tally_, op, *stack);
            return otherwise_(op, keys, stack);
        }
        tally_.own.fetch_add(1, std::memory_order_relaxed);
        Tensor target;
        if (!into_.empty()) {
            target = (into_ == "out" ? torch::jit::peek(*stack, 0, 1) : torch::jit::peek(*stack, 0, size))
                         .toTensor();
            const auto result = call.results[0].toTensor();
            if (into_ == "out") target.resize_(result.sizes());
            target.copy_(result);
            call.results = {target};
        }
        torch::jit::drop(*stack, size);
        for (auto& result : call.results) torch::jit::push(*stack, std::move(result));
    }

private:
    Tally& tally_;
    Way otherwise_;
    machine::Own own_;
    std::string into_;
};

// An element's function of our own.
class MachineFunction : public c10::OperatorKernel {
public:
    MachineFunction(Tally& tally, Way otherwise, machine::ElementwiseFunction own)
        : tally_(tally), otherwise_(std::move(otherwise)), own_(std::move(own)) {}
    void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
        if (own_(stack)) {
            tally_.own.fetch_add(1, std::memory_order_relaxed);
            return;
        }
        leave_to_torch(tally_, op, *stack);
        otherwise_(op, keys, stack);
    }

private:
    Tally& tally_;
    Way otherwise_;
    machine::ElementwiseFunction own_;
};

class Boxed : public c10::OperatorKernel {
public:
    Boxed(Tally& tally, Way way) : tally_(tally), way_(std::move(way)) {}
    void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
        count_otherwise(tally_, op, *stack);
        way_(op, keys, stack);
    }

private:
    Tally& tally_;
    Way way_;
};

// The same with boxed arguments, for what is no product of ours.
Way boxed_product(const std::string& name) {
    const bool added = name == "aten::addmm" || name == "aten::baddbmm",
               batched = name == "aten::bmm" || name == "aten::baddbmm";
    return [=](const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
        const auto arguments = torch::jit::pop(*stack, op.schema().arguments().size());
        const auto tensor = [&](size_t i) { return arguments[i].toTensor(); };
        torch::jit::push(*stack, added ? (batched ? products::baddbmm : products::addmm)(tensor(0), tensor(1),
                                             tensor(2), arguments[3].toScalar(), arguments[4].toScalar())
                                       : (batched ? products::bmm : products::mm)(tensor(0), tensor(1)));
    };
}

torch::CppFunction products_at_level_threads(const std::string& name) {
    if (name == "aten::mm") return torch::CppFunction::makeFromUnboxedFunction(products::mm);
    if (name == "aten::bmm") return torch::CppFunction::makeFromUnboxedFunction(products::bmm);
    if (name == "aten::addmm") return torch::CppFunction::makeFromUnboxedFunction(products::addmm);
    return torch::CppFunction::makeFromUnboxedFunction(products::baddbmm);
}

// `way` at level threads, or nothing; `own` at level machine, or nothing: a name, and into what it goes.
torch::CppFunction function_for(
    const std::string& name, const std::string& overload, const std::string& way, const std::string& own) {
    if (own.empty() && way == "gemm") return products_at_level_threads(name);
    Tally& tally = tallies[name];
    if (own.empty())
        return torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Boxed>(tally, way_of(name, overload, way)));
    Way otherwise = way == "gemm" ? boxed_product(name) : way_of(name, overload, way);
    if (own == "function") {
        const auto& schema =
            c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), overload.c_str()).schema();
        if (auto function = machine::ElementwiseFunction::of(machine::kernels, schema))
            return torch::CppFunction::makeFromBoxedFunctor(
                std::make_unique<MachineFunction>(tally, std::move(otherwise), std::move(*function)));
        return torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Boxed>(tally, std::move(otherwise)));
    }
    const auto space = own.find(' ');
    const auto found = machine::OWN.find(own.substr(0, space));
    TORCH_CHECK(found != machine::OWN.end(), "the arithmetic has no operation called ", own);
    return torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Machine>(
        tally, std::move(otherwise), found->second, space == std::string::npos ? "" : own.substr(space + 1)));
}

struct Silent : c10::WarningHandler {
    void process(const c10::Warning&) override {}
};

template <class Work>
const char* guarded(const Work& work) {
    try {
        Silent silent;  // torch warns of whatever is put in place of a kernel of its own
        c10::WarningUtils::WarningHandlerGuard guard(&silent);
        work();
        return nullptr;
    } catch (const std::exception& error) {
        message = error.what();
        return message.c_str();
    }
}

}  // namespace

// What Python calls: each returns what went wrong, or nothing.
#pragma GCC visibility push(default)
extern "C" {

// Which of the arithmetic's libraries this CPU can run.
const char* exact_instructions() {
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return "none";
    for (const bool has : {__builtin_cpu_supports("avx512f") != 0, __builtin_cpu_supports("avx512bw") != 0,
             __builtin_cpu_supports("avx512dq") != 0, __builtin_cpu_supports("avx512vl") != 0})
        if (!has) return "avx2";
    return "avx512";
#elif defined(__aarch64__)
    return "neon";
#else
    return "none";
#endif
}

// `arithmetic`: the path of its library, or nothing for level threads.
const char* exact_begin(const int64_t* numbers, const char* arithmetic) {
    return guarded([&] {
        limits = {numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5]};
        machine::kernels = nullptr;
        for (auto& [name, tally] : tallies) tally.own = tally.otherwise = 0;
        if (arithmetic) {
            void* opened = dlopen(arithmetic, RTLD_NOW | RTLD_LOCAL);
            TORCH_CHECK(opened, dlerror());
            using Offer = const Kernels* (*)(const Host*);
            const auto offer = reinterpret_cast<Offer>(dlsym(opened, "vbstudy_kernels"));
            TORCH_CHECK(offer, dlerror());
            machine::kernels = offer(&machine::HOST);
        }
        library =
            std::make_unique<torch::Library>(torch::Library::IMPL, "aten", std::nullopt, __FILE__, __LINE__);
        library->impl("empty.memory_format", torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(empty)));
    });
}

const char* exact_replace(const char* name, const char* overload, const char* way, const char* own) {
    return guarded([&] {
        const std::string full = std::string("aten::") + name;
        const std::string with = *overload ? full + "." + overload : full;
        library->impl(
            with.c_str(), torch::dispatch(c10::DispatchKey::CPU, function_for(full, overload, way, own)));
        if (std::string(way) == "lstm" && !*own) {
            const auto key = c10::DispatchKey::AutogradCPU;
            library->impl(with.c_str(),
                torch::dispatch(key, torch::CppFunction::makeFromBoxedFunctor(
                                         std::make_unique<LstmLayer>(kernel_of(full, overload, key), true))));
        }
    });
}

int64_t exact_left_to_torch() { return left_to_torch; }

// Lines of an operation's name and how often it was computed by the arithmetic, and otherwise.
const char* exact_counts() {
    static thread_local std::string counts;
    counts.clear();
    for (const auto& [name, tally] : tallies)
        counts += name + " " + std::to_string(tally.own) + " " + std::to_string(tally.otherwise) + "\n";
    return counts.c_str();
}

const char* exact_end() {
    return guarded([] { library.reset(); });
}
}
#pragma GCC visibility pop
