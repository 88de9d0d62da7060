// Boolean masks of attention for cuDNN, which adds numbers to the products instead.
//
// A query that sees no key takes equal shares of all values: all its products were replaced by one
// number. A sum can't do that, but a query of zeros does: its mask hides nothing then. Its gradient
// is 0, as no product of it counts.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/backend/cuda/attention/attention.h"

namespace kerascnn::cuda {

// Writes what is added to products, (batch or 1, heads or 1, queries, keys), as the mask has
// batches and heads, and for each of these queries whether it sees no key.
void launch_mask(const AttentionCall& call, const bool* mask, void* added, bool* is_blind,
                 cudaStream_t stream);
// Copies tensors (batch, heads, queries, size) that lie as q does, with zeros for blind queries.
// `y` may be `x`.
void launch_blind_zeros(const AttentionCall& call, const void* x, const bool* is_blind, void* y,
                        cudaStream_t stream);

}  // namespace kerascnn::cuda
