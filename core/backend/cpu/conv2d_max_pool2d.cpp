// On a CPU the full-size output stays in the caches: the ops that these stand for run as they are.
#include "core/backend/composite_conv2d_max_pool2d.h"
#include "core/backend/cpu/kernel_table.h"
#include "core/backend/cpu/kernels.h"

namespace kerascnn::cpu {

std::unique_ptr<Kernel> plan_conv2d_max_pool2d(const PlanRequest& request) {
  return plan_composite_conv2d_max_pool2d(cpu_kernel_table(), request);
}

std::unique_ptr<Kernel> plan_conv2d_max_pool2d_dgrad(const PlanRequest& request) {
  return plan_composite_conv2d_max_pool2d(cpu_kernel_table(), request);
}

std::unique_ptr<Kernel> plan_conv2d_max_pool2d_wgrad(const PlanRequest& request) {
  return plan_composite_conv2d_max_pool2d(cpu_kernel_table(), request);
}

}  // namespace kerascnn::cpu
