#include "core/graph/body_program.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/graph/memory_plan.h"
#include "core/graph/program_impl.h"
#include "core/ops/definitions.h"

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

bool BodyProgram::meets_processes() const {
  const std::vector<PlannedNode>& nodes = program_->impl_->nodes;
  return std::any_of(nodes.begin(), nodes.end(),
                     [](const PlannedNode& node) { return node.kernel->meets_processes(); });
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
  BodyKernel(BodyProgram program, const PlanRequest& node, Device device)
      : program_(std::move(program)), body_bytes_(align_buffer(program_.workspace_bytes())) {
    // A cast to the same dtype is the copy that every backend has.
    for (const TensorSpec& spec : node.outputs) {
      const Attributes attributes = {{"dtype", std::string(dtype_name(spec.dtype))}};
      const PlanRequest copy{op_cast, attributes, {&spec, 1}, {&spec, 1}};
      copies_.push_back(plan_kernel(backend(device), copy));
      copy_bytes_ = std::max(copy_bytes_, copies_.back()->workspace_bytes());
    }
  }

  // The program leaves its outputs in its memory. What writes or reads one there is given the
  // place of the kernel's output instead, where that is possible; else the output is copied.
  void run(const KernelArgs& args) override {
    std::vector<size_t> direct, copied;
    for (size_t i = 0; i < args.outputs.size(); ++i) {
      if (args.outputs[i] == nullptr) continue;
      (is_direct(i, direct, args) ? direct : copied).push_back(i);
    }
    char* const memory = static_cast<char*>(args.workspace);
    const auto moved = [&](const void* data) { return moved_to_output(data, direct, args); };
    for (Instruction& each :
         program_.instructions({args.inputs.begin(), args.inputs.end()}, memory)) {
      for (const void*& data : each.inputs) data = moved(data);
      for (void*& data : each.outputs) data = const_cast<void*>(moved(data));
      try {
        each.kernel->run({each.inputs, each.outputs, each.workspace, args.stream});
      } catch (const OutOfMemoryError& error) {
        throw OutOfMemoryError(message(each.label, ": ", error.what()), error.requested,
                               error.allocated, error.cached, error.free);
      } catch (const Error& error) {
        throw DeviceError(message(each.label, ": ", error.what()));
      }
    }
    for (const size_t i : copied) {
      const void* const from = moved(memory + program_.output_offset(i));
      copies_[i]->run({{&from, 1}, args.outputs.subspan(i, 1), memory + body_bytes_, args.stream});
    }
  }

  int64_t workspace_bytes() const override { return body_bytes_ + copy_bytes_; }
  bool keeps_state() const override { return program_.keeps_state(); }
  bool meets_processes() const override { return program_.meets_processes(); }
  std::string description() const override { return "op by op [" + program_.description() + "]"; }

 private:
  // Not where it is an input too, which other nodes may still read, nor where it is the same value
  // as another output.
  bool is_direct(size_t output, const std::vector<size_t>& direct, const KernelArgs& args) const {
    const auto& inputs = args.inputs;
    const bool is_input =
        std::find(inputs.begin(), inputs.end(), args.outputs[output]) != inputs.end();
    return !is_input && std::none_of(direct.begin(), direct.end(), [&](size_t other) {
      return program_.output_offset(other) == program_.output_offset(output);
    });
  }

  const void* moved_to_output(const void* data, const std::vector<size_t>& direct,
                              const KernelArgs& args) const {
    const auto address = reinterpret_cast<uintptr_t>(data);
    for (const size_t i : direct) {
      const auto begin = reinterpret_cast<uintptr_t>(args.workspace) +
                         static_cast<uintptr_t>(program_.output_offset(i));
      const bool is_inside =
          address >= begin && address - begin < static_cast<uintptr_t>(program_.output_bytes(i));
      if (is_inside) return static_cast<const char*>(args.outputs[i]) + (address - begin);
    }
    return data;
  }

  BodyProgram program_;
  int64_t body_bytes_;
  int64_t copy_bytes_ = 0;
  std::vector<std::unique_ptr<Kernel>> copies_;  // by output
};

}  // namespace

std::unique_ptr<Kernel> plan_body_kernel(const Body& body, const PlanRequest& node, Device device) {
  BodyProgram program(body, {node.inputs.begin(), node.inputs.end()}, device, node, false);
  return std::make_unique<BodyKernel>(std::move(program), node, device);
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
