#include "core/graph/body.h"

#include "core/base/error.h"

namespace kerascnn {

std::vector<bool> needed_values(const Graph& graph, const std::vector<ValueId>& values,
                                bool for_gradients) {
  std::vector<bool> needed(graph.values().size(), false);
  for (const ValueId id : values) needed.at(id) = true;
  for (size_t index = graph.nodes().size(); index-- > 0;) {
    const Node& node = graph.nodes()[index];
    bool any = false;
    for (const ValueId id : node.outputs) any = any || needed[id];
    if (!any) continue;
    for (const ValueId id : node.inputs) needed[id] = true;
    if (!for_gradients) continue;
    for (const ValueId id : graph.own_gradient_inputs(node)) needed[id] = true;
  }
  return needed;
}

void check_body_inputs(std::string_view what, const Body& body,
                       const std::vector<TensorSpec>& given) {
  if (body.graph == nullptr || body.inputs.size() != given.size()) {
    throw ValueError(
        message(what, " must have ", given.size(), " inputs, received ", body.inputs.size()));
  }
  for (size_t i = 0; i < given.size(); ++i) {
    if (body.inputs[i] == kNoValue) continue;
    const TensorSpec& expected = body.graph->value(body.inputs[i]).spec;
    if (expected == given[i]) continue;
    throw ValueError(message(what, " takes ", spec_string(expected), " as input ", i, ", received ",
                             spec_string(given[i])));
  }
}

RootedGraph body_graph(const Body& body, const std::vector<TensorSpec>& inputs) {
  const Graph& source = *body.graph;
  const std::vector<bool> needed = needed_values(source, body.outputs);
  RootedGraph result;
  std::vector<ValueId> map(source.values().size(), kNoValue);
  for (size_t i = 0; i < body.inputs.size(); ++i) {
    const ValueId inner = body.inputs[i];
    const ValueId id = result.graph.input(message("input_", i), inputs.at(i));
    if (inner != kNoValue) map.at(inner) = id;
  }
  for (size_t id = 0; id < map.size(); ++id) {
    const Value& value = source.value(static_cast<ValueId>(id));
    if (!needed[id] || map[id] != kNoValue || value.kind == ValueKind::Result) continue;
    if (value.kind != ValueKind::Constant) {
      throw ValueError(message("a body reads value %", id, " (", spec_string(value.spec),
                               "), which is none of its inputs; this is a fault of kerascnn"));
    }
    map[id] = result.graph.constant(source.constants()[value.source]);
  }
  for (const Node& node : source.nodes()) {
    bool any = false;
    for (const ValueId id : node.outputs) any = any || needed[id];
    if (!any) continue;
    std::vector<ValueId> mapped;
    for (const ValueId id : node.inputs) mapped.push_back(map[id]);
    const std::vector<ValueId> results = result.graph.apply_same(node, mapped);
    for (size_t i = 0; i < results.size(); ++i) map[node.outputs[i]] = results[i];
  }
  for (const ValueId id : body.outputs) result.outputs.push_back(map[id]);
  return result;
}

}  // namespace kerascnn
