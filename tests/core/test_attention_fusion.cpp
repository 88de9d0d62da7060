// Attention and its gradients become one node each, in all forms that layers and ops write, or stay
// as they are together.
#include "attention_testing.h"
#include "check.h"
#include "core/graph/fusion.h"
#include "fusion_testing.h"

namespace kerascnn {
namespace {

using testing::AttentionForm;
using testing::AttentionGraph;
using testing::call;
using testing::check_same_results;
using testing::count_fused;
using testing::cuda_fusion;
using testing::fuse;

const Fusion& forward() { return cuda_fusion("attention"); }
const Fusion& backward() { return cuda_fusion("attention_grad"); }

RootedGraph join(const RootedGraph& rooted) { return fuse(rooted, {&forward(), &backward()}); }

const Node& only_fused(const Graph& graph, std::string_view fusion) {
  const Node* found = nullptr;
  for (const Node& node : graph.nodes()) {
    if (node.op != &op_fused || node.attributes.get_string("fusion") != fusion) continue;
    CHECK(found == nullptr);
    found = &node;
  }
  CHECK(found != nullptr);
  return *found;
}

TEST(attention_becomes_two_nodes_in_each_form) {
  for (int bits = 0; bits < 32; ++bits) {
    AttentionForm form;
    form.one_batch = (bits & 1) != 0;
    form.scales = (bits & 2) != 0;
    form.heads_behind = (bits & 4) != 0;
    form.is_causal = (bits & 8) != 0;
    form.adds = (bits & 16) != 0;
    const AttentionGraph net(form);
    const RootedGraph joined = join(net.rooted);
    CHECK_EQUAL(joined.graph.nodes().size(), 2u);
    check_same_results(net.rooted, joined);
    const Node& y = only_fused(joined.graph, "attention");
    const Node& gradients = only_fused(joined.graph, "attention_grad");
    // The gradients read what the forward pass handed over.
    CHECK_EQUAL(y.outputs.size(), 2u);
    CHECK_EQUAL(gradients.outputs.size(), 3u);
    const auto rest = gradients.inputs.end() - 2;
    CHECK(std::vector<ValueId>(rest, gradients.inputs.end()) == y.outputs);
    const Shape rows = {form.batch, form.heads, form.queries, 1};
    CHECK(joined.graph.value(y.outputs[1]).spec == testing::f32(rows));
  }
}

TEST(attention_without_gradients_becomes_one_node) {
  AttentionForm form;
  form.has_gradients = false;
  const AttentionGraph net(form);
  const RootedGraph joined = join(net.rooted);
  CHECK_EQUAL(joined.graph.nodes().size(), 1u);
  CHECK_EQUAL(first_optional_output(joined.graph.nodes()[0]), 1u);
  check_same_results(net.rooted, joined);
}

TEST(logarithms_of_sums_are_those_of_the_products) {
  const AttentionGraph net({});
  const RootedGraph joined = join(net.rooted);
  RootedGraph handed = joined;
  handed.outputs = {only_fused(joined.graph, "attention").outputs[1]};
  AttentionGraph expected({.has_gradients = false});
  const auto reduced = [&](std::string_view op, ValueId value) {
    return call(expected.graph, op, {value}, {{"axes", Shape{3}}, {"keepdims", true}});
  };
  // These products are small enough for exp.
  const ValueId powers = call(expected.graph, "exp", {expected.logits});
  expected.graph.input("gy", expected.graph.value(expected.y).spec);  // both draw the same inputs
  expected.rooted.outputs = {call(expected.graph, "log", {reduced("reduce_sum", powers)})};
  const auto received = testing::results(handed)[0];
  const auto wanted = testing::results(expected.rooted)[0];
  CHECK_EQUAL(received.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) CHECK(std::abs(received[i] - wanted[i]) < 1e-4);
}

TEST(shares_that_others_read_keep_attention_as_it_is) {
  for (const bool has_gradients : {true, false}) {
    AttentionGraph net({.has_gradients = has_gradients});
    net.rooted.outputs.push_back(net.shares);
    const RootedGraph joined = join(net.rooted);
    CHECK_EQUAL(testing::count_nodes(joined.graph, "fused"), 0u);
  }
}

TEST(other_gradients_keep_attention_as_it_is) {
  // Without the gradient of the keys the pattern does not fit, and shares are needed for the rest.
  AttentionGraph net({});
  net.rooted.outputs.erase(net.rooted.outputs.begin() + 2);
  CHECK_EQUAL(testing::count_nodes(join(net.rooted).graph, "fused"), 0u);
}

std::unique_ptr<Kernel> plan_nothing(const Match&) { return nullptr; }

TEST(both_passes_are_fused_or_none) {
  const AttentionGraph net({});
  const Fusion no_forward = {"attention", cuda::pattern_attention, plan_nothing};
  const Fusion no_backward = {"attention_grad", cuda::pattern_attention_grad, plan_nothing};
  for (const auto& fusions :
       {std::vector{&no_forward, &backward()}, std::vector{&forward(), &no_backward},
        std::vector{&forward()}, std::vector{&backward()}}) {
    const RootedGraph joined = fuse(net.rooted, fusions);
    CHECK_EQUAL(testing::count_nodes(joined.graph, "fused"), 0u);
    check_same_results(net.rooted, joined);
  }
}

TEST(each_attention_of_a_graph_has_its_own_sums) {
  // The second attention reads what the first one gives.
  AttentionForm form;
  form.queries = form.keys;
  AttentionGraph first(form);
  Graph& graph = first.graph;
  AttentionGraph second(form);
  const std::vector<ValueId> inputs = {first.y, first.k, first.y};
  std::vector<ValueId> of(static_cast<size_t>(second.y) + 1, kNoValue);
  of[second.q] = first.y;
  of[second.k] = first.k;
  of[second.v] = first.y;
  for (const Node& node : second.graph.nodes()) {
    if (node.outputs[0] > second.y) break;
    std::vector<ValueId> read;
    for (const ValueId input : node.inputs) {
      const Value& value = second.graph.value(input);
      read.push_back(value.kind == ValueKind::Constant
                         ? graph.constant(second.graph.constants()[value.source])
                         : of[input]);
    }
    of[node.outputs[0]] = graph.apply_same(node, read)[0];
  }
  const ValueId y = of[second.y];
  const ValueId gy = graph.input("other gy", graph.value(y).spec);
  first.rooted.outputs = {y};
  for (const ValueId gradient : graph.gradients({y}, {gy}, {first.q, first.k, first.v})) {
    first.rooted.outputs.push_back(gradient);
  }
  const RootedGraph joined = join(first.rooted);
  CHECK_EQUAL(count_fused(joined.graph, "attention"), 2u);
  CHECK_EQUAL(count_fused(joined.graph, "attention_grad"), 2u);
  CHECK_EQUAL(testing::count_nodes(joined.graph, "softmax"), 0u);
  check_same_results(first.rooted, joined);
}

}  // namespace
}  // namespace kerascnn
