// Inner loops on float32 that are worth writing for the widest vectors of the machine, chosen when
// the process starts.
#pragma once

#include <cstdint>

#include "core/backend/cpu/cpu_features.h"
#include "core/base/half.h"

namespace kerascnn::cpu {

// A row of neighbouring output pixels of a pooling whose windows are clipped alike.
struct PoolRow {
  int64_t pixels;  // output pixels
  int64_t channels;
  int64_t rows, columns;  // of the window, as far as it lies inside the input
  int64_t pixel_step;     // from one window to the next, in elements of the input
  int64_t row_step;       // from one input row to the next
  int64_t first_index;    // the index that the window's first element inside the input has
  int64_t index_step;     // the width of the whole window
};

struct AdamStep {
  float alpha, one_minus_beta_1, one_minus_beta_2, epsilon;
};

struct MomentumStep {
  float rate, momentum;
  bool nesterov;
};

// One image of a convolution's data gradient, added into an image with its padding. One row of the
// kernel, (kw, c), is `run` neighbouring elements of it.
struct ScatterConvolution {
  int64_t rows, columns;  // of gy
  int64_t filters;
  int64_t kernel_rows;
  int64_t run;  // a multiple of kScatterAlignment: the kernel's rows are filled up with zeros
  int64_t pixel_step;       // in gx, from one column of gy to the next
  int64_t row_step;         // in gx, from one row of the kernel to the next
  int64_t output_row_step;  // in gx, from one row of gy to the next
};
constexpr int64_t kScatterAlignment = 16;

// Products of the patches of neighbouring output pixels with a few filters. A row of a patch is
// `run` neighbouring elements of the image, as is a row of a filter in the kernel, (rows, filters,
// filter_step).
struct PatchDots {
  int64_t pixels = 0;
  int64_t filters = 0;  // up to kMostDotFilters
  int64_t rows = 0;     // of a patch
  int64_t run = 0;
  int64_t pixel_step = 0;   // in the image, from one patch to the next
  int64_t row_step = 0;     // in the image, from one row of a patch to the next
  int64_t filter_step = 0;  // in the kernel
  int64_t result_step = 0;  // from one pixel to the next
};
constexpr int64_t kMostDotFilters = 4;

// Rows of softmax up to this length are computed several at a time.
constexpr int64_t kMostSoftmaxColumns = 256;

struct FloatKernels {
  const char* name;  // "avx512", "avx2", "plain"

  // y (pixels, channels) = maxima of the windows; index, where not null, their positions in the
  // window.
  void (*max_pool)(const PoolRow& row, const float* x, float* y, uint8_t* index);
  // The windows don't overlap. Every element of each window is written: gy at the index, 0
  // elsewhere.
  void (*max_pool_grad)(const PoolRow& row, const float* gy, const uint8_t* index, float* gx);
  // totals (width) += the sums of the columns of x (rows, width).
  void (*sum_columns)(const float* x, int64_t rows, int64_t width, double* totals);
  // sums (width) += the sums of x - shift, squares (width) += those of its square, of columns.
  void (*sum_moments)(const float* x, int64_t rows, int64_t width, const double* shift,
                      double* sums, double* squares);
  void (*adam)(const float* p, const float* g, const float* m, const float* v, float* new_p,
               float* new_m, float* new_v, int64_t count, const AdamStep& step);
  void (*sgd)(const float* p, const float* g, float* new_p, int64_t count, float rate);
  void (*momentum)(const float* p, const float* g, const float* m, float* new_p, float* new_m,
                   int64_t count, const MomentumStep& step);
  void (*widen_half)(const Half* from, float* to, int64_t count);
  void (*widen_bfloat16)(const BFloat16* from, float* to, int64_t count);
  // These round to the nearest, as half.h does.
  void (*narrow_half)(const float* from, Half* to, int64_t count);
  void (*narrow_bfloat16)(const float* from, BFloat16* to, int64_t count);
  // The result is NaN where an element is. Without elements it is 0, -infinity or infinity.
  double (*sum)(const float* x, int64_t count);
  // The sum of each row of x (rows, length), as above.
  void (*sum_rows)(const float* x, int64_t rows, int64_t length, double* sums);
  float (*maximum)(const float* x, int64_t count);
  float (*minimum)(const float* x, int64_t count);
  // Sum of exp(x - shift). y, where not null, gets the summands, and may be x.
  float (*sum_exp)(const float* x, float shift, float* y, int64_t count);
  // softmax of each row of x (rows, length), up to kMostSoftmaxColumns long: y, which may be x.
  // `largest` and `sums` (rows) get the maxima and the sums of exp(x - maximum). NaN in a row makes
  // its sum NaN.
  void (*softmax_rows)(const float* x, int64_t rows, int64_t length, float* y, float* largest,
                       float* sums);
  // The bits of the largest |x|. Infinity counts as larger than all numbers, and NaN as larger than
  // infinity.
  uint32_t (*largest_magnitude)(const float* x, int64_t count);
  // gx += the data gradient; gy (rows, columns, filters), kernel (kernel_rows, filters, run). gx
  // has room for kScatterAlignment elements behind its last one.
  void (*scatter_convolution)(const ScatterConvolution& sizes, const float* gy, const float* kernel,
                              float* gx);
  // y (pixels, filters) = the products; kernel (rows, filters, filter_step).
  void (*patch_dots)(const PatchDots& sizes, const float* x, const float* kernel, float* y);
  // The random words of elements [4 * first_block, 4 * first_block + count) of philox.h, and
  // uniform numbers in [low, high) made of them.
  void (*random_words)(const int64_t* state, uint32_t stream, int64_t first_block, int64_t count,
                       uint32_t* words);
  void (*uniform)(const int64_t* state, uint32_t stream, float low, float high, int64_t first_block,
                  int64_t count, float* out);
  // out = kept(x) * scale for elements [4 * first_block, 4 * first_block + count) of dropout's
  // numbering; x and out point at the first of them. `state` and `threshold` as in philox.h; count
  // is a multiple of 4 but for the end of the tensor.
  void (*dropout)(const float* x, float* out, const int64_t* state, uint32_t stream,
                  uint32_t threshold, float scale, int64_t first_block, int64_t count);
};

KERASCNN_KERNEL_VARIANTS(FloatKernels, float_kernels)

inline void widen(const Half* from, float* to, int64_t count) {
  float_kernels().widen_half(from, to, count);
}
inline void widen(const BFloat16* from, float* to, int64_t count) {
  float_kernels().widen_bfloat16(from, to, count);
}
inline void narrow(const float* from, Half* to, int64_t count) {
  float_kernels().narrow_half(from, to, count);
}
inline void narrow(const float* from, BFloat16* to, int64_t count) {
  float_kernels().narrow_bfloat16(from, to, count);
}

}  // namespace kerascnn::cpu
