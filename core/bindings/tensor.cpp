#include "core/tensor/tensor.h"

#include <nanobind/ndarray.h>

#include "core/backend/backend.h"
#include "core/base/error.h"
#include "core/bindings/bindings.h"
#include "core/bindings/host_array.h"
#include "core/eager/copies.h"
#include "core/eager/eager.h"
#include "core/eager/recorder.h"
#include "core/ops/definitions.h"
#include "core/tensor/dlpack.h"

namespace kerascnn::bindings {
namespace {

nb::dlpack::dtype numpy_dtype(DType dtype) {
  const auto code = [&] {
    if (dtype == DType::Bool) return nb::dlpack::dtype_code::Bool;
    // NumPy has no bfloat16 of its own: the bits go over as integers and are viewed as ml_dtypes'
    // type.
    if (dtype == DType::UInt8 || dtype == DType::BFloat16) return nb::dlpack::dtype_code::UInt;
    return is_floating(dtype) ? nb::dlpack::dtype_code::Float : nb::dlpack::dtype_code::Int;
  }();
  return {static_cast<uint8_t>(code), static_cast<uint8_t>(itemsize(dtype) * 8), 1};
}

// An array over the memory of a tensor on the CPU; `owner` is the Python object that keeps it
// alive.
template <typename... Options>
nb::object array_over(const Tensor& tensor, nb::handle owner) {
  const std::vector<size_t> shape(tensor.shape().begin(), tensor.shape().end());
  return nb::cast(nb::ndarray<nb::numpy, Options...>(
      tensor.data(), shape.size(), shape.data(), owner, tensor.strides().data(),
      numpy_dtype(tensor.dtype()), nb::device::cpu::value));
}

// What an array that can be written to owns.
struct Lent {
  Tensor tensor;
  StorageUse writes;
};

nb::object to_numpy(nb::handle self) {
  const Tensor* tensor = &held_by<Tensor>(self, "numpy");
  Tensor on_host;
  if (tensor->device().type != DeviceType::Cpu) {
    Unlocked released;
    on_host = tensor->to(Device{});
    tensor = &on_host;
  }
  // What a tape needs may be looked at, but not be written to.
  const bool read_only = tensor->read_only() || tensor->storage()->is_needed();
  auto* lent = new Lent{tensor->detached(), {}};
  const nb::capsule owner(lent, [](void* owned) noexcept { delete static_cast<Lent*>(owned); });
  if (!read_only) lent->writes = StorageUse(tensor->storage(), StorageUse::Kind::Writes);
  nb::object array = read_only ? array_over<nb::ro>(*tensor, owner) : array_over<>(*tensor, owner);
  if (tensor->dtype() != DType::BFloat16) return array;
  return array.attr("view")(nb::module_::import_("ml_dtypes").attr("bfloat16"));
}

nb::object to_array(nb::handle self, nb::object dtype, std::optional<bool> copy) {
  const bool copied = nb::cast<const Tensor&>(self).device().type != DeviceType::Cpu;
  nb::object array = to_numpy(self);
  const bool converts = !dtype.is_none() && !array.attr("dtype").equal(dtype);
  if (copy == false && (copied || converts)) {
    throw ValueError(
        "__array__: this tensor can't become such an array without a copy; leave out copy=False");
  }
  if (converts) return array.attr("astype")(dtype);
  if (copy == true && !copied) return array.attr("copy")();
  return array;
}

Tensor from_numpy(nb::handle object, const std::string& device) {
  const Device target = device_from_name(device);
  const HostArray array(object);
  Unlocked released;
  return Tensor::from_host(array.data(), array.spec(), target);
}

Tensor empty(const Shape& shape, const std::string& dtype, const std::string& device) {
  return Tensor::empty({dtype_from_name(dtype), shape}, device_from_name(device));
}

Tensor zeros(const Shape& shape, const std::string& dtype, const std::string& device) {
  return Tensor::zeros({dtype_from_name(dtype), shape}, device_from_name(device));
}

// Names of dtypes are asked for in each call of an op: made once.
nb::object dtype_object(DType dtype) {
  static PyObject* names[static_cast<size_t>(DType::Float64) + 1] = {};
  PyObject*& name = names[static_cast<size_t>(dtype)];
  if (name == nullptr) name = PyUnicode_InternFromString(dtype_name(dtype));
  return nb::borrow(name);
}

// Arrays of their own, all read with one wait for each device.
std::vector<nb::object> copies_on_host(const std::vector<Tensor>& tensors, double patience) {
  std::vector<Tensor> copies;
  {
    Unlocked released;
    copies = to_host(tensors, patience);
  }
  std::vector<nb::object> arrays;
  for (Tensor& copy : copies) arrays.push_back(to_numpy(nb::cast(std::move(copy))));
  return arrays;
}

Tensor to_device(const Tensor& tensor, const std::string& device) {
  const Device target = device_from_name(device);
  Unlocked released;
  return recorded_to(tensor, target);
}

}  // namespace

void bind_tensor(nb::module_& m) {
  nb::class_<Tensor>(m, "Tensor", nb::is_weak_referenceable(),
                     nb::type_slots(tensor_operator_slots),
                     "An array on one device. Its dtype and shape are fixed.")
      .def_prop_ro("shape", [](const Tensor& t) { return to_tuple(t.shape()); })
      .def_prop_ro(
          "strides", [](const Tensor& t) { return to_tuple(t.strides()); }, "In elements.")
      .def_prop_ro(
          "dtype", [](const Tensor& t) { return dtype_object(t.dtype()); },
          nb::sig("def dtype(self) -> str"))
      .def_prop_ro("device", [](const Tensor& t) { return device_name(t.device()); })
      .def_prop_ro("size", &Tensor::size)
      .def_prop_ro("ndim", [](const Tensor& t) { return t.shape().size(); })
      .def_prop_ro("nbytes", &Tensor::bytes)
      .def_prop_ro(
          "address", [](const Tensor& t) { return reinterpret_cast<uintptr_t>(t.data()); },
          "Where the first element is in its device's memory.")
      .def_prop_ro("is_contiguous", &Tensor::is_contiguous)
      .def_prop_ro("read_only", &Tensor::read_only)
      .def("numpy", &to_numpy, nb::sig("def numpy(self) -> numpy.ndarray"),
           "The values as a NumPy array: this memory itself on a CPU, a copy from a GPU.")
      .def("__array__", &to_array, nb::arg("dtype") = nb::none(), nb::arg("copy") = nb::none(),
           nb::sig("def __array__(self, dtype: object = None, copy: bool | None = None) -> "
                   "numpy.ndarray"))
      .def("to", &to_device, nb::arg("device"),
           "This tensor where it is there already, else a copy.")
      .def(
          "piece",
          [](const Tensor& t, const Shape& shape, const std::string& dtype, int64_t offset) {
            return t.piece({dtype_from_name(dtype), shape}, offset);
          },
          nb::arg("shape"), nb::arg("dtype"), nb::arg("offset"),
          "A piece of this contiguous memory, from a byte on, as another dtype and shape.")
      .def("copy", &recorded_copy, "The same values in contiguous memory of their own.")
      .def("fill_zero", &Tensor::fill_zero, "Sets every bit to 0, in the order of other work.")
      .def("contiguous", &recorded_contiguous, "This tensor where it is contiguous, else a copy.")
      .def(
          "reshape",
          [](const Tensor& t, const Shape& shape) {
            const Tensor result = t.contiguous().view(shape);
            if (!is_recording() || !is_tracked(t)) return result;
            const Tensor* input = &t;
            return apply_one(op_reshape, {&input, 1}, {{"shape", result.shape()}});
          },
          nb::arg("shape"),
          "Shares the memory where this tensor is contiguous. One extent may be -1.");

  m.def("from_numpy", &from_numpy, nb::arg("array"), nb::arg("device"),
        nb::sig("def from_numpy(array: object, device: str) -> Tensor"),
        "Copies an array (or what numpy.asarray takes) to a device.");
  m.def("copies_on_host", &copies_on_host, nb::arg("tensors"), nb::arg("patience") = kUsualPatience,
        nb::sig("def copies_on_host(tensors: collections.abc.Sequence[Tensor], patience: float = "
                "5e-05) -> list[numpy.ndarray]"),
        "Copies of tensors as NumPy arrays, with one wait for their device: for `patience` seconds "
        "by looking again and again, then asleep.");
  m.def("empty", &empty, nb::arg("shape"), nb::arg("dtype"), nb::arg("device"));
  m.def("zeros", &zeros, nb::arg("shape"), nb::arg("dtype"), nb::arg("device"));
}

}  // namespace kerascnn::bindings
