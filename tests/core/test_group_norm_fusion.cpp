// Group normalization and its gradients as one node each.

#include "check.h"
#include "fusion_testing.h"
#include "graph_testing.h"
#include "group_norm_testing.h"

namespace kerascnn {
namespace {

using testing::call;
using testing::check_same_results;
using testing::count_fused;
using testing::count_nodes;
using testing::cuda_fusion;
using testing::fuse;
using testing::GroupNormForm;
using testing::GroupNormGraph;

RootedGraph with_both(const RootedGraph& rooted) {
  return fuse(rooted, {&cuda_fusion("group_norm"), &cuda_fusion("group_norm_grad")});
}

void check_fused(const GroupNormForm& form, size_t number) {
  const RootedGraph rooted = GroupNormGraph(form).simplified();
  const RootedGraph joined = with_both(rooted);
  CHECK_EQUAL(count_fused(joined.graph, "group_norm"), number);
  CHECK_EQUAL(count_fused(joined.graph, "group_norm_grad"), form.has_gradients ? number : 0u);
  check_same_results(rooted, joined);
}

TEST(group_normalization_becomes_a_node_for_each_pass) {
  const std::vector<std::pair<Shape, int64_t>> sizes = {
      {{3, 2, 5, 12}, 4}, {{2, 7, 9}, 3}, {{1, 4, 3, 2, 8}, 1}, {{1, 5, 6}, 3}, {{4, 3, 3, 4}, 2}};
  for (const auto& [shape, groups] : sizes) {
    for (const DType dtype : {DType::Float32, DType::BFloat16}) {
      for (const bool has_gradients : {true, false}) {
        check_fused(
            {.shape = shape, .groups = groups, .dtype = dtype, .has_gradients = has_gradients}, 1u);
      }
    }
  }
}

TEST(an_activation_behind_it_belongs_to_both_nodes) {
  const std::vector<std::pair<std::string, Attributes>> activations = {
      {"relu", {}}, {"tanh", {}}, {"silu", {}}, {"gelu", {{"approximate", true}}}};
  for (const auto& [activation, parameters] : activations) {
    for (const DType dtype : {DType::Float32, DType::BFloat16}) {
      const GroupNormForm form = {
          .dtype = dtype, .activation = activation, .parameters = parameters};
      check_fused(form, 1u);
      const RootedGraph joined = with_both(GroupNormGraph(form).simplified());
      CHECK_EQUAL(count_nodes(joined.graph, activation), 0u);
      CHECK_EQUAL(count_nodes(joined.graph, activation + "_grad"), 0u);
    }
  }
}

TEST(elements_in_nodes_of_16_bits_are_never_cast_alone) {
  const RootedGraph joined =
      with_both(GroupNormGraph({.dtype = DType::BFloat16, .activation = "silu"}).simplified());
  // These are the casts around the test's graph: to x and gy, and of y and of the gradient of x.
  CHECK_EQUAL(count_nodes(joined.graph, "cast"), 4u);
  CHECK_EQUAL(count_nodes(joined.graph, "column_moments"), 0u);
}

TEST(groups_of_one_channel_stay_regions) { check_fused({.shape = {3, 4, 5, 6}, .groups = 6}, 0u); }

// The gradient of one or two rows has other nodes, as a factor of 1 is left out.
TEST(few_rows_are_fused_in_both_passes_or_in_none) {
  for (const int64_t rows : {1, 2}) check_fused({.shape = {3, rows, 6}, .groups = 3}, 0u);
}

TEST(statistics_that_others_read_leave_both_passes_as_they_are) {
  GroupNormGraph net({});
  net.rooted.outputs.push_back(net.centred);
  const RootedGraph rooted = net.simplified();
  const RootedGraph joined = with_both(rooted);
  CHECK_EQUAL(count_nodes(joined.graph, "fused"), 0u);
  check_same_results(rooted, joined);
}

}  // namespace
}  // namespace kerascnn
