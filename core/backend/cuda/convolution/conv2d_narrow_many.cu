// Plans of the kernels in narrow_many.cuh.
#include <bit>
#include <limits>
#include <utility>

#include "core/backend/cuda/convolution/narrow_many.cuh"
#include "core/backend/cuda/products/partial_sums.h"
#include "core/backend/cuda/runtime/shared_memory.h"

namespace kerascnn::cuda {
namespace {

using namespace narrow;

constexpr int64_t kMostTaps = 192;
constexpr int64_t kMostWeights = 48 << 10;  // bytes of a block
constexpr int kMostTilesDown = 3;

// What a block may have so that as many as registers allow share a multiprocessor, if a band is
// that small. The driver keeps 1 KiB of each block for itself.
int64_t usual_shared() {
  const cudaDeviceProp& properties = Context::current().properties();
  const auto of_multiprocessor = static_cast<int64_t>(properties.sharedMemPerMultiprocessor);
  return std::min<int64_t>(of_multiprocessor / kBlocksPerMultiprocessor - 1024,
                           static_cast<int64_t>(properties.sharedMemPerBlockOptin));
}

int64_t most_shared() {
  return static_cast<int64_t>(Context::current().properties().sharedMemPerBlockOptin);
}

// How the loop over a band goes, for the choice of its rows. Clocks are estimates.
struct Loop {
  int groups;          // of pixels, in a turn
  int64_t clocks;      // of a turn
  int64_t item;        // bytes of a number
  int64_t most_bytes;  // of a band
};

// The rows of a band with which a block is done first.
int rows_of_band(const Conv& c, int chunks, const Loop& loop) {
  constexpr int64_t kWaits = 2000;        // clocks, at both ends of a band
  constexpr int64_t kNumbersOfClock = 8;  // that a block copies to shared memory
  const int64_t groups_across = ceil_div(c.output_width, kPixels);
  int best = 1;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int rows = 1; rows <= c.output_height; ++rows) {
    const Band band(c, rows, true);
    if (rows > 1 && band.bytes(loop.item) > loop.most_bytes) break;
    const int64_t bands = ceil_div(c.batch * band.bands_of_image, most_blocks(c, chunks));
    const int64_t turns = ceil_div(rows * groups_across, loop.groups);
    const int64_t clocks = bands * (turns * loop.clocks + band.bytes(1) / kNumbersOfClock + kWaits);
    if (clocks < least) {
      least = clocks;
      best = rows;
    }
  }
  return best;
}

ManyLayout make_layout(const Conv& c, const Band& band, int chunks, int steps) {
  ManyLayout layout{};
  layout.chunks = chunks;
  layout.channel_blocks = c.output_channels / (kChannels * chunks);
  layout.groups_across = static_cast<int>(ceil_div(c.output_width, kPixels));
  layout.bands = c.batch * band.bands_of_image;
  // All blocks have the same number of bands, or one less.
  const int64_t turns = ceil_div(layout.bands, most_blocks(c, chunks));
  layout.blocks = static_cast<int>(ceil_div(layout.bands, turns));
  layout.steps = steps;
  return layout;
}

template <typename T>
std::unique_ptr<Kernel> plan_forward(const Conv2DCall& call) {
  using Memory = ForwardMemory<T>;
  const Conv c(call.geometry);
  const int64_t pairs_of_row = ceil_div(c.kernel_width * c.input_channels, 2);
  const auto steps = static_cast<int>(ceil_div(c.kernel_height * pairs_of_row, kPairs<T>));
  const auto most_chunks = static_cast<uint64_t>(kMostWeights / Memory::bytes(steps, 1));
  const int chunks = chunks_of_block(c, static_cast<int>(std::bit_floor(most_chunks)));
  const int64_t before = Memory::bytes(steps, chunks);
  const int64_t clocks = int64_t{200} * steps;
  const Loop loop{kWarps / chunks * kGroups, clocks, sizeof(T), usual_shared() - before};
  const Band band(c, rows_of_band(c, chunks, loop), true);
  const int64_t bytes = before + band.bytes(sizeof(T));
  if (bytes > most_shared()) return nullptr;
  const ManyLayout layout = make_layout(c, band, chunks, steps);
  const auto plan = [&](auto* function) {
    allow_most_shared_memory(function);
    const dim3 grid(layout.blocks, layout.channel_blocks);
    const Ends<false> ends{call.activation.kind, static_cast<float>(call.activation.alpha)};
    return make_early_kernel(
        "kerascnn conv2d_narrow_many", [=, has_bias = call.has_bias](const KernelArgs& args) {
          function<<<grid, kThreads, static_cast<size_t>(bytes),
                     static_cast<cudaStream_t>(args.stream)>>>(
              input<T>(args, 0), input<T>(args, 1), has_bias ? input<T>(args, 2) : nullptr,
              output<T>(args, 0), c, band, layout, ends);
          check_launch("conv2d_narrow_many");
        });
  };
  return c.stride_width * c.input_channels % 2 == 0 ? plan(&conv_narrow_many_kernel<T, true>)
                                                    : plan(&conv_narrow_many_kernel<T, false>);
}

template <typename T, int kTilesDown>
std::unique_ptr<Kernel> plan_wgrad_with(const Conv2DCall& call, int chunks) {
  const Conv c(call.geometry);
  const Loop loop{1, int64_t{100} * kTilesDown, sizeof(T), usual_shared()};
  const Band band(c, rows_of_band(c, chunks, loop));
  const int64_t bytes = band.bytes(sizeof(T));
  if (bytes > most_shared()) return nullptr;
  const ManyLayout layout = make_layout(c, band, chunks, 0);
  allow_most_shared_memory(&wgrad_narrow_many_kernel<T, kTilesDown>);
  const dim3 grid(layout.blocks, layout.channel_blocks);
  const int64_t size = num_elements(call.geometry.kernel_shape());
  return make_early_kernel(
      "kerascnn conv2d_wgrad_narrow_many",
      [=, dtype = call.dtype](const KernelArgs& args) {
        const auto stream = static_cast<cudaStream_t>(args.stream);
        wgrad_narrow_many_kernel<T, kTilesDown>
            <<<grid, kThreads, static_cast<size_t>(bytes), stream>>>(
                input<T>(args, 0), input<T>(args, 1), static_cast<float*>(args.workspace), c, band,
                layout);
        check_launch("conv2d_wgrad_narrow_many");
        launch_sum_partials(dtype, args.workspace, args.outputs[0], layout.blocks, size, stream);
      },
      layout.blocks * size * static_cast<int64_t>(sizeof(float)));
}

// Two groups of channels, if there are so many, leave four warps for the taps.
template <typename T>
std::unique_ptr<Kernel> plan_wgrad(const Conv2DCall& call) {
  const int chunks = chunks_of_block(Conv(call.geometry), 2);
  const int64_t tiles = ceil_div(ceil_div(call.geometry.num_taps(), 16), kWarps / chunks);
  switch (tiles) {
    case 1:
      return plan_wgrad_with<T, 1>(call, chunks);
    case 2:
      return plan_wgrad_with<T, 2>(call, chunks);
    default:
      static_assert(kMostTaps <= int64_t{kMostTilesDown} * 16 * kWarps / 2);
      return plan_wgrad_with<T, kMostTilesDown>(call, chunks);
  }
}

bool fits(const Conv2DCall& call) {
  const Conv2DGeometry& g = call.geometry;
  const Activation activation = call.activation.kind;
  return suits_tiles(call) && g.num_taps() > 32 && g.num_taps() <= kMostTaps &&
         g.dilation_width == 1 && smallest_band_bytes(call) <= most_shared() &&
         (activation == Activation::Linear || activation == Activation::Relu);
}

}  // namespace

std::unique_ptr<Kernel> plan_conv2d_narrow_many(const Conv2DCall& call) {
  if (call.op == &op_conv2d_dgrad || !fits(call)) return nullptr;
  const auto plan = [&]<typename T>(Type<T>) {
    return call.op == &op_conv2d ? plan_forward<T>(call) : plan_wgrad<T>(call);
  };
  if (call.dtype == DType::Float32) return plan(Type<float>());
  if (call.dtype == DType::Float16) return plan(Type<__half>());
  return plan(Type<__nv_bfloat16>());
}

}  // namespace kerascnn::cuda
