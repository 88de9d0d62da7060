// What the binding files share. They only translate: arguments in, results out, errors by class.
// Whatever decides or explains something belongs in the core.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "core/base/attributes.h"
#include "core/base/shape.h"
#include "core/bindings/unlocked.h"
#include "core/graph/body.h"
#include "core/ops/op.h"
#include "core/tensor/tensor.h"

namespace kerascnn::bindings {

namespace nb = nanobind;

void bind_errors(nb::module_& m);
void bind_tensor(nb::module_& m);
void bind_dlpack(nb::module_& m);
void bind_cuda_array(nb::module_& m);
void bind_operators(nb::module_& m);
void bind_ops(nb::module_& m);
void bind_custom_op(nb::module_& m);
void bind_region(nb::module_& m);
void bind_tape(nb::module_& m);
void bind_variable(nb::module_& m);
void bind_graph(nb::module_& m);
void bind_program(nb::module_& m);
void bind_replicas(nb::module_& m);
void bind_device(nb::module_& m);
void bind_collectives(nb::module_& m);
void bind_compile(nb::module_& m);
void bind_upload(nb::module_& m);
void bind_images(nb::module_& m);
void bind_inference(nb::module_& m);
void bind_profile(nb::module_& m);
void bind_watch(nb::module_& m);
// Not a part of the module, but of what the core can do with it.
void bind_host_fft();
void bind_held_functions(nb::module_& m);
void bind_end();

// The attributes of an op call as Python passes them.
using AttributeMap = std::map<std::string, Attribute>;

// How AttributeMap reads in a signature.
#define KERASCNN_ATTRIBUTES_TYPE                                       \
  "collections.abc.Mapping[str, bool | int | float | str | "           \
  "collections.abc.Sequence[int] | collections.abc.Sequence[float] | " \
  "collections.abc.Sequence[Body]]"

inline Attributes to_attributes(const AttributeMap& map) {
  Attributes attributes;
  for (const auto& [name, value] : map) attributes.set(name, value);
  return attributes;
}

inline nb::typed<nb::tuple, int64_t, nb::ellipsis> to_tuple(const Shape& shape) {
  PyObject* items = PyTuple_New(static_cast<Py_ssize_t>(shape.size()));
  if (items == nullptr) nb::raise_python_error();
  for (size_t i = 0; i < shape.size(); ++i) {
    PyTuple_SET_ITEM(items, static_cast<Py_ssize_t>(i), PyLong_FromLongLong(shape[i]));
  }
  return nb::steal<nb::typed<nb::tuple, int64_t, nb::ellipsis>>(items);
}

// (dtype, shape) of each.
inline nb::list spec_list(Specs specs) {
  nb::list list;
  for (const TensorSpec& spec : specs) {
    list.append(nb::make_tuple(dtype_name(spec.dtype), to_tuple(spec.shape)));
  }
  return list;
}

// Whether this thread may still let go of Python's objects. While modules are cleared at exit
// Python no longer counts as initialized, but its objects are taken down in an orderly way by the
// thread that has a state; what is not let go of then leaks with all that it holds.
inline bool can_release_objects() {
  return Py_IsInitialized() || PyGILState_GetThisThreadState() != nullptr;
}

// For code that Python calls without nanobind in between: turns the exception that is being handled
// into Python's.
void set_python_error() noexcept;

// The T that an object holds which nanobind has not looked at. Throws TypeError, which begins with
// `who`, for any other object, and for one that `__new__` made and nothing initialized.
template <typename T>
T& held_by(nb::handle object, const char* who) {
  if (!nb::isinstance<T>(object) || !nb::inst_ready(object)) {
    throw TypeError(message(who, ": expected an initialized ",
                            nb::cast<std::string>(nb::type<T>().attr("__name__")), ", received a ",
                            nb::cast<std::string>(object.type().attr("__name__")),
                            nb::isinstance<T>(object) ? " that was never initialized" : ""));
  }
  return *nb::inst_ptr<T>(object);
}

// The variable's value, noted by tapes.
Tensor read_variable_object(nb::handle variable);

// What the operators of tensors are, for their type.
extern PyType_Slot tensor_operator_slots[];

}  // namespace kerascnn::bindings
