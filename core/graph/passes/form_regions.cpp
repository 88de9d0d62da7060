#include <algorithm>
#include <map>
#include <set>

#include "core/graph/passes/needed_calls.h"
#include "core/graph/passes/passes.h"
#include "core/graph/passes/region_groups.h"
#include "core/ops/definitions.h"
#include "core/ops/element_program.h"

namespace kerascnn {
namespace {

// One node of the new graph: a region or a node by itself.
struct Unit {
  RegionGroup group;
  std::vector<int32_t> nodes;    // the members and what is computed again for them, in order
  std::vector<ValueId> outputs;  // what others need of the members

  bool has(int32_t node) const { return std::binary_search(nodes.begin(), nodes.end(), node); }
};

// A value is small beside a domain that has so many times its elements.
constexpr int64_t kSmallShare = 4;
// A region computes up to so many ops again rather than read their result.
constexpr size_t kMostRecomputed = 8;

// Is it computed in a few instructions? Exponentials and what is made of them take longer than
// memory does.
bool is_short(const OpDef& op) {
  if (&op == &op_broadcast_to) return true;
  const std::optional<ElementOp> element = find_element_op(op);
  if (!element) return false;
  switch (*element) {
    case ElementOp::add:
    case ElementOp::subtract:
    case ElementOp::multiply:
    case ElementOp::maximum:
    case ElementOp::minimum:
    case ElementOp::where:
    case ElementOp::negative:
    case ElementOp::absolute:
    case ElementOp::square:
    case ElementOp::clip:
    case ElementOp::cast:
    case ElementOp::relu:
    case ElementOp::leaky_relu:
    case ElementOp::clipped_relu:
    case ElementOp::relu_grad:
    case ElementOp::leaky_relu_grad:
    case ElementOp::clipped_relu_grad:
    case ElementOp::sigmoid_grad:
    case ElementOp::tanh_grad:
      return true;
    default:
      return element_result_is_bool(*element);
  }
}

// Finds what each region computes and which values one region hands to another.
class Units {
 public:
  Units(const RootedGraph& rooted, const FindRegionLimits& find_limits)
      : rooted_(rooted), graph_(rooted.graph), find_limits_(find_limits) {
    for (RegionGroup& group : RegionGroups(rooted, find_limits).ordered()) add(std::move(group));
    find_leaving();
    for (Unit& unit : units_) {
      if (unit.group.is_candidate) take_in_readings(unit);
    }
    compute_where_it_is_read();
    leave_out_what_nobody_needs();
  }

  const std::vector<Unit>& all() const { return units_; }

 private:
  RegionLimits limits(const Unit& unit) const {
    return find_limits_ ? find_limits_(unit.group.domain) : RegionLimits{};
  }

  // What only moves elements keeps its own kernels.
  void add(RegionGroup group) {
    const bool computes =
        std::any_of(group.members.begin(), group.members.end(), [&](int32_t node) {
          const OpDef& op = *graph_.nodes()[node].op;
          return &op != &op_transpose && !op.is_view;
        });
    if (group.members.size() == 1) group.is_candidate = group.is_candidate && computes;
    if (computes || group.members.size() == 1) {
      Unit unit;
      unit.nodes = group.members;
      unit.group = std::move(group);
      units_.push_back(std::move(unit));
      return;
    }
    for (int32_t node : group.members) {
      RegionGroup own;
      own.members = {node};
      add(std::move(own));
    }
  }

  // Finds the values that are read outside of their unit, and how many each unit has.
  void find_leaving() {
    unit_of_.resize(graph_.nodes().size(), -1);
    is_result_.resize(graph_.values().size(), false);
    for (ValueId id : rooted_.outputs) is_result_[id] = true;
    for (const Assignment& assignment : graph_.assignments()) is_result_[assignment.value] = true;
    leaves_.resize(graph_.values().size(), false);
    num_leaving_.resize(units_.size(), 0);
    for (size_t i = 0; i < units_.size(); ++i) {
      for (int32_t node : units_[i].nodes) unit_of_[node] = static_cast<int32_t>(i);
    }
    for (size_t id = 0; id < is_result_.size(); ++id) {
      if (is_result_[id]) mark_leaving(static_cast<ValueId>(id));
    }
    for (size_t node = 0; node < graph_.nodes().size(); ++node) {
      for (ValueId id : graph_.nodes()[node].inputs) {
        const int32_t source = producer_index(graph_, id);
        if (source >= 0 && unit_of_[source] != unit_of_[node]) mark_leaving(id);
      }
    }
  }

  void mark_leaving(ValueId id) {
    const int32_t source = producer_index(graph_, id);
    if (source < 0 || leaves_[id]) return;
    leaves_[id] = true;
    ++num_leaving_[unit_of_[source]];
  }

  // Lets these values leave their units, or none of them where one of the units has too many.
  bool let_leave(const std::set<ValueId>& ids) {
    std::map<int32_t, int> more;
    for (ValueId id : ids) {
      const int32_t source = producer_index(graph_, id);
      if (source < 0 || leaves_[id]) continue;
      const int32_t unit = unit_of_[source];
      const bool is_limited = units_[unit].group.is_candidate;
      if (is_limited && num_leaving_[unit] + ++more[unit] > limits(units_[unit]).max_outputs) {
        return false;
      }
    }
    for (ValueId id : ids) mark_leaving(id);
    return true;
  }

  // What these nodes read from others; constants that they have as their own are left out.
  std::set<ValueId> inputs_of(const std::set<int32_t>& nodes, int* num_constants = nullptr) const {
    std::set<ValueId> inputs, constants;
    for (int32_t node : nodes) {
      for (ValueId id : graph_.nodes()[node].inputs) {
        const int32_t source = producer_index(graph_, id);
        if (source >= 0 && nodes.contains(source)) continue;
        (uniform_constant(graph_, id) ? constants : inputs).insert(id);
      }
    }
    if (num_constants != nullptr) *num_constants = static_cast<int>(constants.size());
    return inputs;
  }

  bool fits(const std::set<int32_t>& nodes, const RegionLimits& most) const {
    const auto ops = std::count_if(nodes.begin(), nodes.end(), [&](int32_t node) {
      const OpDef& op = *graph_.nodes()[node].op;
      return !op.is_view && &op != &op_broadcast_to;
    });
    int num_constants = 0;
    const size_t num_inputs = inputs_of(nodes, &num_constants).size();
    return ops <= most.max_ops && num_inputs <= static_cast<size_t>(most.max_inputs) &&
           num_constants <= most.max_constants;
  }

  // A region computes again what it would read from wide memory although it can compute it from
  // something narrower. A 16-bit image takes half the time to read of what it was cast to, or of
  // what it was normalized to in float32, and the wide one need not be stored. The same holds for
  // broadcasts.
  void take_in_readings(Unit& unit) {
    const RegionLimits most = limits(unit);
    if (!most.all_kinds()) return;
    std::set<int32_t> nodes(unit.nodes.begin(), unit.nodes.end());
    for (bool grows = true; grows;) {
      grows = false;
      for (ValueId id : inputs_of(nodes)) {
        if (is_transposed(id, nodes)) continue;
        std::set<int32_t> more = recomputed(id, unit.group.domain, nodes);
        if (more.empty()) continue;
        more.insert(nodes.begin(), nodes.end());
        if (!fits(more, most) || !let_leave(inputs_of(more))) continue;
        nodes = std::move(more);
        grows = true;
      }
    }
    unit.nodes.assign(nodes.begin(), nodes.end());
  }

  // Do the nodes read it elsewhere than at their own elements?
  bool is_transposed(ValueId id, const std::set<int32_t>& nodes) const {
    return std::any_of(nodes.begin(), nodes.end(), [&](int32_t node) {
      return graph_.nodes()[node].op == &op_transpose && graph_.nodes()[node].inputs[0] == id;
    });
  }

  // The nodes that compute the value from narrower ones; none where there is no such way.
  std::set<int32_t> recomputed(ValueId id, const Shape& domain,
                               const std::set<int32_t>& inside) const {
    if (const Node* node = producer(graph_, id, op_broadcast_to)) {
      if (!broadcasts_to(graph_.value(node->outputs[0]).spec.shape, domain)) return {};
      return {producer_index(graph_, id)};
    }
    if (graph_.value(id).spec.shape != domain) return {};
    std::set<int32_t> chain;
    std::set<ValueId> narrow;
    if (!follow(id, graph_.value(id).spec, inside, chain, narrow)) return {};
    size_t bytes = 0;
    for (ValueId leaf : narrow) bytes += itemsize(graph_.value(leaf).spec.dtype);
    return bytes <= itemsize(graph_.value(id).spec.dtype) ? chain : std::set<int32_t>();
  }

  // Collects the nodes that compute `id`, and the `narrow` values of the shape of `wide` that they
  // begin with. Values that are small beside these are left out.
  bool follow(ValueId id, const TensorSpec& wide, const std::set<int32_t>& inside,
              std::set<int32_t>& chain, std::set<ValueId>& narrow) const {
    const int32_t source = producer_index(graph_, id);
    if (source >= 0 && (inside.contains(source) || chain.contains(source))) return true;
    const TensorSpec& spec = graph_.value(id).spec;
    if (num_elements(spec.shape) * kSmallShare <= num_elements(wide.shape)) return true;
    if (spec.shape != wide.shape) return false;
    if (itemsize(spec.dtype) < itemsize(wide.dtype)) {
      narrow.insert(id);
      return true;
    }
    if (source < 0 || chain.size() == kMostRecomputed) return false;
    const Node& node = graph_.nodes()[source];
    if (!find_element_op(*node.op)) return false;
    chain.insert(source);
    return std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) {
      return uniform_constant(graph_, input) || follow(input, wide, inside, chain, narrow);
    });
  }

  // Where a region hands a value to others, and these can compute it in a few instructions from
  // what they read anyway and from one more value that is in memory, they read that one in its
  // place: no more is read, and the value is not written. So both regions of batch normalization's
  // gradient, its sums and what follows from them, take the gradient through the activation by
  // themselves.
  void compute_where_it_is_read() {
    read_by_.resize(graph_.values().size());
    for (size_t i = 0; i < units_.size(); ++i) note_reads(static_cast<int32_t>(i));
    for (size_t node = 0; node < graph_.nodes().size(); ++node) {
      for (ValueId id : graph_.nodes()[node].outputs) {
        if (leaves_[id] && !is_result_[id]) compute_at_readers(id);
      }
    }
  }

  void note_reads(int32_t index) {
    const Unit& unit = units_[index];
    for (int32_t node : unit.nodes) {
      for (ValueId id : graph_.nodes()[node].inputs) {
        const int32_t source = producer_index(graph_, id);
        if (source < 0 || !unit.has(source)) read_by_[id].insert(index);
      }
    }
  }

  // How a region computes a value again.
  struct Way {
    std::set<int32_t> nodes;  // beside those that it has
    std::set<ValueId> reads;  // what it did not read before
    size_t bytes = 0;         // of an element of these
  };

  void compute_at_readers(ValueId id) {
    std::map<int32_t, std::set<int32_t>> larger;  // units with the nodes that they would have
    std::set<ValueId> handed;
    for (int32_t index : read_by_[id]) {
      const Unit& unit = units_[index];
      const RegionLimits most = limits(unit);
      if (!unit.group.is_candidate || !most.recomputes) return;
      std::set<int32_t> nodes(unit.nodes.begin(), unit.nodes.end());
      if (graph_.value(id).spec.shape != unit.group.domain || is_transposed(id, nodes)) return;
      std::set<ValueId> read = inputs_of(nodes);
      read.erase(id);
      Way way;
      if (!compute_again(id, id, nodes, read, way)) return;
      nodes.insert(way.nodes.begin(), way.nodes.end());
      if (!fits(nodes, most)) return;
      handed.merge(inputs_of(nodes));
      larger.emplace(index, std::move(nodes));
    }
    if (larger.empty() || !let_leave(handed)) return;
    for (const auto& [index, nodes] : larger) {
      units_[index].nodes.assign(nodes.begin(), nodes.end());
      note_reads(index);
    }
    read_by_[id].clear();
    leaves_[id] = false;
    --num_leaving_[unit_of_[producer_index(graph_, id)]];
  }

  // Adds to `way` how a region with the nodes `inside`, which reads the values `read`, computes
  // `id`, or reads it, on the way to `wanted`.
  bool compute_again(ValueId id, ValueId wanted, const std::set<int32_t>& inside,
                     const std::set<ValueId>& read, Way& way) const {
    const int32_t source = producer_index(graph_, id);
    const TensorSpec& spec = graph_.value(id).spec;
    const TensorSpec& of = graph_.value(wanted).spec;
    if (read.contains(id) || inside.contains(source) || way.nodes.contains(source)) return true;
    if (num_elements(spec.shape) * kSmallShare <= num_elements(of.shape)) return true;
    if (spec.shape != of.shape) return false;
    Way computed = way;
    const bool is_computed = compute_again_from(source, wanted, inside, read, computed);
    const bool is_in_memory = id != wanted && (source < 0 || leaves_[id]);
    if (is_computed && (!is_in_memory || computed.bytes == way.bytes)) {
      way = std::move(computed);
    } else if (is_in_memory) {
      if (way.reads.insert(id).second) way.bytes += itemsize(spec.dtype);
    } else {
      return false;
    }
    return way.bytes <= itemsize(of.dtype);
  }

  bool compute_again_from(int32_t source, ValueId wanted, const std::set<int32_t>& inside,
                          const std::set<ValueId>& read, Way& way) const {
    if (source < 0 || way.nodes.size() == kMostRecomputed) return false;
    const Node& node = graph_.nodes()[source];
    if (!is_short(*node.op)) return false;
    way.nodes.insert(source);
    return std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) {
      return uniform_constant(graph_, input) || compute_again(input, wanted, inside, read, way);
    });
  }

  // Goes from the last unit to the first and finds which nodes are left, and which of their values
  // leave the unit.
  void leave_out_what_nobody_needs() {
    std::vector<bool> needed = is_result_;
    for (size_t i = units_.size(); i-- > 0;) {
      Unit& unit = units_[i];
      const std::set<int32_t> members(unit.group.members.begin(), unit.group.members.end());
      std::set<ValueId> needed_inside;
      std::vector<int32_t> kept;
      std::vector<ValueId> reads;
      for (size_t k = unit.nodes.size(); k-- > 0;) {
        const Node& node = graph_.nodes()[unit.nodes[k]];
        bool is_needed = is_needed_by_others(node);
        for (size_t n = node.outputs.size(); n-- > 0;) {
          const ValueId id = node.outputs[n];
          const bool leaves = needed[id] && members.contains(unit.nodes[k]);
          if (leaves) unit.outputs.push_back(id);
          is_needed = is_needed || leaves || needed_inside.contains(id);
        }
        if (!is_needed) continue;
        kept.push_back(unit.nodes[k]);
        for (ValueId id : node.inputs) {
          needed_inside.insert(id);
          reads.push_back(id);
        }
      }
      std::reverse(kept.begin(), kept.end());
      std::reverse(unit.outputs.begin(), unit.outputs.end());
      unit.nodes = std::move(kept);
      mark_reads(unit, reads, needed);
    }
  }

  void mark_reads(const Unit& unit, const std::vector<ValueId>& reads,
                  std::vector<bool>& needed) const {
    for (ValueId id : reads) {
      const Value& source = graph_.value(id);
      if (source.kind == ValueKind::Result && unit.has(source.source)) continue;
      // A region has its own copy of it.
      if (is_region(unit) && uniform_constant(graph_, id)) continue;
      needed[id] = true;
    }
  }

 public:
  // A single node stays as it is. The exception are statistics, because a region reads each of
  // their inputs once.
  bool is_region(const Unit& unit) const {
    if (!unit.group.is_candidate) return false;
    return unit.nodes.size() > 1 ||
           (unit.nodes.size() == 1 && graph_.nodes()[unit.nodes.front()].op == &op_column_moments);
  }

 private:
  const RootedGraph& rooted_;
  const Graph& graph_;
  const FindRegionLimits& find_limits_;
  std::vector<Unit> units_;
  std::vector<int32_t> unit_of_;            // by node
  std::vector<bool> is_result_;             // by value: is it an output of the graph or assigned?
  std::vector<bool> leaves_;                // by value
  std::vector<int> num_leaving_;            // by unit
  std::vector<std::set<int32_t>> read_by_;  // by value: the units that read it from memory
};

bool is_generated(const FindRegionLimits& find_limits, const Shape& domain) {
  if (!find_limits) return false;
  return find_limits(domain).all_kinds();
}

// Are kernels generated for any op of the program? Then those of small regions are generated too:
// the time for compiling a program of large tensors hardly grows by them, and an interpreter of
// element programs takes five times as long for each.
bool generates_any(const Graph& graph, const FindRegionLimits& find_limits) {
  std::set<Shape> domains;
  for (const Node& node : graph.nodes()) {
    if (node.op->is_elementwise) domains.insert(graph.value(node.outputs[0]).spec.shape);
  }
  return std::any_of(domains.begin(), domains.end(),
                     [&](const Shape& domain) { return is_generated(find_limits, domain); });
}

// Makes the body of a unit.
class BodyBuilder {
 public:
  BodyBuilder(const Graph& graph, const Unit& unit, bool generated)
      : graph_(graph), body_(new Body) {
    body_->graph = std::make_shared<Graph>();
    for (int32_t index : unit.nodes) add(graph.nodes()[index]);
    for (ValueId id : unit.outputs) body_->outputs.push_back(map_.at(id));
    region_.kind = unit.group.kind;
    region_.body = body_;
    region_.domain = unit.group.domain;
    region_.columns = unit.group.columns;
    region_.outer = unit.group.outer;
    region_.generated = generated;
  }

  // Adds the node to the target, in place of the unit.
  void apply(GraphRewriter& rewriter, const Unit& unit) const {
    rewriter.replace(unit.outputs,
                     rewriter.apply(op_region, rewriter.map(inputs_), region_attributes(region_),
                                    graph_.nodes()[unit.nodes.front()].scope));
  }

 private:
  void add(const Node& node) {
    std::vector<ValueId> inputs;
    for (ValueId id : node.inputs) inputs.push_back(read(id));
    const std::vector<ValueId> results = body_->graph->apply_same(node, inputs);
    for (size_t i = 0; i < results.size(); ++i) map_[node.outputs[i]] = results[i];
  }

  ValueId read(ValueId id) {
    if (const auto found = map_.find(id); found != map_.end()) return found->second;
    Graph& own = *body_->graph;
    const Value& value = graph_.value(id);
    ValueId result = kNoValue;
    if (!uniform_constant(graph_, id)) {
      result = own.input(message("input_", inputs_.size()), value.spec);
      inputs_.push_back(id);
      body_->inputs.push_back(result);
    } else if (const Node* node = producer(graph_, id, op_broadcast_to)) {
      const ValueId narrow = read(node->inputs[0]);
      result = own.apply("broadcast_to", {narrow}, node->attributes)[0];
    } else {
      result = own.constant(graph_.constants()[value.source]);
    }
    return map_[id] = result;
  }

  const Graph& graph_;
  std::shared_ptr<Body> body_;
  Region region_;
  std::vector<ValueId> inputs_;
  std::map<ValueId, ValueId> map_;
};

}  // namespace

RootedGraph form_regions(const RootedGraph& original, const PassOptions& options) {
  // A group of which nothing is read would have no outputs.
  const RootedGraph source = eliminate_dead_code(original);
  const Graph& graph = source.graph;
  GraphRewriter rewriter(source);
  const Units units(source, options.region_limits);
  const bool generated = generates_any(graph, options.region_limits);
  for (const Unit& unit : units.all()) {
    if (unit.nodes.empty()) continue;
    if (units.is_region(unit)) {
      BodyBuilder(graph, unit, generated).apply(rewriter, unit);
    } else {
      rewriter.copy(graph.nodes()[unit.nodes.front()]);
    }
  }
  return rewriter.finish();
}

RootedGraph form_single_regions(const RootedGraph& source, const PassOptions& options) {
  const Graph& graph = source.graph;
  GraphRewriter rewriter(source);
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    const bool is_element = find_element_op(*node.op).has_value();
    std::optional<ColumnAxes> sums;
    Unit unit;
    if (!node.inputs.empty()) {
      const TensorSpec& operand = graph.value(node.inputs[0]).spec;
      unit.group.domain = is_element ? graph.value(node.outputs[0]).spec.shape : operand.shape;
      const bool is_empty = num_elements(unit.group.domain) == 0;
      if (!is_empty && is_floating(operand.dtype)) sums = summed_columns(node, operand.shape);
      unit.group.is_candidate = !is_empty && (is_element || sums) &&
                                is_generated(options.region_limits, unit.group.domain);
    }
    if (!unit.group.is_candidate) {
      rewriter.copy(node);
      continue;
    }
    unit.group.kind = is_element ? RegionKind::Map : RegionKind::Columns;
    unit.group.columns = unit.group.domain.empty() ? 1 : unit.group.domain.back();
    if (sums) {
      unit.group.columns = sums->columns;
      unit.group.outer = sums->outer;
    }
    unit.nodes = {static_cast<int32_t>(i)};
    unit.outputs = node.outputs;
    BodyBuilder(graph, unit, true).apply(rewriter, unit);
  }
  return rewriter.finish();
}

}  // namespace kerascnn
