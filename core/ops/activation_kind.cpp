#include "core/ops/activation_kind.h"

#include <array>
#include <string>

#include "core/base/error.h"

namespace kerascnn {
namespace {

// In the order of the enumeration; `parameter` is the attribute's name, empty where there is none.
struct ActivationInfo {
  const char* name;
  const char* parameter;
};
constexpr std::array<ActivationInfo, 10> kActivations = {{
    {"linear", ""},
    {"relu", ""},
    {"leaky_relu", "negative_slope"},
    {"clipped_relu", "max_value"},
    {"elu", "alpha"},
    {"sigmoid", ""},
    {"tanh", ""},
    {"gelu", "approximate"},
    {"silu", ""},
    {"softplus", ""},
}};

const ActivationInfo& info(Activation activation) {
  return kActivations[static_cast<size_t>(activation)];
}

// The gradients of these three read the side of 0 (or of max_value) off the output, which needs
// these limits.
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
  for (size_t i = 0; i < kActivations.size(); ++i) {
    if (name == kActivations[i].name) return static_cast<Activation>(i);
    known += (i ? ", " : "") + std::string(kActivations[i].name);
  }
  throw ValueError(
      message(op, ": there is no activation \"", name, "\"; expected one of: ", known));
}

const char* activation_name(Activation activation) { return info(activation).name; }

std::optional<Activation> find_activation(std::string_view op) {
  for (size_t i = 1; i < kActivations.size(); ++i) {
    if (op == kActivations[i].name) return static_cast<Activation>(i);
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
