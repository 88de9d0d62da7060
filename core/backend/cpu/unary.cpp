// Functions of one element, and cast.
#include "core/backend/cpu/unary.h"

#include <limits>

#include "core/backend/cpu/kernels.h"

namespace kerascnn::cpu {

namespace {

template <ElementOp op>
std::unique_ptr<Kernel> plan_number(const PlanRequest& request) {
  return dispatch_number(request, request.inputs[0].dtype,
                         [&]<typename T>(Type<T>) { return make_unary_kernel<op, T>(request); });
}

template <ElementOp op>
std::unique_ptr<Kernel> plan_floating(const PlanRequest& request) {
  return dispatch_floating(request, request.inputs[0].dtype,
                           [&]<typename T>(Type<T>) { return make_unary_kernel<op, T>(request); });
}

template <typename From, typename To>
std::unique_ptr<Kernel> make_cast_kernel(int64_t size) {
  return make_kernel("kerascnn cast", [size](const KernelArgs& args) {
    const From* x = input<From>(args, 0);
    To* out = output<To>(args, 0);
    parallel_for(size, kElementGrain, [&](int64_t begin, int64_t end) {
      if constexpr (std::is_same_v<From, float> && is_narrow_float<To>) {
        narrow(x + begin, out + begin, end - begin);
      } else if constexpr (is_narrow_float<From> && std::is_same_v<To, float>) {
        widen(x + begin, out + begin, end - begin);
      } else {
        for (int64_t i = begin; i < end; ++i) {
          const auto value = static_cast<compute_t<From>>(x[i]);
          out[i] = static_cast<To>(element::cast<compute_t<To>>(value));
        }
      }
    });
  });
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
    return make_unary_kernel<ElementOp::isfinite, T>(request);
  });
}

std::unique_ptr<Kernel> plan_clip(const PlanRequest& request) {
  const double low = request.attributes.get_double("min");
  const double high = request.attributes.get_double("max");
  const int64_t size = size_of(request.outputs[0]);
  return dispatch_number(request, request.inputs[0].dtype, [&]<typename T>(Type<T>) {
    using C = compute_t<T>;
    if constexpr (std::is_integral_v<C>) {
      return make_kernel(
          "kerascnn elementwise",
          [size, low = saturate<C>(low), high = saturate<C>(high)](const KernelArgs& args) {
            const T* x = input<T>(args, 0);
            T* out = output<T>(args, 0);
            parallel_for(size, kElementGrain, [&](int64_t begin, int64_t end) {
              for (int64_t i = begin; i < end; ++i) out[i] = element::clip<C>(x[i], low, high);
            });
          });
    } else {
      return make_unary_kernel<ElementOp::clip, T>(request, low, high);
    }
  });
}

std::unique_ptr<Kernel> plan_cast(const PlanRequest& request) {
  const int64_t size = size_of(request.outputs[0]);
  return dispatch_any(request, request.inputs[0].dtype, [&]<typename From>(Type<From>) {
    return dispatch_any(request, request.outputs[0].dtype,
                        [&]<typename To>(Type<To>) { return make_cast_kernel<From, To>(size); });
  });
}

}  // namespace kerascnn::cpu
