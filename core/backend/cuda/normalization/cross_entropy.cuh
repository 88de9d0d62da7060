// Softmax, its cross-entropy with a label and the gradient of the logits, for a row of up to 32
// classes that eight threads share.
#pragma once

#include <cstdint>
#include <limits>

#include "core/backend/cuda/device/block.cuh"
#include "core/backend/cuda/device/rows.cuh"
#include "core/ops/element_functions.h"

namespace kerascnn::cuda {

// What a thread gets for its four columns.
struct CrossEntropyColumns {
  float loss;  // of the row
  float probabilities[4];
  float slopes[4];  // the gradient of the logits
};

struct CrossEntropy {
  float low, high;  // probabilities are clipped to these
  bool exact;       // the loss is the log-softmax itself, not the log of a clipped probability

  explicit CrossEntropy(double epsilon)
      : low(static_cast<float>(epsilon)),
        high(static_cast<float>(1.0 - epsilon)),
        exact(epsilon == 0.0) {}

  // Eight neighbouring threads, at multiples of eight, call this together, each with four
  // neighbouring columns; the content of columns from `classes` on does not matter. `gy` is the
  // gradient of the loss. A label that is none of the classes gives NaN.
  __device__ __forceinline__ CrossEntropyColumns operator()(const float (&logits)[4], int column,
                                                            int classes, int64_t label,
                                                            float gy) const {
    const int lane = threadIdx.x % 32;
    const unsigned lanes = 0xffu << (lane & ~7);
    const bool is_valid = label >= 0 && label < classes;

    float largest = -INFINITY;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (column + j < classes) largest = Largest()(largest, logits[j]);
    }
    largest = reduce(lanes, largest, Largest());
    CrossEntropyColumns result;
    float total = 0.0f;
    float at_label = 0.0f, power_at_label = 0.0f;  // for the column of the label
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float& power = result.probabilities[j];
      power = column + j < classes ? element::exp(logits[j] - largest) : 0.0f;
      total += power;
      if (column + j == label) {
        at_label = logits[j];
        power_at_label = power;
      }
    }
    total = reduce(lanes, total, Sum());
    const int owner = (lane & ~7) + (is_valid ? static_cast<int>(label) / 4 : 0);
    at_label = __shfl_sync(lanes, at_label, owner);
    power_at_label = __shfl_sync(lanes, power_at_label, owner);

    const float nan = std::numeric_limits<float>::quiet_NaN();
    const float inverse = 1.0f / total;
    const float own = power_at_label * inverse;
    const float loss = exact ? element::log(total) - (at_label - largest)
                             : -element::log(element::clip(own, low, high));
    result.loss = is_valid ? loss : nan;
    const float g = own < low || own > high ? 0.0f : gy;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float& p = result.probabilities[j];
      p *= inverse;
      const float slope = g * (column + j == label ? p - 1.0f : p);
      result.slopes[j] = is_valid ? slope : nan;
    }
    return result;
  }

 private:
  template <typename Combine>
  __device__ __forceinline__ static float reduce(unsigned lanes, float value, Combine combine) {
#pragma unroll
    for (int step = 1; step < 8; step *= 2) {
      value = combine(value, __shfl_xor_sync(lanes, value, step));
    }
    return value;
  }
};

}  // namespace kerascnn::cuda
