#include "core/backend/cpu/conv_pool_kernels.h"

#include "core/backend/cpu/conv_pool_kernels_impl.h"
#include "core/backend/cpu/cpu_features.h"

namespace kerascnn::cpu {

const ConvPoolKernels& conv_pool_kernels() {
#ifdef KERASCNN_X86_DISPATCH
  switch (instruction_set()) {
    case InstructionSet::Avx512:
      return avx512::kConvPoolKernels;
    case InstructionSet::Avx2:
      return avx2::kConvPoolKernels;
    case InstructionSet::Plain:
      break;
  }
#endif
  return plain::kConvPoolKernels;
}

}  // namespace kerascnn::cpu
