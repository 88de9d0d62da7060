// NumPy's arrays as the core sees them.
#pragma once

#include "core/bindings/bindings.h"

namespace kerascnn::bindings {

// A contiguous array of a supported dtype, and a look at its memory for as long as this lives. With
// Python's lock.
class HostArray {
 public:
  // An array, or what numpy.asarray takes. Throws TypeError for dtypes that aren't supported.
  explicit HostArray(nb::handle object);
  ~HostArray();
  HostArray(HostArray&& other) noexcept;
  HostArray& operator=(HostArray&&) = delete;

  const void* data() const { return data_; }
  const TensorSpec& spec() const { return spec_; }
  // Over the array's memory, which it does not keep.
  Tensor lent() const;

 private:
  bool look_at(nb::handle array);

  Py_buffer buffer_{};
  nb::object owner_;
  const void* data_ = nullptr;
  TensorSpec spec_;
};

}  // namespace kerascnn::bindings
