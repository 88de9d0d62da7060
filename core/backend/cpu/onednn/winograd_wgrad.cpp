// The gradient of a convolution to its kernel by Winograd's algorithm. For each of the 36 positions
// of a tile the transformed inputs and gradients of all tiles are multiplied: (channels, tiles) by
// (tiles, filters). Tiles are transformed batch by batch, so that they stay in the caches.
#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include "core/backend/cpu/kernel_util.h"
#include "core/backend/cpu/onednn/primitive_kernel.h"
#include "core/backend/cpu/onednn/winograd.h"
#include "core/backend/cpu/parallel.h"
#include "core/backend/cpu/winograd_kernels.h"
#include "core/backend/cpu/winograd_tiles.h"

namespace kerascnn::cpu::onednn {
namespace {

using dnnl::memory;

// The transforms of a batch of tiles take about this much memory.
constexpr int64_t kBatchBytes = 12 << 20;
constexpr int64_t kLeastBatch = 64;
// Tiles that a thread transforms at a time.
constexpr int64_t kTilesOfShare = 8;

class WinogradWgrad final : public Kernel {
 public:
  WinogradWgrad(const Conv2DGeometry& g, std::unique_ptr<Kernel> direct);

  void run(const KernelArgs& args) override;
  int64_t workspace_bytes() const override {
    return std::max(workspace_, direct_->workspace_bytes());
  }
  std::string description() const override {
    return "kerascnn winograd 4x4, oneDNN " + implementation_;
  }

 private:
  // Adds the products of so many tiles to the sums of one position.
  struct Products {
    dnnl::matmul primitive;
    memory::desc inputs, gradients, sums, scratchpad;
  };

  int64_t reserve(int64_t bytes) {
    const int64_t at = workspace_;
    workspace_ += align_up(bytes);
    return at;
  }
  float* at(const KernelArgs& args, int64_t offset) const {
    return reinterpret_cast<float*>(static_cast<char*>(args.workspace) + offset);
  }
  Products make_products(int64_t tiles);
  void transform(const KernelArgs& args, int64_t first, int64_t count) const;
  void multiply(const KernelArgs& args, const Products& products, int64_t count) const;
  bool finish(const KernelArgs& args) const;

  const WinogradImages images_;
  const std::unique_ptr<Kernel> direct_;
  const int64_t channels_, filters_;
  int64_t batch_;  // tiles
  std::string implementation_;
  Products whole_, rest_;
  int64_t workspace_ = 0;
  int64_t inputs_at_ = 0, gradients_at_ = 0, sums_at_ = 0, scratch_at_ = 0;
  int64_t scratch_bytes_ = 0;  // of each thread
};

WinogradWgrad::Products WinogradWgrad::make_products(int64_t tiles) {
  const memory::desc inputs = plain({channels_, tiles}, memory::format_tag::ba);
  const memory::desc gradients = plain({tiles, filters_}, memory::format_tag::ab);
  const memory::desc sums = plain({channels_, filters_}, memory::format_tag::ab);
  dnnl::post_ops add;
  add.append_sum();
  dnnl::primitive_attr attributes;
  attributes.set_post_ops(add);
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const dnnl::matmul::primitive_desc descriptor(engine(), inputs, gradients, sums, attributes);
  implementation_ = descriptor.impl_info_str();
  scratch_bytes_ = std::max(
      scratch_bytes_, align_up(static_cast<int64_t>(descriptor.scratchpad_desc().get_size())));
  return {dnnl::matmul(descriptor), inputs, gradients, sums, descriptor.scratchpad_desc()};
}

WinogradWgrad::WinogradWgrad(const Conv2DGeometry& g, std::unique_ptr<Kernel> direct)
    : images_(g, false),
      direct_(std::move(direct)),
      channels_(g.input_channels),
      filters_(g.output_channels) {
  const ThreadCountScope threads(1);
  const int64_t bytes = kWinogradPositions * (channels_ + filters_) * kFloat;
  batch_ = std::min(images_.tiles(),
                    std::max(kLeastBatch, kBatchBytes / bytes / kTilesOfShare * kTilesOfShare));
  whole_ = make_products(batch_);
  if (const int64_t rest = images_.tiles() % batch_; rest > 0) rest_ = make_products(rest);
  inputs_at_ = reserve(kWinogradPositions * batch_ * channels_ * kFloat);
  gradients_at_ = reserve(kWinogradPositions * batch_ * filters_ * kFloat);
  sums_at_ = reserve(kWinogradPositions * channels_ * filters_ * kFloat);
  scratch_at_ = reserve(num_threads() * scratch_bytes_);
}

void WinogradWgrad::transform(const KernelArgs& args, int64_t first, int64_t count) const {
  const WinogradKernels& kernels = winograd_kernels();
  const auto* x = input<float>(args, 0);
  const auto* gy = input<float>(args, 1);
  parallel_for(count, kTilesOfShare, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const WinogradPlace place(images_, first + i);
      const int64_t row = place.row - images_.pad_top;
      const int64_t column = place.column - images_.pad_left;
      const int64_t pixel =
          (place.image * images_.input_height + row) * images_.input_width + column;
      kernels.transform_inputs(tile_at(row, column, kWinogradInputs, images_.input_height,
                                       images_.input_width, channels_),
                               x + pixel * channels_, at(args, inputs_at_) + i * channels_,
                               count * channels_);
      const int64_t output_pixel =
          (place.image * images_.output_height + place.row) * images_.output_width + place.column;
      kernels.transform_gradients(tile_at(place.row, place.column, kWinogradTile,
                                          images_.output_height, images_.output_width, filters_),
                                  gy + output_pixel * filters_,
                                  at(args, gradients_at_) + i * filters_, count * filters_);
    }
  });
}

void WinogradWgrad::multiply(const KernelArgs& args, const Products& products,
                             int64_t count) const {
  parallel_tasks(kWinogradPositions, [&](int64_t position, int64_t thread) {
    float* inputs = at(args, inputs_at_) + position * count * channels_;
    float* gradients = at(args, gradients_at_) + position * count * filters_;
    float* sums = at(args, sums_at_) + position * channels_ * filters_;
    execute(products.primitive,
            {{DNNL_ARG_SRC, memory(products.inputs, engine(), inputs)},
             {DNNL_ARG_WEIGHTS, memory(products.gradients, engine(), gradients)},
             {DNNL_ARG_DST, memory(products.sums, engine(), sums)},
             {DNNL_ARG_SCRATCHPAD, memory(products.scratchpad, engine(),
                                          at(args, scratch_at_ + thread * scratch_bytes_))}});
  });
}

// Returns whether the gradient is finite.
bool WinogradWgrad::finish(const KernelArgs& args) const {
  std::atomic<bool> is_finite{true};
  const int64_t size = channels_ * filters_;
  parallel_for(channels_, 1, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      if (!winograd_kernels().transform_sums(at(args, sums_at_) + c * filters_, size, filters_,
                                             output<float>(args, 0) + c * filters_, size)) {
        is_finite = false;
      }
    }
  });
  return is_finite;
}

void WinogradWgrad::run(const KernelArgs& args) {
  float* sums = at(args, sums_at_);
  parallel_for(kWinogradPositions * channels_ * filters_, kElementGrain,
               [&](int64_t begin, int64_t end) { std::fill(sums + begin, sums + end, 0.0f); });
  for (int64_t first = 0; first < images_.tiles(); first += batch_) {
    const int64_t count = std::min(batch_, images_.tiles() - first);
    transform(args, first, count);
    multiply(args, count == batch_ ? whole_ : rest_, count);
  }
  if (!finish(args)) direct_->run(args);
}

}  // namespace

std::unique_ptr<Kernel> make_winograd_wgrad(const Conv2DGeometry& g,
                                            std::unique_ptr<Kernel> direct) {
  return std::make_unique<WinogradWgrad>(g, std::move(direct));
}

}  // namespace kerascnn::cpu::onednn
