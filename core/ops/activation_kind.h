// The activations that dense and conv2d can end with, and that have ops of their own: the one list.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/base/attributes.h"
#include "core/ops/element_ops.h"

namespace kerascnn {

struct OpDef;

// ACTIVATION(kind, op, parameter, reference). The gradient op, <op>_grad, takes the gradient and
// the reference: the activation's Output where its slope follows from that, else its Input.
// `parameter` is the one attribute of both ops, "" where there is none.
// clang-format off
#define KERASCNN_ACTIVATION_LIST(ACTIVATION)                        \
  ACTIVATION(Relu, relu, "", Output)                                \
  ACTIVATION(LeakyRelu, leaky_relu, "negative_slope", Output)       \
  ACTIVATION(ClippedRelu, clipped_relu, "max_value", Output)        \
  ACTIVATION(Elu, elu, "alpha", Output)                             \
  ACTIVATION(Sigmoid, sigmoid, "", Output)                          \
  ACTIVATION(Tanh, tanh, "", Output)                                \
  ACTIVATION(Gelu, gelu, "approximate", Input)                      \
  ACTIVATION(Silu, silu, "", Input)                                 \
  ACTIVATION(Softplus, softplus, "", Input)
// clang-format on

enum class Activation : uint8_t {
  Linear,
#define KERASCNN_ENUMERATOR(kind, ...) kind,
  KERASCNN_ACTIVATION_LIST(KERASCNN_ENUMERATOR)
#undef KERASCNN_ENUMERATOR
};

// An activation with its one parameter (approximate of gelu is 0 or 1), which the others don't use.
struct ActivationCall {
  Activation kind = Activation::Linear;
  double alpha = 0.0;
};

// Throws ValueError that starts with `op` and lists the names.
Activation activation_from_name(std::string_view op, std::string_view name);
const char* activation_name(Activation activation);

// The gradient op of any activation but Linear.
const OpDef& activation_gradient_op(Activation activation);
// The activation that an op applies; none where it is no such op.
std::optional<Activation> find_activation(const OpDef& op);
// The activation that an op like relu_grad takes a gradient back through.
std::optional<Activation> find_activation_of_gradient(const OpDef& op);

enum class ActivationReference : uint8_t { Input, Output };

constexpr bool gradient_uses_output(Activation activation) {
  switch (activation) {
#define KERASCNN_CASE(kind, op, parameter, reference) \
  case Activation::kind:                              \
    return ActivationReference::reference == ActivationReference::Output;
    KERASCNN_ACTIVATION_LIST(KERASCNN_CASE)
#undef KERASCNN_CASE
    case Activation::Linear:
      break;
  }
  return true;
}

// The activation that an element op applies or takes a gradient back through; Linear for others.
constexpr Activation activation_of(ElementOp element_op) {
  switch (element_op) {
#define KERASCNN_CASE(kind, op, ...) \
  case ElementOp::op:                \
  case ElementOp::op##_grad:         \
    return Activation::kind;
    KERASCNN_ACTIVATION_LIST(KERASCNN_CASE)
#undef KERASCNN_CASE
    default:
      return Activation::Linear;
  }
}

// Calls function(ElementOpConstant<op>()), so that a loop can be compiled for each activation; does
// nothing for Linear.
template <typename Function>
void dispatch_activation(Activation activation, Function&& function) {
  switch (activation) {
#define KERASCNN_CASE(kind, op, ...) \
  case Activation::kind:             \
    return function(ElementOpConstant<ElementOp::op>());
    KERASCNN_ACTIVATION_LIST(KERASCNN_CASE)
#undef KERASCNN_CASE
    case Activation::Linear:
      return;
  }
}

// From the attributes "activation" and "activation_alpha" of dense and conv2d.
ActivationCall fused_activation(std::string_view op, const Attributes& attributes);

// From the attributes of an activation op or of its gradient op.
ActivationCall activation_call(Activation activation, const Attributes& attributes);

// The attributes of the activation op (and of its gradient op) that `call` stands for.
Attributes activation_attributes(const ActivationCall& call);

}  // namespace kerascnn
