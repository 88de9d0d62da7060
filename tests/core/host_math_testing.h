// What the tests of the host's functions and of the loops over them share.
#pragma once

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "core/backend/cpu/cpu_features.h"
#include "core/backend/cpu/element_loops.h"
#include "core/backend/cpu/float_kernels.h"

namespace kerascnn::testing {

// The difference from the correctly rounded result, measured in the spacing of float32 at that
// place.
inline double units(float value, double expected) {
  const float rounded = static_cast<float>(expected);
  const float size = std::max(std::fabs(rounded), std::numeric_limits<float>::min());
  const double spacing = std::nextafter(size, HUGE_VALF) - static_cast<double>(size);
  return std::fabs(value - expected) / spacing;
}

// All NaNs are equal here, whatever their bits.
inline bool is_same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

struct Compiled {
  const char* name;
  const cpu::ElementLoops* loops;
  const cpu::FloatKernels* kernels;
};

// The functions compiled for every instruction set that this machine can run.
inline std::vector<Compiled> all_compiled() {
  std::vector<Compiled> all = {{"plain", &cpu::plain::kElementLoops, &cpu::plain::kFloatKernels}};
#ifdef KERASCNN_X86_DISPATCH
  const cpu::InstructionSet best = cpu::instruction_set();
  if (best >= cpu::InstructionSet::Avx2) {
    all.push_back({"avx2", &cpu::avx2::kElementLoops, &cpu::avx2::kFloatKernels});
  }
  if (best >= cpu::InstructionSet::Avx512) {
    all.push_back({"avx512", &cpu::avx512::kElementLoops, &cpu::avx512::kFloatKernels});
  }
#endif
  return all;
}

}  // namespace kerascnn::testing
