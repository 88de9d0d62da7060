// Python's side of DLPack: capsules and the methods __dlpack__ and __dlpack_device__ of the array
// API standard (https://data-apis.org/array-api/latest/API_specification/array_object.html).
#include "core/tensor/dlpack.h"

#include <type_traits>

#include "core/backend/backend.h"
#include "core/bindings/bindings.h"

namespace kerascnn::bindings {
namespace {

template <typename Managed>
struct CapsuleName;
template <>
struct CapsuleName<DLManagedTensor> {
  static constexpr const char* fresh = "dltensor";
  static constexpr const char* used = "used_dltensor";
};
template <>
struct CapsuleName<DLManagedTensorVersioned> {
  static constexpr const char* fresh = "dltensor_versioned";
  static constexpr const char* used = "used_dltensor_versioned";
};

// Nobody took the capsule's content: it still belongs to the capsule.
template <typename Managed>
void destroy_capsule(PyObject* capsule) {
  if (!PyCapsule_IsValid(capsule, CapsuleName<Managed>::fresh)) return;
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, CapsuleName<Managed>::fresh));
  managed->deleter(managed);
}

template <typename Managed>
nb::object make_capsule(Managed* managed) {
  PyObject* capsule = PyCapsule_New(managed, CapsuleName<Managed>::fresh, destroy_capsule<Managed>);
  if (capsule == nullptr) {
    managed->deleter(managed);
    nb::raise_python_error();
  }
  return nb::steal(capsule);
}

template <typename Managed>
bool is_read_only(const Managed* managed) {
  if constexpr (std::is_same_v<Managed, DLManagedTensorVersioned>) {
    check_dlpack_version(managed->version);
    return (managed->flags & kDLPackReadOnly) != 0;
  }
  return false;
}

template <typename Managed>
void give_back(Managed* managed) {
  // After the interpreter's end nothing of Python may be called; the memory ends with the process.
  if (managed->deleter == nullptr || !Py_IsInitialized()) return;
  // Producers' deleters may touch Python objects, and tensors are freed on any thread.
  nb::gil_scoped_acquire held;
  managed->deleter(managed);
}

// Nothing where the capsule is of another kind or has been consumed before.
template <typename Managed>
std::optional<Tensor> take_capsule(nb::handle capsule) {
  if (!PyCapsule_IsValid(capsule.ptr(), CapsuleName<Managed>::fresh)) return std::nullopt;
  auto* managed =
      static_cast<Managed*>(PyCapsule_GetPointer(capsule.ptr(), CapsuleName<Managed>::fresh));
  Tensor tensor = tensor_from_dlpack(managed->dl_tensor, is_read_only(managed),
                                     [managed] { give_back(managed); });
  PyCapsule_SetName(capsule.ptr(), CapsuleName<Managed>::used);
  return tensor;
}

Tensor import_capsule(nb::handle capsule) {
  if (auto tensor = take_capsule<DLManagedTensorVersioned>(capsule)) return *tensor;
  if (auto tensor = take_capsule<DLManagedTensor>(capsule)) return *tensor;
  throw ValueError(
      "from_dlpack: expected a DLPack capsule that has not been consumed; every capsule can be "
      "used once");
}

// The stream that the producer is to order its work before.
nb::object our_stream(Device device) {
  if (device.type == DeviceType::Cpu) return nb::none();
  const auto stream = reinterpret_cast<intptr_t>(backend(device).stream());
  return nb::int_(stream != 0 ? stream : 1);
}

nb::object request_capsule(nb::handle producer, const nb::object& stream) {
  nb::object method = producer.attr("__dlpack__");
  const auto version = nb::make_tuple(kDLPackVersion.major, kDLPackVersion.minor);
  try {
    return method(nb::arg("stream") = stream, nb::arg("max_version") = version);
  } catch (nb::python_error& error) {
    // Producers from before DLPack 1.0 don't know the argument.
    if (!error.matches(PyExc_TypeError)) throw;
  }
  return method(nb::arg("stream") = stream);
}

Tensor from_dlpack(nb::handle producer) {
  if (PyCapsule_CheckExact(producer.ptr())) return import_capsule(producer);
  if (!nb::hasattr(producer, "__dlpack__") || !nb::hasattr(producer, "__dlpack_device__")) {
    throw TypeError(
        "from_dlpack: expected an array with the methods __dlpack__ and __dlpack_device__, got " +
        nb::cast<std::string>(nb::inst_name(producer)));
  }
  const auto [type, index] =
      nb::cast<std::pair<int32_t, int32_t>>(producer.attr("__dlpack_device__")());
  return import_capsule(request_capsule(producer, our_stream(device_from_dlpack({type, index}))));
}

nb::object to_dlpack(const Tensor& tensor, std::optional<intptr_t> stream,
                     std::optional<std::pair<uint32_t, uint32_t>> max_version,
                     std::optional<std::pair<int32_t, int32_t>> device, std::optional<bool> copy) {
  DLPackRequest request{stream, std::nullopt, copy};
  if (device) request.device = DLDevice{device->first, device->second};
  const DLPackExport exported = prepare_dlpack(tensor, request);
  const bool versioned = max_version && max_version->first >= 1;
  return versioned ? make_capsule(make_dlpack_versioned(exported))
                   : make_capsule(make_dlpack(exported));
}

}  // namespace

void bind_dlpack(nb::module_& m) {
  nb::class_<Tensor> tensor = nb::borrow<nb::class_<Tensor>>(m.attr("Tensor"));
  tensor
      .def("__dlpack__", &to_dlpack, nb::kw_only(), nb::arg("stream") = nb::none(),
           nb::arg("max_version") = nb::none(), nb::arg("dl_device") = nb::none(),
           nb::arg("copy") = nb::none())
      .def("__dlpack_device__", [](const Tensor& self) {
        const DLDevice device = dlpack_device(self.device());
        return std::pair<int32_t, int32_t>(device.device_type, device.device_id);
      });
  m.def("from_dlpack", &from_dlpack, nb::arg("array"),
        nb::sig("def from_dlpack(array: object) -> Tensor"),
        "Shares the memory of another library's array (anything with __dlpack__, or a fresh "
        "capsule).");
}

}  // namespace kerascnn::bindings
