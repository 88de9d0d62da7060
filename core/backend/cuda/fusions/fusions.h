// The fusions of CUDA: their patterns, and the one list of them. The kernels, plan_fused_<name>,
// are in the files of this folder, or beside kernels of their kind (attention/, normalization/).
// What is here needs no CUDA, so that tests can look for the patterns without a GPU.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/backend/cuda/fusions/attention.h"
#include "core/backend/cuda/fusions/group_norm.h"
#include "core/graph/conv_pooling.h"
#include "core/graph/fusion.h"
#include "core/graph/node_conditions.h"
#include "core/graph/passes/op_fusions.h"
#include "core/ops/definitions.h"

namespace kerascnn::cuda {

// Where two take a node, the first one gets it.
#define KERASCNN_CUDA_FUSIONS(FUSION)              \
  FUSION(conv2d_max_pool2d)                        \
  FUSION(conv2d_max_pool2d_dgrad)                  \
  FUSION(conv2d_max_pool2d_wgrad)                  \
  FUSION(conv2d_wgrad)                             \
  FUSION(conv2d_add)                               \
  FUSION(dense_sparse_softmax_cross_entropy_dgrad) \
  FUSION(dense_sparse_softmax_cross_entropy)       \
  FUSION(matmul_activation_grad)                   \
  FUSION(dense_wgrad)                              \
  FUSION(count_matches)                            \
  FUSION(take_batches)                             \
  FUSION(attention)                                \
  FUSION(attention_grad)                           \
  FUSION(group_norm)                               \
  FUSION(group_norm_grad)

// These are of nodes that normalizations are expanded to (Fusion::of_expanded).
#define KERASCNN_CUDA_EXPANDED_FUSIONS(FUSION) FUSION(conv2d_moments)

std::span<const Fusion* const> fusions();

#define KERASCNN_DECLARE_FUSION(name) std::unique_ptr<Kernel> plan_fused_##name(const Match& match);
KERASCNN_CUDA_FUSIONS(KERASCNN_DECLARE_FUSION)
KERASCNN_CUDA_EXPANDED_FUSIONS(KERASCNN_DECLARE_FUSION)
#undef KERASCNN_DECLARE_FUSION

using kerascnn::pattern_conv2d_max_pool2d;
using kerascnn::pattern_conv2d_max_pool2d_dgrad;
using kerascnn::pattern_conv2d_max_pool2d_wgrad;

// The last layer of a classifier, its loss and the gradient of the logits; nobody else reads the
// logits. The layer's input is `x` or computed from it.
inline PatternValue add_dense_loss(Pattern& pattern, const PatternValue& x,
                                   const PatternValue& kernel, const PatternValue* bias,
                                   const PatternValue& labels,
                                   const PatternValue& gradient_of_loss) {
  // A layer without a bias is a plain product, or was made a dense layer.
  const bool is_dense = bias != nullptr || pattern.has("dense layer");
  const PatternValue logits = bias != nullptr ? x.call(op_dense, {kernel, *bias}).where(is_linear)
                              : is_dense
                                  ? x.call(op_dense, {kernel}).where(is_linear)
                                  : x.call(op_matmul, {kernel}).where(is_product<false, false>);
  return add_loss_with_gradient(pattern, logits, labels, gradient_of_loss);
}

inline void pattern_dense_sparse_softmax_cross_entropy(Pattern& pattern) {
  const bool has_bias = pattern.has("bias");
  const PatternValue x = pattern.input("x"), kernel = pattern.input("kernel");
  const PatternValue bias = has_bias ? pattern.input("bias") : kernel;
  const PatternValue labels = pattern.input("labels");
  add_dense_loss(pattern, x, kernel, has_bias ? &bias : nullptr, labels,
                 pattern.input("gradient_of_loss"));
}

// The same, and the gradient of what the layer is given, taken back through a dropout before the
// layer and through an activation before that. The dropout's result comes with it.
inline void pattern_dense_sparse_softmax_cross_entropy_dgrad(Pattern& pattern) {
  const bool has_bias = pattern.has("bias"), drops = pattern.has("dropout");
  const bool reshapes = drops && pattern.has("reshape after the dropout");
  const PatternValue x = pattern.input("x"), kernel = pattern.input("kernel");
  const PatternValue bias = has_bias ? pattern.input("bias") : kernel;
  const PatternValue labels = pattern.input("labels");
  const PatternValue gradient_of_loss = pattern.input("gradient_of_loss");
  const PatternValue state = drops ? pattern.input("state") : kernel;
  const PatternValue dropped = drops ? x.call(op_dropout, {state}).as("dropout") : x;
  const PatternValue given = reshapes ? dropped.call(op_reshape) : dropped;
  const PatternValue gradient =
      add_dense_loss(pattern, given, kernel, has_bias ? &bias : nullptr, labels, gradient_of_loss);
  PatternValue dx = gradient.call(op_matmul, {kernel}).where(is_product<false, true>);
  if (reshapes) dx = dx.call(op_reshape);
  if (drops) dx = dx.call(op_dropout, {state}).like(dropped);
  if (pattern.has("activation")) dx = dx.call(undoes_activation, {x}).as("activation");
  pattern.output("dx", dx);
  if (drops) pattern.optional_output("given", given);
}

// A product taken back through an activation whose output is y.
inline void pattern_matmul_activation_grad(Pattern& pattern) {
  const PatternValue a = pattern.input("a"), b = pattern.input("b"), y = pattern.input("y");
  const PatternValue product = a.call(op_matmul, {b}).as("product");
  product.where([](const Graph& graph, const Node& node) {
    return graph.value(node.outputs[0]).spec.shape.size() == 2;
  });
  pattern.output("dx", product.call(undoes_activation, {y}).as("activation"));
}

// The gradients of a dense layer's kernel and bias: of x (n, k) and g (n, m) the product of x
// transposed and g, and the sums of g's columns.
inline void pattern_dense_wgrad(Pattern& pattern) {
  const PatternValue x = pattern.input("x"), g = pattern.input("g");
  pattern.output("kernel", x.call(op_matmul, {g}).where(is_product<true, false>));
  pattern.output("bias", g.call(op_reduce_sum).where(reduces_columns));
}

// The gradient of a convolution's kernel by itself, so that the update may add up its partial sums
// (Kernel::leave_partial_sums).
inline void pattern_conv2d_wgrad(Pattern& pattern) {
  const PatternValue x = pattern.input("x");
  pattern.output("kernel gradient",
                 x.call(op_conv2d_wgrad, {pattern.input("gy")}).as("convolution"));
}

// The end of a residual block: a convolution with a bias, a shortcut that is added, and perhaps
// relu.
inline void pattern_conv2d_add(Pattern& pattern) {
  const PatternValue x = pattern.input("x"), kernel = pattern.input("kernel");
  const PatternValue bias = pattern.input("bias");
  PatternValue y = x.call(op_conv2d, {kernel, bias}).where(is_linear).as("convolution");
  y = y.call(op_add, {pattern.input("shortcut")}).where([](const Graph& graph, const Node& node) {
    return graph.value(node.inputs[0]).spec == graph.value(node.inputs[1]).spec;
  });
  if (pattern.has("relu")) y = y.call(op_relu).as("relu");
  pattern.output("y", y);
}

// A convolution in 16 bits and the statistics of its results, as batch normalization needs them.
inline void pattern_conv2d_moments(Pattern& pattern) {
  const PatternValue x = pattern.input("x"), kernel = pattern.input("kernel");
  std::vector<PatternValue> weights = {kernel};
  if (pattern.has("bias")) weights.push_back(pattern.input("bias"));
  const PatternValue y = x.call(op_conv2d, weights).where(is_linear).as("convolution");
  const PatternValue mean = y.call(op_cast).again().call(op_column_moments).as("moments");
  mean.where([](const Graph& graph, const Node& node) {
    const TensorSpec& spec = graph.value(node.inputs[0]).spec;
    return spec.dtype == DType::Float32 && column_moments_outer_axes(node.attributes) == 0;
  });
  pattern.output("y", y);
  pattern.output("mean", mean);
  pattern.output("variance", mean.result(1));
}

// How often a classifier is right: in how many rows of the scores (n, classes) the first maximum,
// or the first NaN where there is one, is at the label. Class numbers are compared with labels (n,)
// after a cast to their dtype.
inline void pattern_count_matches(Pattern& pattern) {
  const PatternValue scores = pattern.input("scores");
  const PatternValue labels = pattern.input("labels");
  PatternValue place = scores.call(op_argmax).where(is_along_rows);
  place.where([](const Graph& graph, const Node& node) {
    return is_floating(graph.value(node.inputs[0]).spec.dtype);
  });
  if (pattern.has("cast of the class numbers")) place = place.call(op_cast);
  const PatternValue equal = labels.call(op_equal, {place});
  equal.where([](const Graph& graph, const Node& node) {
    const TensorSpec& spec = graph.value(node.inputs[0]).spec;
    const bool is_label =
        spec.dtype == DType::Int32 || spec.dtype == DType::Int64 || spec.dtype == DType::Float32;
    return is_label && spec == graph.value(node.inputs[1]).spec;  // nothing is broadcast
  });
  const PatternValue count = equal.call(op_cast).call(op_reduce_sum);
  count.where([](const Graph& graph, const Node& node) {
    return graph.value(node.outputs[0]).spec == TensorSpec{DType::Float32, {}};
  });
  pattern.output("count", count);
}

// The same batch of several arrays, such as images and their labels.
constexpr size_t kMostTakenArrays = 8;
inline void pattern_take_batches(Pattern& pattern) {
  size_t count = 2;
  while (count < kMostTakenArrays && pattern.has("array " + std::to_string(count))) ++count;
  std::vector<PatternValue> batches;
  for (size_t i = 0; i < count; ++i) batches.push_back(pattern.input("array"));
  const PatternValue order = pattern.input("order"), step = pattern.input("step");
  for (PatternValue& batch : batches) {
    batch = batch.call(op_take_batch, {order, step}).as("take_batch");
    pattern.output("batch", batch.like(batches[0]));
  }
}

}  // namespace kerascnn::cuda
