// Regions of kind map that are element programs.
#pragma once

#include <memory>

#include "core/backend/backend.h"
#include "core/ops/element_program.h"

namespace kerascnn::cpu {

std::unique_ptr<Kernel> plan_element_program(const PlanRequest& request,
                                             const ElementProgram& program);

}  // namespace kerascnn::cpu
