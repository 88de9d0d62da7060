#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/device/grid.cuh"
#include "core/backend/cuda/device/types.cuh"
#include "core/backend/cuda/elementwise/elementwise.h"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/runtime/check.h"

namespace kerascnn::cuda {
namespace {

constexpr int kElementThreads = 128;  // tensors are small: more blocks reach more of the GPU
constexpr int kWidth = 4;

template <typename T>
__device__ __forceinline__ void load_operand(const SingleElementOp& call, int operand, int64_t at,
                                             bool is_whole, float (&values)[kWidth]) {
  const T* data = static_cast<const T*>(call.operands[operand]);
  if (call.is_scalar[operand]) {
    const float value = static_cast<float>(data[0]);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) values[k] = value;
  } else if (is_whole) {
    const auto vector = *reinterpret_cast<const Vector<T, kWidth>*>(data + at);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) values[k] = static_cast<float>(vector.values[k]);
  } else {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      values[k] = at + k < call.size ? static_cast<float>(data[at + k]) : 0.0f;
    }
  }
}

// The result may have the memory of an operand that is read in order.
template <ElementOp op, typename T>
__global__ void __launch_bounds__(kElementThreads)
    single_element_op(const __grid_constant__ SingleElementOp call) {
  begin_kernel();
  for (int64_t at = first_item() * kWidth; at < call.size; at += item_step() * kWidth) {
    const bool is_whole = call.vectorized && at + kWidth <= call.size;
    float operands[3][kWidth] = {};
#pragma unroll
    for (int i = 0; i < element_num_operands(op); ++i) {
      load_operand<T>(call, i, at, is_whole, operands[i]);
    }
    Vector<float, kWidth> result;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      result.values[k] = element_apply<op, float>(operands[0][k], operands[1][k], operands[2][k],
                                                  call.parameters[0], call.parameters[1]);
    }
    if (is_whole) {
      *reinterpret_cast<Vector<float, kWidth>*>(call.result + at) = result;
      continue;
    }
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      if (at + k < call.size) call.result[at + k] = result.values[k];
    }
  }
}

// Images go through this first: bytes become floats and are scaled.
__global__ void __launch_bounds__(kElementThreads)
    scaled_cast(const __grid_constant__ SingleElementOp call) {
  begin_kernel();
  for (int64_t at = first_item() * kWidth; at < call.size; at += item_step() * kWidth) {
    const bool is_whole = call.vectorized && at + kWidth <= call.size;
    float values[kWidth];
    load_operand<uint8_t>(call, 0, at, is_whole, values);
    Vector<float, kWidth> result;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) result.values[k] = values[k] * call.parameters[0];
    if (is_whole) {
      *reinterpret_cast<Vector<float, kWidth>*>(call.result + at) = result;
      continue;
    }
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      if (at + k < call.size) call.result[at + k] = result.values[k];
    }
  }
}

template <ElementOp op, typename T>
void launch(const SingleElementOp& call, cudaStream_t stream, bool early) {
  launch_waiting(single_element_op<op, T>, grid_for(call.size, kElementThreads * kWidth),
                 kElementThreads, stream, early, call);
}

}  // namespace

void launch_scaled_cast(const SingleElementOp& call, cudaStream_t stream, bool early) {
  launch_waiting(scaled_cast, grid_for(call.size, kElementThreads * kWidth), kElementThreads,
                 stream, early, call);
}

SingleElementLaunch find_single_element_launch(ElementOp op, DType operand, DType result) {
  if (result != DType::Float32) return nullptr;
  if (op == ElementOp::cast && operand == DType::UInt8) return launch<ElementOp::cast, uint8_t>;
  if (operand != DType::Float32) return nullptr;
  return dispatch_element_op(op, []<typename Constant>(Constant) -> SingleElementLaunch {
    constexpr ElementOp kOp = Constant::op;
    if constexpr (kOp == ElementOp::where || element_result_is_bool(kOp)) {
      return nullptr;
    } else {
      return launch<kOp, float>;
    }
  });
}

}  // namespace kerascnn::cuda
