// Functions of one element, and cast.
#include "core/backend/cpu/unary.h"

#include <limits>

#include "core/backend/cpu/kernels.h"

namespace kerascnn::cpu {

namespace {

template <ElementOp op>
std::unique_ptr<Kernel> plan_number(const PlanRequest& request) {
  return dispatch_number(request, request.inputs[0].dtype,
                         [&]<typename T>(Type<T>) { return plan_unary<op, T>(request); });
}

template <ElementOp op>
std::unique_ptr<Kernel> plan_floating(const PlanRequest& request) {
  return dispatch_floating(request, request.inputs[0].dtype,
                           [&]<typename T>(Type<T>) { return plan_unary<op, T>(request); });
}

template <typename From, typename To>
void run_cast(const void* x, void* out, int64_t count, double, double) {
  const From* from = static_cast<const From*>(x);
  To* to = static_cast<To*>(out);
  if constexpr (std::is_same_v<From, float> && is_narrow_float<To>) {
    narrow(from, to, count);
  } else if constexpr (is_narrow_float<From> && std::is_same_v<To, float>) {
    widen(from, to, count);
  } else {
    for (int64_t i = 0; i < count; ++i) {
      const auto value = static_cast<compute_t<From>>(from[i]);
      to[i] = static_cast<To>(element::cast<compute_t<To>>(value));
    }
  }
}

// A limit of clip in T; one outside T's range clips nothing.
template <typename C>
C saturate(double value) {
  if (value <= static_cast<double>(std::numeric_limits<C>::lowest())) {
    return std::numeric_limits<C>::lowest();
  }
  if (value >= static_cast<double>(std::numeric_limits<C>::max())) {
    return std::numeric_limits<C>::max();
  }
  return static_cast<C>(value);
}

template <typename T>
void run_integer_clip(const void* x, void* out, int64_t count, double min, double max) {
  const T* from = static_cast<const T*>(x);
  T* to = static_cast<T*>(out);
  const T low = saturate<T>(min), high = saturate<T>(max);
  for (int64_t i = 0; i < count; ++i) to[i] = element::clip<T>(from[i], low, high);
}

}  // namespace

std::unique_ptr<Kernel> plan_negative(const PlanRequest& request) {
  return plan_number<ElementOp::negative>(request);
}
std::unique_ptr<Kernel> plan_absolute(const PlanRequest& request) {
  return plan_number<ElementOp::absolute>(request);
}
std::unique_ptr<Kernel> plan_sign(const PlanRequest& request) {
  return plan_number<ElementOp::sign>(request);
}
std::unique_ptr<Kernel> plan_square(const PlanRequest& request) {
  return plan_number<ElementOp::square>(request);
}
std::unique_ptr<Kernel> plan_floor(const PlanRequest& request) {
  return plan_number<ElementOp::floor>(request);
}
std::unique_ptr<Kernel> plan_reciprocal(const PlanRequest& request) {
  return plan_floating<ElementOp::reciprocal>(request);
}
std::unique_ptr<Kernel> plan_sqrt(const PlanRequest& request) {
  return plan_floating<ElementOp::sqrt>(request);
}
std::unique_ptr<Kernel> plan_rsqrt(const PlanRequest& request) {
  return plan_floating<ElementOp::rsqrt>(request);
}
std::unique_ptr<Kernel> plan_exp(const PlanRequest& request) {
  return plan_floating<ElementOp::exp>(request);
}
std::unique_ptr<Kernel> plan_log(const PlanRequest& request) {
  return plan_floating<ElementOp::log>(request);
}
std::unique_ptr<Kernel> plan_log1p(const PlanRequest& request) {
  return plan_floating<ElementOp::log1p>(request);
}

#define KERASCNN_PLAN_FLOATING(name)                                \
  std::unique_ptr<Kernel> plan_##name(const PlanRequest& request) { \
    return plan_floating<ElementOp::name>(request);                 \
  }
KERASCNN_PLAN_FLOATING(sin)
KERASCNN_PLAN_FLOATING(cos)
KERASCNN_PLAN_FLOATING(tan)
KERASCNN_PLAN_FLOATING(arcsin)
KERASCNN_PLAN_FLOATING(arccos)
KERASCNN_PLAN_FLOATING(arctan)
KERASCNN_PLAN_FLOATING(sinh)
KERASCNN_PLAN_FLOATING(cosh)
KERASCNN_PLAN_FLOATING(arcsinh)
KERASCNN_PLAN_FLOATING(arccosh)
KERASCNN_PLAN_FLOATING(arctanh)
KERASCNN_PLAN_FLOATING(expm1)
KERASCNN_PLAN_FLOATING(erf)
KERASCNN_PLAN_FLOATING(erfc)
KERASCNN_PLAN_FLOATING(erfinv)
KERASCNN_PLAN_FLOATING(ceil)
KERASCNN_PLAN_FLOATING(round)
#undef KERASCNN_PLAN_FLOATING

std::unique_ptr<Kernel> plan_isfinite(const PlanRequest& request) {
  return dispatch_any(request, request.inputs[0].dtype, [&]<typename T>(Type<T>) {
    return plan_unary<ElementOp::isfinite, T>(request);
  });
}

std::unique_ptr<Kernel> plan_clip(const PlanRequest& request) {
  const double low = request.attributes.get_double("min");
  const double high = request.attributes.get_double("max");
  return dispatch_number(request, request.inputs[0].dtype, [&]<typename T>(Type<T>) {
    if constexpr (std::is_integral_v<T>) {
      return make_unary_kernel(request, run_integer_clip<T>, low, high);
    } else {
      return plan_unary<ElementOp::clip, T>(request, low, high);
    }
  });
}

std::unique_ptr<Kernel> plan_cast(const PlanRequest& request) {
  return dispatch_any(request, request.inputs[0].dtype, [&]<typename From>(Type<From>) {
    return dispatch_any(request, request.outputs[0].dtype, [&]<typename To>(Type<To>) {
      return make_unary_kernel(request, run_cast<From, To>, 0, 0, "kerascnn cast");
    });
  });
}

}  // namespace kerascnn::cpu
