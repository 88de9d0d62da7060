// The fusions that join a convolution with max pooling, which both backends have. The kernels here
// run the matched nodes, so results must be the same to the bit.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "check.h"
#include "core/graph/passes/passes.h"
#include "fusion_testing.h"
#include "graph_testing.h"

namespace kerascnn {
namespace {

using testing::call;
using testing::count_fused;
using testing::count_nodes;
using testing::f32;

const Attributes kAll = {{"axes", Shape{}}, {"keepdims", false}};
const Attributes kPositions = {{"axes", Shape{0, 1, 2}}, {"keepdims", false}};
const Attributes kHalves = {
    {"window", Shape{2, 2}}, {"strides", Shape{2, 2}}, {"padding", Shape(4, 0)}};
const Attributes kOverlapping = {
    {"window", Shape{3, 3}}, {"strides", Shape{2, 2}}, {"padding", Shape{1, 0, 0, 1}}};

const PassOptions kAlways = testing::with_fusions(testing::kCpuFusions);

Attributes convolution(int64_t padding = 0, int64_t groups = 1) {
  return {
      {"strides", Shape{1, 1}}, {"padding", Shape(4, padding)},        {"dilations", Shape{1, 1}},
      {"groups", groups},       {"activation", std::string("linear")}, {"activation_alpha", 0.0}};
}

std::vector<Tensor> random_inputs(const Graph& graph) {
  std::mt19937 random(7);
  std::vector<Tensor> inputs;
  for (ValueId id : graph.inputs()) {
    const TensorSpec& spec = graph.value(id).spec;
    if (spec.dtype == DType::Float32) {
      inputs.push_back(testing::random_tensor(spec.shape, random));
    } else {
      std::vector<int32_t> labels(static_cast<size_t>(num_elements(spec.shape)));
      for (int32_t& label : labels) label = static_cast<int32_t>(random() % 5);
      inputs.push_back(Tensor::from_host(labels.data(), spec, Device{}));
    }
  }
  return inputs;
}

std::vector<std::vector<float>> results(const RootedGraph& rooted) {
  auto program = Program::compile(rooted.graph, rooted.outputs, Device{}, {.optimize = false});
  program->run(random_inputs(rooted.graph));
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

size_t count_fused(const Graph& graph) { return count_nodes(graph, "fused"); }

const Fusion& conv_fusion(std::string_view name) {
  return *std::find_if(std::begin(testing::kCpuFusions), std::end(testing::kCpuFusions),
                       [&](const Fusion& fusion) { return fusion.name == name; });
}

void check_unfused(const RootedGraph& rooted, const PassOptions& options = kAlways) {
  CHECK_EQUAL(run_passes(rooted, options).graph.to_string(), run_passes(rooted).graph.to_string());
}

// Traces the loss of a classifier with two convolutions, and its gradients for all weights.
RootedGraph classifier(std::string_view activation, const Attributes& parameters,
                       const Attributes& pool, bool has_bias = true) {
  RootedGraph rooted;
  Graph& graph = rooted.graph;
  ValueId x = graph.input("x", f32({4, 13, 13, 2}));
  const ValueId labels = graph.input("labels", {DType::Int32, {4}});
  std::vector<ValueId> weights;
  for (const Shape& shape : {Shape{3, 3, 2, 4}, Shape{3, 3, 4, 6}}) {
    weights.push_back(graph.input("kernel", f32(shape)));
    x = call(graph, "conv2d", {x, weights.back()}, convolution(1));
    if (has_bias) {
      weights.push_back(graph.input("bias", f32({shape[3]})));
      x = call(graph, "add", {x, weights.back()});
    }
    if (activation != "linear") x = call(graph, activation, {x}, parameters);
    x = call(graph, "max_pool2d", {x}, pool);
  }
  const int64_t features = num_elements(graph.value(x).spec.shape) / 4;
  x = call(graph, "reshape", {x}, {{"shape", Shape{4, features}}});
  weights.push_back(graph.input("kernel", f32({features, 5})));
  x = call(graph, "matmul", {x, weights.back()}, {{"transpose_a", false}, {"transpose_b", false}});
  x = call(graph, "softmax", {x}, {{"axis", int64_t{-1}}});
  x = call(graph, "sparse_cross_entropy", {x, labels}, {{"epsilon", 1e-7}});
  const ValueId loss = call(graph, "reduce_mean", {x}, kAll);
  rooted.outputs = graph.gradients(loss, weights);
  rooted.outputs.push_back(loss);
  return rooted;
}

TEST(a_train_step_joins_convolutions_with_their_pooling) {
  const Attributes slope = {{"negative_slope", 0.25}}, limit = {{"max_value", 1.5}};
  const Attributes alpha = {{"alpha", 0.5}};
  const std::vector<std::pair<std::string, Attributes>> activations = {
      {"linear", {}}, {"relu", {}},    {"leaky_relu", slope}, {"clipped_relu", limit},
      {"elu", alpha}, {"sigmoid", {}}, {"tanh", {}}};
  for (const auto& [activation, parameters] : activations) {
    for (const Attributes& pool : {kHalves, kOverlapping}) {
      for (const bool has_bias : {true, false}) {
        const RootedGraph traced = classifier(activation, parameters, pool, has_bias);
        const RootedGraph apart = run_passes(traced), joined = run_passes(traced, kAlways);
        CHECK_EQUAL(count_fused(apart.graph), 0u);
        CHECK_EQUAL(count_fused(joined.graph, "conv2d_max_pool2d"), 2u);
        // Nobody asks for the gradient of the images.
        CHECK_EQUAL(count_fused(joined.graph, "conv2d_max_pool2d_dgrad"), 1u);
        CHECK_EQUAL(count_fused(joined.graph, "conv2d_max_pool2d_wgrad"), 2u);
        const std::string gradient = activation + "_grad";
        for (const char* gone : {"conv2d", "conv2d_dgrad", "conv2d_wgrad", "max_pool2d",
                                 "max_pool2d_grad", "reduce_sum", gradient.c_str()}) {
          CHECK_EQUAL(count_nodes(joined.graph, gone), 0u);
        }
        check_same_results(apart, joined);
      }
    }
  }
}

// The geometry is what a kernel is planned from.
std::unique_ptr<Kernel> check_geometry(const Match& match) {
  const Conv2DMaxPool2DGeometry g = conv_pool_geometry(match);
  CHECK(g.activation.kind == Activation::LeakyRelu);
  CHECK_EQUAL(g.activation.alpha, 0.25);
  CHECK_EQUAL(g.conv.batch, 4);
  CHECK_EQUAL(g.conv.pad_left, 1);
  CHECK(g.pool.input_shape() == g.conv.output_shape());
  CHECK_EQUAL(g.pool.window_height, 3);
  CHECK_EQUAL(g.pool.stride_width, 2);
  CHECK_EQUAL(g.pool.pad_top, 1);
  CHECK_EQUAL(g.pool.pad_bottom, 0);
  const bool is_first = g.conv.input_channels == 2;
  CHECK_EQUAL(g.conv.output_channels, is_first ? 4 : 6);
  CHECK_EQUAL(g.conv.input_height, is_first ? 13 : 6);
  if (match.has("gy")) {
    const ConvPoolArguments at(match);
    CHECK(at.gy != at.y && at.y != at.index && at.gy != at.index);
  }
  return match.plan_body();
}

TEST(kernels_know_the_geometry_of_the_parts) {
  std::vector<Fusion> checked(std::begin(testing::kCpuFusions), std::end(testing::kCpuFusions));
  for (Fusion& fusion : checked) fusion.plan = check_geometry;
  const RootedGraph joined =
      run_passes(classifier("leaky_relu", {{"negative_slope", 0.25}}, kOverlapping),
                 testing::with_fusions(checked));
  CHECK_EQUAL(count_fused(joined.graph), 5u);
}

TEST(inference_joins_without_gradients) {
  RootedGraph rooted;
  Graph& graph = rooted.graph;
  const ValueId x = graph.input("x", f32({2, 9, 8, 4})), w = graph.input("w", f32({3, 3, 2, 6}));
  const ValueId b = graph.input("b", f32({6}));
  const ValueId y = call(graph, "add", {call(graph, "conv2d", {x, w}, convolution(0, 2)), b});
  rooted.outputs = {call(graph, "max_pool2d", {call(graph, "relu", {y})}, kHalves)};
  const RootedGraph joined = run_passes(rooted, kAlways);
  CHECK_EQUAL(joined.graph.nodes().size(), 1u);
  CHECK_EQUAL(count_fused(joined.graph, "conv2d_max_pool2d"), 1u);
  check_same_results(run_passes(rooted), joined);
}

TEST(a_gradient_without_a_kernel_leaves_its_pair_apart) {
  const RootedGraph traced = classifier("relu", {}, kHalves);
  check_unfused(traced, testing::with_fusions(testing::kCpuFusions, {"conv2d_max_pool2d_wgrad"}));
  // Only the second convolution needs a gradient for its input.
  const RootedGraph joined =
      run_passes(traced, testing::with_fusions(testing::kCpuFusions, {"conv2d_max_pool2d_dgrad"}));
  CHECK_EQUAL(count_fused(joined.graph), 2u);
  CHECK_EQUAL(count_nodes(joined.graph, "conv2d"), 1u);
  CHECK_EQUAL(count_nodes(joined.graph, "max_pool2d_grad"), 1u);
  check_same_results(run_passes(traced), joined);
}

TEST(gradients_gain_without_a_kernel_for_the_convolution) {
  const RootedGraph traced = classifier("relu", {}, kHalves);
  const RootedGraph joined =
      run_passes(traced, testing::with_fusions(testing::kCpuFusions, {"conv2d_max_pool2d"}));
  CHECK_EQUAL(count_fused(joined.graph), 3u);
  CHECK_EQUAL(count_nodes(joined.graph, "max_pool2d_grad"), 0u);
  check_same_results(run_passes(traced), joined);
}

TEST(where_no_kernel_takes_an_activation_its_gradient_comes_first) {
  const Fusion narrow = {"narrow", pattern_conv2d_max_pool2d_wgrad, [](const Match& match) {
                           return match.has("activation") ? nullptr : match.plan_body();
                         }};
  const Fusion dgrad = conv_fusion("conv2d_max_pool2d_dgrad");
  const RootedGraph traced = classifier("tanh", {}, kHalves);
  const RootedGraph joined = run_passes(traced, testing::with_fusions(std::array{narrow, dgrad}));
  CHECK_EQUAL(count_fused(joined.graph, "narrow"), 2u);
  CHECK_EQUAL(count_nodes(joined.graph, "tanh_grad"), 2u);
  check_same_results(run_passes(traced), joined);
}

TEST(a_cpu_gains_where_the_pooling_is_not_padded) {
  for (const Attributes& pool : {kHalves, kOverlapping}) {
    const RootedGraph traced = classifier("relu", {}, pool);
    auto program = Program::compile(traced.graph, traced.outputs, Device{});
    const bool is_joined = program->to_string().find("max_pool2d_grad") == std::string::npos;
    CHECK_EQUAL(is_joined, pool.get_ints("padding") == Shape(4, 0));
  }
}

struct Layer {
  RootedGraph rooted;
  Graph& graph = rooted.graph;
  ValueId x = graph.input("x", f32({2, 6, 6, 3}));
  ValueId w = graph.input("w", f32({3, 3, 3, 4}));
  ValueId b = graph.input("b", f32({4}));
  ValueId y = call(graph, "add", {call(graph, "conv2d", {x, w}, convolution()), b});

  ValueId pooled(std::string_view activation) {
    return call(graph, "max_pool2d", {y = call(graph, activation, {y})}, kHalves);
  }
  ValueId sum_of_squares(ValueId value) {
    return call(graph, "reduce_sum", {call(graph, "square", {value})}, kAll);
  }
};

TEST(a_convolution_with_another_reader_stays) {
  Layer layer;
  layer.rooted.outputs = {layer.pooled("relu"), layer.y};
  check_unfused(layer.rooted);
  Layer trained;
  const ValueId p = trained.pooled("relu");
  const ValueId loss =
      call(trained.graph, "add", {trained.sum_of_squares(p), trained.sum_of_squares(trained.y)});
  trained.rooted.outputs = trained.graph.gradients(loss, {trained.w});
  check_unfused(trained.rooted);
}

TEST(an_activation_whose_gradient_needs_its_input_stays) {
  Layer layer;
  const ValueId loss = layer.sum_of_squares(
      call(layer.graph, "max_pool2d", {call(layer.graph, "silu", {layer.y})}, kHalves));
  layer.rooted.outputs = layer.graph.gradients(loss, {layer.w});
  check_unfused(layer.rooted);
}

TEST(a_spread_gradient_with_another_reader_stays) {
  Layer layer;
  const ValueId p = call(layer.graph, "max_pool2d", {layer.y}, kHalves);
  layer.rooted.outputs = layer.graph.gradients(layer.sum_of_squares(p), {layer.w, layer.y});
  check_unfused(layer.rooted);
}

TEST(a_bias_gradient_may_be_read_before_the_kernel_gradient) {
  Layer layer;
  Graph& graph = layer.graph;
  const ValueId loss = layer.sum_of_squares(layer.pooled("tanh"));
  // The bias gradient, and a node that reads it, are traced first.
  const ValueId gbias = graph.gradients(loss, {layer.b})[0];
  const ValueId doubled = call(graph, "add", {gbias, gbias});
  const ValueId gkernel = graph.gradients(loss, {layer.w})[0];
  layer.rooted.outputs = {doubled, gkernel, gbias};
  const RootedGraph joined = run_passes(layer.rooted, kAlways);
  CHECK_EQUAL(count_fused(joined.graph), 2u);
  CHECK_EQUAL(count_nodes(joined.graph, "reduce_sum"), 0u);
  check_same_results(run_passes(layer.rooted), joined);
}

TEST(other_sums_of_the_gradient_stay) {
  for (const Shape& axes : {Shape{1, 2}, Shape{0, 1, 2, 3}, Shape{-2, 0, 1}}) {
    Layer layer;
    Graph& graph = layer.graph;
    const ValueId p = layer.pooled("sigmoid");
    const ValueId gy = call(graph, "multiply", {p, graph.full(f32({}), 3.0)});
    const ValueId loss = call(graph, "reduce_sum", {call(graph, "multiply", {p, gy})}, kAll);
    // This is the gradient before the pooling.
    const ValueId g = graph.gradients(loss, {layer.y})[0];
    const ValueId narrow = call(graph, "sigmoid_grad", {g, layer.y});
    layer.rooted.outputs = {
        graph.gradients(loss, {layer.w})[0],
        call(graph, "reduce_sum", {narrow}, {{"axes", axes}, {"keepdims", false}})};
    const RootedGraph joined = run_passes(layer.rooted, kAlways);
    CHECK_EQUAL(count_fused(joined.graph), 2u);
    const bool is_bias_gradient = axes.front() == -2;
    CHECK_EQUAL(count_nodes(joined.graph, "reduce_sum"), is_bias_gradient ? 0u : 1u);
    check_same_results(run_passes(layer.rooted), joined);
  }
}

TEST(two_layers_may_share_a_gradient) {
  RootedGraph rooted;
  Graph& graph = rooted.graph;
  const ValueId x = graph.input("x", f32({2, 6, 6, 1}));
  std::vector<ValueId> weights, pooled;
  for (int i = 0; i < 2; ++i) {
    weights.push_back(graph.input("w", f32({3, 3, 1, 2})));
    weights.push_back(graph.input("b", f32({2})));
    const ValueId y = call(graph, "conv2d", {x, weights[2 * i]}, convolution());
    pooled.push_back(
        call(graph, "max_pool2d", {call(graph, "add", {y, weights[2 * i + 1]})}, kHalves));
  }
  const ValueId sum = call(graph, "square", {call(graph, "add", pooled)});
  rooted.outputs = graph.gradients(call(graph, "reduce_sum", {sum}, kAll), weights);
  const RootedGraph joined = run_passes(rooted, kAlways);
  CHECK_EQUAL(count_fused(joined.graph), 4u);
  CHECK_EQUAL(count_nodes(joined.graph, "reduce_sum"), 0u);
  check_same_results(run_passes(rooted), joined);
}

}  // namespace
}  // namespace kerascnn
