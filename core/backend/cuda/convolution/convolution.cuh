// The geometry of a convolution in 32 bits, as its kernels take it: positions inside one image fit.
#pragma once

#include <cstdint>

#include "core/ops/conv2d.h"

namespace kerascnn::cuda {

struct Conv {
  int64_t batch;
  int input_height, input_width, input_channels, output_height, output_width, output_channels;
  int kernel_height, kernel_width, stride_height, stride_width, pad_top, pad_left;
  int dilation_height, dilation_width, group_inputs, group_outputs, taps;

  explicit Conv(const Conv2DGeometry& g)
      : batch(g.batch),
        input_height(static_cast<int>(g.input_height)),
        input_width(static_cast<int>(g.input_width)),
        input_channels(static_cast<int>(g.input_channels)),
        output_height(static_cast<int>(g.output_height)),
        output_width(static_cast<int>(g.output_width)),
        output_channels(static_cast<int>(g.output_channels)),
        kernel_height(static_cast<int>(g.kernel_height)),
        kernel_width(static_cast<int>(g.kernel_width)),
        stride_height(static_cast<int>(g.stride_height)),
        stride_width(static_cast<int>(g.stride_width)),
        pad_top(static_cast<int>(g.pad_top)),
        pad_left(static_cast<int>(g.pad_left)),
        dilation_height(static_cast<int>(g.dilation_height)),
        dilation_width(static_cast<int>(g.dilation_width)),
        group_inputs(static_cast<int>(g.group_input_channels())),
        group_outputs(static_cast<int>(g.group_output_channels())),
        taps(kernel_height * kernel_width * group_inputs) {}
};

}  // namespace kerascnn::cuda
