#include "core/graph/region_program.h"

#include <algorithm>
#include <map>
#include <vector>

#include "core/base/error.h"
#include "core/graph/passes/rewriter.h"
#include "core/ops/definitions.h"

namespace kerascnn {
namespace {

// Numbers the registers of a region: inputs, constants, results.
class ProgramBuilder {
 public:
  explicit ProgramBuilder(const Region& region)
      : body_(*region.body), graph_(*body_.graph), needed_(needed_values(graph_, body_.outputs)) {}

  std::optional<ElementProgram> build() {
    find_instructions();
    find_constants();
    const bool has_others =
        std::any_of(instructions_.begin(), instructions_.end(),
                    [](const Node* node) { return !find_element_op(*node->op); });
    if (has_others || body_.inputs.size() > static_cast<size_t>(kMaxElementInputs) ||
        constants_.size() > static_cast<size_t>(kMaxElementConstants) ||
        instructions_.size() > static_cast<size_t>(kMaxElementInstructions) ||
        body_.outputs.size() > static_cast<size_t>(kMaxElementOutputs)) {
      return std::nullopt;
    }
    program_.num_inputs = static_cast<int>(body_.inputs.size());
    program_.num_constants = static_cast<int>(constants_.size());
    for (ValueId id : body_.inputs) add_register(id);
    for (size_t i = 0; i < constants_.size(); ++i) {
      const std::optional<double> value = uniform_constant(graph_, constants_[i]);
      if (!value) return std::nullopt;
      program_.constants[i] = *value;
      add_register(constants_[i]);
    }
    for (const Node* node : instructions_) add_instruction(*node);
    for (ValueId id : body_.outputs) {
      program_.outputs[program_.num_outputs++] = registers_.at(read(id));
    }
    return program_;
  }

 private:
  // Kernels read broadcast values without a node for it.
  ValueId read(ValueId id) const {
    while (const Node* node = producer(graph_, id, op_broadcast_to)) id = node->inputs[0];
    return id;
  }

  void find_instructions() {
    for (const Node& node : graph_.nodes()) {
      if (needed_[node.outputs[0]] && node.op != &op_broadcast_to) {
        instructions_.push_back(&node);
      }
    }
  }

  // Constants are found in the order in which they are first read.
  void find_constants() {
    for (const Node* node : instructions_) {
      for (ValueId id : node->inputs) {
        id = read(id);
        if (graph_.value(id).kind != ValueKind::Constant) continue;
        if (std::find(constants_.begin(), constants_.end(), id) == constants_.end()) {
          constants_.push_back(id);
        }
      }
    }
  }

  void add_register(ValueId id) {
    const int number = num_registers_++;
    if (id == kNoValue) return;  // an input that nothing reads
    program_.register_dtypes[number] = graph_.value(id).spec.dtype;
    registers_[id] = static_cast<uint8_t>(number);
  }

  void add_instruction(const Node& node) {
    ElementInstruction& instruction = program_.instructions[program_.num_instructions++];
    instruction = element_instruction(graph_, node);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      instruction.operands[i] = registers_.at(read(node.inputs[i]));
    }
    add_register(node.outputs[0]);
  }

  const Body& body_;
  const Graph& graph_;
  std::vector<bool> needed_;
  std::vector<const Node*> instructions_;
  std::vector<ValueId> constants_;
  ElementProgram program_;
  int num_registers_ = 0;
  std::map<ValueId, uint8_t> registers_;
};

}  // namespace

ElementInstruction element_instruction(const Graph& graph, const Node& node) {
  ElementInstruction instruction;
  instruction.op = *find_element_op(*node.op);
  // The first operand of `where` is its condition.
  instruction.operand_dtype = graph.value(node.inputs[node.inputs.size() == 3 ? 1 : 0]).spec.dtype;
  instruction.result_dtype = graph.value(node.outputs[0]).spec.dtype;
  const ElementParameters parameters = element_parameters(instruction.op, node.attributes);
  std::copy(std::begin(parameters.values), std::end(parameters.values), instruction.parameters);
  return instruction;
}

std::optional<ElementProgram> element_program(const Region& region) {
  if (region.kind != RegionKind::Map) return std::nullopt;
  return ProgramBuilder(region).build();
}

}  // namespace kerascnn
