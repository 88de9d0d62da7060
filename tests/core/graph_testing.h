// What the tests of core/graph share: short names for tracing, and random graphs.
#pragma once

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "core/graph/graph.h"
#include "core/graph/program.h"
#include "core/graph/rooted_graph.h"
#include "core/tensor/tensor.h"

namespace kerascnn::testing {

inline TensorSpec f32(Shape shape) { return {DType::Float32, std::move(shape)}; }

inline ValueId call(Graph& graph, std::string_view op, const std::vector<ValueId>& inputs,
                    const Attributes& attributes = {}) {
  return graph.apply(op, inputs, attributes).front();
}

inline VariablePtr make_variable(const std::string& name, const Shape& shape, float first) {
  std::vector<float> data(static_cast<size_t>(num_elements(shape)));
  for (size_t i = 0; i < data.size(); ++i) data[i] = first + 0.25f * static_cast<float>(i);
  return std::make_shared<Variable>(name, Tensor::from_host(data.data(), f32(shape), Device{}));
}

inline std::vector<float> floats(const Tensor& tensor) {
  std::vector<float> data(static_cast<size_t>(tensor.size()));
  tensor.copy_to_host(data.data());
  return data;
}

inline Tensor random_tensor(const Shape& shape, std::mt19937& random) {
  std::uniform_real_distribution<float> uniform(-2.0f, 2.0f);
  std::vector<float> data(static_cast<size_t>(num_elements(shape)));
  for (float& value : data) value = uniform(random);
  return Tensor::from_host(data.data(), f32(shape), Device{});
}

inline size_t count_nodes(const Graph& graph, std::string_view op) {
  size_t count = 0;
  for (const Node& node : graph.nodes()) count += node.op->name == op ? 1 : 0;
  return count;
}

// The outputs of the graph for inputs that are the same in each call: int32 inputs are small
// labels, and int64 inputs are a random state.
inline std::vector<std::vector<float>> results(const RootedGraph& rooted) {
  std::mt19937 random(11);
  std::vector<Tensor> inputs;
  for (ValueId id : rooted.graph.inputs()) {
    const TensorSpec& spec = rooted.graph.value(id).spec;
    const std::vector<int32_t> labels = {0, 3, 1, 4, 2, 0};
    const std::vector<int64_t> state = {7, 123};
    inputs.push_back(spec.dtype == DType::Float32 ? random_tensor(spec.shape, random)
                     : spec.dtype == DType::Int32
                         ? Tensor::from_host(labels.data(), spec, Device{})
                         : Tensor::from_host(state.data(), spec, Device{}));
  }
  auto program = Program::compile(rooted.graph, rooted.outputs, Device{}, {.optimize = false});
  program->run(inputs);
  std::vector<std::vector<float>> all;
  for (const Tensor& output : program->outputs()) all.push_back(floats(output));
  return all;
}

// The results have to agree to the bit.
inline void check_same_results(const RootedGraph& a, const RootedGraph& b) {
  const auto expected = results(a), received = results(b);
  CHECK_EQUAL(expected.size(), received.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    CHECK_EQUAL(expected[i].size(), received[i].size());
    CHECK(std::memcmp(expected[i].data(), received[i].data(), expected[i].size() * sizeof(float)) ==
          0);
  }
}

// A graph of random ops over 4x4 matrices, (4,) vectors and scalars, with variables that are read,
// updated in place, swapped and assigned more than once.
struct RandomGraph {
  explicit RandomGraph(unsigned seed, int num_nodes = 60) : random(seed) {
    matrices = {rooted.graph.input("a", f32({4, 4})), rooted.graph.input("b", f32({4, 4}))};
    vectors = {rooted.graph.input("v", f32({4}))};
    for (int i = 0; i < 4; ++i) {
      variables.push_back(
          make_variable("variable_" + std::to_string(i), {4, 4}, 0.1f * static_cast<float>(i + 1)));
      matrices.push_back(rooted.graph.read(variables.back()));
    }
    for (int i = 0; i < num_nodes; ++i) add_node();
    for (int i = 0; i < 3; ++i) rooted.outputs.push_back(pick(matrices));
    rooted.outputs.push_back(pick(vectors));
  }

  int below(int count) { return static_cast<int>(random() % static_cast<unsigned>(count)); }
  // Late values are picked more often than early ones, so that graphs become deep.
  ValueId pick(const std::vector<ValueId>& values) {
    const int size = static_cast<int>(values.size());
    return values[below(2) == 0 ? below(size) : size - 1 - below(std::min(size, 4))];
  }

  void add_node() {
    Graph& graph = rooted.graph;
    switch (below(14)) {
      case 0:
        return matrices.push_back(call(graph, "add", {pick(matrices), pick(matrices)}));
      case 1:
        return matrices.push_back(call(graph, "subtract", {pick(matrices), pick(vectors)}));
      case 2:
        return matrices.push_back(call(graph, "tanh", {pick(matrices)}));
      case 3:
        return matrices.push_back(call(graph, "multiply", {pick(matrices), pick(matrices)}));
      case 4:
        return matrices.push_back(call(graph, "tanh",
                                       {call(graph, "matmul", {pick(matrices), pick(matrices)},
                                             {{"transpose_a", false}, {"transpose_b", false}})}));
      case 5:
        return vectors.push_back(call(graph, "reduce_mean", {pick(matrices)},
                                      {{"axes", Shape{below(2)}}, {"keepdims", false}}));
      case 6: {
        const ValueId flat = call(graph, "reshape", {pick(matrices)}, {{"shape", Shape{2, 8}}});
        const ValueId changed = call(graph, "sigmoid", {flat});
        return matrices.push_back(call(graph, "reshape", {changed}, {{"shape", Shape{4, 4}}}));
      }
      case 7:
        return matrices.push_back(
            call(graph, "softmax", {pick(matrices)}, {{"axis", int64_t{-1}}}));
      case 8: {
        const ValueId small = call(graph, "less", {pick(matrices), pick(matrices)});
        return matrices.push_back(call(graph, "where", {small, pick(matrices), pick(vectors)}));
      }
      case 9:
        return matrices.push_back(
            call(graph, "multiply", {pick(matrices), graph.full(f32({}), 0.25 * below(5))}));
      case 10:
        return vectors.push_back(call(graph, "tanh", {pick(vectors)}));
      case 11:
        return graph.assign(pick_variable(), pick(matrices));
      case 12: {
        // One buffer is read under two shapes.
        const ValueId x = pick(vectors);
        const ValueId row = call(graph, "reshape", {x}, {{"shape", Shape{1, 4}}});
        const ValueId sum = call(graph, "tanh", {call(graph, "add", {row, x})});
        return vectors.push_back(call(graph, "reshape", {sum}, {{"shape", Shape{4}}}));
      }
      default:
        return update_variables();
    }
  }

  const VariablePtr& pick_variable() { return variables[static_cast<size_t>(below(4))]; }

  void update_variables() {
    Graph& graph = rooted.graph;
    const VariablePtr& first = pick_variable();
    const VariablePtr& second = pick_variable();
    const ValueId old_first = graph.read(first), old_second = graph.read(second);
    if (below(2) == 0) {
      graph.assign(first, old_second);
      graph.assign(second, old_first);
    } else {
      graph.assign(first, call(graph, "add", {old_first, pick(matrices)}));
      matrices.push_back(old_first);  // nodes that read the old value may come after its update
    }
  }

  std::mt19937 random;
  RootedGraph rooted;
  std::vector<ValueId> matrices, vectors;
  std::vector<VariablePtr> variables;
};

}  // namespace kerascnn::testing
