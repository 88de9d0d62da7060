// How to take the gradient of one call at once. The op's gradient rule, which adds nodes to a graph
// for compiled programs, is run here once on a small graph; what the wanted gradients need of it
// becomes a list of planned calls, which every later gradient of such a call just repeats.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "core/eager/plan.h"

namespace kerascnn {

class GradientRecipe {
 public:
  // Throws ValueError where the op has no gradient, or what its rule throws.
  GradientRecipe(const EagerPlan& plan, GradientMask mask);

  // Does it read the call's input or output?
  bool reads_input(size_t index) const { return reads_[index]; }
  bool reads_output(size_t index) const { return reads_[num_inputs_ + index]; }

  // One gradient for each input of the call, undefined where none is wanted or there is none.
  // `values` has the call's inputs, then its outputs (undefined where they are not read), then the
  // gradients of its outputs. While a tape records, the calls made here are noted like others.
  std::vector<Tensor> run(std::span<const Tensor> values) const;

 private:
  struct Step {
    const OpDef* op;
    Attributes attributes;
    std::vector<int32_t> inputs;   // slots
    std::vector<int32_t> outputs;  // slots
    std::vector<int32_t> dying;    // slots that no later step reads
  };
  void keep_needed_steps(const class Graph& graph, const std::vector<int32_t>& results);
  void find_last_uses();

  bool allow_tf32_;
  Device device_;
  size_t num_inputs_;
  std::vector<bool> reads_;  // of the call's inputs and outputs
  size_t num_slots_ = 0;     // given values first
  std::vector<Step> steps_;
  std::vector<std::pair<int32_t, Tensor>> constants_;  // slot and value
  std::vector<int32_t> results_;                       // slot of each input's gradient, or -1
  // Found when they are first run: kernels of gradients that nobody takes need no plan.
  mutable std::mutex plans_mutex_;
  mutable std::vector<EagerPlanPtr> plans_;
};

}  // namespace kerascnn
