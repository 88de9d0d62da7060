// Descriptions of tensors for copies of boxes to shared memory and back (sm_90 and newer,
// copy_tensor and store_tensor).
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>
#include <string_view>

#include "core/base/dtype.h"

namespace kerascnn::cuda {

// False with a driver that is older than such copies.
bool can_describe_boxes();

// Describes a tensor of four axes, the contiguous one first, whose boxes have rows of 128 or 32
// bytes in shared memory that exchange 16 bytes at a time ("128B swizzle" and "32B swizzle").
// Beyond the tensor's ends boxes have zeros, and are not stored. `op` is for the error, a
// LibraryError where the driver refuses: `data` and all rows are to be multiples of 16 bytes, and a
// box has at most 256 places along each axis.
CUtensorMap describe_boxes(std::string_view op, DType dtype, const void* data,
                           const std::array<int, 4>& extents, const std::array<int, 4>& box);

}  // namespace kerascnn::cuda
