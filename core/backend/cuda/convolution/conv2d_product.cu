// Convolutions that are one matrix product: by a 1x1 kernel without strides as the tensors lie, and
// of few input channels after their patches were gathered. The library's convolutions would first
// transpose the kernel, and pad few channels to the width of tensor cores.
//
// A patch is what one output reads: a row of (taps) numbers, with zeros for the padding.
#include <algorithm>
#include <optional>

#include "core/backend/cuda/convolution/band.cuh"
#include "core/backend/cuda/convolution/conv2d.h"
#include "core/backend/cuda/convolution/convolution.cuh"
#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/device/types.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/movement/copy.cuh"
#include "core/backend/cuda/products/bias_activation.h"
#include "core/backend/cuda/products/cublaslt_gemm.h"
#include "core/backend/cuda/products/partial_sums.h"
#include "core/backend/cuda/runtime/context.h"

namespace kerascnn::cuda {
namespace {

constexpr int64_t kMostChannels = 8;  // beyond, the library's kernels don't pad
constexpr int64_t kMostTaps = 1024;
constexpr int64_t kMostShared = 48 << 10;  // what every GPU gives a block without being asked
constexpr int64_t kEnoughPairs = 4096;     // for a block
constexpr int64_t kMostPatchBytes = int64_t{256} << 20;  // at once; more come one after another
constexpr int64_t kAlignment = 16;                       // of rows, for the product's kernels
constexpr int64_t kLeastSum = 1024;  // products in a partial sum of the kernel's gradient

// Patches (rows, row_length) of some images; numbers behind a patch's taps are zeros. kLanes
// neighbouring threads share a patch and take neighbouring pairs of its numbers, which they keep to
// for all patches of the band.
template <typename T, int kLanes>
__global__ void gather_patches(const T* __restrict__ x, T* __restrict__ patches, Conv c, Band band,
                               int row_length) {
  begin_kernel();
  extern __shared__ __align__(16) char shared[];
  T* const tile = reinterpret_cast<T*>(shared);
  const int64_t image = blockIdx.x / band.bands_of_image;
  const int first_row = static_cast<int>(blockIdx.x - image * band.bands_of_image) * band.rows;
  load_band(x, tile, c, band, image, first_row, [](T number) { return number; });
  __syncthreads();

  const int rows = min(band.rows, c.output_height - first_row);
  const int step = c.stride_width * c.input_channels;  // from one patch to the next
  T* const target = patches + (image * c.output_height + first_row) *
                                  static_cast<int64_t>(c.output_width) * row_length;
  for (int k = threadIdx.x % kLanes * 2; k < row_length; k += kLanes * 2) {
    const bool has[2] = {k < c.taps, k + 1 < c.taps};
    const T* const source[2] = {tile + (has[0] ? place_of_tap(c, band, k) : 0),
                                tile + (has[1] ? place_of_tap(c, band, k + 1) : 0)};
    for (int row = 0; row < rows; ++row) {
      const int begin = row * c.stride_height * band.pitch;
      T* const of_row = target + static_cast<int64_t>(row) * c.output_width * row_length + k;
#pragma unroll 4
      for (int i = threadIdx.x / kLanes; i < c.output_width; i += kThreads / kLanes) {
        Vector<T, 2> pair;
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          pair.values[n] = has[n] ? source[n][begin + i * step] : T(0.0f);
        }
        *reinterpret_cast<Vector<T, 2>*>(of_row + static_cast<int64_t>(i) * row_length) = pair;
      }
    }
  }
}

// Patches that lie side by side and consist of words: rows of pixels, of `row_words` words, have a
// run of `run_words` of each patch beside the other. A thread takes several words of the rows, in
// order, and copies each into its patch.
constexpr int kWordsOfThread = 4;
template <typename Word>
__global__ void copy_patches(const Word* __restrict__ x, Word* __restrict__ patches, Conv c,
                             uint32_t row_words, uint32_t run_words, uint32_t num_words) {
  begin_kernel();
  const auto used_words = static_cast<uint32_t>(c.output_width) * run_words;  // of a row
  const auto used_rows = static_cast<uint32_t>(c.output_height * c.kernel_height);
  Word copied[kWordsOfThread];
  uint32_t target[kWordsOfThread];
  const uint32_t first = blockIdx.x * kThreads * kWordsOfThread + threadIdx.x;
#pragma unroll
  for (int u = 0; u < kWordsOfThread; ++u) {
    const uint32_t position = first + u * kThreads;
    if (position >= num_words) continue;
    const uint32_t row = position / used_words, word = position - row * used_words;
    const uint32_t image = row / used_rows, y = row - image * used_rows;
    const uint32_t patch_row = y / c.kernel_height, tap_row = y - patch_row * c.kernel_height;
    const uint32_t patch_column = word / run_words;
    const int64_t from = int64_t{image} * c.input_height + y;
    copied[u] = x[from * row_words + word];
    const uint32_t patch = (image * c.output_height + patch_row) * c.output_width + patch_column;
    target[u] = (patch * c.kernel_height + tap_row) * run_words + word - patch_column * run_words;
  }
#pragma unroll
  for (int u = 0; u < kWordsOfThread; ++u) {
    if (first + u * kThreads < num_words) patches[target[u]] = copied[u];
  }
}

int64_t align(int64_t bytes) { return ceil_div(bytes, 256) * 256; }

// The largest divisor of `number` that is at most `most`.
int64_t largest_divisor(int64_t number, int64_t most) {
  int64_t divisor = std::clamp<int64_t>(most, 1, number);
  while (number % divisor != 0) --divisor;
  return divisor;
}

// Are the patches parts of the image that don't overlap, with nothing between them and no padding?
bool lie_side_by_side(const Conv2DGeometry& g) {
  return g.stride_height == g.kernel_height && g.stride_width == g.kernel_width &&
         g.dilation_height == 1 && g.dilation_width == 1 && g.pad_top == 0 && g.pad_left == 0 &&
         g.output_height * g.kernel_height <= g.input_height &&
         g.output_width * g.kernel_width <= g.input_width;
}

// How the convolution is computed: in `pieces` of the batch, each with the matrix a (rows,
// columns), which is the input itself or gathered patches.
struct Plan {
  bool gathers = false;
  bool copies_words = false;  // gathers whole words: patches lie side by side
  int64_t item = 0;           // bytes
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
  if (call.op == &op_conv2d_dgrad || g.input_channels > kMostChannels) return std::nullopt;
  plan.gathers = true;
  plan.row_length = ceil_div(plan.columns, pack) * pack;
  const int64_t image_bytes = plan.rows / g.batch * plan.row_length * plan.item;
  plan.pieces = g.batch / largest_divisor(g.batch, kMostPatchBytes / image_bytes);
  plan.rows /= plan.pieces;
  plan.copies_words = lie_side_by_side(g) && plan.row_length == plan.columns &&
                      plan.patch_bytes() <= kMostPatchBytes;
  // The smallest band, in 64 bits as a row may be long.
  const int64_t band_columns =
      (g.output_width - 1) * g.stride_width + (g.kernel_width - 1) * g.dilation_width + 1;
  const int64_t band_rows = (g.kernel_height - 1) * g.dilation_height + 1;
  const int64_t band_bytes = band_rows * band_columns * g.input_channels * plan.item;
  const bool fits_band = g.num_taps() <= kMostTaps && band_bytes <= kMostShared;
  if (!plan.copies_words && !fits_band) return std::nullopt;
  return plan;
}

// The matrix a of patches that lie side by side.
void copy_words(const Conv& c, const Plan& plan, const void* x, void* patches,
                cudaStream_t stream) {
  const int64_t row_bytes = int64_t{c.input_width} * c.input_channels * plan.item;
  const int64_t run_bytes = int64_t{c.kernel_width} * c.input_channels * plan.item;
  int64_t bytes = std::min(widest_word(row_bytes), widest_word(run_bytes));
  while (!is_aligned(x, bytes)) bytes /= 2;
  const auto num_words = static_cast<uint32_t>(plan.rows * plan.columns * plan.item / bytes);
  const auto blocks = static_cast<unsigned>(ceil_div(num_words, kThreads * kWordsOfThread));
  dispatch_word(bytes, [&]<typename Word>(Type<Word>) {
    copy_patches<<<blocks, kThreads, 0, stream>>>(
        static_cast<const Word*>(x), static_cast<Word*>(patches), c,
        static_cast<uint32_t>(row_bytes / bytes), static_cast<uint32_t>(run_bytes / bytes),
        num_words);
  });
  check_launch("copy_patches");
}

// The matrix a of a piece.
const void* prepare(const Conv2DCall& call, const Plan& plan, int64_t piece, const void* x,
                    void* patches, cudaStream_t stream) {
  if (!plan.gathers) return x;
  const Conv c(call.geometry);
  const int64_t step = num_elements(call.geometry.input_shape()) / plan.pieces;
  if (plan.copies_words) {
    copy_words(c, plan, static_cast<const char*>(x) + piece * step * plan.item, patches, stream);
    return patches;
  }
  const int64_t pairs = c.output_width * plan.row_length / 2;
  int rows = static_cast<int>(std::clamp<int64_t>(kEnoughPairs / pairs, 1, c.output_height));
  while (Band(c, rows).bytes(plan.item) > kMostShared) --rows;
  const Band band(c, rows);
  const int64_t images = c.batch / plan.pieces;
  dispatch_floating("conv2d", call.dtype, [&]<typename T>(Type<T>) {
    const auto launch = [&]<int kLanes>(std::integral_constant<int, kLanes>) {
      gather_patches<T, kLanes><<<static_cast<unsigned>(images * band.bands_of_image), kThreads,
                                  static_cast<size_t>(band.bytes(plan.item)), stream>>>(
          static_cast<const T*>(x) + piece * step, static_cast<T*>(patches), c, band,
          static_cast<int>(plan.row_length));
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

// Copies `count` words and writes zeros behind them.
template <typename Word>
__global__ void lengthen(const Word* __restrict__ from, Word* __restrict__ to, int64_t count,
                         int64_t longer_count) {
  begin_kernel();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < longer_count) to[i] = i < count ? from[i] : Word{};
}

// The numbers behind a patch's taps are multiplied by zeros, which this puts behind the kernel.
void lengthen_kernel(const void* kernel, void* longer, int64_t bytes, int64_t zero_bytes,
                     cudaStream_t stream) {
  int64_t word = std::min(widest_word(bytes), widest_word(zero_bytes));
  while (!is_aligned(kernel, word)) word /= 2;
  const int64_t count = bytes / word, longer_count = count + zero_bytes / word;
  dispatch_word(word, [&]<typename Word>(Type<Word>) {
    lengthen<<<static_cast<unsigned>(ceil_div(longer_count, kThreads)), kThreads, 0, stream>>>(
        static_cast<const Word*>(kernel), static_cast<Word*>(longer), count, longer_count);
  });
  check_launch("lengthen_kernel");
}

}  // namespace

std::unique_ptr<Kernel> plan_conv2d_product(const Conv2DCall& call) {
  const std::optional<Plan> found = plan_product(call);
  if (!found) return nullptr;
  const Plan plan = *found;
  const int64_t channels = call.geometry.output_channels;
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
          lengthen_kernel(kernel, args.workspace, kernel_bytes, zero_bytes, stream);
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
