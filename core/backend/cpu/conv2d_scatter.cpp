#include "core/backend/cpu/conv2d_scatter.h"

#include <algorithm>

#include "core/backend/cpu/float_kernels.h"
#include "core/backend/cpu/kernel_util.h"
#include "core/backend/cpu/parallel.h"

namespace kerascnn::cpu {

namespace {

struct ScatterPlan {
  Conv2DGeometry g;
  ScatterConvolution sizes;
  int64_t kernel_size;  // elements of the rearranged kernel, (kh, k, run)
  int64_t image_size;   // elements of an image with its padding and the room behind it
};

ScatterPlan plan_scatter(const Conv2DGeometry& g) {
  const int64_t run = g.kernel_width * g.input_channels;
  const int64_t width = g.input_width + g.pad_left + g.pad_right;
  const int64_t height = g.input_height + g.pad_top + g.pad_bottom;
  ScatterPlan plan{g, {}, 0, 0};
  plan.sizes = {
      .rows = g.output_height,
      .columns = g.output_width,
      .filters = g.output_channels,
      .kernel_rows = g.kernel_height,
      .run = (run + kScatterAlignment - 1) / kScatterAlignment * kScatterAlignment,
      .pixel_step = g.stride_width * g.input_channels,
      .row_step = width * g.input_channels,
      .output_row_step = g.stride_height * width * g.input_channels,
  };
  const auto aligned = [](int64_t elements) { return align_up(elements * 4) / 4; };
  plan.kernel_size = aligned(g.kernel_height * g.output_channels * plan.sizes.run);
  plan.image_size = aligned(height * width * g.input_channels + kScatterAlignment);
  return plan;
}

// (kh, kw * c, k) -> (kh, k, run), with zeros behind kw * c.
void rearrange_kernel(const ScatterPlan& plan, const float* kernel, float* out) {
  const int64_t run = plan.g.kernel_width * plan.g.input_channels;
  const int64_t filters = plan.g.output_channels;
  for (int64_t i = 0; i < plan.g.kernel_height; ++i) {
    for (int64_t filter = 0; filter < filters; ++filter) {
      float* to = out + (i * filters + filter) * plan.sizes.run;
      const float* from = kernel + i * run * filters + filter;
      for (int64_t j = 0; j < run; ++j) to[j] = from[j * filters];
      std::fill(to + run, to + plan.sizes.run, 0.0f);
    }
  }
}

void crop(const Conv2DGeometry& g, const float* padded, float* image) {
  const int64_t row = g.input_width * g.input_channels;
  const int64_t padded_row = row + (g.pad_left + g.pad_right) * g.input_channels;
  padded += g.pad_top * padded_row + g.pad_left * g.input_channels;
  for (int64_t i = 0; i < g.input_height; ++i) {
    std::copy(padded + i * padded_row, padded + i * padded_row + row, image + i * row);
  }
}

}  // namespace

bool scatters_better(const Conv2DGeometry& g) {
  return g.groups == 1 && g.dilation_height == 1 && g.dilation_width == 1 &&
         g.input_channels < 16 && g.kernel_width > 1;
}

std::unique_ptr<Kernel> make_scatter_conv2d_dgrad(const Conv2DGeometry& g) {
  const ScatterPlan plan = plan_scatter(g);
  const FloatKernels& kernels = float_kernels();
  return make_kernel(
      message("kerascnn conv2d_dgrad:", kernels.name),
      [plan, &kernels](const KernelArgs& args) {
        const Conv2DGeometry& g = plan.g;
        const int64_t gx_size = g.input_height * g.input_width * g.input_channels;
        const int64_t gy_size = g.output_height * g.output_width * g.output_channels;
        float* kernel = static_cast<float*>(args.workspace);
        rearrange_kernel(plan, input<float>(args, 1), kernel);
        parallel_tasks(g.batch, [&](int64_t image, int64_t thread) {
          float* padded = kernel + plan.kernel_size + thread * plan.image_size;
          std::fill(padded, padded + plan.image_size, 0.0f);
          kernels.scatter_convolution(plan.sizes, input<float>(args, 0) + image * gy_size, kernel,
                                      padded);
          crop(g, padded, output<float>(args, 0) + image * gx_size);
        });
      },
      (plan.kernel_size + num_threads() * plan.image_size) * static_cast<int64_t>(sizeof(float)));
}

}  // namespace kerascnn::cpu
