#include "core/backend/cpu/kernel_util.h"

namespace kerascnn::cpu {

void throw_unsupported_dtype(const PlanRequest& request, DType dtype) {
  throw TypeError(message(request.op.name, ": the CPU kernel does not take ", dtype_name(dtype),
                          "; cast the inputs to a dtype that the op is documented for"));
}

}  // namespace kerascnn::cpu
