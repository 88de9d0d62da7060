// Graphs of attention and its gradients, as layers and ops trace them.
#pragma once

#include <vector>

#include "graph_testing.h"

namespace kerascnn::testing {

struct AttentionForm {
  bool one_batch = true;  // as einsum writes products: batch and heads are one axis
  bool scales = true;
  bool heads_behind = true;  // (batch, length, heads, size), else (batch, heads, length, size)
  bool adds = false;         // a bias, where the products have two axes
  bool is_causal = false;
  bool has_gradients = true;
  DType dtype = DType::Float32;
  int64_t batch = 2, heads = 3, queries = 5, keys = 7, size = 8;
};

struct AttentionGraph {
  explicit AttentionGraph(const AttentionForm& form) : form(form) {
    q = graph.input("q", tensor(form.queries));
    k = graph.input("k", tensor(form.keys));
    v = graph.input("v", tensor(form.keys));
    const bool behind = form.heads_behind;
    ValueId queries = q;
    if (form.one_batch) queries = scaled(queries);
    if (behind) queries = transposed(queries, {0, 2, 1, 3});
    if (!form.one_batch) queries = scaled(queries);
    const ValueId keys = transposed(k, behind ? Shape{0, 2, 3, 1} : Shape{0, 1, 3, 2});
    const ValueId values = behind ? transposed(v, {0, 2, 1, 3}) : v;
    logits = split(product(joined(queries), joined(keys)));
    if (form.adds && !form.one_batch) {
      const ValueId bias = graph.input("bias", {form.dtype, {form.heads, form.queries, 1}});
      logits = call(graph, "add", {bias, logits});
    }
    if (form.is_causal) logits = masked(logits);
    shares = call(graph, "softmax", {logits}, {{"axis", int64_t{3}}});
    y = split(product(joined(shares), joined(values)));
    if (behind) y = transposed(y, {0, 2, 1, 3});
    rooted.outputs = {y};
    if (!form.has_gradients) return;
    const ValueId gy = graph.input("gy", graph.value(y).spec);
    for (const ValueId gradient : graph.gradients({y}, {gy}, {q, k, v})) {
      rooted.outputs.push_back(gradient);
    }
  }

  TensorSpec tensor(int64_t length) const {
    return {form.dtype, form.heads_behind ? Shape{form.batch, length, form.heads, form.size}
                                          : Shape{form.batch, form.heads, length, form.size}};
  }
  ValueId transposed(ValueId value, const Shape& permutation) {
    return call(graph, "transpose", {value}, {{"permutation", permutation}});
  }
  ValueId scaled(ValueId value) {
    if (!form.scales) return value;
    return call(graph, "multiply", {value, graph.full({form.dtype, {}}, 0.375)});
  }
  ValueId joined(ValueId value) {
    if (!form.one_batch) return value;
    const Shape shape = graph.value(value).spec.shape;
    return call(graph, "reshape", {value},
                {{"shape", Shape{form.batch * form.heads, shape[2], shape[3]}}});
  }
  ValueId split(ValueId value) {
    if (!form.one_batch) return value;
    const Shape shape = graph.value(value).spec.shape;
    return call(graph, "reshape", {value},
                {{"shape", Shape{form.batch, form.heads, shape[1], shape[2]}}});
  }
  ValueId product(ValueId a, ValueId b) {
    return call(graph, "matmul", {a, b}, {{"transpose_a", false}, {"transpose_b", false}});
  }
  ValueId masked(ValueId value) {
    std::vector<uint8_t> sees;
    for (int64_t i = 0; i < form.queries; ++i) {
      for (int64_t j = 0; j < form.keys; ++j) sees.push_back(j <= i ? 1 : 0);
    }
    const TensorSpec spec = {DType::Bool, {1, 1, form.queries, form.keys}};
    const ValueId mask = graph.constant(Tensor::from_host(sees.data(), spec, Device{}));
    return call(graph, "where", {mask, value, graph.full({form.dtype, {}}, -3e4)});
  }

  const AttentionForm form;
  RootedGraph rooted;
  Graph& graph = rooted.graph;
  ValueId q = kNoValue, k = kNoValue, v = kNoValue;
  ValueId logits = kNoValue, shares = kNoValue, y = kNoValue;
};

}  // namespace kerascnn::testing
