// A convolution of few channels with max pooling after it, without a full-size output: the first
// layer of most networks.
#include <algorithm>

#include "core/backend/cpu/conv_pool.h"
#include "core/backend/cpu/kernel_util.h"
#include "core/backend/cpu/parallel.h"

namespace kerascnn::cpu {

namespace {

SmallWindow small_window(const ConvPool& g) {
  return {.places = g.pool.output_width,
          .step = g.place_step,
          .row_step = g.row_step,
          .column_step = g.column_step,
          .image_row_step = g.row,
          .filters = g.conv.output_channels,
          .kernel_rows = g.conv.kernel_height,
          .run = g.run};
}

// Filters filled up to whole vectors.
int64_t whole(const ConvPool& g, int64_t width) {
  return (g.conv.output_channels + width - 1) / width * width;
}

// An image with its padding, what a window that hangs over its last row might touch, and the rest
// of a vector.
int64_t padded_size(const ConvPool& g, int64_t width) {
  return g.padded_size() + g.row_step + width;
}

void pad(const ConvPool& g, const float* image, int64_t width, float* out) {
  g.pad_rows(image, 0, g.rows, out);
  std::fill_n(out + g.padded_size(), g.row_step + width, 0.0f);
}

class SmallWgrad final : public Kernel {
 public:
  SmallWgrad(const ConvPool& g, std::unique_ptr<Kernel> otherwise)
      : g_(g),
        kernels_(conv_pool_kernels()),
        window_(small_window(g)),
        otherwise_(std::move(otherwise)) {}

  void run(const KernelArgs& args) override {
    if (!all_finite(input<float>(args, g_.at.x), g_.conv.batch * g_.image_size())) {
      return otherwise_->run(args);
    }
    std::atomic<bool> is_finite{true};
    parallel_tasks(g_.num_shares(), [&](int64_t share, int64_t) {
      const Memory m = cut(args, share);
      std::fill_n(m.kernel, kernel_size(), 0.0f);
      std::fill_n(m.bias, filters(), 0.0);
      for (int64_t image = g_.share_begin(share); image < g_.share_begin(share + 1); ++image) {
        one_image(args, image, m);
      }
      if (!all_finite(m.bias, filters())) is_finite = false;
    });
    if (!is_finite) return otherwise_->run(args);
    add_shares(args);
  }

  int64_t workspace_bytes() const override {
    return std::max(otherwise_->workspace_bytes(), g_.num_shares() * share_bytes());
  }
  std::string description() const override {
    return message("kerascnn small gradient:", kernels_.name);
  }

 private:
  struct Memory {
    float* kernel;  // (blocks of filters, rows, run, width)
    double* bias;
    float* sums;
    float* image;
    int64_t bytes;
  };

  int64_t filters() const { return whole(g_, kernels_.width); }
  int64_t kernel_size() const { return filters() * g_.conv.kernel_height * g_.run; }
  Memory cut(char* memory) const {
    Scratch scratch(memory);
    Memory m;
    m.kernel = scratch.take<float>(kernel_size());
    m.bias = scratch.take<double>(filters());
    m.sums = scratch.take<float>(filters());
    m.image = scratch.take<float>(padded_size(g_, kernels_.width));
    m.bytes = scratch.bytes();
    return m;
  }
  int64_t share_bytes() const { return cut(nullptr).bytes; }
  Memory cut(const KernelArgs& args, int64_t share) const {
    return cut(static_cast<char*>(args.workspace) + share * share_bytes());
  }

  void one_image(const KernelArgs& args, int64_t image, const Memory& m) const {
    pad(g_, input<float>(args, g_.at.x) + image * g_.image_size(), kernels_.width, m.image);
    for (int64_t row = 0; row < g_.pool.output_height; ++row) {
      std::fill_n(m.sums, filters(), 0.0f);
      kernels_.small_wgrad(window_, g_.gradients(args, image, row), g_.pool.window_width,
                           m.image + row * g_.place_row_step, m.kernel, m.sums);
      for (int64_t i = 0; i < filters(); ++i) m.bias[i] += m.sums[i];
    }
  }

  // The shares are added in their order, whoever has computed them: to those of the first one.
  void add_shares(const KernelArgs& args) const {
    const int64_t taps = g_.conv.kernel_height * g_.run;
    const int64_t count = g_.conv.output_channels;
    const int64_t size = kernel_size();
    const Memory first = cut(args, 0);
    for (int64_t share = 1; share < g_.num_shares(); ++share) {
      const Memory more = cut(args, share);
      for (int64_t i = 0; i < size; ++i) first.kernel[i] += more.kernel[i];
      for (int64_t i = 0; i < count; ++i) first.bias[i] += more.bias[i];
    }
    float* gkernel = output<float>(args, 0);
    for (int64_t tap = 0; tap < taps; ++tap) {
      for (int64_t filter = 0; filter < count; ++filter) {
        const int64_t block = filter / kernels_.width;
        const int64_t at = (block * taps + tap) * kernels_.width + filter % kernels_.width;
        gkernel[tap * count + filter] = first.kernel[at];
      }
    }
    float* gbias = optional_output<float>(args, 1);
    for (int64_t i = 0; gbias != nullptr && i < count; ++i) {
      gbias[i] = static_cast<float>(first.bias[i]);
    }
  }

  ConvPool g_;
  const ConvPoolKernels& kernels_;
  SmallWindow window_;
  std::unique_ptr<Kernel> otherwise_;
};

class SmallForward final : public Kernel {
 public:
  SmallForward(const ConvPool& g, bool has_bias)
      : g_(g), kernels_(conv_pool_kernels()), window_(small_window(g)), has_bias_(has_bias) {}

  void run(const KernelArgs& args) override {
    char* memory = static_cast<char*>(args.workspace);
    float* kernel = reinterpret_cast<float*>(memory);
    float* bias = reinterpret_cast<float*>(memory + align_up(kernel_size() * kFloat));
    cut_weights(args, kernel, bias);
    parallel_tasks(g_.num_shares(), [&](int64_t share, int64_t thread) {
      auto* padded = reinterpret_cast<float*>(
          memory + weight_bytes() + thread * align_up(padded_size(g_, kernels_.width) * kFloat));
      for (int64_t image = g_.share_begin(share); image < g_.share_begin(share + 1); ++image) {
        one_image(args, image, kernel, bias, padded);
      }
    });
  }

  int64_t workspace_bytes() const override {
    return weight_bytes() + num_threads() * align_up(padded_size(g_, kernels_.width) * kFloat);
  }
  std::string description() const override {
    return message("kerascnn small convolution:", kernels_.name);
  }

 private:
  int64_t filters() const { return whole(g_, kernels_.width); }
  int64_t kernel_size() const { return filters() * g_.conv.kernel_height * g_.run; }
  int64_t weight_bytes() const {
    return align_up(kernel_size() * kFloat) + align_up(filters() * kFloat);
  }

  void cut_weights(const KernelArgs& args, float* kernel, float* bias) const {
    const int64_t taps = g_.conv.kernel_height * g_.run;
    const int64_t count = g_.conv.output_channels;
    for (int64_t filter = 0; filter < filters(); ++filter) {
      const int64_t block = filter / kernels_.width;
      const bool is_real = filter < count;
      for (int64_t tap = 0; tap < taps; ++tap) {
        kernel[(block * taps + tap) * kernels_.width + filter % kernels_.width] =
            is_real ? input<float>(args, 1)[tap * count + filter] : 0.0f;
      }
      bias[filter] = is_real && has_bias_ ? input<float>(args, 2)[filter] : 0.0f;
    }
  }

  void one_image(const KernelArgs& args, int64_t image, const float* kernel, const float* bias,
                 float* padded) const {
    pad(g_, input<float>(args, 0) + image * g_.image_size(), kernels_.width, padded);
    float* y = output<float>(args, 0) + image * g_.pooled_size();
    uint8_t* index = output<uint8_t>(args, 1);
    if (index != nullptr) index += image * g_.pooled_size();
    for (int64_t row = 0; row < g_.pool.output_height; ++row) {
      const int64_t at = row * g_.pooled_row();
      kernels_.small_forward(window_, g_.relu, padded + row * g_.place_row_step, kernel, bias,
                             y + at, index == nullptr ? index : index + at);
    }
  }

  ConvPool g_;
  const ConvPoolKernels& kernels_;
  SmallWindow window_;
  bool has_bias_;
};

}  // namespace

bool takes_small_wgrad(const ConvPool& g) {
  const int64_t reach = (g.pool.window_width - 1) * g.column_step + g.run;
  return conv_pool_kernels().takes_small(g.pool.window_height, g.pool.window_width, reach);
}

std::unique_ptr<Kernel> make_small_wgrad(const ConvPool& g, std::unique_ptr<Kernel> otherwise) {
  return std::make_unique<SmallWgrad>(g, std::move(otherwise));
}

// Where there are more channels, oneDNN's convolution is faster.
bool takes_small_forward(const ConvPool& g) {
  return g.conv.input_channels < 16 && g.pool.window_height == 2 && g.pool.window_width == 2;
}

std::unique_ptr<Kernel> make_small_forward(const ConvPool& g, bool has_bias) {
  return std::make_unique<SmallForward>(g, has_bias);
}

}  // namespace kerascnn::cpu
