#include "core/backend/cpu/kernel_table.h"

#include "core/backend/cpu/kernels.h"

namespace kerascnn {

std::span<const KernelTableRow> cpu_kernel_table() {
#define KERASCNN_ROW(op, ...) {#op, cpu::plan_##op},
  static constexpr KernelTableRow rows[] = {KERASCNN_KERNEL_OP_LIST(KERASCNN_ROW)};
#undef KERASCNN_ROW
  return rows;
}

}  // namespace kerascnn
