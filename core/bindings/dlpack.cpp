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
  // When the interpreter has ended, nothing of Python may be called; the memory ends with the
  // process.
  if (managed->deleter == nullptr || !can_release_objects()) return;
  // Producers' deleters may touch Python objects, and tensors are freed on any thread.
  nb::gil_scoped_acquire held;
  managed->deleter(managed);
}

// Nothing where the capsule is of another kind or has been consumed before.
template <typename Managed>
std::optional<Tensor> take_capsule(nb::handle capsule, bool may_copy) {
  if (!PyCapsule_IsValid(capsule.ptr(), CapsuleName<Managed>::fresh)) return std::nullopt;
  auto* managed =
      static_cast<Managed*>(PyCapsule_GetPointer(capsule.ptr(), CapsuleName<Managed>::fresh));
  Tensor tensor = tensor_from_dlpack(
      managed->dl_tensor, is_read_only(managed), [managed] { give_back(managed); }, may_copy);
  PyCapsule_SetName(capsule.ptr(), CapsuleName<Managed>::used);
  return tensor;
}

Tensor import_capsule(nb::handle capsule, bool may_copy) {
  if (auto tensor = take_capsule<DLManagedTensorVersioned>(capsule, may_copy)) return *tensor;
  if (auto tensor = take_capsule<DLManagedTensor>(capsule, may_copy)) return *tensor;
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

// `wanted` are the arguments that the producer has to know, or else they are left out.
nb::object request_capsule(nb::handle producer, const nb::object& stream, const nb::dict& wanted) {
  nb::object method = producer.attr("__dlpack__");
  nb::dict arguments = nb::borrow<nb::dict>(wanted.attr("copy")());
  arguments["stream"] = stream;
  nb::dict plain;
  plain["stream"] = stream;
  arguments["max_version"] = nb::make_tuple(kDLPackVersion.major, kDLPackVersion.minor);
  try {
    return method(**arguments);
  } catch (nb::python_error& error) {
    // Producers from before DLPack 1.0 don't know the arguments.
    if (!error.matches(PyExc_TypeError)) throw;
  }
  return method(**plain);
}

bool is_supported(DLDevice device) {
  try {
    device_from_dlpack(device);
    return true;
  } catch (const BufferError&) {
    return false;
  }
}

Tensor import_array(nb::handle producer, std::optional<Device> target, std::optional<bool> copy) {
  const auto [type, index] =
      nb::cast<std::pair<int32_t, int32_t>>(producer.attr("__dlpack_device__")());
  const DLDevice from{type, index};
  nb::dict wanted;
  if (!is_supported(from) && target == Device{} && copy != false) {
    // Memory that is out of reach: its own library can bring it to the host.
    const DLDevice host = dlpack_device(Device{});
    wanted["dl_device"] = nb::make_tuple(host.device_type, host.device_id);
    return import_capsule(request_capsule(producer, nb::none(), wanted), true);
  }
  if (copy == false) wanted["copy"] = false;
  return import_capsule(request_capsule(producer, our_stream(device_from_dlpack(from)), wanted),
                        copy != false);
}

Tensor from_dlpack(nb::handle array, const std::optional<std::string>& device,
                   std::optional<bool> copy) {
  const bool is_capsule = PyCapsule_CheckExact(array.ptr());
  if (!is_capsule &&
      (!nb::hasattr(array, "__dlpack__") || !nb::hasattr(array, "__dlpack_device__"))) {
    const std::string got = nb::cast<std::string>(nb::inst_name(array));
    throw nb::attribute_error(
        message("from_dlpack: expected an array with the methods __dlpack__ and __dlpack_device__, "
                "got ",
                got)
            .c_str());
  }
  std::optional<Device> target;
  if (device) target = device_from_name(*device);
  const Tensor tensor =
      is_capsule ? import_capsule(array, copy != false) : import_array(array, target, copy);
  return adopt(tensor, target, copy);
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
  m.def("from_dlpack", &from_dlpack, nb::arg("array"), nb::kw_only(),
        nb::arg("device") = nb::none(), nb::arg("copy") = nb::none(),
        nb::sig("def from_dlpack(array: object, *, device: str | None = None, copy: bool | None = "
                "None) -> Tensor"),
        "Shares the memory of another library's array (anything with __dlpack__, or a fresh "
        "capsule).");
}

}  // namespace kerascnn::bindings
