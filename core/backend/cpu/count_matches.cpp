// On a CPU a launch costs next to nothing: the ops that this stands for run as they are.
#include "core/backend/composite_count_matches.h"
#include "core/backend/cpu/kernel_table.h"
#include "core/backend/cpu/kernels.h"

namespace kerascnn::cpu {

std::unique_ptr<Kernel> plan_count_matches(const PlanRequest& request) {
  return plan_composite_count_matches(cpu_kernel_table(), request);
}

}  // namespace kerascnn::cpu
