#include "core/graph/body_program.h"

#include <algorithm>

#include "core/graph/memory_plan.h"
#include "core/graph/program_impl.h"

namespace kerascnn {

BodyProgram::BodyProgram(const Body& body, const std::vector<TensorSpec>& inputs, Device device,
                         const PlanRequest& node, bool optimize) {
  const RootedGraph rooted = body_graph(body, inputs);
  CompileOptions options;
  options.optimize = optimize;
  options.allow_tf32 = node.allow_tf32;
  options.autotune = node.autotune;
  options.is_body = true;
  program_ = Program::compile(rooted.graph, rooted.outputs, device, options);
  for (size_t i = 0; i < body.outputs.size(); ++i) {
    output_bytes_.push_back(num_bytes(body.output_spec(i)));
  }
}

int64_t BodyProgram::workspace_bytes() const {
  const Program::Impl& impl = *program_->impl_;
  return align_buffer(impl.lane_bytes) + align_buffer(impl.slot_bytes);
}

int64_t BodyProgram::output_offset(size_t index) const {
  const Program::Impl& impl = *program_->impl_;
  return align_buffer(impl.lane_bytes) + impl.output_offsets.at(index);
}

std::vector<Instruction> BodyProgram::instructions(const std::vector<const void*>& inputs,
                                                   void* workspace) const {
  const Program::Impl& impl = *program_->impl_;
  std::vector<void*> addresses;
  for (const void* input : inputs) addresses.push_back(const_cast<void*>(input));
  char* const arena = static_cast<char*>(workspace);
  return impl.instructions(addresses, {arena, arena + align_buffer(impl.lane_bytes)});
}

bool BodyProgram::keeps_state() const {
  const std::vector<PlannedNode>& nodes = program_->impl_->nodes;
  return std::any_of(nodes.begin(), nodes.end(),
                     [](const PlannedNode& node) { return node.kernel->keeps_state(); });
}

std::string BodyProgram::description() const {
  std::string text;
  for (const PlannedNode& node : program_->impl_->nodes) {
    text += (text.empty() ? "" : ", ") + node.call->kernel;
  }
  return text;
}

OpCost body_cost(const Body& body) {
  const Graph& graph = *body.graph;
  const std::vector<bool> needed = needed_values(graph, body.outputs);
  OpCost total;
  for (const Node& node : graph.nodes()) {
    if (!needed[node.outputs.front()]) continue;
    std::vector<TensorSpec> inputs, outputs;
    for (const ValueId id : node.inputs) inputs.push_back(graph.value(id).spec);
    for (const ValueId id : node.outputs) {
      if (needed[id]) outputs.push_back(graph.value(id).spec);
    }
    const OpCost cost = op_cost(*node.op, node.attributes, inputs, outputs);
    total.flop += cost.flop;
    total.bytes += cost.bytes;
  }
  return total;
}

}  // namespace kerascnn
