// How several devices of one process exchange bytes on the host: each by a thread of its own, which
// reads the memory of the others while all of them wait. For CPUs; GPUs sum by NCCL.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "core/backend/collectives.h"

namespace kerascnn {

class LocalMeeting {
 public:
  explicit LocalMeeting(int64_t size) : size_(size), sent_(size) {}

  // As `Collectives` says, by the thread of device `rank`. They throw DeviceError where not all
  // devices come.
  void exchange(int64_t rank, const void* send, void* receive, int64_t block_bytes);
  void gather(int64_t rank, const void* send, void* receive, int64_t block_bytes);

  // All devices begin, and none has come anywhere.
  void begin();
  // A device comes to no further meeting, because it is done.
  void leave();
  // Or because it has failed: those that wait for it fail too. Returns whether it is the first.
  bool fail();
  // Have all devices come to a meeting since they began?
  bool has_met();

 private:
  // Returns when all have come.
  void meet();

  const int64_t size_;
  std::vector<const void*> sent_;  // by each device
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t there_ = 0;  // devices that wait
  int64_t left_ = 0;
  int64_t meetings_ = 0;
  bool has_failed_ = false;
};

// The meeting as device `rank` of `size` sees it.
std::shared_ptr<const Collectives> local_collectives(const std::shared_ptr<LocalMeeting>& meeting,
                                                     int64_t rank, int64_t size);

}  // namespace kerascnn
