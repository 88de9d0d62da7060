// Forward on Hopper's tensor cores for many images, where throughput counts. A block stays on its
// multiprocessor: it reads the weights once, and its teams of warps go from image to image, each
// with the next one on its way to shared memory while it multiplies. Images too large for that are
// taken in bands of rows, small ones several at a time.
#include "core/backend/cuda/convolution/conv2d_max_pool2d.h"
#include "core/backend/cuda/convolution/conv_cells.cuh"
#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/runtime/shared_memory.h"

namespace kerascnn::cuda {
namespace {

constexpr int kTeam = kWarpgroup * 32;  // threads
constexpr int kMaxTeams = 3;            // more would not leave enough registers for each
constexpr int kMaxImages = 8;           // of an item
constexpr int kSlots = 2;               // of a team: one is read, one filled

// A team is a warpgroup, its piece of work an item: a band of rows of an image, or some whole
// images.
struct Items {
  CellSource source;  // of one image of an item
  int cell_rows, cell_columns;
  int bands_per_image;
  int images;  // of an item
  int count;
  int teams;  // of a block

  __host__ __device__ int cells_per_image() const { return cell_rows * cell_columns; }
  __host__ __device__ int64_t slot_floats() const { return images * source.floats(); }
};

// Where an item begins.
struct ItemPlace {
  int image, cell_row;

  __device__ __forceinline__ ItemPlace(const Items& items, int item) {
    const int group = item / items.bands_per_image;
    image = group * items.images;
    cell_row = (item - group * items.bands_per_image) * items.cell_rows;
  }
};

// Waits for the team's other threads. Barrier 0 is that of __syncthreads().
__device__ __forceinline__ void wait_for_team(int team) {
  asm volatile("bar.sync %0, %1;" ::"r"(team + 1), "n"(kTeam) : "memory");
}

// Starts to copy one image's band to shared memory as it is, zeros around it. kFloats: that move
// together.
template <int kFloats>
__device__ __forceinline__ void start_image(const float* __restrict__ x, float* to,
                                            const ConvPool& c, const CellSource& t, int n,
                                            int first_cell_row) {
  const int chunks = t.channels / kFloats;
  const float* image =
      x + static_cast<int64_t>(n) * c.input_height * c.input_width * c.input_channels;
  start_rows(
      static_cast<int>(threadIdx.x) % kTeam, kTeam, t.rows, t.columns * chunks, [&](int item) {
        const int column = item / chunks;
        const int channel = (item - column * chunks) * kFloats;
        const int from = column - c.pad_left;
        const bool inside = static_cast<unsigned>(from) < static_cast<unsigned>(c.input_width) &&
                            channel < c.input_channels;
        return RawColumn<kFloats>{inside ? image + from * c.input_channels + channel : image,
                                  to + column * t.pixel + channel,
                                  c.input_width * c.input_channels,
                                  t.columns * t.pixel,
                                  2 * first_cell_row - c.pad_top,
                                  c.input_height,
                                  inside ? min(c.input_channels - channel, kFloats) : 0};
      });
}

template <int kFloats>
__device__ __forceinline__ void start_item(const float* __restrict__ x, float* slot,
                                           const ConvPool& c, const Items& items, int item) {
  if (item < items.count) {
    const ItemPlace place(items, item);
    const int images = min(items.images, c.batch - place.image);
    const int image_floats = static_cast<int>(items.source.floats());
    for (int i = 0; i < images; ++i) {
      start_image<kFloats>(x, slot + i * image_floats, c, items.source, place.image + i,
                           place.cell_row);
    }
  }
  commit_copies();
}

// The cell that a thread works on.
struct ItemCell {
  int image, row, column;  // in the item
  bool valid;

  __device__ __forceinline__ ItemCell(const ConvPool& c, const Items& items, const ItemPlace& place,
                                      int number) {
    image = number / items.cells_per_image();
    const int rest = number - image * items.cells_per_image();
    row = rest / items.cell_columns;
    column = rest - row * items.cell_columns;
    valid = image < items.images && place.image + image < c.batch &&
            place.cell_row + row < c.pooled_height;
    if (!valid) image = row = column = 0;
  }
};

template <int kKernel, int kTiles, bool kSimple, bool kIndex, int kFloats>
__global__ void __launch_bounds__(kMaxTeams* kTeam)
    conv_pool_many_kernel(const float* __restrict__ x, const float* __restrict__ kernel,
                          const float* __restrict__ bias, float* __restrict__ y,
                          uint8_t* __restrict__ index, const __grid_constant__ ConvPool c,
                          const __grid_constant__ Items items, uint32_t settled) {
  if constexpr (kWarpgroups) {
    extern __shared__ __align__(32) float shared[];
    constexpr int kTaps = kKernel * kKernel;
    constexpr int kColumns = kTiles * 8;
    float* biases = shared;
    float* weights = biases + kColumns;
    const int team = static_cast<int>(threadIdx.x) / kTeam;
    const int slot_floats = static_cast<int>(items.slot_floats());
    float* slots = weights + kTaps * items.source.channels * kColumns + team * kSlots * slot_floats;
    const int first_column = blockIdx.y * kColumns;
    const int step = items.teams * static_cast<int>(gridDim.x);
    int item = team * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x);
    begin_kernel(
        settled,
        [&] {
          load_weights<kTiles, SourceForm::Raw>(kernel, weights, c, items.source, kTaps,
                                                first_column);
          if (threadIdx.x < kColumns) {
            const int channel = first_column + static_cast<int>(threadIdx.x);
            biases[threadIdx.x] =
                bias != nullptr && channel < c.output_channels ? bias[channel] : 0.0f;
          }
        },
        [&] { start_item<kFloats>(x, slots, c, items, item); });
    publish_to_async_proxy();
    __syncthreads();

    const int lane = threadIdx.x % 32, member = lane % 4;
    const int cells = items.images * items.cells_per_image();
    for (int slot = 0; item < items.count; item += step, slot ^= 1) {
      // Everybody's copies have come, and everybody has left the other slot.
      wait_for_copies<0>();
      wait_for_team(team);
      start_item<kFloats>(x, slots + (slot ^ 1) * slot_floats, c, items, item + step);
      const ItemPlace place(items, item);
      for (int first = 0; first < cells; first += kCellsOfWarpgroup) {
        const ItemCell cell(
            c, items, place,
            first + static_cast<int>(threadIdx.x) % kTeam / 32 * kCellsPerWarp + lane / 4);
        const float* source =
            slots + slot * slot_floats + cell.image * static_cast<int>(items.source.floats()) +
            (2 * cell.row * items.source.columns + 2 * cell.column) * items.source.pixel +
            2 * member;
        float sums[2][kTiles][4] = {};
        multiply_cells<kKernel, kTiles, SourceForm::Raw>(source, weights, items.source, 0, 8, sums);
        if (cell.valid) {
          const int64_t pixel = (static_cast<int64_t>(place.image + cell.image) * c.pooled_height +
                                 place.cell_row + cell.row) *
                                    c.pooled_width +
                                cell.column;
#pragma unroll
          for (int j = 0; j < kTiles; ++j) {
            const int channel = first_column + j * 8 + 2 * member;
            if (channel >= c.output_channels) break;
            const float start[2] = {biases[j * 8 + 2 * member], biases[j * 8 + 2 * member + 1]};
            const float of_pixels[2][4] = {
                {sums[0][j][0], sums[0][j][1], sums[0][j][2], sums[0][j][3]},
                {sums[1][j][0], sums[1][j][1], sums[1][j][2], sums[1][j][3]}};
            store_maxima<kSimple, kIndex>(c, of_pixels, start, pixel * c.output_channels + channel,
                                          y, index);
          }
        }
        __syncwarp();
      }
    }
  } else {
    __trap();  // planned for Hopper only
  }
}

struct Plan {
  Items items;
  int64_t bytes;
};

// Whole images where two teams' slots fit beside the weights, else bands of them. False where not
// even bands of one row of cells fit, or the batch is so small that blocks would do little but load
// weights.
bool find_items(const ConvPool& c, int kernel, int columns, Plan* plan) {
  const int64_t most = Context::current().properties().sharedMemPerBlockOptin;
  const int multiprocessors = Context::current().multiprocessors();
  for (int cell_rows = c.pooled_height; cell_rows >= 1; cell_rows /= 2) {
    Items items{CellSource(cell_rows, c.pooled_width, kernel, c.input_channels),
                cell_rows,
                c.pooled_width,
                static_cast<int>(ceil_div(c.pooled_height, cell_rows)),
                1,
                0,
                0};
    const int cells = items.cells_per_image();
    if (items.bands_per_image == 1) {
      items.images = std::clamp(kCellsOfWarpgroup / cells, 1, kMaxImages);
    }
    const int64_t weights = int64_t{kernel} * kernel * items.source.channels * columns + columns;
    const int64_t of_team = kSlots * items.slot_floats();
    const int64_t fitting = (most / int64_t{sizeof(float)} - weights) / of_team;
    items.teams = static_cast<int>(std::min<int64_t>(fitting, kMaxTeams));
    if (items.teams < 2) continue;
    const int64_t count = ceil_div(c.batch, items.images) * items.bands_per_image;
    if (count < int64_t{3} * multiprocessors) return false;
    items.count = static_cast<int>(count);
    *plan = {items, (weights + items.teams * of_team) * int64_t{sizeof(float)}};
    return true;
  }
  return false;
}

template <int kKernel, int kTiles, bool kSimple, int kFloats>
std::unique_ptr<Kernel> plan_kernel(const ConvPoolCall& call) {
  const ConvPool c(call.geometry);
  Plan plan{{CellSource(1, 1, 1, 8), 0, 0, 0, 0, 0, 0}, 0};
  if (!find_items(c, kKernel, kTiles * 8, &plan)) return nullptr;
  const auto kernel = conv_pool_many_kernel<kKernel, kTiles, kSimple, true, kFloats>;
  // For calls that don't ask for the positions of maxima, as in prediction.
  const auto values_only = conv_pool_many_kernel<kKernel, kTiles, kSimple, !kSimple, kFloats>;
  allow_most_shared_memory(kernel);
  allow_most_shared_memory(values_only);
  const Items items = plan.items;
  const auto bytes = static_cast<size_t>(plan.bytes);
  const unsigned threads = static_cast<unsigned>(items.teams * kTeam);
  int resident = 0;
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, static_cast<int>(threads),
                                                      bytes),
        "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  const int64_t blocks_across = ceil_div(c.output_channels, kTiles * 8);
  const int64_t resident_blocks = int64_t{resident} * Context::current().multiprocessors();
  const int64_t blocks = std::min(ceil_div(items.count, items.teams),
                                  std::max<int64_t>(resident_blocks / blocks_across, 1));
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(blocks_across));
  const bool has_bias = call.has_bias;
  return make_early_kernel("kerascnn conv2d_max_pool2d_many", [=](const KernelArgs& args) {
    const uint32_t settled =
        has_bias ? settled_loads(args, {{1, 2}, {0}}) : settled_loads(args, {{1}, {0}});
    const auto launched = args.outputs[1] == nullptr ? values_only : kernel;
    launched<<<grid, threads, bytes, static_cast<cudaStream_t>(args.stream)>>>(
        input<float>(args, 0), input<float>(args, 1), has_bias ? input<float>(args, 2) : nullptr,
        output<float>(args, 0), output<uint8_t>(args, 1), c, items, settled);
    check_launch("conv2d_max_pool2d_many");
  });
}

template <int kKernel, int kTiles>
std::unique_ptr<Kernel> plan_tiles(const ConvPoolCall& call) {
  const bool is_simple_activation = is_simple(call.geometry.activation.kind);
  if (call.geometry.conv.input_channels % 4 == 0) {
    return is_simple_activation ? plan_kernel<kKernel, kTiles, true, 4>(call)
                                : plan_kernel<kKernel, kTiles, false, 4>(call);
  }
  return is_simple_activation ? plan_kernel<kKernel, kTiles, true, 2>(call)
                              : plan_kernel<kKernel, kTiles, false, 2>(call);
}

// A block takes all columns, up to 64, or fewer where that leaves room for more blocks.
template <int kKernel>
std::unique_ptr<Kernel> plan_many(const ConvPoolCall& call) {
  const int64_t channels = call.geometry.conv.output_channels;
  if (channels <= 8) return plan_tiles<kKernel, 1>(call);
  if (channels <= 16) return plan_tiles<kKernel, 2>(call);
  if (channels > 32) {
    if (auto kernel = plan_tiles<kKernel, 8>(call)) return kernel;
  }
  return plan_tiles<kKernel, 4>(call);
}

// Tensor cores want some channels to sum over, copies of two floats and loads of the kernel of
// four, stores of two channels.
bool fits(const ConvPoolCall& call) {
  const Conv2DGeometry& g = call.geometry.conv;
  return is_plain_conv_pool(call) && call.allow_tf32 && g.input_channels > 4 &&
         g.input_channels % 2 == 0 && g.output_channels % 4 == 0 &&
         Context::current().compute_capability() == 90;
}

}  // namespace

std::unique_ptr<Kernel> plan_conv_pool_many(const ConvPoolCall& call) {
  if (!fits(call)) return nullptr;
  return call.geometry.conv.kernel_height == 3 ? plan_many<3>(call) : plan_many<5>(call);
}

}  // namespace kerascnn::cuda
