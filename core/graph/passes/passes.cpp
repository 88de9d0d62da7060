#include "core/graph/passes/passes.h"

#include <algorithm>

#include "core/graph/passes/op_fusions.h"
#include "core/ops/definitions.h"
#include "core/profile/call_log.h"

namespace kerascnn {

namespace {

// As a device takes regions of a program whose memory-bound ops are of these sizes.
PassOptions options_by_size(const Graph& graph, const PassOptions& options) {
  int64_t largest = 0;
  for (const Node& node : graph.nodes()) {
    const bool is_normalization = node.op == &op_batch_norm || node.op == &op_batch_norm_grad;
    if (!node.op->is_elementwise && !is_normalization) continue;
    largest = std::max(largest, num_elements(graph.value(node.outputs[0]).spec.shape));
  }
  PassOptions by_size = options;
  if (largest < options.least_generated_size) by_size.region_limits = nullptr;
  return by_size;
}

}  // namespace

RootedGraph run_passes(const RootedGraph& source, const PassOptions& options) {
  // What is computed now is none of the layers' work.
  const EagerScopeGuard compiles({.path = "compilation", .phases = 0});
  RootedGraph rooted = eliminate_dead_code(source);
  rooted = prune_bodies(rooted);
  rooted = eliminate_dead_code(rooted);
  rooted = merge_common_subexpressions(rooted);
  rooted = fold_constants(rooted);
  rooted = merge_common_subexpressions(rooted);  // folding makes nodes alike
  rooted = eliminate_dead_code(rooted);
  // Patterns look at who reads a value, so nothing dead may be left.
  rooted = pool_before_custom_ops(rooted);
  for (const Fusion& fusion : op_fusions()) {
    rooted = eliminate_dead_code(apply_fusion(rooted, fusion));
  }
  rooted = apply_fusions(rooted, options);
  rooted = eliminate_dead_code(rooted);
  rooted = update_from_narrow_gradients(rooted);
  rooted = join_casts(rooted, options);
  rooted = join_sums(rooted);
  // By what is left for regions: large activations may have gone into kernels of convolutions.
  const PassOptions by_size = options_by_size(rooted.graph, options);
  rooted = expand_batch_norm(rooted, by_size);
  rooted = expand_cross_entropy(rooted, by_size);
  rooted = expand_softmax(rooted, by_size);
  rooted = eliminate_dead_code(apply_fusions(rooted, options, true));
  rooted = transpose_in_products(rooted, by_size);
  rooted = move_before_elements(rooted, by_size);
  rooted = elements_before_reshapes(rooted, by_size);
  rooted = sum_before_reshapes(rooted, by_size);
  rooted = recompute_activations(rooted, by_size);
  rooted = form_regions(rooted, by_size);
  rooted = materialize_constants(rooted);
  rooted = apply_fusion(rooted, fused_loss_gradient);
  rooted = eliminate_dead_code(rooted);
  rooted = fold_partial_sums(rooted);
  rooted = split_updates(rooted, options);
  return eliminate_dead_code(form_single_regions(rooted, by_size));
}

}  // namespace kerascnn
