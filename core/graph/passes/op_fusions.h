// Fusions whose kernel is an op's, which every backend has: calls of it are written in the place of
// what they match.
#pragma once

#include <span>

#include "core/graph/fusion.h"

namespace kerascnn {

// Those that come before the fusions of a device, which look for what these have written. Each is
// applied to what the ones before it left.
std::span<const Fusion> op_fusions();

// The gradient of sparse_softmax_cross_entropy becomes its third output, where the gradient of the
// loss does not depend on the loss. It comes after the fusions of a device.
extern const Fusion fused_loss_gradient;

// What is in the pattern of every fusion that computes both: the loss, the probabilities and the
// gradient of the logits, which it gives, are outputs.
PatternValue add_loss_with_gradient(Pattern& pattern, const PatternValue& logits,
                                    const PatternValue& labels,
                                    const PatternValue& gradient_of_loss);

}  // namespace kerascnn
