#include "core/ops/op.h"

#include "core/backend/backend.h"
#include "core/bindings/bindings.h"
#include "core/eager/eager.h"
#include "core/graph/fusion.h"

namespace kerascnn::bindings {
namespace {

std::vector<Tensor> apply_op(const std::string& op, const std::vector<Tensor>& inputs,
                             const AttributeMap& attributes) {
  const Attributes converted = to_attributes(attributes);
  Unlocked released;
  return apply(op, inputs, converted);
}

std::vector<std::string> op_names() {
  std::vector<std::string> names;
  for (const OpDef* op : all_ops()) names.emplace_back(op->name);
  return names;
}

std::vector<std::string> fusion_names(const std::string& device) {
  std::vector<std::string> names;
  for (const Fusion* fusion : backend(device_from_name(device)).fusions()) {
    names.emplace_back(fusion->name);
  }
  return names;
}

// Whether the first GPU has a kernel; none where there is no GPU to ask.
nb::object has_cuda_kernel(std::string_view op) {
  for (const DeviceStatus& status : list_devices()) {
    if (status.device.type != DeviceType::Cuda || !status.usable) continue;
    return nb::bool_(find_kernel_row(backend(status.device), op) != nullptr);
  }
  return nb::none();
}

nb::dict op_info(const std::string& name) {
  const OpDef& op = find_op(name);
  nb::dict info;
  info["differentiable"] = op.gradient != nullptr;
  info["reason"] = std::string(op.not_differentiable);
  info["is_view"] = op.is_view;
  info["is_elementwise"] = op.is_elementwise;
  info["is_stateful"] = op.is_stateful;
  info["has_cpu_kernel"] = find_kernel_row(backend(Device{}), op.name) != nullptr;
  info["has_cuda_kernel"] = has_cuda_kernel(op.name);
  return info;
}

}  // namespace

void bind_ops(nb::module_& m) {
  m.def("apply", &apply_op, nb::arg("op"), nb::arg("inputs"), nb::arg("attrs") = AttributeMap{},
        nb::sig("def apply(op: str, inputs: collections.abc.Sequence[Tensor], "
                "attrs: " KERASCNN_ATTRIBUTES_TYPE " = {}) -> list[Tensor]"),
        "Runs one op at once.");
  m.def("op_names", &op_names);
  m.def("fusion_names", &fusion_names, nb::arg("device"),
        "The kernels for several nodes that a device has, in the order in which they take nodes.");
  m.def("op_info", &op_info, nb::arg("name"),
        nb::sig("def op_info(name: str) -> dict[str, typing.Any]"),
        "Facts about an op: its gradient (or why there is none) and which devices have a kernel.");
  m.def("set_allow_tf32", &set_eager_tf32, nb::arg("allowed"),
        "May ops that run at once use TF32 on a GPU? Programs are told when they are compiled.");
  m.def("allow_tf32", &eager_tf32);
}

}  // namespace kerascnn::bindings
