// Images are packed band by band, a vector of channels at a time, so that what the loops read lies
// side by side in a cache, whatever the number of channels.
#include "core/backend/cpu/depthwise_wgrad.h"

#include <algorithm>
#include <utility>

#include "core/backend/cpu/depthwise_kernels.h"
#include "core/backend/cpu/float_kernels.h"
#include "core/backend/cpu/kernel_util.h"
#include "core/backend/cpu/parallel.h"

namespace kerascnn::cpu {

namespace {

// A band of a packed image has about this size, a part of the second-level cache.
constexpr int64_t kBandBytes = 128 << 10;

int64_t round_up(int64_t count, int64_t unit) { return (count + unit - 1) / unit * unit; }

class DepthwiseWgrad final : public Kernel {
 public:
  DepthwiseWgrad(const Conv2DGeometry& g, std::unique_ptr<Kernel> otherwise);

  void run(const KernelArgs& args) override;
  int64_t workspace_bytes() const override {
    return std::max(otherwise_->workspace_bytes(), sums_bytes() + num_threads() * scratch_bytes());
  }
  std::string description() const override {
    return message("kerascnn depthwise gradient:", kernels_.name);
  }

 private:
  int64_t sums_size() const { return g_.kernel_height * g_.kernel_width * width_; }
  int64_t sums_bytes() const { return align_up(parts_ * blocks_ * sums_size() * kFloat); }
  int64_t band_size() const {
    return ((band_ - 1) * g_.stride_height + reach_height_) * packed_width_ * width_;
  }
  int64_t scratch_bytes() const {
    return align_up(band_size() * kFloat) + align_up(pixels_ * width_ * kFloat);
  }
  float* sums_of(const KernelArgs& args, int64_t part, int64_t block) const {
    return static_cast<float*>(args.workspace) + (part * blocks_ + block) * sums_size();
  }
  void pack_band(const float* image, int64_t first, int64_t rows, int64_t channels,
                 float* packed) const;
  void add_image(const KernelArgs& args, int64_t image, int64_t block, float* sums,
                 float* scratch) const;
  void add_row(const float* packed, const float* gradients, float* sums) const;
  void add_parts(const KernelArgs& args) const;

  const Conv2DGeometry g_;
  const DepthwiseKernels& kernels_;
  const std::unique_ptr<Kernel> otherwise_;
  const int64_t width_;                 // channels of a vector
  const int64_t blocks_;                // of so many channels
  int64_t parts_;                       // of the images, each with sums of its own
  int64_t reach_height_, reach_width_;  // of the kernel with its dilation
  int64_t pixels_;                      // of a packed row of gradients
  int64_t packed_width_;                // pixels of a packed row of the image
  int64_t band_;                        // rows of gradients
  int64_t row_pieces_, column_pieces_;  // of the kernel
};

DepthwiseWgrad::DepthwiseWgrad(const Conv2DGeometry& g, std::unique_ptr<Kernel> otherwise)
    : g_(g),
      kernels_(depthwise_kernels()),
      otherwise_(std::move(otherwise)),
      width_(kernels_.width),
      blocks_(round_up(g.input_channels, width_) / width_) {
  const int64_t tasks = num_threads() == 1 ? 1 : num_threads() * kPiecesOfThread;
  parts_ = std::clamp<int64_t>(round_up(tasks, blocks_) / blocks_, 1, g.batch);
  reach_height_ = (g.kernel_height - 1) * g.dilation_height + 1;
  reach_width_ = (g.kernel_width - 1) * g.dilation_width + 1;
  pixels_ = round_up(g.output_width, kDepthwisePixels);
  packed_width_ = (pixels_ - 1) * g.stride_width + reach_width_;
  const int64_t rows = kBandBytes / (packed_width_ * width_ * kFloat);
  band_ = std::clamp<int64_t>((rows - reach_height_) / g.stride_height + 1, 1, g.output_height);
  const int64_t most_columns = std::min(kMostDepthwiseColumns, kernels_.most_sums);
  column_pieces_ = round_up(g.kernel_width, most_columns) / most_columns;
  const int64_t columns = round_up(g.kernel_width, column_pieces_) / column_pieces_;
  const int64_t rows_of_piece =
      std::clamp<int64_t>(kernels_.most_sums / columns, 1, kMostDepthwiseRows);
  row_pieces_ = round_up(g.kernel_height, rows_of_piece) / rows_of_piece;
}

// Packs rows of the padded image from `first` on, which may begin above the image and end below.
void DepthwiseWgrad::pack_band(const float* image, int64_t first, int64_t rows, int64_t channels,
                               float* packed) const {
  const int64_t inside = std::min(g_.input_width, packed_width_ - g_.pad_left);
  for (int64_t y = first; y < first + rows; ++y, packed += packed_width_ * width_) {
    if (y < 0 || y >= g_.input_height || inside <= 0) {
      std::fill_n(packed, packed_width_ * width_, 0.0f);
      continue;
    }
    float* begin = packed + g_.pad_left * width_;
    std::fill(packed, begin, 0.0f);
    kernels_.pack(image + y * g_.input_width * g_.input_channels, inside, g_.input_channels,
                  channels, begin);
    std::fill(begin + inside * width_, packed + packed_width_ * width_, 0.0f);
  }
}

void DepthwiseWgrad::add_row(const float* packed, const float* gradients, float* sums) const {
  const DepthwiseRow row{.pixels = pixels_,
                         .step = g_.stride_width,
                         .tap_step = g_.dilation_width,
                         .tap_row = g_.dilation_height * packed_width_,
                         .kernel_row = g_.kernel_width};
  for (int64_t i = 0; i < row_pieces_; ++i) {
    const int64_t top = g_.kernel_height * i / row_pieces_;
    const int64_t rows = g_.kernel_height * (i + 1) / row_pieces_ - top;
    for (int64_t j = 0; j < column_pieces_; ++j) {
      const int64_t left = g_.kernel_width * j / column_pieces_;
      const int64_t columns = g_.kernel_width * (j + 1) / column_pieces_ - left;
      kernels_.sum_row({static_cast<int>(rows), static_cast<int>(columns)}, row,
                       packed + (top * row.tap_row + left * row.tap_step) * width_, gradients,
                       sums + (top * g_.kernel_width + left) * width_);
    }
  }
}

void DepthwiseWgrad::add_image(const KernelArgs& args, int64_t image, int64_t block, float* sums,
                               float* scratch) const {
  const int64_t channel = block * width_;
  const int64_t channels = std::min(width_, g_.input_channels - channel);
  const float* x =
      input<float>(args, 0) + image * g_.input_height * g_.input_width * g_.input_channels;
  const float* gy =
      input<float>(args, 1) + image * g_.output_height * g_.output_width * g_.output_channels;
  float* gradients = scratch + align_up(band_size() * kFloat) / kFloat;
  std::fill(gradients + g_.output_width * width_, gradients + pixels_ * width_, 0.0f);
  for (int64_t first = 0; first < g_.output_height; first += band_) {
    const int64_t rows = std::min(band_, g_.output_height - first);
    pack_band(x + channel, first * g_.stride_height - g_.pad_top,
              (rows - 1) * g_.stride_height + reach_height_, channels, scratch);
    for (int64_t row = 0; row < rows; ++row) {
      kernels_.pack(gy + (first + row) * g_.output_width * g_.output_channels + channel,
                    g_.output_width, g_.output_channels, channels, gradients);
      add_row(scratch + row * g_.stride_height * packed_width_ * width_, gradients, sums);
    }
  }
}

// The parts are added in their order, whoever has computed them.
void DepthwiseWgrad::add_parts(const KernelArgs& args) const {
  float* gkernel = output<float>(args, 0);
  const int64_t taps = g_.kernel_height * g_.kernel_width;
  parallel_each(taps * blocks_, parts_ * width_, [&](int64_t i) {
    const int64_t tap = i / blocks_;
    const int64_t block = i % blocks_;
    const int64_t channels = std::min(width_, g_.input_channels - block * width_);
    for (int64_t c = 0; c < channels; ++c) {
      float sum = 0;
      for (int64_t part = 0; part < parts_; ++part) {
        sum += sums_of(args, part, block)[tap * width_ + c];
      }
      gkernel[tap * g_.output_channels + block * width_ + c] = sum;
    }
  });
}

void DepthwiseWgrad::run(const KernelArgs& args) {
  parallel_tasks(parts_ * blocks_, [&](int64_t task, int64_t thread) {
    const int64_t part = task / blocks_;
    const int64_t block = task % blocks_;
    float* sums = sums_of(args, part, block);
    std::fill_n(sums, sums_size(), 0.0f);
    auto* scratch = reinterpret_cast<float*>(static_cast<char*>(args.workspace) + sums_bytes() +
                                             thread * scratch_bytes());
    for (int64_t image = g_.batch * part / parts_; image < g_.batch * (part + 1) / parts_;
         ++image) {
      add_image(args, image, block, sums, scratch);
    }
  });
  add_parts(args);
  constexpr uint32_t kInfinity = 0x7f800000;
  const int64_t size = g_.kernel_height * g_.kernel_width * g_.output_channels;
  if (float_kernels().largest_magnitude(output<float>(args, 0), size) >= kInfinity) {
    otherwise_->run(args);
  }
}

}  // namespace

bool takes_depthwise_wgrad(const Conv2DGeometry& g) {
  const bool has_output = g.batch * g.output_height * g.output_width > 0;
  return g.groups > 1 && g.groups == g.input_channels && g.groups == g.output_channels &&
         has_output;
}

std::unique_ptr<Kernel> make_depthwise_wgrad(const Conv2DGeometry& g,
                                             std::unique_ptr<Kernel> otherwise) {
  return std::make_unique<DepthwiseWgrad>(g, std::move(otherwise));
}

}  // namespace kerascnn::cpu
