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
  return align_buffer(impl.one_arena_bytes) + align_buffer(impl.slot_bytes);
}

int64_t BodyProgram::output_offset(size_t index) const {
  const Program::Impl& impl = *program_->impl_;
  return align_buffer(impl.one_arena_bytes) + impl.output_offsets.at(index);
}

std::vector<Instruction> BodyProgram::instructions(const std::vector<const void*>& inputs,
                                                   void* workspace) const {
  const Program::Impl& impl = *program_->impl_;
  std::vector<void*> addresses;
  for (const void* input : inputs) addresses.push_back(const_cast<void*>(input));
  char* const arena = static_cast<char*>(workspace);
  return impl.instructions(addresses, {arena, arena + align_buffer(impl.one_arena_bytes)});
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

namespace {

class BodyKernel final : public Kernel {
 public:
  explicit BodyKernel(BodyProgram program) : program_(std::move(program)) {}

  // The program leaves its outputs in its memory; what writes or reads one there is given the
  // place of the kernel's output instead.
  void run(const KernelArgs& args) override {
    const std::vector<const void*> inputs(args.inputs.begin(), args.inputs.end());
    for (Instruction& instruction : program_.instructions(inputs, args.workspace)) {
      for (const void*& data : instruction.inputs) data = moved(data, args);
      for (void*& data : instruction.outputs) data = const_cast<void*>(moved(data, args));
      instruction.kernel->run(
          {instruction.inputs, instruction.outputs, instruction.workspace, args.stream});
    }
  }

  int64_t workspace_bytes() const override { return program_.workspace_bytes(); }
  bool keeps_state() const override { return program_.keeps_state(); }
  std::string description() const override { return program_.description(); }

 private:
  const void* moved(const void* data, const KernelArgs& args) const {
    const auto address = reinterpret_cast<uintptr_t>(data);
    for (size_t i = 0; i < args.outputs.size(); ++i) {
      const auto begin = reinterpret_cast<uintptr_t>(args.workspace) +
                         static_cast<uintptr_t>(program_.output_offset(i));
      const bool is_inside =
          address >= begin && address - begin < static_cast<uintptr_t>(program_.output_bytes(i));
      if (!is_inside || args.outputs[i] == nullptr) continue;
      return static_cast<const char*>(args.outputs[i]) + (address - begin);
    }
    return data;
  }

  BodyProgram program_;
};

}  // namespace

std::unique_ptr<Kernel> plan_body_kernel(const Body& body, const PlanRequest& node, Device device) {
  BodyProgram program(body, {node.inputs.begin(), node.inputs.end()}, device, node, false);
  for (size_t i = 0; i < body.outputs.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (program.output_bytes(i) == 0 || program.output_offset(i) != program.output_offset(j)) {
        continue;
      }
      throw ValueError(message(node.op.name, ": two outputs of a body are one value; give each a ",
                               "kernel of its own"));
    }
  }
  return std::make_unique<BodyKernel>(std::move(program));
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
