// Products read their operands transposed, and give their result transposed, at no cost. So a
// transpose beside a product need not move the last axis, which tears rows of memory apart.
#include <algorithm>
#include <utility>

#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"
#include "core/ops/definitions.h"

namespace kerascnn {
namespace {

template <typename T>
std::vector<T> with_last_swapped(std::vector<T> list) {
  std::swap(list[list.size() - 1], list[list.size() - 2]);
  return list;
}

class ProductTransposes {
 public:
  ProductTransposes(const RootedGraph& source, const PassOptions& options)
      : source_(source),
        graph_(source.graph),
        options_(options),
        readers_(source),
        is_swapped_(graph_.values().size(), false) {}

  RootedGraph run() {
    for (const Node& node : graph_.nodes()) {
      if (node.op == &op_transpose && is_large(node) && !swap_result(node)) swap_operand(node);
    }
    GraphRewriter rewriter(source_);
    for (const Node& node : graph_.nodes()) {
      const bool is_changed =
          is_swapped_[node.outputs[0]] || std::any_of(node.inputs.begin(), node.inputs.end(),
                                                      [&](ValueId id) { return is_swapped_[id]; });
      if (is_changed) {
        rewrite(rewriter, node);
      } else {
        rewriter.copy(node);
      }
    }
    return rewriter.finish();
  }

 private:
  const Shape& shape(ValueId id) const { return graph_.value(id).spec.shape; }

  bool is_large(const Node& node) const {
    const Shape& operand = shape(node.inputs[0]);
    return operand.size() > 2 && options_.region_limits(operand).columns;
  }

  bool keeps_last_axes(const Node& node) const {
    if (node.op != &op_reshape) return false;
    const Shape& from = shape(node.inputs[0]);
    const Shape& to = shape(node.outputs[0]);
    return from.size() > 1 && to.size() > 1 && from.back() == to.back() &&
           from[from.size() - 2] == to[to.size() - 2];
  }

  bool is_read_by_products(ValueId id) const {
    const std::vector<int32_t>& nodes = readers_.nodes(id);
    return !readers_.is_root(id) && !nodes.empty() &&
           std::all_of(nodes.begin(), nodes.end(),
                       [&](int32_t reader) { return graph_.nodes()[reader].op == &op_matmul; });
  }

  // Of a transpose that puts the last axis before another one: products may do that.
  bool swap_result(const Node& transpose) {
    const std::vector<int64_t>& permutation = transpose.attributes.get_ints("permutation");
    const auto rank = static_cast<int64_t>(permutation.size());
    const ValueId result = transpose.outputs[0];
    if (permutation[rank - 2] != rank - 1 || readers_.is_root(result)) return false;
    std::vector<ValueId> swapped = {result};
    for (int32_t reader : readers_.nodes(result)) {
      const Node& node = graph_.nodes()[reader];
      if (node.op == &op_matmul) continue;
      if (!keeps_last_axes(node) || !is_read_by_products(node.outputs[0])) return false;
      swapped.push_back(node.outputs[0]);
    }
    for (ValueId id : swapped) is_swapped_[id] = true;
    return true;
  }

  // Of a transpose that makes the last axis of the one before it: a product may give it so.
  void swap_operand(const Node& transpose) {
    const std::vector<int64_t>& permutation = transpose.attributes.get_ints("permutation");
    if (permutation.back() != static_cast<int64_t>(permutation.size()) - 2) return;
    std::vector<ValueId> swapped = {transpose.inputs[0]};
    const Node* node = producer(graph_, swapped.back());
    if (node != nullptr && keeps_last_axes(*node)) {
      swapped.push_back(node->inputs[0]);
      node = producer(graph_, swapped.back());
    }
    const bool has_one_reader = std::all_of(swapped.begin(), swapped.end(), [&](ValueId id) {
      return readers_.only_reader(id).has_value() && !is_swapped_[id];
    });
    if (node == nullptr || node->op != &op_matmul || !has_one_reader) return;
    for (ValueId id : swapped) is_swapped_[id] = true;
  }

  void rewrite(GraphRewriter& rewriter, const Node& node) const {
    std::vector<ValueId> inputs = rewriter.map(node.inputs);
    Attributes attributes = node.attributes;
    const bool gives_swapped = is_swapped_[node.outputs[0]];
    if (node.op == &op_matmul) {
      bool a = attributes.get_bool("transpose_a") != is_swapped_[node.inputs[0]];
      bool b = attributes.get_bool("transpose_b") != is_swapped_[node.inputs[1]];
      if (gives_swapped) {
        std::swap(inputs[0], inputs[1]);
        a = !std::exchange(b, !a);
      }
      attributes.set("transpose_a", a);
      attributes.set("transpose_b", b);
    } else if (node.op == &op_reshape) {
      attributes.set("shape", with_last_swapped(shape(node.outputs[0])));
    } else {
      std::vector<int64_t> permutation = attributes.get_ints("permutation");
      const auto rank = static_cast<int64_t>(permutation.size());
      if (gives_swapped) permutation = with_last_swapped(permutation);
      for (int64_t& axis : permutation) {
        if (is_swapped_[node.inputs[0]] && axis >= rank - 2) axis = 2 * rank - 3 - axis;
      }
      if (std::is_sorted(permutation.begin(), permutation.end())) {
        rewriter.replace(node.outputs[0], inputs[0]);
        return;
      }
      attributes.set("permutation", permutation);
    }
    rewriter.replace(node.outputs[0], rewriter.apply(*node.op, inputs, attributes, node.scope)[0]);
  }

  const RootedGraph& source_;
  const Graph& graph_;
  const PassOptions& options_;
  const Readers readers_;
  std::vector<bool> is_swapped_;  // by value: has it its last two axes in the other order?
};

}  // namespace

RootedGraph transpose_in_products(const RootedGraph& source, const PassOptions& options) {
  if (!options.region_limits) return source;
  return ProductTransposes(source, options).run();
}

}  // namespace kerascnn
