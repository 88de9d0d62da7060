#include "core/ops/fused_elementwise.h"

#include <algorithm>

#include "core/ops/cost.h"
#include "core/ops/definitions.h"

namespace kerascnn {
namespace {

constexpr size_t kIntsPerInstruction = 5;
constexpr size_t kParametersPerInstruction = 2;

[[noreturn]] void fail(const std::string& reason) {
  throw ValueError("fused_elementwise: " + reason);
}

void check_range(std::string_view what, int64_t value, int64_t end) {
  if (value < 0 || value >= end) {
    fail(message(what, " is ", value, ", which is not in [0, ", end, ")"));
  }
}

DType checked_dtype(int64_t value) {
  check_range("a dtype", value, static_cast<int64_t>(DType::Float64) + 1);
  return static_cast<DType>(value);
}

void check_dtypes(const ElementProgram& program, const ElementInstruction& instruction) {
  const int operands = element_num_operands(instruction.op);
  const int first = instruction.op == ElementOp::where ? 1 : 0;
  for (int i = first; i < operands; ++i) {
    if (program.register_dtypes[instruction.operands[i]] != instruction.operand_dtype) {
      fail(message("operands of ", element_op_name(instruction.op), " differ in dtype"));
    }
  }
  if (first == 1 && program.register_dtypes[instruction.operands[0]] != DType::Bool) {
    fail("the condition of where must be bool");
  }
  if (instruction.op == ElementOp::cast) return;
  const DType expected =
      element_result_is_bool(instruction.op) ? DType::Bool : instruction.operand_dtype;
  if (instruction.result_dtype != expected) {
    fail(message("the result of ", element_op_name(instruction.op), " must be ",
                 dtype_name(expected)));
  }
}

ElementInstruction decode_instruction(const ElementProgram& program, const int64_t* code,
                                      const double* parameters, int num_registers) {
  check_range("an element op", code[0], kNumElementOps);
  ElementInstruction instruction;
  instruction.op = static_cast<ElementOp>(code[0]);
  instruction.result_dtype = checked_dtype(code[1]);
  const int operands = element_num_operands(instruction.op);
  for (int i = 0; i < operands; ++i) {
    check_range("an operand register", code[2 + i], num_registers);
    instruction.operands[i] = static_cast<uint8_t>(code[2 + i]);
  }
  instruction.operand_dtype = program.register_dtypes[instruction.operands[operands == 3 ? 1 : 0]];
  instruction.parameters[0] = parameters[0];
  instruction.parameters[1] = parameters[1];
  check_dtypes(program, instruction);
  return instruction;
}

int checked_count(std::string_view what, size_t count, int limit) {
  if (count > static_cast<size_t>(limit)) {
    fail(message("has ", count, " ", what, "; at most ", limit, " are possible"));
  }
  return static_cast<int>(count);
}

std::vector<TensorSpec> infer_fused_elementwise(const Attributes& attributes, Specs inputs) {
  const ElementProgram program = decode_element_program(attributes, inputs);
  const Shape& shape = attributes.get_ints("shape");
  for (const TensorSpec& input : inputs) {
    if (broadcast_shapes("fused_elementwise", input.shape, shape) != shape) {
      fail(message("an input of shape ", shape_string(input.shape), " does not broadcast to ",
                   shape_string(shape)));
    }
  }
  std::vector<TensorSpec> outputs;
  for (int i = 0; i < program.num_outputs; ++i) {
    outputs.push_back({program.register_dtypes[program.outputs[i]], shape});
  }
  return outputs;
}

std::vector<InPlace> in_place_all(const Attributes& attributes, size_t num_inputs) {
  std::vector<InPlace> pairs;
  for (size_t output = 0; output < attributes.get_ints("outputs").size(); ++output) {
    for (size_t input = 0; input < num_inputs; ++input) pairs.push_back({output, input});
  }
  return pairs;
}

}  // namespace

ElementProgram decode_element_program(const Attributes& attributes, Specs inputs) {
  const std::vector<int64_t>& code = attributes.get_ints("code");
  const std::vector<double> parameters = attributes.get_doubles("parameters");
  const std::vector<double> constants = attributes.get_doubles("constants");
  const std::vector<int64_t>& constant_dtypes = attributes.get_ints("constant_dtypes");
  const std::vector<int64_t>& outputs = attributes.get_ints("outputs");
  const size_t count = code.size() / kIntsPerInstruction;
  if (code.size() % kIntsPerInstruction != 0 ||
      parameters.size() != count * kParametersPerInstruction ||
      constants.size() != constant_dtypes.size()) {
    fail("code, parameters, constants and constant_dtypes don't fit together");
  }

  ElementProgram program;
  program.num_inputs = checked_count("inputs", inputs.size(), kMaxElementInputs);
  program.num_constants = checked_count("constants", constants.size(), kMaxElementConstants);
  program.num_instructions = checked_count("instructions", count, kMaxElementInstructions);
  program.num_outputs = checked_count("outputs", outputs.size(), kMaxElementOutputs);
  int registers = 0;
  for (const TensorSpec& input : inputs) program.register_dtypes[registers++] = input.dtype;
  for (size_t i = 0; i < constants.size(); ++i) {
    program.constants[i] = constants[i];
    program.register_dtypes[registers++] = checked_dtype(constant_dtypes[i]);
  }
  for (size_t i = 0; i < count; ++i) {
    const ElementInstruction instruction =
        decode_instruction(program, &code[i * kIntsPerInstruction],
                           &parameters[i * kParametersPerInstruction], registers);
    program.instructions[i] = instruction;
    program.register_dtypes[registers++] = instruction.result_dtype;
  }
  if (outputs.empty()) fail("has no outputs");
  for (size_t i = 0; i < outputs.size(); ++i) {
    check_range("an output register", outputs[i], registers);
    program.outputs[i] = static_cast<uint8_t>(outputs[i]);
  }
  return program;
}

Attributes encode_element_program(const ElementProgram& program, const Shape& shape) {
  std::vector<int64_t> code, constant_dtypes, outputs;
  std::vector<double> parameters, constants;
  for (int i = 0; i < program.num_instructions; ++i) {
    const ElementInstruction& instruction = program.instructions[i];
    code.push_back(static_cast<int64_t>(instruction.op));
    code.push_back(static_cast<int64_t>(instruction.result_dtype));
    for (int k = 0; k < 3; ++k) {
      const bool is_used = k < element_num_operands(instruction.op);
      code.push_back(is_used ? instruction.operands[k] : -1);
    }
    parameters.insert(parameters.end(), instruction.parameters, instruction.parameters + 2);
  }
  for (int i = 0; i < program.num_constants; ++i) {
    constants.push_back(program.constants[i]);
    constant_dtypes.push_back(
        static_cast<int64_t>(program.register_dtypes[program.first_constant() + i]));
  }
  outputs.assign(program.outputs, program.outputs + program.num_outputs);
  return {{"code", code},           {"parameters", parameters},
          {"constants", constants}, {"constant_dtypes", constant_dtypes},
          {"outputs", outputs},     {"shape", shape}};
}

std::string element_program_string(const ElementProgram& program) {
  std::ostringstream out;
  for (int i = 0; i < program.num_constants; ++i) {
    out << 'r' << program.first_constant() + i << " = " << program.constants[i] << "; ";
  }
  for (int i = 0; i < program.num_instructions; ++i) {
    const ElementInstruction& instruction = program.instructions[i];
    out << (i ? "; r" : "r") << program.first_result() + i << " = "
        << element_op_name(instruction.op) << '(';
    for (int k = 0; k < element_num_operands(instruction.op); ++k) {
      out << (k ? ", r" : "r") << static_cast<int>(instruction.operands[k]);
    }
    for (int k = 0; k < element_num_parameters(instruction.op); ++k) {
      out << ", " << instruction.parameters[k];
    }
    if (instruction.op == ElementOp::cast) out << ", " << dtype_name(instruction.result_dtype);
    out << ')';
  }
  return out.str();
}

std::string element_program_name(const ElementProgram& program) {
  std::string name;
  for (int i = 0; i < program.num_instructions; ++i) {
    name += (i ? "+" : "") + std::string(element_op_name(program.instructions[i].op));
  }
  return name;
}

std::optional<ElementOp> find_element_op(std::string_view name) {
  for (int i = 0; i < kNumElementOps; ++i) {
    const auto op = static_cast<ElementOp>(i);
    if (name == element_op_name(op)) return op;
  }
  return std::nullopt;
}

ElementParameters element_parameters(ElementOp op, const Attributes& attributes) {
  switch (op) {
    case ElementOp::clip:
      return {{attributes.get_double("min"), attributes.get_double("max")}};
    case ElementOp::leaky_relu:
    case ElementOp::leaky_relu_grad:
      return {{attributes.get_double("negative_slope"), 0}};
    case ElementOp::clipped_relu:
    case ElementOp::clipped_relu_grad:
      return {{attributes.get_double("max_value"), 0}};
    case ElementOp::elu:
    case ElementOp::elu_grad:
      return {{attributes.get_double("alpha"), 0}};
    case ElementOp::gelu:
    case ElementOp::gelu_grad:
      return {{attributes.get_bool("approximate") ? 1.0 : 0.0, 0}};
    default:
      return {};
  }
}

namespace {

OpCost fused_cost(const Attributes& attributes, Specs, Specs outputs, OpCost usual) {
  const auto instructions =
      static_cast<int64_t>(attributes.get_ints("code").size() / kIntsPerInstruction);
  return {instructions * num_elements(outputs[0].shape), usual.bytes};
}

}  // namespace

const OpDef op_fused_elementwise = {
    .name = "fused_elementwise",
    .infer = infer_fused_elementwise,
    .not_differentiable = "it is made after differentiation, by the fusion pass",
    .in_place = in_place_all,
    .cost = fused_cost,
};

}  // namespace kerascnn
