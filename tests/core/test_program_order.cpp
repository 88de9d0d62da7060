// The instructions of a program give the same bits in every order that their dependencies allow.
#include <bit>
#include <cstdlib>

#include "check.h"
#include "core/backend/dependencies.h"
#include "graph_testing.h"

namespace kerascnn {
namespace {

constexpr int64_t kSteps = 3;

std::vector<Tensor> inputs_of(const Graph& graph) {
  std::mt19937 random(1);
  std::vector<Tensor> inputs;
  for (ValueId id : graph.inputs()) {
    inputs.push_back(testing::random_tensor(graph.value(id).spec.shape, random));
  }
  return inputs;
}

// Returns whether the random order differs from that of the list.
bool run_in_random_order(const ArenaSteps& arenas, int64_t steps, unsigned seed) {
  std::mt19937 random(seed);
  const std::vector<int32_t> order = random_order(find_dependencies(arenas, steps), random);
  CHECK_EQUAL(order.size(), arenas[0].size() * static_cast<size_t>(steps));
  for (int32_t index : order) {
    const Instruction& item = instruction_at(arenas, steps, index);
    item.kernel->run({item.inputs, item.outputs, item.workspace, nullptr});
  }
  return !std::is_sorted(order.begin(), order.end());
}

std::vector<uint32_t> results(const Program& program, const testing::RandomGraph& graph) {
  std::vector<uint32_t> bits;
  const auto add = [&](const Tensor& tensor) {
    for (float value : testing::floats(tensor)) bits.push_back(std::bit_cast<uint32_t>(value));
  };
  for (const Tensor& output : program.outputs()) add(output);
  for (const VariablePtr& variable : graph.variables) add(variable->value());
  return bits;
}

}  // namespace

TEST(random_programs_give_the_same_bits_in_every_allowed_order) {
  size_t other_orders = 0;
  for (unsigned seed = 0; seed < 200; ++seed) {
    const CompileOptions options{.optimize = seed % 2 == 0};
    const testing::RandomGraph expected(seed), received(seed);
    const std::vector<Tensor> inputs = inputs_of(expected.rooted.graph);
    const auto in_order =
        Program::compile(expected.rooted.graph, expected.rooted.outputs, Device{}, options);
    in_order->run(inputs, kSteps);

    const auto program =
        Program::compile(received.rooted.graph, received.rooted.outputs, Device{}, options);
    if (run_in_random_order(program->arena_steps(inputs), kSteps, seed)) ++other_orders;
    CHECK(results(*in_order, expected) == results(*program, received));
  }
  CHECK(other_orders > 150);
}

TEST(random_programs_with_several_arenas_give_the_same_bits_in_every_allowed_order) {
  int64_t most_arenas = 1;
  for (unsigned seed = 0; seed < 200; ++seed) {
    const CompileOptions options{.optimize = seed % 2 == 0};
    const testing::RandomGraph expected(seed), received(seed);
    const std::vector<Tensor> inputs = inputs_of(expected.rooted.graph);
    const int64_t steps = 1 + seed % 5;
    const auto in_order =
        Program::compile(expected.rooted.graph, expected.rooted.outputs, Device{}, options);
    CHECK_EQUAL(in_order->stats().num_arenas, 1);
    in_order->run(inputs, steps);

    setenv("KERASCNN_SHUFFLE_KERNELS", std::to_string(seed + 1).c_str(), 1);
    const auto program =
        Program::compile(received.rooted.graph, received.rooted.outputs, Device{}, options);
    unsetenv("KERASCNN_SHUFFLE_KERNELS");
    most_arenas = std::max(most_arenas, program->stats().num_arenas);
    run_in_random_order(program->arena_steps(inputs), steps, seed);
    CHECK(results(*in_order, expected) == results(*program, received));
  }
  CHECK(most_arenas > 2);
}

TEST(a_counter_of_the_optimizer_does_not_hold_up_the_next_step) {
  // The update reads a counter, which grows at the end of the step. A metric is added up beside it.
  RootedGraph rooted;
  Graph& graph = rooted.graph;
  const VariablePtr counter = testing::make_variable("counter", {}, 0.0f);
  const VariablePtr metric = testing::make_variable("metric", {}, 0.0f);
  const VariablePtr weights = testing::make_variable("weights", {8}, 1.0f);
  const ValueId gradient = graph.input("gradient", testing::f32({8}));
  const ValueId loss =
      testing::call(graph, "reduce_sum", {gradient}, {{"axes", Shape{0}}, {"keepdims", false}});
  const Attributes sgd = {{"count", int64_t{1}}, {"momentum", 0.0}, {"nesterov", false}};
  graph.assign(weights, testing::call(graph, "sgd_update",
                                      {graph.read(counter), graph.read(weights), gradient}, sgd));
  const ValueId one = graph.full(testing::f32({}), 1.0);
  graph.assign(metric, testing::call(graph, "add", {graph.read(metric), loss}));
  graph.assign(counter, testing::call(graph, "add", {graph.read(counter), one}));
  const auto program = Program::compile(graph, {}, Device{});
  const std::vector<Instruction> list = program->instructions(inputs_of(graph));
  CHECK_EQUAL(list.size(), 4u);
  // Each addition is an instruction of its own, and the metric's waits for the loss alone.
  const Dependencies found = find_dependencies(list, 1);
  const void* sum = metric->value().data();
  size_t writers = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i].outputs.front() != sum) continue;
    ++writers;
    CHECK_EQUAL(list[i].outputs.size(), 1u);
    CHECK_EQUAL(found[i].size(), 1u);
  }
  CHECK_EQUAL(writers, 1u);
}

}  // namespace kerascnn
