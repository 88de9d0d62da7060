// Makes the sources of users' kernels ready for a compiler, and the compiler's messages ready for
// the users.
#pragma once

#include <string>

#include "core/ops/custom_op.h"

namespace kerascnn {

// This comes before the user's source: the types float16 and bfloat16, for each input and output x
// its element type x_t, and `real`, in which elements are computed (float, or double where the
// first input is float64).
std::string compose_cuda_source(const CustomOp& op, Specs inputs, Specs outputs);

// The same in C++. At the end there is `extern "C" const char* kerascnn_call(const void* const*
// inputs, void* const* outputs, const int64_t* sizes)`, which calls the user's function and returns
// what it threw, or null. A function of elements has a different one:
// `void kerascnn_elements(inputs, outputs, sizes, int64_t begin, int64_t end)`.
std::string compose_cpp_source(const CustomOp& op, Specs inputs, Specs outputs, size_t num_sizes);

// "custom_op softsign: the CUDA C++ source does not compile", the compiler's messages, and the
// lines of the source that they name.
std::string compile_error(const CustomOp& op, const CustomSource& source, std::string_view language,
                          const std::string& composed, const std::string& log);

}  // namespace kerascnn
