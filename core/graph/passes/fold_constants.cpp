#include <numeric>

#include "core/eager/eager.h"
#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"
#include "core/ops/activation_kind.h"
#include "core/ops/definitions.h"
#include "core/ops/element_program.h"

namespace kerascnn {
namespace {

// Evaluating a larger result in each step costs less time than keeping it costs memory.
constexpr int64_t kMaxFoldedBytes = 1 << 16;

// Element ops of several inputs, which broadcast against each other; those of gradients don't.
bool broadcasts(const OpDef& op) {
  const auto element_op = find_element_op(op);
  return element_op && element_num_operands(*element_op) > 1 && !find_activation_of_gradient(op);
}

// Has the floating dtype `wide` each value of the floating dtype `narrow`?
bool holds_all_values(DType wide, DType narrow) {
  if (!is_floating(wide) || !is_floating(narrow)) return false;
  return wide == narrow || (wide >= DType::Float32 && narrow < wide);
}

class Folder {
 public:
  explicit Folder(const RootedGraph& source) : rewriter_(source), graph_(rewriter_.target()) {}

  RootedGraph run() {
    for (const Node& node : rewriter_.source().nodes()) {
      const std::vector<ValueId> inputs = rewriter_.map(node.inputs);
      if (!simplify(node, inputs) && !hoist_broadcast(node, inputs) && !evaluate(node, inputs)) {
        rewriter_.copy_with_inputs(node, without_broadcasts(node, inputs));
      }
    }
    return rewriter_.finish();
  }

 private:
  const TensorSpec& spec(ValueId id) const { return graph_.value(id).spec; }
  const TensorSpec& output_spec(const Node& node) const {
    return rewriter_.source().value(node.outputs[0]).spec;
  }

  bool becomes(const Node& node, ValueId value) {
    rewriter_.replace(node.outputs[0], value);
    return true;
  }

  bool becomes(const Node& node, OpRef op, ValueId input, const Attributes& attributes) {
    return becomes(node, rewriter_.apply(op, {input}, attributes, node.scope)[0]);
  }

  bool simplify(const Node& node, const std::vector<ValueId>& inputs) {
    const OpDef* const op = node.op;
    if (op == &op_multiply || op == &op_add) {
      const double neutral = op == &op_add ? 0.0 : 1.0;
      return drop_neutral(node, inputs[0], inputs[1], neutral) ||
             drop_neutral(node, inputs[1], inputs[0], neutral);
    }
    if (op == &op_subtract) return drop_neutral(node, inputs[0], inputs[1], 0.0);
    if (op == &op_divide) return drop_neutral(node, inputs[0], inputs[1], 1.0);
    // Gradients have been taken.
    if (op == &op_stop_gradient) return becomes(node, inputs[0]);
    if (op == &op_cast || op == &op_reshape || op == &op_broadcast_to) {
      if (spec(inputs[0]) == output_spec(node)) return becomes(node, inputs[0]);
    }
    if (op == &op_cast) return drop_widening(node, inputs[0]);
    if (op == &op_reshape || op == &op_broadcast_to) {
      const Node* before = producer(graph_, inputs[0], *op);
      if (before == nullptr) return false;
      const ValueId input = before->inputs[0];
      if (spec(input) == output_spec(node)) return becomes(node, input);
      return becomes(node, *op, input, node.attributes);
    }
    if (op == &op_transpose) return simplify_transpose(node, inputs[0]);
    return false;
  }

  bool drop_neutral(const Node& node, ValueId kept, ValueId other, double neutral) {
    if (spec(kept) != output_spec(node) || uniform_constant(graph_, other) != neutral) return false;
    return becomes(node, kept);
  }

  // Casts to a wider dtype and back.
  bool drop_widening(const Node& node, ValueId input) {
    const Node* before = producer(graph_, input, op_cast);
    if (before == nullptr) return false;
    const TensorSpec& narrow = spec(before->inputs[0]);
    if (narrow != output_spec(node) || !holds_all_values(spec(input).dtype, narrow.dtype)) {
      return false;
    }
    return becomes(node, before->inputs[0]);
  }

  bool simplify_transpose(const Node& node, ValueId input) {
    std::vector<int64_t> permutation = node.attributes.get_ints("permutation");
    const Node* before = producer(graph_, input, op_transpose);
    if (before != nullptr) {
      const std::vector<int64_t>& first = before->attributes.get_ints("permutation");
      for (int64_t& axis : permutation) axis = first[axis];
      input = before->inputs[0];
    }
    std::vector<int64_t> identity(permutation.size());
    std::iota(identity.begin(), identity.end(), int64_t{0});
    if (permutation == identity) return becomes(node, input);
    if (before == nullptr) return false;
    return becomes(node, op_transpose, input, {{"permutation", permutation}});
  }

  // The value that broadcast_to was applied to, or the value itself.
  ValueId narrow(ValueId value) const {
    while (const Node* node = producer(graph_, value, op_broadcast_to)) value = node->inputs[0];
    return value;
  }

  // Makes op(broadcast(a), broadcast(b)) to broadcast(op(a, b)), which has fewer elements.
  bool hoist_broadcast(const Node& node, const std::vector<ValueId>& inputs) {
    if (!node.op->is_elementwise || !(inputs.size() == 1 || broadcasts(*node.op))) return false;
    std::vector<ValueId> narrowed;
    Shape shape;
    for (ValueId id : inputs) {
      narrowed.push_back(narrow(id));
      shape = broadcast_shapes(std::string(node.op->name), shape, spec(narrowed.back()).shape);
    }
    const Shape& full_shape = output_spec(node).shape;
    if (narrowed == inputs || num_elements(shape) >= num_elements(full_shape)) return false;
    ValueId small = rewriter_.apply(*node.op, narrowed, node.attributes, node.scope)[0];
    if (const auto folded = evaluated(*producer(graph_, small))) small = (*folded)[0];
    return becomes(node, op_broadcast_to, small, {{"shape", full_shape}});
  }

  // The inputs of a broadcasting element op, each as it was before broadcast_to where the shape of
  // the result allows it.
  std::vector<ValueId> without_broadcasts(const Node& node, std::vector<ValueId> inputs) const {
    if (!broadcasts(*node.op)) return inputs;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const ValueId wide = inputs[i];
      inputs[i] = narrow(wide);
      Shape shape;
      for (ValueId id : inputs) {
        shape = broadcast_shapes(std::string(node.op->name), shape, spec(id).shape);
      }
      if (shape != output_spec(node).shape) inputs[i] = wide;
    }
    return inputs;
  }

  bool evaluate(const Node& node, const std::vector<ValueId>& inputs) {
    Node mapped = node;
    mapped.inputs = inputs;
    int64_t bytes = 0;
    for (ValueId id : node.outputs) bytes += num_bytes(rewriter_.source().value(id).spec);
    if (bytes > kMaxFoldedBytes) return false;
    const std::optional<std::vector<ValueId>> folded = evaluated(mapped);
    if (folded) rewriter_.replace(node.outputs, *folded);
    return folded.has_value();
  }

  // Constants for the outputs of a node whose inputs are values of the target.
  std::optional<std::vector<ValueId>> evaluated(const Node& node) {
    // A broadcast constant is kept as it is: element ops read it as one element.
    if (node.op->is_stateful || node.op->runs_user_code || node.op->has_bodies ||
        node.inputs.empty() || node.op == &op_broadcast_to) {
      return std::nullopt;
    }
    std::vector<Tensor> tensors;
    for (ValueId id : node.inputs) {
      const Value& value = graph_.value(id);
      if (value.kind != ValueKind::Constant) return std::nullopt;
      tensors.push_back(graph_.constants()[value.source].to(Device{}));
    }
    // These are copies: `node` may lie in the graph that is added to.
    const OpDef& op = *node.op;
    const Attributes attributes = node.attributes;
    std::vector<ValueId> constants;
    for (const Tensor& result : apply(op.name, tensors, attributes)) {
      constants.push_back(rewriter_.constant(result));
    }
    return constants;
  }

  GraphRewriter rewriter_;
  const Graph& graph_;
};

}  // namespace

RootedGraph fold_constants(const RootedGraph& source) { return Folder(source).run(); }

}  // namespace kerascnn
