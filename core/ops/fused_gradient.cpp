#include "core/ops/fused_gradient.h"

#include "core/ops/activation_kind.h"

namespace kerascnn {

void check_bias(std::string_view op, Specs inputs, int64_t channels) {
  if (inputs.size() != 2 && inputs.size() != 3) {
    throw ValueError(
        message(op, ": expected 2 inputs, or 3 with a bias, received ", inputs.size()));
  }
  if (inputs.size() == 3) check_shape(op, "the bias", inputs[2], {channels});
}

Attributes linear_attributes(const GradientContext& context) {
  Attributes attributes = context.attributes();
  attributes.set("activation", std::string("linear"));
  attributes.set("activation_alpha", 0.0);
  return attributes;
}

ValueId before_activation(GradientContext& context, std::string_view op) {
  const ActivationCall activation = fused_activation(op, context.attributes());
  const ValueId gy = context.output_gradient();
  if (activation.kind == Activation::Linear) return gy;
  ValueId reference = context.output(0);
  if (!gradient_uses_output(activation.kind)) {
    std::vector<ValueId> inputs;
    for (size_t i = 0; i < context.num_inputs(); ++i) inputs.push_back(context.input(i));
    reference = context.apply(op, inputs, linear_attributes(context));
  }
  return context.apply(activation_gradient_op(activation.kind), {gy, reference},
                       activation_attributes(activation));
}

}  // namespace kerascnn
