#include "core/backend/cpu/onednn/nan_safe_activation.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/backend/cpu/epilogue.h"
#include "core/backend/cpu/float_kernels.h"
#include "core/backend/cpu/kernel_util.h"
#include "core/backend/cpu/parallel.h"

namespace kerascnn::cpu::onednn {

namespace {

// The largest |value|, or NaN where there is one.
double largest_magnitude(const float* values, int64_t count) {
  const auto& kernel = *float_kernels().largest_magnitude;
  std::atomic<uint32_t> largest{0};
  parallel_for(count, kElementGrain, [&](int64_t begin, int64_t end) {
    const uint32_t found = kernel(values + begin, end - begin);
    uint32_t before = largest.load();
    while (before < found && !largest.compare_exchange_weak(before, found)) {
    }
  });
  return std::bit_cast<float>(largest.load());
}

void activate(const ActivationCall& activation, float* values, int64_t count) {
  apply_activation(activation, values, count);
}

void activate(const ActivationCall& activation, BFloat16* values, int64_t count) {
  constexpr int64_t kBlock = 1024;
  float wide[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t size = std::min(kBlock, count - begin);
    widen(values + begin, wide, size);
    apply_activation(activation, wide, size);
    narrow(wide, values + begin, size);
  }
}

template <typename T>
class ActivationAfter final : public Kernel {
 public:
  ActivationAfter(std::unique_ptr<Kernel> linear, int64_t outputs, const ActivationCall& activation)
      : linear_(std::move(linear)), outputs_(outputs), activation_(activation) {}

  void run(const KernelArgs& args) override {
    linear_->run(args);
    parallel_for(outputs_, kElementGrain, [&](int64_t begin, int64_t end) {
      activate(activation_, output<T>(args, 0) + begin, end - begin);
    });
  }
  int64_t workspace_bytes() const override { return linear_->workspace_bytes(); }
  std::string description() const override {
    return linear_->description() + ", then " + std::string(activation_name(activation_.kind));
  }

 private:
  std::unique_ptr<Kernel> linear_;
  int64_t outputs_;
  ActivationCall activation_;
};

class ChoiceByRange final : public Kernel {
 public:
  ChoiceByRange(std::unique_ptr<Kernel> fused, std::unique_ptr<Kernel> with_pass,
                std::vector<int64_t> sizes, int64_t products)
      : fused_(std::move(fused)),
        with_pass_(std::move(with_pass)),
        sizes_(std::move(sizes)),
        products_(static_cast<double>(products)) {}

  void run(const KernelArgs& args) override { (is_safe(args) ? fused_ : with_pass_)->run(args); }
  int64_t workspace_bytes() const override {
    return std::max(fused_->workspace_bytes(), with_pass_->workspace_bytes());
  }
  std::string description() const override { return fused_->description(); }

 private:
  bool is_safe(const KernelArgs& args) const {
    // This leaves room for the roundings of partial sums, each of which is below 2^-23 of their
    // bound.
    constexpr double kLimit = std::numeric_limits<float>::max() / 4.0;
    double bound = largest_magnitude(input<float>(args, 0), sizes_[0]) *
                   largest_magnitude(input<float>(args, 1), sizes_[1]) * products_;
    if (sizes_.size() > 2) bound += largest_magnitude(input<float>(args, 2), sizes_[2]);
    return bound < kLimit;  // false for NaN
  }

  std::unique_ptr<Kernel> fused_;
  std::unique_ptr<Kernel> with_pass_;
  std::vector<int64_t> sizes_;
  double products_;
};

}  // namespace

std::unique_ptr<Kernel> add_activation(std::unique_ptr<Kernel> linear, const TensorSpec& output,
                                       const ActivationCall& activation) {
  return with_type<float, BFloat16>(output.dtype, [&]<typename T>(Type<T>) {
    return std::unique_ptr<Kernel>(std::make_unique<ActivationAfter<T>>(
        std::move(linear), num_elements(output.shape), activation));
  });
}

std::unique_ptr<Kernel> choose_by_range(std::unique_ptr<Kernel> fused,
                                        std::unique_ptr<Kernel> with_pass,
                                        std::vector<int64_t> sizes, int64_t products) {
  return std::make_unique<ChoiceByRange>(std::move(fused), std::move(with_pass), std::move(sizes),
                                         products);
}

}  // namespace kerascnn::cpu::onednn
