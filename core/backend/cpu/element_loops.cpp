#include "core/backend/cpu/element_loops.h"

#include "core/backend/cpu/cpu_features.h"
#include "core/backend/cpu/element_loops_impl.h"

namespace kerascnn::cpu {

const ElementLoops& element_loops() {
#ifdef KERASCNN_X86_DISPATCH
  switch (instruction_set()) {
    case InstructionSet::Avx512:
      return avx512::kElementLoops;
    case InstructionSet::Avx2:
      return avx2::kElementLoops;
    case InstructionSet::Plain:
      break;
  }
#endif
  return plain::kElementLoops;
}

ElementLoop element_loop(ElementOp op) { return element_loops().of[static_cast<int>(op)]; }

}  // namespace kerascnn::cpu
