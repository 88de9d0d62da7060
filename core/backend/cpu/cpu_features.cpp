#include "core/backend/cpu/cpu_features.h"

#include <algorithm>
#include <string>

#include "core/base/env.h"

namespace kerascnn::cpu {

namespace {

InstructionSet find_instruction_set() {
#ifdef KERASCNN_X86_DISPATCH
  InstructionSet best = InstructionSet::Plain;
  // Every processor with AVX2 has F16C, which older Clangs can't ask for by name.
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    best = InstructionSet::Avx2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
      best = InstructionSet::Avx512;
    }
  }
  const std::string asked = env_choice("KERASCNN_CPU_ISA", {"plain", "avx2", "avx512"});
  if (asked == "plain") return InstructionSet::Plain;
  if (asked == "avx2") return std::min(best, InstructionSet::Avx2);
  return best;
#else
  return InstructionSet::Plain;
#endif
}

}  // namespace

InstructionSet instruction_set() {
  static const InstructionSet found = find_instruction_set();
  return found;
}

}  // namespace kerascnn::cpu
