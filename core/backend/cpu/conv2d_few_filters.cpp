#include "core/backend/cpu/conv2d_few_filters.h"

#include <algorithm>
#include <utility>

#include "core/backend/cpu/epilogue.h"
#include "core/backend/cpu/float_kernels.h"
#include "core/backend/cpu/kernel_util.h"
#include "core/backend/cpu/parallel.h"

namespace kerascnn::cpu {

namespace {

// From so many on oneDNN's vectors are full enough.
constexpr int64_t kEnoughFilters = 8;
// Channels, or elements of a row of a patch, from which vectors along them pay.
constexpr int64_t kEnoughChannels = 16;

// Filters are computed in groups of nearly equal size.
struct FilterGroups {
  int64_t filters;
  int64_t count = (filters + kMostDotFilters - 1) / kMostDotFilters;

  int64_t first(int64_t group) const { return filters * group / count; }
  int64_t size(int64_t group) const { return first(group + 1) - first(group); }
};

// (kh, kw * c, k) -> for each group of filters (kh, filters of the group, kw * c).
void rearrange_kernel(const Conv2DGeometry& g, const float* kernel, float* out) {
  const int64_t run = g.kernel_width * g.input_channels;
  const FilterGroups groups{g.output_channels};
  for (int64_t group = 0; group < groups.count; ++group) {
    for (int64_t i = 0; i < g.kernel_height; ++i) {
      for (int64_t k = groups.first(group); k < groups.first(group + 1); ++k) {
        const float* from = kernel + i * run * g.output_channels + k;
        for (int64_t j = 0; j < run; ++j) *out++ = from[j * g.output_channels];
      }
    }
  }
}

// The part [first, last) of a window over an axis that lies inside the image.
struct Inside {
  int64_t first, last;

  Inside(int64_t begin, int64_t window, int64_t dilation, int64_t size)
      : first(begin >= 0 ? 0 : (-begin + dilation - 1) / dilation),
        last(begin >= size ? 0 : std::min(window, (size - 1 - begin) / dilation + 1)) {
    last = std::max(first, last);
  }
};

class FewFilters {
 public:
  explicit FewFilters(const Conv2DGeometry& geometry)
      : g_(geometry), groups_{geometry.output_channels}, kernels_(float_kernels()) {
    // Output columns whose whole window is inside the image.
    whole_first_ = std::min(g_.output_width, (g_.pad_left + g_.stride_width - 1) / g_.stride_width);
    const int64_t room = g_.input_width + g_.pad_left - g_.kernel_width;
    const int64_t whole_last = room < 0 ? 0 : room / g_.stride_width + 1;
    whole_last_ = std::clamp(whole_last, whole_first_, g_.output_width);
  }

  const char* kernels_name() const { return kernels_.name; }

  // A row of the result, (output width, k), without bias.
  void compute_row(const float* image, const float* kernel, int64_t row, float* y) const {
    const int64_t top = row * g_.stride_height - g_.pad_top;
    const Inside rows(top, g_.kernel_height, g_.dilation_height, g_.input_height);
    const int64_t run = g_.kernel_width * g_.input_channels;
    for (int64_t group = 0; group < groups_.count; ++group) {
      PatchDots dots{.filters = groups_.size(group),
                     .rows = rows.last - rows.first,
                     .pixel_step = g_.stride_width * g_.input_channels,
                     .row_step = g_.dilation_height * g_.input_width * g_.input_channels,
                     .filter_step = run,
                     .result_step = g_.output_channels};
      const float* first_row =
          image + (top + rows.first * g_.dilation_height) * g_.input_width * g_.input_channels;
      const float* weights = kernel + rows.first * dots.filters * run;
      const auto compute = [&](int64_t column, int64_t pixels) {
        const int64_t left = column * g_.stride_width - g_.pad_left;
        const Inside columns(left, g_.kernel_width, 1, g_.input_width);
        dots.pixels = pixels;
        dots.run = (columns.last - columns.first) * g_.input_channels;
        kernels_.patch_dots(dots, first_row + (left + columns.first) * g_.input_channels,
                            weights + columns.first * g_.input_channels,
                            y + column * g_.output_channels + groups_.first(group));
      };
      for (int64_t column = 0; column < whole_first_; ++column) compute(column, 1);
      if (whole_last_ > whole_first_) compute(whole_first_, whole_last_ - whole_first_);
      for (int64_t column = whole_last_; column < g_.output_width; ++column) compute(column, 1);
      kernel += g_.kernel_height * dots.filters * run;
    }
  }

 private:
  Conv2DGeometry g_;
  FilterGroups groups_;
  const FloatKernels& kernels_;
  int64_t whole_first_, whole_last_;
};

class SwappedWgrad final : public Kernel {
 public:
  SwappedWgrad(const Conv2DGeometry& g, std::unique_ptr<Kernel> swapped)
      : g_(g), swapped_(std::move(swapped)) {}

  void run(const KernelArgs& args) override {
    const void* inputs[] = {args.inputs[1], args.inputs[0]};
    void* outputs[] = {args.workspace};
    char* workspace = static_cast<char*>(args.workspace) + result_bytes();
    swapped_->run({inputs, outputs, workspace, args.stream});
    // (kh, kw, k, c), both axes of the window turned round -> (kh, kw, c, k).
    const int64_t channels = g_.input_channels, filters = g_.output_channels;
    const int64_t taps = g_.kernel_height * g_.kernel_width;
    const float* from = static_cast<const float*>(args.workspace);
    float* to = output<float>(args, 0);
    for (int64_t tap = 0; tap < taps; ++tap) {
      const float* turned = from + (taps - 1 - tap) * channels * filters;
      for (int64_t c = 0; c < channels; ++c) {
        for (int64_t k = 0; k < filters; ++k) *to++ = turned[k * channels + c];
      }
    }
  }

  int64_t workspace_bytes() const override { return result_bytes() + swapped_->workspace_bytes(); }
  std::string description() const override { return swapped_->description(); }

 private:
  int64_t result_bytes() const { return align_up(g_.num_taps() * g_.output_channels * kFloat); }

  const Conv2DGeometry g_;
  const std::unique_ptr<Kernel> swapped_;
};

}  // namespace

bool has_few_filters(const Conv2DGeometry& g) {
  return g.groups == 1 && g.dilation_width == 1 && g.output_channels < kEnoughFilters &&
         g.kernel_width * g.input_channels >= kEnoughChannels;
}

std::unique_ptr<Kernel> make_few_filters_conv2d(const Conv2DGeometry& g, bool has_bias,
                                                const ActivationCall& activation) {
  const FewFilters rows(g);
  return make_kernel(
      message("kerascnn conv2d:", rows.kernels_name()),
      [g, rows, has_bias, activation](const KernelArgs& args) {
        const int64_t image_size = g.input_height * g.input_width * g.input_channels;
        const int64_t row_size = g.output_width * g.output_channels;
        float* kernel = static_cast<float*>(args.workspace);
        rearrange_kernel(g, input<float>(args, 1), kernel);
        parallel_each(g.batch * g.output_height, row_size * g.num_taps(), [&](int64_t i) {
          float* y = output<float>(args, 0) + i * row_size;
          rows.compute_row(input<float>(args, 0) + i / g.output_height * image_size, kernel,
                           i % g.output_height, y);
          apply_epilogue(has_bias ? input<float>(args, 2) : nullptr, activation, y, g.output_width,
                         g.output_channels);
        });
      },
      align_up(g.num_taps() * g.output_channels * kFloat));
}

bool swaps_wgrad(const Conv2DGeometry& g) {
  return g.groups == 1 && g.stride_height == 1 && g.stride_width == 1 && g.dilation_height == 1 &&
         g.dilation_width == 1 && g.output_channels < kEnoughFilters &&
         g.input_channels >= kEnoughChannels && g.pad_top < g.kernel_height &&
         g.pad_bottom < g.kernel_height && g.pad_left < g.kernel_width &&
         g.pad_right < g.kernel_width;
}

Conv2DGeometry swapped_geometry(const Conv2DGeometry& g) {
  Conv2DGeometry swapped = g;
  std::swap(swapped.input_height, swapped.output_height);
  std::swap(swapped.input_width, swapped.output_width);
  std::swap(swapped.input_channels, swapped.output_channels);
  swapped.pad_top = g.kernel_height - 1 - g.pad_top;
  swapped.pad_bottom = g.kernel_height - 1 - g.pad_bottom;
  swapped.pad_left = g.kernel_width - 1 - g.pad_left;
  swapped.pad_right = g.kernel_width - 1 - g.pad_right;
  return swapped;
}

std::unique_ptr<Kernel> make_swapped_wgrad(const Conv2DGeometry& g,
                                           std::unique_ptr<Kernel> swapped) {
  return std::make_unique<SwappedWgrad>(g, std::move(swapped));
}

}  // namespace kerascnn::cpu
