// The activations that dense and conv2d can end with, and that have ops of their own.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/base/attributes.h"

namespace kerascnn {

enum class Activation : uint8_t {
  Linear,
  Relu,
  LeakyRelu,
  ClippedRelu,
  Elu,
  Sigmoid,
  Tanh,
  Gelu,
  Silu,
  Softplus,
};

// An activation with its one parameter: negative_slope of leaky_relu, max_value of clipped_relu,
// alpha of elu, approximate (not 0) of gelu; unused by the others.
struct ActivationCall {
  Activation kind = Activation::Linear;
  double alpha = 0.0;
};

// Throws ValueError that starts with `op` and lists the names.
Activation activation_from_name(std::string_view op, std::string_view name);
const char* activation_name(Activation activation);
// The activation that an op of this name applies; none where it is no such op.
std::optional<Activation> find_activation(std::string_view op);

// The gradient op takes the activation's output y (else its input x) as second input.
constexpr bool gradient_uses_output(Activation activation) {
  return activation <= Activation::Tanh;
}

// From the attributes "activation" and "activation_alpha" of dense and conv2d.
ActivationCall fused_activation(std::string_view op, const Attributes& attributes);

// From the attributes of an activation op or of its gradient op: "negative_slope", "max_value",
// "alpha" or "approximate". `activation` is what the op's name says.
ActivationCall activation_call(Activation activation, const Attributes& attributes);

// The attributes of the activation op (and of its gradient op) that `call` stands for.
Attributes activation_attributes(const ActivationCall& call);

}  // namespace kerascnn
