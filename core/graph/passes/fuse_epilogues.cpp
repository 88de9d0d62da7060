#include <algorithm>

#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"
#include "core/ops/activation_kind.h"

namespace kerascnn {
namespace {

// A product or convolution with the nodes that move into it.
struct Chain {
  int32_t base;
  ValueId bias = kNoValue;
  ActivationCall activation;
  int32_t last;          // the node whose output the fused node has
  int32_t reshape = -1;  // a node between bias and activation, which then follows the fused node
};

class EpilogueFuser {
 public:
  explicit EpilogueFuser(const RootedGraph& source)
      : rewriter_(source), graph_(source.graph), readers_(source) {}

  RootedGraph run() {
    const size_t count = graph_.nodes().size();
    std::vector<int32_t> chain_at(count, -1);  // where a chain ends
    std::vector<bool> is_absorbed(count, false);
    std::vector<Chain> chains;
    for (size_t i = 0; i < count; ++i) {
      const auto index = static_cast<int32_t>(i);
      if (!is_base(graph_.nodes()[i])) continue;
      const Chain chain = follow(index, is_absorbed);
      if (chain.last == index) continue;
      chain_at[chain.last] = static_cast<int32_t>(chains.size());
      chains.push_back(chain);
    }
    for (size_t i = 0; i < count; ++i) {
      if (chain_at[i] >= 0) {
        emit(chains[chain_at[i]]);
      } else if (!is_absorbed[i]) {
        rewriter_.copy(graph_.nodes()[i]);
      }
    }
    return rewriter_.finish();
  }

 private:
  // Can this node take a bias or an activation?
  bool is_base(const Node& node) const {
    const Attributes& attributes = node.attributes;
    if (node.op->name == "dense" || node.op->name == "conv2d") {
      return attributes.get_string("activation") == "linear";
    }
    const TensorSpec& spec = graph_.value(node.outputs[0]).spec;
    return node.op->name == "matmul" && spec.shape.size() == 2 && is_floating(spec.dtype) &&
           !attributes.get_bool("transpose_a") && !attributes.get_bool("transpose_b");
  }

  // Marks the nodes before the chain's last one as absorbed.
  Chain follow(int32_t base, std::vector<bool>& is_absorbed) const {
    const Node& node = graph_.nodes()[base];
    Chain chain{base, kNoValue, {}, base};
    ValueId value = node.outputs[0];
    std::optional<int32_t> reader = readers_.only_reader(value);
    if (reader && node.inputs.size() == 2) {
      chain.bias = bias_of(graph_.nodes()[*reader], value);
      if (chain.bias != kNoValue) {
        advance(chain, *reader, is_absorbed);
        value = graph_.nodes()[*reader].outputs[0];
        reader = readers_.only_reader(value);
      }
    }
    if (!reader) return chain;
    // Convolutions of sequences and volumes are reshaped from and to images: an activation of
    // single elements may come before.
    const int32_t reshape = graph_.nodes()[*reader].op->name == "reshape" ? *reader : -1;
    if (reshape >= 0) reader = readers_.only_reader(graph_.nodes()[reshape].outputs[0]);
    if (!reader) return chain;
    const Node& next = graph_.nodes()[*reader];
    if (const std::optional<Activation> activation = find_activation(*next.op)) {
      chain.activation = activation_call(*activation, next.attributes);
      chain.reshape = reshape;
      if (reshape >= 0) advance(chain, reshape, is_absorbed);
      advance(chain, *reader, is_absorbed);
    }
    return chain;
  }

  static void advance(Chain& chain, int32_t to, std::vector<bool>& is_absorbed) {
    is_absorbed[chain.last] = true;
    chain.last = to;
  }

  // The other operand of an addition of one number for each channel; kNoValue where it is none.
  ValueId bias_of(const Node& node, ValueId value) const {
    if (node.op->name != "add") return kNoValue;
    const ValueId bias = node.inputs[0] == value ? node.inputs[1] : node.inputs[0];
    const Shape& shape = graph_.value(value).spec.shape;
    const Shape& bias_shape = graph_.value(bias).spec.shape;
    const bool fits = bias_shape.size() == 1 && bias_shape[0] == shape.back() &&
                      graph_.value(node.outputs[0]).spec.shape == shape;
    return fits ? bias : kNoValue;
  }

  void emit(const Chain& chain) {
    const Node& base = graph_.nodes()[chain.base];
    const bool is_convolution = base.op->name == "conv2d";
    std::vector<ValueId> inputs = rewriter_.map(base.inputs);
    if (chain.bias != kNoValue) inputs.push_back(rewriter_.map(chain.bias));
    Attributes attributes = is_convolution ? base.attributes : Attributes{};
    attributes.set("activation", std::string(activation_name(chain.activation.kind)));
    attributes.set("activation_alpha", chain.activation.alpha);
    std::vector<ValueId> fused =
        rewriter_.apply(is_convolution ? "conv2d" : "dense", inputs, attributes, base.scope);
    if (chain.reshape >= 0) {
      const Node& reshape = graph_.nodes()[chain.reshape];
      fused = rewriter_.apply("reshape", fused, reshape.attributes, reshape.scope);
    }
    rewriter_.replace(graph_.nodes()[chain.last].outputs[0], fused[0]);
  }

  GraphRewriter rewriter_;
  const Graph& graph_;
  Readers readers_;
};

}  // namespace

RootedGraph fuse_epilogues(const RootedGraph& source) { return EpilogueFuser(source).run(); }

}  // namespace kerascnn
