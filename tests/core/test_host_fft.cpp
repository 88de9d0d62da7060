// Fourier transforms on the CPU without Python: first an error says what is missing, then the test
// registers functions of its own.
#include "core/backend/host_fft.h"

#include <vector>

#include "check.h"
#include "core/base/error.h"
#include "core/eager/eager.h"
#include "graph_testing.h"

namespace kerascnn {
namespace {

using testing::floats;

// Transforms lines of two by the definition: sum and difference, times the factor.
void transform_pairs(char** arguments, const intptr_t* sizes, const intptr_t* strides, void*) {
  const float factor = *reinterpret_cast<const float*>(arguments[1]);
  for (intptr_t line = 0; line < sizes[0]; ++line) {
    const auto* from = reinterpret_cast<const float*>(arguments[0] + line * strides[0]);
    auto* to = reinterpret_cast<float*>(arguments[2] + line * strides[2]);
    for (int part = 0; part < 2; ++part) {
      to[part] = factor * (from[part] + from[2 + part]);
      to[2 + part] = factor * (from[part] - from[2 + part]);
    }
  }
}

// NumPy's loops return without a result where they find no memory, and so does this function.
void do_nothing(char**, const intptr_t*, const intptr_t*, void*) {}

std::vector<Tensor> transformed(double scale) {
  const std::vector<float> real = {1, 2, 3, 4}, imaginary = {0, 1, 0, -1};
  const TensorSpec spec = testing::f32({2, 2});
  return apply("fft",
               {Tensor::from_host(real.data(), spec, Device{}),
                Tensor::from_host(imaginary.data(), spec, Device{})},
               {{"inverse", false}, {"scale", scale}});
}

void set_forward(decltype(HostFftLoop::function) function) {
  HostFftLoops loops{};
  loops.forward = {function, nullptr};
  set_host_fft({.name = "pairs", .of_float = loops, .of_double = {}});
}

// The order matters: a planned kernel stays planned, so each transform has another scale.
TEST(functions_are_missing_then_brought_and_may_fail) {
  CHECK_THROWS(LibraryError, "fft: there are no Fourier transforms for the CPU: this process has",
               transformed(1.0));
  set_no_host_fft("they were left at home");
  CHECK_THROWS(LibraryError, "for the CPU: they were left at home", transformed(1.0));

  set_forward(transform_pairs);
  const std::vector<Tensor> results = transformed(0.5);
  CHECK(floats(results[0]) == std::vector<float>({1.5, -0.5, 3.5, -0.5}));
  CHECK(floats(results[1]) == std::vector<float>({0.5, -0.5, -0.5, 0.5}));

  set_forward(do_nothing);
  CHECK_THROWS(LibraryError, "no memory for a transform of 2 elements", transformed(2.0));
}

}  // namespace
}  // namespace kerascnn
