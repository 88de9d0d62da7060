#include "core/backend/body_kernel.h"

#include <algorithm>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/graph/body_program.h"
#include "core/graph/memory_plan.h"

namespace kerascnn {
namespace {

class BodyKernel final : public Kernel {
 public:
  BodyKernel(const PlanRequest& node, const Body& body, Device device)
      : program_(body, {node.inputs.begin(), node.inputs.end()}, device, node,
                 /*optimize=*/false) {
    body_bytes_ = align_buffer(program_.workspace_bytes());
    // A cast to the same dtype is the copy that every backend has.
    for (const TensorSpec& spec : node.outputs) {
      const Attributes attributes = {{"dtype", std::string(dtype_name(spec.dtype))}};
      const PlanRequest copy{find_op("cast"), attributes, {&spec, 1}, {&spec, 1}};
      copies_.push_back(plan_kernel(backend(device), copy));
      copy_bytes_ = std::max(copy_bytes_, copies_.back()->workspace_bytes());
    }
  }

  void run(const KernelArgs& args) override {
    char* const memory = static_cast<char*>(args.workspace);
    for (const Instruction& each :
         program_.instructions({args.inputs.begin(), args.inputs.end()}, memory)) {
      try {
        each.kernel->run({each.inputs, each.outputs, each.workspace, args.stream});
      } catch (const Error& error) {
        throw DeviceError(message(each.label, ": ", error.what()));
      }
    }
    for (size_t i = 0; i < copies_.size(); ++i) {
      if (args.outputs[i] == nullptr) continue;
      const void* const from = memory + program_.output_offset(i);
      copies_[i]->run({{&from, 1}, args.outputs.subspan(i, 1), memory + body_bytes_, args.stream});
    }
  }

  int64_t workspace_bytes() const override { return body_bytes_ + copy_bytes_; }
  bool keeps_state() const override { return program_.keeps_state(); }
  std::string description() const override { return "op by op [" + program_.description() + "]"; }

 private:
  BodyProgram program_;
  int64_t body_bytes_ = 0;
  int64_t copy_bytes_ = 0;
  std::vector<std::unique_ptr<Kernel>> copies_;
};

}  // namespace

std::unique_ptr<Kernel> plan_body_kernel(const PlanRequest& node, const Body& body, Device device) {
  return std::make_unique<BodyKernel>(node, body, device);
}

}  // namespace kerascnn
