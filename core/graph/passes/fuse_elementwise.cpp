#include <algorithm>
#include <map>

#include "core/graph/passes/element_groups.h"
#include "core/graph/passes/passes.h"
#include "core/ops/fused_elementwise.h"

namespace kerascnn {
namespace {

// Builds the program of one group.
class GroupBuilder {
 public:
  GroupBuilder(const Graph& graph, const Readers& readers, const std::vector<int32_t>& members)
      : graph_(graph), readers_(readers), members_(members) {
    number_inputs();
    number_results();
    for (int32_t member : members_) add_instruction(graph_.nodes()[member]);
    for (int32_t member : members_) add_output(graph_.nodes()[member].outputs[0]);
  }

  const ElementProgram& program() const { return program_; }
  const std::vector<ValueId>& inputs() const { return inputs_; }
  const std::vector<ValueId>& outputs() const { return outputs_; }

 private:
  bool is_member(const Value& value) const {
    return value.kind == ValueKind::Result &&
           std::binary_search(members_.begin(), members_.end(), value.source);
  }

  void number_inputs() {
    std::vector<ValueId> constants;
    for (int32_t member : members_) {
      for (ValueId id : graph_.nodes()[member].inputs) {
        if (is_member(graph_.value(id))) continue;
        std::vector<ValueId>& list = uniform_constant(graph_, id) ? constants : inputs_;
        if (std::find(list.begin(), list.end(), id) == list.end()) list.push_back(id);
      }
    }
    program_.num_inputs = static_cast<int>(inputs_.size());
    program_.num_constants = static_cast<int>(constants.size());
    for (ValueId id : inputs_) add_register(id);
    for (size_t i = 0; i < constants.size(); ++i) {
      program_.constants[i] = *uniform_constant(graph_, constants[i]);
      add_register(constants[i]);
    }
  }

  void number_results() {
    for (int32_t member : members_) add_register(graph_.nodes()[member].outputs[0]);
  }

  void add_register(ValueId id) {
    const auto number = static_cast<uint8_t>(registers_.size());
    program_.register_dtypes[number] = graph_.value(id).spec.dtype;
    registers_[id] = number;
  }

  void add_instruction(const Node& node) {
    ElementInstruction& instruction = program_.instructions[program_.num_instructions++];
    instruction.op = *find_element_op(node.op->name);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      instruction.operands[i] = registers_.at(node.inputs[i]);
    }
    instruction.operand_dtype =
        graph_.value(node.inputs[node.inputs.size() == 3 ? 1 : 0]).spec.dtype;
    instruction.result_dtype = graph_.value(node.outputs[0]).spec.dtype;
    const ElementParameters parameters = element_parameters(instruction.op, node.attributes);
    std::copy(std::begin(parameters.values), std::end(parameters.values), instruction.parameters);
  }

  void add_output(ValueId id) {
    const std::vector<int32_t>& readers = readers_.nodes(id);
    const bool is_read_outside = std::any_of(readers.begin(), readers.end(), [&](int32_t reader) {
      return !std::binary_search(members_.begin(), members_.end(), reader);
    });
    if (!readers_.is_root(id) && !is_read_outside) return;
    program_.outputs[program_.num_outputs++] = registers_.at(id);
    outputs_.push_back(id);
  }

  const Graph& graph_;
  const Readers& readers_;
  const std::vector<int32_t>& members_;
  ElementProgram program_;
  std::vector<ValueId> inputs_;
  std::vector<ValueId> outputs_;
  std::map<ValueId, uint8_t> registers_;
};

}  // namespace

RootedGraph fuse_elementwise(const RootedGraph& original) {
  // A group of which nothing is read would have no outputs.
  const RootedGraph source = eliminate_dead_code(original);
  const Graph& graph = source.graph;
  const Readers readers(source);
  GraphRewriter rewriter(source);
  for (const std::vector<int32_t>& unit : ElementGroups(source).ordered_units()) {
    const Node& first = graph.nodes()[unit.front()];
    if (unit.size() == 1) {
      rewriter.copy(first);
      continue;
    }
    const GroupBuilder group(graph, readers, unit);
    const Shape& shape = graph.value(first.outputs[0]).spec.shape;
    const std::vector<ValueId> fused =
        rewriter.apply("fused_elementwise", rewriter.map(group.inputs()),
                       encode_element_program(group.program(), shape), first.scope);
    for (size_t i = 0; i < fused.size(); ++i) rewriter.replace(group.outputs()[i], fused[i]);
  }
  return rewriter.finish();
}

}  // namespace kerascnn
