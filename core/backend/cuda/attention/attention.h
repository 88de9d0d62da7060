// Attention in one kernel, and its gradients in another one: what a match of the patterns asks for
// (fusions/attention.h), and who computes it.
#pragma once

#include <array>
#include <compare>
#include <memory>
#include <optional>

#include "core/backend/backend.h"

namespace kerascnn::cuda {

// How a tensor (batch, heads, length, size) lies in memory.
enum class HeadsAt { Front, Back };  // before the length, behind it

// How a tensor is broadcast to products (batch, heads, queries, keys): by how many elements it goes
// on along each axis, 0 where it is broadcast.
using ProductStrides = std::array<int64_t, 4>;

struct AttentionCall {
  DType dtype = DType::BFloat16;
  int64_t batch = 0, heads = 0;
  int64_t queries = 0, keys = 0;       // lengths
  int64_t size = 0, value_size = 0;    // of a head's queries and keys, and of its values
  double scale = 1.0;                  // of the products
  std::optional<ProductStrides> bias;  // what is added to the products, of the same dtype
  std::optional<ProductStrides> mask;  // of booleans: what it hides has no share
  bool is_causal = false;              // query i sees the keys 0 to i
  HeadsAt q = HeadsAt::Back, k = HeadsAt::Back, v = HeadsAt::Back, y = HeadsAt::Back;

  // cuDNN gets the bias and the mask as one tensor, (batch or 1, heads or 1, queries, keys).
  bool adds() const { return bias || mask; }
  int64_t added_batches() const { return extent(0, batch); }
  int64_t added_heads() const { return extent(1, heads); }
  int64_t added_rows() const { return added_batches() * added_heads() * queries; }

  auto operator<=>(const AttentionCall&) const = default;

 private:
  int64_t extent(size_t axis, int64_t length) const {
    const bool is_broadcast = (!bias || (*bias)[axis] == 0) && (!mask || (*mask)[axis] == 0);
    return is_broadcast ? 1 : length;
  }
};

// Where a kernel's arguments are: of the inputs, and for the gradients those of the outputs.
struct AttentionArguments {
  size_t q = 0, k = 0, v = 0;
  size_t bias = 0, mask = 0;  // where the call has one
  size_t y = 0, log_sums = 0, gy = 0;
};

// Null where cuDNN has no kernel. The outputs are y and the logarithms of the sums that shares were
// divided by; these may be missing.
std::unique_ptr<Kernel> plan_attention_cudnn(const AttentionCall& call,
                                             const AttentionArguments& arguments);
// The same in float32, of a call that adds and hides nothing. It gives y alone: no gradient in
// float32 asks for the logarithms.
std::unique_ptr<Kernel> plan_attention_products(const AttentionCall& call,
                                                const AttentionArguments& arguments,
                                                bool allow_tf32);
// The outputs are the gradients of q, k and v, which lie as these do; gy lies as y does. Two runs
// have the same bits.
std::unique_ptr<Kernel> plan_attention_grad_cudnn(const AttentionCall& call,
                                                  const AttentionArguments& arguments);
// The same by an own kernel. Null where the call does not fit: heads of other sizes than 64, more
// than 256 keys, anything added or hidden, and on any device but Hopper.
std::unique_ptr<Kernel> plan_attention_grad_short(const AttentionCall& call,
                                                  const AttentionArguments& arguments);

}  // namespace kerascnn::cuda
