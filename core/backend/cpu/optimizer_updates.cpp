// SGD and Adam for all parameters in one kernel: every parameter's elements are cut into ranges
// that threads share, so that many small parameters cost one wake-up of the threads.
#include "core/ops/optimizer_updates.h"

#include <cmath>

#include "core/backend/cpu/float_kernels.h"
#include "core/backend/cpu/kernel_util.h"
#include "core/backend/cpu/kernels.h"
#include "core/backend/cpu/parallel.h"

namespace kerascnn::cpu {

namespace {

struct Parameter {
  DType dtype;
  int64_t size;
  int64_t copies;  // of the gradient, which may be a stack of partial sums
  int64_t first;   // its first element's number among all parameters' elements
  DType gradient_dtype;
};

// The parameters are the inputs from `first` on, and their gradients are the `count` inputs after
// them.
std::vector<Parameter> parameters_of(const PlanRequest& request, size_t first, size_t count) {
  std::vector<Parameter> parameters;
  int64_t total = 0;
  for (size_t i = 0; i < count; ++i) {
    const TensorSpec& spec = request.inputs[first + i];
    // This throws at planning for a dtype that the kernel does not take.
    dispatch_floating(request, spec.dtype, []<typename T>(Type<T>) {});
    const TensorSpec& gradient = request.inputs[first + count + i];
    const int64_t copies = gradient_copies(gradient.shape, spec.shape);
    parameters.push_back({spec.dtype, size_of(spec), copies, total, gradient.dtype});
    total += parameters.back().size;
  }
  return parameters;
}

// Calls body(parameter index, begin, end) for ranges that cover all elements of all parameters.
template <typename Body>
void for_each_range(const std::vector<Parameter>& parameters, const Body& body) {
  if (parameters.empty()) return;
  const int64_t total = parameters.back().first + parameters.back().size;
  parallel_for(total, kElementGrain / 2, [&](int64_t begin, int64_t end) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      const int64_t from = std::max<int64_t>(begin - parameters[i].first, 0);
      const int64_t to = std::min(end - parameters[i].first, parameters[i].size);
      if (from < to) body(i, from, to);
    }
  });
}

// Calls fill(g, from, to) and then body(g, from, to) for short ranges that cover begin to end.
template <typename T, typename Fill, typename Body>
void with_buffer(int64_t begin, int64_t end, const Fill& fill, const Body& body) {
  constexpr int64_t kMost = 256;  // elements at a time
  T buffer[kMost];
  for (int64_t from = begin; from < end; from += kMost) {
    const int64_t to = std::min(from + kMost, end);
    fill(buffer, from, to);
    body(buffer, from, to);
  }
}

template <typename T>
void add_copies(const Parameter& parameter, const T* gradient, T* sums, int64_t from, int64_t to) {
  for (int64_t i = from; i < to; ++i) {
    auto sum = static_cast<compute_t<T>>(gradient[i]);
    for (int64_t copy = 1; copy < parameter.copies; ++copy) {
      sum += static_cast<compute_t<T>>(gradient[copy * parameter.size + i]);
    }
    sums[i - from] = static_cast<T>(sum);
  }
}

// Calls body(g, from, to) for ranges that cover begin to end; g is the gradient from `from` on.
template <typename T, typename Body>
void with_gradient(const Parameter& parameter, const void* data, int64_t begin, int64_t end,
                   const Body& body) {
  const T* gradient = static_cast<const T*>(data);
  if constexpr (std::is_same_v<T, float>) {
    const auto widen_from = [&](const auto* narrow) {
      const auto fill = [&](float* wide, int64_t from, int64_t to) {
        widen(narrow + from, wide, to - from);
      };
      with_buffer<float>(begin, end, fill, body);
    };
    if (parameter.gradient_dtype == DType::Float16) {
      return widen_from(static_cast<const Half*>(data));
    }
    if (parameter.gradient_dtype == DType::BFloat16) {
      return widen_from(static_cast<const BFloat16*>(data));
    }
  }
  if (parameter.copies == 1) return body(gradient + begin, begin, end);
  const auto fill = [&](T* sums, int64_t from, int64_t to) {
    add_copies(parameter, gradient, sums, from, to);
  };
  with_buffer<T>(begin, end, fill, body);
}

double scalar_value(const void* data, DType dtype) {
  return with_floating(dtype, [&]<typename T>(Type<T>) -> double {
    return static_cast<compute_t<T>>(*static_cast<const T*>(data));
  });
}

template <typename T>
void sgd_range(const FloatKernels& kernels, const T* p, const T* g, T* new_p, int64_t size,
               compute_t<T> rate) {
  using C = compute_t<T>;
  if constexpr (std::is_same_v<T, float>) return kernels.sgd(p, g, new_p, size, rate);
  for (int64_t i = 0; i < size; ++i) {
    new_p[i] = static_cast<T>(static_cast<C>(p[i]) - rate * static_cast<C>(g[i]));
  }
}

template <typename T>
void momentum_range(const FloatKernels& kernels, const T* p, const T* g, const T* m, T* new_p,
                    T* new_m, int64_t size, compute_t<T> rate, compute_t<T> momentum,
                    bool nesterov) {
  using C = compute_t<T>;
  if constexpr (std::is_same_v<T, float>) {
    return kernels.momentum(p, g, m, new_p, new_m, size, {rate, momentum, nesterov});
  }
  for (int64_t i = 0; i < size; ++i) {
    const C step = rate * static_cast<C>(g[i]);
    const C velocity = momentum * static_cast<C>(m[i]) - step;
    const C change = nesterov ? momentum * velocity - step : velocity;
    new_p[i] = static_cast<T>(static_cast<C>(p[i]) + change);
    new_m[i] = static_cast<T>(velocity);
  }
}

struct AdamScalars {
  double alpha, beta_1, beta_2, epsilon;
};

template <typename T>
void adam_range(const FloatKernels& kernels, const T* p, const T* g, const T* m, const T* v,
                T* new_p, T* new_m, T* new_v, int64_t size, const AdamScalars& scalars) {
  using C = compute_t<T>;
  const C alpha = static_cast<C>(scalars.alpha);
  const C rest_1 = static_cast<C>(1 - scalars.beta_1);
  const C rest_2 = static_cast<C>(1 - scalars.beta_2);
  const C epsilon = static_cast<C>(scalars.epsilon);
  if constexpr (std::is_same_v<T, float>) {
    return kernels.adam(p, g, m, v, new_p, new_m, new_v, size, {alpha, rest_1, rest_2, epsilon});
  }
  for (int64_t i = 0; i < size; ++i) {
    const C gradient = static_cast<C>(g[i]);
    const C first = static_cast<C>(m[i]) + (gradient - static_cast<C>(m[i])) * rest_1;
    const C second = static_cast<C>(v[i]) + (gradient * gradient - static_cast<C>(v[i])) * rest_2;
    new_p[i] = static_cast<T>(static_cast<C>(p[i]) - first * alpha / (std::sqrt(second) + epsilon));
    new_m[i] = static_cast<T>(first);
    new_v[i] = static_cast<T>(second);
  }
}

}  // namespace

std::unique_ptr<Kernel> plan_sgd_update(const PlanRequest& request) {
  const double momentum = request.attributes.get_double("momentum");
  const bool nesterov = request.attributes.get_bool("nesterov");
  const SgdLayout layout{static_cast<size_t>(request.attributes.get_int("count")), momentum > 0};
  const DType rate_dtype = request.inputs[layout.learning_rate()].dtype;
  return make_kernel(
      "kerascnn sgd_update",
      [parameters = parameters_of(request, layout.parameter(0), layout.count), layout, momentum,
       nesterov, rate_dtype, &kernels = float_kernels()](const KernelArgs& args) {
        const double rate = scalar_value(args.inputs[layout.learning_rate()], rate_dtype);
        for_each_range(parameters, [&](size_t i, int64_t begin, int64_t end) {
          with_floating(parameters[i].dtype, [&]<typename T>(Type<T>) {
            using C = compute_t<T>;
            const T* p = input<T>(args, layout.parameter(i));
            T* new_p = output<T>(args, layout.new_parameter(i));
            const auto update = [&](const T* g, int64_t from, int64_t to) {
              if (layout.has_momentum) {
                momentum_range(kernels, p + from, g, input<T>(args, layout.momentum(i)) + from,
                               new_p + from, output<T>(args, layout.new_momentum(i)) + from,
                               to - from, static_cast<C>(rate), static_cast<C>(momentum), nesterov);
              } else {
                sgd_range(kernels, p + from, g, new_p + from, to - from, static_cast<C>(rate));
              }
            };
            with_gradient<T>(parameters[i], args.inputs[layout.gradient(i)], begin, end, update);
          });
        });
      });
}

std::unique_ptr<Kernel> plan_adam_update(const PlanRequest& request) {
  const AdamLayout layout{static_cast<size_t>(request.attributes.get_int("count"))};
  const double beta_1 = request.attributes.get_double("beta_1");
  const double beta_2 = request.attributes.get_double("beta_2");
  const double epsilon = request.attributes.get_double("epsilon");
  const DType rate_dtype = request.inputs[layout.learning_rate()].dtype;
  return make_kernel(
      "kerascnn adam_update",
      [parameters = parameters_of(request, layout.parameter(0), layout.count), layout, beta_1,
       beta_2, epsilon, rate_dtype, &kernels = float_kernels()](const KernelArgs& args) {
        const double rate = scalar_value(args.inputs[layout.learning_rate()], rate_dtype);
        const double step = static_cast<double>(*input<int64_t>(args, layout.iterations())) + 1;
        const AdamScalars scalars{
            rate * std::sqrt(1 - std::pow(beta_2, step)) / (1 - std::pow(beta_1, step)), beta_1,
            beta_2, epsilon};
        for_each_range(parameters, [&](size_t i, int64_t begin, int64_t end) {
          with_floating(parameters[i].dtype, [&]<typename T>(Type<T>) {
            const auto update = [&](const T* g, int64_t from, int64_t to) {
              adam_range(kernels, input<T>(args, layout.parameter(i)) + from, g,
                         input<T>(args, layout.first_moment(i)) + from,
                         input<T>(args, layout.second_moment(i)) + from,
                         output<T>(args, layout.new_parameter(i)) + from,
                         output<T>(args, layout.new_first_moment(i)) + from,
                         output<T>(args, layout.new_second_moment(i)) + from, to - from, scalars);
            };
            with_gradient<T>(parameters[i], args.inputs[layout.gradient(i)], begin, end, update);
          });
        });
      });
}

}  // namespace kerascnn::cpu
