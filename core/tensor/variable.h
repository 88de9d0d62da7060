// Named state that outlives a step: weights, optimizer slots, metric sums, counters. Programs read and write
// a variable's memory in place, so the tensor's storage stays the same from creation on.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "core/tensor/tensor.h"

namespace kerascnn {

class Variable {
 public:
  Variable(std::string name, Tensor value) : name_(std::move(name)), value_(std::move(value)) {}

  const std::string& name() const { return name_; }
  const Tensor& value() const { return value_; }

 private:
  std::string name_;
  Tensor value_;  // contiguous
};

using VariablePtr = std::shared_ptr<Variable>;

}  // namespace kerascnn
