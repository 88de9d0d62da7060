#include "core/backend/collectives.h"

#include <atomic>
#include <utility>
#include <vector>

#include "core/base/error.h"

namespace kerascnn {
namespace {

std::atomic<std::shared_ptr<const Collectives>>& active_collectives() {
  static auto* const value = new std::atomic<std::shared_ptr<const Collectives>>();
  return *value;
}

thread_local std::shared_ptr<const Collectives> collectives_here;

}  // namespace

CollectivesScope::CollectivesScope(std::shared_ptr<const Collectives> collectives)
    : before_(std::exchange(collectives_here, std::move(collectives))) {}

CollectivesScope::~CollectivesScope() { collectives_here = std::move(before_); }

void meet_devices_of_process() {
  if (collectives_here == nullptr) return;
  const char sent = 0;
  std::vector<char> received(static_cast<size_t>(collectives_here->processes));
  collectives_here->gather(&sent, received.data(), 1);
}

void set_collectives(std::shared_ptr<const Collectives> collectives) {
  active_collectives() = std::move(collectives);
}

std::shared_ptr<const Collectives> collectives_for(std::string_view op, int64_t processes) {
  std::shared_ptr<const Collectives> found =
      collectives_here != nullptr ? collectives_here : active_collectives().load();
  const int64_t there = found == nullptr ? 1 : found->processes;
  if (there != processes) {
    throw DeviceError(message(op, ": it is for ", processes, " processes, but this one is one of ",
                              there, "; call keras.distribution.initialize() in each of them"));
  }
  return found;
}

}  // namespace kerascnn
