// Helps to find faults: catches kernels that write beside their outputs.
#pragma once

#include <memory>

#include "core/backend/backend.h"

namespace kerascnn {

// KERASCNN_CHECK_KERNELS, read once: is each launch checked?
bool checks_kernels();

// Runs `kernel` with outputs and workspace of its own between guards, waits for it, and throws
// DeviceError, which names the output, where a guard was changed. Memory that was not written at
// all comes out as NaN. This can't be used in CUDA graphs.
std::unique_ptr<Kernel> make_guarded_kernel(Backend& backend, std::unique_ptr<Kernel> kernel,
                                            const PlanRequest& request);

}  // namespace kerascnn
