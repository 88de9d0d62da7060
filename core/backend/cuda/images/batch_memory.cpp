#include "core/backend/cuda/images/batch_memory.h"

#include <algorithm>
#include <utility>

#include "core/backend/cuda/runtime/context.h"
#include "core/base/error.h"

namespace kerascnn::cuda {
namespace {

// So many blocks wait to be used again: with fewer, a batch would often wait for the work on one
// that is just read.
constexpr size_t kMostKept = 6;

}  // namespace

OrderedBlock::OrderedBlock(Backend& backend, Context& context, int64_t bytes)
    : backend_(backend), bytes_(bytes), data_(backend.allocator().allocate(bytes)), free_(context) {
  try {
    free_.record();
  } catch (...) {
    backend_.allocator().free(data_);
    throw;
  }
}

OrderedBlock::~OrderedBlock() { backend_.allocator().free(data_); }

std::unique_ptr<OrderedBlock> BatchMemory::find(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  // The last batch of a pass is smaller; a much larger block is for other batches.
  const auto fits = [&](const std::unique_ptr<OrderedBlock>& block) {
    return block->bytes() >= bytes;
  };
  auto found = std::find_if(blocks_.begin(), blocks_.end(),
                            [&](const auto& block) { return fits(block) && block->is_free(); });
  if (found == blocks_.end() && blocks_.size() >= kMostKept) {
    found = std::find_if(blocks_.begin(), blocks_.end(), fits);
  }
  if (found == blocks_.end()) return nullptr;
  std::unique_ptr<OrderedBlock> block = std::move(*found);
  blocks_.erase(found);
  return block;
}

StoragePtr BatchMemory::take(int64_t bytes, cudaStream_t stream) {
  std::unique_ptr<OrderedBlock> block = find(bytes);
  if (block == nullptr) block = std::make_unique<OrderedBlock>(backend_, context_, bytes);
  block->hold_back(stream);
  void* const data = block->data();
  // A function that can be copied can't own what can't be.
  auto owner = std::make_shared<std::unique_ptr<OrderedBlock>>(std::move(block));
  return std::make_shared<Storage>(
      data, bytes, backend_.device(),
      [memory = shared_from_this(), owner] { memory->give_back(std::move(*owner)); });
}

void BatchMemory::give_back(std::unique_ptr<OrderedBlock> block) noexcept {
  try {
    block->release();
    const std::lock_guard lock(mutex_);
    blocks_.push_back(std::move(block));
    if (blocks_.size() > kMostKept) blocks_.erase(blocks_.begin());
  } catch (...) {
    // The device is lost, or the host has no memory: the block goes back to the allocator.
  }
}

}  // namespace kerascnn::cuda
