// Memory of another library that goes back to it when a device is done with it.
#pragma once

#include <cstdint>
#include <functional>

#include "core/base/device.h"

namespace kerascnn {

// Calls `release` when the work that is enqueued on the device now is done: at once where it is.
// Otherwise small memory goes back with one of the next calls, so that the host need not wait, and
// the host waits for large memory. Never throws; a device that failed has no work any more.
void give_back_after_work(Device device, int64_t bytes, std::function<void()> release);

// Gives back what can go by now.
void give_back_finished();

}  // namespace kerascnn
