#include <algorithm>
#include <optional>
#include <string>

#include "core/graph/passes/activation_nodes.h"
#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"
#include "core/ops/fused_products.h"

namespace kerascnn {
namespace {

constexpr std::string_view kLoss = "dense_sparse_softmax_cross_entropy";
constexpr std::string_view kJoined = "dense_sparse_softmax_cross_entropy_dgrad";

// A node to be, in values of the source. It is emitted in the place of the loss: what it reads is
// known there, and what reads its further outputs came later anyway.
struct Head {
  Attributes attributes;
  std::vector<ValueId> inputs;
  ValueId dx = kNoValue;          // what the gradient of the input stands for
  ValueId dropped = kNoValue;     // what the result of the dropout stands for, if there is one
  std::vector<int32_t> absorbed;  // nodes that it stands for, besides the loss
};

class LossHeadFuser {
 public:
  LossHeadFuser(const RootedGraph& source, const PassOptions& options)
      : rewriter_(source),
        graph_(source.graph),
        readers_(source),
        options_(options),
        heads_(source.graph.nodes().size()),
        is_absorbed_(source.graph.nodes().size(), false) {
    for (size_t i = 0; i < graph_.nodes().size(); ++i) find_head(static_cast<int32_t>(i));
  }

  RootedGraph run() {
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      if (heads_[i]) {
        emit(graph_.nodes()[i], *heads_[i]);
      } else if (!is_absorbed_[i]) {
        rewriter_.copy(graph_.nodes()[i]);
      }
    }
    return rewriter_.finish();
  }

 private:
  const Shape& shape_of(ValueId value) const { return graph_.value(value).spec.shape; }

  void find_head(int32_t index) {
    const Node& loss = graph_.nodes()[index];
    if (loss.op->name != kLoss) return;
    const ValueId g = loss.outputs[DenseLossOutputs::gradient];
    for (int32_t reader : readers_.nodes(g)) {
      std::optional<Head> head = with_product(loss, reader);
      if (!head) continue;
      const std::optional<Head> more = with_dropout(index, *head);
      if (more && is_worth_it(*more)) {
        accept(index, *more);
      } else if (is_worth_it(*head)) {
        accept(index, *head);
      }
      return;
    }
  }

  // The gradient of the layer's input, which may go through the activation that the input is the
  // output of.
  std::optional<Head> with_product(const Node& loss, int32_t reader) const {
    const Node& product = graph_.nodes()[reader];
    const bool is_undone = product.op->name == "matmul_activation_grad";
    if (!is_undone && product.op->name != "matmul") return std::nullopt;
    const ValueId x = loss.inputs[DenseLossInputs::x];
    const bool is_input_gradient = product.inputs[0] == loss.outputs[DenseLossOutputs::gradient] &&
                                   product.inputs[1] == loss.inputs[DenseLossInputs::kernel] &&
                                   !product.attributes.get_bool("transpose_a") &&
                                   product.attributes.get_bool("transpose_b");
    if (!is_input_gradient || (is_undone && product.inputs[2] != x)) return std::nullopt;
    Head head;
    head.attributes = dense_loss_layer();  // no activation
    if (is_undone) {
      head.attributes = {{"activation", product.attributes.get_string("activation")},
                         {"activation_alpha", product.attributes.get_double("activation_alpha")}};
    }
    head.attributes.set("epsilon", loss.attributes.get_double("epsilon"));
    head.inputs = loss.inputs;
    head.dx = product.outputs[0];
    head.absorbed = {reader};
    return head;
  }

  // The only reader of a value, past a reshape, and what it reads.
  struct Next {
    const Node* node;
    ValueId input;
  };
  std::optional<Next> next(ValueId value, std::vector<int32_t>& passed) const {
    std::optional<int32_t> reader = readers_.only_reader(value);
    if (reader && graph_.nodes()[*reader].op->name == "reshape") {
      passed.push_back(*reader);
      value = graph_.nodes()[*reader].outputs[0];
      reader = readers_.only_reader(value);
    }
    if (!reader) return std::nullopt;
    passed.push_back(*reader);
    return Next{&graph_.nodes()[*reader], value};
  }

  // A dropout before the layer, and the same on the way back. Nodes before the loss must not read
  // what the dropout gives, as it comes with the loss then.
  std::optional<Head> with_dropout(int32_t loss, const Head& plain) const {
    if (plain.attributes.get_string("activation") != "linear") return std::nullopt;
    Head head = plain;
    head.dropped = plain.inputs[DenseLossInputs::x];
    const std::vector<int32_t>& readers = readers_.nodes(head.dropped);
    if (*std::min_element(readers.begin(), readers.end()) < loss) return std::nullopt;
    ValueId result = head.dropped;
    if (const Node* reshape = producer(graph_, result, "reshape")) {
      if (!readers_.only_reader(reshape->inputs[0])) return std::nullopt;
      head.absorbed.push_back(producer_index(graph_, result));
      result = reshape->inputs[0];
    }
    const Node* dropout = producer(graph_, result, "dropout");
    if (dropout == nullptr) return std::nullopt;
    head.absorbed.push_back(producer_index(graph_, result));

    const std::optional<Next> back = next(head.dx, head.absorbed);
    const bool is_same = back && back->node->op->name == "dropout" &&
                         back->input == back->node->inputs[0] &&
                         back->node->inputs[1] == dropout->inputs[1] &&
                         back->node->attributes == dropout->attributes;
    if (!is_same) return std::nullopt;
    head.dx = back->node->outputs[0];
    head.inputs[DenseLossInputs::x] = dropout->inputs[0];
    head.inputs.push_back(dropout->inputs[1]);
    head.attributes.set("rate", dropout->attributes.get_double("rate"));
    head.attributes.set("stream", dropout->attributes.get_int("stream"));
    take_activation(head);
    return head;
  }

  // The gradient of an activation right before the dropout.
  void take_activation(Head& head) const {
    const std::optional<int32_t> reader = readers_.only_reader(head.dx);
    if (!reader) return;
    const Node& node = graph_.nodes()[*reader];
    const std::optional<ActivationCall> activation = undone_activation(node);
    const ValueId x = head.inputs[DenseLossInputs::x];
    if (!activation || node.inputs[0] != head.dx || node.inputs[1] != x) return;
    head.attributes.set("activation", std::string(activation_name(activation->kind)));
    head.attributes.set("activation_alpha", activation->alpha);
    head.dx = node.outputs[0];
    head.absorbed.push_back(*reader);
  }

  bool is_worth_it(const Head& head) const {
    if (!options_.fuses) return false;
    const OpDef& op = find_op(kJoined);
    std::vector<TensorSpec> specs;
    for (ValueId id : head.inputs) specs.push_back(graph_.value(id).spec);
    if (head.dropped != kNoValue) specs[DenseLossInputs::x].shape = shape_of(head.dropped);
    const std::vector<TensorSpec> outputs = infer_outputs(op, head.attributes, specs);
    return options_.fuses({op, head.attributes, specs, outputs, options_.allow_tf32});
  }

  void accept(int32_t index, const Head& head) {
    heads_[index] = head;
    for (int32_t node : head.absorbed) is_absorbed_[node] = true;
  }

  // A value of the target under another shape.
  ValueId reshaped(ValueId value, const Shape& shape, const Scope& scope) {
    if (rewriter_.target().value(value).spec.shape == shape) return value;
    return rewriter_.apply("reshape", {value}, {{"shape", shape}}, scope)[0];
  }

  void emit(const Node& loss, const Head& head) {
    std::vector<ValueId> inputs = rewriter_.map(head.inputs);
    ValueId& x = inputs[DenseLossInputs::x];
    x = reshaped(x, shape_of(loss.inputs[DenseLossInputs::x]), loss.scope);
    const std::vector<ValueId> outputs =
        rewriter_.apply(kJoined, inputs, head.attributes, loss.scope);
    for (size_t i = 0; i < loss.outputs.size(); ++i) {
      rewriter_.replace(loss.outputs[i], outputs[i]);
    }
    rewriter_.replace(head.dx,
                      reshaped(outputs[DenseLossOutputs::dx], shape_of(head.dx), loss.scope));
    if (head.dropped != kNoValue) {
      rewriter_.replace(head.dropped, outputs[DenseLossOutputs::dropped]);
    }
  }

  GraphRewriter rewriter_;
  const Graph& graph_;
  Readers readers_;
  const PassOptions& options_;
  std::vector<std::optional<Head>> heads_;  // by node of the source, the loss
  std::vector<bool> is_absorbed_;           // by node of the source
};

}  // namespace

RootedGraph fuse_dense_loss_gradients(const RootedGraph& source, const PassOptions& options) {
  return options.fuses ? LossHeadFuser(source, options).run() : source;
}

}  // namespace kerascnn
