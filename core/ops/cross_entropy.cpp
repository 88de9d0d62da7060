// Cross-entropy with integer labels. A label outside [0, classes) makes its row's loss NaN: kernels
// can't raise, so labels on the host are checked before.
#include "core/ops/cost.h"
#include "core/ops/definitions.h"
#include "core/ops/gradient_expression.h"

namespace kerascnn {
namespace {

void check_scores(std::string_view op, std::string_view argument, const TensorSpec& scores,
                  const TensorSpec& labels) {
  check_floating(op, argument, scores);
  check_rank(op, argument, scores, 2);
  check_index(op, "the labels", labels);
  check_rank(op, "the labels", labels, 1);
  if (scores.shape[1] < 1) {
    throw ValueError(message(op, ": there must be at least 1 class, received shape ",
                             shape_string(scores.shape)));
  }
  if (labels.shape[0] != scores.shape[0]) {
    throw ValueError(message(op, ": ", labels.shape[0], " labels for ", scores.shape[0],
                             " samples (", argument, " ", shape_string(scores.shape), ", labels ",
                             shape_string(labels.shape), ")"));
  }
}

// If the loss's gradient is a third input, the gradient of the logits is a third output. That saves
// a kernel where the loss's gradient is known before the loss, as for a mean.
template <const OpDef& op>
std::vector<TensorSpec> infer_cross_entropy(const Attributes& attributes, Specs inputs) {
  const std::string_view name = op.name;
  const bool is_softmax = &op == &op_sparse_softmax_cross_entropy;
  const bool has_gradient = is_softmax && inputs.size() == 3;
  check_num_inputs(name, inputs, has_gradient ? 3 : 2);
  check_scores(name, is_softmax ? "the logits" : "the probabilities", inputs[0], inputs[1]);
  check_range(name, attributes, "epsilon", 0.5);
  const TensorSpec loss = {inputs[0].dtype, inputs[1].shape};
  if (has_gradient) {
    check_shape(name, "the gradient", inputs[2], inputs[1].shape);
    if (inputs[2].dtype != inputs[0].dtype) {
      throw TypeError(message(name, ": the gradient must be ", dtype_name(inputs[0].dtype),
                              " like the logits, received ", dtype_name(inputs[2].dtype)));
    }
    return {loss, inputs[0], inputs[0]};
  }
  if (is_softmax) return {loss, inputs[0]};
  return {loss};
}

template <OpName name>
std::vector<TensorSpec> infer_cross_entropy_grad(const Attributes& attributes, Specs inputs) {
  check_num_inputs(name, inputs, 3);
  check_scores(name, "the probabilities", inputs[1], inputs[2]);
  check_same_dtype(name, inputs.first(2));
  check_shape(name, "the gradient", inputs[0], inputs[2].shape);
  check_range(name, attributes, "epsilon", 0.5);
  return {inputs[1]};
}

std::vector<ValueId> cross_entropy_gradient(GradientContext& context) {
  return {context.apply("sparse_cross_entropy_grad",
                        {context.output_gradient(), context.input(0), context.input(1)},
                        context.attributes()),
          kNoValue};
}

// A call of one of the gradient ops, which gives g * slope: g of the loss is a column, the slopes
// by the scores are rows. `upstream` is the gradient of what it gave.
struct LossGradient {
  Expression g;
  Expression scores;
  Expression upstream;
  Expression slope;
  Expression is_label;  // 1 in the label's column, else 0
};

LossGradient loss_gradient(GradientContext& context, std::string_view op, ValueId g, ValueId scores,
                           ValueId labels, ValueId upstream) {
  const TensorSpec spec = context.spec(scores);
  const Attributes by_class = {{"depth", spec.shape[1]}, {"dtype", dtype_name(spec.dtype)}};
  return {.g = Expression{&context, g}.call("reshape", {{"shape", Shape{spec.shape[0], 1}}}),
          .scores = {&context, scores},
          .upstream = {&context, upstream},
          .slope = {&context, context.apply(op, {context.full_like(g, 1.0), scores, labels},
                                            context.attributes())},
          .is_label = {&context, context.apply("one_hot", {labels}, by_class)}};
}

Expression row_sum(Expression x, bool keepdims = true) {
  return x.call("reduce_sum", {{"axes", Shape{1}}, {"keepdims", keepdims}});
}

// The gradient by g. The op is linear in g.
ValueId by_gradient(const LossGradient& call) {
  return row_sum(call.upstream * call.slope, false).id;
}

// A column of ones. It has 0 where the label's probability is clipped and no slope is left, and NaN
// where there is no such label.
Expression passes(const LossGradient& call, bool is_clipped) {
  const Attributes by_row = {{"axes", Shape{1}}, {"keepdims", true}};
  const Expression largest = call.slope.call("absolute").call("reduce_max", by_row);
  return (is_clipped ? largest : largest + 1.0).call("sign").call("stop_gradient");
}

// With p the probabilities and l the label the op gives g (p - [j = l]).
ValueId by_softmax_probabilities(const LossGradient& call) {
  const double epsilon = call.g.context->attributes().get_double("epsilon");
  return (call.upstream * (call.g * passes(call, epsilon > 0))).id;
}

// With s the row's sum and l the label the op gives g (1 / s - [j = l] / x_l). Weighted by u and
// summed over j, that has the derivative g ([k = l] u_l / x_l^2 - sum(u) / s^2) by x_k. The slope
// at the label says what 1 / x_l is, also where x_l is 0 and clipped.
ValueId by_probabilities(const LossGradient& call) {
  const Expression by_sum = passes(call, true) / row_sum(call.scores);
  const Expression by_label = by_sum - row_sum(call.slope * call.is_label);
  const Expression along_label = call.upstream * call.is_label * by_label * by_label;
  return (call.g * (along_label - row_sum(call.upstream) * by_sum * by_sum)).id;
}

template <const OpDef& op>
std::vector<ValueId> cross_entropy_grad_gradient(GradientContext& context) {
  const LossGradient call = loss_gradient(context, op.name, context.input(0), context.input(1),
                                          context.input(2), context.output_gradient());
  const bool is_softmax = &op == &op_sparse_softmax_cross_entropy_grad;
  const ValueId by_scores = is_softmax ? by_softmax_probabilities(call) : by_probabilities(call);
  return {by_gradient(call), by_scores, kNoValue};
}

// The gradient goes through the loss, through the gradient that may be computed with it, and, where
// the probabilities are used as well, through the softmax.
std::vector<ValueId> softmax_cross_entropy_gradient(GradientContext& context) {
  constexpr std::string_view kGradient = "sparse_softmax_cross_entropy_grad";
  const ValueId labels = context.input(1), probabilities = context.output(1);
  const auto sum = [&](ValueId a, ValueId b) {
    if (a == kNoValue || b == kNoValue) return a == kNoValue ? b : a;
    return context.apply("add", {a, b});
  };
  std::vector<ValueId> gradients(context.num_inputs(), kNoValue);
  ValueId of_probabilities = context.output_gradient(1);
  if (gradients.size() == 3 && context.output_gradient(2) != kNoValue) {
    const LossGradient call = loss_gradient(context, kGradient, context.input(2), probabilities,
                                            labels, context.output_gradient(2));
    gradients[2] = by_gradient(call);
    of_probabilities = sum(of_probabilities, by_softmax_probabilities(call));
  }
  if (context.output_gradient(0) != kNoValue) {
    gradients[0] = context.apply(kGradient, {context.output_gradient(0), probabilities, labels},
                                 context.attributes());
  }
  if (of_probabilities != kNoValue) {
    gradients[0] = sum(
        gradients[0],
        context.apply("softmax_grad", {of_probabilities, probabilities}, {{"axis", int64_t{-1}}}));
  }
  return gradients;
}

}  // namespace

const OpDef op_sparse_cross_entropy = {
    .name = "sparse_cross_entropy",
    .infer = infer_cross_entropy<op_sparse_cross_entropy>,
    .gradient = cross_entropy_gradient,
};

const OpDef op_sparse_cross_entropy_grad = {
    .name = "sparse_cross_entropy_grad",
    .infer = infer_cross_entropy_grad<"sparse_cross_entropy_grad">,
    .gradient = cross_entropy_grad_gradient<op_sparse_cross_entropy_grad>,
};

const OpDef op_sparse_softmax_cross_entropy = {
    .name = "sparse_softmax_cross_entropy",
    .infer = infer_cross_entropy<op_sparse_softmax_cross_entropy>,
    .gradient = softmax_cross_entropy_gradient,
    .cost = cost_per_element<5>,
};

const OpDef op_sparse_softmax_cross_entropy_grad = {
    .name = "sparse_softmax_cross_entropy_grad",
    .infer = infer_cross_entropy_grad<"sparse_softmax_cross_entropy_grad">,
    .gradient = cross_entropy_grad_gradient<op_sparse_softmax_cross_entropy_grad>,
};

}  // namespace kerascnn
