// Ops that users define while a program runs. Each call of one is the op custom_op, whose attribute
// "op" is the key of a definition. Definitions are kept until the process ends: graphs and plans
// name them.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/dtype.h"
#include "core/ops/op.h"

namespace kerascnn {

struct KernelArgs;

// How a kernel of the user's own is launched, and the sizes that it is given behind its pointers. A
// CPU takes the sizes alone.
struct CustomLaunch {
  std::array<int64_t, 3> grid = {1, 1, 1};
  std::array<int64_t, 3> block = {1, 1, 1};
  int64_t shared_bytes = 0;
  std::vector<int64_t> sizes;
};

// Source code with one function that is called: in CUDA C++ a kernel, in C++ a function.
// Its arguments are pointers to the inputs, then to the outputs, then CustomLaunch::sizes.
struct CustomSource {
  std::string text;      // empty where there is none
  std::string function;  // "scale", or an instance of a template: "scale<x_t>"
  std::string label;     // what the compiler calls the source in its messages
  // Elementwise ops don't have this.
  std::function<CustomLaunch(Specs inputs, Specs outputs)> launch;
};

struct CustomOp {
  std::string name;
  std::string key;  // unique, also among ops of one name
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  // For each input, the dtypes that it may have.
  std::vector<std::vector<DType>> dtypes;

  // Each element of the outputs is a function of the inputs' elements there. All inputs have one
  // dtype, and the outputs' shape or one element. The kernel is given the number of elements, and
  // for each input 1, or 0 where it has one element. C++ functions are another kind of function
  // here: see core/backend/cpu/custom_op.cpp.
  bool is_elementwise = false;
  // The result never gets smaller where the input, the only one, grows.
  bool is_increasing = false;
  // For other ops: the outputs' specs. If it is empty, they are those of the first
  // `num_differentiated` inputs that are floating.
  std::function<std::vector<TensorSpec>(Specs inputs)> infer;
  size_t num_differentiated = 0;

  CustomSource cuda;
  CustomSource cpp;
  // It is used in place of `cpp`. May throw.
  std::function<void(const KernelArgs& args, Specs inputs, Specs outputs)> run_on_cpu;

  // The key of the op that computes the gradients of the floating inputs, in order, from all
  // inputs, all outputs, and the gradients of the floating outputs. If it is empty there is none.
  std::string gradient;
};

using CustomOpPtr = std::shared_ptr<const CustomOp>;

// Gives the op its key and returns that.
std::string define_custom_op(CustomOp op);
// Throws ValueError where nothing was defined under the key.
CustomOpPtr find_custom_op(const std::string& key);
CustomOpPtr custom_op_of(const Attributes& attributes);

// The beginning of each message: "custom_op softsign".
std::string custom_op_title(const CustomOp& op);

// The name of an input or output in messages: "input x".
std::string custom_input_title(const CustomOp& op, size_t index);

// Lets go of all functions of definitions, which throw afterwards. It is for the end of the
// process, before what the functions call goes away.
void forget_custom_functions();

}  // namespace kerascnn
