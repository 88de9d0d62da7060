#include "core/tensor/upload.h"

#include <deque>

#include "core/base/error.h"
#include "core/bindings/bindings.h"
#include "core/tensor/piece_upload.h"

namespace kerascnn::bindings {
namespace {

std::shared_ptr<Fence> make_fence(const std::string& device) {
  return backend(device_from_name(device)).make_fence();
}

Tensor empty_for(const Shape& shape, const std::string& dtype, const std::string& device) {
  return empty_for_upload({dtype_from_name(dtype), shape}, device_from_name(device));
}

// The core's object, and the arrays that it reads: these belong to Python.
class Pieces {
 public:
  Pieces(const std::string& device, const std::vector<Tensor>& targets,
         const std::vector<Tensor>& sources)
      : dtypes_(targets.size()), upload_(device_from_name(device), targets, sources) {
    for (const Tensor& target : targets) specs_.push_back(target.spec());
  }

  void start(const std::vector<nb::object>& arrays, int64_t first) {
    std::vector<const void*> rows;
    const int64_t count = arrays.empty() ? 0 : static_cast<int64_t>(nb::len(arrays[0]));
    for (size_t i = 0; i < arrays.size(); ++i) rows.push_back(address(arrays[i], i, count));
    {
      Unlocked released;
      upload_.start(rows, first, count);
    }
    arrays_.push_back(arrays);
  }

  void arrive() {
    {
      Unlocked released;
      upload_.arrive();
    }
    arrays_.pop_front();
  }

  void cancel() {
    {
      Unlocked released;
      upload_.cancel();
    }
    arrays_.clear();
  }

  void mark_used() { upload_.mark_used(); }

 private:
  const void* address(const nb::object& array, size_t index, int64_t count) {
    const nb::object dtype = array.attr("dtype");
    TensorSpec spec{index < specs_.size() && dtype.is(dtypes_[index])
                        ? specs_[index].dtype
                        : dtype_from_name(nb::cast<std::string>(dtype.attr("name"))),
                    nb::cast<Shape>(array.attr("shape"))};
    TensorSpec expected = index < specs_.size() ? specs_[index] : spec;
    if (!expected.shape.empty()) expected.shape[0] = count;
    if (spec != expected || !nb::cast<bool>(dtype.attr("isnative")) ||
        !nb::cast<bool>(array.attr("flags").attr("c_contiguous"))) {
      throw ValueError(message("piece upload: expected a contiguous array ", spec_string(expected),
                               ", received ", spec_string(spec)));
    }
    if (index < specs_.size()) dtypes_[index] = dtype;
    const nb::dict interface = array.attr("__array_interface__");
    return reinterpret_cast<const void*>(nb::cast<uintptr_t>(interface["data"][0]));
  }

  std::vector<TensorSpec> specs_;
  std::vector<nb::object> dtypes_;  // those seen last: asking for a name takes NumPy long
  std::deque<std::vector<nb::object>> arrays_;  // of the pieces that have not arrived
  PieceUpload upload_;                          // goes first: it may be reading the arrays
};

}  // namespace

void bind_upload(nb::module_& m) {
  const auto released = nb::call_guard<Unlocked>();
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
  nb::class_<Pieces>(m, "PieceUpload",
                     "Pieces of arrays on their way to a device: threads copy them to `sources`, "
                     "page-locked memory, and from there to the same rows of `targets`.")
      .def(nb::init<const std::string&, const std::vector<Tensor>&, const std::vector<Tensor>&>(),
           nb::arg("device"), nb::arg("targets"), nb::arg("sources"))
      .def("start", &Pieces::start, nb::arg("arrays"), nb::arg("first"),
           "Begins to bring all rows of the contiguous arrays to the rows of the targets from "
           "`first` on. The arrays must stay as they are until the piece has arrived.")
      .def("arrive", &Pieces::arrive,
           "Of the pieces that have not arrived, that which was started first: returns when its "
           "arrays were read. Steps that are run from now on find its rows.")
      .def("mark_used", &Pieces::mark_used,
           "The work enqueued so far is the last that reads the pieces that have arrived.")
      .def("cancel", &Pieces::cancel,
           "Gives up what has not arrived; nothing reads the arrays any more.");
  m.def("empty_for_upload", &empty_for, nb::arg("shape"), nb::arg("dtype"), nb::arg("device"),
        "Memory on the host to upload to `device` from: page-locked where that is a GPU.");
}

}  // namespace kerascnn::bindings
