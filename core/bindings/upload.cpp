#include "core/tensor/upload.h"

#include "core/bindings/bindings.h"

namespace kerascnn::bindings {
namespace {

std::shared_ptr<Fence> make_fence(const std::string& device) {
  return backend(device_from_name(device)).make_fence();
}

Tensor empty_for(const Shape& shape, const std::string& dtype, const std::string& device) {
  return empty_for_upload({dtype_from_name(dtype), shape}, device_from_name(device));
}

}  // namespace

void bind_upload(nb::module_& m) {
  const auto released = nb::call_guard<nb::gil_scoped_release>();
  nb::class_<Fence>(m, "Fence", "A point in what a device has to do.")
      .def(nb::new_(&make_fence), nb::arg("device"))
      .def("record", &Fence::record, "Puts it behind all work that is enqueued now.")
      .def("passed", &Fence::passed, "Whether the device is past it.")
      .def("wait", &Fence::wait, released, "Waits until the device is past it.");
  nb::class_<Upload>(m, "Upload",
                     "Copies of rows to a device, beside its work on those that came before.")
      .def(nb::new_([](const std::string& device) {
             return std::make_shared<Upload>(device_from_name(device));
           }),
           nb::arg("device"))
      .def("send", &Upload::send, nb::arg("targets"), nb::arg("sources"), nb::arg("first"),
           nb::arg("count"), released,
           "Enqueues copies of `count` rows from `first` on of each source on the host. The rows "
           "of the sources must stay as they are until `sent`.")
      .def("mark_used", &Upload::mark_used,
           "The work enqueued so far is the last that reads what was sent.")
      .def("sent", &Upload::sent, "Whether every copy is done.")
      .def("wait", &Upload::wait, released, "Waits until every copy is done.");
  m.def("empty_for_upload", &empty_for, nb::arg("shape"), nb::arg("dtype"), nb::arg("device"),
        "Memory on the host to upload to `device` from: page-locked where that is a GPU.");
}

}  // namespace kerascnn::bindings
