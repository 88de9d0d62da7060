// Sizes of a 2-D convolution, the same for its three ops:
//   conv2d        x (n, h, w, c), kernel (kh, kw, c / groups, k) -> y (n, oh, ow, k)
//   conv2d_dgrad  gy, kernel -> gx
//   conv2d_wgrad  x, gy -> gkernel
// Cross-correlation, as in every deep-learning library: the kernel is not flipped.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/base/attributes.h"
#include "core/ops/geometry.h"
#include "core/ops/op.h"

namespace kerascnn {

struct Conv2DGeometry : Window2DGeometry {
  int64_t input_channels = 0;
  int64_t kernel_height = 0;
  int64_t kernel_width = 0;
  int64_t output_channels = 0;
  int64_t dilation_height = 1;
  int64_t dilation_width = 1;
  int64_t groups = 1;

  int64_t group_input_channels() const { return input_channels / groups; }
  int64_t group_output_channels() const { return output_channels / groups; }
  int64_t num_taps() const { return kernel_height * kernel_width * group_input_channels(); }
  int64_t num_products() const {
    return batch * output_height * output_width * output_channels * num_taps();
  }
  Shape input_shape() const { return {batch, input_height, input_width, input_channels}; }
  Shape kernel_shape() const {
    return {kernel_height, kernel_width, group_input_channels(), output_channels};
  }
  Shape output_shape() const { return {batch, output_height, output_width, output_channels}; }
};

// `op` is one of the three; `inputs` are that op's inputs. Checks everything and throws ValueError
// that starts with the op's name.
Conv2DGeometry conv2d_geometry(const OpDef& op, const Attributes& attributes, Specs inputs);

// Operations of any of the three (OpCost).
int64_t conv2d_flop(const Conv2DGeometry& geometry);

}  // namespace kerascnn
