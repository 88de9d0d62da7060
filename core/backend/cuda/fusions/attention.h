// The patterns of attention: softmax(q k^T scale) v for each head, and its gradients. Kernels:
// core/backend/cuda/attention/.
//
// Queries are (batch, T, heads, d) or (batch, heads, T, d), keys and values the same with S in the
// place of T. Transposes around the products belong to the patterns, as kernels read and write any
// strides. Layers scale the queries and leave the products' batches as one axis,
// ops.dot_product_attention transposes first and leaves two axes.
#pragma once

#include <vector>

#include "core/graph/fusion.h"
#include "core/ops/definitions.h"

namespace kerascnn::cuda {

inline bool permutes(const Node& node, const Shape& permutation) {
  return node.attributes.get_ints("permutation") == permutation;
}

// (batch, T, heads, d) <-> (batch, heads, T, d)
inline bool swaps_heads(const Graph&, const Node& node) { return permutes(node, {0, 2, 1, 3}); }

// To (batch, heads, d, S), of keys with heads before or behind the length S.
inline bool turns_keys(const Graph&, const Node& node) {
  return permutes(node, {0, 2, 3, 1}) || permutes(node, {0, 1, 3, 2});
}

// The way back.
inline bool turns_key_gradients(const Graph&, const Node& node) {
  return permutes(node, {0, 3, 1, 2}) || permutes(node, {0, 1, 3, 2});
}

template <bool kTransposeA, bool kTransposeB>
bool is_batched_product(const Graph&, const Node& node) {
  return node.attributes.get_bool("transpose_a") == kTransposeA &&
         node.attributes.get_bool("transpose_b") == kTransposeB;
}

inline bool is_along_keys(const Graph& graph, const Node& node) {
  const auto rank = static_cast<int64_t>(graph.value(node.inputs[0]).spec.shape.size());
  const int64_t axis = node.attributes.get_int("axis");
  return rank == 4 && (axis == 3 || axis == -1);
}

// log(sum(exp(logits))) of each row, (..., 1) in float32.
inline ValueId write_log_sum(Graph& graph, ValueId logits) {
  const Attributes rows = {{"axes", Shape{3}}, {"keepdims", true}};
  const ValueId wide = graph.apply("cast", {logits}, {{"dtype", std::string("float32")}})[0];
  const ValueId largest = graph.apply("reduce_max", {wide}, rows)[0];
  const ValueId powers = graph.apply("exp", {graph.apply("subtract", {wide, largest})[0]})[0];
  const ValueId sum = graph.apply("reduce_sum", {powers}, rows)[0];
  return graph.apply("add", {largest, graph.apply("log", {sum})[0]})[0];
}

// What the patterns of both passes begin with: the shares, which kernels compute again.
struct AttentionShares {
  explicit AttentionShares(Pattern& pattern)
      : one_batch(pattern.has("one batch axis")),
        scales(pattern.has("scale")),
        adds(!one_batch && pattern.has("bias")),
        masks(pattern.has("mask")),
        turns_queries(pattern.has("heads of queries")),
        turns_values(pattern.has("heads of values")),
        q(pattern.input("q")),
        k(pattern.input("k")),
        v(pattern.input("v")),
        scale(scales ? pattern.input("scale") : q),
        bias(adds ? pattern.input("bias") : q),
        mask(masks ? pattern.input("mask") : q),
        lowest(masks ? pattern.input("lowest") : q),
        queries(q),
        keys(k),
        values(v),
        logits(q),
        shares(q),
        factors(q) {
    if (scales && one_batch) queries = queries.call(op_multiply, {scale}).again();
    if (turns_queries) queries = swapped(queries, "queries");
    if (scales && !one_batch) queries = queries.call(op_multiply, {scale}).again();
    keys = keys.call(op_transpose).where(turns_keys).as("keys").again();
    if (turns_values) values = swapped(values, "values");
    queries = joined(queries);
    keys = joined(keys);
    values = joined(values);
    logits = queries.call(op_matmul, {keys}).where(is_batched_product<false, false>).again();
    logits.as("products");
    if (one_batch) logits = logits.call(op_reshape).again();
    if (adds) logits = logits.call(op_add, {bias}).again();
    if (masks) logits = mask.call(op_where, {logits, lowest}).again();
    shares = logits.call(op_softmax).where(is_along_keys).as("shares").again();
    shares.read_by_fusions();
    factors = joined(shares);
  }

  static PatternValue swapped(const PatternValue& value, const char* name) {
    return value.call(op_transpose).where(swaps_heads).as(name).again();
  }
  PatternValue joined(const PatternValue& value) const {
    return one_batch ? value.call(op_reshape).again() : value;
  }

  bool one_batch, scales, adds, masks, turns_queries, turns_values;
  PatternValue q, k, v, scale, bias, mask, lowest;
  // Factors of products: of shape (batch * heads, ., .) or (batch, heads, ., .).
  PatternValue queries, keys, values;
  PatternValue logits, shares;  // (batch, heads, T, S)
  PatternValue factors;         // the shares as a factor
};

// q, k, v, [scale], [bias], [mask, lowest] -> y, the logarithms of the sums that shares were
// divided by
inline void pattern_attention(Pattern& pattern) {
  const AttentionShares a(pattern);
  PatternValue y = a.factors.call(op_matmul, {a.values}).where(is_batched_product<false, false>);
  if (a.one_batch) y = y.call(op_reshape);
  y.as("y by heads");
  if (pattern.has("heads of the result")) y = y.call(op_transpose).where(swaps_heads).as("result");
  pattern.output("y", y);
  pattern.hand_over("log_sums", a.logits, write_log_sum);
}

// q, k, v, [scale], [bias], [mask, lowest], gy, [zero], y, log_sums -> the gradients of q, k and v
inline void pattern_attention_grad(Pattern& pattern) {
  const AttentionShares a(pattern);
  PatternValue gy = pattern.input("gy");
  const PatternValue zero = a.masks ? pattern.input("zero") : gy;
  if (pattern.has("heads of the result")) gy = AttentionShares::swapped(gy, "result");
  gy = a.joined(gy);
  const auto split = [&](PatternValue value) {
    return a.one_batch ? value.call(op_reshape) : value;
  };
  PatternValue by_shares =
      split(gy.call(op_matmul, {a.values}).where(is_batched_product<false, true>));
  PatternValue dv = split(a.factors.call(op_matmul, {gy}).where(is_batched_product<true, false>));
  PatternValue by_logits = by_shares.call(op_softmax_grad, {a.shares}).where(is_along_keys);
  if (a.masks) by_logits = a.mask.call(op_where, {by_logits, zero});
  if (a.one_batch) by_logits = by_logits.call(op_reshape);
  PatternValue dq =
      split(by_logits.call(op_matmul, {a.keys}).where(is_batched_product<false, true>));
  PatternValue dk =
      split(a.queries.call(op_matmul, {by_logits}).where(is_batched_product<true, false>));
  if (a.scales && !a.one_batch) dq = dq.call(op_multiply, {a.scale});
  if (a.turns_queries) dq = dq.call(op_transpose).where(swaps_heads);
  if (a.scales && a.one_batch) dq = dq.call(op_multiply, {a.scale});
  dk = dk.call(op_transpose).where(turns_key_gradients).as("key gradients");
  if (a.turns_values) dv = dv.call(op_transpose).where(swaps_heads);
  pattern.output("dq", dq);
  pattern.output("dk", dk);
  pattern.output("dv", dv);
  pattern.take_over("y", a.shares);
  pattern.take_over("log_sums", a.shares);
}

}  // namespace kerascnn::cuda
