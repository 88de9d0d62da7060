// The pattern of each fusion of the backends, on graphs that have what it is for.

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>

#include "attention_testing.h"
#include "check.h"
#include "core/graph/fusion.h"
#include "core/graph/passes/passes.h"
#include "fusion_testing.h"
#include "graph_testing.h"
#include "group_norm_testing.h"

namespace kerascnn {
namespace {

using testing::call;
using testing::check_same_results;
using testing::count_nodes;
using testing::cuda_fusion;
using testing::f32;
using testing::fuse;
using testing::fused;

const Attributes kSum = {{"axes", Shape{0}}, {"keepdims", false}};

Attributes to(DType dtype) { return {{"dtype", std::string(dtype_name(dtype))}}; }

// The sizes are no multiples of one another.
struct Sizes {
  explicit Sizes(std::mt19937& random) {
    const auto draw = [&] { return static_cast<int64_t>(2 + random() % 7); };
    rows = 6;  // results() has as many labels
    features = draw();
    classes = draw() + 4;
  }
  int64_t rows, features, classes;
};

const Attributes kHalves = {
    {"window", Shape{2, 2}}, {"strides", Shape{2, 2}}, {"padding", Shape(4, 0)}};
const Attributes kWindow = {{"strides", Shape{1, 1}},
                            {"padding", Shape(4, 0)},
                            {"dilations", Shape{1, 1}},
                            {"groups", int64_t{1}}};

RootedGraph counting(std::mt19937& random) {
  const Sizes n(random);
  RootedGraph rooted;
  Graph& graph = rooted.graph;
  const ValueId scores = graph.input("scores", f32({n.rows, n.classes}));
  const ValueId labels = graph.input("labels", {DType::Int32, {n.rows}});
  const ValueId place = call(graph, "argmax", {scores}, {{"axis", int64_t{-1}}});
  const ValueId matches = call(graph, "cast", {call(graph, "equal", {place, labels})},
                               {{"dtype", std::string("float32")}});
  rooted.outputs = {call(graph, "reduce_sum", {matches}, kSum)};
  return rooted;
}

RootedGraph activation_gradient(std::mt19937& random) {
  const Sizes n(random);
  RootedGraph rooted;
  Graph& graph = rooted.graph;
  const ValueId g = graph.input("g", f32({n.rows, n.classes}));
  const ValueId kernel = graph.input("kernel", f32({n.features, n.classes}));
  const ValueId y = graph.input("y", f32({n.rows, n.features}));
  const ValueId dx =
      call(graph, "matmul", {g, kernel}, {{"transpose_a", false}, {"transpose_b", true}});
  rooted.outputs = {call(graph, "tanh_grad", {dx, y})};
  return rooted;
}

RootedGraph kernel_and_bias(std::mt19937& random) {
  const Sizes n(random);
  RootedGraph rooted;
  Graph& graph = rooted.graph;
  const ValueId x = graph.input("x", f32({n.rows, n.features}));
  const ValueId g = graph.input("g", f32({n.rows, n.classes}));
  rooted.outputs = {call(graph, "reduce_sum", {g}, kSum),
                    call(graph, "matmul", {x, g}, {{"transpose_a", true}, {"transpose_b", false}})};
  return rooted;
}

template <bool kGradient>
RootedGraph loss_head(std::mt19937& random) {
  const Sizes n(random);
  RootedGraph rooted;
  Graph& graph = rooted.graph;
  const ValueId x = graph.input("x", f32({n.rows, n.features}));
  const ValueId kernel = graph.input("kernel", f32({n.features, n.classes}));
  const ValueId bias = graph.input("bias", f32({n.classes}));
  const ValueId labels = graph.input("labels", {DType::Int32, {n.rows}});
  const ValueId gy = graph.input("gy", f32({n.rows}));
  const ValueId logits = call(graph, "dense", {x, kernel, bias},
                              {{"activation", std::string("linear")}, {"activation_alpha", 0.0}});
  const Attributes epsilon = {{"epsilon", 1e-7}};
  rooted.outputs = graph.apply("sparse_softmax_cross_entropy", {logits, labels}, epsilon);
  const ValueId g =
      call(graph, "sparse_softmax_cross_entropy_grad", {gy, rooted.outputs[1], labels}, epsilon);
  rooted.outputs.push_back(g);
  if (kGradient) {
    rooted.outputs.push_back(
        call(graph, "matmul", {g, kernel}, {{"transpose_a", false}, {"transpose_b", true}}));
  }
  return rooted;
}

RootedGraph end_of_block(std::mt19937& random) {
  const Sizes n(random);
  RootedGraph rooted;
  Graph& graph = rooted.graph;
  Attributes attributes = kWindow;
  attributes.set("activation", std::string("linear"));
  attributes.set("activation_alpha", 0.0);
  const ValueId x = graph.input("x", f32({2, 5, 6, n.features}));
  const ValueId kernel = graph.input("kernel", f32({3, 2, n.features, n.classes}));
  const ValueId bias = graph.input("bias", f32({n.classes}));
  const ValueId shortcut = graph.input("shortcut", f32({2, 3, 5, n.classes}));
  const ValueId y = call(graph, "conv2d", {x, kernel, bias}, attributes);
  rooted.outputs = {call(graph, "relu", {call(graph, "add", {shortcut, y})})};
  return rooted;
}

// The beginning of a block: a convolution in 16 bits, and what normalization needs.
RootedGraph normalized_convolution(std::mt19937& random) {
  const Sizes n(random);
  RootedGraph rooted;
  Graph& graph = rooted.graph;
  Attributes attributes = kWindow;
  attributes.set("activation", std::string("linear"));
  attributes.set("activation_alpha", 0.0);
  std::vector<ValueId> inputs;
  for (const Shape& shape :
       {Shape{2, 5, 6, n.features}, {3, 2, n.features, n.classes}, {n.classes}}) {
    const ValueId input = graph.input("input", f32(shape));
    inputs.push_back(call(graph, "cast", {input}, to(DType::BFloat16)));
  }
  const ValueId y = call(graph, "conv2d", inputs, attributes);
  const ValueId wide = call(graph, "cast", {y}, to(DType::Float32));
  rooted.outputs = graph.apply("column_moments", {wide}, {{"outer_axes", int64_t{0}}});
  rooted.outputs.push_back(call(graph, "subtract", {wide, rooted.outputs[0]}));
  return rooted;
}

RootedGraph pooled_convolution(std::mt19937& random) {
  const Sizes n(random);
  RootedGraph rooted;
  Graph& graph = rooted.graph;
  const std::vector<ValueId> inputs = {graph.input("x", f32({n.rows, 8, 9, n.features})),
                                       graph.input("kernel", f32({3, 3, n.features, n.classes})),
                                       graph.input("bias", f32({n.classes}))};
  Attributes attributes = kWindow;
  attributes.set("activation", std::string("relu"));
  attributes.set("activation_alpha", 0.0);
  const ValueId wide = call(graph, "conv2d", inputs, attributes);
  rooted.outputs = {call(graph, "max_pool2d", {wide}, kHalves)};
  return rooted;
}

// The graph has images of (n, 8, 9, features) and kernels of 3 x 3, and the gradient of one of
// them.
template <bool kOfKernel>
RootedGraph pooled_gradient(std::mt19937& random) {
  const Sizes n(random);
  RootedGraph rooted;
  Graph& graph = rooted.graph;
  const Shape x = {n.rows, 8, 9, n.features}, kernel = {3, 3, n.features, n.classes};
  const Shape pooled = {n.rows, 3, 3, n.classes};
  const ValueId gy = graph.input("gy", f32(pooled)), y = graph.input("y", f32(pooled));
  const ValueId wide = graph.input("wide", f32({n.rows, 6, 7, n.classes}));
  const ValueId index = graph.apply("max_pool2d", {wide}, kHalves)[1];
  const ValueId other = graph.input("other", f32(kOfKernel ? x : kernel));
  const ValueId narrow = call(graph, "tanh_grad", {gy, y});
  Attributes spreading = kHalves, attributes = kWindow;
  spreading.set("input_shape", graph.value(wide).spec.shape);
  attributes.set(kOfKernel ? "kernel_shape" : "input_shape", kOfKernel ? kernel : x);
  const ValueId spread = call(graph, "max_pool2d_grad", {narrow, index}, spreading);
  if (kOfKernel) {
    rooted.outputs = {
        call(graph, "reduce_sum", {narrow}, {{"axes", Shape{0, 1, 2}}, {"keepdims", true}}),
        call(graph, "conv2d_wgrad", {other, spread}, attributes)};
  } else {
    rooted.outputs = {call(graph, "conv2d_dgrad", {spread, other}, attributes)};
  }
  return rooted;
}

RootedGraph kernel_gradient(std::mt19937& random) {
  const Sizes n(random);
  RootedGraph rooted;
  Graph& graph = rooted.graph;
  const ValueId x = graph.input("x", f32({n.rows, 8, 9, n.features}));
  const ValueId gy = graph.input("gy", f32({n.rows, 6, 7, n.classes}));
  Attributes attributes = kWindow;
  attributes.set("kernel_shape", Shape{3, 3, n.features, n.classes});
  rooted.outputs = {call(graph, "conv2d_wgrad", {x, gy}, attributes)};
  return rooted;
}

RootedGraph batches(std::mt19937& random) {
  const Sizes n(random);
  RootedGraph rooted;
  Graph& graph = rooted.graph;
  const ValueId images = graph.input("images", f32({n.classes, n.features}));
  const ValueId targets = graph.input("targets", f32({n.features, 3}));
  const ValueId order = graph.input("order", {DType::Int32, {n.rows}});
  const ValueId step = graph.full({DType::Int64, {}}, 1);
  for (const ValueId data : {images, targets}) {
    rooted.outputs.push_back(
        call(graph, "take_batch", {data, order, step}, {{"batch_size", int64_t{2}}}));
  }
  return rooted;
}

template <bool kGradients>
RootedGraph attention(std::mt19937& random) {
  const Sizes n(random);
  return testing::AttentionGraph({.has_gradients = kGradients,
                                  .heads = 3,
                                  .queries = n.features,
                                  .keys = n.classes,
                                  .size = n.rows})
      .rooted;
}

template <bool kGradients>
RootedGraph group_norm(std::mt19937& random) {
  const Sizes n(random);
  return testing::GroupNormGraph({.shape = {n.classes, n.rows, 2 * n.features},
                                  .groups = n.features,
                                  .has_gradients = kGradients})
      .simplified();
}

// Batch normalization of bfloat16, and its gradient.
template <bool kGradient>
RootedGraph narrow_normalization(std::mt19937& random) {
  const Sizes n(random);
  RootedGraph rooted;
  Graph& graph = rooted.graph;
  const auto cast = [&](ValueId value, const char* dtype) {
    return call(graph, "cast", {value}, {{"dtype", std::string(dtype)}});
  };
  const auto rounded = [&](const char* name) {
    const ValueId value = graph.input(name, f32({n.rows, n.classes, n.features}));
    return cast(cast(value, "bfloat16"), "float32");
  };
  std::vector<ValueId> inputs;
  if (kGradient) inputs.push_back(rounded("gy"));
  inputs.push_back(rounded("x"));
  for (const char* name : {"gamma", "beta or mean"}) {
    inputs.push_back(graph.input(name, f32({n.features})));
  }
  if (kGradient) inputs.push_back(graph.input("inverse", f32({n.features})));
  rooted.outputs = kGradient ? graph.apply("batch_norm_grad", inputs, {})
                             : graph.apply("batch_norm", inputs, {{"epsilon", 1e-3}});
  rooted.outputs[0] = cast(cast(rooted.outputs[0], "bfloat16"), "float32");
  return rooted;
}

// Is it a part of what a fusion leaves to other nodes?
bool is_left(const Node& node) {
  if (node.op == &op_max_pool2d) return true;  // the pooling node makes the index
  // Inputs become 16 bits, and what follows normalizes.
  if (node.op == &op_cast || node.op == &op_subtract) return true;
  // Gradients of group normalization are added up over the samples.
  const auto* const axes = node.op == &op_reduce_sum ? &node.attributes.get_ints("axes") : nullptr;
  return node.op == &op_reshape || (axes != nullptr && *axes == Shape{0});
}

// What one fusion takes over from another one.
const std::map<std::string_view, std::string_view> kGivers = {{"attention_grad", "attention"},
                                                              {"group_norm_grad", "group_norm"}};

const std::map<std::string, RootedGraph (*)(std::mt19937&), std::less<>> kGraphs = {
    {"attention", attention<false>},
    {"attention_grad", attention<true>},
    {"conv2d_add", end_of_block},
    {"conv2d_moments", normalized_convolution},
    {"conv2d_max_pool2d", pooled_convolution},
    {"conv2d_max_pool2d_dgrad", pooled_gradient<false>},
    {"conv2d_max_pool2d_wgrad", pooled_gradient<true>},
    {"conv2d_wgrad", kernel_gradient},
    {"take_batches", batches},
    {"count_matches", counting},
    {"matmul_activation_grad", activation_gradient},
    {"dense_wgrad", kernel_and_bias},
    {"group_norm", group_norm<false>},
    {"group_norm_grad", group_norm<true>},
    {"batch_norm_16_bits", narrow_normalization<false>},
    {"batch_norm_grad_16_bits", narrow_normalization<true>},
    {"dense_sparse_softmax_cross_entropy", loss_head<false>},
    {"dense_sparse_softmax_cross_entropy_dgrad", loss_head<true>},
};

TEST(each_pattern_is_found_and_computes_what_its_nodes_do) {
  std::mt19937 random(std::random_device{}());
  std::vector<Fusion> all(std::begin(testing::kCudaFusions), std::end(testing::kCudaFusions));
  all.insert(all.end(), std::begin(testing::kCpuFusions), std::end(testing::kCpuFusions));
  std::set<std::string_view> names;
  for (const Fusion& fusion : all) {
    names.insert(fusion.name);
    const auto graph = kGraphs.find(fusion.name);
    if (graph == kGraphs.end()) {
      throw ValueError(message("the fusion ", fusion.name, " has no graph in kGraphs"));
    }
    const RootedGraph rooted = graph->second(random);
    std::vector<const Fusion*> fusions = {&fusion};
    const auto giver = kGivers.find(fusion.name);
    if (giver != kGivers.end()) fusions.insert(fusions.begin(), &cuda_fusion(giver->second));
    const RootedGraph joined = fuse(rooted, fusions);
    check_same_results(rooted, joined);
    CHECK_EQUAL(count_nodes(joined.graph, "fused"), fusions.size());
    for (const Node& node : joined.graph.nodes()) {
      CHECK(node.op == &op_fused || is_left(node));
    }
  }
  CHECK_EQUAL(kGraphs.size(), names.size());
}

// The nodes that an accuracy metric traces. Tests may replace each part.
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
  size_t counts() const {
    return count_nodes(fuse(rooted, cuda_fusion("count_matches")).graph, "fused");
  }
};

TEST(the_accuracy_of_a_classifier_becomes_one_node) {
  for (const DType dtype : {DType::Int32, DType::Float32}) {
    for (const bool labels_first : {true, false}) {
      Accuracy net(dtype);
      if (!labels_first) net.compare(net.place, net.labels);
      CHECK_EQUAL(fused(net.rooted, cuda_fusion("count_matches")), 1u);
      const RootedGraph joined = fuse(net.rooted, cuda_fusion("count_matches"));
      CHECK_EQUAL(joined.graph.nodes().size(), 1u);
      CHECK(joined.graph.nodes()[0].inputs == joined.graph.inputs());
    }
  }
}

TEST(labels_may_be_what_other_ops_give) {
  // The labels are a column, and the classes are the positions of the ones.
  Accuracy column;
  const ValueId wide = column.graph.input("wide", {DType::Int32, {6, 1}});
  const ValueId flat = call(column.graph, "reshape", {wide}, {{"shape", Shape{6}}});
  column.compare(flat, column.place);
  CHECK_EQUAL(column.counts(), 1u);

  Accuracy hot;
  const ValueId ones = hot.graph.input("ones", f32({6, 4}));
  hot.compare(call(hot.graph, "argmax", {ones}, {{"axis", int64_t{-1}}}), hot.place);
  const RootedGraph joined = fuse(hot.rooted, cuda_fusion("count_matches"));
  CHECK_EQUAL(count_nodes(joined.graph, "fused"), 1u);
  CHECK_EQUAL(count_nodes(joined.graph, "argmax"), 1u);
  check_same_results(hot.rooted, joined);
}

TEST(weighted_matches_stay_apart) {
  Accuracy net;
  const ValueId weights = net.graph.input("weights", f32({6}));
  const ValueId weighted = call(net.graph, "multiply", {net.matches, weights});
  net.rooted.outputs = {call(net.graph, "reduce_sum", {weighted}, kSum)};
  CHECK_EQUAL(net.counts(), 0u);
}

TEST(accuracy_parts_that_others_read_stay_apart) {
  for (const bool of_place : {true, false}) {
    Accuracy net;
    net.rooted.outputs.push_back(of_place ? net.place : net.matches);
    CHECK_EQUAL(net.counts(), 0u);
  }
}

TEST(other_counts_stay_apart) {
  // The variants reduce along the rows' axis, keep the axis, have one label for all rows, or count
  // in another dtype than float32.
  const Attributes kept = {{"axes", Shape{0}}, {"keepdims", true}};
  Accuracy along;
  const ValueId square = along.graph.input("square", f32({6, 6}));
  along.compare(along.labels, call(along.graph, "argmax", {square}, {{"axis", int64_t{0}}}));
  CHECK_EQUAL(along.counts(), 0u);

  Accuracy whole;
  whole.rooted.outputs = {call(whole.graph, "reduce_sum", {whole.matches}, kept)};
  CHECK_EQUAL(whole.counts(), 0u);

  Accuracy one;
  one.compare(one.graph.input("label", {DType::Int32, {1}}), one.place);
  CHECK_EQUAL(one.counts(), 0u);

  Accuracy exact;
  const ValueId wide = call(exact.graph, "cast", {exact.matches}, to(DType::Float64));
  exact.rooted.outputs = {call(exact.graph, "reduce_sum", {wide}, kSum)};
  CHECK_EQUAL(exact.counts(), 0u);
}

}  // namespace
}  // namespace kerascnn
