// The patterns of group normalization where channels are behind other axes, as GroupNormalization
// traces it, and of its gradients. Kernels: core/backend/cuda/normalization/group_norm.cu.
//
// x is (samples, ..., channels), and what belongs to groups (samples, groups, members): each group
// has several channels. Both passes are fused or none, because the pass that is not would compute
// the statistics from x once more.
#pragma once

#include <algorithm>
#include <vector>

#include "core/graph/fusion.h"
#include "core/graph/node_conditions.h"
#include "core/graph/passes/rewriter.h"
#include "core/ops/definitions.h"

namespace kerascnn::cuda {

// Are they moments of each channel of each sample?
inline bool is_of_samples(const Graph&, const Node& node) {
  return column_moments_outer_axes(node.attributes) == 1;
}

// The same of what was not widened from 16 bits: the pattern with the cast is about those.
inline bool is_of_plain_samples(const Graph& graph, const Node& node) {
  const int32_t producer = producer_index(graph, node.inputs[0]);
  return is_of_samples(graph, node) && (producer < 0 || graph.nodes()[producer].op != &op_cast);
}

// Does it reduce the channels of a group, of (samples, groups, members)?
inline bool reduces_members(const Graph& graph, const Node& node) {
  const std::vector<int64_t>& axes = node.attributes.get_ints("axes");
  return graph.value(node.inputs[0]).spec.shape.size() == 3 &&
         node.attributes.get_bool("keepdims") &&
         (axes == std::vector<int64_t>{2} || axes == std::vector<int64_t>{-1});
}

// Does it add up each channel of each sample?
inline bool sums_samples(const Graph& graph, const Node& node) {
  Shape sums = graph.value(node.inputs[0]).spec.shape;
  if (sums.size() < 3) return false;
  std::fill(sums.begin() + 1, sums.end() - 1, 1);
  return graph.value(node.outputs[0]).spec.shape == sums && node.attributes.get_bool("keepdims");
}

// The activation that a node like silu_grad takes a gradient back through, from its input.
inline bool undoes_activation_of_input(const Graph&, const Node& node) {
  const auto activation = find_activation_of_gradient(*node.op);
  return activation && !gradient_uses_output(*activation);
}

// What is handed over is a value that the body has anyway.
inline ValueId keep_value(Graph&, ValueId value) { return value; }

// What both patterns begin with: what belongs to groups, which kernels compute again.
struct NormalizedGroups {
  explicit NormalizedGroups(Pattern& from)
      : pattern(from),
        casts(pattern.has("casts")),
        x(pattern.input("x")),
        gamma(pattern.input("gamma")),
        epsilon(pattern.input("epsilon")),
        wide(casts ? x.call(op_cast).again() : x),
        channel_mean(wide.call(op_column_moments)
                         .where(casts ? is_of_samples : is_of_plain_samples)
                         .again()),
        channel_means(channel_mean.call(op_reshape).as("channel means").again()),
        mean(channel_means.call(op_reduce_mean).where(reduces_members).again()),
        deviation(channel_means.call(op_subtract, {mean}).again()),
        inverse(inverse_deviation()),
        factors(gamma.call(op_reshape).as("factors").again()),
        scale(inverse.call(op_multiply, {factors}).again()),
        zero(mean.call(op_subtract, {mean}).again()),
        scales(scale.call(op_reshape).as("scales").again()),
        centred(centred_elements()) {}

  PatternValue inverse_deviation() const {
    const PatternValue variances = channel_mean.result(1).call(op_reshape).again();
    const PatternValue apart = deviation.call(op_square).again();
    const PatternValue sum = variances.call(op_add, {apart}).again();
    const PatternValue variance = sum.call(op_reduce_mean).where(reduces_members).again();
    return variance.call(op_add, {epsilon}).again().call(op_rsqrt).again().read_by_fusions();
  }
  PatternValue centred_elements() const {
    const PatternValue origin = mean.call(op_broadcast_to).again();
    const PatternValue origins = origin.call(op_reshape).as("origins").again();
    return wide.call(op_subtract, {origins}).again().read_by_fusions();
  }
  // The last call takes the place of its node, unless the caller says again().
  PatternValue normalized() const {
    const PatternValue beta = pattern.input("beta");
    const PatternValue offsets = beta.call(op_reshape).as("offsets").again();
    const PatternValue by_zero = zero.call(op_multiply, {scale}).again();
    const PatternValue shift = by_zero.call(op_add, {offsets}).again();
    const PatternValue shifts = shift.call(op_reshape).as("shifts").again();
    const PatternValue sum = centred.call(op_multiply, {scales}).again().call(op_add, {shifts});
    return casts ? sum.again().call(op_cast) : sum;
  }

  Pattern& pattern;
  bool casts;  // to float32 and back
  PatternValue x, gamma, epsilon;
  PatternValue wide, channel_mean, channel_means, mean, deviation, inverse, factors, scale, zero;
  PatternValue scales;  // of each channel of each sample, beside x
  PatternValue centred;
};

// x, gamma, epsilon, beta -> y, the mean and the inverse deviation of each group
inline void pattern_group_norm(Pattern& pattern) {
  const NormalizedGroups groups(pattern);
  PatternValue y = groups.normalized();
  if (pattern.has("activation")) y = y.again().call(is_activation).as("activation");
  pattern.output("y", y);
  pattern.hand_over("means", groups.mean, keep_value);
  pattern.hand_over("inverses", groups.inverse, keep_value);
}

// x, gamma, epsilon, gy, [beta], numbers, means, inverses -> the gradients of x and, for each
// sample, of gamma and beta. They follow from two sums for each channel.
inline void pattern_group_norm_grad(Pattern& pattern) {
  const NormalizedGroups groups(pattern);
  PatternValue g = pattern.input("gy");
  if (pattern.has("activation")) {
    PatternValue reference = groups.normalized().again();
    const bool by_output = pattern.has("gradient by the output");
    if (by_output) reference = reference.call(is_activation).as("activation").again();
    g = g.call(by_output ? undoes_activation : undoes_activation_of_input, {reference});
    g.as("activation gradient");
  }
  if (groups.casts) g = g.call(op_cast);
  const auto times = [&](const char* number, const PatternValue& value) {
    return pattern.input(number).call(op_multiply, {value});
  };
  const PatternValue sum = g.call(op_reduce_sum).where(sums_samples);
  const PatternValue products = g.call(op_multiply, {groups.centred});
  const PatternValue sum_of_products = products.call(op_reduce_sum).where(sums_samples);
  // Of one sample, the gradient of beta is the sum by another reshape.
  const PatternValue by_shift = sum.call(op_reshape).again();
  const PatternValue by_zero = by_shift.call(op_multiply, {groups.zero});
  const PatternValue by_scale = sum_of_products.call(op_reshape).call(op_add, {by_zero});
  const PatternValue by_gamma = by_scale.call(op_multiply, {groups.inverse});
  const auto sum_of_members = [](const PatternValue& value) {
    return value.call(op_reduce_sum).where(reduces_members);
  };
  const PatternValue by_inverse = sum_of_members(by_scale.call(op_multiply, {groups.factors}));
  const PatternValue cube = groups.inverse.call(op_square).call(op_multiply, {groups.inverse});
  const PatternValue by_variance = times("-1/2", by_inverse).call(op_multiply, {cube});
  const PatternValue of_channel = times("1/members", by_variance);
  const PatternValue by_deviation = of_channel.call(op_multiply, {times("2", groups.deviation)});
  const PatternValue by_shift_origin =
      sum_of_members(by_shift.call(op_multiply, {groups.scale}).call(op_negative));
  const PatternValue by_mean =
      by_shift_origin.call(op_add, {sum_of_members(by_deviation.call(op_negative))});
  const PatternValue by_channel_mean =
      by_deviation.call(op_add, {times("1/members again", by_mean)});
  const PatternValue slope =
      times("2/rows", of_channel.call(op_broadcast_to).call(op_reshape).as("slopes"));
  const PatternValue offset = times("1/rows", by_channel_mean.call(op_reshape).as("by channels"));
  const PatternValue through_moments = groups.wide.call(op_subtract, {groups.channel_mean})
                                           .call(op_multiply, {slope})
                                           .call(op_add, {offset});
  PatternValue dx = g.call(op_multiply, {groups.scales}).call(op_add, {through_moments});
  if (groups.casts) dx = dx.call(op_cast);
  pattern.output("dx", dx);
  pattern.output("dgamma", by_gamma);
  pattern.output("dbeta", sum);
  pattern.take_over("means", groups.mean);
  pattern.take_over("inverses", groups.inverse);
}

}  // namespace kerascnn::cuda
