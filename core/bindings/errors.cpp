#include "core/base/error.h"

#include "core/bindings/bindings.h"
#include "core/tensor/dlpack.h"

namespace kerascnn::bindings {
namespace {

struct ErrorTypes {
  PyObject* device;
  PyObject* out_of_memory;
};

PyObject* new_error_type(nb::module_& m, const char* name, const char* doc, PyObject* base,
                         const nb::dict& attributes = nb::dict()) {
  const std::string full_name = nb::cast<std::string>(m.attr("__name__")) + "." + name;
  PyObject* type = PyErr_NewExceptionWithDoc(full_name.c_str(), doc, base, attributes.ptr());
  if (type == nullptr) nb::raise_python_error();
  m.attr(name) = nb::borrow(type);
  return type;
}

void set_out_of_memory(PyObject* type, const OutOfMemoryError& error) {
  nb::object instance = nb::borrow(type)(error.what());
  instance.attr("requested") = error.requested;
  instance.attr("allocated") = error.allocated;
  instance.attr("cached") = error.cached;
  instance.attr("free") = error.free;
  PyErr_SetObject(type, instance.ptr());
}

ErrorTypes types;

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const ValueError& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const TypeError& error) {
    PyErr_SetString(PyExc_TypeError, error.what());
  } catch (const BufferError& error) {
    PyErr_SetString(PyExc_BufferError, error.what());
  } catch (const DeviceError& error) {
    PyErr_SetString(types.device, error.what());
  } catch (const OutOfMemoryError& error) {
    set_out_of_memory(types.out_of_memory, error);
  }
}

}  // namespace

void set_python_error() noexcept {
  try {
    try {
      throw;
    } catch (nb::python_error& error) {
      error.restore();
    } catch (const Error&) {
      translate(std::current_exception(), nullptr);
    }
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
}

void bind_errors(nb::module_& m) {
  types.device = new_error_type(m, "DeviceError",
                                "A device that is missing, failed, or is mixed with another; or a "
                                "failed call into a library.",
                                PyExc_RuntimeError);
  // On the class, so that the stub declares them.
  nb::dict sizes;
  for (const char* size : {"requested", "allocated", "cached", "free"}) sizes[size] = 0;
  types.out_of_memory = new_error_type(
      m, "OutOfMemoryError", "Memory ran out. The sizes are in bytes.", PyExc_MemoryError, sizes);
  nb::register_exception_translator(translate);
}

}  // namespace kerascnn::bindings
