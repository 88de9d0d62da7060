// Which instruction sets kernels may use on this machine.
#pragma once

namespace kerascnn::cpu {

enum class InstructionSet { Plain, Avx2, Avx512 };

// The best that the processor has; KERASCNN_CPU_ISA=plain, avx2 or avx512 asks for less.
InstructionSet instruction_set();

}  // namespace kerascnn::cpu
