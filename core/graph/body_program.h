// A body (body.h) that is planned for a device, in memory that its caller gives.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/graph/body.h"
#include "core/graph/program.h"

namespace kerascnn {

class BodyProgram {
 public:
  // `inputs` are the specs of the node's values that the body is given. Without `optimize` each
  // node of the body runs by itself.
  BodyProgram(const Body& body, const std::vector<TensorSpec>& inputs, Device device,
              const PlanRequest& node, bool optimize = true);

  // How much memory intermediate results and outputs need. It begins at a multiple of
  // kBufferAlignment.
  int64_t workspace_bytes() const;
  // Where an output is found in that memory after a run; several outputs may be in one place.
  int64_t output_offset(size_t index) const;
  int64_t output_bytes(size_t index) const { return output_bytes_[index]; }

  // The kernel calls with the inputs at these addresses, which are null for inputs that the body
  // does not read. The inputs are left as they are.
  std::vector<Instruction> instructions(const std::vector<const void*>& inputs,
                                        void* workspace) const;

  // Does one of the kernels keep state on the device?
  bool keeps_state() const;
  // Do other processes wait for one of them?
  bool meets_processes() const;
  // The kernels one after another: "oneDNN matmul, kerascnn elementwise add".
  std::string description() const;

 private:
  std::shared_ptr<Program> program_;
  std::vector<int64_t> output_bytes_;
};

// A kernel that runs the nodes of a body one after another, as they are. `node` is the call that it
// is planned for, whose outputs are the body's.
std::unique_ptr<Kernel> plan_body_kernel(const Body& body, const PlanRequest& node, Device device);

// What the nodes of a body cost in one run.
OpCost body_cost(const Body& body);

}  // namespace kerascnn
