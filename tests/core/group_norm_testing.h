// Graphs of group normalization and its gradients, as the layer traces them.
#pragma once

#include <string>
#include <vector>

#include "core/graph/passes/passes.h"
#include "graph_testing.h"

namespace kerascnn::testing {

struct GroupNormForm {
  Shape shape = {3, 2, 5, 12};
  int64_t groups = 4;
  DType dtype = DType::Float32;  // of x, which is normalized in float32
  std::string activation = "";   // after it; none where this is empty
  Attributes parameters = {};    // of the activation
  bool has_gradients = true;
};

struct GroupNormGraph {
  explicit GroupNormGraph(const GroupNormForm& form) : form(form) {
    x = given("x");
    gamma = graph.input("gamma", f32({form.shape.back()}));
    beta = graph.input("beta", f32({form.shape.back()}));
    const ValueId wide = cast(x, DType::Float32);
    y = cast(normalized(wide), form.dtype);
    if (!form.activation.empty()) y = call(graph, form.activation, {y}, form.parameters);
    rooted.outputs = {cast(y, DType::Float32)};
    if (!form.has_gradients) return;
    const std::vector<ValueId> wrt = {x, gamma, beta};
    for (const ValueId gradient : graph.gradients({y}, {given("gy")}, wrt)) {
      rooted.outputs.push_back(cast(gradient, DType::Float32));
    }
  }

  // As it is when fusions are looked for.
  RootedGraph simplified() const {
    RootedGraph simple = merge_common_subexpressions(eliminate_dead_code(rooted));
    return eliminate_dead_code(merge_common_subexpressions(fold_constants(simple)));
  }

  ValueId given(const std::string& name) {
    return cast(graph.input(name, f32(form.shape)), form.dtype);
  }
  ValueId cast(ValueId value, DType dtype) {
    if (graph.value(value).spec.dtype == dtype) return value;
    return call(graph, "cast", {value}, {{"dtype", std::string(dtype_name(dtype))}});
  }
  ValueId reshaped(ValueId value, const Shape& shape) {
    return call(graph, "reshape", {value}, {{"shape", shape}});
  }
  ValueId normalized(ValueId wide) {
    const int64_t samples = form.shape.front(), channels = form.shape.back();
    const Shape in_groups = {samples, form.groups, channels / form.groups};
    const Attributes members = {{"axes", Shape{2}}, {"keepdims", true}};
    const std::vector<ValueId> moments =
        graph.apply("column_moments", {wide}, {{"outer_axes", int64_t{1}}});
    ValueId means = reshaped(moments[0], in_groups), mean = means;
    ValueId variance = reshaped(moments[1], in_groups);
    if (in_groups[2] > 1) {
      mean = call(graph, "reduce_mean", {means}, members);
      const ValueId apart = call(graph, "square", {call(graph, "subtract", {means, mean})});
      variance = call(graph, "reduce_mean", {call(graph, "add", {variance, apart})}, members);
    }
    const ValueId epsilon = graph.full(f32({}), 1e-3);
    ValueId scale = call(graph, "rsqrt", {call(graph, "add", {variance, epsilon})});
    const Shape weights = {1, in_groups[1], in_groups[2]};
    scale = call(graph, "multiply", {scale, reshaped(gamma, weights)});
    const ValueId wide_mean = call(graph, "broadcast_to", {mean}, {{"shape", in_groups}});
    ValueId origin = call(graph, "stop_gradient", {wide_mean});
    ValueId shift = call(graph, "multiply", {call(graph, "subtract", {origin, mean}), scale});
    shift = call(graph, "add", {shift, reshaped(beta, weights)});
    Shape beside(form.shape.size(), 1);
    beside.front() = samples;
    beside.back() = channels;
    origin = reshaped(origin, beside);
    const ValueId scales = reshaped(scale, beside), shifts = reshaped(shift, beside);
    centred = call(graph, "subtract", {wide, origin});
    return call(graph, "add", {call(graph, "multiply", {centred, scales}), shifts});
  }

  const GroupNormForm form;
  RootedGraph rooted;
  Graph& graph = rooted.graph;
  ValueId x = kNoValue, gamma = kNoValue, beta = kNoValue, centred = kNoValue, y = kNoValue;
};

}  // namespace kerascnn::testing
