#include "core/ops/element_program.h"

#include <unordered_map>

#include "core/ops/activation_kind.h"
#include "core/ops/definitions.h"

namespace kerascnn {

std::string element_program_name(const ElementProgram& program) {
  std::string name;
  for (int i = 0; i < program.num_instructions; ++i) {
    name += (i ? "+" : "") + std::string(element_op_name(program.instructions[i].op));
  }
  return name;
}

std::optional<ElementOp> find_element_op(const OpDef& op) {
  static const std::unordered_map<const OpDef*, ElementOp> all = {
#define KERASCNN_ENTRY(name, ...) {&op_##name, ElementOp::name},
      KERASCNN_ELEMENT_OP_LIST(KERASCNN_ENTRY)
#undef KERASCNN_ENTRY
  };
  const auto found = all.find(&op);
  return found == all.end() ? std::nullopt : std::optional(found->second);
}

ElementParameters element_parameters(ElementOp op, const Attributes& attributes) {
  if (op == ElementOp::clip) return {{attributes.get_double("min"), attributes.get_double("max")}};
  if (element_num_parameters(op) == 0) return {};
  return {{activation_call(activation_of(op), attributes).alpha, 0}};
}

}  // namespace kerascnn
