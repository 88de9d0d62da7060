#include "core/backend/local_collectives.h"

#include <cstring>
#include <utility>

#include "core/base/error.h"

namespace kerascnn {

void LocalMeeting::meet() {
  std::unique_lock lock(mutex_);
  const int64_t meeting = meetings_;
  ++there_;
  if (there_ == size_) {
    there_ = 0;
    ++meetings_;
    changed_.notify_all();
    return;
  }
  const auto is_over = [&] { return has_failed_ || there_ + left_ >= size_; };
  if (is_over()) changed_.notify_all();
  changed_.wait(lock, [&] { return meetings_ != meeting || is_over(); });
  if (meetings_ != meeting) return;
  throw DeviceError(has_failed_ ? "another device has failed"
                                : "another device is done, though this one has a sum left; the "
                                  "devices have to compute the same sums");
}

void LocalMeeting::exchange(int64_t rank, const void* send, void* receive, int64_t block_bytes) {
  sent_[rank] = send;
  meet();
  auto* to = static_cast<char*>(receive);
  for (const void* from : sent_) {
    std::memcpy(to, static_cast<const char*>(from) + rank * block_bytes, block_bytes);
    to += block_bytes;
  }
  meet();  // nobody writes what others still read
}

void LocalMeeting::gather(int64_t rank, const void* send, void* receive, int64_t block_bytes) {
  sent_[rank] = send;
  meet();
  auto* to = static_cast<char*>(receive);
  for (const void* from : sent_) {
    std::memcpy(to, from, block_bytes);
    to += block_bytes;
  }
  meet();
}

void LocalMeeting::begin() {
  const std::lock_guard lock(mutex_);
  there_ = left_ = meetings_ = 0;
  has_failed_ = false;
}

void LocalMeeting::leave() {
  const std::lock_guard lock(mutex_);
  ++left_;
  changed_.notify_all();
}

bool LocalMeeting::fail() {
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
  return !std::exchange(has_failed_, true);
}

bool LocalMeeting::has_met() {
  const std::lock_guard lock(mutex_);
  return meetings_ > 0;
}

std::shared_ptr<const Collectives> local_collectives(const std::shared_ptr<LocalMeeting>& meeting,
                                                     int64_t rank, int64_t size) {
  return std::make_shared<const Collectives>(Collectives{
      .name = "threads of this process",
      .rank = rank,
      .processes = size,
      .exchange = [meeting, rank](const void* send, void* receive,
                                  int64_t bytes) { meeting->exchange(rank, send, receive, bytes); },
      .gather = [meeting, rank](const void* send, void* receive,
                                int64_t bytes) { meeting->gather(rank, send, receive, bytes); }});
}

}  // namespace kerascnn
