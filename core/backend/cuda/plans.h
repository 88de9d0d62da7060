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

// Backend::fuses for conv2d_max_pool2d and its gradients; false for any other op.
bool fuses_conv2d_max_pool2d(const PlanRequest& request);
// The same for take_batches.
bool fuses_take_batches(const PlanRequest& request);

// Backend::num_partial_sums for these ops.
int64_t conv2d_wgrad_partial_sums(const PlanRequest& request);
int64_t conv2d_max_pool2d_wgrad_partial_sums(const PlanRequest& request);

}  // namespace kerascnn::cuda
