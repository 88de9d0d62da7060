// What is added to attention's products, and boolean masks, in the form that cuDNN takes: one
// tensor of numbers to add.
//
// A query that sees no key takes equal shares of all values: all its products were replaced by one
// number. A sum can't do that, but a query of zeros does, with a mask that hides nothing. Its
// gradient is 0, as no product of it counts.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/backend/cuda/attention/attention.h"

namespace kerascnn::cuda {

// Writes what is added, (batch or 1, heads or 1, queries, keys), and for each of these queries
// whether it sees no key. `bias` and `mask` are null where the call has none. The largest number of
// a row is 0, which changes no share: the logarithm of a row's sum would have no digits left beside
// a large one.
void launch_added(const AttentionCall& call, const void* bias, const bool* mask, void* added,
                  bool* is_blind, cudaStream_t stream);
// Copies tensors (batch, heads, queries, size) that lie as q does, with zeros for blind queries.
// `y` may be `x`.
void launch_blind_zeros(const AttentionCall& call, const void* x, const bool* is_blind, void* y,
                        cudaStream_t stream);

}  // namespace kerascnn::cuda
