// The passes at the end of a training step. One lets updates add up partial sums, of which the
// kernels here make three; the other gives the last gradients updates of their own.
#include <cstring>
#include <functional>
#include <string>

#include "check.h"
#include "core/graph/passes/passes.h"
#include "fusion_testing.h"
#include "graph_testing.h"

namespace kerascnn {
namespace {

using testing::call;
using testing::count_nodes;
using testing::f32;

const Attributes kProduct = {{"transpose_a", false}, {"transpose_b", false}};

const Fusion kSumming[] = {
    {"conv2d_max_pool2d_wgrad", pattern_conv2d_max_pool2d_wgrad, testing::plan_three_sums},
    {"conv2d_wgrad", cuda::pattern_conv2d_wgrad, testing::plan_three_sums}};

PassOptions options(bool runs_side_by_side = false) {
  PassOptions options = testing::with_fusions(kSumming);
  options.runs_side_by_side = runs_side_by_side;
  return options;
}

RootedGraph fold(const RootedGraph& rooted) {
  return eliminate_dead_code(fold_partial_sums(apply_fusions(rooted, options())));
}

Attributes convolution(const Shape& kernel) {
  return {{"strides", Shape{1, 1}},
          {"padding", Shape(4, 0)},
          {"dilations", Shape{1, 1}},
          {"groups", int64_t{1}},
          {"kernel_shape", kernel}};
}

// The variables, and what their updates need.
struct Step {
  RootedGraph rooted;
  Graph& graph = rooted.graph;
  ValueId rate = graph.input("rate", f32({}));
  std::vector<VariablePtr> parameters, slots;
  std::vector<ValueId> gradients;

  void train(const Shape& shape, ValueId gradient) {
    const auto number = static_cast<float>(parameters.size());
    parameters.push_back(testing::make_variable("parameter", shape, number));
    gradients.push_back(gradient);
  }

  void update_with_sgd(double momentum) {
    std::vector<VariablePtr> variables = parameters;
    std::vector<ValueId> inputs = {rate};
    for (const VariablePtr& variable : parameters) inputs.push_back(graph.read(variable));
    inputs.insert(inputs.end(), gradients.begin(), gradients.end());
    for (size_t i = 0; momentum > 0 && i < parameters.size(); ++i) {
      slots.push_back(testing::make_variable("slot", parameters[i]->value().spec().shape, -0.5f));
      variables.push_back(slots.back());
      inputs.push_back(graph.read(slots.back()));
    }
    const auto count = static_cast<int64_t>(parameters.size());
    assign(variables, graph.apply("sgd_update", inputs,
                                  {{"count", count}, {"momentum", momentum}, {"nesterov", true}}));
  }

  void update_with_adam() {
    const int64_t zero = 0;
    const auto iterations = std::make_shared<Variable>(
        "iterations", Tensor::from_host(&zero, {DType::Int64, {}}, Device{}));
    std::vector<VariablePtr> variables = parameters;
    std::vector<ValueId> inputs = {rate, graph.read(iterations)};
    for (const VariablePtr& variable : parameters) inputs.push_back(graph.read(variable));
    inputs.insert(inputs.end(), gradients.begin(), gradients.end());
    for (size_t i = 0; i < 2 * parameters.size(); ++i) {
      const Shape& shape = parameters[i % parameters.size()]->value().spec().shape;
      slots.push_back(testing::make_variable("slot", shape, 0.25f));
      variables.push_back(slots.back());
      inputs.push_back(graph.read(slots.back()));
    }
    const auto count = static_cast<int64_t>(parameters.size());
    const Attributes attributes = {
        {"count", count}, {"beta_1", 0.9}, {"beta_2", 0.99}, {"epsilon", 1e-7}};
    assign(variables, graph.apply("adam_update", inputs, attributes));
  }

  void assign(const std::vector<VariablePtr>& variables, const std::vector<ValueId>& values) {
    CHECK_EQUAL(variables.size(), values.size());
    for (size_t i = 0; i < values.size(); ++i) graph.assign(variables[i], values[i]);
  }

  // The values of all variables after two steps. The variables are restored then.
  std::vector<std::vector<float>> trained(const RootedGraph& program_graph) const {
    std::vector<Tensor> inputs;
    std::mt19937 random(7);
    for (ValueId id : program_graph.graph.inputs()) {
      const TensorSpec& spec = program_graph.graph.value(id).spec;
      if (spec.dtype == DType::UInt8) {
        std::vector<uint8_t> data(static_cast<size_t>(num_elements(spec.shape)));
        for (uint8_t& position : data) position = static_cast<uint8_t>(random() % 4);
        inputs.push_back(Tensor::from_host(data.data(), spec, Device{}));
      } else {
        inputs.push_back(testing::random_tensor(spec.shape, random));
      }
    }
    std::vector<VariablePtr> variables = parameters;
    variables.insert(variables.end(), slots.begin(), slots.end());
    std::vector<Tensor> before;
    for (const VariablePtr& variable : variables) {
      before.push_back(Tensor::empty(variable->value().spec(), Device{}));
      before.back().copy_from(variable->value());
    }
    auto program =
        Program::compile(program_graph.graph, program_graph.outputs, Device{}, {.optimize = false});
    program->run(inputs, 2);
    std::vector<std::vector<float>> all;
    for (size_t i = 0; i < variables.size(); ++i) {
      all.push_back(testing::floats(variables[i]->value()));
      variables[i]->assign(before[i]);
    }
    return all;
  }

  void check_same_training(const RootedGraph& changed) const {
    const auto expected = trained(rooted), received = trained(changed);
    for (size_t i = 0; i < expected.size(); ++i) {
      CHECK(std::memcmp(expected[i].data(), received[i].data(),
                        expected[i].size() * sizeof(float)) == 0);
    }
  }
};

// The convolution is (2, 6, 5, 2) -> (2, 4, 3, 4).
ValueId kernel_gradient(Step& step) {
  const ValueId x = step.graph.input("x", f32({2, 6, 5, 2}));
  const ValueId gy = step.graph.input("gy", f32({2, 4, 3, 4}));
  return call(step.graph, "conv2d_wgrad", {x, gy}, convolution({3, 3, 2, 4}));
}

// Traces the gradients of kernel and bias of a convolution with 2 x 2 max pooling.
std::vector<ValueId> pooled_gradients(Step& step, bool has_bias = true) {
  Graph& graph = step.graph;
  const ValueId x = graph.input("pooled_x", f32({2, 6, 6, 2}));
  const ValueId gy = graph.input("pooled_gy", f32({2, 2, 2, 4}));
  const ValueId y = graph.input("pooled_y", f32({2, 2, 2, 4}));
  const ValueId index = graph.input("index", {DType::UInt8, {2, 2, 2, 4}});
  const ValueId narrow = call(graph, "relu_grad", {gy, y});
  const ValueId wide = call(graph, "max_pool2d_grad", {narrow, index},
                            {{"window", Shape{2, 2}},
                             {"strides", Shape{2, 2}},
                             {"padding", Shape(4, 0)},
                             {"input_shape", Shape{2, 4, 4, 4}}});
  std::vector<ValueId> gradients = {
      call(graph, "conv2d_wgrad", {x, wide}, convolution({3, 3, 2, 4}))};
  if (has_bias) {
    gradients.push_back(
        call(graph, "reduce_sum", {narrow}, {{"axes", Shape{0, 1, 2}}, {"keepdims", false}}));
  }
  return gradients;
}

size_t count_stacks(const RootedGraph& rooted) {
  size_t count = 0;
  for (const Node& node : rooted.graph.nodes()) {
    if (!node.attributes.has("copies")) continue;
    CHECK_EQUAL(node.attributes.get_int("copies"), 3);
    ++count;
  }
  return count;
}

TEST(updates_add_up_partial_sums) {
  for (const double momentum : {0.0, 0.75, -1.0}) {  // -1 stands for Adam
    Step step;
    step.train({3, 3, 2, 4}, kernel_gradient(step));
    step.train({2, 3}, step.graph.input("plain", f32({2, 3})));
    const std::vector<ValueId> pooled = pooled_gradients(step);
    step.train({3, 3, 2, 4}, pooled[0]);
    step.train({4}, pooled[1]);
    if (momentum < 0) {
      step.update_with_adam();
    } else {
      step.update_with_sgd(momentum);
    }
    const RootedGraph folded = fold(step.rooted);
    CHECK_EQUAL(count_stacks(folded), 2u);
    // Two gradients and the update are left.
    CHECK_EQUAL(folded.graph.nodes().size(), 3u);
    step.check_same_training(folded);
    CHECK_EQUAL(count_stacks(run_passes(step.rooted, options())), 2u);
    CHECK_EQUAL(count_stacks(run_passes(step.rooted)), 0u);
  }
}

TEST(a_stack_takes_the_shape_of_its_parameter) {
  Step step;
  const std::vector<ValueId> pooled = pooled_gradients(step);
  const ValueId wide = call(step.graph, "reshape", {pooled[1]}, {{"shape", Shape{1, 1, 1, 4}}});
  step.train({3, 3, 2, 4}, pooled[0]);
  step.train({2, 2}, call(step.graph, "reshape", {wide}, {{"shape", Shape{2, 2}}}));
  step.update_with_sgd(0.0);
  const RootedGraph folded = fold(step.rooted);
  CHECK_EQUAL(count_stacks(folded), 1u);
  CHECK_EQUAL(count_nodes(folded.graph, "reshape"), 1u);
  step.check_same_training(folded);
}

TEST(a_layer_without_a_bias_has_one_stack) {
  Step step;
  step.train({3, 3, 2, 4}, pooled_gradients(step, false)[0]);
  step.update_with_sgd(0.5);
  const RootedGraph folded = fold(step.rooted);
  CHECK_EQUAL(count_stacks(folded), 1u);
  step.check_same_training(folded);
}

TEST(a_gradient_that_others_need_is_summed_where_it_is_made) {
  const std::vector<std::function<void(Step&)>> users = {
      [](Step& step) { step.rooted.outputs = {step.gradients[0]}; },
      [](Step& step) { step.rooted.outputs = {call(step.graph, "square", {step.gradients[1]})}; },
      [](Step& step) { step.gradients[1] = call(step.graph, "tanh", {step.gradients[1]}); },
      [](Step& step) { step.gradients[2] = step.gradients[0]; },
      [](Step& step) {
        const ValueId flat =
            call(step.graph, "reshape", {step.gradients[0]}, {{"shape", Shape{72}}});
        step.rooted.outputs = {
            call(step.graph, "reduce_sum", {flat}, {{"axes", Shape{0}}, {"keepdims", false}})};
      },
  };
  for (const auto& use : users) {
    Step step;
    const std::vector<ValueId> pooled = pooled_gradients(step);
    step.train({3, 3, 2, 4}, pooled[0]);
    step.train({4}, pooled[1]);
    step.train({3, 3, 2, 4}, step.graph.input("plain", f32({3, 3, 2, 4})));
    use(step);
    step.update_with_sgd(0.0);
    CHECK_EQUAL(count_stacks(fold(step.rooted)), 0u);
  }
}

TEST(a_device_without_partial_sums_keeps_its_gradients) {
  Step step;
  step.train({3, 3, 2, 4}, kernel_gradient(step));
  step.update_with_sgd(0.0);
  CHECK_EQUAL(count_stacks(fold_partial_sums(step.rooted)), 0u);
  // These kernels make the whole sum themselves.
  const PassOptions whole = testing::with_cuda_fusions();
  CHECK_EQUAL(count_stacks(fold_partial_sums(apply_fusions(step.rooted, whole))), 0u);
}

// The gradients are known after one, two and three products.
void train_in_turn(Step& step, int last) {
  ValueId x = step.graph.input("x", f32({3, 3}));
  const ValueId weight = step.graph.input("weight", f32({3, 3}));
  for (int i = 0; i < last; ++i) {
    x = call(step.graph, "matmul", {x, weight}, kProduct);
    step.train({3, 3}, x);
  }
}

TEST(the_last_gradients_have_an_update_of_their_own) {
  for (const bool adam : {false, true}) {
    Step step;
    train_in_turn(step, 3);
    step.train({9}, call(step.graph, "reshape", {step.gradients[2]}, {{"shape", Shape{9}}}));
    step.train({3, 3}, step.graph.input("plain", f32({3, 3})));
    adam ? step.update_with_adam() : step.update_with_sgd(0.5);
    const RootedGraph split = split_updates(step.rooted, options(true));
    const std::string_view op = adam ? "adam_update" : "sgd_update";
    std::vector<int64_t> counts;
    for (const Node& node : split.graph.nodes()) {
      if (node.op->name == op) counts.push_back(node.attributes.get_int("count"));
    }
    CHECK((counts == std::vector<int64_t>{3, 2}));
    step.check_same_training(split);
    CHECK_EQUAL(count_nodes(split_updates(step.rooted, options(false)).graph, op), 1u);
  }
}

TEST(gradients_of_one_time_are_updated_together) {
  Step step;
  train_in_turn(step, 1);
  step.train({3, 3}, call(step.graph, "square", {step.graph.input("z", f32({3, 3}))}));
  step.update_with_sgd(0.0);
  const RootedGraph same = split_updates(step.rooted, options(true));
  CHECK_EQUAL(count_nodes(same.graph, "sgd_update"), 1u);
}

TEST(only_the_update_that_waits_longest_is_split) {
  Step step;
  train_in_turn(step, 2);
  step.update_with_sgd(0.0);
  step.parameters.clear();
  step.gradients.clear();
  train_in_turn(step, 3);
  step.update_with_sgd(0.0);
  const RootedGraph split = split_updates(step.rooted, options(true));
  CHECK_EQUAL(count_nodes(split.graph, "sgd_update"), 3u);
  step.check_same_training(split);
}

TEST(a_step_without_updates_stays_as_it_is) {
  RootedGraph rooted;
  rooted.outputs = {call(rooted.graph, "tanh", {rooted.graph.input("x", f32({2}))})};
  CHECK_EQUAL(fold_partial_sums(rooted).graph.to_string(), rooted.graph.to_string());
  CHECK_EQUAL(split_updates(rooted, options(true)).graph.to_string(), rooted.graph.to_string());
}

}  // namespace
}  // namespace kerascnn
