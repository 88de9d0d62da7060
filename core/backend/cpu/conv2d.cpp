// Chooses the kernels of conv2d, conv2d_dgrad and conv2d_wgrad.
#include "core/ops/conv2d.h"

#include "core/backend/cpu/conv2d_generic.h"
#include "core/backend/cpu/conv2d_scatter.h"
#include "core/backend/cpu/kernel_util.h"
#include "core/backend/cpu/kernels.h"
#include "core/backend/cpu/widen.h"
#ifdef KERASCNN_WITH_ONEDNN
#include "core/backend/cpu/onednn/primitives.h"
#endif

namespace kerascnn::cpu {

namespace {

bool is_empty(const Conv2DGeometry& g) {
  return g.batch * g.input_channels * g.output_channels == 0;
}

[[maybe_unused]] bool use_onednn(const PlanRequest& request, const Conv2DGeometry& g) {
  return request.inputs[0].dtype == DType::Float32 && !is_empty(g);
}

}  // namespace

std::unique_ptr<Kernel> plan_conv2d(const PlanRequest& request) {
  if (is_narrow(request.inputs[0].dtype)) return plan_in_float32(request, plan_conv2d);
  const Conv2DGeometry g = conv2d_geometry(request.op, request.attributes, request.inputs);
  const ActivationCall activation = fused_activation("conv2d", request.attributes);
  const bool has_bias = request.inputs.size() > 2;
#ifdef KERASCNN_WITH_ONEDNN
  if (use_onednn(request, g)) return onednn::plan_conv2d(request, g, has_bias, activation);
#endif
  return dispatch<float, double>(request, request.inputs[0].dtype, [&]<typename T>(Type<T>) {
    return make_generic_conv2d<T>(g, has_bias, activation);
  });
}

std::unique_ptr<Kernel> plan_conv2d_dgrad(const PlanRequest& request) {
  if (is_narrow(request.inputs[0].dtype)) return plan_in_float32(request, plan_conv2d_dgrad);
  const Conv2DGeometry g = conv2d_geometry(request.op, request.attributes, request.inputs);
  if (request.inputs[0].dtype == DType::Float32 && !is_empty(g) && scatters_better(g)) {
    return make_scatter_conv2d_dgrad(g);
  }
#ifdef KERASCNN_WITH_ONEDNN
  if (use_onednn(request, g)) return onednn::plan_conv2d_dgrad(request, g);
#endif
  return dispatch<float, double>(request, request.inputs[0].dtype, [&]<typename T>(Type<T>) {
    return make_generic_conv2d_dgrad<T>(g);
  });
}

std::unique_ptr<Kernel> plan_conv2d_wgrad(const PlanRequest& request) {
  if (is_narrow(request.inputs[0].dtype)) return plan_in_float32(request, plan_conv2d_wgrad);
  const Conv2DGeometry g = conv2d_geometry(request.op, request.attributes, request.inputs);
#ifdef KERASCNN_WITH_ONEDNN
  if (use_onednn(request, g)) {
    if (auto kernel = onednn::plan_conv2d_wgrad(request, g)) return kernel;
  }
#endif
  return dispatch<float, double>(request, request.inputs[0].dtype, [&]<typename T>(Type<T>) {
    return make_generic_conv2d_wgrad<T>(g);
  });
}

}  // namespace kerascnn::cpu
