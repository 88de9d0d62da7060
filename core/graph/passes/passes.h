// What is done to a graph between tracing and planning. The same graph always gives the same
// result. Passes run after differentiation. Each keeps results bit by bit unless its comment says
// how they may differ.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "core/backend/backend.h"
#include "core/graph/rooted_graph.h"

namespace kerascnn {

// What the passes know of where the graph will run.
struct PassOptions {
  bool allow_tf32 = true;
  // Backend::fuses of the device. Where it is missing, no op is made that is faster on some devices
  // only.
  std::function<bool(const PlanRequest&)> fuses = nullptr;
  // Backend::num_partial_sums of the device.
  std::function<int64_t(const PlanRequest&)> num_partial_sums = nullptr;
  // May kernels run side by side there?
  bool runs_side_by_side = false;
  bool autotune = false;  // of PlanRequest
  // Backend::region_limits of the device; without it those that hold for all.
  std::function<RegionLimits(const Shape&)> region_limits = nullptr;
  int64_t least_generated_size = 0;  // of the device
};

// Does the device gain from this op? `inputs` are values of the graph.
bool is_gain(const PassOptions& options, const Graph& graph, OpRef op, const Attributes& attributes,
             const std::vector<ValueId>& inputs);

// PassOptions::num_partial_sums of a node, 0 without it.
int64_t num_partial_sums(const PassOptions& options, const Graph& graph, const Node& node);

// All passes, in the order that Program::compile uses.
RootedGraph run_passes(const RootedGraph& source, const PassOptions& options = {});

// Drops nodes that neither an output nor an assignment depends on.
RootedGraph eliminate_dead_code(const RootedGraph& source);

// Evaluates small nodes whose inputs are constants, on the CPU, and drops operations that change
// nothing: x * 1, x / 1, x + 0, x - 0 (where -0 may become 0), cast to the same dtype, and reshape,
// transpose and broadcast_to that are the identity or follow their own kind. Element ops read what
// was broadcast instead of the broadcast copy.
RootedGraph fold_constants(const RootedGraph& source);

// Evaluates nodes with equal op, attributes and inputs once. Random ops count: with the same state
// and stream they give the same numbers.
RootedGraph merge_common_subexpressions(const RootedGraph& source);

// softmax followed by sparse_cross_entropy, and their gradients, become
// sparse_softmax_cross_entropy. Its loss and gradient are those of the pair up to rounding; the
// probabilities keep their readers.
RootedGraph fuse_softmax_cross_entropy(const RootedGraph& source);

// Max-pooling of a custom op that never falls where its input grows becomes the custom op of the
// pooled input: fewer elements, and the pooling can join a convolution. Gradients go back in the
// other order. Equal but for elements that only the custom op makes equal: one of them is the
// maximum.
RootedGraph pool_before_custom_ops(const RootedGraph& source);

// The gradient of an activation before max pooling is taken on the pooled values, and the sum of
// the pooling's gradient (of a bias) before it is spread. Equal up to the order of additions.
RootedGraph shrink_pooling_gradients(const RootedGraph& source);

// Bias and activation move into the matmul, dense or conv2d before them. In float16 and bfloat16
// the sum is then rounded once instead of after each op.
RootedGraph fuse_epilogues(const RootedGraph& source);

// A convolution and the max pooling after it become conv2d_max_pool2d, and their gradients its
// gradients, where the device has faster kernels for all of them. The sum of the pooled gradient
// comes with the gradient of the kernel.
RootedGraph fuse_conv_pooling(const RootedGraph& source, const PassOptions& options);

// A matmul and the activation gradient after it become matmul_activation_grad, where the device has
// one kernel for them.
RootedGraph fuse_activation_gradients(const RootedGraph& source, const PassOptions& options);

// All batches that a step takes become one node's, where the device has one kernel for that.
RootedGraph join_batches(const RootedGraph& source, const PassOptions& options);

// The argmax of a classifier's scores, its comparison with labels and the sum of the matches become
// count_matches, where the device has one kernel for them. Exact, as the sum is, up to 2^24 rows.
RootedGraph fuse_match_counts(const RootedGraph& source, const PassOptions& options);

// The weights of a step in mixed precision are rounded to 16 bits by one cast_all, where kernels
// run side by side, instead of by one kernel for each: launches of small kernels cost more than
// what they do.
RootedGraph join_casts(const RootedGraph& source, const PassOptions& options);

// Optimizer updates read gradients of 16 bits and widen them, instead of the wider copies.
RootedGraph update_from_narrow_gradients(const RootedGraph& source);

// batch_norm and its gradient become reductions over columns and element ops, which join the
// regions around them, where the device forms regions of columns. Equal up to roundings.
RootedGraph expand_batch_norm(const RootedGraph& source, const PassOptions& options);

// Sums over columns are taken of what element ops computed, not of its reshaped form, where the
// device forms regions of columns: they can join the region that computes it.
RootedGraph sum_before_reshapes(const RootedGraph& source, const PassOptions& options);

// Makes groups of memory-bound nodes over one shape into regions (core/graph/region.h), as large as
// the device's limits are. Element ops keep their bits; sums may be added up in another order.
RootedGraph form_regions(const RootedGraph& source, const PassOptions& options = {});

// Element ops and reductions over columns that are left by themselves become regions too, where the
// device generates kernels of their size.
RootedGraph form_single_regions(const RootedGraph& source, const PassOptions& options);

// The gradient of sparse_softmax_cross_entropy becomes its third output, where the gradient of the
// loss is known before the loss.
RootedGraph join_loss_gradients(const RootedGraph& source);

// A dense layer and the loss that alone reads its logits, with its gradient, become
// dense_sparse_softmax_cross_entropy, where the device has one kernel for them. Equal up to the
// order of additions.
RootedGraph fuse_dense_losses(const RootedGraph& source, const PassOptions& options);

// The last dense layer with its loss, the gradient of its input and what that goes back through, a
// dropout and an activation, become dense_sparse_softmax_cross_entropy_dgrad, where the device has
// one kernel for them. Equal up to the order of additions; the dropout drops the same elements.
RootedGraph fuse_dense_loss_gradients(const RootedGraph& source, const PassOptions& options);

// The gradients of a dense layer's kernel and bias, a matmul and the sum of one of its factors,
// become dense_wgrad, where the device has one kernel for them. Equal up to the order of additions.
RootedGraph fuse_dense_gradients(const RootedGraph& source, const PassOptions& options);

// Optimizer updates add up gradients that come as partial sums, where the device makes such and
// nothing else needs the gradient. Equal up to the order of additions.
RootedGraph fold_partial_sums(const RootedGraph& source, const PassOptions& options);

// The parameters whose gradients are known last get an update of their own, so that those of all
// others, and the next step's kernels that wait for them, need not wait for the last gradients. It
// is done where kernels run side by side.
RootedGraph split_updates(const RootedGraph& source, const PassOptions& options);

// Loops and choices are left without the outputs that nobody reads, without the carries that only
// they need, and without the inputs that nothing of the rest needs. The same bits.
RootedGraph prune_bodies(const RootedGraph& source);

// Stores small broadcast constants in full, so that no kernel runs for them in each step.
RootedGraph materialize_constants(const RootedGraph& source);

}  // namespace kerascnn
