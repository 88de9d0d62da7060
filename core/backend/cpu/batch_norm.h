// Batch normalization of float32 or 16 bits over the last axis, with parameters and statistics in
// float32.
#pragma once

#include <memory>

#include "core/backend/backend.h"

namespace kerascnn::cpu {

// Rows of 16 bits of more channels than that don't fit a thread's buffer.
constexpr int64_t kMostChannelsOf16Bits = 4096;

// x, gamma, beta -> y, [mean, variance, inverse standard deviation], as batch_norm has them.
std::unique_ptr<Kernel> make_batch_norm(const TensorSpec& x, DType y, double epsilon);
// gy, x, gamma, mean, inverse -> [gx, the gradients of gamma and of beta]
std::unique_ptr<Kernel> make_batch_norm_grad(const TensorSpec& x, DType gy, DType gx);

}  // namespace kerascnn::cpu
