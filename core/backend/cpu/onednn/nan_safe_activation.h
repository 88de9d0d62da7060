// Activations at the end of oneDNN's kernels that let NaN through, so that a diverged model shows.
// oneDNN computes relu and clip as a maximum that gives 0 for NaN, and on some instruction sets
// other activations hide NaN too; the functions of element_functions.h don't.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/backend/backend.h"
#include "core/ops/activation_kind.h"

namespace kerascnn::cpu::onednn {

// Runs `linear`, then the activation in a pass over its output, which is float32 or bfloat16: for
// few outputs, and where oneDNN's would hide NaN.
std::unique_ptr<Kernel> add_activation(std::unique_ptr<Kernel> linear, const TensorSpec& output,
                                       const ActivationCall& activation);

// The same result without the pass: `fused`, which ends in oneDNN's activation, runs as long as the
// largest numbers of the inputs prove that no sum can become NaN or infinite. `sizes` are the
// numbers of elements of each input: x, the kernel, and the bias where there is one. A sum has
// `products` products.
std::unique_ptr<Kernel> choose_by_range(std::unique_ptr<Kernel> fused,
                                        std::unique_ptr<Kernel> with_pass,
                                        std::vector<int64_t> sizes, int64_t products);

}  // namespace kerascnn::cpu::onednn
