// The plan function of every op, each in the file of its family.
#pragma once

#include <memory>

#include "core/backend/backend.h"
#include "core/ops/op_list.h"

namespace kerascnn::cpu {

#define KERASCNN_DECLARE_PLAN(name, ...) \
  std::unique_ptr<Kernel> plan_##name(const PlanRequest& request);
KERASCNN_KERNEL_OP_LIST(KERASCNN_DECLARE_PLAN)
#undef KERASCNN_DECLARE_PLAN

}  // namespace kerascnn::cpu
