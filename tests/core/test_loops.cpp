// Nodes that own graphs: what they compute, how they are planned, and what they refuse.
#include <cmath>

#include "check.h"
#include "core/base/error.h"
#include "core/graph/body.h"
#include "core/graph/passes/passes.h"
#include "graph_testing.h"

namespace kerascnn {
namespace {

using testing::call;
using testing::count_nodes;
using testing::f32;
using testing::floats;

constexpr int64_t kWidth = 3;

Tensor ramp(const Shape& shape, float step) {
  std::vector<float> data(static_cast<size_t>(num_elements(shape)));
  for (size_t i = 0; i < data.size(); ++i) data[i] = step * static_cast<float>(i + 1);
  return Tensor::from_host(data.data(), f32(shape), Device{});
}

Attributes loop_attributes(Bodies bodies, int64_t length, int64_t carries, int64_t slices) {
  return {{"bodies", std::move(bodies)}, {"length", length}, {"reverse", false}, {"counted", false},
          {"carries", carries},          {"slices", slices}};
}

// A scan that computes c = sin(c) * w + x and stacks all c, in a graph with the inputs c, x and w.
struct Scan {
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
  ValueId c, x, w;
  std::vector<ValueId> outputs;
  BodyPtr body = std::make_shared<Body>();

  explicit Scan(int64_t length) {
    c = graph->input("c", f32({kWidth}));
    x = graph->input("x", f32({length, kWidth}));
    w = graph->input("w", f32({kWidth}));
    body->graph = std::make_shared<Graph>(graph);
    Graph& inner = *body->graph;
    const ValueId carry = inner.input("carry", f32({kWidth}));
    const ValueId row = inner.input("row", f32({kWidth}));
    const ValueId product =
        call(inner, "multiply", {call(inner, "sin", {carry}), inner.capture(graph, w)});
    const ValueId next = call(inner, "add", {product, row});
    body->inputs = {carry, row, inner.captured().front().inner};
    body->outputs = {next, next};
    outputs = graph->apply("loop", {c, x, w}, loop_attributes({body}, length, 1, 1));
  }

  // The graph holds the node, the node holds the body, and the body holds its parent, the graph,
  // until it lets go of it, which the end of a trace does.
  ~Scan() { body->graph->forget_own_gradients(); }
  Scan(const Scan&) = delete;
  Scan& operator=(const Scan&) = delete;

  ValueId loss() { return call(*graph, "reduce_sum", {outputs[1]}, kSum); }
  std::vector<ValueId> gradients() { return graph->gradients(loss(), {c, x, w}); }

  inline static const Attributes kSum = {{"axes", std::vector<int64_t>{}}, {"keepdims", false}};
};

std::vector<float> run(const Graph& graph, const std::vector<ValueId>& outputs,
                       const std::vector<Tensor>& inputs, size_t wanted, bool optimize = true) {
  CompileOptions options;
  options.optimize = optimize;
  const auto program = Program::compile(graph, outputs, Device{}, options);
  program->run(inputs);
  program->run(inputs);  // nothing of the first run may be left over
  return floats(program->outputs()[wanted]);
}

void check_close(const std::vector<float>& found, const std::vector<double>& expected) {
  CHECK_EQUAL(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    CHECK(std::abs(found[i] - expected[i]) <= 1e-5 * (1.0 + std::abs(expected[i])));
  }
}

TEST(loop_computes_what_its_steps_do) {
  constexpr int64_t kLength = 5;
  Scan scan(kLength);
  const std::vector<Tensor> inputs = {ramp({kWidth}, 0.3f), ramp({kLength, kWidth}, 0.1f),
                                      ramp({kWidth}, 0.4f)};
  std::vector<double> carry, rows;
  for (float value : floats(inputs[0])) carry.push_back(value);
  const std::vector<float> x = floats(inputs[1]), w = floats(inputs[2]);
  for (size_t step = 0; step < kLength; ++step) {
    for (size_t i = 0; i < kWidth; ++i) {
      carry[i] = std::sin(carry[i]) * w[i] + x[step * kWidth + i];
      rows.push_back(carry[i]);
    }
  }
  for (const bool optimize : {true, false}) {
    check_close(run(*scan.graph, scan.outputs, inputs, 0, optimize), carry);
    check_close(run(*scan.graph, scan.outputs, inputs, 1, optimize), rows);
  }
}

TEST(gradient_of_a_loop_agrees_with_differences) {
  constexpr int64_t kLength = 4;
  Scan scan(kLength);
  const ValueId loss = scan.loss();
  const std::vector<ValueId> gradients = scan.graph->gradients(loss, {scan.c, scan.x, scan.w});
  CHECK_EQUAL(count_nodes(*scan.graph, "loop"), 2u);
  std::vector<Tensor> inputs = {ramp({kWidth}, 0.3f), ramp({kLength, kWidth}, 0.1f),
                                ramp({kWidth}, 0.4f)};
  for (size_t k = 0; k < inputs.size(); ++k) {
    const std::vector<float> found = run(*scan.graph, gradients, inputs, k);
    const std::vector<float> before = floats(inputs[k]);
    const TensorSpec spec = inputs[k].spec();
    for (size_t i = 0; i < before.size(); ++i) {
      const auto loss_at = [&](float value) {
        std::vector<float> moved = before;
        moved[i] = value;
        std::vector<Tensor> others = inputs;
        others[k] = Tensor::from_host(moved.data(), spec, Device{});
        return static_cast<double>(run(*scan.graph, {loss}, others, 0)[0]);
      };
      // The differences are taken in float32 with steps of 2^-7, so errors of rounding and
      // curvature are below 1e-2.
      constexpr float kStep = 0x1p-7f;
      const double slope = (loss_at(before[i] + kStep) - loss_at(before[i] - kStep)) / (2 * kStep);
      CHECK(std::abs(slope - found[i]) <= 1e-2 * (1.0 + std::abs(slope)));
    }
  }
}

TEST(a_program_does_not_grow_with_a_loops_length) {
  const auto stats = [](int64_t length) {
    Scan scan(length);
    const std::vector<ValueId> gradients = scan.gradients();
    return Program::compile(*scan.graph, gradients, Device{})->stats();
  };
  const ProgramStats few = stats(8), many = stats(8192);
  CHECK_EQUAL(few.num_instructions, many.num_instructions);
  // The arena holds the rows of x, their gradients, the saved carries and the seeds, and nothing
  // else that grows with the steps.
  CHECK(many.arena_bytes <= 4 * 8192 * kWidth * int64_t{sizeof(float)} + (64 << 10));
}

TEST(carries_are_saved_for_gradients_only) {
  constexpr int64_t kLength = 4096;
  Scan scan(kLength);
  const auto program = Program::compile(*scan.graph, {scan.outputs[0]}, Device{});
  CHECK(program->stats().arena_bytes < kLength * kWidth * int64_t{sizeof(float)});
}

TEST(what_nobody_reads_of_a_loop_is_pruned) {
  // There are two carries. The second is the sum of x; the first is all that the stack needs.
  constexpr int64_t kLength = 3;
  const auto graph = std::make_shared<Graph>();
  const ValueId a = graph->input("a", f32({2})), b = graph->input("b", f32({2}));
  const ValueId x = graph->input("x", f32({kLength, 2}));
  auto body = std::make_shared<Body>();
  body->graph = std::make_shared<Graph>(graph);
  Graph& inner = *body->graph;
  const ValueId first = inner.input("first", f32({2})), second = inner.input("second", f32({2}));
  const ValueId row = inner.input("row", f32({2}));
  const ValueId doubled = call(inner, "add", {first, first});
  body->inputs = {first, second, row};
  body->outputs = {doubled, call(inner, "add", {second, row}), doubled};
  const std::vector<ValueId> outputs =
      graph->apply("loop", {a, b, x}, loop_attributes({body}, kLength, 2, 1));
  const auto pruned = [&](ValueId wanted) { return prune_bodies({*graph, {wanted}}); };

  const RootedGraph stack = pruned(outputs[2]);
  CHECK_EQUAL(stack.graph.nodes()[0].inputs.size(), 1u);
  // These are the carry, the stack and the saved carry.
  CHECK_EQUAL(stack.graph.nodes()[0].outputs.size(), 3u);
  const RootedGraph sum = pruned(outputs[1]);
  CHECK_EQUAL(sum.graph.nodes()[0].inputs.size(), 2u);
  const RootedGraph saved = pruned(outputs[4]);
  CHECK_EQUAL(saved.graph.nodes()[0].inputs.size(), 2u);

  const std::vector<Tensor> inputs = {ramp({2}, 1.0f), ramp({2}, 10.0f), ramp({kLength, 2}, 1.0f)};
  check_close(run(*graph, {outputs[2]}, inputs, 0), {2, 4, 4, 8, 8, 16});
  check_close(run(*graph, {outputs[1]}, inputs, 0), {10 + 1 + 3 + 5, 20 + 2 + 4 + 6});
  check_close(run(*graph, {outputs[4]}, inputs, 0), {10, 20, 11, 22, 14, 26});
  inner.forget_own_gradients();
}

TEST(loops_of_one_body_and_inputs_are_one) {
  Scan scan(3);
  const std::vector<ValueId> again =
      scan.graph->apply("loop", {scan.c, scan.x, scan.w}, loop_attributes({scan.body}, 3, 1, 1));
  const ValueId sum = call(*scan.graph, "add", {again[0], scan.outputs[0]});
  const RootedGraph merged = merge_common_subexpressions({*scan.graph, {sum}});
  CHECK_EQUAL(count_nodes(merged.graph, "loop"), 1u);
}

TEST(a_loop_over_constants_is_not_evaluated_when_compiled) {
  Graph graph;
  auto body = std::make_shared<Body>();
  body->graph = std::make_shared<Graph>();
  const ValueId carry = body->graph->input("carry", f32({2}));
  body->inputs = {carry};
  body->outputs = {call(*body->graph, "add", {carry, carry})};
  const ValueId first = graph.constant(ramp({2}, 1.0f));
  const auto outputs = graph.apply("loop", {first}, loop_attributes({body}, 3, 1, 0));
  const RootedGraph folded = fold_constants({graph, {outputs[0]}});
  CHECK_EQUAL(count_nodes(folded.graph, "loop"), 1u);
  check_close(run(graph, {outputs[0]}, {}, 0), {8.0, 16.0});
}

TEST(what_a_body_reads_of_the_graph_around_is_one_input) {
  const auto outer = std::make_shared<Graph>();
  const ValueId x = outer->input("x", f32({2}));
  const VariablePtr v = testing::make_variable("v", {2}, 1.0f);
  const auto middle = std::make_shared<Graph>(outer);
  const auto inner = std::make_shared<Graph>(middle);
  const ValueId captured = inner->capture(outer, x);
  CHECK_EQUAL(inner->capture(outer, x), captured);
  CHECK_EQUAL(middle->captured().size(), 1u);
  CHECK_EQUAL(middle->captured().front().outer, x);
  const ValueId read = inner->read(v);
  CHECK_EQUAL(inner->read(v), read);
  inner->assign(v, call(*inner, "add", {read, captured}));
  CHECK_EQUAL(inner->bound_states().size(), 1u);
  CHECK(inner->bound_states()[0].last != read);
  CHECK_EQUAL(outer->states().size(), 1u);
  CHECK_EQUAL(outer->assignments().size(), 0u);

  CHECK_THROWS(ValueError, "belongs to another graph", outer->capture(inner, captured));
  inner->forget_own_gradients();
  CHECK_THROWS(ValueError, "whose trace has ended",
               inner->read(testing::make_variable("w", {2}, 1.0f)));
}

TEST(what_does_not_fit_is_named) {
  Scan scan(3);
  Graph& graph = *scan.graph;
  const ValueId wide = graph.input("wide", f32({4})), rows = graph.input("rows", f32({2, kWidth}));
  CHECK_THROWS(ValueError, "the body takes float32 (3,) as input 0, received float32 (4,)",
               graph.apply("loop", {wide, scan.x, scan.w}, loop_attributes({scan.body}, 3, 1, 1)));
  CHECK_THROWS(ValueError, "must have 3 rows along its first axis",
               graph.apply("loop", {scan.c, rows, scan.w}, loop_attributes({scan.body}, 3, 1, 1)));
  CHECK_THROWS(
      ValueError, "a length of at least 0",
      graph.apply("loop", {scan.c, scan.x, scan.w}, loop_attributes({scan.body}, -1, 1, 1)));
  const ValueId index = graph.input("index", {DType::Int32, {}});
  CHECK_THROWS(ValueError, "attribute \"bodies\" must have a body",
               graph.apply("switch", {index}, {{"bodies", Bodies{nullptr}}}));
}

}  // namespace
}  // namespace kerascnn
