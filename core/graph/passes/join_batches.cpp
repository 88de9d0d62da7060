#include <optional>

#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"

namespace kerascnn {
namespace {

constexpr std::string_view kTake = "take_batch";

// One array of the joined node.
struct Taken {
  ValueId data;
  double scale;      // 0 where the batch stays as it is
  ValueId replaced;  // by the node's output
};

class BatchJoiner {
 public:
  BatchJoiner(const RootedGraph& source, const PassOptions& options)
      : rewriter_(source),
        graph_(source.graph),
        readers_(source),
        options_(options),
        is_dropped_(source.graph.nodes().size(), false) {}

  RootedGraph run() {
    find_first();
    if (first_ >= 0) collect();
    const bool joins = is_worth_it();
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      if (joins && static_cast<int32_t>(i) == first_) {
        emit();
      } else if (!joins || !is_dropped_[i]) {
        rewriter_.copy(graph_.nodes()[i]);
      }
    }
    return rewriter_.finish();
  }

 private:
  void find_first() {
    for (size_t i = 0; i < graph_.nodes().size() && first_ < 0; ++i) {
      if (graph_.nodes()[i].op->name == kTake) first_ = static_cast<int32_t>(i);
    }
  }

  // All nodes that take the same batch as the first, with what scales theirs. Their data are known
  // at the first: nothing computes data sets.
  void collect() {
    const Node& first = graph_.nodes()[first_];
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      const Node& node = graph_.nodes()[i];
      const bool is_same = node.op->name == kTake && node.inputs[1] == first.inputs[1] &&
                           node.inputs[2] == first.inputs[2] && node.attributes == first.attributes;
      if (!is_same || graph_.value(node.inputs[0]).kind == ValueKind::Result) continue;
      is_dropped_[i] = true;
      taken_.push_back(follow(node));
    }
  }

  // The node's batch, or the floats that bytes are cast to and multiplied by a constant to become.
  Taken follow(const Node& node) {
    const Taken plain{node.inputs[0], 0.0, node.outputs[0]};
    const std::optional<int32_t> cast = readers_.only_reader(node.outputs[0]);
    if (!cast || graph_.value(node.outputs[0]).spec.dtype != DType::UInt8) return plain;
    const Node& floats = graph_.nodes()[*cast];
    if (floats.op->name != "cast" || graph_.value(floats.outputs[0]).spec.dtype != DType::Float32) {
      return plain;
    }
    const std::optional<int32_t> reader = readers_.only_reader(floats.outputs[0]);
    if (!reader || graph_.nodes()[*reader].op->name != "multiply") return plain;
    const Node& product = graph_.nodes()[*reader];
    const bool is_left = product.inputs[0] == floats.outputs[0];
    const auto scale = uniform_constant(graph_, product.inputs[is_left ? 1 : 0]);
    const bool same_shape =
        graph_.value(product.outputs[0]).spec.shape == graph_.value(floats.outputs[0]).spec.shape;
    if (!scale || *scale == 0.0 || !same_shape) return plain;
    is_dropped_[static_cast<size_t>(*cast)] = is_dropped_[static_cast<size_t>(*reader)] = true;
    return {node.inputs[0], *scale, product.outputs[0]};
  }

  bool is_worth_it() const {
    if (taken_.empty() || (taken_.size() == 1 && taken_[0].scale == 0.0)) return false;
    return is_gain(options_, graph_, "take_batches", joined_attributes(), input_ids());
  }

  std::vector<ValueId> input_ids() const {
    std::vector<ValueId> ids;
    for (const Taken& taken : taken_) ids.push_back(taken.data);
    const Node& first = graph_.nodes()[first_];
    ids.insert(ids.end(), {first.inputs[1], first.inputs[2]});
    return ids;
  }

  Attributes joined_attributes() const {
    Attributes attributes = graph_.nodes()[first_].attributes;
    std::vector<double> scales;
    for (const Taken& taken : taken_) scales.push_back(taken.scale);
    attributes.set("scales", scales);
    return attributes;
  }

  void emit() {
    const std::vector<ValueId> batches =
        rewriter_.apply("take_batches", rewriter_.map(input_ids()), joined_attributes(),
                        graph_.nodes()[first_].scope);
    for (size_t i = 0; i < taken_.size(); ++i) {
      rewriter_.replace(taken_[i].replaced, batches[i]);
    }
  }

  GraphRewriter rewriter_;
  const Graph& graph_;
  Readers readers_;
  const PassOptions& options_;
  int32_t first_ = -1;  // the first node that takes a batch
  std::vector<Taken> taken_;
  std::vector<bool> is_dropped_;  // by node of the source, the first included
};

}  // namespace

RootedGraph join_batches(const RootedGraph& source, const PassOptions& options) {
  return options.fuses ? BatchJoiner(source, options).run() : source;
}

}  // namespace kerascnn
