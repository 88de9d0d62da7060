// How the work of wgrad_warpgroups.cuh is cut, by a rough model of its time.
#pragma once

#include <algorithm>

#include "core/backend/cuda/convolution/wgrad_warpgroups.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/runtime/tensor_map.h"
#include "core/ops/conv2d.h"

namespace kerascnn::cuda {

// Of a multiprocessor of an H200, in clock cycles, as measured with kernels that were cut in
// several ways. How many stages the ring has, from two on, makes no difference.
constexpr double kWgradProducts = 1024 * 0.65;  // in a cycle
constexpr double kWgradBytes = 14;              // from the second cache, in a cycle
constexpr double kWgradTurn = 450;              // from one turn to the next
constexpr double kWgradEdges = 1.15;            // the price of finding out what a turn has
constexpr double kWgradBlock = 6000;            // where a block begins and ends
constexpr double kWgradSumBytes = 1600;         // of partial sums, all multiprocessors together

inline WgradLayout sizes_of_wgrad(const Conv2DGeometry& g) {
  const auto narrow = [](int64_t n) { return static_cast<int>(n); };
  WgradLayout l{};
  l.batch = narrow(g.batch);
  l.input_height = narrow(g.input_height);
  l.input_width = narrow(g.input_width);
  l.input_channels = narrow(g.input_channels);
  l.output_height = narrow(g.output_height);
  l.output_width = narrow(g.output_width);
  l.output_channels = narrow(g.output_channels);
  l.stride_height = narrow(g.stride_height);
  l.stride_width = narrow(g.stride_width);
  l.pad_top = narrow(g.pad_top);
  l.pad_left = narrow(g.pad_left);
  return l;
}

// Fills in what follows from the rectangle's size and the number of images.
inline void cut_turns(WgradLayout& l) {
  const auto ceil = [](int a, int b) { return (a + b - 1) / b; };
  l.rectangles_down = ceil(l.output_height, l.rows);
  l.rectangles_across = ceil(l.output_width, l.columns);
  l.input_rows = (l.rows - 1) * l.stride_height + kWgradTaps;
  l.pitch = (l.columns - 1) * l.stride_width + kWgradTaps;
  l.groups = ceil(l.images * l.rows * l.columns, 4 * kWgradRun);
  l.turns = l.rectangles_down * l.rectangles_across * ceil(l.batch, l.images);
  const int over = l.rectangles_across == 1 ? 0 : l.output_width % l.columns;
  l.is_ragged = l.output_width % kWgradRun != 0 || l.images * l.rows * l.columns != l.pixels();
  l.has_edges = over != 0 || l.output_height % l.rows != 0 || l.batch % l.images != 0;
}

inline double cycles_of_turn(const WgradLayout& l) {
  const double products = 1.0 * kWgradTaps * kWgradTaps * kWgradChannels * kWgradFilters;
  const double bytes = 4.0 * (l.pixels() * kWgradFilters + l.slots() * kWgradChannels);
  const double cycles = std::max(l.pixels() * products / kWgradProducts, bytes / kWgradBytes);
  return (cycles + kWgradTurn) * (l.has_edges ? kWgradEdges : 1.0);
}

// Takes as many stages as fit. False where a ring does not.
inline bool fit_stages(WgradLayout& l, int most_shared) {
  // Each copier has a part of two groups; a box has at most 256 places along each axis.
  if (l.groups < 2 || l.pitch > 256 || l.input_rows > 256) return false;
  for (l.stages = 4; l.stages >= 2; --l.stages) {
    if (WgradMemory(l).bytes <= most_shared) return true;
  }
  return false;
}

// Shares the turns: each share more adds a copy of the result. Returns the cycles of all.
inline double share_turns(WgradLayout& l, int multiprocessors) {
  const int64_t tiles =
      int64_t{l.input_channels} / kWgradChannels * l.output_channels / kWgradFilters;
  const double result_bytes = 36.0 * l.input_channels * l.output_channels;
  const int most_splits = std::min(l.turns, 256);
  const double of_turn = cycles_of_turn(l);
  double least = 0;
  int best = 1;
  for (int splits = 1; splits <= most_splits; ++splits) {
    const int64_t waves = ceil_div(tiles * splits, multiprocessors);
    const double sums = splits > 1 ? 2 * splits * result_bytes / kWgradSumBytes + 4000 : 0;
    const double of_block = static_cast<double>(ceil_div(l.turns, splits)) * of_turn + kWgradBlock;
    const double cycles = static_cast<double>(waves) * of_block + sums;
    if (splits > 1 && cycles >= least) continue;
    least = cycles;
    best = splits;
  }
  l.splits = best;
  return least;
}

// Without turns where no cut fits `most_shared` bytes.
inline WgradLayout plan_wgrad_layout(WgradLayout l, int multiprocessors, int most_shared) {
  WgradLayout best{};
  double least = 0;
  const auto consider = [&] {
    cut_turns(l);
    if (!fit_stages(l, most_shared)) return;
    const double cycles = share_turns(l, multiprocessors);
    if (best.turns > 0 && cycles >= least) return;
    best = l;
    least = cycles;
  };
  for (int across = 1; across <= 16; ++across) {
    const int columns = (l.output_width + across - 1) / across;
    l.columns = (columns + kWgradRun - 1) / kWgradRun * kWgradRun;
    if (across > 1 && columns < 16) break;
    for (l.rows = 1; l.rows <= l.output_height && l.rows * l.columns <= 256; ++l.rows) {
      l.images = 1;
      consider();
      if (l.rows < l.output_height || across > 1) continue;
      for (l.images = 2; l.images <= std::min(kWgradMostImages, l.batch); ++l.images) consider();
    }
  }
  return best;
}

inline dim3 grid_of_wgrad(const WgradLayout& l) {
  return dim3(static_cast<unsigned>(l.input_channels / kWgradChannels),
              static_cast<unsigned>(l.output_channels / kWgradFilters),
              static_cast<unsigned>(l.splits));
}

// Describes x for copies of the boxes that turns read.
inline CUtensorMap describe_input(const WgradLayout& l, const float* x) {
  return describe_boxes("conv2d_wgrad", DType::Float32, x,
                        {l.input_channels, l.input_width, l.input_height, l.batch},
                        {kWgradPlane, l.pitch, l.input_rows, l.images});
}

}  // namespace kerascnn::cuda
