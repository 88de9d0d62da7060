// How the kernels of depthwise.cuh are launched for square kernels of a size that is known when
// they are compiled.
#pragma once

#include <limits>

#include "core/backend/cuda/convolution/conv2d.h"
#include "core/backend/cuda/convolution/depthwise.cuh"

namespace kerascnn::cuda::depthwise {

// The tile of a thread, and how many blocks of it a multiprocessor should hold.
template <typename Taps>
struct TileSize {
  static constexpr bool kSpreads = Taps::kGradient && Taps::kStride > 1;
  static constexpr int kRows = Taps::kStride > 1 ? 2 : 4;
  static constexpr int kColumns = kSpreads ? 14 : 7;
  static constexpr int kBlocks = Taps::kExtent == 3 ? 5 : Taps::kExtent == 5 ? 4 : 3;
};

// The same for the kernel's gradient: the sums of all taps are in registers all the time.
template <typename Taps>
struct WgradSize {
  static constexpr int kRows = Taps::kExtent == 7 && Taps::kStride == 1 ? 4 : 2;
  static constexpr int kColumns = 7;
  static constexpr int kBlocks = Taps::kExtent == 3 ? 6 : Taps::kExtent == 5 ? 4 : 2;
};

// The arrangement of a block's tiles that reads and computes the least in all.
template <typename Taps, int kRows, int kColumns>
Layout make_layout(const Conv2DGeometry& g, int64_t itemsize) {
  Layout l{};
  l.batch = g.batch;
  l.channels = static_cast<int>(g.input_channels);
  l.pad_top = static_cast<int>(g.pad_top);
  l.pad_left = static_cast<int>(g.pad_left);
  l.source_height = static_cast<int>(Taps::kGradient ? g.output_height : g.input_height);
  l.source_width = static_cast<int>(Taps::kGradient ? g.output_width : g.input_width);
  l.result_height = static_cast<int>(Taps::kGradient ? g.input_height : g.output_height);
  l.result_width = static_cast<int>(Taps::kGradient ? g.input_width : g.output_width);
  l.wide = l.channels * itemsize % 16 == 0;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int log_columns = 0; kTiles >> log_columns > 0; ++log_columns) {
    for (int log_rows = 0; kTiles >> (log_columns + log_rows) > 0; ++log_rows) {
      const int rows = 1 << log_rows, columns = 1 << log_columns;
      Layout c = l;
      c.log_columns = log_columns;
      c.log_rows = log_rows;
      c.images = kTiles >> (log_columns + log_rows);
      c.block_rows = static_cast<int>(ceil_div(l.result_height, rows * kRows));
      c.block_columns = static_cast<int>(ceil_div(l.result_width, columns * kColumns));
      c.source_rows = Taps::sources(rows * kRows);
      c.source_columns = Taps::sources(columns * kColumns);
      const int64_t blocks = ceil_div(l.batch, c.images) * c.block_rows * c.block_columns;
      const int64_t cost = blocks * (int64_t{c.images} * c.source_rows * c.source_columns +
                                     kTiles * kRows * kColumns);
      if (cost < least) {
        least = cost;
        l = c;
      }
    }
  }
  return l;
}

inline int64_t image_blocks(const Layout& l) { return ceil_div(l.batch, l.images); }
inline int64_t blocks_of_image(const Layout& l) { return int64_t{l.block_rows} * l.block_columns; }
inline int64_t num_blocks(const Layout& l) { return image_blocks(l) * blocks_of_image(l); }
inline int64_t num_chunks(const Layout& l) { return ceil_div(l.channels, kChannels); }
inline int64_t source_size(const Layout& l) {
  return int64_t{l.images} * l.source_rows * l.source_columns * kChannels;
}

template <typename T, typename Taps, typename Size = TileSize<Taps>>
struct TilePlan {
  static constexpr auto kernel =
      depthwise_kernel<T, Taps, Size::kRows, Size::kColumns, Size::kBlocks>;
  Layout l;
  int64_t shared;

  explicit TilePlan(const Conv2DGeometry& g)
      : l(make_layout<Taps, Size::kRows, Size::kColumns>(g, sizeof(T))),
        shared((source_size(l) + Taps::kExtent * Taps::kExtent * kChannels) *
               static_cast<int64_t>(sizeof(T))) {}

  bool fits(int64_t most_shared) const {
    return shared <= most_shared && blocks_of_image(l) <= kMaxBlocks &&
           image_blocks(l) <= kMaxBlocks;
  }
  void launch(const T* source, const T* weights, T* result, const Ends<T>& ends,
              cudaStream_t stream) const {
    const dim3 grid(static_cast<unsigned>(num_chunks(l)), static_cast<unsigned>(blocks_of_image(l)),
                    static_cast<unsigned>(image_blocks(l)));
    kernel<<<grid, kBlock, static_cast<size_t>(shared), stream>>>(source, weights, result, ends, l);
  }
};

template <typename T, typename Taps, typename Size = WgradSize<Taps>>
struct WgradPlan {
  static constexpr int kRows = Size::kRows, kColumns = Size::kColumns, kBlocks = Size::kBlocks;
  static constexpr auto kernel = depthwise_wgrad_kernel<T, Taps, kRows, kColumns, kBlocks>;
  Layout l;
  int64_t shared, splits;

  // `multiprocessors`: how many there are; `most_shared`: what one has for all of its blocks.
  WgradPlan(const Conv2DGeometry& g, int64_t multiprocessors, int64_t most_shared)
      : l(make_layout<Taps, kRows, kColumns>(g, sizeof(T))) {
    constexpr int64_t kReserved = 1 << 10;  // of each block
    const int64_t stage = source_size(l) + int64_t{kTiles} * kRows * kColumns * kChannels;
    const int64_t sums = int64_t{Taps::kExtent} * kBlock * kPair * 4;
    const auto needed = [&](int64_t stages) {
      return std::max<int64_t>(stages * stage * static_cast<int64_t>(sizeof(T)), sums);
    };
    const auto at_once_with = [&](int64_t bytes) {
      return std::clamp<int64_t>(most_shared / (bytes + kReserved), 1, kBlocks);
    };
    l.copies_ahead = at_once_with(needed(2)) == at_once_with(needed(1));
    shared = needed(l.copies_ahead ? 2 : 1);
    const int64_t at_once = at_once_with(shared);
    const int64_t most = std::clamp<int64_t>(multiprocessors * at_once / num_chunks(l), 1,
                                             std::min<int64_t>(num_blocks(l), 1024));
    splits = ceil_div(num_blocks(l), ceil_div(num_blocks(l), most));
  }

  bool fits(int64_t most_shared_of_block) const {
    return shared <= most_shared_of_block && num_blocks(l) < int64_t{1} << 31;
  }
  void launch(const T* x, const T* gy, float* partial, cudaStream_t stream) const {
    const dim3 grid(static_cast<unsigned>(num_chunks(l)), static_cast<unsigned>(splits));
    kernel<<<grid, kBlock, static_cast<size_t>(shared), stream>>>(x, gy, partial, l,
                                                                  static_cast<int>(num_blocks(l)));
  }
};

}  // namespace kerascnn::cuda::depthwise
