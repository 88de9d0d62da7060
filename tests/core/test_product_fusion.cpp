// CUDA's fusions that join products with the nodes around them. The kernels here run the matched
// nodes, so results must be the same to the bit.
#include <string>

#include "check.h"
#include "core/graph/passes/passes.h"
#include "fusion_testing.h"
#include "graph_testing.h"

namespace kerascnn {
namespace {

using testing::call;
using testing::check_same_results;
using testing::count_fused;
using testing::count_nodes;
using testing::f32;

constexpr std::string_view kGradient = "matmul_activation_grad";
constexpr std::string_view kLoss = "dense_sparse_softmax_cross_entropy";
constexpr std::string_view kHead = "dense_sparse_softmax_cross_entropy_dgrad";
constexpr std::string_view kDenseGradients = "dense_wgrad";
const PassOptions kAlways = testing::with_cuda_fusions();
// This leaves out the fusion that continues the loss's gradient through the last layer.
const PassOptions kNoHead = testing::with_cuda_fusions({kHead});
const Attributes kAll = {{"axes", Shape{}}, {"keepdims", false}};
const Attributes kPlain = {{"transpose_a", false}, {"transpose_b", false}};
const Attributes kOfKernel = {{"transpose_a", true}, {"transpose_b", false}};

Attributes over(int64_t axis, bool keepdims = false) {
  return {{"axes", Shape{axis}}, {"keepdims", keepdims}};
}

// A classifier with one hidden layer: its loss, other results that are asked for, and gradients.
struct Classifier {
  RootedGraph rooted;
  Graph& graph = rooted.graph;
  ValueId x = graph.input("x", f32({6, 7}));
  ValueId labels = graph.input("labels", {DType::Int32, {6}});
  ValueId w1 = graph.input("w1", f32({7, 5})), b1 = graph.input("b1", f32({5}));
  ValueId w2 = graph.input("w2", f32({5, 4})), b2 = graph.input("b2", f32({4}));
  ValueId hidden = kNoValue, logits = kNoValue, probabilities = kNoValue, loss = kNoValue;

  explicit Classifier(std::string_view activation = "relu", const Attributes& parameters = {},
                      bool has_bias = true) {
    hidden = call(graph, "matmul", {x, w1}, kPlain);
    if (has_bias) hidden = call(graph, "add", {hidden, b1});
    hidden = call(graph, activation, {hidden}, parameters);
    logits = call(graph, "matmul", {hidden, w2}, kPlain);
    if (has_bias) logits = call(graph, "add", {logits, b2});
    probabilities = call(graph, "softmax", {logits}, {{"axis", int64_t{-1}}});
    loss = call(graph, "reduce_mean",
                {call(graph, "sparse_cross_entropy", {probabilities, labels}, {{"epsilon", 1e-7}})},
                kAll);
    rooted.outputs = graph.gradients(loss, {w1, w2});
    rooted.outputs.push_back(loss);
    rooted.outputs.push_back(probabilities);
  }
};

TEST(a_classifier_joins_its_last_layer_with_the_loss) {
  for (const bool has_bias : {true, false}) {
    Classifier net("relu", {}, has_bias);
    const RootedGraph apart = run_passes(net.rooted), joined = run_passes(net.rooted, kNoHead);
    CHECK_EQUAL(count_fused(apart.graph, kLoss), 0u);
    CHECK_EQUAL(count_fused(joined.graph, kLoss), 1u);
    CHECK_EQUAL(count_nodes(joined.graph, "sparse_softmax_cross_entropy"), 0u);
    CHECK_EQUAL(count_fused(joined.graph, kGradient), 1u);
    CHECK_EQUAL(count_nodes(joined.graph, "relu_grad"), 0u);
    check_same_results(apart, joined);
  }
}

TEST(activation_gradients_join_with_their_parameters) {
  const std::vector<std::pair<std::string, Attributes>> activations = {
      {"leaky_relu", {{"negative_slope", 0.25}}},
      {"clipped_relu", {{"max_value", 1.5}}},
      {"elu", {{"alpha", 0.5}}},
      {"sigmoid", {}},
      {"tanh", {}}};
  for (const auto& [activation, parameters] : activations) {
    Classifier net(activation, parameters);
    const RootedGraph joined = run_passes(net.rooted, kNoHead);
    CHECK_EQUAL(count_fused(joined.graph, kGradient), 1u);
    for (const Node& node : joined.graph.nodes()) {
      if (node.op->name != "fused" || node.attributes.get_string("fusion") != kGradient) continue;
      CHECK_EQUAL(node.attributes.get_string("ops"), "matmul+" + activation + "_grad");
    }
    check_same_results(run_passes(net.rooted), joined);
  }
}

TEST(an_activation_whose_gradient_needs_its_input_stays_apart) {
  Classifier net("silu");
  CHECK_EQUAL(count_fused(run_passes(net.rooted, kNoHead).graph, kGradient), 0u);
}

TEST(what_others_read_stays_apart) {
  Classifier net;
  net.rooted.outputs.push_back(net.logits);
  const RootedGraph joined = run_passes(net.rooted, kAlways);
  CHECK_EQUAL(count_fused(joined.graph, kLoss), 0u);
  CHECK_EQUAL(count_nodes(joined.graph, "sparse_softmax_cross_entropy"), 1u);
  check_same_results(run_passes(net.rooted), joined);
}

TEST(a_loss_whose_gradient_is_not_known_before_stays_apart) {
  // The gradient of a squared mean depends on the mean itself.
  Classifier net;
  const ValueId squared = call(net.graph, "square", {net.loss});
  net.rooted.outputs = net.graph.gradients(squared, {net.w1, net.w2});
  const RootedGraph joined = run_passes(net.rooted, kAlways);
  CHECK_EQUAL(count_fused(joined.graph, kLoss), 0u);
  check_same_results(run_passes(net.rooted), joined);
}

TEST(gradients_of_kernels_join_with_those_of_biases) {
  Classifier net;
  net.rooted.outputs = net.graph.gradients(net.loss, {net.w1, net.b1, net.w2, net.b2});
  net.rooted.outputs.push_back(net.loss);
  const RootedGraph apart = run_passes(net.rooted), joined = run_passes(net.rooted, kAlways);
  CHECK_EQUAL(count_fused(apart.graph, kDenseGradients), 0u);
  CHECK_EQUAL(count_fused(joined.graph, kDenseGradients), 2u);
  CHECK_EQUAL(count_nodes(joined.graph, "reduce_sum"), 0u);
  CHECK_EQUAL(count_nodes(joined.graph, "matmul"), 0u);
  check_same_results(apart, joined);
}

// A matrix x and a gradient g. Only one fusion is applied, so the order of the nodes stays.
struct DenseGradients {
  RootedGraph rooted;
  Graph& graph = rooted.graph;
  ValueId x = graph.input("x", f32({6, 7})), g = graph.input("g", f32({6, 4}));

  ValueId kernel(ValueId of) { return call(graph, "matmul", {of, g}, kOfKernel); }
  ValueId bias(const Attributes& axes) { return call(graph, "reduce_sum", {g}, axes); }

  void check_joined(size_t count) {
    const RootedGraph joined = testing::fuse(rooted, {&testing::cuda_fusion(kDenseGradients)});
    CHECK_EQUAL(count_fused(joined.graph, kDenseGradients), count);
    check_same_results(rooted, joined);
  }
};

TEST(gradients_of_kernel_and_bias_join_in_any_order) {
  for (const Attributes& axes : {over(0), over(-2), over(0, true), over(-2, true)}) {
    for (const bool bias_first : {true, false}) {
      // Other nodes read each result before the other one is computed, and each is an output.
      DenseGradients net;
      for (const bool is_bias : {bias_first, !bias_first}) {
        const ValueId value = is_bias ? net.bias(axes) : net.kernel(net.x);
        net.rooted.outputs.push_back(value);
        net.rooted.outputs.push_back(call(net.graph, "tanh", {value}));
      }
      net.check_joined(1);
    }
  }
}

TEST(an_input_that_is_known_after_the_sum_keeps_the_two_apart) {
  DenseGradients net;
  const ValueId sum = net.bias(over(0));
  net.rooted.outputs = {sum, net.kernel(call(net.graph, "add", {net.g, sum}))};
  net.check_joined(0);
}

TEST(a_sum_joins_with_one_kernel_only) {
  DenseGradients net;
  const ValueId late = call(net.graph, "tanh", {net.x});
  net.rooted.outputs = {net.kernel(net.x), net.kernel(late), net.bias(over(0))};
  net.check_joined(1);
  CHECK_EQUAL(count_nodes(testing::fuse(net.rooted, {&testing::cuda_fusion(kDenseGradients)}).graph,
                          "matmul"),
              1u);
}

TEST(other_sums_and_products_stay_apart) {
  DenseGradients net;
  const ValueId kernel = net.kernel(net.x);
  net.rooted.outputs = {kernel, net.bias(over(1)), net.bias(over(-1, true)), net.bias(kAll)};
  net.check_joined(0);

  DenseGradients turned;
  Graph& graph = turned.graph;
  const ValueId other = graph.input("other", f32({4, 6})), cube = graph.input("c", f32({2, 6, 4}));
  turned.rooted.outputs = {
      call(graph, "matmul", {other, turned.g}, kPlain),
      call(graph, "matmul", {turned.x, other}, {{"transpose_a", true}, {"transpose_b", true}}),
      call(graph, "matmul", {cube, cube}, kOfKernel),
      call(graph, "reduce_sum", {cube}, over(0)),
      call(graph, "reduce_sum", {other}, over(0)),
      turned.bias(over(0))};
  turned.check_joined(0);
}

}  // namespace
}  // namespace kerascnn
