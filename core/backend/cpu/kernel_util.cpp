#include "core/backend/cpu/kernel_util.h"

namespace kerascnn::cpu {

void throw_unsupported_dtype(const PlanRequest& request, DType dtype) {
  throw TypeError(message(request.op.name, ": the CPU kernel does not take ", dtype_name(dtype),
                          "; cast the inputs to a dtype that the op is documented for"));
}

IntegerReader integer_reader(const PlanRequest& request, DType dtype) {
  return dispatch_integer(request, dtype, []<typename T>(Type<T>) -> IntegerReader {
    return [](const void* values, int64_t i) {
      return static_cast<int64_t>(static_cast<const T*>(values)[i]);
    };
  });
}

}  // namespace kerascnn::cpu
