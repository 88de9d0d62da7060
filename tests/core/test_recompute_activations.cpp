// Which values are kept for the backward pass, and which are computed again? The expected ones are
// worked out by hand from the nets.
#include <algorithm>
#include <set>

#include "check.h"
#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"
#include "core/graph/region.h"
#include "graph_testing.h"

namespace kerascnn {
namespace {

using testing::call;
using testing::count_nodes;
using testing::f32;

PassOptions options_of(bool recomputes) {
  PassOptions options;
  options.region_limits = [recomputes](const Shape&) {
    return RegionLimits{.rows = true,
                        .columns = true,
                        .max_inputs = 24,
                        .max_outputs = 16,
                        .max_ops = 96,
                        .max_constants = 96,
                        .recomputes = recomputes};
  };
  return options;
}

Attributes to_dtype(const char* dtype) { return {{"dtype", std::string(dtype)}}; }

RootedGraph with_regions(const RootedGraph& source, bool recomputes = true) {
  const PassOptions options = options_of(recomputes);
  const RootedGraph expanded = expand_batch_norm(merge_common_subexpressions(source), options);
  return form_regions(recompute_activations(fold_constants(expanded), options), options);
}

// The bytes that nodes of the forward pass compute and nodes of the backward pass read.
int64_t kept_bytes(const RootedGraph& rooted) {
  const Graph& graph = rooted.graph;
  std::vector<ValueId> roots(graph.values().size());
  for (size_t i = 0; i < roots.size(); ++i) roots[i] = static_cast<ValueId>(i);
  std::set<ValueId> kept;
  for (const Node& node : graph.nodes()) {
    if (node.op->is_view) {
      roots[node.outputs[0]] = roots[node.inputs[0]];
      continue;
    }
    if ((node.scope.phases & kForward) != 0) continue;
    for (ValueId id : node.inputs) {
      const Value& source = graph.value(roots[id]);
      if (source.kind != ValueKind::Result) continue;
      if ((graph.nodes()[source.source].scope.phases & kForward) != 0) kept.insert(roots[id]);
    }
  }
  int64_t bytes = 0;
  for (ValueId id : kept) bytes += num_bytes(graph.value(id).spec);
  return bytes;
}

// The names of the regions of the backward pass.
std::vector<std::string> late_regions(const RootedGraph& rooted) {
  std::vector<std::string> names;
  for (const Node& node : rooted.graph.nodes()) {
    if (node.op->name != "region" || (node.scope.phases & kForward) != 0) continue;
    names.push_back(region_name(read_region(node.attributes)));
  }
  return names;
}

ValueId product(Graph& graph, ValueId a, ValueId b) {
  return call(graph, "matmul", {a, b}, {{"transpose_a", false}, {"transpose_b", false}});
}

// The values are so large that nodes without a common input do not share a region.
constexpr int64_t kRows = 1000, kColumns = 20;
constexpr int64_t kFloats = kRows * kColumns * int64_t{sizeof(float)};

// Traces two products of (kRows, kColumns), with `function` between them.
template <typename Function>
RootedGraph net_of_two_products(const Function& function) {
  RootedGraph rooted;
  Graph& graph = rooted.graph;
  const ValueId x = graph.input("x", f32({kRows, 3}));
  const ValueId first = graph.input("first", f32({3, kColumns}));
  const ValueId second = graph.input("second", f32({kColumns, 2}));
  const ValueId hidden = product(graph, x, first);
  const ValueId y = product(graph, function(graph, hidden), second);
  const ValueId loss = call(graph, "reduce_sum", {call(graph, "square", {y})},
                            {{"axes", Shape{0, 1}}, {"keepdims", false}});
  rooted.outputs = graph.gradients(loss, {first, second});
  rooted.outputs.push_back(loss);
  return rooted;
}

ValueId relu_of_normalized(Graph& graph, ValueId hidden) {
  const ValueId gamma = graph.input("gamma", f32({kColumns}));
  const ValueId beta = graph.input("beta", f32({kColumns}));
  const ValueId y = graph.apply("batch_norm", {hidden, gamma, beta}, {{"epsilon", 1e-3}})[0];
  return call(graph, "relu", {y});
}

constexpr int64_t kOutput =
    kRows * 2 * int64_t{sizeof(float)};  // y: its square's gradient reads it

TEST(an_activation_is_computed_again_where_its_gradient_is) {
  const RootedGraph net = net_of_two_products([](Graph& graph, ValueId hidden) {
    return call(graph, "gelu", {hidden}, {{"approximate", false}});
  });
  const RootedGraph plain = with_regions(net, false), after = with_regions(net);
  // The gradient of gelu reads the input of gelu, and that of the second product reads its result.
  CHECK_EQUAL(kept_bytes(plain), 2 * kFloats + kOutput);
  CHECK_EQUAL(kept_bytes(after), kFloats + kOutput);
  // One region reads the input and computes both.
  const std::vector<std::string> names = late_regions(after);
  CHECK_EQUAL(std::count(names.begin(), names.end(), "gelu+gelu_grad"), 1);
  CHECK_EQUAL(count_nodes(after.graph, "matmul"), count_nodes(plain.graph, "matmul"));
  testing::check_same_results(net, after);
}

TEST(relu_of_a_normalized_value_is_computed_again_of_what_was_normalized) {
  const RootedGraph net = net_of_two_products(relu_of_normalized);
  const RootedGraph plain = with_regions(net, false), after = with_regions(net);
  // A few values with one number for each column are kept too: at most the mean, the inverse
  // deviation, the scale, and one more like the deviation.
  const int64_t small = 4 * kColumns * int64_t{sizeof(float)};
  CHECK(kept_bytes(plain) >= 2 * kFloats + kOutput);
  CHECK(kept_bytes(after) >= kFloats + kOutput);
  CHECK(kept_bytes(after) <= kFloats + kOutput + small);
  testing::check_same_results(plain, after);
}

TEST(the_gradient_through_an_activation_is_taken_by_each_region_that_reads_it) {
  // The sums of batch normalization's gradient and the gradient of its input need it. Both read
  // what was normalized, so the gradient that came in is all that the second one needs besides.
  const RootedGraph net = net_of_two_products(relu_of_normalized);
  const RootedGraph plain = with_regions(net, false), after = with_regions(net);
  const auto large_results = [](const RootedGraph& rooted, const char* op) {
    std::vector<size_t> counts;
    for (const Node& node : rooted.graph.nodes()) {
      if (node.op->name != "region") continue;
      const Region region = read_region(node.attributes);
      if (region_name(region).find(op) == std::string::npos) continue;
      counts.push_back(std::count_if(node.outputs.begin(), node.outputs.end(), [&](ValueId id) {
        return rooted.graph.value(id).spec.shape == Shape{kRows, kColumns};
      }));
    }
    return counts;
  };
  // Kept, it is a result of the sums' region. Computed again, that region gives the activation, for
  // the gradient of the product behind it, and the other one the gradient of its input.
  CHECK(large_results(plain, "relu_grad") == (std::vector<size_t>{1}));
  CHECK(large_results(after, "relu_grad") == (std::vector<size_t>{1, 1}));
  testing::check_same_results(plain, after);
}

TEST(what_is_kept_of_a_wide_value_is_the_narrow_one_that_it_was_cast_from) {
  const auto function = [](Graph& graph, ValueId hidden) {
    const ValueId narrow = call(graph, "cast", {hidden}, to_dtype("bfloat16"));
    const ValueId wide = call(graph, "cast", {narrow}, to_dtype("float32"));
    return call(graph, "multiply", {wide, call(graph, "sigmoid", {wide})});
  };
  const RootedGraph net = net_of_two_products(function);
  const RootedGraph after = with_regions(net);
  CHECK_EQUAL(kept_bytes(after), kFloats / 2 + kOutput);
  testing::check_same_results(net, after);
}

TEST(a_value_of_two_large_ones_is_kept) {
  // To compute the sum with the residual again, both summands would have to stay in memory.
  const auto function = [](Graph& graph, ValueId hidden) {
    const ValueId other = call(graph, "softmax", {hidden}, {{"axis", int64_t{-1}}});
    return call(graph, "relu", {call(graph, "add", {hidden, other})});
  };
  const RootedGraph net = net_of_two_products(function);
  CHECK_EQUAL(kept_bytes(with_regions(net)), kept_bytes(with_regions(net, false)));
}

TEST(results_of_products_and_outputs_are_not_computed_again) {
  RootedGraph net = net_of_two_products([](Graph&, ValueId hidden) { return hidden; });
  RootedGraph after = with_regions(net);
  CHECK_EQUAL(count_nodes(after.graph, "barrier"), 0u);
  ValueId activation = kNoValue;
  net = net_of_two_products(
      [&](Graph& graph, ValueId hidden) { return activation = call(graph, "tanh", {hidden}); });
  net.outputs.push_back(activation);
  after = with_regions(net);
  CHECK_EQUAL(count_nodes(after.graph, "barrier"), 0u);
  testing::check_same_results(net, after);
}

TEST(what_is_computed_again_runs_where_it_is_needed) {
  // Of several layers in a row only one has its activation in memory at any time, so the peak grows
  // by one value for each layer instead of two.
  const auto peak = [](int layers, bool recomputes) {
    RootedGraph rooted;
    Graph& graph = rooted.graph;
    ValueId y = graph.input("x", f32({kRows, kColumns}));
    std::vector<ValueId> weights;
    for (int i = 0; i < layers; ++i) {
      weights.push_back(graph.input(message("w", i), f32({kColumns, kColumns})));
      y = call(graph, "silu", {product(graph, y, weights.back())});
    }
    const ValueId loss =
        call(graph, "reduce_sum", {y}, {{"axes", Shape{0, 1}}, {"keepdims", false}});
    for (ValueId id : graph.gradients(loss, weights)) {
      rooted.outputs.push_back(
          call(graph, "reduce_sum", {id}, {{"axes", Shape{0, 1}}, {"keepdims", false}}));
    }
    rooted.outputs.push_back(loss);
    const RootedGraph after = with_regions(rooted, recomputes);
    auto program = Program::compile(after.graph, after.outputs, Device{}, {.optimize = false});
    return program->stats().least_arena_bytes;
  };
  const int64_t aligned = (kFloats + 255) / 256 * 256;
  const int64_t plain = peak(12, false) - peak(6, false),
                recomputed = peak(12, true) - peak(6, true);
  const int64_t outputs = 6 * 256;  // these bytes are the sums
  CHECK(plain >= 12 * aligned - outputs);
  CHECK(recomputed <= 6 * aligned + outputs);
}

}  // namespace
}  // namespace kerascnn
