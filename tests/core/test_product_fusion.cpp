// The passes that join products with what follows them, on a device that claims to gain from it.
// The ops that they make run the kernels of their parts there, so results keep their bits.
#include <cstring>
#include <string>

#include "check.h"
#include "core/graph/passes/passes.h"
#include "graph_testing.h"

namespace kerascnn {
namespace {

using testing::call;
using testing::count_nodes;
using testing::f32;

constexpr std::string_view kGradient = "matmul_activation_grad";
constexpr std::string_view kLoss = "dense_sparse_softmax_cross_entropy";
const PassOptions kAlways = {true, [](const PlanRequest&) { return true; }};
const Attributes kAll = {{"axes", Shape{}}, {"keepdims", false}};
const Attributes kPlain = {{"transpose_a", false}, {"transpose_b", false}};

// A classifier with one hidden layer: its loss, what is asked for beside it, and gradients.
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

std::vector<std::vector<float>> results(const RootedGraph& rooted) {
  std::mt19937 random(11);
  std::vector<Tensor> inputs;
  for (ValueId id : rooted.graph.inputs()) {
    const TensorSpec& spec = rooted.graph.value(id).spec;
    if (spec.dtype == DType::Float32) {
      inputs.push_back(testing::random_tensor(spec.shape, random));
    } else {
      const std::vector<int32_t> labels = {0, 3, 1, 1, 2, 0};
      inputs.push_back(Tensor::from_host(labels.data(), spec, Device{}));
    }
  }
  auto program = Program::compile(rooted.graph, rooted.outputs, Device{}, {.optimize = false});
  program->run(inputs);
  std::vector<std::vector<float>> all;
  for (const Tensor& output : program->outputs()) all.push_back(testing::floats(output));
  return all;
}

void check_same_results(const RootedGraph& a, const RootedGraph& b) {
  const auto expected = results(a), received = results(b);
  CHECK_EQUAL(expected.size(), received.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    CHECK_EQUAL(expected[i].size(), received[i].size());
    CHECK(std::memcmp(expected[i].data(), received[i].data(), expected[i].size() * sizeof(float)) ==
          0);
  }
}

TEST(a_classifier_joins_its_last_layer_with_the_loss) {
  for (const bool has_bias : {true, false}) {
    Classifier net("relu", {}, has_bias);
    const RootedGraph apart = run_passes(net.rooted), joined = run_passes(net.rooted, kAlways);
    CHECK_EQUAL(count_nodes(apart.graph, kLoss), 0u);
    CHECK_EQUAL(count_nodes(joined.graph, kLoss), 1u);
    CHECK_EQUAL(count_nodes(joined.graph, "sparse_softmax_cross_entropy"), 0u);
    CHECK_EQUAL(count_nodes(joined.graph, kGradient), 1u);
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
    const RootedGraph joined = run_passes(net.rooted, kAlways);
    CHECK_EQUAL(count_nodes(joined.graph, kGradient), 1u);
    for (const Node& node : joined.graph.nodes()) {
      if (node.op->name == kGradient) {
        CHECK_EQUAL(node.attributes.get_string("activation"), activation);
      }
    }
    check_same_results(run_passes(net.rooted), joined);
  }
}

TEST(an_activation_whose_gradient_needs_its_input_stays_apart) {
  Classifier net("silu");
  CHECK_EQUAL(count_nodes(run_passes(net.rooted, kAlways).graph, kGradient), 0u);
}

TEST(what_others_read_stays_apart) {
  Classifier net;
  net.rooted.outputs.push_back(net.logits);
  const RootedGraph joined = run_passes(net.rooted, kAlways);
  CHECK_EQUAL(count_nodes(joined.graph, kLoss), 0u);
  CHECK_EQUAL(count_nodes(joined.graph, "sparse_softmax_cross_entropy"), 1u);
  check_same_results(run_passes(net.rooted), joined);
}

TEST(a_loss_whose_gradient_is_not_known_before_stays_apart) {
  // The gradient of a squared mean depends on the mean.
  Classifier net;
  const ValueId squared = call(net.graph, "square", {net.loss});
  net.rooted.outputs = net.graph.gradients(squared, {net.w1, net.w2});
  const RootedGraph joined = run_passes(net.rooted, kAlways);
  CHECK_EQUAL(count_nodes(joined.graph, kLoss), 0u);
  check_same_results(run_passes(net.rooted), joined);
}

TEST(the_device_is_asked) {
  Classifier net;
  const RootedGraph joined =
      run_passes(net.rooted, {true, [](const PlanRequest& r) { return r.op.name == kLoss; }});
  CHECK_EQUAL(count_nodes(joined.graph, kLoss), 1u);
  CHECK_EQUAL(count_nodes(joined.graph, kGradient), 0u);
  const RootedGraph inference = run_passes(net.rooted);
  CHECK_EQUAL(count_nodes(inference.graph, kLoss), 0u);
}

}  // namespace
}  // namespace kerascnn
