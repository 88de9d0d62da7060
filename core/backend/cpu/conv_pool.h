// Own kernels of convolutions with max pooling and their gradients (core/graph/conv_pooling.h),
// where conv_pool_kernels.h has loops for them:
// float32, one group, no dilation, pooling without padding. Null where a call doesn't fit.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>

#include "core/backend/backend.h"
#include "core/backend/cpu/conv_pool_kernels.h"
#include "core/backend/cpu/kernel_util.h"
#include "core/graph/conv_pooling.h"

namespace kerascnn::cpu {

// Sizes of the padded images, in elements.
struct ConvPool {
  ConvPool(const Conv2DMaxPool2DGeometry& geometry, const ConvPoolArguments& arguments);

  ConvPoolArguments at;  // of a gradient
  Conv2DGeometry conv;
  Pool2DGeometry pool;
  bool relu;                           // else no activation
  int64_t row;                         // of the padded image
  int64_t rows;                        // of the padded image
  int64_t run;                         // of a patch
  int64_t place_step, place_row_step;  // from one window to the next
  int64_t column_step, row_step;       // from one position in a window to the next

  int64_t window() const { return pool.window_height * pool.window_width; }
  int64_t pooled_row() const { return pool.output_width * conv.output_channels; }
  int64_t pooled_size() const { return pool.output_height * pooled_row(); }
  int64_t image_size() const { return conv.input_height * conv.input_width * conv.input_channels; }
  int64_t padded_size() const { return rows * row; }
  // Where the position lies behind the window's first one.
  int64_t offset(int64_t position) const {
    return position / pool.window_width * row_step + position % pool.window_width * column_step;
  }
  // Those of a row of places, which a gradient's arguments have.
  PooledGradients gradients(const KernelArgs& args, int64_t image, int64_t place_row) const;
  // Rows of the padded image from `first` on, with their padding.
  void pad_rows(const float* image, int64_t first, int64_t count, float* out) const;
  // The images are cut into so many shares of neighbouring ones, one for each thread: with four for
  // each, trainings of small networks beside busy processes took longer (docs/benchmarks.md).
  int64_t num_shares() const;
  int64_t share_begin(int64_t share) const { return conv.batch * share / num_shares(); }
};

// Hands out pieces of a block of memory, or only counts their bytes where there is none.
class Scratch {
 public:
  explicit Scratch(char* memory) : memory_(memory) {}

  template <typename T>
  T* take(int64_t count) {
    char* taken = memory_ == nullptr ? nullptr : memory_ + bytes_;
    bytes_ += align_up(count * static_cast<int64_t>(sizeof(T)));
    return reinterpret_cast<T*>(taken);
  }

  int64_t bytes() const { return bytes_; }

 private:
  char* memory_;
  int64_t bytes_ = 0;
};

// Whether all numbers are finite: sums have no other terms then. If they are not, a product of 0
// and infinity or NaN is not 0, so no place may be left out.
bool all_finite(const float* values, int64_t count);
bool all_finite(const double* sums, int64_t count);

// `otherwise` computes what is not finite.
std::unique_ptr<Kernel> make_listed_dgrad(const ConvPool& g, std::unique_ptr<Kernel> otherwise);
std::unique_ptr<Kernel> make_listed_wgrad(const ConvPool& g, std::unique_ptr<Kernel> otherwise);

bool takes_small_wgrad(const ConvPool& g);
std::unique_ptr<Kernel> make_small_wgrad(const ConvPool& g, std::unique_ptr<Kernel> otherwise);
bool takes_small_forward(const ConvPool& g);
std::unique_ptr<Kernel> make_small_forward(const ConvPool& g, bool has_bias);

}  // namespace kerascnn::cpu
