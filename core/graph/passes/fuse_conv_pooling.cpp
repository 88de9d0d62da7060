#include <algorithm>
#include <string>

#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"
#include "core/ops/activation_kind.h"

namespace kerascnn {
namespace {

// A fused node to be, in values of the source.
struct FusedNode {
  std::string op;
  Attributes attributes;
  std::vector<ValueId> inputs;
  std::vector<ValueId> replaced;  // by its outputs; kNoValue where nobody reads one
  Scope scope;
  int32_t place;  // the node in whose place it is emitted
};

// A convolution and the pooling after it, with the gradients of the two.
struct Pair {
  std::vector<FusedNode> fused;
  std::vector<int32_t> dropped;  // nodes that it stands for
};

void set_activation(Attributes& attributes, const ActivationCall& activation) {
  attributes.set("activation", std::string(activation_name(activation.kind)));
  attributes.set("activation_alpha", activation.alpha);
}

// Of max_pool2d or max_pool2d_grad.
void set_pooling(Attributes& attributes, const Node& pooling) {
  attributes.set("window", pooling.attributes.get_ints("window"));
  attributes.set("pool_strides", pooling.attributes.get_ints("strides"));
  attributes.set("pool_padding", pooling.attributes.get_ints("padding"));
}

class ConvPoolFuser {
 public:
  ConvPoolFuser(const RootedGraph& source, const PassOptions& options)
      : rewriter_(source),
        graph_(source.graph),
        readers_(source),
        options_(options),
        is_dropped_(source.graph.nodes().size(), false),
        emitted_at_(source.graph.nodes().size(), -1) {
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      Pair pair;
      if (find_pair(static_cast<int32_t>(i), pair) && is_worth_it(pair)) accept(pair);
    }
  }

  RootedGraph run() {
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      if (emitted_at_[i] >= 0) {
        emit(fused_[emitted_at_[i]]);
      } else if (!is_dropped_[i]) {
        rewriter_.copy(graph_.nodes()[i]);
      }
    }
    return rewriter_.finish();
  }

 private:
  bool find_pair(int32_t pool_index, Pair& pair) const {
    const Node& pool = graph_.nodes()[pool_index];
    if (pool.op->name != "max_pool2d" || !readers_.only_reader(pool.inputs[0])) return false;
    const Node* conv = producer(graph_, pool.inputs[0], "conv2d");
    if (conv == nullptr) return false;
    const ActivationCall activation = fused_activation("conv2d", conv->attributes);
    if (!gradient_uses_output(activation.kind)) return false;

    Attributes attributes = conv->attributes;
    set_pooling(attributes, pool);
    pair.fused.push_back(
        {"conv2d_max_pool2d", attributes, conv->inputs, pool.outputs, conv->scope, pool_index});
    pair.dropped.push_back(index_of(pool.inputs[0]));
    for (int32_t reader : readers_.nodes(pool.outputs[1])) {
      const Node& spread = graph_.nodes()[reader];
      if (spread.op->name == "max_pool2d_grad" && !find_gradients(pool, activation, spread, pair)) {
        return false;
      }
    }
    return true;
  }

  // What reads the spread gradient. False where anything else does than gradients of convolutions.
  bool find_gradients(const Node& pool, const ActivationCall& activation, const Node& spread,
                      Pair& pair) const {
    const ValueId wide = spread.outputs[0];
    if (readers_.is_root(wide)) return false;
    ActivationCall undone;
    ValueId gy = spread.inputs[0];
    if (const Node* inner = activation_gradient(pool, activation, gy)) {
      undone = activation;
      gy = inner->inputs[0];
    }
    for (int32_t reader : readers_.nodes(wide)) {
      const Node& node = graph_.nodes()[reader];
      Attributes attributes = node.attributes;
      set_activation(attributes, undone);
      set_pooling(attributes, spread);
      const ValueId first = node.inputs[0], second = node.inputs.back();
      if (node.op->name == "conv2d_dgrad" && first == wide && second != wide) {
        pair.fused.push_back({"conv2d_max_pool2d_dgrad",
                              attributes,
                              {gy, pool.outputs[0], pool.outputs[1], second},
                              node.outputs,
                              node.scope,
                              reader});
      } else if (node.op->name == "conv2d_wgrad" && second == wide && first != wide) {
        FusedNode fused{
            "conv2d_max_pool2d_wgrad",   attributes, {first, gy, pool.outputs[0], pool.outputs[1]},
            {node.outputs[0], kNoValue}, node.scope, reader};
        take_bias_gradient(spread.inputs[0], fused, pair);
        pair.fused.push_back(fused);
      } else {
        return false;
      }
      pair.dropped.push_back(reader);
    }
    pair.dropped.push_back(index_of(wide));
    return true;
  }

  // The node that takes the gradient from behind the activation to before it, on pooled values.
  const Node* activation_gradient(const Node& pool, const ActivationCall& activation,
                                  ValueId narrow) const {
    const Node* node =
        producer(graph_, narrow, std::string(activation_name(activation.kind)) + "_grad");
    const bool fits = node != nullptr && node->inputs[1] == pool.outputs[0] &&
                      node->attributes == activation_attributes(activation);
    return fits ? node : nullptr;
  }

  // The sum of the pooled gradient becomes the second output, where the node can be moved to the
  // first of the two.
  void take_bias_gradient(ValueId narrow, FusedNode& fused, Pair& pair) const {
    for (int32_t reader : readers_.nodes(narrow)) {
      const bool is_taken =
          is_dropped_[reader] ||
          std::find(pair.dropped.begin(), pair.dropped.end(), reader) != pair.dropped.end();
      if (is_taken || !is_sum_over_positions(graph_.nodes()[reader])) continue;
      const int32_t place = std::min(fused.place, reader);
      const bool is_possible = std::all_of(fused.inputs.begin(), fused.inputs.end(),
                                           [&](ValueId id) { return index_of(id) < place; });
      if (!is_possible) continue;
      fused.place = place;
      fused.replaced[1] = graph_.nodes()[reader].outputs[0];
      pair.dropped.push_back(reader);
      return;
    }
  }

  static bool is_sum_over_positions(const Node& node) {
    if (node.op->name != "reduce_sum") return false;
    std::vector<int64_t> axes = node.attributes.get_ints("axes");
    for (int64_t& axis : axes) axis = axis < 0 ? axis + 4 : axis;
    std::sort(axes.begin(), axes.end());
    return axes == std::vector<int64_t>{0, 1, 2};
  }

  int32_t index_of(ValueId value) const { return producer_index(graph_, value); }

  bool is_worth_it(const Pair& pair) const {
    return std::all_of(pair.fused.begin(), pair.fused.end(), [&](const FusedNode& node) {
      return is_gain(options_, graph_, node.op, node.attributes, node.inputs);
    });
  }

  void accept(const Pair& pair) {
    for (int32_t node : pair.dropped) is_dropped_[node] = true;
    for (const FusedNode& node : pair.fused) {
      emitted_at_[node.place] = static_cast<int32_t>(fused_.size());
      fused_.push_back(node);
    }
  }

  void emit(const FusedNode& node) {
    const std::vector<ValueId> outputs =
        rewriter_.apply(node.op, rewriter_.map(node.inputs), node.attributes, node.scope);
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (node.replaced[i] != kNoValue) rewriter_.replace(node.replaced[i], outputs[i]);
    }
    // A sum that keeps its axes has the shape (1, 1, 1, k) in the place of (k,).
    if (outputs.size() < 2 || node.replaced[1] == kNoValue) return;
    const TensorSpec& wanted = graph_.value(node.replaced[1]).spec;
    if (rewriter_.target().value(outputs[1]).spec == wanted) return;
    rewriter_.replace(node.replaced[1], rewriter_.apply("reshape", {outputs[1]},
                                                        {{"shape", wanted.shape}}, node.scope)[0]);
  }

  GraphRewriter rewriter_;
  const Graph& graph_;
  Readers readers_;
  const PassOptions& options_;
  std::vector<FusedNode> fused_;
  std::vector<bool> is_dropped_;     // by node of the source
  std::vector<int32_t> emitted_at_;  // by node of the source: which of fused_, or -1
};

}  // namespace

RootedGraph fuse_conv_pooling(const RootedGraph& source, const PassOptions& options) {
  return options.fuses ? ConvPoolFuser(source, options).run() : source;
}

}  // namespace kerascnn
