// What the CUDA library exports beside its backend, for parts of the core that are above this one.
#pragma once

#include <string>

namespace kerascnn {

// A function by its name. Throws DeviceError, which begins with what fails, with the reason and the
// remedy where there is no GPU or no CUDA library.
void* cuda_function(const char* name, const std::string& what_fails);

}  // namespace kerascnn
