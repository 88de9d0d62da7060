// On a CPU a launch costs next to nothing: the ops that these stand for run as they are.
#include "core/backend/composite_products.h"
#include "core/backend/cpu/kernel_table.h"
#include "core/backend/cpu/kernels.h"

namespace kerascnn::cpu {

std::unique_ptr<Kernel> plan_matmul_activation_grad(const PlanRequest& request) {
  return plan_composite_product(cpu_kernel_table(), request);
}

std::unique_ptr<Kernel> plan_dense_sparse_softmax_cross_entropy(const PlanRequest& request) {
  return plan_composite_product(cpu_kernel_table(), request);
}

std::unique_ptr<Kernel> plan_dense_sparse_softmax_cross_entropy_dgrad(const PlanRequest& request) {
  return plan_composite_product(cpu_kernel_table(), request);
}

std::unique_ptr<Kernel> plan_dense_wgrad(const PlanRequest& request) {
  return plan_composite_product(cpu_kernel_table(), request);
}

}  // namespace kerascnn::cpu
