// Memory for batches that a stream of its own writes and the work of the device reads.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "core/backend/backend.h"
#include "core/backend/cuda/runtime/fence.h"

namespace kerascnn::cuda {

// Memory of the device's allocator, whose blocks are ordered by the device's stream alone: another
// stream that writes to one has to wait for the work that has been put there until now.
class OrderedBlock {
 public:
  OrderedBlock(Backend& backend, Context& context, int64_t bytes);
  ~OrderedBlock();
  OrderedBlock(const OrderedBlock&) = delete;
  OrderedBlock& operator=(const OrderedBlock&) = delete;

  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  // Work that is put on the device's stream from now on no longer uses it.
  void release() { free_.record(); }
  bool is_free() { return free_.passed(); }
  void wait() { free_.wait(); }  // until it is free
  // What is put on `stream` from now on waits until it is free.
  void hold_back(cudaStream_t stream) { free_.hold_back(stream); }

 private:
  Backend& backend_;
  const int64_t bytes_;
  void* const data_;
  CudaFence free_;
};

// Blocks that are used again and again. Those in use keep it alive.
class BatchMemory : public std::enable_shared_from_this<BatchMemory> {
 public:
  BatchMemory(Backend& backend, Context& context) : backend_(backend), context_(context) {}

  // A block that `stream` may write to. When the storage goes, everything that was put on the
  // device's stream may still read it.
  StoragePtr take(int64_t bytes, cudaStream_t stream);

 private:
  std::unique_ptr<OrderedBlock> find(int64_t bytes);
  void give_back(std::unique_ptr<OrderedBlock> block) noexcept;

  Backend& backend_;
  Context& context_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<OrderedBlock>> blocks_;  // that which came back first goes first
};

}  // namespace kerascnn::cuda
