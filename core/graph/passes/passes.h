// What is done to a graph between tracing and planning. The same graph always gives the same
// result. Passes run after differentiation. Each keeps results bit by bit unless its comment says
// how they may differ.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "core/backend/backend.h"
#include "core/graph/rooted_graph.h"

namespace kerascnn {

// What the passes know of where the graph will run.
struct PassOptions {
  bool allow_tf32 = true;
  // May kernels run side by side there?
  bool runs_side_by_side = false;
  bool autotune = false;  // of PlanRequest
  // Backend::region_limits of the device; without it those that hold for all.
  std::function<RegionLimits(const Shape&)> region_limits = nullptr;
  int64_t least_generated_size = 0;  // of the device
  // Where kernels of fusions are planned, and the fusions to look for.
  Backend* backend = nullptr;
  std::span<const Fusion* const> fusions = {};
};

// All passes, in the order that Program::compile uses.
RootedGraph run_passes(const RootedGraph& source, const PassOptions& options = {});

// Drops nodes that neither an output nor an assignment depends on, and that no other process waits
// for though this one reads no result.
RootedGraph eliminate_dead_code(const RootedGraph& source);

// Evaluates small nodes whose inputs are constants, on the CPU, and drops operations that change
// nothing: x * 1, x / 1, x + 0, x - 0 (where -0 may become 0), cast to the same dtype, and reshape,
// transpose and broadcast_to that are the identity or follow their own kind. Element ops read what
// was broadcast instead of the broadcast copy.
RootedGraph fold_constants(const RootedGraph& source);

// Evaluates nodes with equal op, attributes and inputs once. Random ops count: with the same state
// and stream they give the same numbers.
RootedGraph merge_common_subexpressions(const RootedGraph& source);

// Max-pooling of a custom op that never falls where its input grows becomes the custom op of the
// pooled input: fewer elements, and the pooling can join a convolution. Gradients go back in the
// other order. Equal but for elements that only the custom op makes equal: one of them is the
// maximum.
RootedGraph pool_before_custom_ops(const RootedGraph& source);

// What a fusion of the device matches and has a kernel for becomes one node, `fused`, with that
// kernel. Equal up to the order of additions.
// Only those fusions are looked for of which Fusion::of_expanded is as given.
RootedGraph apply_fusions(const RootedGraph& source, const PassOptions& options,
                          bool of_expanded = false);

// What the fusion matches becomes the calls that it writes (op_fusions.h).
RootedGraph apply_fusion(const RootedGraph& source, const Fusion& fusion);

// The weights of a step in mixed precision are rounded to 16 bits by one cast_all, where kernels
// run side by side, instead of by one kernel for each: launches of small kernels cost more than
// what they do.
RootedGraph join_casts(const RootedGraph& source, const PassOptions& options);

// Small sums over processes that may be joined and do not depend on one another go in one message,
// at the place of the last of them.
RootedGraph join_sums(const RootedGraph& source);

// Optimizer updates read gradients of 16 bits and widen them, instead of the wider copies.
RootedGraph update_from_narrow_gradients(const RootedGraph& source);

// batch_norm and its gradient become reductions over columns and element ops, which join the
// regions around them, where the device forms regions of columns. Equal up to roundings.
RootedGraph expand_batch_norm(const RootedGraph& source, const PassOptions& options);
// The same of sparse_softmax_cross_entropy and its gradient where casts between 16 bits and more
// surround them, where the device forms regions of rows.
RootedGraph expand_cross_entropy(const RootedGraph& source, const PassOptions& options);

// softmax and log_softmax of 16-bit numbers over the last axis, and their gradients, become
// reductions over rows and element ops, which join what surrounds them: a scale, a mask, dropout.
// That is done where the device forms regions of rows. Results are equal up to roundings of
// float32.
RootedGraph expand_softmax(const RootedGraph& source, const PassOptions& options);

// Products read an operand transposed, or give their result transposed, where a transpose beside
// them would move the last axis, in programs for which the device forms regions. Results are equal
// up to the order of additions.
RootedGraph transpose_in_products(const RootedGraph& source, const PassOptions& options);

// A transpose that keeps stretches of memory together, or the reshape of its result, is taken
// before element ops of one large value rather than behind them, where the device forms regions:
// these can read through it. Results keep their bits.
RootedGraph move_before_elements(const RootedGraph& source, const PassOptions& options);

// An element op of one reshaped value, and of scalars, is taken before the reshape where nothing
// else reads that value and the device forms regions: it can join the one that computes the value.
// Results keep their bits.
RootedGraph elements_before_reshapes(const RootedGraph& source, const PassOptions& options);

// Sums over columns are taken of what element ops computed, not of its reshaped form, where the
// device forms regions of columns: they can join the region that computes it.
RootedGraph sum_before_reshapes(const RootedGraph& source, const PassOptions& options);

// What element ops computed in the forward pass from a value that is kept anyway, the backward pass
// computes again instead of reading it, where the device gains from that: normalized values and
// activations. They then take no memory in between. The same bits.
RootedGraph recompute_activations(const RootedGraph& source, const PassOptions& options);

// Makes groups of memory-bound nodes over one shape into regions (core/graph/region.h), as large as
// the device's limits are. Element ops keep their bits; sums may be added up in another order.
RootedGraph form_regions(const RootedGraph& source, const PassOptions& options = {});

// Element ops and reductions over columns that are left by themselves become regions too, where the
// device generates kernels of their size.
RootedGraph form_single_regions(const RootedGraph& source, const PassOptions& options);

// Optimizer updates add up gradients that come as partial sums, where the kernel of a fusion makes
// such and nothing else needs the gradient. Equal up to the order of additions.
RootedGraph fold_partial_sums(const RootedGraph& source);

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
