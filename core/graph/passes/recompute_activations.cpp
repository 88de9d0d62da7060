#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <unordered_map>

#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"
#include "core/graph/region.h"
#include "core/graph/schedule.h"
#include "core/ops/definitions.h"
#include "core/ops/element_program.h"

namespace kerascnn {
namespace {

// Ops that are computed again for one value: batch normalization in mixed precision, an activation
// and what is multiplied to it are seven.
constexpr size_t kMostOps = 12;
// A value is small beside another one that has so many times its elements.
constexpr int64_t kShareOfBeside = 4;
constexpr int32_t kForever = std::numeric_limits<int32_t>::max();

// Decides for each value of the forward pass that the backward pass reads whether it is kept, and
// makes the graph in which the others are computed again.
class Recomputation {
 public:
  Recomputation(const RootedGraph& rooted, const PassOptions& options)
      : rooted_(rooted), graph_(rooted.graph), options_(options), rewriter_(rooted) {
    find_border();
    find_last_uses();
    is_dropped_.resize(graph_.values().size(), false);
    is_cloned_.resize(graph_.nodes().size(), false);
    is_source_.resize(graph_.values().size(), false);
    for (int32_t node = 0; node < border_; ++node) decide(node);
  }

  RootedGraph run() {
    const auto count = static_cast<int32_t>(graph_.nodes().size());
    for (int32_t node = 0; node < count; ++node) {
      if (node < border_) {
        rewriter_.copy(graph_.nodes()[node]);
      } else {
        copy_late(graph_.nodes()[node]);
      }
    }
    return rewriter_.finish();
  }

 private:
  // The first node of the backward pass.
  void find_border() {
    const auto& nodes = graph_.nodes();
    const auto found = std::find_if(nodes.begin(), nodes.end(), [](const Node& node) {
      return node.scope.phases == kBackward;
    });
    border_ = static_cast<int32_t>(found - nodes.begin());
  }

  void find_last_uses() {
    roots_ = find_roots(graph_);
    last_uses_.resize(graph_.values().size(), -1);
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      const Node& node = graph_.nodes()[i];
      if (node.op->is_view) continue;
      for (ValueId id : node.inputs) last_uses_[roots_[id]] = static_cast<int32_t>(i);
    }
    for (ValueId id : rooted_.outputs) last_uses_[roots_[id]] = kForever;
    for (const Assignment& assignment : graph_.assignments()) {
      last_uses_[roots_[assignment.value]] = kForever;
    }
  }

  // Is the value in memory in the backward pass, by what was decided so far?
  bool is_kept(ValueId id) const {
    if (graph_.value(roots_[id]).kind != ValueKind::Result) return true;
    return last_uses_[roots_[id]] >= border_ && !is_dropped_[roots_[id]];
  }

  bool is_small(ValueId id, ValueId beside) const {
    return num_elements(shape(id)) * kShareOfBeside <= num_elements(shape(beside));
  }

  bool is_narrow(ValueId id, ValueId beside) const {
    return itemsize(graph_.value(id).spec.dtype) < itemsize(graph_.value(beside).spec.dtype);
  }

  const Node* element_node(ValueId id) const {
    const Node* node = producer(graph_, id);
    return node != nullptr && find_element_op(*node->op) ? node : nullptr;
  }

  void decide(int32_t index) {
    const Node& node = graph_.nodes()[index];
    const ValueId id = node.outputs[0];
    const int32_t last = last_uses_[id];
    if (last < border_ || last == kForever || element_node(id) == nullptr) return;
    if (!options_.region_limits || !options_.region_limits(shape(id)).recomputes) return;
    Way way;
    if (!follow(id, id, way) || way.num_large > 1) return;
    is_dropped_[id] = true;
    for (int32_t each : way.nodes) is_cloned_[each] = true;
    for (ValueId each : way.sources) {
      is_source_[each] = true;
      last_uses_[roots_[each]] = std::max(last_uses_[roots_[each]], last);
    }
  }

  // How a value is computed again.
  struct Way {
    std::set<int32_t> nodes;
    std::set<ValueId> sources;  // what they begin with
    int num_large = 0;          // of these
  };

  // Finds the element ops that compute `id` from what is kept, or kept instead of it: what is small
  // beside `of`, or of the same shape in a narrower dtype.
  bool follow(ValueId id, ValueId of, Way& way) const {
    if (id != of) {
      const bool small = is_small(id, of);
      // A weight that is rounded: there is more to read than the result has.
      if (!small && graph_.value(id).kind == ValueKind::State && is_narrow(of, id)) return false;
      if (small || is_kept(id) || (shape(id) == shape(of) && is_narrow(id, of))) {
        if (way.sources.insert(id).second && !small) ++way.num_large;
        return true;
      }
    }
    const int32_t source = producer_index(graph_, id);
    if (way.nodes.contains(source)) return true;
    const Node* node = producer(graph_, id, op_broadcast_to);
    if (node == nullptr) node = element_node(id);
    if (node == nullptr || shape(id) != shape(of) || way.nodes.size() == kMostOps) return false;
    way.nodes.insert(source);
    return std::all_of(node->inputs.begin(), node->inputs.end(),
                       [&](ValueId input) { return follow(input, of, way); });
  }

  void copy_late(const Node& node) {
    const bool joins_regions = node.op->is_elementwise || reduces_rows(*node.op);
    std::vector<ValueId> inputs;
    for (ValueId id : node.inputs) {
      if (is_dropped_[roots_[id]]) {
        inputs.push_back(again(id));
      } else {
        inputs.push_back(joins_regions && is_source_[id] ? late(id) : rewriter_.map(id));
      }
    }
    // What the backward pass computes itself it computes once with what is computed again.
    if (const auto found = unshared_.find(node_key(node, inputs)); found != unshared_.end()) {
      rewriter_.replace(node.outputs[0], found->second);
      unshared_.erase(found);
      return;
    }
    rewriter_.copy_with_inputs(node, inputs);
  }

  // The same value behind a barrier: what reads it there does not join what computes it.
  ValueId late(ValueId id) {
    if (graph_.value(id).kind != ValueKind::Result) return rewriter_.map(id);
    const auto [found, is_new] = late_.try_emplace(id, kNoValue);
    if (is_new) {
      Scope scope = producer(graph_, id)->scope;
      scope.phases = kBackward;
      found->second = rewriter_.apply(op_barrier, {rewriter_.map(id)}, {}, scope)[0];
    }
    return found->second;
  }

  // The value in the target, computed by nodes of its own.
  ValueId again(ValueId id) {
    if (const auto found = again_.find(id); found != again_.end()) return found->second;
    const int32_t source = producer_index(graph_, id);
    const bool is_view =
        source >= 0 && graph_.nodes()[source].op->is_view && is_dropped_[roots_[id]];
    if (source < 0 || (!is_cloned_[source] && !is_view)) return late(id);
    const Node& node = graph_.nodes()[source];
    std::vector<ValueId> inputs;
    for (ValueId input : node.inputs) inputs.push_back(again(input));
    Scope scope = node.scope;
    scope.phases = kBackward;
    const ValueId result = rewriter_.apply(*node.op, inputs, node.attributes, scope)[0];
    if (!is_view) unshared_.emplace(node_key(node, inputs), result);
    return again_[id] = result;
  }

  const Shape& shape(ValueId id) const { return graph_.value(id).spec.shape; }

  const RootedGraph& rooted_;
  const Graph& graph_;
  const PassOptions& options_;
  GraphRewriter rewriter_;
  int32_t border_ = 0;
  std::vector<ValueId> roots_;      // whose memory a value has
  std::vector<int32_t> last_uses_;  // by root: the node that reads it last
  std::vector<bool> is_dropped_;    // by value
  std::vector<bool> is_cloned_;     // by node
  std::vector<bool> is_source_;     // by value: is something else computed again from it?
  // Values of the target by those of the source.
  std::unordered_map<ValueId, ValueId> again_, late_;
  // Results that were computed again, and that no other node of the backward pass has taken yet.
  std::unordered_map<std::string, ValueId> unshared_;
};

}  // namespace

RootedGraph recompute_activations(const RootedGraph& source, const PassOptions& options) {
  return eliminate_dead_code(Recomputation(source, options).run());
}

}  // namespace kerascnn
