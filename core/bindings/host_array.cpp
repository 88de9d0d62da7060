#include "core/bindings/host_array.h"

#include <string_view>
#include <utility>

namespace kerascnn::bindings {
namespace {

static_assert(sizeof(long) == 8, "format \"l\" is taken for int64");

// What formats of the struct module mean.
constexpr std::pair<char, DType> kFormats[] = {
    {'?', DType::Bool},    {'B', DType::UInt8},   {'b', DType::Int8},  {'h', DType::Int16},
    {'i', DType::Int32},   {'l', DType::Int64},   {'q', DType::Int64}, {'e', DType::Float16},
    {'f', DType::Float32}, {'d', DType::Float64},
};

// The dtype of a format with one element in native byte order; none for all others.
std::optional<DType> dtype_of_format(std::string_view format) {
  for (const auto& [character, dtype] : kFormats) {
    if (format == std::string_view(&character, 1)) return dtype;
  }
  return std::nullopt;
}

nb::handle array_type() {
  static PyObject* type = nb::object(nb::module_::import_("numpy").attr("ndarray")).release().ptr();
  return type;
}

}  // namespace

HostArray::HostArray(nb::handle object) {
  if (object.type().is(array_type()) && look_at(object)) return;
  nb::object array = nb::module_::import_("numpy").attr("asarray")(object);
  const DType dtype = dtype_from_name(nb::cast<std::string>(array.attr("dtype").attr("name")));
  spec_ = {dtype, nb::cast<Shape>(array.attr("shape"))};
  if (!nb::cast<bool>(array.attr("dtype").attr("isnative"))) {
    array = array.attr("astype")(array.attr("dtype").attr("newbyteorder")("="));
  }
  if (!nb::cast<bool>(array.attr("flags").attr("c_contiguous"))) array = array.attr("copy")();
  nb::dict interface = array.attr("__array_interface__");
  data_ = reinterpret_cast<const void*>(nb::cast<uintptr_t>(interface["data"][0]));
  owner_ = std::move(array);
}

HostArray::~HostArray() { PyBuffer_Release(&buffer_); }

HostArray::HostArray(HostArray&& other) noexcept
    : buffer_(std::exchange(other.buffer_, {})),
      owner_(std::move(other.owner_)),
      data_(other.data_),
      spec_(std::move(other.spec_)) {}

// The buffer protocol, a tenth of the time of attributes: false for arrays that it does not show as
// they are (bfloat16) or that are not contiguous.
bool HostArray::look_at(nb::handle array) {
  if (PyObject_GetBuffer(array.ptr(), &buffer_, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) != 0) {
    PyErr_Clear();
    return false;
  }
  const std::optional<DType> dtype = dtype_of_format(buffer_.format);
  if (!dtype) {
    PyBuffer_Release(&buffer_);
    return false;
  }
  data_ = buffer_.buf;
  spec_ = {*dtype, Shape(buffer_.shape, buffer_.shape + buffer_.ndim)};
  return true;
}

Tensor HostArray::lent() const {
  auto memory = std::make_shared<Storage>(const_cast<void*>(data_), num_bytes(spec_), Device{},
                                          std::function<void()>());
  return {std::move(memory), spec_, contiguous_strides(spec_.shape), 0, true};
}

}  // namespace kerascnn::bindings
