// The last layer of a classifier, its loss and the gradients of logits and input in one launch.
#pragma once

#include <memory>

#include "core/backend/backend.h"

namespace kerascnn::cuda {

// dense_sparse_softmax_cross_entropy_dgrad of float32, up to 32 classes and a few thousand
// features, and not so many products that separate kernels are better.
bool takes_dense_loss_dgrad(const PlanRequest& request);
std::unique_ptr<Kernel> plan_small_dense_loss_dgrad(const PlanRequest& request);

}  // namespace kerascnn::cuda
