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
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/narrow.h>
#include <c10/core/AutogradState.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <torch/library.h>

#include "machine.h"
#include "plans.h"

#include <algorithm>
#include <atomic>
#include <functional>
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

Tensor flattened(const Tensor& t) { return view(t, {t.numel()}, {1}, t.storage_offset()); }

// p0 + p1, p2 + p3, ..., then these again, until one is left.
Tensor tree_sum(std::vector<Tensor>& parts) {
    for (size_t width = 1; width < parts.size(); width *= 2)
        for (size_t i = 0; i + width < parts.size(); i += 2 * width) parts[i].add_(parts[i + width]);
    return parts[0];
}

// How an operation is computed, from its arguments on the stack.
using Way = std::function<void(const c10::OperatorHandle&, c10::DispatchKeySet, Stack*)>;

void in_pieces(const c10::SafeKernelFunction& native, const c10::OperatorHandle& op, c10::DispatchKeySet keys,
    Stack* stack, const Plan& plan) {
    const auto whole = torch::jit::pop(*stack, op.schema().arguments().size());
    const int64_t step = plan.step(), count = (plan.size + step - 1) / step;
    std::vector<Stack> pieces(count, whole);
    spread(count, [&](int64_t i) {
        const int64_t begin = i * step, length = std::min(step, plan.size - begin);
        for (const auto& [argument, dim] : plan.cuts) {
            const auto& t = whole[argument].toTensor();
            pieces[i][argument] = slice_of(plan.flat ? flattened(t) : t, dim, begin, length);
        }
        if (plan.count_argument >= 0) pieces[i][plan.count_argument] = length;
        native.callBoxed(op, keys, &pieces[i]);
    });
    if (plan.join.empty()) return torch::jit::push(*stack, whole[0]);  // in place
    for (size_t j = 0; j < plan.join.size(); ++j) {
        std::vector<Tensor> parts;
        for (const auto& piece : pieces)
            parts.push_back(is_tensor(piece[j]) ? piece[j].toTensor() : Tensor());
        Tensor joined;
        if (parts[0].defined() && plan.join[j] == SUM) {
            joined = tree_sum(parts);
        } else if (parts[0].defined()) {
            joined = like(parts[0], plan.join[j], plan.size);
            at::cat_out(joined, parts, plan.join[j]);
        }
        if (plan.flat) {
            const auto& model = whole[plan.cuts[0].argument].toTensor();
            joined = view(joined, model.sizes(), model.strides(), 0);
        }
        torch::jit::push(*stack, joined);
    }
}

std::unique_ptr<torch::Library> library;
std::string message;

// The way at level threads.
Way way_of(const c10::SafeKernelFunction& native, const std::string& way) {
    for (const auto& [known, planner] : PLANNERS)
        if (way == known)  // clang before 16 captures a structured binding only so
            return [native, planner = planner](const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                                               Stack* stack) {
                if (alone) return native.callBoxed(op, keys, stack);
                const auto plan = planner ? planner(torch::jit::last(*stack, op.schema().arguments().size()))
                                          : std::nullopt;
                if (plan && plan->pieces > 1) return in_pieces(native, op, keys, stack, *plan);
                if (plan && !plan->pieces) return native.callBoxed(op, keys, stack);
                OneThread one;
                native.callBoxed(op, keys, stack);
            };
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

// With no rows, or none to add up, nothing is rounded: results are empty, zeros, or what is added to them.
bool sums_nothing(const Stack& stack, size_t arguments) {
    for (const auto& value : torch::jit::last(stack, arguments))
        if (value.isTensor() && value.toTensor().defined() && !value.toTensor().numel() &&
            value.toTensor().is_floating_point())
            return true;
    return false;
}

// Where torch's own are at level machine with some arguments and not with others, as a product and a sum are rounded
// once or twice: whether these are ones where nothing is multiplied. By operation.
using Once = bool (*)(Arguments);
const std::map<std::string, Once> ROUNDED_ONCE = [] {
    const Once alpha_of_add = [](Arguments a) { return machine::is_one(a[2]); };
    const Once alpha_of_index_add = [](Arguments a) { return machine::is_one(a[4]); };
    const Once weights_of_bag = [](Arguments a) { return !is_tensor(a[6]); };
    std::map<std::string, Once> found{
        {"aten::uniform_",
            [](Arguments a) {
                int exponent;
                return std::abs(std::frexp(a[2].toDouble() - a[1].toDouble(), &exponent)) == 0.5;
            }},
        {"aten::embedding_dense_backward", [](Arguments a) { return !a[4].toBool(); }},
        {"aten::_adaptive_avg_pool2d", [](Arguments) { return true; }},
        {"aten::_embedding_bag", weights_of_bag},
        {"aten::_embedding_bag_forward_only", weights_of_bag},
    };
    for (const auto* name : {"add", "sub", "rsub"}) found["aten::" + std::string(name)] = alpha_of_add;
    for (const auto* name : {"add_", "sub_"}) found["aten::" + std::string(name)] = alpha_of_add;
    for (const auto* name : {"index_add", "index_add_"}) found["aten::" + std::string(name)] = alpha_of_index_add;
    return found;
}();

// Lets torch compute, and notes it where that is below level machine: numbers with fractions, and those that come of
// whole ones, but for `arange`. `own`: there is one of our own, which did not take the arguments.
void by_torch(Tally& tally, bool own, const Way& way, const c10::OperatorHandle& op, c10::DispatchKeySet keys,
    Stack* stack) {
    const size_t arguments = op.schema().arguments().size();
    const auto once = ROUNDED_ONCE.find(op.schema().name());
    const bool right = sums_nothing(*stack, arguments) ||
                       (once != ROUNDED_ONCE.end() && once->second(torch::jit::last(*stack, arguments)));
    bool fractions = has_fractions(*stack, arguments);
    way(op, keys, stack);
    if (right) return;
    fractions |= op.schema().name() != "aten::arange" && has_fractions(*stack, op.schema().returns().size());
    left_to_torch += fractions && (own || once != ROUNDED_ONCE.end());
    if (!alone && fractions) tally.otherwise.fetch_add(1, std::memory_order_relaxed);
}

// Takes the arguments off the stack and puts the results there, or leaves it where they are not its own.
using Own = std::function<bool(const c10::OperatorHandle&, Stack*)>;

// An operation of the arithmetic. What it gives may go into the last argument (`out`), or into the first
// (`in place`).
Own own_of(machine::Own compute, const std::string& into = "") {
    return [compute, into](const c10::OperatorHandle& op, Stack* stack) {
        const size_t size = op.schema().arguments().size();
        machine::Call call(*stack, size);
        if (!compute(call)) return false;
        if (!into.empty()) {
            const auto target = call.tensor(into == "out" ? size - 1 : 0);
            const auto result = call.results[0].toTensor();
            if (target.scalar_type() != result.scalar_type()) return false;
            if (into == "in place" && target.sizes() != result.sizes()) return false;  // torch's error
            if (into == "out") target.resize_(result.sizes());
            target.copy_(result);
            call.results = {target};
        }
        torch::jit::drop(*stack, size);
        for (auto& result : call.results) torch::jit::push(*stack, std::move(result));
        return true;
    };
}

// At level machine where an operation is our own, at level threads where not.
Way own_or(Tally& tally, Own own, Way otherwise) {
    return [&tally, own, otherwise](const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
        if (!own(op, stack)) return by_torch(tally, true, otherwise, op, keys, stack);
        tally.own.fetch_add(1, std::memory_order_relaxed);
    };
}

// `way` at level threads, or nothing; `own` at level machine, or nothing: a name, and into what it goes.
Way function_for(
    const std::string& name, const std::string& overload, const std::string& way, const std::string& own) {
    const auto operation = c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), overload.c_str());
    Tally& tally = tallies[name];
    const Way otherwise = way_of(operation.getComputedKernelForDispatchKey(c10::DispatchKey::CPU), way);
    const auto function = own == "function"
                              ? machine::ElementwiseFunction::of(machine::kernels, operation.schema())
                              : std::nullopt;
    if (function)
        return own_or(tally, [f = *function](const auto&, Stack* stack) { return f(stack); }, otherwise);
    if (own.empty() || own == "function")
        return [&tally, otherwise](const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
            by_torch(tally, false, otherwise, op, keys, stack);
        };
    const auto space = own.find(' ');
    const auto found = machine::OWN.find(own.substr(0, space));
    TORCH_CHECK(found != machine::OWN.end(), "the arithmetic has no operation called ", own);
    const auto into = space == std::string::npos ? "" : own.substr(space + 1);
    return own_or(tally, own_of(found->second, into), otherwise);
}

// LSTM layers above autograd, because their backward needs what their forward kept.
Way lstm_above(const std::string& name) {
    const auto native = c10::Dispatcher::singleton()
                            .findSchemaOrThrow(name.c_str(), "")
                            .getComputedKernelForDispatchKey(c10::DispatchKey::AutogradCPU);
    return [native, &tally = tallies[name], own = own_of(machine::lstm)](
               const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
        // functorch knows nothing of autograd's functions in C++
        const auto on = c10::impl::tls_local_dispatch_key_set().included_;
        const bool transformed = on.has(c10::DispatchKey::FuncTorchDynamicLayerFrontMode) ||
                                 on.has(c10::DispatchKey::FuncTorchDynamicLayerBackMode);
        if (transformed || !own(op, stack)) return native.callBoxed(op, keys, stack);
        tally.own.fetch_add(1, std::memory_order_relaxed);
    };
}

class Boxed : public c10::OperatorKernel {
public:
    explicit Boxed(Way way) : way_(std::move(way)) {}
    void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
        machine::keep_subnormals();
        way_(op, keys, stack);
    }

private:
    Way way_;
};

// By operation, key and how it is computed. They stay for good: when exact mode is switched off, another thread may
// still be within one.
std::map<std::string, c10::BoxedKernel> kept;

template <class Make>
void replace(const std::string& name, c10::DispatchKey key, const std::string& how, const Make& make) {
    auto& kernel = kept[name + " " + c10::toString(key) + " " + how];
    if (!kernel.isValid()) kernel = c10::BoxedKernel::makeFromFunctor(std::make_unique<Boxed>(make()));
    library->impl(name.c_str(), torch::dispatch(key, torch::CppFunction::makeFromBoxedKernel(kernel)));
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
const char* exact_begin(const char* arithmetic) {
    return guarded([&] {
        if (machine::flushes_subnormals()) {  // torch's other threads may too: they are this one's copies
            machine::keep_subnormals();
            machine::in_threads(at::get_num_threads(), [](long) {});
        }
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
    });
}

const char* exact_replace(const char* name, const char* overload, const char* way, const char* own) {
    return guarded([&] {
        const std::string full = std::string("aten::") + name;
        const std::string with = *overload ? full + "." + overload : full, how = std::string(way) + "/" + own;
        replace(with, c10::DispatchKey::CPU, how, [&] { return function_for(full, overload, way, own); });
        if (std::string(own) == "lstm")
            replace(with, c10::DispatchKey::AutogradCPU, how, [&] { return lstm_above(full); });
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
