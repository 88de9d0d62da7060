// 1x1 convolutions with an activation that cuDNN's and cuBLASLt's kernels don't have, which would
// take another pass over the result. Those that widen a tensor have little arithmetic for what they
// write, so the loop is about memory: the result passes once from registers to memory.
//
// It is a product of pixels (rows, depth) and the kernel (depth, columns) on tensor cores. A block
// has kColumns columns and takes tiles of kRows rows in turn. Both factors come in slices of the
// depth through a ring of stages, which goes on over the end of a tile: the slices of the next tile
// come while this one's results are stored.
//
// Which channel a column of a warp's tile stands for is free. Of two neighbouring tiles j and j + 1
// column c stands for channels 2c and 2c + 1, so that a thread reads neighbours of the kernel at
// once, and has four neighbouring channels of the result.
#include <algorithm>

#include "core/backend/cuda/convolution/conv2d.h"
#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/device/types.cuh"
#include "core/backend/cuda/elementwise/activation.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/runtime/context.h"
#include "core/backend/cuda/runtime/shared_memory.h"
#include "core/backend/cuda/tiles/async_copy.cuh"
#include "core/backend/cuda/tiles/numbers.cuh"

namespace kerascnn::cuda {
namespace {

constexpr int kRows = 128, kColumns = 128;  // of a block's tile
constexpr int kWarpRows = 32, kWarpColumns = 64;
constexpr int kWarpsAcross = kColumns / kWarpColumns;
constexpr int kBlockThreads = 32 * kWarpsAcross * (kRows / kWarpRows);
constexpr int kTilesDown = kWarpRows / 16, kTilesAcross = kWarpColumns / 8;  // of one instruction
constexpr int kPairs = kTilesAcross / 2;
constexpr int kStages = 3;
constexpr int kBlocksPerMultiprocessor = 2;

template <typename T>
using Numbers = std::conditional_t<std::is_same_v<T, float>, Tf32Numbers, HalfNumbers<T>>;

// Sizes in elements of T. Rows in shared memory are longer than what they hold, so that the lanes
// of a warp read from different banks.
template <typename T>
struct Sizes {
  static constexpr int kWide = 16 / sizeof(T);  // of one copy
  static constexpr int kStep = 32 / sizeof(T);  // depth of one instruction
  static constexpr int kSteps = 4;              // of a slice
  static constexpr int kSlice = kSteps * kStep;
  static constexpr int kPixelPitch = kSlice + kWide;
  static constexpr int kKernelPitch = kColumns + 8;
  static constexpr int kKernelTile = kRows * kPixelPitch;  // where it begins in a stage
  static constexpr int kStage = kKernelTile + kSlice * kKernelPitch;
  static constexpr int kBytes = kStages * kStage * static_cast<int>(sizeof(T));
};

struct Product {
  int64_t rows;
  int depth, columns;
  int64_t tiles;  // of kRows rows
  int slices;     // of the depth
};

// The slice and the rows that a block copies or multiplies.
struct Turn {
  int64_t row;  // the first one of its tile
  int slice = 0;

  __device__ __forceinline__ void advance(const Product& p) {
    if (++slice < p.slices) return;
    slice = 0;
    row += int64_t{kRows} * gridDim.x;
  }
  // Instructions along the depth.
  template <typename T>
  __device__ __forceinline__ int steps(const Product& p) const {
    const int left = p.depth - slice * Sizes<T>::kSlice;
    return min(Sizes<T>::kSteps, (left + Sizes<T>::kStep - 1) / Sizes<T>::kStep);
  }
};

// The words that tensor cores take of two channels, which lie side by side in shared memory.
__device__ __forceinline__ void read_kernel(RightFragment (&right)[2], const float* tile, int pitch,
                                            int t) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const auto two = *reinterpret_cast<const float2*>(tile + (t + 4 * half) * pitch);
    right[0].words[half] = to_tf32(two.x);
    right[1].words[half] = to_tf32(two.y);
  }
}
template <typename Half>
__device__ __forceinline__ void read_kernel(RightFragment (&right)[2], const Half* tile, int pitch,
                                            int t) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const Half* const row = tile + (2 * t + 8 * half) * pitch;
    const auto upper = *reinterpret_cast<const uint32_t*>(row);
    const auto lower = *reinterpret_cast<const uint32_t*>(row + pitch);
    right[0].words[half] = __byte_perm(upper, lower, 0x5410);
    right[1].words[half] = __byte_perm(upper, lower, 0x7632);
  }
}

__device__ __forceinline__ uint32_t word_of_pixels(const float* word) { return to_tf32(*word); }
template <typename Half>
__device__ __forceinline__ uint32_t word_of_pixels(const Half* word) {
  return *reinterpret_cast<const uint32_t*>(word);
}

template <typename T, Activation kActivation>
__global__ void __launch_bounds__(kBlockThreads, kBlocksPerMultiprocessor)
    pointwise_kernel(const T* __restrict__ x, const T* __restrict__ kernel,
                     const T* __restrict__ bias, T* __restrict__ y, Product p, float alpha) {
  using S = Sizes<T>;
  constexpr int kPack = Numbers<T>::kPerWord;
  begin_kernel();
  extern __shared__ __align__(16) char shared[];
  T* const stages = reinterpret_cast<T*>(shared);
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const int warp_row = warp / kWarpsAcross * kWarpRows;
  const int warp_column = warp % kWarpsAcross * kWarpColumns;
  const int block_column = static_cast<int>(blockIdx.y) * kColumns;

  Turn copied{blockIdx.x * int64_t{kRows}};
  const auto start = [&](int, int stage) {
    const int first = copied.slice * S::kSlice;
    const int depth = copied.steps<T>(p) * S::kStep;
    T* const pixels = stages + stage * S::kStage;
    constexpr int kAcross = S::kSlice / S::kWide;
    for (int i = threadIdx.x; i < kRows * kAcross; i += kBlockThreads) {
      const int r = i / kAcross, k = i % kAcross * S::kWide;
      if (k >= depth) continue;
      const bool valid = copied.row + r < p.rows && first + k < p.depth;
      copy_async_16(pixels + r * S::kPixelPitch + k,
                    x + (valid ? (copied.row + r) * p.depth + first + k : 0), valid);
    }
    T* const weights = pixels + S::kKernelTile;
    constexpr int kKernelAcross = kColumns / S::kWide;
    for (int i = threadIdx.x; i < depth * kKernelAcross; i += kBlockThreads) {
      const int k = i / kKernelAcross, column = i % kKernelAcross * S::kWide;
      const bool valid = first + k < p.depth && block_column + column < p.columns;
      copy_async_16(weights + k * S::kKernelPitch + column,
                    kernel + (valid ? (first + k) * p.columns + block_column + column : 0), valid);
    }
    copied.advance(p);
  };

  float sums[kTilesDown][kTilesAcross][4] = {};
  const auto finish = [&](int64_t row) {
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
      const int column = block_column + warp_column + pair * 16 + 4 * t;
      const bool has_column = column < p.columns;
      Vector<T, 4> offsets;
      if (has_column && bias != nullptr) {
        offsets = *reinterpret_cast<const Vector<T, 4>*>(bias + column);
      } else {
#pragma unroll
        for (int e = 0; e < 4; ++e) offsets.values[e] = T(-0.0f);  // which changes no number
      }
#pragma unroll
      for (int i = 0; i < 2 * kTilesDown; ++i) {
        const int64_t at = row + warp_row + i * 8 + g;
        Vector<T, 4> values;
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          float& sum = sums[i / 2][2 * pair + e % 2][i % 2 * 2 + e / 2];
          values.values[e] = store<T>(activate(kActivation, sum + load(offsets.values[e]), alpha));
          sum = 0.0f;
        }
        if (has_column && at < p.rows) {
          *reinterpret_cast<Vector<T, 4>*>(y + at * p.columns + column) = values;
        }
      }
    }
  };

  const int64_t tiles = (p.tiles - blockIdx.x + gridDim.x - 1) / gridDim.x;
  Turn used{blockIdx.x * int64_t{kRows}};
  run_stages<kStages>(static_cast<int>(tiles) * p.slices, start, [&](int stage) {
    const T* const pixels =
        stages + stage * S::kStage + (warp_row + g) * S::kPixelPitch + kPack * t;
    const T* const weights = stages + stage * S::kStage + S::kKernelTile + warp_column + 2 * g;
    const int steps = used.steps<T>(p);
    for (int s = 0; s < steps; ++s) {
      LeftFragment left[kTilesDown];
#pragma unroll
      for (int i = 0; i < kTilesDown; ++i) {
#pragma unroll
        for (int w = 0; w < 4; ++w) {
          left[i].words[w] = word_of_pixels(pixels + (i * 16 + w % 2 * 8) * S::kPixelPitch +
                                            s * S::kStep + w / 2 * 4 * kPack);
        }
      }
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) {
        RightFragment right[2];
        read_kernel(right, weights + s * S::kStep * S::kKernelPitch + pair * 16, S::kKernelPitch,
                    t);
#pragma unroll
        for (int i = 0; i < kTilesDown; ++i) {
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            Numbers<T>::multiply(sums[i][2 * pair + j], left[i], right[j]);
          }
        }
      }
    }
    if (used.slice == p.slices - 1) finish(used.row);
    used.advance(p);
  });
}

// Calls function with the constant of an activation that the kernel is compiled for. Returns
// whether it is. cuDNN and cuBLASLt have relu themselves.
template <typename Function>
bool dispatch_compiled(Activation activation, Function&& function) {
  const auto call = [&]<Activation kActivation>() {
    function(std::integral_constant<Activation, kActivation>());
    return true;
  };
  switch (activation) {
    case Activation::ClippedRelu:
      return call.template operator()<Activation::ClippedRelu>();
    case Activation::Silu:
      return call.template operator()<Activation::Silu>();
    case Activation::Gelu:
      return call.template operator()<Activation::Gelu>();
    default:
      return false;
  }
}

bool is_pointwise(const Conv2DGeometry& g) {
  return g.kernel_height == 1 && g.kernel_width == 1 && g.stride_height == 1 &&
         g.stride_width == 1 && g.input_height == g.output_height &&
         g.input_width == g.output_width && g.groups == 1;
}

template <typename T>
std::unique_ptr<Kernel> plan(const Conv2DCall& call) {
  using S = Sizes<T>;
  const Conv2DGeometry& g = call.geometry;
  const Context& context = Context::current();
  const int64_t rows = g.batch * g.output_height * g.output_width;
  if (g.input_channels % S::kWide != 0 || g.output_channels % S::kWide != 0 ||
      g.input_channels * g.output_channels > std::numeric_limits<int>::max() ||
      S::kBytes > static_cast<int64_t>(context.properties().sharedMemPerBlockOptin)) {
    return nullptr;
  }
  Product p{};
  p.rows = rows;
  p.depth = static_cast<int>(g.input_channels);
  p.columns = static_cast<int>(g.output_channels);
  p.tiles = ceil_div(rows, kRows);
  p.slices = static_cast<int>(ceil_div(g.input_channels, S::kSlice));
  const int64_t across = ceil_div(g.output_channels, kColumns);
  const int64_t at_once = int64_t{kBlocksPerMultiprocessor} * context.multiprocessors();
  const int64_t down = std::clamp<int64_t>(at_once / across, 1, p.tiles);
  if (across > kMaxBlocks || ceil_div(p.tiles, down) * p.slices > std::numeric_limits<int>::max()) {
    return nullptr;
  }
  const dim3 grid(static_cast<unsigned>(down), static_cast<unsigned>(across));
  std::unique_ptr<Kernel> kernel;
  dispatch_compiled(call.activation.kind, [&]<Activation kActivation>(
                                              std::integral_constant<Activation, kActivation>) {
    constexpr auto function = pointwise_kernel<T, kActivation>;
    allow_most_shared_memory(function);
    const auto alpha = static_cast<float>(call.activation.alpha);
    kernel = make_early_kernel("conv2d_pointwise", [=](const KernelArgs& args) {
      function<<<grid, kBlockThreads, S::kBytes, static_cast<cudaStream_t>(args.stream)>>>(
          input<T>(args, 0), input<T>(args, 1), call.has_bias ? input<T>(args, 2) : nullptr,
          output<T>(args, 0), p, alpha);
      check_launch("conv2d_pointwise");
    });
  });
  return kernel;
}

}  // namespace

std::unique_ptr<Kernel> plan_conv2d_pointwise(const Conv2DCall& call) {
  const bool is_forward = call.op == &op_conv2d && !call.has_addend;
  if (!is_forward || !is_pointwise(call.geometry)) return nullptr;
  if (Context::current().compute_capability() < 80) return nullptr;
  switch (call.dtype) {
    case DType::Float32:
      return call.allow_tf32 ? plan<float>(call) : nullptr;
    case DType::Float16:
      return plan<__half>(call);
    case DType::BFloat16:
      return plan<__nv_bfloat16>(call);
    default:
      return nullptr;
  }
}

}  // namespace kerascnn::cuda
