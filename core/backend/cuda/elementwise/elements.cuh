// What the interpreters of element programs work on: their argument, and the elements of tensors of
// any dtype.
#pragma once

#include <cstdint>

#include "core/backend/cuda/device/grid.cuh"
#include "core/backend/cuda/device/types.cuh"
#include "core/backend/cuda/movement/strided.cuh"
#include "core/ops/element_program.h"

namespace kerascnn::cuda {

constexpr int kWidth = 4;  // elements of a thread of the float interpreter

enum class Reading : uint8_t { InOrder, Scalar, Strided };

struct ElementInput {
  const void* data = nullptr;
  DType dtype = DType::Float32;
  Reading reading = Reading::InOrder;
};

struct ElementOutput {
  void* data = nullptr;
  DType dtype = DType::Float32;
  uint8_t source = 0;  // its register
};

struct FloatInstruction {
  ElementOp op = ElementOp::cast;
  DType result_dtype = DType::Float32;
  uint8_t num_operands = 0;
  uint8_t operands[3] = {};
  float parameters[2] = {};
};

// Everything that a kernel needs, as its one argument.
template <typename Instruction, typename Constant>
struct ElementParams {
  int64_t size = 0;
  int num_inputs = 0;
  int num_constants = 0;
  int num_instructions = 0;
  int num_outputs = 0;
  bool vectorized =
      false;     // what is read in order and what is written is aligned to kWidth elements
  int axes = 0;  // of strided inputs
  ElementInput inputs[kMaxElementInputs];
  ElementOutput outputs[kMaxElementOutputs];
  int64_t extents[kMaxAxes] = {};
  int64_t strides[kMaxElementInputs][kMaxAxes] = {};
  Constant constants[kMaxElementConstants] = {};
  Instruction instructions[kMaxElementInstructions];

  // Where a strided input has the element at `position` of the result.
  __device__ __forceinline__ int64_t offset(int input, int64_t position) const {
    int64_t result = 0;
    for (int axis = axes - 1; axis > 0; --axis) {
      const Division at = divide(position, extents[axis]);
      result += at.remainder * strides[input][axis];
      position = at.quotient;
    }
    return result + position * strides[input][0];
  }
};
using FloatParams = ElementParams<FloatInstruction, float>;
using GeneralParams = ElementParams<ElementInstruction, ElementValue>;
static_assert(sizeof(FloatParams) <= 3968 && sizeof(GeneralParams) <= 3968,
              "kernel arguments must fit in 4 KiB");

struct DeviceRounding {
  KERASCNN_HOST_DEVICE static float to_float16(float value) {
    return __half2float(__float2half_rn(value));
  }
  KERASCNN_HOST_DEVICE static float to_bfloat16(float value) {
    return __bfloat162float(__float2bfloat16_rn(value));
  }
};

using Floats = Vector<float, kWidth>;

// Four elements of up to 32 bits as they lie in memory, packed. They are converted only after all
// loads of a thread are under way.
struct Packed {
  uint32_t words[kWidth];
};

template <typename Bits>
__device__ __forceinline__ Packed load_whole(const void* data, int64_t at) {
  Packed packed{};
  if constexpr (sizeof(Bits) == 1) {
    packed.words[0] = *reinterpret_cast<const uint32_t*>(static_cast<const Bits*>(data) + at);
  } else if constexpr (sizeof(Bits) == 2) {
    const uint2 pair = *reinterpret_cast<const uint2*>(static_cast<const Bits*>(data) + at);
    packed.words[0] = pair.x;
    packed.words[1] = pair.y;
  } else {
    const uint4 four = *reinterpret_cast<const uint4*>(static_cast<const Bits*>(data) + at);
    packed.words[0] = four.x;
    packed.words[1] = four.y;
    packed.words[2] = four.z;
    packed.words[3] = four.w;
  }
  return packed;
}

template <typename Bits>
__device__ __forceinline__ Packed load_each(const void* data, const int64_t (&offsets)[kWidth],
                                            int count) {
  constexpr int kPerWord = 4 / sizeof(Bits);
  Packed packed{};
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    if (k >= count) continue;
    const uint32_t bits = static_cast<const Bits*>(data)[offsets[k]];
    packed.words[k / kPerWord] |= bits << (k % kPerWord * 8 * sizeof(Bits));
  }
  return packed;
}

template <typename Bits>
__device__ __forceinline__ uint32_t element_bits(const Packed& packed, int k) {
  constexpr int kPerWord = 4 / sizeof(Bits);
  return static_cast<Bits>(packed.words[k / kPerWord] >> (k % kPerWord * 8 * sizeof(Bits)));
}

__device__ __forceinline__ Floats to_floats(DType dtype, const Packed& packed) {
  Floats result;
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    float& value = result.values[k];
    switch (dtype) {
      case DType::Bool:
        value = element_bits<uint8_t>(packed, k) != 0 ? 1.0f : 0.0f;
        break;
      case DType::UInt8:
        value = static_cast<float>(element_bits<uint8_t>(packed, k));
        break;
      case DType::Int8:
        value = static_cast<float>(static_cast<int8_t>(element_bits<uint8_t>(packed, k)));
        break;
      case DType::Int16:
        value = static_cast<float>(static_cast<int16_t>(element_bits<uint16_t>(packed, k)));
        break;
      case DType::Int32:
        value = static_cast<float>(static_cast<int32_t>(element_bits<uint32_t>(packed, k)));
        break;
      case DType::Float16:
        value = __half2float(
            __ushort_as_half(static_cast<unsigned short>(element_bits<uint16_t>(packed, k))));
        break;
      case DType::BFloat16:
        value = __uint_as_float(element_bits<uint16_t>(packed, k) << 16);
        break;
      default:
        value = __uint_as_float(element_bits<uint32_t>(packed, k));
    }
  }
  return result;
}

__device__ __forceinline__ int bytes_of(DType dtype) {
  if (dtype <= DType::Int8) return 1;
  if (dtype == DType::Int16 || dtype == DType::Float16 || dtype == DType::BFloat16) return 2;
  return 4;
}

__device__ __forceinline__ Packed load_input(const FloatParams& params, int input, int64_t at,
                                             int count) {
  const ElementInput& from = params.inputs[input];
  const int bytes = bytes_of(from.dtype);
  if (from.reading == Reading::InOrder && params.vectorized && count == kWidth) {
    if (bytes == 1) return load_whole<uint8_t>(from.data, at);
    if (bytes == 2) return load_whole<uint16_t>(from.data, at);
    return load_whole<uint32_t>(from.data, at);
  }
  int64_t offsets[kWidth] = {0, 0, 0, 0};
  if (from.reading == Reading::InOrder) {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) offsets[k] = at + k;
  } else if (from.reading == Reading::Strided) {
    const int last = params.axes - 1;
    const int64_t run = params.extents[last];
    offsets[0] = params.offset(input, at);
    const bool is_one_run = divide(at, run).remainder + kWidth <= run;
#pragma unroll
    for (int k = 1; k < kWidth; ++k) {
      if (is_one_run) {
        offsets[k] = offsets[0] + k * params.strides[input][last];
      } else if (k < count) {
        offsets[k] = params.offset(input, at + k);
      }
    }
  }
  if (bytes == 1) return load_each<uint8_t>(from.data, offsets, count);
  if (bytes == 2) return load_each<uint16_t>(from.data, offsets, count);
  return load_each<uint32_t>(from.data, offsets, count);
}

template <typename T>
__device__ __forceinline__ void store_values(void* data, int64_t at, int count, bool vectorized,
                                             const T (&values)[kWidth]) {
  T* to = static_cast<T*>(data) + at;
  if (vectorized && count == kWidth) {
    Vector<T, kWidth> vector;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) vector.values[k] = values[k];
    *reinterpret_cast<Vector<T, kWidth>*>(to) = vector;
    return;
  }
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    if (k < count) to[k] = values[k];
  }
}

__device__ __forceinline__ void store_floats(const ElementOutput& output, int64_t at, int count,
                                             bool vectorized, const Floats& floats) {
  if (output.dtype == DType::Float32) {
    store_values(output.data, at, count, vectorized, floats.values);
    return;
  }
  if (output.dtype == DType::Bool) {
    uint8_t values[kWidth];
#pragma unroll
    for (int k = 0; k < kWidth; ++k) values[k] = floats.values[k] != 0.0f ? 1 : 0;
    store_values(output.data, at, count, vectorized, values);
    return;
  }
  uint16_t values[kWidth];
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    values[k] = output.dtype == DType::Float16
                    ? __half_as_ushort(__float2half_rn(floats.values[k]))
                    : __bfloat16_as_ushort(__float2bfloat16_rn(floats.values[k]));
  }
  store_values(output.data, at, count, vectorized, values);
}

__device__ __forceinline__ ElementValue load_value(DType dtype, const void* data, int64_t at) {
  ElementValue value;
  value.i = 0;
  switch (dtype) {
    case DType::Bool:
      value.i = static_cast<const uint8_t*>(data)[at] != 0;
      break;
    case DType::UInt8:
      value.i = static_cast<const uint8_t*>(data)[at];
      break;
    case DType::Int8:
      value.i = static_cast<const int8_t*>(data)[at];
      break;
    case DType::Int16:
      value.i = static_cast<const int16_t*>(data)[at];
      break;
    case DType::Int32:
      value.i = static_cast<const int32_t*>(data)[at];
      break;
    case DType::Int64:
      value.i = static_cast<const int64_t*>(data)[at];
      break;
    case DType::Float16:
      value.f = __half2float(static_cast<const __half*>(data)[at]);
      break;
    case DType::BFloat16:
      value.f = __bfloat162float(static_cast<const __nv_bfloat16*>(data)[at]);
      break;
    case DType::Float32:
      value.f = static_cast<const float*>(data)[at];
      break;
    case DType::Float64:
      value.d = static_cast<const double*>(data)[at];
      break;
  }
  return value;
}

__device__ __forceinline__ void store_value(DType dtype, void* data, int64_t at,
                                            const ElementValue& value) {
  switch (dtype) {
    case DType::Bool:
    case DType::UInt8:
    case DType::Int8:
      static_cast<uint8_t*>(data)[at] = static_cast<uint8_t>(value.i);
      break;
    case DType::Int16:
      static_cast<int16_t*>(data)[at] = static_cast<int16_t>(value.i);
      break;
    case DType::Int32:
      static_cast<int32_t*>(data)[at] = static_cast<int32_t>(value.i);
      break;
    case DType::Int64:
      static_cast<int64_t*>(data)[at] = value.i;
      break;
    case DType::Float16:
      static_cast<__half*>(data)[at] = __float2half_rn(value.f);
      break;
    case DType::BFloat16:
      static_cast<__nv_bfloat16*>(data)[at] = __float2bfloat16_rn(value.f);
      break;
    case DType::Float32:
      static_cast<float*>(data)[at] = value.f;
      break;
    case DType::Float64:
      static_cast<double*>(data)[at] = value.d;
      break;
  }
}

}  // namespace kerascnn::cuda
