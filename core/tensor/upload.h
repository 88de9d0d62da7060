// Copies of rows from the host to a device that run while the device works on rows that came
// before.
//
// Two of these, each for one half of a ring of rows, make a double buffer:
//
//   upload.wait();                       // the host memory may be written again
//   ... write rows into `sources` ...
//   upload.send(targets, sources, first, count);
//   ... enqueue work that reads the rows from `targets` ...
//   upload.mark_used();                  // what is sent next overwrites them only after that work
#pragma once

#include <memory>
#include <vector>

#include "core/backend/backend.h"
#include "core/tensor/tensor.h"

namespace kerascnn {

class Upload {
 public:
  explicit Upload(Device device);
  ~Upload();  // waits for copies that are under way
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;

  // Enqueues copies of `count` rows (of the first axis), from row `first` on, of each source on the
  // host to the same rows of its target on the device, and returns. They begin when the work is
  // done that was enqueued before the last mark_used(), or before now where the targets are in
  // other memory than those of the last call. Work enqueued from now on waits for them. The rows of
  // the sources must not be written before sent() is true; the memory is kept alive until then.
  // Throws ValueError where rows, dtypes or places don't fit.
  void send(const std::vector<Tensor>& targets, const std::vector<Tensor>& sources, int64_t first,
            int64_t count);
  // The work enqueued so far is the last that reads the targets.
  void mark_used();

  bool sent();  // is every copy done?
  void wait();  // until it is

 private:
  Device device_;
  std::unique_ptr<Fence> sent_;
  std::unique_ptr<Fence> used_;
  std::vector<Tensor> targets_;
  std::vector<Tensor> sources_;
};

// Memory on the host for sources of an Upload to `device`: page-locked where that is a GPU.
// Throws OutOfMemoryError.
Tensor empty_for_upload(const TensorSpec& spec, Device device);

}  // namespace kerascnn
