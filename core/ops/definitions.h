// Declares op_<name> for every op of op_list.h. The files of core/ops/ define them.
#pragma once

#include "core/ops/op.h"
#include "core/ops/op_list.h"

namespace kerascnn {

#define KERASCNN_DECLARE_OP(name, ...) extern const OpDef op_##name;
KERASCNN_OP_LIST(KERASCNN_DECLARE_OP)
#undef KERASCNN_DECLARE_OP

// The op's name as a template argument, so that ops of one kind share a shape rule and keep their
// own name in its errors: infer_unary<"exp">.
template <size_t size>
struct OpName {
  char text[size]{};
  consteval OpName(const char (&name)[size]) {
    for (size_t i = 0; i < size; ++i) text[i] = name[i];
  }
  constexpr operator std::string_view() const { return {text, size - 1}; }
};

// Output 0 in the memory of input 0, or of the first two inputs.
inline std::vector<InPlace> in_place_first(const Attributes&, size_t) { return {{0, 0}}; }
inline std::vector<InPlace> in_place_both(const Attributes&, size_t) { return {{0, 0}, {0, 1}}; }

// How many leading axes of its input have statistics of their own.
int64_t column_moments_outer_axes(const Attributes& attributes);

constexpr std::string_view kBooleanResult = "its result is boolean";
constexpr std::string_view kNoSecondDerivative =
    "it is itself a gradient, and its derivative (a second derivative of the op) is not defined";

}  // namespace kerascnn
