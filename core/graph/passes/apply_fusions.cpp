#include <algorithm>
#include <array>
#include <string>
#include <unordered_map>

#include "core/backend/guarded_kernel.h"
#include "core/graph/error_context.h"
#include "core/graph/passes/passes.h"
#include "core/graph/passes/pattern_matcher.h"
#include "core/graph/passes/rewriter.h"
#include "core/ops/definitions.h"

namespace kerascnn {

// Finds matches, fusion by fusion, plans their kernels, and then builds the graph that has a node
// for each match.
class FusionPass {
 public:
  FusionPass(const RootedGraph& source, const PassOptions& options)
      : source_(source),
        rewriter_(source),
        graph_(source.graph),
        readers_(source),
        options_(options),
        group_of_(source.graph.nodes().size(), kNone),
        num_again_(source.graph.nodes().size(), 0),
        is_emitted_(source.graph.nodes().size(), false) {
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      nodes_of_[graph_.nodes()[i].op].push_back(static_cast<int32_t>(i));
      nodes_of_[kAnyOp].push_back(static_cast<int32_t>(i));
    }
  }

  RootedGraph run(std::span<const Fusion* const> fusions) {
    // The nodes of a group that is dropped may suit another fusion.
    do {
      for (const Fusion* fusion : fusions) find(*fusion);
    } while (drop_incomplete_groups());
    if (groups_.empty()) return source_;
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      const int32_t group = group_of_[i];
      const auto node = static_cast<int32_t>(i);
      if (group == kNone ? !is_made_again(node) : is_place(node)) emit(node);
    }
    return rewriter_.finish();
  }

 private:
  static constexpr int32_t kNone = -1;
  static constexpr const OpDef* kAnyOp = nullptr;

  // A match that takes the place of its nodes.
  struct Group {
    const Fusion* fusion = nullptr;
    const Pattern* pattern = nullptr;
    Binding binding;
    std::vector<int32_t> nodes;  // that it takes the place of, in order
    // Of the source: the pattern's inputs and, where calls are written, results of nodes that stay.
    std::vector<ValueId> inputs;
    std::vector<ValueId> outputs;  // of the source; kNoValue where it has no such value
    // The group whose outputs are further inputs, and these outputs.
    int32_t giver = kNone;
    std::vector<size_t> taken_over;
    std::vector<ValueId> emitted;  // its outputs as values of the target
    Match match;
    bool is_dropped = false;

    bool has_kernel() const { return fusion->plan != nullptr; }
  };

  void find(const Fusion& fusion) {
    for (const Pattern& pattern : patterns_of(fusion)) {
      const auto nodes = nodes_of_.find(pattern.calls_[pattern.first_].op);
      if (nodes == nodes_of_.end()) continue;
      const PatternMatcher matcher(graph_, readers_, pattern,
                                   [&](int32_t node) { return group_of_[node] == kNone; });
      for (const int32_t node : nodes->second) {
        matcher.match(node,
                      [&](const Binding& binding) { return accept(fusion, pattern, binding); });
      }
    }
  }

  bool accept(const Fusion& fusion, const Pattern& pattern, const Binding& binding) {
    Group group;
    group.fusion = &fusion;
    group.pattern = &pattern;
    group.binding = binding;
    const size_t known_inputs = pattern.inputs_.size() - pattern.taken_over_.size();
    for (size_t i = 0; i < known_inputs; ++i) {
      group.inputs.push_back(group.binding.values[pattern.inputs_[i].value]);
    }
    for (const auto& output : pattern.outputs_) {
      group.outputs.push_back(group.binding.values[output.value]);
    }
    for (size_t i = 0; i < pattern.calls_.size(); ++i) {
      const int32_t node = group.binding.nodes[i];
      if (!pattern.calls_[i].again) {
        group.nodes.push_back(node);
      } else if (!group.has_kernel()) {
        const std::vector<ValueId>& results = graph_.nodes()[node].outputs;
        group.inputs.insert(group.inputs.end(), results.begin(), results.end());
      }
    }
    std::sort(group.nodes.begin(), group.nodes.end());
    if (was_dropped(group) || is_in_larger(group) || !find_giver(group) || !has_its_nodes(group) ||
        !keeps_its_values(group) || depends_on_itself(group)) {
      return false;
    }
    describe(group);
    if (!is_accepted(group) || (group.has_kernel() && !plan(group))) return false;
    for (const int32_t node : group.nodes) group_of_[node] = static_cast<int32_t>(groups_.size());
    count_again(group, 1);
    groups_.push_back(std::move(group));
    return true;
  }

  // Does a match of the same fusion with more parts compute one of its nodes again?
  bool is_in_larger(const Group& group) const {
    const auto is_again = [&](int32_t node) { return num_again_[node] > 0; };
    if (std::ranges::none_of(group.nodes, is_again)) return false;
    return std::ranges::any_of(groups_, [&](const Group& other) {
      if (other.is_dropped || other.fusion != group.fusion) return false;
      return std::ranges::any_of(group.nodes, [&](int32_t node) {
        return std::ranges::find(other.binding.nodes, node) != other.binding.nodes.end();
      });
    });
  }

  // No other group takes the place of a node that it has, unless it takes over what that one knows.
  bool has_its_nodes(const Group& group) const {
    return std::ranges::all_of(group.binding.nodes, [&](int32_t node) {
      return group_of_[node] == kNone || group_of_[node] == group.giver;
    });
  }

  void count_again(const Group& group, int32_t change) {
    for (size_t i = 0; i < group.binding.nodes.size(); ++i) {
      if (group.pattern->calls_[i].again) num_again_[group.binding.nodes[i]] += change;
    }
  }

  // The group that has what this one takes over. Says whether all of it is there.
  bool find_giver(Group& group) const {
    const Pattern& pattern = *group.pattern;
    for (size_t i = 0; i < pattern.taken_over_.size(); ++i) {
      const ValueId known = group.binding.values[pattern.taken_over_[i]];
      const size_t input = pattern.inputs_.size() - pattern.taken_over_.size() + i;
      const auto has_output = [&](const Group& other) {
        const std::vector<ValueId>& values = other.binding.values;
        if (other.is_dropped || std::ranges::find(values, known) == values.end()) return false;
        return other.pattern->find_output(pattern.inputs_[input].name).has_value();
      };
      const auto found = std::ranges::find_if(groups_, has_output);
      if (found == groups_.end()) return false;
      const auto index = static_cast<int32_t>(found - groups_.begin());
      if (group.giver != kNone && group.giver != index) return false;
      group.giver = index;
      group.taken_over.push_back(*found->pattern->find_output(pattern.inputs_[input].name));
    }
    return true;
  }

  static bool contains(const std::vector<int32_t>& sorted, int32_t node) {
    return std::binary_search(sorted.begin(), sorted.end(), node);
  }

  bool was_dropped(const Group& group) const {
    return std::any_of(groups_.begin(), groups_.end(), [&](const Group& other) {
      return other.is_dropped && other.fusion == group.fusion && other.nodes == group.nodes;
    });
  }

  // Nobody else reads a result of its nodes that is not an output.
  bool keeps_its_values(const Group& group) const {
    for (const int32_t node : group.nodes) {
      for (const ValueId value : graph_.nodes()[node].outputs) {
        const auto& outputs = group.outputs;
        if (std::find(outputs.begin(), outputs.end(), value) != outputs.end()) continue;
        if (readers_.is_root(value)) return false;
        for (const int32_t reader : readers_.nodes(value)) {
          if (!contains(group.nodes, reader)) return false;
        }
      }
    }
    return true;
  }

  // Does one of its inputs need one of its outputs, by way of nodes and groups around it?
  bool depends_on_itself(const Group& group) const {
    std::vector<bool> is_seen(graph_.nodes().size(), false);
    std::vector<int32_t> pending;
    const auto add_readers = [&](int32_t node) {
      for (const ValueId value : graph_.nodes()[node].outputs) {
        for (const int32_t reader : readers_.nodes(value)) {
          if (!is_seen[reader]) pending.push_back(reader);
          is_seen[reader] = true;
        }
      }
    };
    for (const ValueId input : group.inputs) {
      if (contains(group.nodes, producer_index(graph_, input))) return true;
    }
    for (const int32_t node : group.nodes) is_seen[node] = true;
    for (const int32_t node : group.nodes) add_readers(node);
    std::vector<bool> is_target(graph_.nodes().size(), false);
    for (const ValueId input : group.inputs) {
      if (const int32_t node = producer_index(graph_, input); node >= 0) is_target[node] = true;
    }
    if (group.giver != kNone) {
      for (const int32_t node : groups_[group.giver].nodes) is_target[node] = true;
    }
    while (!pending.empty()) {
      const int32_t node = pending.back();
      pending.pop_back();
      if (group_of_[node] == kNone) {
        if (is_target[node]) return true;
        add_readers(node);
        continue;
      }
      for (const int32_t member : groups_[group_of_[node]].nodes) {
        is_seen[member] = true;
        if (is_target[member]) return true;
        add_readers(member);
      }
    }
    return false;
  }

  void describe(Group& group) const {
    Match& match = group.match;
    match.pattern_ = group.pattern;
    match.graph_ = &graph_;
    match.values_ = group.binding.values;
    match.allow_tf32_ = options_.allow_tf32;
    match.autotune_ = options_.autotune;
    for (const int32_t node : group.binding.nodes) match.nodes_.push_back(graph_.nodes()[node]);
    for (const ValueId value : group.binding.values) {
      match.specs_.push_back(value == kNoValue ? TensorSpec{} : graph_.value(value).spec);
    }
    for (const ValueId input : group.inputs) match.inputs_.push_back(graph_.value(input).spec);
    for (const size_t output : group.taken_over) {
      const TensorSpec& spec = groups_[group.giver].match.outputs_[output];
      match.specs_[group.pattern->inputs_[match.inputs_.size()].value] = spec;
      match.inputs_.push_back(spec);
    }
    for (const ValueId output : group.outputs) {
      if (output != kNoValue) match.outputs_.push_back(graph_.value(output).spec);
    }
  }

  static bool is_accepted(const Group& group) {
    return std::ranges::all_of(group.pattern->conditions_,
                               [&](MatchCondition condition) { return condition(group.match); });
  }

  // The matched nodes as a graph of their own, and its kernel.
  bool plan(Group& group) const {
    Match& match = group.match;
    match.device_ = options_.backend->device();
    match.all_attributes_ = all_attributes(group);
    const std::shared_ptr<Body> body = make_body(group);
    match.body_ = body;
    for (size_t i = match.outputs_.size(); i < body->outputs.size(); ++i) {
      match.outputs_.push_back(body->output_spec(i));
      match.specs_[group.pattern->outputs_[i].value] = match.outputs_.back();
    }
    if (group.giver != kNone) match.giver_ = &groups_[group.giver].match;
    options_.backend->activate();
    const Scope& scope = graph_.nodes()[group.nodes.front()].scope;
    std::unique_ptr<Kernel> kernel =
        with_scope(scope.path, [&] { return group.fusion->plan(match); });
    match.giver_ = nullptr;
    if (kernel == nullptr) return false;
    if (checks_kernels()) {
      kernel = make_guarded_kernel(*options_.backend, std::move(kernel), match.request());
    }
    body->kernel = std::move(kernel);
    return true;
  }

  Attributes all_attributes(const Group& group) const {
    Attributes all = {{"fusion", std::string(group.fusion->name)}};
    for (size_t i = 0; i < group.binding.nodes.size(); ++i) {
      const Node& node = graph_.nodes()[group.binding.nodes[i]];
      const std::string& name = group.pattern->calls_[i].name;
      const std::string prefix = name.empty() ? std::to_string(i) : name;
      all.set(prefix, std::string(node.op->name));
      for (const auto& [key, value] : node.attributes.entries()) all.set(prefix + "." + key, value);
    }
    return all;
  }

  std::shared_ptr<Body> make_body(const Group& group) const {
    auto body = std::make_shared<Body>();
    body->graph = std::make_shared<Graph>();
    std::unordered_map<ValueId, ValueId> inner;
    for (size_t i = 0; i < group.inputs.size(); ++i) {
      const ValueId input = group.inputs[i];
      body->inputs.push_back(
          body->graph->input(group.pattern->inputs_[i].name, graph_.value(input).spec));
      inner[input] = body->inputs.back();
    }
    // What its kernel takes over is computed here.
    for (size_t i = group.inputs.size(); i < group.match.inputs_.size(); ++i) {
      body->inputs.push_back(
          body->graph->input(group.pattern->inputs_[i].name, group.match.inputs_[i]));
    }
    std::vector<int32_t> nodes = group.binding.nodes;
    std::sort(nodes.begin(), nodes.end());
    for (const int32_t index : nodes) {
      const Node& node = graph_.nodes()[index];
      std::vector<ValueId> inputs;
      for (const ValueId id : node.inputs) inputs.push_back(inner.at(id));
      const std::vector<ValueId> outputs = body->graph->apply_same(node, inputs);
      for (size_t i = 0; i < outputs.size(); ++i) inner[node.outputs[i]] = outputs[i];
    }
    for (const ValueId output : group.outputs) {
      if (output != kNoValue) body->outputs.push_back(inner.at(output));
    }
    for (const auto& [of, write] : group.pattern->handed_over_) {
      body->outputs.push_back(write(*body->graph, inner.at(group.binding.values[of])));
    }
    return body;
  }

  // Values that fusions alone should read gain nothing where something else does. Says whether a
  // group was dropped.
  bool drop_incomplete_groups() {
    bool is_any_dropped = false;
    for (bool is_changed = true; is_changed; is_any_dropped |= is_changed) {
      is_changed = false;
      for (Group& group : groups_) {
        if (group.is_dropped || is_complete(group)) continue;
        group.is_dropped = is_changed = true;
        for (const int32_t node : group.nodes) group_of_[node] = kNone;
        count_again(group, -1);
      }
    }
    return is_any_dropped;
  }

  bool is_complete(const Group& group) const {
    if (group.giver != kNone && groups_[group.giver].is_dropped) return false;
    for (size_t i = 0; i < group.binding.values.size(); ++i) {
      if (!group.pattern->values_[i].by_fusions) continue;
      const ValueId value = group.binding.values[i];
      const int32_t call = group.pattern->values_[i].call;
      const bool is_made_here = call >= 0 && !group.pattern->calls_[call].again;
      if (readers_.is_root(value) && !is_made_here) return false;
      const std::vector<int32_t>& nodes = readers_.nodes(value);
      const auto is_fused = [&](int32_t node) { return group_of_[node] != kNone; };
      const auto is_taken = [&](int32_t node) { return is_fused(node) || is_made_again(node); };
      if (!std::all_of(nodes.begin(), nodes.end(), is_taken)) return false;
    }
    return true;
  }

  static bool computes(const Group& group, int32_t node) {
    return group.has_kernel() && !group.is_dropped &&
           std::ranges::find(group.binding.nodes, node) != group.binding.nodes.end();
  }

  // Is the node left out, as all that reads it computes it again? What reads it may be left out
  // too, where all groups that compute that compute this node as well.
  bool is_made_again(int32_t node) const {
    // Of some nodes nobody reads a result, and they stay (needed_calls.h).
    if (num_again_[node] == 0) return false;
    const auto is_computed_with = [&](int32_t reader) {
      if (group_of_[reader] != kNone) return computes(groups_[group_of_[reader]], node);
      if (!is_made_again(reader)) return false;
      return std::ranges::all_of(groups_, [&](const Group& group) {
        return !computes(group, reader) || computes(group, node);
      });
    };
    return std::ranges::all_of(graph_.nodes()[node].outputs, [&](ValueId value) {
      return !readers_.is_root(value) &&
             std::ranges::all_of(readers_.nodes(value), is_computed_with);
    });
  }

  // A group is emitted where the first of its nodes was that others read.
  bool is_place(int32_t node) const {
    const Group& group = groups_[group_of_[node]];
    const auto is_read = [&](int32_t member) {
      const std::vector<ValueId>& values = graph_.nodes()[member].outputs;
      return std::any_of(values.begin(), values.end(), [&](ValueId value) {
        const std::vector<int32_t>& readers = readers_.nodes(value);
        return readers_.is_root(value) ||
               std::any_of(readers.begin(), readers.end(),
                           [&](int32_t reader) { return !contains(group.nodes, reader); });
      });
    };
    return node == *std::find_if(group.nodes.begin(), group.nodes.end() - 1, is_read);
  }

  // The node or its group, after what it reads. Inputs of a group may come later in the source than
  // its place.
  void emit(int32_t node) {
    std::vector<int32_t> pending = {node};
    while (!pending.empty()) {
      const int32_t next = pending.back();
      if (is_emitted_[next]) {
        pending.pop_back();
        continue;
      }
      Group* group = group_of_[next] == kNone ? nullptr : &groups_[group_of_[next]];
      const size_t known = pending.size();
      for (const ValueId input : group != nullptr ? group->inputs : graph_.nodes()[next].inputs) {
        const int32_t source = producer_index(graph_, input);
        if (source >= 0 && !is_emitted_[source]) pending.push_back(source);
      }
      if (group != nullptr && group->giver != kNone) {
        // All that it computes is of its own layer and phase, and not of this group's.
        for (const int32_t source : groups_[group->giver].binding.nodes) {
          if (!is_emitted_[source]) pending.push_back(source);
        }
      }
      if (pending.size() > known) continue;
      pending.pop_back();
      if (group != nullptr) {
        emit_group(*group);
      } else {
        rewriter_.copy(graph_.nodes()[next]);
        is_emitted_[next] = true;
      }
    }
  }

  void emit_group(Group& group) {
    group.emitted = group.has_kernel() ? emit_kernel(group) : write(group);
    for (size_t i = 0; i < group.outputs.size(); ++i) {
      if (group.outputs[i] != kNoValue) rewriter_.replace(group.outputs[i], group.emitted[i]);
    }
    for (const int32_t node : group.nodes) is_emitted_[node] = true;
  }

  std::vector<ValueId> write(const Group& group) {
    std::vector<ValueId> inputs = rewriter_.map(group.inputs);
    inputs.resize(group.pattern->inputs_.size());
    Replacement replacement(rewriter_, inputs, graph_.nodes()[group.nodes.front()].scope);
    return group.fusion->write(group.match, replacement);
  }

  std::vector<ValueId> emit_kernel(const Group& group) {
    std::string ops;
    for (const int32_t node : group.nodes) {
      ops.append(ops.empty() ? "" : "+").append(graph_.nodes()[node].op->name);
    }
    const Attributes attributes = {
        {"fusion", std::string(group.fusion->name)},
        {"ops", ops},
        {"required_outputs", static_cast<int64_t>(group.pattern->num_required_)},
        {"bodies", Bodies{group.match.body_}},
    };
    std::vector<ValueId> inputs = rewriter_.map(group.inputs);
    for (const size_t output : group.taken_over) {
      inputs.push_back(groups_[group.giver].emitted[output]);
    }
    return rewriter_.apply(op_fused, inputs, attributes, graph_.nodes()[group.nodes.front()].scope);
  }

  const RootedGraph& source_;
  GraphRewriter rewriter_;
  const Graph& graph_;
  const Readers readers_;
  const PassOptions& options_;
  std::unordered_map<const OpDef*, std::vector<int32_t>> nodes_of_;
  std::vector<Group> groups_;
  std::vector<int32_t> group_of_;   // by node of the source
  std::vector<int32_t> num_again_;  // by node of the source: how many groups compute it again
  std::vector<bool> is_emitted_;    // by node of the source
};

RootedGraph apply_fusions(const RootedGraph& source, const PassOptions& options, bool of_expanded) {
  std::vector<const Fusion*> fusions;
  std::ranges::copy_if(options.fusions, std::back_inserter(fusions),
                       [&](const Fusion* fusion) { return fusion->of_expanded == of_expanded; });
  if (fusions.empty()) return source;
  return FusionPass(source, options).run(fusions);
}

RootedGraph apply_fusion(const RootedGraph& source, const Fusion& fusion) {
  return FusionPass(source, {}).run(std::array{&fusion});
}

}  // namespace kerascnn
