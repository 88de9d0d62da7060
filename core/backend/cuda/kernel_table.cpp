#include "core/backend/cuda/kernel_table.h"

#include "core/backend/cuda/plans.h"

namespace kerascnn::cuda {

std::span<const KernelTableRow> kernel_table() {
#define KERASCNN_ROW(op, ...) {#op, plan_##op},
  static constexpr KernelTableRow rows[] = {KERASCNN_KERNEL_OP_LIST(KERASCNN_ROW)};
#undef KERASCNN_ROW
  return rows;
}

}  // namespace kerascnn::cuda
