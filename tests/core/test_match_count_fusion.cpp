// The pass that makes count_matches of what a classifier's accuracy is traced as, on a device that
// claims to gain from it. The op runs the kernels of its parts there.
#include <limits>
#include <string>

#include "check.h"
#include "core/graph/passes/passes.h"
#include "graph_testing.h"

namespace kerascnn {
namespace {

using testing::call;
using testing::count_nodes;
using testing::f32;

constexpr std::string_view kCount = "count_matches";
const PassOptions kAlways = {true, [](const PlanRequest&) { return true; }};
const Attributes kSum = {{"axes", Shape{0}}, {"keepdims", false}};

Attributes to(DType dtype) { return {{"dtype", std::string(dtype_name(dtype))}}; }

// As accuracy metrics trace it. Each part may be replaced before finish().
struct Accuracy {
  RootedGraph rooted;
  Graph& graph = rooted.graph;
  ValueId scores = graph.input("scores", f32({6, 4}));
  ValueId labels = kNoValue, place = kNoValue, matches = kNoValue, total = kNoValue;

  explicit Accuracy(DType dtype = DType::Int32) {
    labels = graph.input("labels", {dtype, {6}});
    place = call(graph, "argmax", {scores}, {{"axis", int64_t{1}}});
    if (dtype != DType::Int32) place = call(graph, "cast", {place}, to(dtype));
    compare(labels, place);
  }

  void compare(ValueId a, ValueId b) {
    matches = call(graph, "cast", {call(graph, "equal", {a, b})}, to(DType::Float32));
    total = call(graph, "reduce_sum", {matches}, kSum);
    rooted.outputs = {total};
  }
};

// Predictions 1, 2, 0, 3, 2 (the first NaN), 1; labels 1, 2, 1, 3, 2, 9.
Tensor scores_tensor() {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> data = {0, 5, 5, 1, 0, 1, 7,   2,   3, 1, 0, 2,
                                   0, 0, 0, 1, 9, 0, nan, nan, 0, 1, 0, 0};
  return Tensor::from_host(data.data(), f32({6, 4}), Device{});
}

template <typename T>
Tensor labels_tensor(DType dtype) {
  const std::vector<T> data = {1, 2, 1, 3, 2, 9};
  return Tensor::from_host(data.data(), {dtype, {6}}, Device{});
}

Tensor labels_tensor(DType dtype) {
  if (dtype == DType::Int64) return labels_tensor<int64_t>(dtype);
  if (dtype == DType::Float32) return labels_tensor<float>(dtype);
  return labels_tensor<int32_t>(dtype);
}

float result(const RootedGraph& rooted, const std::vector<Tensor>& inputs) {
  auto program = Program::compile(rooted.graph, rooted.outputs, Device{}, {.optimize = false});
  program->run(inputs);
  return testing::floats(program->outputs().back()).at(0);
}

size_t counts(const RootedGraph& rooted) {
  return count_nodes(run_passes(rooted, kAlways).graph, kCount);
}

TEST(the_accuracy_of_a_classifier_becomes_one_node) {
  for (const DType dtype : {DType::Int32, DType::Int64, DType::Float32}) {
    for (const bool labels_first : {true, false}) {
      Accuracy net(dtype);
      if (!labels_first) net.compare(net.place, net.labels);
      const RootedGraph joined = run_passes(net.rooted, kAlways);
      CHECK_EQUAL(joined.graph.nodes().size(), 1u);
      CHECK_EQUAL(count_nodes(joined.graph, kCount), 1u);
      const std::vector<Tensor> inputs = {scores_tensor(), labels_tensor(dtype)};
      CHECK_EQUAL(result(joined, inputs), 4.0f);
      CHECK_EQUAL(result(net.rooted, inputs), 4.0f);
    }
  }
}

TEST(labels_may_be_what_other_ops_give) {
  // A column of labels, and classes that are the places of ones.
  Accuracy column;
  const ValueId wide = column.graph.input("wide", {DType::Int64, {6, 1}});
  const ValueId flat = call(column.graph, "reshape", {wide}, {{"shape", Shape{6}}});
  column.compare(call(column.graph, "cast", {flat}, to(DType::Int32)), column.place);
  CHECK_EQUAL(counts(column.rooted), 1u);

  Accuracy hot;
  const ValueId ones = hot.graph.input("ones", f32({6, 4}));
  hot.compare(call(hot.graph, "argmax", {ones}, {{"axis", int64_t{-1}}}), hot.place);
  const RootedGraph joined = run_passes(hot.rooted, kAlways);
  CHECK_EQUAL(count_nodes(joined.graph, kCount), 1u);
  CHECK_EQUAL(count_nodes(joined.graph, "argmax"), 1u);
  CHECK_EQUAL(joined.graph.nodes().back().inputs[0], hot.scores);
}

TEST(weighted_matches_stay_apart) {
  Accuracy net;
  const ValueId weights = net.graph.input("weights", f32({6}));
  const ValueId weighted = call(net.graph, "multiply", {net.matches, weights});
  net.rooted.outputs = {call(net.graph, "reduce_sum", {weighted}, kSum)};
  CHECK_EQUAL(counts(net.rooted), 0u);
}

TEST(accuracy_parts_that_others_read_stay_apart) {
  for (const bool of_place : {true, false}) {
    Accuracy net;
    net.rooted.outputs.push_back(of_place ? net.place : net.matches);
    CHECK_EQUAL(counts(net.rooted), 0u);
  }
}

TEST(other_counts_stay_apart) {
  // Along the rows' axis, with the axis kept, of one label for all rows, and not of float32.
  const Attributes kept = {{"axes", Shape{0}}, {"keepdims", true}};
  Accuracy along;
  const ValueId square = along.graph.input("square", f32({6, 6}));
  along.compare(along.labels, call(along.graph, "argmax", {square}, {{"axis", int64_t{0}}}));
  CHECK_EQUAL(counts(along.rooted), 0u);

  Accuracy whole;
  whole.rooted.outputs = {call(whole.graph, "reduce_sum", {whole.matches}, kept)};
  CHECK_EQUAL(counts(whole.rooted), 0u);

  Accuracy one;
  one.compare(one.graph.input("label", {DType::Int32, {1}}), one.place);
  CHECK_EQUAL(counts(one.rooted), 0u);

  Accuracy exact;
  const ValueId wide = call(exact.graph, "cast", {exact.matches}, to(DType::Float64));
  exact.rooted.outputs = {call(exact.graph, "reduce_sum", {wide}, kSum)};
  CHECK_EQUAL(counts(exact.rooted), 0u);
}

TEST(accuracy_asks_the_device) {
  Accuracy net;
  CHECK_EQUAL(count_nodes(run_passes(net.rooted).graph, kCount), 0u);
  const PassOptions never = {true, [](const PlanRequest&) { return false; }};
  CHECK_EQUAL(count_nodes(run_passes(net.rooted, never).graph, kCount), 0u);
  CHECK_EQUAL(count_nodes(run_passes(net.rooted, never).graph, "region"), 1u);
}

}  // namespace
}  // namespace kerascnn
