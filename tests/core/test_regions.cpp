// Which nodes form regions, and of which kind? Results must stay: each region is run node by node.
#include <algorithm>
#include <bit>
#include <cstring>

#include "check.h"
#include "core/graph/passes/passes.h"
#include "core/graph/region.h"
#include "graph_testing.h"

namespace kerascnn {
namespace {

using testing::call;
using testing::count_nodes;
using testing::f32;

constexpr RegionLimits kLarge = {.rows = true,
                                 .columns = true,
                                 .max_inputs = 24,
                                 .max_outputs = 16,
                                 .max_ops = 96,
                                 .max_constants = 96};

PassOptions with_limits(const RegionLimits& limits) {
  PassOptions options;
  options.region_limits = [limits](const Shape&) { return limits; };
  return options;
}

Attributes over(Shape axes, bool keepdims) { return {{"axes", axes}, {"keepdims", keepdims}}; }
Attributes to_dtype(const char* dtype) { return {{"dtype", std::string(dtype)}}; }

std::vector<Region> regions_of(const Graph& graph) {
  std::vector<Region> regions;
  for (const Node& node : graph.nodes()) {
    if (node.op->name == "region") regions.push_back(read_region(node.attributes));
  }
  return regions;
}

std::vector<std::string> names_of(const Graph& graph) {
  std::vector<std::string> names;
  for (const Region& region : regions_of(graph)) names.push_back(region_name(region));
  return names;
}

using Names = std::vector<std::string>;

// The op that computes the value; empty for an input.
std::string_view producer_name(const Graph& graph, ValueId id) {
  const Value& value = graph.value(id);
  return value.kind == ValueKind::Result ? graph.nodes()[value.source].op->name : "";
}

TEST(a_cast_that_widens_is_computed_by_each_region_that_reads_it) {
  // Batch normalization in mixed precision does this: the statistics read all of x before it is
  // normalized.
  RootedGraph before;
  Graph& graph = before.graph;
  const ValueId x = graph.input("x", {DType::BFloat16, {6, 5}});
  const ValueId wide = call(graph, "cast", {x}, to_dtype("float32"));
  const std::vector<ValueId> moments = graph.apply("column_moments", {wide});
  const ValueId centered = call(graph, "subtract", {wide, moments[0]});
  const ValueId scaled = call(graph, "multiply", {centered, moments[1]});
  before.outputs = {call(graph, "cast", {scaled}, to_dtype("bfloat16"))};
  const RootedGraph after = form_regions(before, with_limits(kLarge));
  CHECK(names_of(after.graph) == (Names{"cast+column_moments", "cast+subtract+multiply+cast"}));
  CHECK_EQUAL(after.graph.nodes().size(), 2u);  // the copy in float32 is not a result of any node
  const std::vector<Region> regions = regions_of(after.graph);
  CHECK(regions[0].kind == RegionKind::Columns);
  CHECK(regions[1].kind == RegionKind::Map);
}

TEST(what_was_computed_in_wide_numbers_is_computed_again_of_narrow_ones) {
  // The gradient reads what the forward pass normalized, which needs x and one mean for each row.
  RootedGraph before;
  Graph& graph = before.graph;
  const ValueId x = graph.input("x", {DType::BFloat16, {8, 6}});
  const ValueId gy = graph.input("gy", {DType::BFloat16, {8, 6}});
  const ValueId wide = call(graph, "cast", {x}, to_dtype("float32"));
  const ValueId mean = call(graph, "reduce_mean", {wide}, over({1}, true));
  const ValueId centered = call(graph, "subtract", {wide, mean});
  const ValueId y = call(graph, "cast", {centered}, to_dtype("bfloat16"));
  const ValueId between = call(graph, "softmax", {y}, {{"axis", int64_t{-1}}});
  const ValueId g = call(graph, "cast", {call(graph, "add", {between, gy})}, to_dtype("float32"));
  const ValueId product = call(graph, "multiply", {g, centered});
  before.outputs = {call(graph, "reduce_sum", {product}, over({0}, false))};
  const RootedGraph after = form_regions(before, with_limits(kLarge));
  CHECK(names_of(after.graph) ==
        (Names{"cast+reduce_mean+subtract+cast", "cast+subtract+add+cast+multiply+reduce_sum"}));
  for (const Node& node : after.graph.nodes()) {
    for (ValueId id : node.outputs) {
      const TensorSpec& spec = after.graph.value(id).spec;
      CHECK(spec.dtype == DType::BFloat16 || num_elements(spec.shape) < 48);
    }
  }
}

TEST(sums_of_columns_join_what_they_sum_and_what_reads_the_same) {
  RootedGraph before;
  Graph& graph = before.graph;
  const ValueId gy = graph.input("gy", f32({6, 5})), x = graph.input("x", f32({6, 5}));
  const ValueId product = call(graph, "multiply", {gy, x});
  before.outputs = {call(graph, "reduce_sum", {gy}, over({0}, false)),
                    call(graph, "reduce_sum", {product}, over({0}, true))};
  const RootedGraph after = form_regions(before, with_limits(kLarge));
  CHECK(names_of(after.graph) == Names{"reduce_sum+multiply+reduce_sum"} ||
        names_of(after.graph) == Names{"multiply+reduce_sum+reduce_sum"});
  testing::check_same_results(before, after);
}

TEST(sums_of_columns_of_what_rows_are_made_of_are_taken_together) {
  // In the gradients of layer normalization that of the input needs rows, and those of shift and
  // scale need columns.
  RootedGraph before;
  Graph& graph = before.graph;
  const ValueId gy = graph.input("gy", f32({8, 6})), z = graph.input("z", f32({8, 6}));
  const ValueId narrow = call(graph, "cast", {gy}, to_dtype("bfloat16"));
  const ValueId back = call(graph, "softmax", {narrow}, {{"axis", int64_t{-1}}});
  const ValueId g = call(graph, "cast", {back}, to_dtype("float32"));
  const ValueId product = call(graph, "multiply", {g, z});
  const ValueId row = call(graph, "reduce_sum", {product}, over({1}, true));
  before.outputs = {call(graph, "subtract", {g, row}),
                    call(graph, "reduce_sum", {g}, over({0}, false)),
                    call(graph, "reduce_sum", {product}, over({0}, false))};
  const RootedGraph after = form_regions(before, with_limits(kLarge));
  const std::vector<Region> regions = regions_of(after.graph);
  CHECK_EQUAL(regions.size(), 2u);
  CHECK_EQUAL(std::count_if(regions.begin(), regions.end(),
                            [](const Region& each) { return each.kind == RegionKind::Columns; }),
              1);
  testing::check_same_results(before, after);
}

TEST(sums_of_columns_look_through_a_reshape) {
  // In a dense layer on sequences the bias' gradient sums the matrix that the product reads.
  RootedGraph before;
  Graph& graph = before.graph;
  const ValueId x = graph.input("x", f32({2, 4, 5})), gy = graph.input("gy", f32({2, 4, 5}));
  const ValueId g = call(graph, "relu_grad", {gy, x});
  const ValueId matrix = call(graph, "reshape", {g}, {{"shape", Shape{8, 5}}});
  // The sum over the first axis of (4, 10) is not a sum of columns of five elements.
  const ValueId other = call(graph, "reshape", {g}, {{"shape", Shape{4, 10}}});
  before.outputs = {call(graph, "softmax", {matrix}, {{"axis", int64_t{-1}}}),
                    call(graph, "reduce_sum", {matrix}, over({0}, true)),
                    call(graph, "reduce_sum", {other}, over({0}, false))};
  const PassOptions options = with_limits(kLarge);
  const RootedGraph after = form_regions(sum_before_reshapes(before, options), options);
  CHECK(names_of(after.graph) == Names{"relu_grad+reduce_sum"});
  CHECK_EQUAL(count_nodes(after.graph, "reduce_sum"), 1u);
  testing::check_same_results(before, after);
  CHECK_EQUAL(count_nodes(sum_before_reshapes(before, {}).graph, "reshape"), 2u);
}

TEST(element_ops_of_a_reshaped_value_join_what_computes_it) {
  // The gradients of means, which are of groups or of channels, are divided by numbers of elements.
  RootedGraph before;
  Graph& graph = before.graph;
  const ValueId x = graph.input("x", f32({2, 4, 5}));
  const ValueId sum = call(graph, "reduce_sum", {x}, over({2}, true));
  const ValueId root = call(graph, "tanh", {sum});
  const ValueId spread = call(graph, "broadcast_to", {root}, {{"shape", Shape{2, 4, 5}}});
  const ValueId even = call(graph, "reshape", {spread}, {{"shape", Shape{2, 1, 20}}});
  const ValueId share = call(graph, "multiply", {graph.full(f32({}), 0.25), even});
  const ValueId apart = call(graph, "subtract", {x, sum});
  const ValueId flat = call(graph, "reshape", {apart}, {{"shape", Shape{8, 5}}});
  const ValueId moved = call(graph, "add", {flat, graph.full(f32({1}), 0.5)});
  before.outputs = {share, call(graph, "relu", {moved})};
  const PassOptions options = with_limits(kLarge);
  const RootedGraph after = form_regions(elements_before_reshapes(before, options), options);
  CHECK(names_of(after.graph) == Names{"reduce_sum+tanh+multiply+subtract+add+relu"});
  testing::check_same_results(before, after);
  CHECK_EQUAL(names_of(form_regions(before, options).graph).size(), 2u);
  CHECK_EQUAL(elements_before_reshapes(before, {}).graph.nodes().size(), graph.nodes().size());
}

TEST(element_ops_stay_behind_a_reshape_where_memory_would_hold_more) {
  RootedGraph before;
  Graph& graph = before.graph;
  const auto reshaped = [&](ValueId id) {
    return call(graph, "reshape", {id}, {{"shape", Shape{4, 6}}});
  };
  const ValueId half = graph.full(f32({}), 0.5);
  const ValueId x = graph.input("x", f32({8, 3})), y = graph.input("y", f32({4, 6}));
  const ValueId kept = call(graph, "exp", {x});  // an output too
  const ValueId twice = reshaped(call(graph, "sin", {x}));
  const ValueId narrow = call(graph, "cast", {call(graph, "cos", {x})}, to_dtype("bfloat16"));
  before.outputs = {
      kept,
      call(graph, "multiply", {reshaped(kept), half}),
      call(graph, "multiply", {twice, half}),
      call(graph, "add", {twice, y}),
      call(graph, "cast", {reshaped(narrow)}, to_dtype("float32")),
      call(graph, "multiply", {reshaped(call(graph, "tanh", {x})), y}),  // of two large values
      call(graph, "multiply", {reshaped(x), half}),                      // in no region
  };
  const RootedGraph after = elements_before_reshapes(before, with_limits(kLarge));
  for (const Node& node : after.graph.nodes()) {
    if (node.op->name != "reshape") continue;
    const std::string_view read = producer_name(after.graph, node.inputs[0]);
    CHECK(read == "exp" || read == "sin" || read == "cast" || read == "tanh" || read.empty());
  }
  CHECK_EQUAL(after.graph.nodes().size(), graph.nodes().size());
  testing::check_same_results(before, after);
}

TEST(a_sum_of_columns_by_itself_keeps_its_kernel) {
  RootedGraph before;
  const ValueId x = before.graph.input("x", f32({6, 5}));
  before.outputs = {call(before.graph, "reduce_sum", {x}, over({0}, false))};
  const RootedGraph after = form_regions(before, with_limits(kLarge));
  CHECK_EQUAL(count_nodes(after.graph, "reduce_sum"), 1u);
}

TEST(nothing_in_a_region_reads_its_sums_of_columns) {
  RootedGraph before;
  Graph& graph = before.graph;
  const ValueId x = graph.input("x", f32({6, 5}));
  const ValueId y = call(graph, "tanh", {x});
  const ValueId sum = call(graph, "reduce_sum", {y}, over({0}, false));
  // One reader reads the sum directly, the other through a node outside.
  const ValueId direct = call(graph, "subtract", {y, sum});
  const ValueId other = call(graph, "multiply", {y, call(graph, "exp", {sum})});
  before.outputs = {direct, other};
  const RootedGraph after = form_regions(before, with_limits(kLarge));
  const std::vector<Region> regions = regions_of(after.graph);
  CHECK(!regions.empty());
  for (const Region& region : regions) {
    const std::string name = region_name(region);
    CHECK(name.find("reduce_sum") == std::string::npos ||
          name.find("subtract") == std::string::npos);
    CHECK(name.find("reduce_sum") == std::string::npos ||
          name.find("multiply") == std::string::npos);
  }
  testing::check_same_results(before, after);
}

TEST(a_softmax_of_its_parts_is_one_region_of_rows) {
  RootedGraph before;
  Graph& graph = before.graph;
  const ValueId x = graph.input("x", f32({4, 3, 5}));
  const ValueId largest = call(graph, "reduce_max", {x}, over({2}, true));
  const ValueId powers = call(graph, "exp", {call(graph, "subtract", {x, largest})});
  const ValueId total = call(graph, "reduce_sum", {powers}, over({2}, true));
  before.outputs = {call(graph, "divide", {powers, total})};
  const RootedGraph after = form_regions(before, with_limits(kLarge));
  CHECK(names_of(after.graph) == Names{"reduce_max+subtract+exp+reduce_sum+divide"});
  const std::vector<Region> regions = regions_of(after.graph);
  CHECK(regions[0].kind == RegionKind::Rows);
  CHECK_EQUAL(regions[0].columns, 5);
  CHECK_EQUAL(regions[0].rows, 12);
  testing::check_same_results(before, after);
  // Where regions of rows are turned off, or rows are longer than the device allows, reductions
  // stay.
  RegionLimits short_rows = kLarge;
  short_rows.max_row = 4;
  CHECK_EQUAL(count_nodes(form_regions(before, with_limits(short_rows)).graph, "reduce_sum"), 1u);
  CHECK_EQUAL(count_nodes(form_regions(before).graph, "reduce_sum"), 1u);
}

TEST(row_values_without_the_reduced_axes_come_back_by_a_reshape) {
  RootedGraph before;
  Graph& graph = before.graph;
  const ValueId x = graph.input("x", f32({4, 4}));
  const ValueId mean = call(graph, "reduce_mean", {x}, over({1}, false));
  const ValueId shifted = call(graph, "add", {mean, graph.full(f32({}), 0.5)});
  const ValueId kept = call(graph, "reshape", {shifted}, {{"shape", Shape{4, 1}}});
  const ValueId centered = call(graph, "subtract", {x, kept});
  // (4,) is broadcast along the columns of (4, 4), so the mean of a row does not belong to a
  // column.
  before.outputs = {centered, call(graph, "multiply", {centered, mean}), mean};
  const RootedGraph after = form_regions(before, with_limits(kLarge));
  const std::vector<std::string> names = names_of(after.graph);
  CHECK(names[0] == "reduce_mean+add+subtract");
  CHECK_EQUAL(count_nodes(after.graph, "multiply"), 1u);
  testing::check_same_results(before, after);
}

TEST(a_last_axis_of_one_element_that_is_kept_makes_no_rows) {
  // Global pooling of images with one channel does this.
  RootedGraph before;
  Graph& graph = before.graph;
  const ValueId x = graph.input("x", f32({2, 4, 1}));
  const ValueId largest = call(graph, "reduce_max", {x}, over({1}, false));
  const ValueId kept = call(graph, "reshape", {largest}, {{"shape", Shape{2, 1, 1}}});
  before.outputs = {largest, call(graph, "tanh", {call(graph, "subtract", {x, kept})})};
  const RootedGraph after = form_regions(before, with_limits(kLarge));
  CHECK_EQUAL(count_nodes(after.graph, "reduce_max"), 1u);
  testing::check_same_results(before, after);
}

TEST(a_broadcast_back_into_the_domain_is_a_way_of_reading) {
  RootedGraph before;
  Graph& graph = before.graph;
  const ValueId x = graph.input("x", f32({4, 6})), y = graph.input("y", f32({4, 6}));
  const ValueId row = graph.input("row", f32({4, 1}));
  const ValueId wide = call(graph, "broadcast_to", {row}, {{"shape", Shape{4, 6}}});
  const ValueId from_outside = call(graph, "relu_grad", {wide, x});
  const ValueId sum = call(graph, "reduce_sum", {from_outside}, over({1}, true));
  const ValueId spread = call(graph, "broadcast_to", {sum}, {{"shape", Shape{4, 6}}});
  before.outputs = {call(graph, "relu_grad", {spread, y})};
  const RootedGraph after = form_regions(before, with_limits(kLarge));
  CHECK(names_of(after.graph) == Names{"relu_grad+reduce_sum+relu_grad"});
  CHECK_EQUAL(after.graph.nodes().size(), 1u);
  testing::check_same_results(before, after);
}

TEST(batch_norm_and_its_gradient_become_parts_of_regions) {
  RootedGraph before;
  Graph& graph = before.graph;
  const ValueId x = graph.input("x", f32({8, 3, 5}));
  const ValueId gamma = graph.input("gamma", f32({5})), beta = graph.input("beta", f32({5}));
  const std::vector<ValueId> normalized =
      graph.apply("batch_norm", {x, gamma, beta}, {{"epsilon", 1e-3}});
  const ValueId y = call(graph, "relu", {normalized[0]});
  const ValueId gy = call(graph, "softmax", {y}, {{"axis", int64_t{-1}}});
  const ValueId g = call(graph, "relu_grad", {gy, y});
  const std::vector<ValueId> gradients =
      graph.apply("batch_norm_grad", {g, x, gamma, normalized[1], normalized[3]});
  before.outputs = {y, normalized[2], gradients[0], gradients[1], gradients[2]};
  const PassOptions options = with_limits(kLarge);
  const RootedGraph after = form_regions(expand_batch_norm(before, options), options);
  CHECK_EQUAL(count_nodes(after.graph, "batch_norm"), 0u);
  size_t large = 0, sums = 0;
  for (const Region& region : regions_of(after.graph)) {
    large += region.domain == Shape{8, 3, 5} ? 1 : 0;
    sums += region.kind == RegionKind::Columns ? 1 : 0;
  }
  // The four are the statistics, normalization with activation, the sums of the gradient, and the
  // gradient of x.
  CHECK_EQUAL(large, 4u);
  CHECK_EQUAL(sums, 2u);
  const auto expected = testing::results(before), received = testing::results(after);
  for (size_t i = 0; i < expected.size(); ++i) {
    for (size_t k = 0; k < expected[i].size(); ++k) {
      // The numbers are of order one; each comes from at most ten operations and sums of 24 of
      // them.
      CHECK_NEAR(expected[i][k], received[i][k], 4e-5 * (1.0 + std::abs(expected[i][k])));
    }
  }
}

TEST(regions_are_split_where_they_are_too_large) {
  RootedGraph before;
  Graph& graph = before.graph;
  ValueId sum = graph.input("x", f32({6, 5}));
  for (int i = 0; i < 30; ++i) {
    sum = call(graph, "add", {sum, graph.input("x" + std::to_string(i), f32({6, 5}))});
    sum = call(graph, "tanh", {sum});
    before.outputs.push_back(call(graph, "reduce_sum", {sum}, over({0}, false)));
  }
  RegionLimits limits = kLarge;
  limits.max_inputs = 5;
  limits.max_outputs = 4;
  limits.max_ops = 9;
  const RootedGraph after = form_regions(before, with_limits(limits));
  const std::vector<Region> regions = regions_of(after.graph);
  CHECK(regions.size() > 6);
  for (const Region& region : regions) {
    CHECK(region.body->inputs.size() <= 5);
    CHECK(region.body->outputs.size() <= 4);
    CHECK(region.body->graph->nodes().size() <= 9);
  }
  testing::check_same_results(before, after);
}

// Values of one domain in three dtypes, and values of its rows and of its columns. Beside them
// stand products, softmaxes, and variables that are read, updated, swapped and assigned more than
// once.
class RandomNet {
 public:
  // Some domains are squares, whose rows and columns have one length, and some have axes of one
  // element.
  explicit RandomNet(unsigned seed, bool has_gradients = false)
      : num_rows_(seed % 4 == 1   ? 1
                  : seed % 4 == 2 ? 5
                                  : 6),
        num_columns_(seed % 8 == 3 ? 1 : 5),
        domain_{num_rows_, num_columns_},
        random_(seed) {
    for (const char* name : {"a", "b"}) values_.push_back(graph().input(name, f32(domain_)));
    columns_ = {graph().input("v", f32({num_columns_}))};
    rows_ = {graph().input("r", f32({num_rows_, 1}))};
    for (int i = 0; i < 3; ++i) {
      variables.push_back(testing::make_variable("v" + std::to_string(i), domain_, 0.1f));
      values_.push_back(graph().read(variables.back()));
    }
    for (int i = 0; i < 50; ++i) {
      if (i == 30 && has_gradients) graph().set_phase(kBackward);
      add_node();
    }
    for (int i = 0; i < 3; ++i) rooted.outputs.push_back(pick(values_));
    rooted.outputs.push_back(pick(columns_));
    rooted.outputs.push_back(pick(rows_));
  }

  int below(int count) { return static_cast<int>(random_() % static_cast<unsigned>(count)); }

  RootedGraph rooted;
  std::vector<VariablePtr> variables;

 private:
  Graph& graph() { return rooted.graph; }
  ValueId pick(const std::vector<ValueId>& values) {
    const int size = static_cast<int>(values.size());
    return values[static_cast<size_t>(below(2) == 0 ? below(size)
                                                    : size - 1 - below(std::min(size, 4)))];
  }
  ValueId tamed(ValueId id) { return call(graph(), "tanh", {id}); }

  void add_node() {
    switch (below(17)) {
      case 0:
        return add(tamed(call(graph(), "add", {pick(values_), pick(values_)})));
      case 1:
        return add(call(graph(), "multiply", {tamed(pick(values_)), pick(columns_)}));
      case 2:
        return add(call(graph(), "subtract", {pick(values_), pick(rows_)}));
      case 3:
        return add_narrow(below(2) == 0 ? "bfloat16" : "float16");
      case 4:
        return add_wide();
      case 5:
      case 6:
        return columns_.push_back(call(graph(), below(2) == 0 ? "reduce_sum" : "reduce_mean",
                                       {tamed(pick(values_))}, over({0}, false)));
      case 7: {
        const ValueId moment =
            graph().apply("column_moments", {tamed(pick(values_))})[static_cast<size_t>(below(2))];
        return columns_.push_back(moment);
      }
      case 8:
      case 9: {
        constexpr const char* kOps[] = {"reduce_sum", "reduce_mean", "reduce_max", "reduce_min"};
        return rows_.push_back(
            call(graph(), kOps[below(4)], {tamed(pick(values_))}, over({1}, true)));
      }
      case 10:
        return add_flat_row();
      case 11:
        return rows_.push_back(tamed(call(graph(), "add", {pick(rows_), pick(rows_)})));
      case 12: {
        const ValueId wide = call(graph(), "broadcast_to", {pick(rows_)}, {{"shape", domain_}});
        return add(call(graph(), "relu_grad", {wide, pick(values_)}));
      }
      case 13:
        return add(call(graph(), "softmax", {pick(values_)}, {{"axis", int64_t{-1}}}));
      case 14:
        return update_variables();
      case 15: {
        const ValueId factor = call(graph(), "multiply", {pick(columns_), pick(columns_)});
        return columns_.push_back(call(graph(), "maximum", {factor, pick(columns_)}));
      }
      default: {
        const ValueId small = call(graph(), "less", {pick(values_), pick(rows_)});
        return add(call(graph(), "where", {small, pick(values_), pick(columns_)}));
      }
    }
  }

  void add(ValueId id) { values_.push_back(id); }

  // Adds a value that is kept in 16 bits and that several nodes read in 32.
  void add_narrow(const char* dtype) {
    const ValueId narrow = call(graph(), "cast", {pick(values_)}, to_dtype(dtype));
    const ValueId wide = call(graph(), "cast", {tamed(narrow)}, to_dtype("float32"));
    for (int i = below(3); i >= 0; --i) add(call(graph(), "multiply", {wide, pick(values_)}));
  }

  void add_wide() {
    const ValueId wide = call(graph(), "cast", {pick(values_)}, to_dtype("float64"));
    const ValueId sum =
        call(graph(), "reduce_mean", {call(graph(), "square", {wide})}, over({below(2)}, true));
    const ValueId back = call(graph(), "subtract", {wide, sum});
    add(tamed(call(graph(), "cast", {back}, to_dtype("float32"))));
  }

  void add_flat_row() {
    const ValueId mean = call(graph(), "reduce_mean", {pick(values_)}, over({1}, false));
    const ValueId moved = call(graph(), "subtract", {mean, graph().full(f32({}), 0.25)});
    rows_.push_back(call(graph(), "reshape", {moved}, {{"shape", Shape{num_rows_, 1}}}));
    if (num_rows_ == num_columns_) columns_.push_back(below(2) == 0 ? mean : moved);
  }

  const VariablePtr& pick_variable() { return variables[static_cast<size_t>(below(3))]; }

  void update_variables() {
    const VariablePtr& first = pick_variable();
    const VariablePtr& second = pick_variable();
    const ValueId old_first = graph().read(first), old_second = graph().read(second);
    if (below(2) == 0) {
      graph().assign(first, old_second);
      graph().assign(second, old_first);
    } else {
      graph().assign(first, tamed(call(graph(), "add", {old_first, pick(values_)})));
      add(old_first);  // nodes that read the old value may come after its update
    }
  }

  int64_t num_rows_, num_columns_;
  Shape domain_;
  std::mt19937 random_;
  std::vector<ValueId> values_, columns_, rows_;
};

std::vector<uint32_t> bits_after_steps(const RootedGraph& rooted, const RandomNet& net) {
  std::mt19937 random(5);
  std::vector<Tensor> inputs;
  for (ValueId id : rooted.graph.inputs()) {
    inputs.push_back(testing::random_tensor(rooted.graph.value(id).spec.shape, random));
  }
  auto program = Program::compile(rooted.graph, rooted.outputs, Device{}, {.optimize = false});
  program->run(inputs, 3);
  std::vector<uint32_t> bits;
  const auto add = [&](const Tensor& tensor) {
    for (float value : testing::floats(tensor)) bits.push_back(std::bit_cast<uint32_t>(value));
  };
  for (const Tensor& output : program->outputs()) add(output);
  for (const VariablePtr& variable : net.variables) add(variable->value());
  return bits;
}

TEST(random_nets_keep_their_bits_where_activations_are_computed_again) {
  size_t fewer = 0;
  PassOptions options = with_limits(kLarge);
  options.region_limits = [](const Shape&) {
    RegionLimits limits = kLarge;
    limits.recomputes = true;
    return limits;
  };
  for (unsigned seed = 0; seed < 300; ++seed) {
    const RandomNet expected(seed, true), received(seed, true);
    const RootedGraph again = recompute_activations(received.rooted, options);
    fewer += count_nodes(again.graph, "barrier") > 0 ? 1 : 0;
    CHECK(bits_after_steps(expected.rooted, expected) ==
          bits_after_steps(form_regions(again, options), received));
  }
  CHECK(fewer > 50);
}

TEST(random_nets_keep_their_bits_in_regions_of_all_kinds) {
  size_t kinds[3] = {0, 0, 0};
  for (unsigned seed = 0; seed < 300; ++seed) {
    const RandomNet expected(seed);
    RandomNet received(seed);
    RegionLimits limits = kLarge;
    limits.max_inputs = 3 + received.below(12);
    limits.max_outputs = 2 + received.below(8);
    limits.max_ops = 4 + received.below(60);
    const RootedGraph after = form_regions(received.rooted, with_limits(limits));
    for (const Region& region : regions_of(after.graph)) {
      ++kinds[static_cast<size_t>(region.kind)];
      CHECK(region.body->inputs.size() <= static_cast<size_t>(limits.max_inputs));
      CHECK(region.body->outputs.size() <= static_cast<size_t>(limits.max_outputs));
    }
    CHECK(bits_after_steps(expected.rooted, expected) == bits_after_steps(after, received));
  }
  for (size_t count : kinds) CHECK(count > 100);
}

}  // namespace
}  // namespace kerascnn
