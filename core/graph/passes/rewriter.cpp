#include "core/graph/passes/rewriter.h"

#include <cstring>
#include <set>

#include "core/base/half.h"
#include "core/graph/error_context.h"
#include "core/ops/definitions.h"
#include "core/ops/optimizer_updates.h"

namespace kerascnn {
namespace {

template <typename T>
T load(const void* data) {
  T value;
  std::memcpy(&value, data, sizeof(T));
  return value;
}

// Beyond this number a double can't represent every integer.
constexpr int64_t kMaxExactInteger = int64_t{1} << 53;

std::optional<double> element_as_double(const Tensor& tensor) {
  char bytes[8];
  tensor.copy_to_host(bytes);
  switch (tensor.dtype()) {
    case DType::Bool:
      return load<uint8_t>(bytes) != 0 ? 1.0 : 0.0;
    case DType::UInt8:
      return load<uint8_t>(bytes);
    case DType::Int8:
      return load<int8_t>(bytes);
    case DType::Int16:
      return load<int16_t>(bytes);
    case DType::Int32:
      return load<int32_t>(bytes);
    case DType::Int64: {
      const auto value = load<int64_t>(bytes);
      if (value < -kMaxExactInteger || value > kMaxExactInteger) return std::nullopt;
      return static_cast<double>(value);
    }
    case DType::Float16:
      return float_from_half_bits(load<uint16_t>(bytes));
    case DType::BFloat16:
      return float_from_bfloat16_bits(load<uint16_t>(bytes));
    case DType::Float32:
      return load<float>(bytes);
    case DType::Float64:
      return load<double>(bytes);
  }
  return std::nullopt;
}

}  // namespace

GraphRewriter::GraphRewriter(const RootedGraph& source) : source_(source) {
  const Graph& graph = source.graph;
  map_.assign(graph.values().size(), kNoValue);
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    const ValueId id = graph.inputs()[i];
    map_[id] = target_.input(graph.input_names()[i], graph.value(id).spec);
  }
  for (size_t id = 0; id < graph.values().size(); ++id) {
    const Value& value = graph.values()[id];
    if (value.kind == ValueKind::State) map_[id] = target_.read(graph.states()[value.source]);
  }
  target_.state_layers_ = graph.state_layers_;
}

ValueId GraphRewriter::map(ValueId source_value) {
  ValueId& mapped = map_.at(source_value);
  if (mapped == kNoValue) {
    const Value& value = source().value(source_value);
    if (value.kind != ValueKind::Constant) {
      throw ValueError(message("a graph pass read value %", source_value,
                               " before it was computed; this is a fault of kerascnn"));
    }
    mapped = target_.constant(source().constants()[value.source]);
  }
  return mapped;
}

std::vector<ValueId> GraphRewriter::map(const std::vector<ValueId>& source_values) {
  std::vector<ValueId> mapped;
  mapped.reserve(source_values.size());
  for (ValueId id : source_values) mapped.push_back(map(id));
  return mapped;
}

void GraphRewriter::copy(const Node& node) { copy_with_inputs(node, map(node.inputs)); }

void GraphRewriter::copy_with_inputs(const Node& node, const std::vector<ValueId>& target_inputs) {
  std::vector<TensorSpec> specs;
  for (ValueId id : node.outputs) specs.push_back(source().value(id).spec);
  const std::vector<ValueId> outputs =
      target_.add_node(*node.op, node.attributes, target_inputs, std::move(specs), node.scope);
  for (size_t i = 0; i < outputs.size(); ++i) map_[node.outputs[i]] = outputs[i];
}

std::vector<ValueId> GraphRewriter::apply(OpRef op, const std::vector<ValueId>& target_inputs,
                                          const Attributes& attributes, const Scope& scope) {
  std::vector<TensorSpec> specs;
  for (ValueId id : target_inputs) specs.push_back(target_.value(id).spec);
  std::vector<TensorSpec> output_specs =
      with_scope(scope.path, [&] { return infer_outputs(*op, attributes, specs); });
  // The update may be a part of a larger one that was split.
  const Scope weights =
      find_update_groups(*op, attributes) ? target_.weight_layers(target_inputs) : Scope{};
  std::vector<ValueId> outputs = target_.add_node(
      *op, attributes, target_inputs, std::move(output_specs), weights.empty() ? scope : weights);
  is_new_.insert(outputs[0]);
  return outputs;
}

void GraphRewriter::replace(ValueId source_value, ValueId target_value) {
  map_[source_value] = target_value;
  join_scopes(source_value, target_value);
}

void GraphRewriter::replace(const std::vector<ValueId>& source_values,
                            const std::vector<ValueId>& target_values) {
  for (size_t i = 0; i < source_values.size(); ++i) replace(source_values[i], target_values.at(i));
}

// A new node belongs to all layers of the nodes that it stands for: those that led to the value it
// replaces and have not been copied to the target themselves.
void GraphRewriter::join_scopes(ValueId source_value, ValueId target_value) {
  Value made = target_.value(target_value);
  while (made.kind == ValueKind::Result && target_.nodes_[made.source].op->is_view) {
    made = target_.value(target_.nodes_[made.source].inputs[0]);
  }
  if (made.kind != ValueKind::Result) return;
  Node& node = target_.nodes_[made.source];
  // The layers of an update follow from what it reads (Graph::weight_layers).
  const bool is_update = find_update_groups(*node.op, node.attributes).has_value();
  if (!is_new_.contains(node.outputs[0]) || is_update) return;
  std::set<int32_t> stood_for;
  std::vector<ValueId> pending = {source_value};
  while (!pending.empty()) {
    const Value& value = source().value(pending.back());
    pending.pop_back();
    if (value.kind != ValueKind::Result || !stood_for.insert(value.source).second) continue;
    for (const ValueId input : source().nodes()[value.source].inputs) {
      if (map_[input] == kNoValue) pending.push_back(input);
    }
  }
  if (stood_for.empty()) return;
  Scope all = source().nodes()[*stood_for.begin()].scope;
  for (const int32_t index : stood_for) all.join(source().nodes()[index].scope);
  all.join(node.scope);
  node.scope = std::move(all);
}

RootedGraph GraphRewriter::finish() {
  for (const Assignment& assignment : source().assignments()) {
    target_.assign(source().states()[assignment.state], map(assignment.value));
  }
  const std::vector<ValueId> outputs = map(source_.outputs);
  return {std::move(target_), outputs};
}

Readers::Readers(const RootedGraph& rooted)
    : nodes_(rooted.graph.values().size()), is_root_(rooted.graph.values().size(), false) {
  for (size_t i = 0; i < rooted.graph.nodes().size(); ++i) {
    for (ValueId id : rooted.graph.nodes()[i].inputs) nodes_[id].push_back(static_cast<int32_t>(i));
  }
  for (ValueId id : rooted.outputs) is_root_[id] = true;
  for (const Assignment& assignment : rooted.graph.assignments()) is_root_[assignment.value] = true;
}

std::optional<int32_t> Readers::only_reader(ValueId value) const {
  if (is_root(value) || nodes_[value].size() != 1) return std::nullopt;
  return nodes_[value].front();
}

const Node* producer(const Graph& graph, ValueId value) {
  const Value& source = graph.value(value);
  return source.kind == ValueKind::Result ? &graph.nodes()[source.source] : nullptr;
}

const Node* producer(const Graph& graph, ValueId value, const OpDef& op) {
  const Node* node = producer(graph, value);
  return node != nullptr && node->op == &op ? node : nullptr;
}

std::string node_key(const Node& node, const std::vector<ValueId>& inputs) {
  std::string key(node.op->name);
  for (ValueId id : inputs) key += ',' + std::to_string(id);
  return key + '|' + node.attributes.key();
}

bool is_widened(const Graph& graph, ValueId value) {
  const Node* cast = producer(graph, value, op_cast);
  return cast != nullptr && itemsize(graph.value(cast->inputs[0]).spec.dtype) <
                                itemsize(graph.value(value).spec.dtype);
}

int32_t producer_index(const Graph& graph, ValueId value) {
  const Value& source = graph.value(value);
  return source.kind == ValueKind::Result ? source.source : -1;
}

std::optional<double> uniform_constant(const Graph& graph, ValueId value) {
  while (const Node* node = producer(graph, value, op_broadcast_to)) value = node->inputs[0];
  const Value& source = graph.value(value);
  if (source.kind != ValueKind::Constant) return std::nullopt;
  const Tensor& tensor = graph.constants()[source.source];
  if (tensor.size() != 1) return std::nullopt;
  return element_as_double(tensor);
}

}  // namespace kerascnn
