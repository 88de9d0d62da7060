#include "core/backend/cpu/recurrent_kernels.h"

#include "core/backend/cpu/cpu_features.h"
#include "core/backend/cpu/recurrent_kernels_impl.h"

namespace kerascnn::cpu {

const RecurrentKernels& recurrent_kernels() {
#ifdef KERASCNN_X86_DISPATCH
  switch (instruction_set()) {
    case InstructionSet::Avx512:
      return avx512::kRecurrentKernels;
    case InstructionSet::Avx2:
      return avx2::kRecurrentKernels;
    case InstructionSet::Plain:
      break;
  }
#endif
  return plain::kRecurrentKernels;
}

}  // namespace kerascnn::cpu
