// Gradients of the ops that own graphs: loops and choices again, over the gradients of their
// bodies.
#pragma once

#include "core/ops/op.h"

namespace kerascnn {

std::vector<ValueId> loop_gradient(GradientContext& context);
std::vector<ValueId> switch_gradient(GradientContext& context);

}  // namespace kerascnn
