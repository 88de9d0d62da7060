// Which instruction sets kernels may use on this machine.
#pragma once

namespace kerascnn::cpu {

enum class InstructionSet { Plain, Avx2, Avx512 };

// The best that the processor has; KERASCNN_CPU_ISA=plain, avx2 or avx512 asks for less.
InstructionSet instruction_set();

// Declares k<Table>, a table of kernels that is compiled once for each instruction set (simd.h),
// and the function that gives the one to use.
#ifdef KERASCNN_X86_DISPATCH
#define KERASCNN_KERNEL_VARIANTS(Table, function)                                           \
  namespace plain {                                                                         \
  extern const Table k##Table;                                                              \
  }                                                                                         \
  namespace avx2 {                                                                          \
  extern const Table k##Table;                                                              \
  }                                                                                         \
  namespace avx512 {                                                                        \
  extern const Table k##Table;                                                              \
  }                                                                                         \
  inline const Table& function() {                                                          \
    const Table* const variants[] = {&plain::k##Table, &avx2::k##Table, &avx512::k##Table}; \
    return *variants[static_cast<int>(instruction_set())];                                  \
  }
#else
#define KERASCNN_KERNEL_VARIANTS(Table, function) \
  namespace plain {                               \
  extern const Table k##Table;                    \
  }                                               \
  inline const Table& function() { return plain::k##Table; }
#endif

}  // namespace kerascnn::cpu
