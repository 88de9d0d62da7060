// Plans convolutions of up to 64 channels, and their gradients, by warpgroups, for Hopper alone.
#include <limits>
#include <optional>

#include "core/backend/cuda/convolution/conv2d.h"
#include "core/backend/cuda/convolution/conv_warpgroups.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/runtime/context.h"
#include "core/backend/cuda/runtime/device_buffer.h"
#include "core/backend/cuda/runtime/initcheck.h"
#include "core/backend/cuda/runtime/shared_memory.h"
#include "core/backend/cuda/runtime/tensor_map.h"

namespace kerascnn::cuda {
namespace {

// Where windows over x begin and how many pixels they lead to.
struct Windows {
  int64_t batch, input_height, input_width, channels;  // of x
  int64_t height, width, result_channels;
  int64_t pad_top, pad_left, pad_right;
};

Windows windows_of(const Conv2DCall& call) {
  const Conv2DGeometry& g = call.geometry;
  if (call.op == &op_conv2d) {
    return {g.batch,        g.input_height,    g.input_width, g.input_channels, g.output_height,
            g.output_width, g.output_channels, g.pad_top,     g.pad_left,       g.pad_right};
  }
  return {g.batch,
          g.output_height,
          g.output_width,
          g.output_channels,
          g.input_height,
          g.input_width,
          g.input_channels,
          g.kernel_height - 1 - g.pad_top,
          g.kernel_width - 1 - g.pad_left,
          g.kernel_width - 1 - g.pad_right};
}

bool fits(const Conv2DCall& call) {
  const Conv2DGeometry& g = call.geometry;
  const Windows w = windows_of(call);
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  const bool is_known =
      call.activation.kind == Activation::Linear || call.activation.kind == Activation::Relu;
  return call.op != &op_conv2d_wgrad && is_known && !call.has_addend &&
         (call.dtype == DType::Float16 || call.dtype == DType::BFloat16) && g.groups == 1 &&
         g.kernel_height * g.kernel_width <= kConvMostTaps && g.stride_height == 1 &&
         g.stride_width == 1 && g.dilation_height == 1 && g.dilation_width == 1 && w.pad_top >= 0 &&
         w.pad_left >= 0 && w.pad_right >= 0 &&
         // A row of slots has a column for each pixel of the result's, see cut_tiles.
         std::min(w.pad_left, w.pad_right) < g.kernel_width && w.channels <= kConvChannels &&
         w.channels % 8 == 0 && w.result_channels % 8 == 0 &&
         ceil_div(w.result_channels, kConvChannels) <= kMaxBlocks &&
         w.height * w.width * w.result_channels <= kMost && w.batch * w.height * w.width <= kMost &&
         w.batch * w.input_height * w.input_width <= kMost &&
         Context::current().compute_capability() == 90;
}

// Fills in what follows from the number of rows and columns. Returns false where that does not fit.
bool cut_tiles(ConvLayout& l, const Windows& w, int most_shared) {
  const auto ceil = [](int a, int b) { return (a + b - 1) / b; };
  const bool is_whole = l.columns == l.width;
  const int shared_padding = static_cast<int>(std::min(w.pad_left, w.pad_right));
  l.pitch = l.columns + l.kernel_width - 1 - (is_whole ? shared_padding : 0);
  l.input_rows = l.rows + l.kernel_height - 1;
  if ((l.rows - 1) * l.pitch + l.columns > kConvColumns || l.pitch > 256 || l.input_rows > 256) {
    return false;
  }
  const int last_tap = (l.kernel_height - 1) * l.pitch + l.kernel_width - 1;
  l.slots = ceil(std::max(last_tap + kConvColumns, l.copied_slots() + shared_padding), 8) * 8;
  l.tiles_down = ceil(l.height, l.rows);
  l.tiles_across = ceil(l.width, l.columns);
  if (int64_t{l.batch} * l.tiles_down * l.tiles_across > std::numeric_limits<int>::max() / 2) {
    return false;
  }
  l.tiles = l.batch * l.tiles_down * l.tiles_across;
  // With fewer stages than warpgroups one of them could wait for a copy after the next.
  for (l.stages = 6; l.stages >= kConvGroups; --l.stages) {
    if (ConvMemory(l).bytes <= most_shared) return true;
  }
  return false;
}

// Results of the products that are pixels of the result, at least.
constexpr double kLeastUse = 0.7;

// How many blocks share the tiles of 64 filters.
int64_t blocks_at_once(int64_t result_channels) {
  const int64_t filter_blocks = ceil_div(result_channels, kConvChannels);
  return std::max<int64_t>(1, Context::current().multiprocessors() / filter_blocks);
}

// All tiles take equally long. So it takes the cut by which a block has the fewest, and of such
// ones that of the fewest in all.
std::optional<ConvLayout> plan_conv(const Conv2DCall& call) {
  const Windows w = windows_of(call);
  const Context& context = Context::current();
  const auto narrow = [](int64_t n) { return static_cast<int>(n); };
  ConvLayout l{};
  l.batch = narrow(w.batch);
  l.height = narrow(w.height);
  l.width = narrow(w.width);
  l.channels = narrow(w.channels);
  l.result_channels = narrow(w.result_channels);
  l.kernel_height = narrow(call.geometry.kernel_height);
  l.kernel_width = narrow(call.geometry.kernel_width);
  l.pad_top = narrow(w.pad_top);
  l.pad_left = narrow(w.pad_left);
  const int most_shared = static_cast<int>(context.properties().sharedMemPerBlockOptin);
  const int64_t at_once = blocks_at_once(w.result_channels);
  const auto comes_before = [&](const ConvLayout& a, const ConvLayout& b) {
    const int64_t of_a = ceil_div(a.tiles, at_once), of_b = ceil_div(b.tiles, at_once);
    return of_a < of_b || (of_a == of_b && a.tiles < b.tiles);
  };
  std::optional<ConvLayout> best;
  for (int across = 1; across <= std::min(l.width, 64); ++across) {
    l.columns = (l.width + across - 1) / across;
    for (l.rows = 1; l.rows <= l.height && cut_tiles(l, w, most_shared); ++l.rows) {
      if (!best || comes_before(l, *best)) best = l;
    }
  }
  if (!best) return std::nullopt;
  const double columns = 1.0 * kConvColumns * best->tiles;
  const double pixels = 1.0 * l.batch * l.height * l.width;
  return pixels < kLeastUse * columns ? std::nullopt : best;
}

// Statistics go to outputs 1 and 2, where `has_moments` says that there are such.
template <typename Half>
std::unique_ptr<Kernel> plan(const Conv2DCall& call, bool has_moments) {
  const std::optional<ConvLayout> layout = plan_conv(call);
  if (!layout || !can_describe_boxes()) return nullptr;
  const ConvLayout l = *layout;
  const bool is_gradient = call.op == &op_conv2d_dgrad;
  const auto kernel =
      is_gradient ? conv_warpgroups_kernel<Half, true> : conv_warpgroups_kernel<Half, false>;
  allow_most_shared_memory(kernel);
  const Conv2DGeometry& g = call.geometry;
  const auto narrow = [](int64_t n) { return static_cast<int>(n); };
  const std::array<int, 4> kernel_extents = {narrow(g.output_channels), narrow(g.input_channels),
                                             narrow(g.kernel_width), narrow(g.kernel_height)};
  const int input_height = narrow(windows_of(call).input_height);
  const int input_width = narrow(windows_of(call).input_width);
  const int64_t result_bytes = int64_t{l.batch} * l.height * l.width * l.result_channels *
                               static_cast<int64_t>(itemsize(call.dtype));
  const int64_t filter_blocks = ceil_div(l.result_channels, kConvChannels);
  const dim3 grid(
      static_cast<unsigned>(std::min<int64_t>(l.tiles, blocks_at_once(l.result_channels))),
      static_cast<unsigned>(filter_blocks));
  std::shared_ptr<DeviceBuffer> tickets;
  int64_t workspace = 0;
  if (has_moments) {
    tickets = std::make_shared<DeviceBuffer>(static_cast<size_t>(filter_blocks) * sizeof(unsigned));
    workspace = int64_t{grid.x} * l.result_channels * static_cast<int64_t>(sizeof(Moments<float>));
  }
  const bool is_relu = call.activation.kind == Activation::Relu;
  return make_early_kernel(
      "kerascnn conv2d_warpgroups",
      [=, dtype = call.dtype, has_bias = call.has_bias](const KernelArgs& args) {
        ConvEpilogue epilogue{};
        epilogue.bias = has_bias ? args.inputs[2] : nullptr;
        epilogue.is_relu = is_relu;
        if (has_moments) {
          epilogue.partial = static_cast<Moments<float>*>(args.workspace);
          epilogue.tickets = tickets->as<unsigned>();
          epilogue.mean = output<float>(args, 1);
          epilogue.variance = output<float>(args, 2);
        }
        const CUtensorMap x = describe_boxes("conv2d", dtype, args.inputs[0],
                                             {l.channels, input_width, input_height, l.batch},
                                             {kConvChannels, l.pitch, l.input_rows, 1});
        const CUtensorMap weights =
            describe_boxes("conv2d", dtype, args.inputs[1], kernel_extents,
                           {kConvChannels, kConvChannels, l.kernel_width, l.kernel_height});
        const CUtensorMap y = describe_boxes("conv2d", dtype, args.outputs[0],
                                             {l.result_channels, l.width, l.height, l.batch},
                                             {kConvStoredRow / 2, l.columns, l.rows, 1});
        const auto stream = static_cast<cudaStream_t>(args.stream);
        mark_written({{args.outputs[0], result_bytes}}, stream);
        kernel<<<grid, kConvThreads, ConvMemory(l).bytes, stream>>>(x, weights, y, epilogue, l);
        check_launch("conv2d_warpgroups");
      },
      workspace, has_moments);
}

}  // namespace

std::unique_ptr<Kernel> plan_conv2d_warpgroups(const Conv2DCall& call) {
  if (!fits(call)) return nullptr;
  return call.dtype == DType::Float16 ? plan<__half>(call, false)
                                      : plan<__nv_bfloat16>(call, false);
}

std::unique_ptr<Kernel> plan_conv2d_warpgroups_moments(const Conv2DCall& call) {
  if (call.op != &op_conv2d || !fits(call)) return nullptr;
  return call.dtype == DType::Float16 ? plan<__half>(call, true) : plan<__nv_bfloat16>(call, true);
}

}  // namespace kerascnn::cuda
