// Cross-entropy with integer labels. A label outside [0, classes) makes its row's loss NaN: kernels
// can't raise, whoever has the labels on the host checks them before.
#include "core/ops/cost.h"
#include "core/ops/definitions.h"

namespace kerascnn {
namespace {

void check_epsilon(std::string_view op, const Attributes& attributes) {
  const double epsilon = attributes.get_double("epsilon");
  if (!(epsilon >= 0.0 && epsilon < 0.5)) {
    throw ValueError(message(op, ": epsilon must be in [0, 0.5), received ", epsilon));
  }
}

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

// With the loss's gradient as a third input the gradient of the logits is a third output: known
// before the loss is, as it is for a mean, it costs no kernel of its own.
template <OpName name>
std::vector<TensorSpec> infer_cross_entropy(const Attributes& attributes, Specs inputs) {
  constexpr bool is_softmax = std::string_view(name) == "sparse_softmax_cross_entropy";
  const bool has_gradient = is_softmax && inputs.size() == 3;
  check_num_inputs(name, inputs, has_gradient ? 3 : 2);
  check_scores(name, is_softmax ? "the logits" : "the probabilities", inputs[0], inputs[1]);
  check_epsilon(name, attributes);
  const TensorSpec loss = {inputs[0].dtype, inputs[1].shape};
  if (has_gradient) {
    check_shape(name, "the gradient", inputs[2], inputs[1].shape);
    if (inputs[2].dtype != inputs[0].dtype) {
      throw TypeError(message(std::string_view(name), ": the gradient must be ",
                              dtype_name(inputs[0].dtype), " like the logits, received ",
                              dtype_name(inputs[2].dtype)));
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
  check_epsilon(name, attributes);
  return {inputs[1]};
}

std::vector<ValueId> cross_entropy_gradient(GradientContext& context) {
  return {context.apply("sparse_cross_entropy_grad",
                        {context.output_gradient(), context.input(0), context.input(1)},
                        context.attributes()),
          kNoValue};
}

// Through the loss and, where the probabilities are used as well, through the softmax.
std::vector<ValueId> softmax_cross_entropy_gradient(GradientContext& context) {
  if (context.num_inputs() == 3) {
    throw ValueError(
        message("sparse_softmax_cross_entropy with a gradient: ", kNoSecondDerivative));
  }
  const ValueId probabilities = context.output(1);
  ValueId gradient = kNoValue;
  if (context.output_gradient(0) != kNoValue) {
    gradient = context.apply("sparse_softmax_cross_entropy_grad",
                             {context.output_gradient(0), probabilities, context.input(1)},
                             context.attributes());
  }
  if (context.output_gradient(1) != kNoValue) {
    const ValueId through_softmax = context.apply(
        "softmax_grad", {context.output_gradient(1), probabilities}, {{"axis", int64_t{-1}}});
    gradient =
        gradient == kNoValue ? through_softmax : context.apply("add", {gradient, through_softmax});
  }
  return {gradient, kNoValue};
}

}  // namespace

const OpDef op_sparse_cross_entropy = {
    .name = "sparse_cross_entropy",
    .infer = infer_cross_entropy<"sparse_cross_entropy">,
    .gradient = cross_entropy_gradient,
};

const OpDef op_sparse_cross_entropy_grad = {
    .name = "sparse_cross_entropy_grad",
    .infer = infer_cross_entropy_grad<"sparse_cross_entropy_grad">,
    .not_differentiable = kNoSecondDerivative,
};

const OpDef op_sparse_softmax_cross_entropy = {
    .name = "sparse_softmax_cross_entropy",
    .infer = infer_cross_entropy<"sparse_softmax_cross_entropy">,
    .gradient = softmax_cross_entropy_gradient,
    .cost = cost_per_element<5>,
};

const OpDef op_sparse_softmax_cross_entropy_grad = {
    .name = "sparse_softmax_cross_entropy_grad",
    .infer = infer_cross_entropy_grad<"sparse_softmax_cross_entropy_grad">,
    .not_differentiable = kNoSecondDerivative,
};

}  // namespace kerascnn
