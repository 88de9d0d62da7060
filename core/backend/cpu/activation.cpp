// Activations of one element and their gradients.
#include "core/ops/activation_kind.h"

#include "core/backend/cpu/binary.h"
#include "core/backend/cpu/kernels.h"
#include "core/backend/cpu/unary.h"

namespace kerascnn::cpu {

namespace {

template <ElementOp op>
std::unique_ptr<Kernel> plan_activation(const PlanRequest& request, Activation activation) {
  const double parameter = activation_call(activation, request.attributes).alpha;
  return dispatch_floating(request, request.inputs[0].dtype, [&]<typename T>(Type<T>) {
    return plan_unary<op, T>(request, parameter);
  });
}

template <ElementOp op>
std::unique_ptr<Kernel> plan_activation_grad(const PlanRequest& request, Activation activation) {
  const double parameter = activation_call(activation, request.attributes).alpha;
  return dispatch_floating(request, request.inputs[0].dtype, [&]<typename T>(Type<T>) {
    return plan_binary<op, T>(request, parameter);
  });
}

}  // namespace

#define KERASCNN_PLAN_ACTIVATION(name, kind)                                        \
  std::unique_ptr<Kernel> plan_##name(const PlanRequest& request) {                 \
    return plan_activation<ElementOp::name>(request, Activation::kind);             \
  }                                                                                 \
  std::unique_ptr<Kernel> plan_##name##_grad(const PlanRequest& request) {          \
    return plan_activation_grad<ElementOp::name##_grad>(request, Activation::kind); \
  }
KERASCNN_PLAN_ACTIVATION(relu, Relu)
KERASCNN_PLAN_ACTIVATION(leaky_relu, LeakyRelu)
KERASCNN_PLAN_ACTIVATION(clipped_relu, ClippedRelu)
KERASCNN_PLAN_ACTIVATION(elu, Elu)
KERASCNN_PLAN_ACTIVATION(sigmoid, Sigmoid)
KERASCNN_PLAN_ACTIVATION(tanh, Tanh)
KERASCNN_PLAN_ACTIVATION(gelu, Gelu)
KERASCNN_PLAN_ACTIVATION(silu, Silu)
KERASCNN_PLAN_ACTIVATION(softplus, Softplus)
#undef KERASCNN_PLAN_ACTIVATION

}  // namespace kerascnn::cpu
