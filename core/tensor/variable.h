// Named state that outlives a step: weights, optimizer slots, metric sums, counters. Programs read
// and write a variable's memory in place, so the tensor's storage stays the same from creation on.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "core/tensor/tensor.h"

namespace kerascnn {

class Variable {
 public:
  // Takes the tensor's own memory where it is contiguous, which no one else should go on writing
  // to.
  Variable(std::string name, const Tensor& value)
      : name_(std::move(name)), value_(value.contiguous()) {}

  const std::string& name() const { return name_; }
  const Tensor& value() const { return value_; }
  // Copies into place. Throws ValueError naming the variable where shape or dtype differ.
  void assign(const Tensor& value) const;
  // Do tapes watch it when it is read?
  bool trainable() const { return trainable_; }
  void set_trainable(bool trainable) { trainable_ = trainable; }

 private:
  std::string name_;
  bool trainable_ = true;
  Tensor value_;  // contiguous
};

using VariablePtr = std::shared_ptr<Variable>;

}  // namespace kerascnn
