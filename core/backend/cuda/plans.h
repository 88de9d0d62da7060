// The plan functions of all CUDA kernels, one per op: plan_<op>. kernel_table.cpp makes the table
// of them.
#pragma once

#include <memory>

#include "core/backend/backend.h"
#include "core/ops/op_list.h"

namespace kerascnn::cuda {

#define KERASCNN_DECLARE_PLAN(name, ...) \
  std::unique_ptr<Kernel> plan_##name(const PlanRequest& request);
KERASCNN_KERNEL_OP_LIST(KERASCNN_DECLARE_PLAN)
#undef KERASCNN_DECLARE_PLAN

}  // namespace kerascnn::cuda
