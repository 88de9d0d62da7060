#include "core/backend/cpu/integer_kernels.h"

#include "core/backend/cpu/cpu_features.h"
#include "core/backend/cpu/integer_kernels_impl.h"

namespace kerascnn::cpu {

const IntegerKernels& integer_kernels() {
#ifdef KERASCNN_X86_DISPATCH
  switch (instruction_set()) {
    case InstructionSet::Avx512:
      return avx512::kIntegerKernels;
    case InstructionSet::Avx2:
      return avx2::kIntegerKernels;
    case InstructionSet::Plain:
      break;
  }
#endif
  return plain::kIntegerKernels;
}

}  // namespace kerascnn::cpu
