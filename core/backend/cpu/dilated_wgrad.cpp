#include "core/backend/cpu/dilated_wgrad.h"

#include <algorithm>
#include <utility>

#include "core/backend/cpu/float_kernels.h"
#include "core/backend/cpu/kernel_util.h"
#include "core/backend/cpu/parallel.h"

namespace kerascnn::cpu {

namespace {

// Copies of image and gradient may take this much memory.
constexpr int64_t kMostBytes = int64_t{1} << 28;

int64_t ceil_divide(int64_t size, int64_t divisor) { return (size + divisor - 1) / divisor; }

// Images (n, height, width, c) and their phases, (n * dilations, phase height, phase width, c).
struct Phases {
  int64_t images, height, width, channels;
  int64_t dilation_height, dilation_width;

  int64_t rows() const { return ceil_divide(height, dilation_height); }
  int64_t columns() const { return ceil_divide(width, dilation_width); }
  int64_t count() const { return images * dilation_height * dilation_width; }
  int64_t size() const { return count() * rows() * columns() * channels; }
  int64_t bytes() const { return align_up(size() * kFloat); }
  bool are_whole() const { return height % dilation_height == 0 && width % dilation_width == 0; }

  // A row of a phase; what is beside the image is zero.
  void copy_row(const float* from, int64_t phase, int64_t row, float* to) const {
    const int64_t top = phase / dilation_width % dilation_height, left = phase % dilation_width;
    const int64_t image = phase / (dilation_height * dilation_width);
    const int64_t y = top + row * dilation_height;
    float* end = to + columns() * channels;
    if (y < height) {
      from += (image * height + y) * width * channels;
      for (int64_t x = left; x < width; x += dilation_width, to += channels) {
        std::copy(from + x * channels, from + (x + 1) * channels, to);
      }
    }
    std::fill(to, end, 0.0f);
  }

  void copy(const float* from, float* to) const {
    const int64_t row_size = columns() * channels;
    parallel_each(count() * rows(), row_size,
                  [&](int64_t i) { copy_row(from, i / rows(), i % rows(), to + i * row_size); });
  }
};

Phases phases_of_image(const Conv2DGeometry& g) {
  return {g.batch,          g.input_height,    g.input_width,
          g.input_channels, g.dilation_height, g.dilation_width};
}

Phases phases_of_result(const Conv2DGeometry& g) {
  return {g.batch,           g.output_height,   g.output_width,
          g.output_channels, g.dilation_height, g.dilation_width};
}

class DilatedWgrad final : public Kernel {
 public:
  DilatedWgrad(const Conv2DGeometry& g, std::unique_ptr<Kernel> phases,
               std::unique_ptr<Kernel> otherwise)
      : g_(g),
        image_(phases_of_image(g)),
        result_(phases_of_result(g)),
        phases_(std::move(phases)),
        otherwise_(std::move(otherwise)) {}

  void run(const KernelArgs& args) override {
    char* workspace = static_cast<char*>(args.workspace);
    auto* image = reinterpret_cast<float*>(workspace);
    auto* gradient = reinterpret_cast<float*>(workspace + image_.bytes());
    image_.copy(input<float>(args, 0), image);
    result_.copy(input<float>(args, 1), gradient);
    const void* inputs[] = {image, gradient};
    phases_->run({inputs, args.outputs, workspace + copies_bytes(), args.stream});
    if (image_.are_whole() && result_.are_whole()) return;
    constexpr uint32_t kInfinity = 0x7f800000;
    const int64_t size = g_.num_taps() * g_.output_channels;
    if (float_kernels().largest_magnitude(output<float>(args, 0), size) >= kInfinity) {
      otherwise_->run(args);
    }
  }

  int64_t workspace_bytes() const override {
    return std::max(copies_bytes() + phases_->workspace_bytes(), otherwise_->workspace_bytes());
  }
  std::string description() const override { return phases_->description() + " of phases"; }

 private:
  int64_t copies_bytes() const { return image_.bytes() + result_.bytes(); }

  const Conv2DGeometry g_;
  const Phases image_, result_;
  const std::unique_ptr<Kernel> phases_, otherwise_;
};

}  // namespace

bool has_phases(const Conv2DGeometry& g) {
  const Phases image = phases_of_image(g), result = phases_of_result(g);
  return g.groups == 1 && g.dilation_height * g.dilation_width > 1 && g.stride_height == 1 &&
         g.stride_width == 1 && g.pad_top % g.dilation_height == 0 &&
         g.pad_left % g.dilation_width == 0 && result.rows() >= g.kernel_height &&
         result.columns() >= g.kernel_width && image.bytes() + result.bytes() <= kMostBytes;
}

Conv2DGeometry phase_geometry(const Conv2DGeometry& g) {
  const Phases image = phases_of_image(g), result = phases_of_result(g);
  Conv2DGeometry phase = g;
  phase.batch = image.count();
  phase.input_height = image.rows();
  phase.input_width = image.columns();
  phase.output_height = result.rows();
  phase.output_width = result.columns();
  phase.pad_top = g.pad_top / g.dilation_height;
  phase.pad_left = g.pad_left / g.dilation_width;
  phase.pad_bottom = result.rows() + g.kernel_height - 1 - image.rows() - phase.pad_top;
  phase.pad_right = result.columns() + g.kernel_width - 1 - image.columns() - phase.pad_left;
  phase.dilation_height = phase.dilation_width = 1;
  return phase;
}

std::unique_ptr<Kernel> make_dilated_wgrad(const Conv2DGeometry& g, std::unique_ptr<Kernel> phases,
                                           std::unique_ptr<Kernel> otherwise) {
  return std::make_unique<DilatedWgrad>(g, std::move(phases), std::move(otherwise));
}

}  // namespace kerascnn::cpu
