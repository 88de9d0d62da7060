#include "core/ops/custom_op.h"

#include <nanobind/stl/tuple.h>

#include "core/backend/backend.h"
#include "core/backend/custom_source.h"
#include "core/base/error.h"
#include "core/bindings/bindings.h"
#include "core/bindings/held_function.h"
#include "core/ops/definitions.h"

namespace kerascnn::bindings {
namespace {

using SpecTuple = std::pair<std::string, Shape>;  // (dtype, shape)
using SourceTuple = std::tuple<std::string, std::string, std::string, nb::object>;

std::function<std::vector<TensorSpec>(Specs)> infer_by(const nb::object& function) {
  if (function.is_none()) return nullptr;
  return [held = hold(function)](Specs inputs) {
    nb::gil_scoped_acquire acquired;
    std::vector<TensorSpec> outputs;
    for (auto& [dtype, shape] : nb::cast<std::vector<SpecTuple>>((*held)(spec_list(inputs)))) {
      outputs.push_back({dtype_from_name(dtype), std::move(shape)});
    }
    return outputs;
  };
}

std::function<CustomLaunch(Specs, Specs)> launch_by(const nb::object& function) {
  if (function.is_none()) return nullptr;
  return [held = hold(function)](Specs inputs, Specs outputs) {
    nb::gil_scoped_acquire acquired;
    const nb::object found = (*held)(spec_list(inputs), spec_list(outputs));
    CustomLaunch launch;
    for (size_t axis = 0; axis < 3; ++axis) {
      launch.grid[axis] = nb::cast<int64_t>(found[0][axis]);
      launch.block[axis] = nb::cast<int64_t>(found[1][axis]);
    }
    launch.shared_bytes = nb::cast<int64_t>(found[2]);
    launch.sizes = nb::cast<std::vector<int64_t>>(found[3]);
    return launch;
  };
}

// The function is given copies: it may keep or change them.
std::function<void(const KernelArgs&, Specs, Specs)> run_by(const nb::object& function) {
  if (function.is_none()) return nullptr;
  return [held = hold(function)](const KernelArgs& args, Specs inputs, Specs outputs) {
    nb::gil_scoped_acquire acquired;
    std::vector<Tensor> given;
    for (size_t i = 0; i < inputs.size(); ++i) {
      given.push_back(Tensor::from_host(args.inputs[i], inputs[i], Device{}));
    }
    const nb::object found = (*held)(given, spec_list(outputs));
    const auto results = nb::cast<std::vector<Tensor>>(found);
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (i >= results.size() || results[i].spec() != outputs[i]) {
        throw ValueError("custom_op: the function did not give " + specs_string(outputs));
      }
      if (args.outputs[i] != nullptr) results[i].copy_to_host(args.outputs[i]);
    }
  };
}

CustomSource to_source(const std::optional<SourceTuple>& source) {
  if (!source) return {};
  const auto& [text, function, label, launch] = *source;
  return {text, function, label, launch_by(launch)};
}

std::string define_op(const std::string& name, const std::vector<std::string>& inputs,
                      const std::vector<std::string>& outputs,
                      const std::vector<std::vector<std::string>>& dtypes, bool elementwise,
                      size_t num_differentiated, const std::optional<SourceTuple>& cuda,
                      const std::optional<SourceTuple>& cpp, nb::object infer, nb::object run,
                      const std::string& gradient, bool increasing) {
  CustomOp op;
  op.name = name;
  op.inputs = inputs;
  op.outputs = outputs;
  for (const std::vector<std::string>& names : dtypes) {
    std::vector<DType>& allowed = op.dtypes.emplace_back();
    for (const std::string& dtype : names) allowed.push_back(dtype_from_name(dtype));
  }
  op.is_elementwise = elementwise;
  op.is_increasing = increasing;
  op.num_differentiated = num_differentiated;
  op.cuda = to_source(cuda);
  op.cpp = to_source(cpp);
  op.infer = infer_by(infer);
  op.run_on_cpu = run_by(run);
  op.gradient = gradient;
  return define_custom_op(std::move(op));
}

std::string op_source(const std::string& key, const std::vector<SpecTuple>& inputs) {
  const CustomOpPtr op = find_custom_op(key);
  std::vector<TensorSpec> specs;
  for (const auto& [dtype, shape] : inputs) specs.push_back({dtype_from_name(dtype), shape});
  const auto outputs = infer_outputs(op_custom_op, {{"op", key}}, specs);
  return compose_cuda_source(*op, specs, outputs);
}

}  // namespace

void bind_custom_op(nb::module_& m) {
  m.def("define_op", &define_op, nb::arg("name"), nb::arg("inputs"), nb::arg("outputs"),
        nb::arg("dtypes"), nb::arg("elementwise"), nb::arg("num_differentiated") = 0,
        nb::arg("cuda") = nb::none(), nb::arg("cpp") = nb::none(), nb::arg("infer") = nb::none(),
        nb::arg("run") = nb::none(), nb::arg("gradient") = "", nb::arg("increasing") = false,
        "Defines an op, and returns what the attribute \"op\" of custom_op names it by. Sources "
        "are (text, function, label, launch); `infer(inputs)`, `launch(inputs, outputs)` and "
        "`run(tensors, outputs)` take lists of (dtype, shape).");
  m.def("op_cuda_source", &op_source, nb::arg("key"), nb::arg("inputs"),
        "The CUDA C++ that is compiled for inputs of these (dtype, shape).");
  m.def("forget_op_functions", &forget_custom_functions,
        "Lets go of the functions of all defined ops, as the process ends.");
}

}  // namespace kerascnn::bindings
