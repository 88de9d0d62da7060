// Inner loops of a convolution that ends in max pooling and of its gradients, on float32, for the
// widest vectors of the machine. In each window of the pooling one place has a gradient, or no
// place where relu gave 0: the gradients' loops go over lists of those places.
//
// Images are padded here, rows of them `row_step` elements apart. What a filter sees at a place,
// its patch, is a run of kw * c neighbouring elements in each of kh rows. Kernels and their
// gradients are cut into pieces of some rows by some vectors of the run.
#pragma once

#include <cstdint>

#include "core/backend/cpu/cpu_features.h"

namespace kerascnn::cpu {

// Gradients of pooled places, (places, filters). Where `y` is not null, gy counts only where y is
// above 0.
struct PooledGradients {
  const float* gy;
  const float* y;
  const uint8_t* index;  // the maximum's position in its window
  int64_t filters;
};

struct PatchPiece {
  int rows, columns;  // columns in vectors; at most kMostPieceRows and kMostPieceColumns
  int64_t row_step;
};
constexpr int kMostPieceRows = 3;
constexpr int kMostPieceColumns = 8;

// A row of places: for each place and each position in its window the filters that have their
// gradient there. List i begins where list i - 1 ends.
struct FilterLists {
  int64_t places;
  int window;             // positions
  const int32_t* starts;  // in the image, of each list's patch
  int32_t* ends;
  float* gradients;  // room for those of all places and a vector more
  int32_t* filters;  // the same
};

// A gradient of one filter, and where in the image its patch begins.
struct PlacedGradient {
  float value;
  int32_t place;
};

// Rows of places: for each filter its gradients.
struct PlaceLists {
  int64_t rows, places;     // places of a row
  int64_t row_step, step;   // in the image, from one window to the next
  const int32_t* offsets;   // of the positions in the window, 256 of them
  int64_t capacity;         // of a list: rows * places + width
  PlacedGradient* entries;  // (filters, capacity)
  int32_t* counts;          // (filters)
};

// Small convolutions: a patch's run and all of the window's columns fit into a vector.
struct SmallWindow {
  int64_t places;       // of a row of pooled places
  int64_t step;         // in the image, from one window to the next
  int64_t row_step;     // in the image, from one row of patches to the next in a window's rows
  int64_t column_step;  // and from one column to the next
  int64_t image_row_step;
  int64_t filters;
  int64_t kernel_rows, run;
};

struct ConvPoolKernels {
  const char* name;  // "avx512", "avx2", "plain"
  int width;         // floats in a vector
  int most_sums;     // vectors of a piece that stay in registers

  void (*list_filters)(const PooledGradients& g, const FilterLists& lists);
  // Adds to each list's patch in gx its gradients times the filters' pieces, kernel (filters, rows,
  // columns, width).
  void (*add_patches)(const PatchPiece& piece, const FilterLists& lists, const float* kernel,
                      float* gx);

  // sums (filters) += the gradients.
  void (*list_places)(const PooledGradients& g, const PlaceLists& lists, float* sums);
  // totals (filters, rows, columns, width) += each filter's gradients times their patches' pieces.
  void (*sum_patches)(const PatchPiece& piece, const PlaceLists& lists, int64_t filters,
                      const float* image, float* totals);

  // Whether small_forward and small_wgrad take windows of that many rows and columns; `reach`
  // elements are in a row of all of a window's patches.
  bool (*takes_small)(int64_t window_rows, int64_t window_columns, int64_t reach);
  // totals (blocks of filters, kernel_rows, run, width) += a row of places' gradients times their
  // patches; sums (filters, filled up to whole vectors) += the gradients.
  void (*small_wgrad)(const SmallWindow& s, const PooledGradients& g, int64_t window_columns,
                      const float* image, float* totals, float* sums);
  // A row of y and index (may be null) of 2 x 2 windows. kernel (blocks of filters, kernel_rows,
  // run, width), bias (filters, filled up).
  void (*small_forward)(const SmallWindow& s, bool relu, const float* image, const float* kernel,
                        const float* bias, float* y, uint8_t* index);
};

KERASCNN_KERNEL_VARIANTS(ConvPoolKernels, conv_pool_kernels)

}  // namespace kerascnn::cpu
