// Inner loops of resizing images, for the widest vectors of the machine.
#pragma once

#include <cstdint>

#include "core/backend/cpu/cpu_features.h"

namespace kerascnn::cpu {

struct ResampleKernels {
  // to (size) = from * share
  void (*weigh)(const uint8_t* from, float share, int64_t size, float* to);
  // to (size) += from * share
  void (*weigh_and_add)(const uint8_t* from, float share, int64_t size, float* to);
  // Both at once: to (size) = from * share + other * other_share.
  void (*weigh_two)(const uint8_t* from, float share, const uint8_t* other, float other_share,
                    int64_t size, float* to);
  // The nearest of the numbers from 0 to 255, and the even one of two that are equally near.
  void (*round)(const float* from, int64_t size, uint8_t* to);
};

KERASCNN_KERNEL_VARIANTS(ResampleKernels, resample_kernels)

}  // namespace kerascnn::cpu
