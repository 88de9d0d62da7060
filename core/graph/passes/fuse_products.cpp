#include <optional>
#include <string>

#include "core/graph/passes/activation_nodes.h"
#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"
#include "core/ops/fused_products.h"

namespace kerascnn {
namespace {

// A product and the one node that reads it, which become one node in the place of the latter.
struct Joined {
  std::string_view op;
  Attributes attributes;
  std::vector<ValueId> inputs;  // values of the source
};

// Finds pairs by `find`, a function (reader, product) -> Joined with an empty op where the two
// don't fit.
template <typename Find>
RootedGraph join_products(const RootedGraph& source, const PassOptions& options, const Find& find) {
  GraphRewriter rewriter(source);
  const Graph& graph = source.graph;
  const Readers readers(source);
  const size_t count = graph.nodes().size();
  std::vector<Joined> joined_at(count);
  std::vector<bool> is_dropped(count, false);
  for (size_t i = 0; i < count; ++i) {
    const Node& reader = graph.nodes()[i];
    const ValueId value = reader.inputs.empty() ? kNoValue : reader.inputs[0];
    if (value == kNoValue || !readers.only_reader(value)) continue;
    const Node* product = producer(graph, value);
    if (product == nullptr) continue;
    const Joined joined = find(reader, *product);
    if (joined.op.empty()) continue;
    if (!is_gain(options, graph, joined.op, joined.attributes, joined.inputs)) continue;
    joined_at[i] = joined;
    is_dropped[static_cast<size_t>(graph.value(value).source)] = true;
  }
  for (size_t i = 0; i < count; ++i) {
    const Node& node = graph.nodes()[i];
    const Joined& joined = joined_at[i];
    if (!joined.op.empty()) {
      const std::vector<ValueId> outputs =
          rewriter.apply(joined.op, rewriter.map(joined.inputs), joined.attributes, node.scope);
      for (size_t k = 0; k < outputs.size(); ++k) rewriter.replace(node.outputs[k], outputs[k]);
    } else if (!is_dropped[i]) {
      rewriter.copy(node);
    }
  }
  return rewriter.finish();
}

bool is_plane(const Graph& graph, const Node& node) {
  return graph.value(node.outputs[0]).spec.shape.size() == 2;
}

Joined join_activation_gradient(const Graph& graph, const Node& reader, const Node& product) {
  if (product.op->name != "matmul" || !is_plane(graph, product)) return {};
  const std::optional<ActivationCall> activation = undone_activation(reader);
  if (!activation || reader.inputs[1] == product.outputs[0]) return {};
  Attributes attributes = product.attributes;
  attributes.set("activation", std::string(activation_name(activation->kind)));
  attributes.set("activation_alpha", activation->alpha);
  return {"matmul_activation_grad",
          attributes,
          {product.inputs[0], product.inputs[1], reader.inputs[1]}};
}

// A layer without bias and activation may be a plain matmul.
bool is_linear_layer(const Graph& graph, const Node& node) {
  if (node.op->name == "dense") return node.attributes.get_string("activation") == "linear";
  return node.op->name == "matmul" && is_plane(graph, node) &&
         !node.attributes.get_bool("transpose_a") && !node.attributes.get_bool("transpose_b");
}

Joined join_dense_loss(const Graph& graph, const Node& reader, const Node& layer) {
  const bool is_loss =
      reader.op->name == "sparse_softmax_cross_entropy" && reader.inputs.size() == 3;
  if (!is_loss || !is_linear_layer(graph, layer)) return {};
  std::vector<ValueId> inputs = layer.inputs;
  inputs.insert(inputs.end(), {reader.inputs[1], reader.inputs[2]});
  return {"dense_sparse_softmax_cross_entropy", reader.attributes, inputs};
}

}  // namespace

RootedGraph fuse_activation_gradients(const RootedGraph& source, const PassOptions& options) {
  if (!options.fuses) return source;
  return join_products(source, options, [&](const Node& reader, const Node& product) {
    return join_activation_gradient(source.graph, reader, product);
  });
}

RootedGraph fuse_dense_losses(const RootedGraph& source, const PassOptions& options) {
  if (!options.fuses) return source;
  return join_products(source, options, [&](const Node& reader, const Node& layer) {
    return join_dense_loss(source.graph, reader, layer);
  });
}

}  // namespace kerascnn
