// The arithmetic's functions of one element, optimizers and random numbers in place of torch's operations.
//
// For functions: which of an operation's overloads is which function stands in FUNCTIONS; results are
// allocated, and inputs of different sizes and strides walked through, by torch's own iterator, whose order
// shows in no bit.
#pragma once

#include "arithmetic/table.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/DistributionsHelper.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ExpandUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sum.h>
#include <torch/library.h>

#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace machine {

// What an operation takes, without its outputs: T a tensor, S a number, a switch or nothing, W a word.
std::string kinds_of(const c10::FunctionSchema& schema) {
    std::string kinds;
    for (const auto& argument : schema.arguments()) {
        if (argument.is_out()) continue;
        const auto kind = argument.type()->kind();
        kinds += kind == c10::TypeKind::TensorType ? 'T' : kind == c10::TypeKind::StringType ? 'W' : 'S';
    }
    return kinds;
}

// By operation, without what marks it as in place, and kinds. The functions are one for each result.
const std::map<std::string, std::vector<std::string>> FUNCTIONS = [] {
    std::map<std::string, std::vector<std::string>> found{
        {"gelu:TW", {"gelu", "gelu_tanh"}},
        {"gelu_backward:TTW", {"gelu_backward", "gelu_tanh_backward"}},
        {"elu:TSSS", {"elu"}},
        {"elu_backward:TSSSST", {"elu_backward"}},
        {"softplus:TSS", {"softplus"}},
        {"softplus_backward:TTSS", {"softplus_backward"}},
        {"logit:TS", {"logit"}},
        {"logit_backward:TTS", {"logit_backward"}},
        {"log_sigmoid_forward:T", {"log_sigmoid", "log_sigmoid_kept"}},
        {"log_sigmoid_backward:TTT", {"log_sigmoid_backward"}},
        {"pow:TT", {"pow"}},
        {"pow:TS", {"pow_number"}},
        {"pow:ST", {"number_pow"}},
        {"add:TTS", {"add"}},
        {"sub:TTS", {"sub"}},
        {"rsub:TTS", {"rsub"}},
        {"lerp:TTT", {"lerp"}},
        {"lerp:TTS", {"lerp_number"}},
        {"addcmul:TTTS", {"addcmul"}},
        {"addcdiv:TTTS", {"addcdiv"}},
    };
    for (const auto* name : {"exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan",
             "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "sigmoid", "erf",
             "erfc", "erfinv", "sqrt", "rsqrt", "reciprocal", "silu", "mish"})
        found[std::string(name) + ":T"] = {name};
    for (const auto* name : {"atan2", "hypot", "logaddexp", "logaddexp2", "xlogy", "silu_backward",
             "mish_backward", "tanh_backward", "sigmoid_backward"})
        found[std::string(name) + ":TT"] = {name};
    return found;
}();

// Whether nothing is multiplied by this factor.
bool is_one(const c10::IValue& alpha) {
    if (alpha.isComplexDouble()) return alpha.toComplexDouble() == 1.;
    return alpha.isBool() || alpha.toScalar().toDouble() == 1;
}

class ElementwiseFunction {
public:
    // For an operation by its full name; nothing where none of the functions is it.
    static std::optional<ElementwiseFunction> of(const Kernels* kernels, const c10::FunctionSchema& schema) {
        auto name = schema.name().substr(schema.name().find("::") + 2);
        if (name.size() > 1 && name.back() == '_') name.pop_back();
        const auto known = FUNCTIONS.find(name + ":" + kinds_of(schema));
        if (known == FUNCTIONS.end()) return std::nullopt;
        ElementwiseFunction found;
        for (const auto& wanted : known->second)
            for (const auto* f = kernels->functions; f->name; ++f)
                if (wanted == f->name) found.functions_.push_back(*f);
        TORCH_CHECK(
            found.functions_.size() == known->second.size(), "the arithmetic has no function for ", name);
        found.arguments_ = schema.arguments().size();
        for (const auto& argument : schema.arguments()) {
            const bool written = argument.alias_info() && argument.alias_info()->isWrite();
            found.roles_.push_back(argument.is_out() ? OUT : written ? IN_PLACE : IN);
        }
        found.subtracts_ = name == "sub" || name == "rsub";
        found.adds_ = name == "add" || found.subtracts_;
        found.lerps_ = name == "lerp";
        found.divides_ = name == "addcdiv";
        found.contiguous_ = name == "log_sigmoid_forward" || known->first == "pow:ST";
        found.keeps_buffer_ = name == "log_sigmoid_backward";
        found.may_be_of_result_ = name == "elu_backward";
        found.results_ = schema.returns().size();
        return found;
    }

    // Takes the arguments off the stack and puts the results there, or leaves it: other types, devices,
    // layouts.
    bool operator()(torch::jit::Stack* stack) const {
        if (adds_) {  // one addition is rounded correctly by everyone
            const auto& alpha = torch::jit::peek(*stack, 2, arguments_);
            if (is_one(alpha) || alpha.isComplexDouble()) return false;
        }
        std::vector<at::Tensor> inputs, outputs;
        double numbers[8] = {};
        size_t count = 0, word = 0;
        bool whole = false;  // an input of float32 that is no single number decides the type
        for (size_t i = 0; i < arguments_; ++i) {
            const auto& value = torch::jit::peek(*stack, i, arguments_);
            if (value.isTensor()) {
                const auto t = value.toTensor();
                if (!t.defined() || !t.device().is_cpu() || t.layout() != at::kStrided || t.is_neg())
                    return false;
                const bool ours = t.scalar_type() == at::kFloat;
                if (!ours && (roles_[i] != IN || t.dim() || t.is_complex() || t.is_quantized())) return false;
                whole |= ours && t.dim() && roles_[i] != OUT;
                if (roles_[i] != IN) outputs.push_back(t);
                if (roles_[i] != OUT) inputs.push_back(t);
            } else if (value.isNone()) {
                numbers[count++] = std::numeric_limits<double>::quiet_NaN();
            } else if (value.isString()) {
                if (value.toStringRef() != "none" && value.toStringRef() != "tanh") return false;
                word = value.toStringRef() == "tanh";
            } else if (value.isBool()) {
                numbers[count++] = value.toBool();
            } else if (value.isScalar() && !value.isComplexDouble()) {
                numbers[count++] = value.toScalar().toDouble();
            } else {
                return false;
            }
        }
        if (keeps_buffer_) inputs.pop_back();
        if (may_be_of_result_ && numbers[3] != 0 && !(numbers[0] >= 0))
            return false;  // no function of the result: an error, in torch's words
        const auto whole_number = [&](size_t i) { return at::isIntegralType(inputs[i].scalar_type(), true); };
        if (divides_ && whole_number(1) && whole_number(2)) return false;  // an error, in torch's words
        for (size_t i = 0; i < inputs.size(); ++i) {
            auto& t = inputs[i];
            if (t.scalar_type() == at::kFloat) continue;
            if (!whole || (lerps_ && i < 2) || (subtracts_ && t.scalar_type() == at::kBool))
                return false;  // the latter two are errors too
            t = t.to(at::kFloat);
        }
        if (outputs.empty()) outputs.resize(results_);
        if (contiguous_) {
            const auto& x = inputs[0];
            for (auto& t : outputs)
                if (t.defined())
                    at::native::resize_output(t, x.sizes());
                else
                    t = made(x.sizes(), x);
        }
        for (size_t i = 0; i < results_; ++i)
            compute(functions_[results_ > 1 ? i : word], inputs, numbers, outputs[i]);
        torch::jit::drop(*stack, arguments_);
        for (auto& t : outputs) torch::jit::push(*stack, std::move(t));
        return true;
    }

    // One function on its own.
    static at::Tensor computed(const Kernels* kernels, const std::string& name,
        const std::vector<at::Tensor>& inputs, const double* numbers = nullptr) {
        at::Tensor output;
        for (const auto* f = kernels->functions; f->name; ++f)
            if (name == f->name) compute(*f, inputs, numbers, output);
        return output;
    }

private:
    enum Role { IN, IN_PLACE, OUT };
    static constexpr int64_t BLOCK = 512;

    static void compute(const Function& function, const std::vector<at::Tensor>& inputs,
        const double* numbers, at::Tensor& output) {
        at::TensorIteratorConfig config;
        config.add_output(output);
        for (const auto& t : inputs) config.add_const_input(t);
        auto iterator = config.build();
        const int operands = int(inputs.size()) + 1;
        iterator.for_each([&](char** data, const int64_t* strides, int64_t n) {
            const float* in[4];
            bool dense = true;
            for (int i = 0; i < operands; ++i) dense &= strides[i] == int64_t(sizeof(float));
            if (dense) {
                for (int i = 1; i < operands; ++i) in[i - 1] = reinterpret_cast<const float*>(data[i]);
                return function.of(n, in, numbers, reinterpret_cast<float*>(data[0]));
            }
            float held[4][BLOCK];
            for (int64_t begin = 0; begin < n; begin += BLOCK) {
                const int64_t m = std::min(BLOCK, n - begin);
                for (int i = 1; i < operands; ++i) {
                    const char* from = data[i] + begin * strides[i];
                    const auto first = reinterpret_cast<const float*>(from);
                    in[i - 1] = strides[i] == int64_t(sizeof(float)) ? first : held[i];
                    if (strides[i] == 0)
                        std::fill_n(held[i], m, *first);
                    else if (in[i - 1] == held[i])
                        for (int64_t k = 0; k < m; ++k)
                            held[i][k] = *reinterpret_cast<const float*>(from + k * strides[i]);
                }
                char* to = data[0] + begin * strides[0];
                if (strides[0] == int64_t(sizeof(float))) {
                    function.of(m, in, numbers, reinterpret_cast<float*>(to));
                    continue;
                }
                function.of(m, in, numbers, held[0]);
                for (int64_t k = 0; k < m; ++k) *reinterpret_cast<float*>(to + k * strides[0]) = held[0][k];
            }
        });
        output = iterator.output();
    }

    std::vector<Function> functions_;
    std::vector<Role> roles_;
    size_t arguments_ = 0, results_ = 0;
    bool adds_ = false, subtracts_ = false, lerps_ = false, divides_ = false, keeps_buffer_ = false,
         may_be_of_result_ = false, contiguous_ = false;  // the last: torch's results are, whatever the input
};

// Losses of probabilities; the mean or sum is taken as that of any tensor.
bool binary_cross_entropy(Call& call) {
    if (!call.ours({0, 1}) || !call.ours_or_none({2})) return false;
    const auto x = call.tensor(0);
    if (x.sizes() != call.tensor(1).sizes()) return false;
    if (!call.is_none(2) && !at::is_expandable_to(call.tensor(2).sizes(), x.sizes())) return false;
    for (const size_t i : {0, 1}) {
        const auto [lowest, highest] = at::aminmax(call.tensor(i));
        if (!(*in(lowest) >= 0 && *in(highest) <= 1)) return false;  // an error, in torch's words
    }
    auto loss = ElementwiseFunction::computed(kernels, "binary_cross_entropy", {x, call.tensor(1)});
    if (!call.is_none(2)) loss = at::mul(loss, call[2].toTensor());
    const auto reduction = call[3].toInt();
    call.results = {reduction == at::Reduction::Mean  ? at::mean(loss)
                    : reduction == at::Reduction::Sum ? at::sum(loss)
                                                      : loss};
    return true;
}

// Gradients of losses that are squares within a limit: gradient, input, target, reduction, limit
template <bool HUBER>
bool loss_backward(Call& call) {
    if (!call.ours({0, 1, 2})) return false;
    const bool mean = call[3].toInt() == at::Reduction::Mean;
    const double numbers[] = {mean ? 1. / double(call.tensor(1).numel()) : 1., call[4].toDouble()};
    call.results = {ElementwiseFunction::computed(kernels,
        HUBER ? "huber_loss_backward" : "smooth_l1_loss_backward",
        {call.tensor(0), call.tensor(1), call.tensor(2)}, numbers)};
    return true;
}

// Fused optimizers: `_fused_sgd_`, `_fused_adam_`, `_fused_adamw_`, `_fused_adagrad_` and their overloads

// Lists of tensors that lie alike, float32 and without holes; those of one parameter are at the same place.
bool alike(Call& call, size_t lists, std::vector<std::vector<Tensor>>& found) {
    for (size_t i = 0; i < lists; ++i) found.push_back(call[i].toTensorVector());
    for (const auto& list : found)
        for (size_t j = 0; j < list.size(); ++j) {
            const auto &t = list[j], &p = found[0][j];
            if (list.size() != found[0].size() || t.scalar_type() != at::kFloat || !t.device().is_cpu() ||
                t.layout() != at::kStrided || t.sizes() != p.sizes() || t.strides() != p.strides() ||
                !t.is_non_overlapping_and_dense())
                return false;
        }
    return true;
}
double number_of(const c10::IValue& v) { return v.isTensor() ? v.toTensor().item<double>() : v.toDouble(); }
bool overflowed(const c10::IValue& v) { return v.isTensor() && v.toTensor().item<float>() == 1; }
float scale_of(const c10::IValue& v) { return v.isTensor() ? v.toTensor().item<float>() : 1; }

bool fused_sgd(Call& call) {
    std::vector<std::vector<Tensor>> t;
    const bool moves = number_of(call[4]) != 0;
    if (!alike(call, moves ? 3 : 2, t)) return false;
    if (overflowed(call[11])) return true;
    const Sgd s{{float(call[3].toDouble()), scale_of(call[10]), call[8].toBool()}, float(number_of(call[5])),
        float(call[4].toDouble()), float(1 - call[6].toDouble()), call[7].toBool(), call[9].toBool()};
    for (size_t i = 0; i < t[0].size(); ++i)
        kernels->sgd(s, t[0][i].numel(), out(t[0][i]), out(t[1][i]), moves ? out(t[2][i]) : nullptr);
    return true;
}

template <bool DECOUPLED>
bool fused_adam(Call& call) {
    std::vector<std::vector<Tensor>> t;
    const bool amsgrad = call[11].toBool();
    if (!alike(call, amsgrad ? 5 : 4, t)) return false;
    if (overflowed(call[14])) return true;
    const double rate = number_of(call[6]), beta1 = call[7].toDouble(), beta2 = call[8].toDouble(),
                 decay = call[9].toDouble();
    const auto steps = call[5].toTensorVector();
    for (size_t i = 0; i < t[0].size(); ++i) {
        const double step = steps[i].item<double>();
        const Adam s{{DECOUPLED ? 0 : float(decay), scale_of(call[13]), call[12].toBool()},
            DECOUPLED ? float(1 - rate * decay) : 1, float(rate / (1 - std::pow(beta1, step))),
            float(1 - beta1), float(beta2), float(1 - beta2), float(std::sqrt(1 - std::pow(beta2, step))),
            float(call[10].toDouble())};
        kernels->adam(s, t[0][i].numel(), out(t[0][i]), out(t[1][i]), out(t[2][i]), out(t[3][i]),
            amsgrad ? out(t[4][i]) : nullptr);
    }
    return true;
}

bool fused_adagrad(Call& call) {
    std::vector<std::vector<Tensor>> t;
    if (!alike(call, 3, t)) return false;
    if (overflowed(call[10])) return true;
    const auto steps = call[3].toTensorVector();
    for (size_t i = 0; i < t[0].size(); ++i) {
        const double step = steps[i].item<double>();
        const Adagrad s{{float(call[6].toDouble()), scale_of(call[9]), call[8].toBool()},
            float(number_of(call[4]) / (1 + (step - 1) * call[5].toDouble())), float(call[7].toDouble())};
        kernels->adagrad(s, t[0][i].numel(), out(t[0][i]), out(t[1][i]), out(t[2][i]));
    }
    return true;
}

at::CPUGeneratorImpl* generator_of(const c10::IValue& given) {
    return at::get_generator_or_default<at::CPUGeneratorImpl>(
        given.isNone() ? std::nullopt : std::optional<at::Generator>(given.toGenerator()),
        at::detail::getDefaultCPUGenerator());
}

// Draws the elements one by one, in torch's order.
template <class Draw>
void in_turn(const Tensor& t, const Draw& draw) {
    auto iterator = at::TensorIterator::borrowing_nullary_op(t);
    iterator.serial_for_each(
        [&](char** data, const int64_t* strides, int64_t n) {
            for (int64_t i = 0; i < n; ++i) *reinterpret_cast<float*>(data[0] + i * strides[0]) = draw();
        },
        {0, t.numel()});
}

// uniform_(from, to, generator): torch's draws, rounded once.
bool uniform(Call& call) {
    if (!call.ours({0})) return false;
    const auto self = call.tensor(0);
    const float from = float(call[1].toDouble()), range = float(call[2].toDouble()) - from;
    if (!(range >= 0 && std::isfinite(range))) return false;  // an error, in torch's words
    auto* generator = generator_of(call[3]);
    const std::lock_guard<std::mutex> lock(generator->mutex_);
    at::uniform_real_distribution<float> draw(0, 1);
    in_turn(self, [&] { return std::fma(float(draw(generator)), range, from); });
    call.results = {self};
    return true;
}

// normal_(mean, std, generator): torch's draws in torch's order, a block of 16 at a time, or one by one for
// fewer than 16 elements and for those that are not contiguous.
bool normal(Call& call) {
    constexpr int64_t BLOCK = 16;
    if (!call.ours({0})) return false;
    const auto self = call.tensor(0);
    const double mean = call[1].toDouble(), deviation = call[2].toDouble();
    if (!(deviation >= 0)) return false;
    auto* generator = generator_of(call[3]);
    const std::lock_guard<std::mutex> lock(generator->mutex_);
    const int64_t n = self.numel();
    call.results = {self};
    if (n >= BLOCK && self.is_contiguous()) {
        float* x = self.mutable_data_ptr<float>();
        at::uniform_real_distribution<float> uniform(0, 1);
        for (int64_t i = 0; i < n; ++i) x[i] = uniform(generator);
        float last[BLOCK];
        kernels->normal_blocks(n / BLOCK * BLOCK, x, mean, deviation);
        if (n % BLOCK) {
            for (auto& v : last) v = uniform(generator);
            kernels->normal_blocks(BLOCK, last, mean, deviation);
            std::copy(last, last + BLOCK, x + n - BLOCK);
        }
        return true;
    }
    at::uniform_real_distribution<double> uniform(0, 1);
    in_turn(self, [&] {
        double value;
        if (const auto kept = generator->next_double_normal_sample()) {
            value = *kept;
            generator->set_next_double_normal_sample(std::nullopt);
        } else {
            const double angle = uniform(generator), radius = uniform(generator);
            double second;
            kernels->normal_pair(angle, radius, &value, &second);
            generator->set_next_double_normal_sample(second);
        }
        return float(value * deviation + mean);
    });
    return true;
}

// mean, std, generator: at least one of the first two is a tensor.
bool normal_of(Call& call) {
    std::vector<int64_t> sizes;
    Tensor given;
    for (const size_t i : {0, 1}) {
        if (!call[i].isTensor()) continue;
        if (!call.ours({i})) return false;
        given = call.tensor(i);
        if (!sizes.empty() && !at::are_expandable(sizes, given.sizes())) return false;
        sizes = at::infer_size(sizes, given.sizes());
    }
    const bool spread = call[1].isTensor();
    if (!(spread ? at::amin(call.tensor(1)).item<double>() >= 0 : call[1].toDouble() >= 0)) return false;
    const auto y = made(sizes, given);
    y.normal_(0, 1, call[2].isNone() ? std::nullopt : std::optional<at::Generator>(call[2].toGenerator()));
    spread ? y.mul_(call.tensor(1)) : y.mul_(call[1].toDouble());
    call[0].isTensor() ? y.add_(call.tensor(0)) : y.add_(call[0].toDouble());
    call.results = {y};
    return true;
}

}  // namespace machine
