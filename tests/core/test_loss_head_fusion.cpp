// CUDA's fusion that joins a classifier's last layer and its loss with the gradient of the layer's
// input. The kernel here runs the matched nodes, so results must be the same to the bit.
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

constexpr std::string_view kHead = "dense_sparse_softmax_cross_entropy_dgrad";
constexpr std::string_view kLoss = "dense_sparse_softmax_cross_entropy";
const PassOptions kAlways = testing::with_cuda_fusions();
const PassOptions kNoHead = testing::with_cuda_fusions({kHead});
const Attributes kPlain = {{"transpose_a", false}, {"transpose_b", false}};
const Attributes kAll = {{"axes", Shape{}}, {"keepdims", false}};
const Attributes kDropout = {{"rate", 0.5}, {"stream", int64_t{3}}};

// The last layer of the classifier reads what a test computes from `images` of (6, 2, 4). All
// variants begin with a multiplication, so that gradients pass through whatever stands before the
// last layer.
struct Classifier {
  RootedGraph rooted;
  Graph& graph = rooted.graph;
  ValueId images = graph.input("images", f32({6, 2, 4}));
  ValueId labels = graph.input("labels", {DType::Int32, {6}});
  ValueId state = graph.input("state", {DType::Int64, {2}});
  ValueId scale = graph.input("scale", f32({4}));
  ValueId kernel = graph.input("kernel", f32({8, 5})), bias = graph.input("bias", f32({5}));

  // A value of (6, 2, 4) that has a gradient.
  ValueId first() { return call(graph, "multiply", {images, scale}); }
  ValueId flat(ValueId value) { return call(graph, "reshape", {value}, {{"shape", Shape{6, 8}}}); }
  ValueId dropout(ValueId value) { return call(graph, "dropout", {value, state}, kDropout); }

  // Adds the rest of the network, from the input of the last layer on, and all gradients.
  void finish(ValueId x) {
    const ValueId logits = call(graph, "add", {call(graph, "matmul", {x, kernel}, kPlain), bias});
    const ValueId p = call(graph, "softmax", {logits}, {{"axis", int64_t{-1}}});
    const ValueId losses = call(graph, "sparse_cross_entropy", {p, labels}, {{"epsilon", 1e-7}});
    const ValueId loss = call(graph, "reduce_mean", {losses}, kAll);
    rooted.outputs = graph.gradients(loss, {scale, kernel, bias});
    rooted.outputs.push_back(loss);
    rooted.outputs.push_back(p);
  }
};

// Returns the ops that the head replaces: "dense+sparse_softmax_cross_entropy+...".
std::string ops_of(const RootedGraph& joined) {
  for (const Node& node : joined.graph.nodes()) {
    const bool is_head = node.op == &op_fused && node.attributes.get_string("fusion") == kHead;
    if (is_head) return node.attributes.get_string("ops");
  }
  return "";
}

const std::string kPlainHead =
    "dense+sparse_softmax_cross_entropy+sparse_softmax_cross_entropy_grad+matmul";

// There has to be one head instead of the loss's kernel, and `dropouts` nodes have to be left
// beside it.
RootedGraph check_joined(const Classifier& net, size_t dropouts = 0) {
  const RootedGraph apart = run_passes(net.rooted, kNoHead);
  RootedGraph joined = run_passes(net.rooted, kAlways);
  CHECK_EQUAL(count_fused(apart.graph, kLoss), 1u);
  CHECK_EQUAL(count_fused(joined.graph, kLoss), 0u);
  CHECK_EQUAL(count_fused(joined.graph, kHead), 1u);
  CHECK_EQUAL(count_nodes(joined.graph, "dropout"), dropouts);
  check_same_results(apart, joined);
  return joined;
}

TEST(the_gradient_of_the_input_comes_with_the_loss) {
  Classifier net;
  net.finish(net.flat(net.first()));
  const RootedGraph joined = check_joined(net);
  CHECK_EQUAL(ops_of(joined), kPlainHead);
}

TEST(an_activation_before_the_last_layer_is_undone_with_it) {
  for (const std::string_view name : {"relu", "tanh", "sigmoid"}) {
    Classifier net;
    net.finish(call(net.graph, name, {net.flat(net.first())}));
    CHECK_EQUAL(ops_of(check_joined(net)), kPlainHead + "+" + std::string(name) + "_grad");
  }
  // The gradient of silu needs the input of silu.
  Classifier net;
  net.finish(call(net.graph, "silu", {net.flat(net.first())}));
  CHECK_EQUAL(ops_of(check_joined(net)), kPlainHead);
}

TEST(a_dropout_before_the_last_layer_joins) {
  Classifier net;
  net.finish(net.dropout(net.flat(net.first())));
  CHECK_EQUAL(ops_of(check_joined(net)), "dropout+" + kPlainHead + "+dropout");
}

TEST(a_dropout_joins_past_a_reshape) {
  Classifier net;
  net.finish(net.flat(net.dropout(net.first())));
  check_joined(net);
}

TEST(an_activation_before_the_dropout_joins_too) {
  Classifier net;
  net.finish(net.dropout(call(net.graph, "relu", {net.flat(net.first())})));
  const RootedGraph joined = check_joined(net);
  CHECK_EQUAL(ops_of(joined), "dropout+" + kPlainHead + "+dropout+relu_grad");
  CHECK_EQUAL(count_nodes(joined.graph, "relu_grad"), 0u);
}

TEST(an_activation_after_the_dropout_keeps_the_dropout_apart) {
  Classifier net;
  net.finish(call(net.graph, "relu", {net.dropout(net.flat(net.first()))}));
  CHECK_EQUAL(ops_of(check_joined(net, 2)), kPlainHead + "+relu_grad");
}

TEST(a_dropout_joins_whose_result_is_read_before_the_loss) {
  Classifier net;
  const ValueId dropped = net.dropout(net.flat(net.first()));
  const ValueId sum = call(net.graph, "reduce_sum", {dropped}, kAll);
  net.finish(dropped);
  net.rooted.outputs.push_back(sum);
  check_joined(net);
}

TEST(a_dropout_of_another_stream_on_the_way_back_stays_apart) {
  // The gradient is dropped by the same op, which drops other elements.
  Classifier net;
  const ValueId x = net.flat(net.first());
  Graph& graph = net.graph;
  const ValueId dropped = net.dropout(x);
  net.finish(dropped);
  const ValueId logits =
      call(graph, "add", {call(graph, "matmul", {dropped, net.kernel}, kPlain), net.bias});
  const ValueId p = call(graph, "softmax", {logits}, {{"axis", int64_t{-1}}});
  const ValueId losses = call(graph, "sparse_cross_entropy", {p, net.labels}, {{"epsilon", 1e-7}});
  const ValueId loss = call(graph, "reduce_mean", {losses}, kAll);
  const ValueId dx = graph.gradients(loss, {dropped})[0];
  const Attributes other = {{"rate", 0.5}, {"stream", int64_t{4}}};
  net.rooted.outputs = {loss, call(graph, "dropout", {dx, net.state}, other)};
  check_joined(net, 2);
}

TEST(the_result_of_the_dropout_may_be_an_output) {
  Classifier net;
  const ValueId x = net.flat(net.first());
  const ValueId dropped = net.dropout(x);
  net.finish(dropped);
  net.rooted.outputs.push_back(dropped);
  check_joined(net);
}

}  // namespace
}  // namespace kerascnn
