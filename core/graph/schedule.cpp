#include "core/graph/schedule.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>

namespace kerascnn {

std::vector<ValueId> find_roots(const Graph& graph) {
  std::vector<ValueId> roots(graph.values().size());
  std::iota(roots.begin(), roots.end(), 0);
  for (const Node& node : graph.nodes()) {
    if (node.op->is_view) roots[node.outputs[0]] = roots[node.inputs[0]];
  }
  return roots;
}

namespace {

class Scheduler {
 public:
  explicit Scheduler(const RootedGraph& rooted) {
    schedule_.graph = rooted.graph;
    schedule_.outputs = rooted.outputs;
    schedule_.roots = find_roots(schedule_.graph);
  }

  Schedule run() {
    place_outputs();
    place_assignments();
    build_edges();
    order_writes_after_reads();
    schedule_.order = sorted_nodes();
    check_complete();
    schedule_.home_states.resize(schedule_.graph.values().size(), -1);
    return std::move(schedule_);
  }

 private:
  // A node that copies a value; casting to the same dtype is the copy kernel that every backend
  // has.
  ValueId copy(ValueId value, const std::string& reason) {
    Graph& graph = schedule_.graph;
    const std::string dtype = dtype_name(graph.value(value).spec.dtype);
    const ValueId result = graph.apply("cast", {value}, {{"dtype", dtype}})[0];
    graph.set_scope(graph.value(result).source, scope_of_copy(value, reason));
    schedule_.roots.push_back(result);
    schedule_.home_states.resize(graph.values().size(), -1);
    return result;
  }

  // The scope of what computed the value, or the reason where the value was there before.
  Scope scope_of_copy(ValueId value, const std::string& reason) const {
    const Value& source = schedule_.graph.value(value);
    if (source.kind != ValueKind::Result) return {.path = reason};
    const Scope& scope = schedule_.graph.nodes()[source.source].scope;
    return scope.empty() ? Scope{.path = reason, .phases = scope.phases} : scope;
  }

  ValueId root(ValueId value) const { return schedule_.roots[value]; }
  bool is_result(ValueId value) const {
    return schedule_.graph.value(root(value)).kind == ValueKind::Result;
  }

  void place_outputs() {
    schedule_.home_states.assign(schedule_.graph.values().size(), -1);
    for (ValueId& output : schedule_.outputs) {
      if (!is_result(output)) output = copy(output, "output");
    }
  }

  // Gives every assigned variable one kernel result of its own that becomes its value.
  void place_assignments() {
    const Graph& graph = schedule_.graph;
    std::vector<bool> taken(graph.values().size(), false);
    for (ValueId output : schedule_.outputs) taken[root(output)] = true;
    for (const Assignment& assignment : graph.assignments()) {
      ValueId value = assignment.value;
      if (!is_result(value) || taken[root(value)]) value = copy_to_state(value, assignment.state);
      taken.resize(graph.values().size(), false);
      taken[root(value)] = true;
      schedule_.home_states[root(value)] = assignment.state;
      writes_.push_back({assignment.state, value});
    }
  }

  ValueId copy_to_state(ValueId value, int32_t state) {
    return copy(value, schedule_.graph.states()[state]->name());
  }

  int32_t producer(ValueId value) const {
    const Value& source = schedule_.graph.value(root(value));
    return source.kind == ValueKind::Result ? source.source : -1;
  }

  // Edges from a node to those that read its results and from each node in which processes meet to
  // the next one, and the nodes that read each state.
  void build_edges() {
    const Graph& graph = schedule_.graph;
    successors_.resize(graph.nodes().size());
    state_readers_.resize(graph.states().size());
    int32_t last_meeting = -1;
    for (size_t i = 0; i < graph.nodes().size(); ++i) {
      if (!graph.nodes()[i].op->is_view) connect_inputs(static_cast<int32_t>(i));
      if (!graph.nodes()[i].op->meets_processes) continue;
      if (last_meeting >= 0) successors_[last_meeting].push_back(static_cast<int32_t>(i));
      last_meeting = static_cast<int32_t>(i);
    }
  }

  void connect_inputs(int32_t node) {
    for (ValueId input : schedule_.graph.nodes()[node].inputs) {
      const Value& source = schedule_.graph.value(root(input));
      if (source.kind == ValueKind::Result) successors_[source.source].push_back(node);
      if (source.kind == ValueKind::State) state_readers_[source.source].push_back(node);
    }
  }

  // A kernel that reads a variable's old value must run before the one that overwrites it. Edges
  // that follow the traced order can't close a circle; the others are added after them, each with a
  // search.
  void order_writes_after_reads() {
    std::vector<Assignment> against_order;
    for (const Assignment& write : writes_) {
      const int32_t writer = producer(write.value);
      const std::vector<int32_t>& readers = state_readers_[write.state];
      if (!may_overwrite(write)) {
        against_order.push_back(write);
      } else if (std::any_of(readers.begin(), readers.end(),
                             [&](int32_t r) { return r > writer; })) {
        against_order.push_back(write);
      } else {
        add_write_edges(write);
      }
    }
    for (const Assignment& write : against_order) {
      if (may_overwrite(write) && !reaches_reader(write)) {
        add_write_edges(write);
      } else {
        write_by_copy(write);
      }
    }
  }

  // False where the writing kernel itself reads the variable in another way than element by
  // element.
  bool may_overwrite(const Assignment& write) const {
    const Graph& graph = schedule_.graph;
    const Value& target = graph.value(root(write.value));
    const Node& node = graph.nodes()[target.source];
    std::vector<InPlace> pairs;
    if (node.op->in_place != nullptr) {
      pairs = node.op->in_place(node.attributes, node.inputs.size());
    }
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const Value& source = graph.value(root(node.inputs[i]));
      if (source.kind != ValueKind::State || source.source != write.state) continue;
      const bool same_spec = graph.value(node.inputs[i]).spec == target.spec;
      const bool listed = std::any_of(pairs.begin(), pairs.end(), [&](const InPlace& pair) {
        return pair.input == i && pair.output == static_cast<size_t>(target.output);
      });
      if (!same_spec || !listed) return false;
    }
    return true;
  }

  void add_write_edges(const Assignment& write) {
    const int32_t writer = producer(write.value);
    for (int32_t reader : state_readers_[write.state]) {
      if (reader != writer) successors_[reader].push_back(writer);
    }
  }

  // Does the writer lead to a node that reads the variable's old value?
  bool reaches_reader(const Assignment& write) const {
    const int32_t writer = producer(write.value);
    std::vector<bool> is_reader(successors_.size(), false), seen(successors_.size(), false);
    for (int32_t reader : state_readers_[write.state]) is_reader[reader] = reader != writer;
    std::vector<int32_t> open = {writer};
    while (!open.empty()) {
      const int32_t node = open.back();
      open.pop_back();
      if (is_reader[node]) return true;
      for (int32_t next : successors_[node]) {
        if (!seen[next]) open.push_back(next);
        seen[next] = true;
      }
    }
    return false;
  }

  // Computes the value elsewhere and copies it at the end. No node reads the copy, so waiting for
  // all readers of the variable never closes a circle.
  void write_by_copy(const Assignment& write) {
    schedule_.home_states[root(write.value)] = -1;
    const ValueId result = copy_to_state(write.value, write.state);
    schedule_.home_states[result] = write.state;
    successors_.resize(schedule_.graph.nodes().size());
    connect_inputs(producer(result));
    add_write_edges({write.state, result});
  }

  // The nodes in the traced order, as far as the edges allow.
  std::vector<int32_t> sorted_nodes() const {
    const Graph& graph = schedule_.graph;
    std::vector<int32_t> waiting_for(successors_.size(), 0);
    for (const auto& successors : successors_) {
      for (int32_t next : successors) ++waiting_for[next];
    }
    std::priority_queue<int32_t, std::vector<int32_t>, std::greater<>> ready;
    for (size_t i = 0; i < successors_.size(); ++i) {
      const bool runs = !graph.nodes()[i].op->is_view;
      if (runs && waiting_for[i] == 0) ready.push(static_cast<int32_t>(i));
    }
    std::vector<int32_t> order;
    while (!ready.empty()) {
      const int32_t node = ready.top();
      ready.pop();
      order.push_back(node);
      for (int32_t next : successors_[node]) {
        if (--waiting_for[next] == 0) ready.push(next);
      }
    }
    return order;
  }

  // A circle would leave nodes out, so this is checked.
  void check_complete() const {
    const std::vector<Node>& nodes = schedule_.graph.nodes();
    const auto kernels = std::count_if(nodes.begin(), nodes.end(),
                                       [](const Node& node) { return !node.op->is_view; });
    if (static_cast<size_t>(kernels) != schedule_.order.size()) {
      throw ValueError(message("scheduling ordered ", schedule_.order.size(), " of ", kernels,
                               " nodes; this is a fault of kerascnn"));
    }
  }

  Schedule schedule_;
  std::vector<Assignment> writes_;  // every value is the result of a kernel
  std::vector<std::vector<int32_t>> successors_;
  std::vector<std::vector<int32_t>> state_readers_;
};

}  // namespace

Schedule make_schedule(const RootedGraph& rooted) { return Scheduler(rooted).run(); }

}  // namespace kerascnn
