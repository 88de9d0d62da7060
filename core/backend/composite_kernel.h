// A kernel made of the kernels of other ops, for an op that stands for several and has no kernel of
// its own on a device or for a shape.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/backend/backend.h"

namespace kerascnn {

// A tensor in a composite kernel: one of the kernel's inputs or outputs, or an intermediate.
struct CompositePart {
  enum class Kind : uint8_t { Input, Output, Workspace };
  Kind kind = Kind::Input;
  int64_t place = 0;  // the index of an input or output, the offset in the workspace
  TensorSpec spec;
};

// Plans the ops one after another; the kernel runs them in that order. The intermediates lie in the
// workspace, each at a multiple of 256 bytes, behind the part that the ops' own workspaces share.
class CompositePlan {
 public:
  // `table` is the kernel table of the device, which is current.
  CompositePlan(std::span<const KernelTableRow> table, const PlanRequest& request)
      : table_(table), request_(request) {}

  CompositePart input(size_t index) const;
  CompositePart output(size_t index) const;

  // The first output of an op, as an intermediate; its other outputs are optional and left out.
  CompositePart apply(std::string_view op, const Attributes& attributes,
                      const std::vector<CompositePart>& inputs);
  // An op that writes outputs of the whole. Left out in runs where none of them is wanted.
  void apply_into(std::string_view op, const Attributes& attributes,
                  const std::vector<CompositePart>& inputs,
                  const std::vector<CompositePart>& outputs);

  std::unique_ptr<Kernel> finish();

 private:
  struct Step {
    std::shared_ptr<Kernel> kernel;
    std::vector<CompositePart> inputs;
    std::vector<CompositePart> outputs;
  };
  class CompositeKernel;

  void plan(std::string_view op, const Attributes& attributes,
            const std::vector<CompositePart>& inputs, const std::vector<CompositePart>& outputs,
            const std::vector<TensorSpec>& output_specs);

  std::span<const KernelTableRow> table_;
  const PlanRequest& request_;
  std::vector<Step> steps_;
  int64_t intermediate_bytes_ = 0;
};

}  // namespace kerascnn
