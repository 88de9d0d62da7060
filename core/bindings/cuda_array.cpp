// Python's side of `__cuda_array_interface__`; see core/tensor/cuda_array.h.
#include "core/tensor/cuda_array.h"

#include <tuple>

#include "core/base/error.h"
#include "core/bindings/bindings.h"

namespace kerascnn::bindings {
namespace {

// A field that may be missing or None.
template <typename T>
std::optional<T> field(const nb::dict& fields, const char* name) {
  if (!fields.contains(name) || fields[name].is_none()) return std::nullopt;
  return nb::cast<T>(fields[name]);
}

nb::dict to_dictionary(const CudaArray& array) {
  nb::dict fields;
  fields["shape"] = to_tuple(array.shape);
  fields["typestr"] = array.typestr;
  fields["data"] = nb::make_tuple(array.data, array.read_only);
  fields["version"] = array.version;
  fields["strides"] = array.strides ? nb::object(to_tuple(*array.strides)) : nb::none();
  fields["stream"] = array.stream ? nb::object(nb::int_(*array.stream)) : nb::none();
  return fields;
}

nb::dict interface_of(const Tensor& tensor) {
  if (!has_cuda_array(tensor)) {
    // As the protocol has it: what can't be shared so has no such attribute.
    throw nb::attribute_error(
        message("__cuda_array_interface__: only tensors on a GPU have it, and bfloat16 not even "
                "there, received ",
                spec_string(tensor.spec()), " on ", device_name(tensor.device()),
                "; share the tensor through DLPack")
            .c_str());
  }
  return to_dictionary(cuda_array_of(tensor));
}

Tensor from_interface(nb::handle object) {
  const nb::dict fields = nb::cast<nb::dict>(object.attr("__cuda_array_interface__"));
  if (fields.contains("mask") && !fields["mask"].is_none()) {
    throw TypeError("__cuda_array_interface__: arrays with a mask are not supported");
  }
  CudaArray array;
  std::tie(array.data, array.read_only) =
      nb::cast<std::pair<uintptr_t, bool>>(nb::object(fields["data"]));
  array.shape = nb::cast<Shape>(nb::object(fields["shape"]));
  array.typestr = nb::cast<std::string>(nb::object(fields["typestr"]));
  array.strides = field<Shape>(fields, "strides");
  array.stream = field<intptr_t>(fields, "stream");
  array.version = field<int>(fields, "version").value_or(0);
  // The object owns the memory. It is let go of with Python's lock, on whatever thread.
  PyObject* owner = nb::borrow(object).release().ptr();
  try {
    return tensor_from_cuda_array(array, [owner] {
      if (!can_release_objects()) return;
      nb::gil_scoped_acquire held;
      Py_DECREF(owner);
    });
  } catch (...) {
    Py_DECREF(owner);
    throw;
  }
}

}  // namespace

void bind_cuda_array(nb::module_& m) {
  nb::class_<Tensor> tensor = nb::borrow<nb::class_<Tensor>>(m.attr("Tensor"));
  tensor.def_prop_ro("__cuda_array_interface__", &interface_of,
                     nb::sig("def __cuda_array_interface__(self) -> dict[str, typing.Any]"));
  m.def("from_cuda_array", &from_interface, nb::arg("array"),
        nb::sig("def from_cuda_array(array: object) -> Tensor"),
        "Shares the memory of another library's array on a GPU, by its __cuda_array_interface__.");
}

}  // namespace kerascnn::bindings
