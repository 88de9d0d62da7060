#include "core/graph/passes/passes.h"

#include "core/profile/call_log.h"

namespace kerascnn {

namespace {

// Calls ask(request) with the request to plan the op.
template <typename Ask>
auto with_request(const PassOptions& options, const Graph& graph, std::string_view op,
                  const Attributes& attributes, const std::vector<ValueId>& inputs,
                  const Ask& ask) {
  std::vector<TensorSpec> specs;
  for (ValueId id : inputs) specs.push_back(graph.value(id).spec);
  const OpDef& definition = find_op(op);
  const std::vector<TensorSpec> outputs = infer_outputs(definition, attributes, specs);
  return ask({definition, attributes, specs, outputs, options.allow_tf32, options.autotune});
}

}  // namespace

int64_t num_partial_sums(const PassOptions& options, const Graph& graph, const Node& node) {
  if (!options.num_partial_sums) return 0;
  return with_request(options, graph, node.op->name, node.attributes, node.inputs,
                      options.num_partial_sums);
}

bool is_gain(const PassOptions& options, const Graph& graph, std::string_view op,
             const Attributes& attributes, const std::vector<ValueId>& inputs) {
  if (!options.fuses) return false;
  return with_request(options, graph, op, attributes, inputs, options.fuses);
}

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
  // The pattern passes look at who reads a value, so nothing dead may be left.
  rooted = fuse_softmax_cross_entropy(rooted);
  rooted = pool_before_custom_ops(rooted);
  rooted = shrink_pooling_gradients(rooted);
  rooted = eliminate_dead_code(rooted);
  rooted = fuse_epilogues(rooted);
  rooted = fuse_conv_pooling(rooted, options);
  rooted = fuse_activation_gradients(rooted, options);
  rooted = join_batches(rooted, options);
  rooted = fuse_match_counts(rooted, options);
  rooted = eliminate_dead_code(rooted);
  rooted = expand_batch_norm(rooted, options);
  rooted = form_regions(rooted, options);
  rooted = materialize_constants(rooted);
  rooted = join_loss_gradients(rooted);  // a mean's gradient is a stored constant by now
  rooted = fuse_dense_losses(rooted, options);
  rooted = fuse_dense_loss_gradients(rooted, options);
  rooted = fuse_dense_gradients(rooted, options);
  rooted = eliminate_dead_code(rooted);
  rooted = fold_partial_sums(rooted, options);
  return split_updates(rooted, options);
}

}  // namespace kerascnn
