// The loss of connectionist temporal classification (Graves et al., Connectionist temporal
// classification: labelling unsegmented sequence data with recurrent neural networks, 2006):
// minus the logarithm of the probability of all paths that spell a sequence of labels.
//
// Inputs: logits (n, frames, classes); labels (n, most labels); how many of the labels and of the
// frames count, both (n,). Outputs: the loss (n,), infinite where the frames are too few for the
// labels; and its gradient with respect to the logits, which the recurrences give beside the loss
// and which is NaN for a loss that is infinite. Kernels can't raise: a length or a counted label
// that is out of range makes its sample's loss and gradient NaN.
#include "core/ops/ctc_loss.h"

#include "core/ops/definitions.h"
#include "core/ops/gradient_expression.h"

namespace kerascnn {
namespace {

void check_logits(const TensorSpec& logits) {
  check_rank("ctc_loss", "the output", logits, 3);
  if (logits.dtype != DType::Float32 && logits.dtype != DType::Float64) {
    throw TypeError(message("ctc_loss: the output must be float32 or float64, received ",
                            dtype_name(logits.dtype), "; cast it first"));
  }
  if (logits.shape[2] < 1) {
    throw ValueError(message("ctc_loss: there must be at least 1 class, received shape ",
                             shape_string(logits.shape)));
  }
}

void check_labels(Specs inputs) {
  const TensorSpec& logits = inputs[0];
  const TensorSpec& target = inputs[1];
  check_index("ctc_loss", "the target", target);
  check_rank("ctc_loss", "the target", target, 2);
  if (target.shape[0] != logits.shape[0]) {
    throw ValueError(
        message("ctc_loss: the target and the output must have the same first "
                "dimension, received target ",
                shape_string(target.shape), " and output ", shape_string(logits.shape)));
  }
  const Shape lengths = {logits.shape[0]};
  check_shape("ctc_loss", "the target_length", inputs[2], lengths);
  check_shape("ctc_loss", "the output_length", inputs[3], lengths);
  if (inputs[2].dtype != target.dtype || inputs[3].dtype != target.dtype) {
    throw TypeError(message("ctc_loss: the target and both lengths must have one dtype, received ",
                            specs_string(inputs.subspan(1)), "; cast some of them first"));
  }
}

std::vector<TensorSpec> infer_ctc_loss(const Attributes& attributes, Specs inputs) {
  check_num_inputs("ctc_loss", inputs, 4);
  check_logits(inputs[0]);
  check_labels(inputs);
  const int64_t mask_index = attributes.get_int("mask_index");
  const int64_t classes = inputs[0].shape[2];
  if (mask_index < 0 || mask_index >= classes) {
    throw ValueError(message("ctc_loss: mask_index must be the number of a class, from 0 to ",
                             classes - 1, " for the output ", shape_string(inputs[0].shape),
                             ", received ", mask_index));
  }
  return {{inputs[0].dtype, {inputs[0].shape[0]}}, inputs[0]};
}

std::vector<ValueId> ctc_loss_gradient(GradientContext& context) {
  if (context.output_gradient(1) != kNoValue) {
    throw ValueError(
        message("ctc_loss: no gradient leads through its second output: ", kNoSecondDerivative,
                "; where it is needed, write the loss as a loop over the frames"));
  }
  const Shape samples = {context.spec(context.input(0)).shape[0], 1, 1};
  const Expression gy{&context, context.output_gradient(0)};
  const Expression slope{&context, context.output(1)};
  return {(gy.call("reshape", {{"shape", samples}}) * slope).id, kNoValue, kNoValue, kNoValue};
}

}  // namespace

CtcSizes ctc_sizes(const Attributes& attributes, Specs inputs) {
  const Shape& logits = inputs[0].shape;
  return {logits[0], logits[1], logits[2], inputs[1].shape[1], attributes.get_int("mask_index")};
}

const OpDef op_ctc_loss = {
    .name = "ctc_loss",
    .infer = infer_ctc_loss,
    .gradient = ctc_loss_gradient,
    .first_optional_output = 1,
};

}  // namespace kerascnn
