// Copies in words as wide as sizes and addresses allow.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "core/backend/cuda/device/types.cuh"

namespace kerascnn::cuda {

constexpr int64_t kWidestWord = 16;

inline bool is_aligned(const void* data, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(bytes) == 0;
}

// The widest word, in bytes, that rows of `row_bytes` bytes consist of.
inline int64_t widest_word(int64_t row_bytes) {
  int64_t bytes = kWidestWord;
  while (row_bytes % bytes != 0) bytes /= 2;
  return bytes;
}

// Calls function(Type<Word>()) with a type of `bytes` bytes: 1, 2, 4, 8 or 16.
template <typename Function>
decltype(auto) dispatch_word(int64_t bytes, Function&& function) {
  switch (bytes) {
    case 1:
      return function(Type<uint8_t>());
    case 2:
      return function(Type<uint16_t>());
    case 4:
      return function(Type<uint32_t>());
    case 8:
      return function(Type<uint2>());
    default:
      return function(Type<uint4>());
  }
}

}  // namespace kerascnn::cuda
