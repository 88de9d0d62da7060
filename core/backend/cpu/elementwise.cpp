// Every op on one element at a time: each row of element_ops.h has a kernel.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/backend/cpu/broadcast.h"
#include "core/backend/cpu/element_kernels.h"
#include "core/backend/cpu/kernel_util.h"
#include "core/backend/cpu/kernels.h"
#include "core/backend/cpu/parallel.h"
#include "core/ops/element_functions.h"
#include "core/ops/element_program.h"

namespace kerascnn::cpu {

namespace {

// Calls function(Type<T>()) for the dtypes that ops of this kind take.
template <ElementKind kind, typename Function>
auto dispatch_kind(const PlanRequest& request, DType dtype, Function&& function) {
  if constexpr (kind == ElementKind::Number) {
    return dispatch_number(request, dtype, function);
  } else if constexpr (kind == ElementKind::Floating) {
    return dispatch_floating(request, dtype, function);
  } else if constexpr (kind == ElementKind::Integer) {
    return dispatch_integer(request, dtype, function);
  } else {
    return dispatch_any(request, dtype, function);
  }
}

template <ElementOp op, typename T>
void run_unary(const void* x, void* out, int64_t count, double p0, double p1) {
  using C = compute_t<T>;
  using Out = std::conditional_t<element_result_is_bool(op), bool, T>;
  const T* from = static_cast<const T*>(x);
  Out* to = static_cast<Out*>(out);
  for (int64_t i = 0; i < count; ++i) {
    to[i] = static_cast<Out>(element_apply<op, C>(static_cast<C>(from[i]), C(), C(),
                                                  static_cast<C>(p0), static_cast<C>(p1)));
  }
}

template <ElementOp op, typename T>
std::unique_ptr<Kernel> plan_unary(const PlanRequest& request, double p0, double p1) {
  if constexpr (std::is_same_v<compute_t<T>, float> && !element_result_is_bool(op)) {
    return make_float_unary_kernel(request, element_loop(op), p0, p1);
  } else {
    return make_unary_kernel(request, run_unary<op, T>, p0, p1);
  }
}

// The steps 0 and 1 get loops of their own, which the compiler can vectorize.
template <ElementOp op, typename T>
void run_binary(const void* a, int64_t a_step, const void* b, int64_t b_step, void* out,
                int64_t count, double parameter) {
  using Out = std::conditional_t<element_result_is_bool(op), bool, T>;
  const T* x = static_cast<const T*>(a);
  const T* y = static_cast<const T*>(b);
  Out* to = static_cast<Out*>(out);
  const T p = static_cast<T>(parameter);
  const auto apply = [p](const T& x, const T& y) {
    return static_cast<Out>(element_apply<op, T>(x, y, T(), p, T()));
  };
  if (a_step == 1 && b_step == 1) {
    for (int64_t i = 0; i < count; ++i) to[i] = apply(x[i], y[i]);
  } else if (a_step == 1 && b_step == 0) {
    const T second = *y;
    for (int64_t i = 0; i < count; ++i) to[i] = apply(x[i], second);
  } else if (a_step == 0 && b_step == 1) {
    const T first = *x;
    for (int64_t i = 0; i < count; ++i) to[i] = apply(first, y[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = apply(x[i * a_step], y[i * b_step]);
  }
}

template <ElementOp op, typename T>
std::unique_ptr<Kernel> plan_binary(const PlanRequest& request, double parameter) {
  if constexpr (std::is_same_v<compute_t<T>, float>) {
    return make_float_binary_kernel(request, run_binary<op, float>, element_loop(op), parameter);
  } else {
    return make_binary_kernel(request, run_binary<op, T>, parameter);
  }
}

// A limit of clip in T. A limit outside T's range clips nothing.
template <typename T>
T saturate(double value) {
  if (value <= static_cast<double>(std::numeric_limits<T>::lowest())) {
    return std::numeric_limits<T>::lowest();
  }
  if (value >= static_cast<double>(std::numeric_limits<T>::max())) {
    return std::numeric_limits<T>::max();
  }
  return static_cast<T>(value);
}

template <typename T>
void run_integer_clip(const void* x, void* out, int64_t count, double min, double max) {
  const T* from = static_cast<const T*>(x);
  T* to = static_cast<T*>(out);
  const T low = saturate<T>(min), high = saturate<T>(max);
  for (int64_t i = 0; i < count; ++i) to[i] = element::clip<T>(from[i], low, high);
}

template <ElementOp op>
std::unique_ptr<Kernel> plan_element_op(const PlanRequest& request) {
  const ElementParameters p = element_parameters(op, request.attributes);
  const auto plan = [&]<typename T>(Type<T>) {
    if constexpr (op == ElementOp::clip && std::is_integral_v<T>) {
      return make_unary_kernel(request, run_integer_clip<T>, p.values[0], p.values[1]);
    } else if constexpr (element_num_operands(op) == 1) {
      return plan_unary<op, T>(request, p.values[0], p.values[1]);
    } else {
      return plan_binary<op, T>(request, p.values[0]);
    }
  };
  return dispatch_kind<element_kind(op)>(request, request.inputs[0].dtype, plan);
}

// Floats that fit into 32-bit integers, as nearly all do, are converted as vectors; blocks with
// others are not. The same integers come out.
template <typename From, typename To>
void truncate_floats(const From* from, To* to, int64_t count) {
  constexpr int64_t kBlock = 32;
  int64_t done = 0;
  for (; done + kBlock <= count; done += kBlock) {
    float x[kBlock];
    for (int64_t i = 0; i < kBlock; ++i) x[i] = static_cast<float>(from[done + i]);
    int outside = 0;
    for (int64_t i = 0; i < kBlock; ++i) outside |= !(std::abs(x[i]) < 0x1p31f);  // NaN too
    if (outside != 0) {
      for (int64_t i = 0; i < kBlock; ++i) to[done + i] = element::cast<To>(x[i]);
      continue;
    }
    for (int64_t i = 0; i < kBlock; ++i) {
      to[done + i] = static_cast<To>(static_cast<int32_t>(x[i]));
    }
  }
  for (; done < count; ++done) to[done] = element::cast<To>(static_cast<float>(from[done]));
}

template <typename From, typename To>
void run_cast(const void* x, void* out, int64_t count, double, double) {
  const From* from = static_cast<const From*>(x);
  To* to = static_cast<To*>(out);
  if constexpr (std::is_same_v<From, float> && is_narrow_float<To>) {
    narrow(from, to, count);
  } else if constexpr (is_narrow_float<From> && std::is_same_v<To, float>) {
    widen(from, to, count);
  } else if constexpr (std::is_same_v<compute_t<From>, float> && std::is_integral_v<To> &&
                       !std::is_same_v<To, bool>) {
    truncate_floats(from, to, count);
  } else {
    for (int64_t i = 0; i < count; ++i) {
      const auto value = static_cast<compute_t<From>>(from[i]);
      to[i] = static_cast<To>(element::cast<compute_t<To>>(value));
    }
  }
}

template <>
std::unique_ptr<Kernel> plan_element_op<ElementOp::cast>(const PlanRequest& request) {
  return dispatch_any(request, request.inputs[0].dtype, [&]<typename From>(Type<From>) {
    return dispatch_any(request, request.outputs[0].dtype, [&]<typename To>(Type<To>) {
      return make_unary_kernel(request, run_cast<From, To>, 0, 0, "kerascnn cast");
    });
  });
}

template <typename T>
void run_where(const bool* condition, int64_t condition_step, const T* a, int64_t a_step,
               const T* b, int64_t b_step, T* out, int64_t count) {
  if (condition_step == 1 && a_step == 1 && b_step == 1) {
    for (int64_t i = 0; i < count; ++i) out[i] = host_math::select(condition[i], a[i], b[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) {
      out[i] = host_math::select(condition[i * condition_step], a[i * a_step], b[i * b_step]);
    }
  }
}

// where only moves elements, so it is compiled for each element size.
template <>
std::unique_ptr<Kernel> plan_element_op<ElementOp::where>(const PlanRequest& request) {
  const BroadcastGeometry geometry = broadcast_geometry(request.outputs[0].shape, request.inputs);
  return dispatch_size(request.outputs[0].dtype, [&]<typename T>(Type<T>) {
    return make_kernel("kerascnn elementwise", [geometry](const KernelArgs& args) {
      const bool* condition = input<bool>(args, 0);
      const T* a = input<T>(args, 1);
      const T* b = input<T>(args, 2);
      T* out = output<T>(args, 0);
      const int64_t steps[3] = {geometry.strides[0].back(), geometry.strides[1].back(),
                                geometry.strides[2].back()};
      parallel_for(geometry.size, kElementGrain, [&](int64_t begin, int64_t end) {
        for_each_run<3>(geometry, begin, end, [&](int64_t at, const auto& offsets, int64_t count) {
          run_where(condition + offsets[0], steps[0], a + offsets[1], steps[1], b + offsets[2],
                    steps[2], out + at, count);
        });
      });
    });
  });
}

}  // namespace

#define KERASCNN_DEFINE_PLAN(name, ...)                             \
  std::unique_ptr<Kernel> plan_##name(const PlanRequest& request) { \
    return plan_element_op<ElementOp::name>(request);               \
  }
KERASCNN_ELEMENT_OP_LIST(KERASCNN_DEFINE_PLAN)
#undef KERASCNN_DEFINE_PLAN

}  // namespace kerascnn::cpu
