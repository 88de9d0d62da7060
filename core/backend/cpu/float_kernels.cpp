#include "core/backend/cpu/float_kernels.h"

#include "core/backend/cpu/cpu_features.h"
#include "core/backend/cpu/float_kernels_impl.h"

namespace kerascnn::cpu {

const FloatKernels& float_kernels() {
#ifdef KERASCNN_X86_DISPATCH
  switch (instruction_set()) {
    case InstructionSet::Avx512:
      return avx512::kFloatKernels;
    case InstructionSet::Avx2:
      return avx2::kFloatKernels;
    case InstructionSet::Plain:
      break;
  }
#endif
  return plain::kFloatKernels;
}

}  // namespace kerascnn::cpu
