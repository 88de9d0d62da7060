// Convolutions that are one matrix product: by a 1x1 kernel without strides as the tensors lie, and
// of few input channels after their patches were gathered. The library's convolutions would first
// transpose the kernel, and pad few channels to the width of tensor cores.
//
// A patch is what one output reads: a row of (taps) numbers, with zeros for the padding. A tap is
// one (row, column, input channel) of the kernel, numbered as they lie in memory.
#include <numeric>

#include "core/backend/cuda/convolution/conv2d.h"
#include "core/backend/cuda/convolution/convolution.cuh"
#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/device/types.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/products/bias_activation.h"
#include "core/backend/cuda/products/cublaslt_gemm.h"
#include "core/backend/cuda/products/partial_sums.h"
#include "core/backend/cuda/runtime/context.h"

namespace kerascnn::cuda {
namespace {

constexpr int64_t kMostChannels = 8;  // beyond, the library's kernels don't pad
// Up to here it has slow kernels for strides without a window, and every other input is read
// anyway.
constexpr int64_t kMostStridedChannels = 64;
constexpr int64_t kMostTaps = 1024;  // a block's table of them is in shared memory
constexpr int64_t kMostPatchBytes = int64_t{256} << 20;  // at once; more come one after another
constexpr int64_t kAlignment = 16;                       // of rows, for the product's kernels
constexpr int64_t kLeastSum = 1024;  // products in a partial sum of the kernel's gradient
constexpr int kNowhere = 1 << 14;    // a row of no image

// Where a tap reads, from the first number of a patch.
struct alignas(8) Tap {
  int offset;
  short row, column;
};

// Patches (rows, row_length) of some images; numbers behind a patch's taps are zeros. kLanes
// neighbouring threads share a patch, and take neighbouring numbers of it: whole rows of a patch
// lie side by side in the image.
template <typename T, int kLanes>
__global__ void gather_patches(const T* __restrict__ x, T* __restrict__ patches, Conv c,
                               uint32_t rows, int row_length) {
  begin_kernel();
  constexpr int kPack = 2;
  extern __shared__ Tap taps[];
  for (int i = threadIdx.x; i < row_length; i += blockDim.x) {
    const int channel = i % c.input_channels;
    const int column = i / c.input_channels % c.kernel_width * c.dilation_width;
    const int row = i / c.input_channels / c.kernel_width * c.dilation_height;
    // Behind the taps, no row of an image is that far down.
    taps[i] = {(row * c.input_width + column) * c.input_channels + channel,
               static_cast<short>(i < c.taps ? row : kNowhere), static_cast<short>(column)};
  }
  __syncthreads();
  const int lane = threadIdx.x % kLanes;
  const int64_t image_size = int64_t{c.input_height} * c.input_width * c.input_channels;
  const uint32_t output_height = c.output_height, output_width = c.output_width;
  const uint32_t step = gridDim.x * (blockDim.x / kLanes);
  for (uint32_t patch = (blockIdx.x * blockDim.x + threadIdx.x) / kLanes; patch < rows;
       patch += step) {
    const uint32_t line = patch / output_width;  // of all images
    const uint32_t image = line / output_height;
    const int top = static_cast<int>(line - image * output_height) * c.stride_height - c.pad_top;
    const int left = static_cast<int>(patch - line * output_width) * c.stride_width - c.pad_left;
    const T* source = x + image * image_size;
    const int begin = (top * c.input_width + left) * c.input_channels;
    T* target = patches + patch * static_cast<int64_t>(row_length);
#pragma unroll 4
    for (int k = lane * kPack; k < row_length; k += kLanes * kPack) {
      Vector<T, kPack> pair;
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        const Tap tap = taps[k + i];
        const bool inside =
            static_cast<uint32_t>(top + tap.row) < static_cast<uint32_t>(c.input_height) &&
            static_cast<uint32_t>(left + tap.column) < static_cast<uint32_t>(c.input_width);
        pair.values[i] = inside ? source[begin + tap.offset] : T(0.0f);
      }
      *reinterpret_cast<Vector<T, kPack>*>(target + k) = pair;
    }
  }
}

int64_t align(int64_t bytes) { return ceil_div(bytes, 256) * 256; }

// The largest divisor of `number` that is at most `most`.
int64_t largest_divisor(int64_t number, int64_t most) {
  int64_t divisor = std::clamp<int64_t>(most, 1, number);
  while (number % divisor != 0) --divisor;
  return divisor;
}

// How the convolution is computed: in `pieces` of the batch, each with the matrix a (rows,
// columns), which is the input itself or gathered patches.
struct Plan {
  bool gathers = false;
  int64_t item = 0;  // bytes
  int64_t pieces = 1;
  int64_t rows = 0;        // of a piece: its outputs
  int64_t columns = 0;     // taps
  int64_t row_length = 0;  // columns and what aligns the next row

  int64_t patch_bytes() const { return gathers ? align(rows * row_length * item) : 0; }
};

std::optional<Plan> plan_product(const Conv2DCall& call) {
  const Conv2DGeometry& g = call.geometry;
  Plan plan;
  plan.item = static_cast<int64_t>(itemsize(call.dtype));
  plan.columns = plan.row_length = g.num_taps();
  plan.rows = g.batch * g.output_height * g.output_width;
  // Kernels of products whose rows begin anywhere are slow.
  const int64_t pack = kAlignment / plan.item;
  const bool is_aligned = g.output_channels % pack == 0;
  if (call.dtype == DType::Float64 || g.groups != 1 || !is_aligned) return std::nullopt;
  const bool is_pointwise = g.kernel_height == 1 && g.kernel_width == 1;
  const bool lies_ready = is_pointwise && g.stride_height == 1 && g.stride_width == 1 &&
                          g.input_height == g.output_height && g.input_width == g.output_width;
  if (lies_ready && g.input_channels % pack == 0) return plan;
  const int64_t image_size = num_elements(g.input_shape()) / g.batch;
  const int64_t longest =  // of what is added up to a row or column of an image
      std::max({g.input_height, g.input_width, g.pad_top, g.pad_left,
                g.kernel_height * g.dilation_height, g.kernel_width * g.dilation_width});
  const int64_t most_channels = is_pointwise ? kMostStridedChannels : kMostChannels;
  if (call.op == &op_conv2d_dgrad || g.input_channels > most_channels || g.num_taps() > kMostTaps ||
      image_size >= int64_t{1} << 30 || longest >= kNowhere / 4) {
    return std::nullopt;
  }
  plan.gathers = true;
  plan.row_length = ceil_div(plan.columns, pack) * pack;
  const int64_t image_bytes = plan.rows / g.batch * plan.row_length * plan.item;
  plan.pieces = g.batch / largest_divisor(g.batch, kMostPatchBytes / image_bytes);
  plan.rows /= plan.pieces;
  return plan;
}

// The matrix a of a piece.
const void* prepare(const Conv2DCall& call, const Plan& plan, int64_t piece, const void* x,
                    void* patches, cudaStream_t stream) {
  if (!plan.gathers) return x;
  const Conv c(call.geometry);
  const int64_t step = num_elements(call.geometry.input_shape()) / plan.pieces;
  dispatch_floating("conv2d", call.dtype, [&]<typename T>(Type<T>) {
    const auto launch = [&]<int kLanes>(std::integral_constant<int, kLanes>) {
      constexpr int64_t kPatchesOfBlock = 4 * kThreads / kLanes;
      const size_t table = static_cast<size_t>(plan.row_length) * sizeof(Tap);
      gather_patches<T, kLanes><<<grid_for(plan.rows, kPatchesOfBlock), kThreads, table, stream>>>(
          static_cast<const T*>(x) + piece * step, static_cast<T*>(patches), c,
          static_cast<uint32_t>(plan.rows), static_cast<int>(plan.row_length));
      check_launch("gather_patches");
    };
    if (plan.row_length <= 32) {
      launch(std::integral_constant<int, 16>());
    } else {
      launch(std::integral_constant<int, 32>());
    }
  });
  return patches;
}

char* advance(void* data, int64_t bytes) { return static_cast<char*>(data) + bytes; }

}  // namespace

std::unique_ptr<Kernel> plan_conv2d_product(const Conv2DCall& call) {
  const std::optional<Plan> found = plan_product(call);
  if (!found) return nullptr;
  const Plan plan = *found;
  const int64_t channels = call.geometry.output_channels;
  // The numbers behind a patch's taps are multiplied by zeros.
  const GemmShape shape{.m = plan.rows, .n = channels, .k = plan.row_length};
  const int64_t kernel_bytes = plan.columns * channels * plan.item;
  const int64_t zero_bytes = plan.row_length * channels * plan.item - kernel_bytes;
  const int64_t longer_kernel_bytes = zero_bytes > 0 ? align(kernel_bytes + zero_bytes) : 0;
  const bool is_linear = call.activation.kind == Activation::Linear;
  const bool in_epilogue = call.has_bias && is_linear;
  auto gemm = std::make_shared<CublasLtGemm>("conv2d", Context::current(), call.dtype, shape,
                                             in_epilogue ? GemmEpilogue::Bias : GemmEpilogue::None,
                                             call.allow_tf32);
  return make_kernel(
      gemm->description(),
      [=](const KernelArgs& args) {
        const auto stream = static_cast<cudaStream_t>(args.stream);
        const int64_t step = plan.rows * channels * plan.item;
        const void* bias = call.has_bias ? args.inputs[2] : nullptr;
        const void* kernel = args.inputs[1];
        if (zero_bytes > 0) {
          check(cudaMemcpyAsync(args.workspace, kernel, static_cast<size_t>(kernel_bytes),
                                cudaMemcpyDeviceToDevice, stream),
                "cudaMemcpyAsync");
          zero_memory(advance(args.workspace, kernel_bytes), zero_bytes, args.stream);
          kernel = args.workspace;
        }
        char* patches = advance(args.workspace, longer_kernel_bytes);
        for (int64_t piece = 0; piece < plan.pieces; ++piece) {
          const void* a = prepare(call, plan, piece, args.inputs[0], patches, stream);
          gemm->run(a, kernel, in_epilogue ? bias : nullptr, advance(args.outputs[0], piece * step),
                    advance(patches, plan.patch_bytes()), stream);
        }
        if (in_epilogue || (!call.has_bias && is_linear)) return;
        launch_bias_activation(call.dtype, args.outputs[0], bias, plan.pieces * plan.rows, channels,
                               call.activation, stream);
      },
      longer_kernel_bytes + plan.patch_bytes() + gemm->workspace_bytes());
}

std::unique_ptr<Kernel> plan_conv2d_dgrad_product(const Conv2DCall& call) {
  const std::optional<Plan> plan = plan_product(call);
  if (!plan) return nullptr;
  const GemmShape shape{
      .m = plan->rows, .n = plan->columns, .k = call.geometry.output_channels, .transpose_b = true};
  auto gemm = std::make_shared<CublasLtGemm>("conv2d_dgrad", Context::current(), call.dtype, shape,
                                             GemmEpilogue::None, call.allow_tf32);
  return make_kernel(
      gemm->description(),
      [=](const KernelArgs& args) {
        gemm->run(args.inputs[0], args.inputs[1], nullptr, args.outputs[0], args.workspace,
                  static_cast<cudaStream_t>(args.stream));
      },
      gemm->workspace_bytes());
}

// The sum over all outputs is long and its results are few, so it is split: each part is a product
// in a batch of them, with a float32 result.
std::unique_ptr<Kernel> plan_conv2d_wgrad_product(const Conv2DCall& call) {
  const std::optional<Plan> found = plan_product(call);
  if (!found) return nullptr;
  const Plan plan = *found;
  const int64_t channels = call.geometry.output_channels;
  // Blocks of a product make 64 x 128 results, or more where there are enough for every
  // multiprocessor.
  const int64_t tiles = ceil_div(plan.columns, 64) * ceil_div(channels, 128);
  const int64_t wanted = Context::current().multiprocessors() / tiles;
  const int64_t splits =
      largest_divisor(plan.rows, std::min(wanted, std::max<int64_t>(1, plan.rows / kLeastSum)));
  const int64_t sums = plan.pieces * splits;
  // Rows of zeros are behind a gradient of gathered patches.
  const int64_t size = plan.columns * channels;
  const int64_t zeros = (plan.row_length - plan.columns) * channels;
  const bool adds_up = sums > 1 || zeros > 0;
  const GemmShape shape{.batch = splits,
                        .m = plan.row_length,
                        .n = channels,
                        .k = plan.rows / splits,
                        .transpose_a = true,
                        .wide_result = adds_up};
  auto gemm = std::make_shared<CublasLtGemm>("conv2d_wgrad", Context::current(), call.dtype, shape,
                                             GemmEpilogue::None, call.allow_tf32);
  const int64_t stack_bytes = splits * (size + zeros) * static_cast<int64_t>(sizeof(float));
  const int64_t sum_bytes = adds_up ? align(plan.pieces * stack_bytes) : 0;
  return make_kernel(
      gemm->description(),
      [=](const KernelArgs& args) {
        const auto stream = static_cast<cudaStream_t>(args.stream);
        char* patches = advance(args.workspace, sum_bytes);
        char* gradient = static_cast<char*>(const_cast<void*>(args.inputs[1]));
        for (int64_t piece = 0; piece < plan.pieces; ++piece) {
          const void* a = prepare(call, plan, piece, args.inputs[0], patches, stream);
          void* sum = adds_up ? advance(args.workspace, piece * stack_bytes) : args.outputs[0];
          gemm->run(a, gradient + piece * plan.rows * channels * plan.item, nullptr, sum,
                    advance(patches, plan.patch_bytes()), stream);
        }
        if (adds_up) {
          launch_sum_partials(call.dtype, args.workspace, args.outputs[0], sums, size, stream,
                              nullptr, zeros);
        }
      },
      sum_bytes + plan.patch_bytes() + gemm->workspace_bytes());
}

}  // namespace kerascnn::cuda
