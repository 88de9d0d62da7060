// A tensor: dtype, shape and strides over shared storage on one device. Cheap to copy; copies share
// storage.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/shape.h"
#include "core/memory/storage.h"

namespace kerascnn {

class TapeNode;

// Where gradients find a value: an output of a recorded call, or of a leaf
// (core/eager/tape_node.h).
struct TapeEdge {
  std::shared_ptr<TapeNode> node;  // null for what nothing recorded
  uint32_t output = 0;
};

class Tensor {
 public:
  Tensor() = default;  // no storage; only to be assigned to
  Tensor(StoragePtr storage, TensorSpec spec, Shape strides, int64_t byte_offset = 0,
         bool read_only = false);

  static Tensor empty(const TensorSpec& spec, Device device);
  static Tensor zeros(const TensorSpec& spec, Device device);
  // Copies contiguous host data; the source may be reused on return.
  static Tensor from_host(const void* data, const TensorSpec& spec, Device device);
  template <typename T>
  static Tensor scalar(DType dtype, T value, Device device);

  bool defined() const { return storage_ != nullptr; }
  const TensorSpec& spec() const { return spec_; }
  DType dtype() const { return spec_.dtype; }
  const Shape& shape() const { return spec_.shape; }
  const Shape& strides() const { return strides_; }  // in elements
  int64_t size() const { return num_elements(spec_.shape); }
  int64_t bytes() const { return num_bytes(spec_); }
  Device device() const { return storage_->device(); }
  const StoragePtr& storage() const { return storage_; }
  bool read_only() const { return read_only_; }
  void* data() const { return static_cast<char*>(storage_->data()) + byte_offset_; }

  bool is_contiguous() const;
  bool is_packed() const;                 // contiguous, and aligned for kernels
  Tensor contiguous() const;              // itself where it already is, and aligned for kernels
  Tensor copy() const;                    // contiguous memory of its own
  Tensor view(const Shape& shape) const;  // contiguous only; the same number of elements
  // A piece of this contiguous memory, from a byte on, as another dtype and shape.
  Tensor piece(const TensorSpec& spec, int64_t byte_offset) const;
  Tensor to(Device device) const;  // itself where it is there; else contiguous copy
  void fill_zero() const;          // contiguous only; waits for nothing
  void copy_from(
      const Tensor& source) const;  // same spec, contiguous target, any device; into this memory
  void copy_to_host(void* destination) const;  // contiguous order; waits until the data is there

  const TapeEdge& edge() const { return edge_; }
  void set_edge(TapeEdge edge) { edge_ = std::move(edge); }
  Tensor detached() const;  // the same values, recorded by nothing

 private:
  StoragePtr storage_;
  TensorSpec spec_;
  Shape strides_;
  int64_t byte_offset_ = 0;
  TapeEdge edge_;
  bool read_only_ = false;
};

// Copies on the CPU with memory of their own. Each device is waited for once, looking again and
// again for `patience` seconds and asleep from then on.
std::vector<Tensor> to_host(const std::vector<Tensor>& tensors, double patience);

}  // namespace kerascnn
