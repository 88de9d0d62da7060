// Waiting for a device without keeping a core busy, whatever the device's flags are in this
// process.
#pragma once

#include "core/backend/backend.h"
#include "core/backend/cuda/runtime/handles.h"

namespace kerascnn::cuda {

// An event that a thread can sleep on.
Event make_blocking_event();

bool has_passed(cudaEvent_t event);

// Return when the event has passed, or when all work of the stream is done. They look again and
// again for `patience` seconds, and sleep from then on.
void wait_for(cudaEvent_t blocking_event, double patience = kUsualPatience);
void wait_for(cudaStream_t stream, double patience = kUsualPatience);

}  // namespace kerascnn::cuda
