#include "core/backend/composite_conv2d_max_pool2d.h"
#include "core/backend/cuda/kernel_table.h"
#include "core/backend/cuda/plans.h"

namespace kerascnn::cuda {

std::unique_ptr<Kernel> plan_conv2d_max_pool2d(const PlanRequest& request) {
  return plan_composite_conv2d_max_pool2d(kernel_table(), request);
}

std::unique_ptr<Kernel> plan_conv2d_max_pool2d_dgrad(const PlanRequest& request) {
  return plan_composite_conv2d_max_pool2d(kernel_table(), request);
}

std::unique_ptr<Kernel> plan_conv2d_max_pool2d_wgrad(const PlanRequest& request) {
  return plan_composite_conv2d_max_pool2d(kernel_table(), request);
}

}  // namespace kerascnn::cuda
