// Activations of one element and their gradients.
#include "core/ops/activation_kind.h"

#include "core/backend/cpu/binary.h"
#include "core/backend/cpu/float_kernels.h"
#include "core/backend/cpu/kernels.h"
#include "core/backend/cpu/unary.h"

namespace kerascnn::cpu {

namespace {

template <ElementOp op>
std::unique_ptr<Kernel> plan_activation(const PlanRequest& request, Activation activation) {
  const double parameter = activation_call(activation, request.attributes).alpha;
  return dispatch_floating(request, request.inputs[0].dtype, [&]<typename T>(Type<T>) {
    return make_unary_kernel<op, T>(request, parameter);
  });
}

template <ElementOp op>
std::unique_ptr<Kernel> plan_activation_grad(const PlanRequest& request, Activation activation) {
  const double parameter = activation_call(activation, request.attributes).alpha;
  return dispatch_floating(request, request.inputs[0].dtype, [&]<typename T>(Type<T>) {
    return make_binary_kernel<op, T>(request, parameter);
  });
}

}  // namespace

namespace {

std::unique_ptr<Kernel> make_float_relu_grad(const PlanRequest& request) {
  const int64_t size = size_of(request.outputs[0]);
  const FloatKernels& kernels = float_kernels();
  return make_kernel(
      message("kerascnn relu gradient:", kernels.name), [size, &kernels](const KernelArgs& args) {
        parallel_for(size, kElementGrain, [&](int64_t begin, int64_t end) {
          kernels.relu_grad(input<float>(args, 0) + begin, input<float>(args, 1) + begin,
                            output<float>(args, 0) + begin, end - begin);
        });
      });
}

}  // namespace

std::unique_ptr<Kernel> plan_relu_grad(const PlanRequest& request) {
  if (request.inputs[0].dtype == DType::Float32) return make_float_relu_grad(request);
  return plan_activation_grad<ElementOp::relu_grad>(request, Activation::Relu);
}
std::unique_ptr<Kernel> plan_relu(const PlanRequest& request) {
  return plan_activation<ElementOp::relu>(request, Activation::Relu);
}

#define KERASCNN_PLAN_ACTIVATION(name, kind)                                        \
  std::unique_ptr<Kernel> plan_##name(const PlanRequest& request) {                 \
    return plan_activation<ElementOp::name>(request, Activation::kind);             \
  }                                                                                 \
  std::unique_ptr<Kernel> plan_##name##_grad(const PlanRequest& request) {          \
    return plan_activation_grad<ElementOp::name##_grad>(request, Activation::kind); \
  }
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
