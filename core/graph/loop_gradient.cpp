// A loop's gradient is a loop over the same rows in the opposite order. Its body computes the step
// again from the carry that it began with, which the first loop saves, and takes the gradient. It
// carries the gradients of the carries and the sums of the gradients of what all steps read, and
// leaves the gradients of slices as stacks. So a loop keeps its carries, not what a step computes
// in between.
//
// The gradients are added to the graph that the body was recorded in. So gradients that were given
// by hand there still hold, and this loop has a gradient like any other.
#include "core/graph/loop_gradient.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/graph/graph.h"
#include "core/graph/loop.h"

namespace kerascnn {
namespace {

bool is_floating_value(const Graph& graph, ValueId id) {
  return id != kNoValue && is_floating(graph.value(id).spec.dtype);
}

// The phase of nodes that are added to a body's graph while this object lives.
class BackwardPhase {
 public:
  explicit BackwardPhase(Graph& graph) : graph_(graph), before_(graph.phase()) {
    graph.set_phase(kBackward);
  }
  ~BackwardPhase() { graph_.set_phase(before_); }
  BackwardPhase(const BackwardPhase&) = delete;
  BackwardPhase& operator=(const BackwardPhase&) = delete;

 private:
  Graph& graph_;
  Phase before_;
};

// Gradients of the outputs of a body with these targets, with respect to those of its inputs that
// are floating; kNoValue for others.
std::vector<ValueId> body_gradients(Graph& graph, const Body& body,
                                    const std::vector<ValueId>& targets,
                                    const std::vector<ValueId>& seeds) {
  std::vector<ValueId> wrt;
  for (const ValueId id : body.inputs) {
    if (is_floating_value(graph, id)) wrt.push_back(id);
  }
  const std::vector<ValueId> found = graph.gradients(targets, seeds, wrt);
  std::vector<ValueId> result;
  auto next = found.begin();
  for (const ValueId id : body.inputs) {
    result.push_back(is_floating_value(graph, id) ? *next++ : kNoValue);
  }
  return result;
}

// What a body reads besides the inputs that it is known to be given: values of the graph around it
// that a gradient by hand brought in.
std::vector<Graph::Captured> further_captures(const Body& body, const std::vector<bool>& needed,
                                              const std::vector<ValueId>& known) {
  std::vector<Graph::Captured> result;
  for (const Graph::Captured& captured : body.graph->captured()) {
    if (!needed[captured.inner]) continue;
    if (std::find(known.begin(), known.end(), captured.inner) == known.end()) {
      result.push_back(captured);
    }
  }
  return result;
}

class LoopGradient {
 public:
  explicit LoopGradient(GradientContext& context)
      : context_(context),
        shape_(loop_shape(context.attributes(), context.num_inputs())),
        body_(*shape_.body),
        graph_(*shape_.body->graph) {}

  std::vector<ValueId> run() {
    if (!shape_.saves()) {
      throw ValueError(
          "loop: a while_loop without maximum_iterations is not differentiable, as it is not known "
          "how many carries have to be kept; say how often it runs at most");
    }
    const BackwardPhase phase(graph_);
    add_stack_seeds();
    for (size_t i = 0; i < shape_.num_carries; ++i) {
      const bool is_saved = context_.output_gradient(shape_.first_saved() + i) != kNoValue;
      if (is_saved || context_.output_gradient(i) != kNoValue) add_carry_seed(i);
    }
    // The gradient of one carry reaches others by the next step, so this is repeated until it
    // reaches no new one.
    std::vector<ValueId> gradients;
    do {
      gradients = body_gradients(graph_, body_, targets_, seeds_);
    } while (add_reached(gradients));
    collect(gradients);
    return result();
  }

 private:
  ValueId input(std::string name, const TensorSpec& spec) {
    const TensorSpec copy = spec;  // a copy: the graph may move its own
    return graph_.input(std::move(name), copy);
  }

  void add_stack_seeds() {
    for (size_t i = 0; i < shape_.num_stacks; ++i) {
      const ValueId given = context_.output_gradient(shape_.num_carries + i);
      if (given == kNoValue) continue;
      const ValueId target = body_.outputs[shape_.num_carries + i];
      targets_.push_back(target);
      seeds_.push_back(input("gradient_of_row", graph_.value(target).spec));
      slices_.push_back({given, seeds_.back()});
    }
  }

  void add_carry_seed(size_t carry) {
    const ValueId target = body_.outputs[carry];
    if (!is_floating_value(graph_, target)) return;
    targets_.push_back(target);
    seeds_.push_back(input("gradient_of_carry", graph_.value(target).spec));
    active_.push_back(carry);
    active_seeds_.push_back(seeds_.back());
  }

  bool add_reached(const std::vector<ValueId>& gradients) {
    const size_t before = active_.size();
    for (size_t i = 0; i < shape_.num_carries; ++i) {
      const bool is_known = std::find(active_.begin(), active_.end(), i) != active_.end();
      if (!is_known && gradients[i] != kNoValue) add_carry_seed(i);
    }
    return active_.size() > before;
  }

  ValueId zeros(ValueId like) { return graph_.full(TensorSpec(graph_.value(like).spec), 0.0); }

  // The outputs of the new body: next carries, then rows; with the input that each is the gradient
  // of.
  void collect(const std::vector<ValueId>& gradients) {
    for (size_t i = 0; i < active_.size(); ++i) {
      const ValueId found = with_saved(active_[i], gradients[active_[i]]);
      carries_.push_back({seed_of(active_[i]), active_seeds_[i]});
      next_.push_back(found != kNoValue ? found : zeros(active_seeds_[i]));
      carry_places_.push_back(shape_.first_carry() + active_[i]);
    }
    const size_t first_other = shape_.num_carries + shape_.num_slices;
    for (size_t i = first_other; i < gradients.size(); ++i) {
      if (gradients[i] == kNoValue) continue;
      const ValueId sum = input("sum", graph_.value(gradients[i]).spec);
      const ValueId outer = context_.input(shape_.first_carry() + i);
      carries_.push_back({context_.full_like(outer, 0.0), sum});
      next_.push_back(graph_.apply("add", {sum, gradients[i]})[0]);
      carry_places_.push_back(shape_.first_carry() + i);
    }
    for (size_t i = shape_.num_carries; i < first_other; ++i) {
      if (gradients[i] == kNoValue) continue;
      rows_.push_back(gradients[i]);
      row_places_.push_back(shape_.first_carry() + i);
    }
  }

  // A saved carry is the one that a step began with: its readers add to that carry's gradient.
  ValueId with_saved(size_t carry, ValueId gradient) {
    const ValueId given = context_.output_gradient(shape_.first_saved() + carry);
    if (given == kNoValue) return gradient;
    const ValueId row = input("gradient_of_saved", graph_.value(body_.outputs[carry]).spec);
    slices_.push_back({given, row});
    return gradient == kNoValue ? row : graph_.apply("add", {gradient, row})[0];
  }

  // The gradient of a carry begins with this, after the last step.
  ValueId seed_of(size_t carry) {
    const ValueId given = context_.output_gradient(carry);
    return given != kNoValue ? given : context_.full_like(context_.output(carry), 0.0);
  }

  std::vector<ValueId> result() {
    std::vector<ValueId> result(context_.num_inputs(), kNoValue);
    if (next_.empty() && rows_.empty()) return result;
    Body body{shape_.body->graph, {}, next_};
    body.outputs.insert(body.outputs.end(), rows_.begin(), rows_.end());
    const std::vector<bool> needed = needed_values(graph_, body.outputs, /*for_gradients=*/true);
    add_forward_values(needed, body);

    std::vector<ValueId> inputs;
    const bool is_counted = shape_.counted || shape_.condition != nullptr;
    if (is_counted) {
      inputs.push_back(shape_.counted ? context_.input(0) : context_.output(shape_.count_output()));
    }
    for (const auto* group : {&carries_, &slices_, &others_}) {
      for (const Graph::Captured& one : *group) {
        inputs.push_back(one.outer);
        body.inputs.push_back(one.inner);
      }
    }
    const auto count = [](const auto& list) { return static_cast<int64_t>(list.size()); };
    const std::vector<ValueId> outputs =
        context_.apply_all("loop", inputs,
                           {{"bodies", Bodies{std::make_shared<Body>(std::move(body))}},
                            {"length", shape_.length},
                            {"reverse", !shape_.reverse},
                            {"counted", is_counted},
                            {"carries", count(carries_)},
                            {"slices", count(slices_)}});
    for (size_t i = 0; i < carry_places_.size(); ++i) result[carry_places_[i]] = outputs[i];
    for (size_t i = 0; i < row_places_.size(); ++i) {
      result[row_places_[i]] = outputs[carry_places_.size() + i];
    }
    return result;
  }

  // The inputs of the step that it differentiates, as far as the new body reads them.
  void add_forward_values(const std::vector<bool>& needed, const Body& body) {
    std::vector<ValueId> known;
    const size_t first_other = shape_.num_carries + shape_.num_slices;
    for (size_t i = 0; i < body_.inputs.size(); ++i) {
      const ValueId inner = body_.inputs[i];
      if (inner == kNoValue) continue;
      known.push_back(inner);
      if (!needed[inner]) continue;
      if (i < shape_.num_carries) {
        slices_.push_back({context_.output(shape_.first_saved() + i), inner});
      } else {
        (i < first_other ? slices_ : others_)
            .push_back({context_.input(shape_.first_carry() + i), inner});
      }
    }
    for (const Graph::Captured& captured : further_captures(body, needed, known)) {
      others_.push_back(captured);
    }
  }

  GradientContext& context_;
  const LoopShape shape_;
  const Body& body_;
  Graph& graph_;
  // The outputs of the body that have a gradient, and the inputs that stand for these gradients.
  std::vector<ValueId> targets_, seeds_;
  std::vector<size_t> active_;  // carries
  std::vector<ValueId> active_seeds_;
  // For the new loop: values of the graph with the node, and the inputs of the body.
  std::vector<Graph::Captured> carries_, slices_, others_;
  std::vector<ValueId> next_, rows_;
  std::vector<size_t> carry_places_, row_places_;  // the node's inputs that they are gradients of
};

}  // namespace

std::vector<ValueId> loop_gradient(GradientContext& context) { return LoopGradient(context).run(); }

// A choice between the gradients of the branches, each of which computes its branch again.
std::vector<ValueId> switch_gradient(GradientContext& context) {
  const Bodies& branches = context.attributes().get_bodies("bodies");
  const size_t num_operands = context.num_inputs() - 1;
  std::vector<ValueId> seeds;                     // of the outputs that have a gradient
  std::vector<std::vector<ValueId>> gradients;    // by branch and operand
  std::vector<std::vector<ValueId>> seed_inputs;  // by branch
  std::vector<bool> is_wanted(num_operands, false);
  for (size_t k = 0; k < branches[0]->outputs.size(); ++k) {
    if (context.output_gradient(k) != kNoValue) seeds.push_back(context.output_gradient(k));
  }
  for (const BodyPtr& branch : branches) {
    Graph& graph = *branch->graph;
    const BackwardPhase phase(graph);
    std::vector<ValueId> targets, inputs;
    for (size_t k = 0; k < branch->outputs.size(); ++k) {
      if (context.output_gradient(k) == kNoValue) continue;
      targets.push_back(branch->outputs[k]);
      inputs.push_back(graph.input("gradient", TensorSpec(branch->output_spec(k))));
    }
    gradients.push_back(body_gradients(graph, *branch, targets, inputs));
    seed_inputs.push_back(inputs);
    for (size_t i = 0; i < num_operands; ++i) {
      if (gradients.back()[i] != kNoValue) is_wanted[i] = true;
    }
  }

  // All bodies have the same inputs: the operands, the seeds, and what gradients by hand read.
  std::vector<ValueId> node_inputs = {context.input(0)};
  for (size_t i = 0; i < num_operands; ++i) node_inputs.push_back(context.input(i + 1));
  node_inputs.insert(node_inputs.end(), seeds.begin(), seeds.end());
  Bodies bodies;
  for (size_t b = 0; b < branches.size(); ++b) {
    Graph& graph = *branches[b]->graph;
    const BackwardPhase phase(graph);
    auto body = std::make_shared<Body>(Body{branches[b]->graph, branches[b]->inputs, {}});
    body->inputs.insert(body->inputs.end(), seed_inputs[b].begin(), seed_inputs[b].end());
    for (size_t i = 0; i < num_operands; ++i) {
      if (!is_wanted[i]) continue;
      const TensorSpec spec = context.spec(context.input(i + 1));
      const ValueId found = gradients[b][i];
      body->outputs.push_back(found != kNoValue ? found : graph.full(spec, 0.0));
    }
    const std::vector<ValueId> known = body->inputs;
    const std::vector<bool> needed = needed_values(graph, body->outputs, /*for_gradients=*/true);
    body->inputs.resize(node_inputs.size() - 1, kNoValue);
    for (const Graph::Captured& captured : further_captures(*body, needed, known)) {
      node_inputs.push_back(captured.outer);
      body->inputs.push_back(captured.inner);
    }
    bodies.push_back(std::move(body));
  }
  for (const BodyPtr& body : bodies) body->inputs.resize(node_inputs.size() - 1, kNoValue);
  std::vector<ValueId> result(context.num_inputs(), kNoValue);
  if (bodies[0]->outputs.empty()) return result;
  const std::vector<ValueId> outputs =
      context.apply_all("switch", node_inputs, {{"bodies", bodies}});
  for (size_t i = 0, next = 0; i < num_operands; ++i) {
    if (is_wanted[i]) result[i + 1] = outputs[next++];
  }
  return result;
}

}  // namespace kerascnn
