// Element functions that are compiled for one op each: those that training runs most.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/backend/backend.h"
#include "core/base/dtype.h"
#include "core/ops/element_functions.h"
#include "core/ops/element_program.h"

namespace kerascnn::cuda {

// One op over operands that are read in order or are one element.
struct SingleElementOp {
  const void* operands[3] = {};
  bool is_scalar[3] = {};
  float* result = nullptr;
  int64_t size = 0;
  float parameters[2] = {};
  bool vectorized = false;  // operands and result are aligned to four of their elements
};

// `early`: may it start before the kernel launched before it has ended?
using SingleElementLaunch = void (*)(const SingleElementOp& call, cudaStream_t stream, bool early);

// Returns null where there is none for these dtypes; then the interpreter of element programs runs
// the op.
SingleElementLaunch find_single_element_launch(ElementOp op, DType operand, DType result);

// A byte cast to float32 and multiplied by parameters[0].
void launch_scaled_cast(const SingleElementOp& call, cudaStream_t stream, bool early);

// The kernel of a program whose inputs are the call's.
std::unique_ptr<Kernel> plan_element_program(const PlanRequest& request,
                                             const ElementProgram& program);

}  // namespace kerascnn::cuda
