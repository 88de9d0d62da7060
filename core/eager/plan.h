// The plan of an op that runs at once: shape rule, kernel and, where gradients are recorded, how to
// take them. A plan is made once for each op, attributes, specs and device, and found again by
// them.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "core/backend/backend.h"
#include "core/base/attributes.h"
#include "core/ops/op.h"
#include "core/tensor/tensor.h"

namespace kerascnn {

class GradientRecipe;

// The inputs of a call. Pointers, because a tensor's shape and strides are costly to copy.
using Inputs = std::span<const Tensor* const>;

struct OutputLayout {
  TensorSpec spec;
  Shape strides;
  int64_t bytes;
};

// What a gradient is asked for: bit i stands for output i that has a gradient, and for input i
// whose gradient is wanted. Ops with more than 64 inputs have all bits of `inputs` set.
struct GradientMask {
  uint64_t outputs = 0;
  uint64_t inputs = 0;

  bool operator==(const GradientMask&) const = default;
};

struct EagerPlan {
  const OpDef* op = nullptr;
  Attributes attributes;
  std::vector<TensorSpec> inputs;
  std::vector<OutputLayout> outputs;
  Device device;
  bool allow_tf32 = true;
  Backend* backend = nullptr;
  std::unique_ptr<Kernel> kernel;  // null where nothing has to run: views and empty outputs
  int64_t work_bytes = 0;          // what a call reads and writes
  std::mutex running;              // a kernel may keep the buffers of a call in its own state
  std::vector<CallInfoPtr> calls;  // what profiles say of it, for each scope; guarded by `running`

  // Throws ValueError where the op has no gradient or its rule fails.
  std::shared_ptr<const GradientRecipe> recipe(GradientMask mask);

 private:
  std::mutex recipes_mutex_;
  std::vector<std::pair<GradientMask, std::shared_ptr<const GradientRecipe>>> recipes_;
};
using EagerPlanPtr = std::shared_ptr<EagerPlan>;

// The plan from the cache, or else a new one. Inputs must be on one device, else DeviceError.
// Throws what the op's shape rule throws, with the op's name in front.
EagerPlanPtr find_plan(const OpDef& op, const Attributes& attributes, Inputs inputs,
                       bool allow_tf32);

// Computes into new tensors, one for each of `outputs`. Inputs have the plan's specs.
void run_plan(EagerPlan& plan, Inputs inputs, std::span<Tensor> outputs);

}  // namespace kerascnn
