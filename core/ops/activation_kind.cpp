#include "core/ops/activation_kind.h"

#include <iterator>
#include <string>

#include "core/base/error.h"
#include "core/ops/definitions.h"

namespace kerascnn {
namespace {

// The rows are in the order of the enumeration.
struct ActivationInfo {
  const char* name;
  const char* parameter;
  const OpDef* op;
  const OpDef* gradient;
};
constexpr ActivationInfo kActivations[] = {{"linear", "", nullptr, nullptr},
#define KERASCNN_INFO(kind, op, parameter, reference) {#op, parameter, &op_##op, &op_##op##_grad},
                                           KERASCNN_ACTIVATION_LIST(KERASCNN_INFO)
#undef KERASCNN_INFO
};

const ActivationInfo& info(Activation activation) {
  return kActivations[static_cast<size_t>(activation)];
}

// The gradients of these three read off the output on which side of 0 (or of max_value) the input
// was, which needs these limits.
void check_alpha(std::string_view op, const ActivationCall& call) {
  const bool needs_non_negative =
      call.kind == Activation::LeakyRelu || call.kind == Activation::Elu;
  if (needs_non_negative && !(call.alpha >= 0.0)) {
    throw ValueError(message(op, ": ", info(call.kind).parameter,
                             " must not be negative, received ", call.alpha));
  }
  if (call.kind == Activation::ClippedRelu && !(call.alpha > 0.0)) {
    throw ValueError(message(op, ": max_value must be positive, received ", call.alpha));
  }
}

}  // namespace

Activation activation_from_name(std::string_view op, std::string_view name) {
  std::string known;
  for (size_t i = 0; i < std::size(kActivations); ++i) {
    if (name == kActivations[i].name) return static_cast<Activation>(i);
    known += (i ? ", " : "") + std::string(kActivations[i].name);
  }
  throw ValueError(
      message(op, ": there is no activation \"", name, "\"; expected one of: ", known));
}

const char* activation_name(Activation activation) { return info(activation).name; }

const OpDef& activation_gradient_op(Activation activation) { return *info(activation).gradient; }

std::optional<Activation> find_activation(const OpDef& op) {
  for (size_t i = 1; i < std::size(kActivations); ++i) {
    if (&op == kActivations[i].op) return static_cast<Activation>(i);
  }
  return std::nullopt;
}

std::optional<Activation> find_activation_of_gradient(const OpDef& op) {
  for (size_t i = 1; i < std::size(kActivations); ++i) {
    if (&op == kActivations[i].gradient) return static_cast<Activation>(i);
  }
  return std::nullopt;
}

ActivationCall fused_activation(std::string_view op, const Attributes& attributes) {
  ActivationCall call{activation_from_name(op, attributes.get_string("activation")),
                      attributes.get_double("activation_alpha")};
  check_alpha(op, call);
  return call;
}

ActivationCall activation_call(Activation activation, const Attributes& attributes) {
  ActivationCall call{activation, 0.0};
  const char* parameter = info(activation).parameter;
  if (activation == Activation::Gelu) {
    call.alpha = attributes.get_bool(parameter) ? 1.0 : 0.0;
  } else if (*parameter != '\0') {
    call.alpha = attributes.get_double(parameter);
  }
  check_alpha(info(activation).name, call);
  return call;
}

Attributes activation_attributes(const ActivationCall& call) {
  const char* parameter = info(call.kind).parameter;
  if (call.kind == Activation::Gelu) return {{parameter, call.alpha != 0.0}};
  if (*parameter != '\0') return {{parameter, call.alpha}};
  return {};
}

}  // namespace kerascnn
