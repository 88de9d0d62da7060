// How the work of wgrad_warpgroups.cuh is cut, by a rough model of its time.
#pragma once

#include <algorithm>

#include "core/backend/cuda/convolution/wgrad_warpgroups.cuh"
#include "core/backend/cuda/launch.h"
#include "core/ops/conv2d.h"

namespace kerascnn::cuda {

// Of a multiprocessor of an H200, in clock cycles; the second and third are what kernels reach.
constexpr double kWgradProducts = 1024 * 0.75;    // in a cycle
constexpr double kWgradBytes = 14;                // from the second cache, in a cycle
constexpr double kWgradTurn = 200;                // where a turn ends
constexpr double kWgradBlock = 6000;              // where a block begins and ends
constexpr double kWgradSumBytes = 1600;           // of partial sums, all multiprocessors together

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
  l.kernel_height = narrow(g.kernel_height);
  l.stride_height = narrow(g.stride_height);
  l.pad_top = narrow(g.pad_top);
  l.pad_left = narrow(g.pad_left);
  return l;
}

// Fills in what follows from the rectangle's size and the number of images.
template <typename Shape>
void cut_turns(WgradLayout& l) {
  const auto ceil = [](int a, int b) { return (a + b - 1) / b; };
  l.rectangles_down = ceil(l.output_height, l.rows);
  l.rectangles_across = ceil(l.output_width, l.columns);
  l.input_rows = Shape::kKernelRows
                     ? (l.rows - 1) * l.stride_height + Shape::kRowsOfKernel
                     : l.rows;
  const int columns = (l.columns - 1) * Shape::kStride + Shape::kTaps;
  l.pitch = ceil(columns, Shape::kStep) * Shape::kStep;
  l.groups = ceil(l.images * l.rows * l.columns, 4 * Shape::kRun);
  l.turns = l.rectangles_down * l.rectangles_across * ceil(l.batch, l.images);
}

template <typename Shape>
double cycles_of_turn(const WgradLayout& l) {
  const double products = 64.0 * Shape::kGroups * Shape::kTaps * Shape::kFilters;
  const double pixels = l.groups * 4.0 * Shape::kRun;
  const double bytes =
      4.0 * (pixels * Shape::kFilters + 64.0 * Shape::kPlanes * l.slots());
  return std::max(pixels * products / kWgradProducts, bytes / kWgradBytes) + kWgradTurn;
}

// Null-sized (no turns) where no cut fits `most_shared` bytes.
template <typename Shape>
WgradLayout plan_wgrad_layout(WgradLayout l, int multiprocessors, int most_shared) {
  WgradLayout best{};
  double best_cycles = 0;
  const auto consider = [&] {
    cut_turns<Shape>(l);
    for (l.stages = 4; l.stages >= 2 && WgradMemory<Shape>(l).bytes > most_shared; --l.stages) {
    }
    if (l.stages < 2) return;
    const double cycles = l.turns * cycles_of_turn<Shape>(l) * (l.stages == 2 ? 1.05 : 1.0);
    if (best.turns > 0 && cycles >= best_cycles) return;
    best = l;
    best_cycles = cycles;
  };
  for (int across = 1; across <= 16; ++across) {
    const int columns = (l.output_width + across - 1) / across;
    l.columns = (columns + Shape::kRun - 1) / Shape::kRun * Shape::kRun;
    if (across > 1 && columns < 16) break;
    for (l.rows = 1; l.rows <= l.output_height && l.rows * l.columns <= 256; ++l.rows) {
      l.images = 1;
      consider();
      if (l.rows < l.output_height || across > 1) continue;
      for (l.images = 2; l.images <= std::min(16, l.batch); ++l.images) consider();
    }
  }
  if (best.turns == 0) return best;
  // Shares of the pixels: each more adds a copy of the result.
  const int64_t tiles = int64_t{l.input_channels} / (64 * Shape::kPlanes) *
                        (l.kernel_height / Shape::kRowsOfKernel) * l.output_channels /
                        Shape::kFilters;
  const double result_bytes =
      4.0 * l.kernel_height * Shape::kTaps * l.input_channels * l.output_channels;
  double least = 0;
  const int most_splits = std::min(best.turns, 256);
  for (int splits = 1; splits <= most_splits; ++splits) {
    const int64_t waves = ceil_div(tiles * splits, multiprocessors);
    const double sums = splits > 1 ? 2 * splits * result_bytes / kWgradSumBytes + 4000 : 0;
    const double cycles =
        static_cast<double>(waves) *
            (static_cast<double>(ceil_div(best.turns, splits)) * cycles_of_turn<Shape>(best) +
             kWgradBlock) +
        sums;
    if (splits > 1 && cycles >= least) continue;
    least = cycles;
    best.splits = splits;
  }
  return best;
}

template <typename Shape>
dim3 grid_of_wgrad(const WgradLayout& l) {
  return dim3(static_cast<unsigned>(l.input_channels / (64 * Shape::kPlanes) *
                                    (l.kernel_height / Shape::kRowsOfKernel)),
              static_cast<unsigned>(l.output_channels / Shape::kFilters),
              static_cast<unsigned>(l.splits));
}

}  // namespace kerascnn::cuda
