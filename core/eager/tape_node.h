// What tapes record: one node for each call with an input that gradients are taken by, and leaves
// that stand for watched tensors and variables. A tensor holds the node that it came from, a node
// those of its inputs: what nobody can reach any more is gone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/eager/plan.h"
#include "core/tensor/tensor.h"

namespace kerascnn {

class TapeNode : public std::enable_shared_from_this<TapeNode> {
 public:
  explicit TapeNode(size_t num_outputs);
  // Does without recursion, however long the chain is that ends with this node.
  virtual ~TapeNode();
  TapeNode(const TapeNode&) = delete;
  TapeNode& operator=(const TapeNode&) = delete;

  // Later nodes have greater numbers, so a node's number is above those of its inputs.
  uint64_t sequence() const { return sequence_; }
  size_t num_outputs() const { return num_outputs_; }
  // Null where gradients end.
  const std::vector<TapeEdge>& inputs() const { return inputs_; }

  // One gradient for each input, undefined where there is none; bit i of `wanted` asks for that of
  // input i. Throws ValueError where it can't be taken.
  virtual std::vector<Tensor> gradients(std::span<const Tensor> output_gradients,
                                        uint64_t wanted) = 0;
  virtual void forget_values() {}  // no gradient will be taken again
  virtual bool is_leaf() const { return false; }
  // The scope in which the call was made; known only if the call was profiled.
  const Scope* scope() const { return scope_.get(); }

 protected:
  std::vector<TapeEdge> inputs_;
  std::unique_ptr<const Scope> scope_;

 private:
  uint64_t sequence_;
  size_t num_outputs_;
};

class TapeLeaf final : public TapeNode {
 public:
  TapeLeaf() : TapeNode(1) {}
  std::vector<Tensor> gradients(std::span<const Tensor>, uint64_t) override { return {}; }
  bool is_leaf() const override { return true; }
};

// A value as it was when the call was recorded. Copied where others may write to it unseen.
class SavedTensor {
 public:
  SavedTensor() = default;
  explicit SavedTensor(const Tensor& tensor);
  // Throws ValueError naming the op where the memory has been written to since.
  const Tensor& get(std::string_view op) const;

 private:
  Tensor tensor_;
  uint64_t version_ = 0;
  StorageUse needs_;
};

// The call of an op.
class TapeCall final : public TapeNode {
 public:
  TapeCall(EagerPlanPtr plan, Inputs inputs, std::span<const Tensor> outputs, uint64_t tracked);
  std::vector<Tensor> gradients(std::span<const Tensor> output_gradients, uint64_t wanted) override;
  void forget_values() override;

 private:
  void save(Inputs inputs, std::span<const Tensor> outputs, uint64_t tracked);

  EagerPlanPtr plan_;
  std::vector<SavedTensor> saved_;  // inputs, then outputs; empty where nothing is read later
  bool forgotten_ = false;
};

// A call whose gradient somebody else computes: a custom gradient, a compiled function, a block
// that is computed again.
using GradientOfCall = std::function<std::vector<Tensor>(std::span<const Tensor>)>;

class TapeFunction final : public TapeNode {
 public:
  TapeFunction(std::string name, std::vector<TapeEdge> inputs, std::vector<TensorSpec> input_specs,
               size_t num_outputs, GradientOfCall gradient);
  std::vector<Tensor> gradients(std::span<const Tensor> output_gradients, uint64_t wanted) override;

 private:
  std::string name_;
  std::vector<TensorSpec> input_specs_;
  GradientOfCall gradient_;
};

}  // namespace kerascnn
