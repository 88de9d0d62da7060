// Convolutions of few input channels and more taps than registers hold weights of, such as a first
// layer of 7 x 7, and the gradients of their kernels.
//
// Forward, a block keeps a band of the input and the weights of its channels in shared memory. Taps
// come in pairs that are neighbours in memory; where a row of the kernel has an odd number, the
// last pair of the row is half empty. A warp has four groups of pixels at once, so that what it
// reads of the weights serves 64 pixels.
//
// A kernel's gradient has a share of the taps in each warp's registers, and every warp passes all
// pixels of the band.
#pragma once

#include "core/backend/cuda/convolution/narrow.cuh"
#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/tiles/memory_ahead.cuh"

namespace kerascnn::cuda::narrow {

constexpr int kGroups = 4;  // of pixels, that a warp has at once
// A gradient's warp has registers for what it multiplies next. What it needs so many groups later
// is on its way to the second cache: that takes longer than a group's products.
constexpr int kGroupsAhead = 8;

// Pairs of taps that a product sums over, and those of them that a lane has words of.
template <typename T>
constexpr int kPairs = kDepth<T> / 2;
template <typename T>
constexpr int kPairsOfLane = kPairs<T> / 4;

// How the work is shared out.
struct ManyLayout {
  int chunks;          // of kChannels output channels, that a block has; a warp has one of them
  int groups_across;   // of kPixels pixels, in an output row
  int64_t bands;       // of the batch
  int blocks;          // which take bands in turn
  int channel_blocks;  // grid.y
  int steps;           // products that a sum over all taps takes; forward
};

// Two taps as the forward kernel reads them. The numbers that are no taps of a kernel are masked:
// if they took part with weights of zero, infinities would make NaN.
struct PairOfTaps {
  int first;       // as a kernel's weights are numbered
  int row, place;  // of the kernel, and of the first tap in it
  int taps;        // 0 to 2

  __device__ __forceinline__ PairOfTaps(const Conv& c, int pair) {
    const int taps_of_row = c.kernel_width * c.input_channels;
    const int pairs_of_row = (taps_of_row + 1) / 2;
    row = pair / pairs_of_row;
    place = 2 * (pair - row * pairs_of_row);
    first = row * taps_of_row + place;
    taps = row < c.kernel_height ? min(2, taps_of_row - place) : 0;
  }
};

// The same for the loop.
struct PairInBand {
  int place;  // from the beginning of a patch, in bytes
  int taps;

  __device__ __forceinline__ PairInBand(const Conv& c, const Band& band, const PairOfTaps& pair,
                                        int item)
      : place(pair.taps > 0 ? (pair.row * c.dilation_height * band.pitch + pair.place) * item : 0),
        taps(pair.taps) {}
  PairInBand() = default;
};

// Two neighbours in shared memory, as words of a fragment: one of a 16-bit dtype, or two of TF32.
template <bool kAligned>
__device__ __forceinline__ void read_pair(uint32_t address, uint32_t taps, uint32_t (&words)[1]) {
  if constexpr (kAligned) {
    load_shared(words[0], address);
  } else {
    uint16_t both[2];
    load_shared(both[0], address);
    load_shared(both[1], address + 2);
    words[0] = word_of(both);
  }
  words[0] &= taps == 2 ? 0xffffffffu : taps == 1 ? 0xffffu : 0u;
}
template <bool kAligned>
__device__ __forceinline__ void read_pair(uint32_t address, uint32_t taps, uint32_t (&words)[2]) {
  if constexpr (kAligned) {
    load_shared(words, address);
  } else {
    load_shared(words[0], address);
    load_shared(words[1], address + 4);
  }
  if (taps < 1) words[0] = 0;
  if (taps < 2) words[1] = 0;
}

// What a block has in shared memory, in this order: the weights as fragments (steps, chunks, half
// of the tiles, lane), each with the two words of two tiles; the pairs of taps; the band.
template <typename T>
struct ForwardMemory {
  static constexpr int kHalves = kTiles / 2;

  __host__ __device__ static int weights(int steps, int chunks) {
    return steps * chunks * kHalves * 32;  // of 16 bytes
  }
  __host__ __device__ static int pairs(int steps) { return steps * kPairs<T>; }
  static int64_t bytes(int steps, int chunks) {
    return weights(steps, chunks) * int64_t{16} +
           pairs(steps) * static_cast<int64_t>(sizeof(PairInBand));
  }
};

template <typename T>
__device__ __forceinline__ void load_weights(const T* __restrict__ kernel, uint4* fragments,
                                             const Conv& c, int steps, int chunks,
                                             int first_channel) {
  using Memory = ForwardMemory<T>;
  constexpr int kWide = 16 / sizeof(T);
  for (int item = threadIdx.x; item < Memory::weights(steps, chunks); item += kThreads) {
    const int lane = item % 32, g = lane / 4, t = lane % 4;
    const int tiles = item / 32 % Memory::kHalves;
    const int chunk = item / 32 / Memory::kHalves % chunks;
    const int step = item / 32 / Memory::kHalves / chunks;
    uint32_t words[2][2];  // of two tiles
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
      const T* const column =
          kernel + first_channel + chunk * kChannels + channel_of<kWide>(2 * tiles + tile, g);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        Bits<T> bits[kPack<T>];
#pragma unroll
        for (int e = 0; e < kPack<T>; ++e) {
          // A 16-bit word is a pair. Of TF32 a pair is the lane's two words.
          constexpr bool kIsWord = kPack<T> == 2;
          const PairOfTaps pair(c, step * kPairs<T> + t + (kIsWord ? 4 * half : 0));
          const int number = kIsWord ? e : half;
          const T zero(0.0f);
          bits[e] = bits_of(number < pair.taps ? column[(pair.first + number) * c.output_channels]
                                               : zero);
        }
        words[tile][half] = word_of(bits);
      }
    }
    fragments[item] = {words[0][0], words[0][1], words[1][0], words[1][1]};
  }
}

// kAligned: patches begin at even places.
template <typename T, bool kAligned>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    conv_narrow_many_kernel(const T* __restrict__ x, const T* __restrict__ kernel,
                            const T* __restrict__ bias, T* __restrict__ y, Conv c, Band band,
                            ManyLayout layout, Ends<false> ends) {
  begin_kernel();
  extern __shared__ __align__(16) char shared[];
  using Memory = ForwardMemory<T>;
  auto* const fragments = reinterpret_cast<uint4*>(shared);
  auto* const pairs =
      reinterpret_cast<PairInBand*>(fragments + Memory::weights(layout.steps, layout.chunks));
  auto* const tile = reinterpret_cast<Bits<T>*>(pairs + Memory::pairs(layout.steps));
  constexpr int kWide = 16 / sizeof(T);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int chunk = warp % layout.chunks;
  const int block_channel = static_cast<int>(blockIdx.y) * layout.chunks * kChannels;
  const int first_channel = block_channel + chunk * kChannels;

  load_weights(kernel, fragments, c, layout.steps, layout.chunks, block_channel);
  for (int pair = threadIdx.x; pair < Memory::pairs(layout.steps); pair += kThreads) {
    pairs[pair] = PairInBand(c, band, PairOfTaps(c, pair), sizeof(T));
  }
  float start[kTiles][2];
  load_start<kWide>(start, bias, first_channel, t);

  constexpr int kItem = sizeof(T);
  const int patch_step = c.stride_width * c.input_channels * kItem;  // from one pixel's to the next
  const int row_step = c.stride_height * band.pitch * kItem;
  const uint32_t tile_address = shared_address(tile);
  const int taken = kWarps / layout.chunks * kGroups;  // groups, by all warps of a chunk
  for (int64_t b = blockIdx.x; b < layout.bands; b += layout.blocks) {
    const int64_t image = b / band.bands_of_image;
    const int first_row = static_cast<int>(b - image * band.bands_of_image) * band.rows;
    const int groups = min(band.rows, c.output_height - first_row) * layout.groups_across;
    __syncthreads();  // everybody has left the band before
    load_band(x, tile, c, band, image, first_row, [](T number) { return bits_of(number); });
    __syncthreads();
    for (int first = warp / layout.chunks * kGroups; first < groups; first += taken) {
      uint32_t patches[kGroups][2];  // addresses of those of a lane's pixels
#pragma unroll
      for (int m = 0; m < kGroups; ++m) {
        const int group = min(first + m, groups - 1), row = group / layout.groups_across;
        const int column = (group - row * layout.groups_across) * kPixels + g;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          patches[m][half] = tile_address + row * row_step +
                             min(column + 8 * half, c.output_width - 1) * patch_step;
        }
      }
      float sums[kGroups][kTiles][4];
#pragma unroll
      for (int m = 0; m < kGroups; ++m) {
#pragma unroll
        for (int j = 0; j < kTiles; ++j) {
#pragma unroll
          for (int i = 0; i < 4; ++i) sums[m][j][i] = start[j][i % 2];
        }
      }
      uint32_t weights = shared_address(fragments + chunk * Memory::kHalves * 32 + lane);
      uint32_t pairs_of_lane = shared_address(pairs + t);
      for (int s = 0; s < layout.steps; ++s) {
        RightFragment right[kTiles];
#pragma unroll
        for (int h = 0; h < Memory::kHalves; ++h) {
          uint32_t words[4];
          load_shared(words, weights + h * 32 * sizeof(words));
          right[2 * h] = {{words[0], words[1]}};
          right[2 * h + 1] = {{words[2], words[3]}};
        }
        weights += layout.chunks * Memory::kHalves * 32 * sizeof(uint4);
        uint32_t own[kPairsOfLane<T>][2];  // place and taps of a PairInBand
#pragma unroll
        for (int p = 0; p < kPairsOfLane<T>; ++p) {
          load_shared(own[p], pairs_of_lane + 4 * p * sizeof(PairInBand));
        }
        pairs_of_lane += kPairs<T> * sizeof(PairInBand);
#pragma unroll
        for (int m = 0; m < kGroups; ++m) {
          LeftFragment a;
#pragma unroll
          for (int half = 0; half < 2; ++half) {
#pragma unroll
            for (int p = 0; p < kPairsOfLane<T>; ++p) {
              uint32_t words[2 / kPack<T>];
              read_pair<kAligned>(patches[m][half] + own[p][0], own[p][1], words);
              a.words[2 * p + half] = words[0];
              if constexpr (kPack<T> == 1) a.words[2 + half] = words[1];
            }
          }
#pragma unroll
          for (int j = 0; j < kTiles; ++j) Numbers<T>::multiply(sums[m][j], a, right[j]);
        }
      }
#pragma unroll
      for (int m = 0; m < kGroups; ++m) {
        const int group = first + m, row = group / layout.groups_across;
        if (group >= groups) break;
        const int column = (group - row * layout.groups_across) * kPixels + g;
        const int64_t line = image * c.output_height + first_row + row;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          if (column + 8 * half >= c.output_width) continue;
          T* const target =
              y + (line * c.output_width + column + 8 * half) * c.output_channels + first_channel;
#pragma unroll
          for (int j = 0; j < kTiles; j += kWide / 2) {
            store_wide<kWide>(target + channel_of<kWide>(j, 2 * t), sums[m], j, half, ends);
          }
        }
      }
    }
  }
}

// Asks for what Gradients::read() reads of a whole group, as far as the tensor goes.
template <typename T>
__device__ __forceinline__ void ask_for_group(const T* from, const T* end, const Conv& c, int t) {
#pragma unroll
  for (int i = 0; i < kPixels / 4; ++i) {
    // `from` is that of the lane's first pixel. Which lane asks for which pixel does not matter.
    const T* const pixel = from + (i * 4 + t - place_in_depth<T>(t, 0)) * c.output_channels;
    if (pixel < end) ask_ahead(pixel);
  }
}

// Each block has the sum over its bands: gkernel has one copy (taps, output channels) for each. A
// warp has kTilesDown times 16 taps.
template <typename T, int kTilesDown>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    wgrad_narrow_many_kernel(const T* __restrict__ x, const T* __restrict__ gy,
                             float* __restrict__ gkernel, Conv c, Band band, ManyLayout layout) {
  begin_kernel();
  extern __shared__ __align__(16) char shared[];
  auto* const tile = reinterpret_cast<Bits<T>*>(shared);
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const int chunk_channel =
      (static_cast<int>(blockIdx.y) * layout.chunks + warp % layout.chunks) * kChannels;
  const int first_channel = chunk_channel + g * kTiles;
  const int first_tap = warp / layout.chunks * kTilesDown * 16 + g;

  constexpr int kItem = sizeof(T);
  const int step = c.stride_width * c.input_channels * kItem;  // from one pixel's patch to the next
  const int lane_pixel = place_in_depth<T>(t, 0);              // of a group, the first
  uint32_t places[kTilesDown][2];
  find_places<T>(places, tile, c, band, first_tap, step, t);
  float sums[kTilesDown][kTiles][4] = {};
  // The same numbers serve all warps of a chunk, one of which asks for them.
  const bool asks = warp / layout.chunks == 0;
  const T* const end = gy + c.batch * c.output_height * c.output_width * c.output_channels;
  for (int64_t b = blockIdx.x; b < layout.bands; b += layout.blocks) {
    const int64_t image = b / band.bands_of_image;
    const int first_row = static_cast<int>(b - image * band.bands_of_image) * band.rows;
    const int groups = min(band.rows, c.output_height - first_row) * layout.groups_across;
    // The lane's of a group; those of the rows of a band lie one behind the other.
    const T* from =
        gy +
        ((image * c.output_height + first_row) * c.output_width + lane_pixel) * c.output_channels +
        first_channel;
    int row = 0, column = 0;  // of a group
    Gradients<T> next;
    next.read(from, c.output_channels, c.output_width, t);
    __syncthreads();  // everybody has left the band before
    load_band(x, tile, c, band, image, first_row, [](T number) { return bits_of(number); });
    __syncthreads();
    for (int group = 0; group < groups; ++group) {
      const Gradients<T> gradients = next;
      const int place = row * c.stride_height * band.pitch * kItem + column * step;
      const int pixels = c.output_width - column;
      from += min(pixels, kPixels) * c.output_channels;
      column += kPixels;
      if (column >= c.output_width) {
        column = 0;
        ++row;
      }
      if (group + 1 < groups) {  // comes while this group is multiplied
        next.read(from, c.output_channels, c.output_width - column, t);
      }
      if (asks) ask_for_group(from + kGroupsAhead * kPixels * c.output_channels, end, c, t);
      multiply_group(sums, gradients, places, place, step, pixels, t);
    }
  }

  float* const target =
      gkernel + static_cast<int64_t>(blockIdx.x) * c.taps * c.output_channels + chunk_channel;
#pragma unroll
  for (int i = 0; i < kTilesDown; ++i) {
#pragma unroll
    for (int d = 0; d < 4; ++d) {
      const int tap = first_tap + i * 16 + d / 2 * 8;
      if (tap >= c.taps) continue;
      Vector<float, kTiles> values;
#pragma unroll
      for (int j = 0; j < kTiles; ++j) values.values[j] = sums[i][j][d];
      *reinterpret_cast<Vector<float, kTiles>*>(
          target + static_cast<int64_t>(tap) * c.output_channels + (2 * t + d % 2) * kTiles) =
          values;
    }
  }
}

}  // namespace kerascnn::cuda::narrow
