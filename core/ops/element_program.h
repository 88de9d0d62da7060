// A register program over single elements, which ready-made kernels run for a region of kind map
// (core/graph/region_program.h).
//
// Registers are numbered from 0: the inputs, then the constants, then one result for each
// instruction. Every register is written once. Inputs broadcast to the shape of the outputs.
//
// Every result is rounded to its dtype (float16, bfloat16) or wrapped (integers) at once, so a
// program gives the same bits as its ops one by one. A kernel loads all inputs of an element before
// it stores any of its outputs, so an output may have the memory of any input of its dtype and
// shape.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/dtype.h"
#include "core/base/half.h"
#include "core/ops/element_functions.h"
#include "core/ops/op.h"

namespace kerascnn {

constexpr int kMaxElementInputs = 8;
constexpr int kMaxElementConstants = 16;
constexpr int kMaxElementInstructions = 32;
constexpr int kMaxElementOutputs = 8;
constexpr int kMaxElementRegisters =
    kMaxElementInputs + kMaxElementConstants + kMaxElementInstructions;

struct ElementInstruction {
  ElementOp op = ElementOp::cast;
  DType operand_dtype = DType::Float32;  // of the operands; of the two choices for `where`
  DType result_dtype = DType::Float32;  // differs from operand_dtype for bool results and cast only
  uint8_t operands[3] = {0, 0, 0};      // registers; 0 where the op has fewer
  double parameters[2] = {0, 0};
};

// Plain data of a fixed size, so that it can be a kernel's argument.
struct ElementProgram {
  int num_inputs = 0;
  int num_constants = 0;
  int num_instructions = 0;
  int num_outputs = 0;
  DType register_dtypes[kMaxElementRegisters] = {};
  double constants[kMaxElementConstants] = {};
  ElementInstruction instructions[kMaxElementInstructions];
  uint8_t outputs[kMaxElementOutputs] = {};

  KERASCNN_HOST_DEVICE int first_constant() const { return num_inputs; }
  KERASCNN_HOST_DEVICE int first_result() const { return num_inputs + num_constants; }
};

// "multiply+relu"
std::string element_program_name(const ElementProgram& program);

// The element op that this op is; none for ops that are not functions of one element.
std::optional<ElementOp> find_element_op(const OpDef& op);
// The op's parameters from the attributes of its unfused form: {min, max} of clip, and so on.
struct ElementParameters {
  double values[2] = {0, 0};
};
ElementParameters element_parameters(ElementOp op, const Attributes& attributes);

// A register of the reference evaluator: f for float16, bfloat16 and float32, d for float64, i for
// integers and bool (0 or 1).
union ElementValue {
  float f;
  double d;
  int64_t i;
};

// Rounds a float to the nearest float16 or bfloat16. Device code brings its own with these two
// functions.
struct HostRounding {
  static float to_float16(float value) { return float_from_half_bits(half_bits_from_float(value)); }
  static float to_bfloat16(float value) {
    return float_from_bfloat16_bits(bfloat16_bits_from_float(value));
  }
};

template <typename Rounding>
KERASCNN_HOST_DEVICE float round_element(DType dtype, float value) {
  if (dtype == DType::Float16) return Rounding::to_float16(value);
  if (dtype == DType::BFloat16) return Rounding::to_bfloat16(value);
  return value;
}

KERASCNN_HOST_DEVICE int64_t wrap_element(DType dtype, int64_t value) {
  switch (dtype) {
    case DType::Bool:
      return value != 0;
    case DType::UInt8:
      return static_cast<uint8_t>(value);
    case DType::Int8:
      return static_cast<int8_t>(value);
    case DType::Int16:
      return static_cast<int16_t>(value);
    case DType::Int32:
      return static_cast<int32_t>(value);
    default:
      return value;
  }
}

// Stores `value`, of any compute type, as the register's dtype.
template <typename Rounding, typename T>
KERASCNN_HOST_DEVICE ElementValue make_element(DType dtype, T value) {
  ElementValue result;
  if (dtype == DType::Float64) {
    result.d = static_cast<double>(value);
  } else if (dtype >= DType::Float16) {
    result.f = round_element<Rounding>(dtype, static_cast<float>(value));
  } else if (dtype == DType::Bool) {
    result.i = value != T(0);
  } else {
    result.i = wrap_element(dtype, element::cast<int64_t>(value));
  }
  return result;
}

// One instruction on the registers of one element: the definition that kernels are tested against.
template <typename Rounding>
KERASCNN_HOST_DEVICE ElementValue evaluate_element(const ElementInstruction& instruction,
                                                   const ElementValue* registers) {
  const ElementValue a = registers[instruction.operands[0]];
  const ElementValue b = registers[instruction.operands[1]];
  const ElementValue c = registers[instruction.operands[2]];
  const DType dtype = instruction.result_dtype;
  if (instruction.op == ElementOp::where) return a.i != 0 ? b : c;
  const double* p = instruction.parameters;
  if (instruction.operand_dtype == DType::Float64) {
    return make_element<Rounding>(dtype,
                                  element_apply<double>(instruction.op, a.d, b.d, c.d, p[0], p[1]));
  }
  if (instruction.operand_dtype >= DType::Float16) {
    return make_element<Rounding>(
        dtype, element_apply<float>(instruction.op, a.f, b.f, c.f, static_cast<float>(p[0]),
                                    static_cast<float>(p[1])));
  }
  return make_element<Rounding>(
      dtype, element_apply<int64_t>(instruction.op, a.i, b.i, c.i, element::cast<int64_t>(p[0]),
                                    element::cast<int64_t>(p[1])));
}

}  // namespace kerascnn
