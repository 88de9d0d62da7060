#include "core/ops/element_program.h"

#include <sstream>

namespace kerascnn {
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

}  // namespace kerascnn
