#include "core/backend/cpu/onednn/winograd.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include "core/backend/cpu/epilogue.h"
#include "core/backend/cpu/kernel_util.h"
#include "core/backend/cpu/onednn/primitive_kernel.h"
#include "core/backend/cpu/parallel.h"
#include "core/backend/cpu/winograd_kernels.h"
#include "core/backend/cpu/winograd_tiles.h"
#include "core/base/env.h"

namespace kerascnn::cpu::onednn {
namespace {

using dnnl::memory;

// Tiles that one thread takes at a time. Their transforms stay in its cache where there are few
// channels, and where there are many, so many rows make up for reading the kernel's transform.
constexpr int64_t kTilesOfPiece = 64;
// With fewer tiles the transform of the kernel takes as long as what is gained.
constexpr int64_t kLeastTiles = 128;
// Tiles may have this many times the outputs that there are: those beyond the edges are lost.
constexpr double kMostWaste = 1.35;

class WinogradKernel final : public Kernel {
 public:
  WinogradKernel(const WinogradImages& images, bool has_bias, const ActivationCall& activation,
                 std::unique_ptr<Kernel> direct);

  void run(const KernelArgs& args) override;
  int64_t workspace_bytes() const override {
    return std::max(workspace_, direct_->workspace_bytes());
  }
  std::string description() const override {
    return "kerascnn winograd 4x4, oneDNN " + implementation_;
  }

 private:
  // The products of all positions, of so many tiles.
  struct Products {
    dnnl::matmul primitive;
    memory::desc inputs, kernel, outputs, scratchpad;
  };

  int64_t reserve(int64_t bytes) {
    const int64_t at = workspace_;
    workspace_ += align_up(bytes);
    return at;
  }
  Products make_products(int64_t tiles, const memory::desc& kernel);
  void transform_kernel(const KernelArgs& args) const;
  bool run_piece(const KernelArgs& args, int64_t piece, int64_t thread) const;

  const WinogradImages images_;
  const bool has_bias_;
  const ActivationCall activation_;
  const std::unique_ptr<Kernel> direct_;
  std::string implementation_;
  memory::desc plain_kernel_;  // (positions, input channels, output channels)
  Products whole_, rest_;      // of kTilesOfPiece tiles, and of those that are left
  int64_t workspace_ = 0;
  int64_t kernel_at_ = 0;        // the transformed kernel as the products read it
  int64_t plain_kernel_at_ = 0;  // as the transform writes it
  int64_t scratch_at_ = 0;       // inputs, outputs and scratchpad of each thread
  int64_t scratch_bytes_ = 0;
};

WinogradKernel::Products WinogradKernel::make_products(int64_t tiles, const memory::desc& kernel) {
  const int64_t inputs = images_.input_channels;
  const int64_t outputs = images_.output_channels;
  const memory::desc from = plain({kWinogradPositions, tiles, inputs}, memory::format_tag::abc);
  const memory::desc to = plain({kWinogradPositions, tiles, outputs}, memory::format_tag::abc);
  const dnnl::matmul::primitive_desc descriptor(engine(), from, kernel, to, make_attributes({}));
  implementation_ = descriptor.impl_info_str();
  return {dnnl::matmul(descriptor), from, descriptor.weights_desc(), to,
          descriptor.scratchpad_desc()};
}

WinogradKernel::WinogradKernel(const WinogradImages& images, bool has_bias,
                               const ActivationCall& activation, std::unique_ptr<Kernel> direct)
    : images_(images), has_bias_(has_bias), activation_(activation), direct_(std::move(direct)) {
  const ThreadCountScope threads(1);
  const int64_t inputs = images.input_channels;
  const int64_t outputs = images.output_channels;
  const memory::dims sizes{kWinogradPositions, inputs, outputs};
  // The gradient reads the kernel with its channels swapped, which the copy to the products' layout
  // undoes.
  plain_kernel_ =
      plain(sizes, images.is_gradient ? memory::format_tag::acb : memory::format_tag::abc);
  const int64_t rest = images.tiles() % kTilesOfPiece;
  whole_ = make_products(kTilesOfPiece, any_layout(sizes));
  if (rest > 0) rest_ = make_products(rest, whole_.kernel);
  kernel_at_ = reserve(static_cast<int64_t>(whole_.kernel.get_size()));
  plain_kernel_at_ = kernel_at_;
  if (whole_.kernel != plain_kernel_) {
    plain_kernel_at_ = reserve(static_cast<int64_t>(plain_kernel_.get_size()));
  }
  int64_t scratchpad = static_cast<int64_t>(whole_.scratchpad.get_size());
  if (rest > 0) {
    scratchpad = std::max(scratchpad, static_cast<int64_t>(rest_.scratchpad.get_size()));
  }
  scratch_bytes_ = align_up(static_cast<int64_t>(whole_.inputs.get_size())) +
                   align_up(static_cast<int64_t>(whole_.outputs.get_size())) + align_up(scratchpad);
  scratch_at_ = reserve(num_threads() * scratch_bytes_);
}

void WinogradKernel::transform_kernel(const KernelArgs& args) const {
  // The kernel is (3, 3, channels, filters) whichever way it is read.
  const int64_t channels = images_.is_gradient ? images_.output_channels : images_.input_channels;
  const int64_t filters = images_.is_gradient ? images_.input_channels : images_.output_channels;
  const int64_t size = channels * filters;
  char* workspace = static_cast<char*>(args.workspace);
  auto* out = reinterpret_cast<float*>(workspace + plain_kernel_at_);
  parallel_for(channels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      winograd_kernels().transform_kernel(input<float>(args, 1) + c * filters, size, filters,
                                          images_.is_gradient, out + c * filters, size);
    }
  });
  if (plain_kernel_at_ == kernel_at_) return;
  run_pieces(kWinogradPositions, [&](int64_t position, int64_t) {
    const ThreadCountScope threads(1);
    const memory::dims one{1, images_.input_channels, images_.output_channels};
    const memory::dims first{position, 0, 0};
    memory from(plain_kernel_.submemory_desc(one, first), engine(), workspace + plain_kernel_at_);
    memory to(whole_.kernel.submemory_desc(one, first), engine(), workspace + kernel_at_);
    execute(dnnl::reorder(from, to), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
  });
}

// Returns whether all outputs are finite.
bool WinogradKernel::run_piece(const KernelArgs& args, int64_t piece, int64_t thread) const {
  const int64_t first = piece * kTilesOfPiece;
  const int64_t count = std::min(kTilesOfPiece, images_.tiles() - first);
  const Products& products = count == kTilesOfPiece ? whole_ : rest_;
  const int64_t inputs = images_.input_channels;
  const int64_t outputs = images_.output_channels;
  char* kernel = static_cast<char*>(args.workspace) + kernel_at_;
  char* scratch = static_cast<char*>(args.workspace) + scratch_at_ + thread * scratch_bytes_;
  auto* from = reinterpret_cast<float*>(scratch);
  scratch += align_up(static_cast<int64_t>(whole_.inputs.get_size()));
  auto* to = reinterpret_cast<float*>(scratch);
  scratch += align_up(static_cast<int64_t>(whole_.outputs.get_size()));
  const WinogradKernels& kernels = winograd_kernels();
  for (int64_t i = 0; i < count; ++i) {
    const WinogradPlace at(images_, first + i);
    const int64_t row = at.row - images_.pad_top;
    const int64_t column = at.column - images_.pad_left;
    const float* image =
        input<float>(args, 0) +
        ((at.image * images_.input_height + row) * images_.input_width + column) * inputs;
    kernels.transform_inputs(
        tile_at(row, column, kWinogradInputs, images_.input_height, images_.input_width, inputs),
        image, from + i * inputs, count * inputs);
  }
  execute(products.primitive,
          {{DNNL_ARG_SRC, memory(products.inputs, engine(), from)},
           {DNNL_ARG_WEIGHTS, memory(products.kernel, engine(), kernel)},
           {DNNL_ARG_DST, memory(products.outputs, engine(), to)},
           {DNNL_ARG_SCRATCHPAD, memory(products.scratchpad, engine(), scratch)}});
  bool is_finite = true;
  for (int64_t i = 0; i < count; ++i) {
    const WinogradPlace at(images_, first + i);
    float* image =
        output<float>(args, 0) +
        ((at.image * images_.output_height + at.row) * images_.output_width + at.column) * outputs;
    const WinogradTile tile = tile_at(at.row, at.column, kWinogradTile, images_.output_height,
                                      images_.output_width, outputs);
    is_finite &= kernels.transform_outputs(tile, to + i * outputs, count * outputs, image);
    const float* bias = has_bias_ ? input<float>(args, 2) : nullptr;
    if (bias == nullptr && activation_.kind == Activation::Linear) continue;
    for (int64_t r = 0; r < tile.last_row; ++r) {
      apply_epilogue(bias, activation_, image + r * tile.row_step, tile.last_column, outputs);
    }
  }
  return is_finite;
}

void WinogradKernel::run(const KernelArgs& args) {
  transform_kernel(args);
  std::atomic<bool> is_finite{true};
  const int64_t pieces = (images_.tiles() + kTilesOfPiece - 1) / kTilesOfPiece;
  parallel_tasks(pieces, [&](int64_t piece, int64_t thread) {
    if (!run_piece(args, piece, thread)) is_finite = false;
  });
  if (!is_finite) direct_->run(args);
}

}  // namespace

bool gains_from_winograd(const Conv2DGeometry& g) {
  const bool is_allowed = env_flag("KERASCNN_CPU_WINOGRAD", true);
  const bool fits = g.groups == 1 && g.kernel_height == 3 && g.kernel_width == 3 &&
                    g.stride_height == 1 && g.stride_width == 1 && g.dilation_height == 1 &&
                    g.dilation_width == 1 && g.pad_top <= 2 && g.pad_left <= 2 &&
                    g.input_channels % kWinogradChannels == 0 &&
                    g.output_channels % kWinogradChannels == 0;
  if (!is_allowed || !fits) return false;
  const WinogradImages images(g, false);
  const int64_t least = std::min(g.input_channels, g.output_channels);
  // Each thread gets a piece.
  const int64_t least_tiles = std::max(kLeastTiles, kTilesOfPiece * num_threads());
  return least >= 2 * kWinogradChannels && images.tiles() >= least_tiles &&
         images.waste() <= kMostWaste && WinogradImages(g, true).waste() <= kMostWaste;
}

std::unique_ptr<Kernel> make_winograd_conv2d(const Conv2DGeometry& g, bool has_bias,
                                             const ActivationCall& activation,
                                             std::unique_ptr<Kernel> direct) {
  return std::make_unique<WinogradKernel>(WinogradImages(g, false), has_bias, activation,
                                          std::move(direct));
}

std::unique_ptr<Kernel> make_winograd_dgrad(const Conv2DGeometry& g,
                                            std::unique_ptr<Kernel> direct) {
  return std::make_unique<WinogradKernel>(WinogradImages(g, true), false, ActivationCall{},
                                          std::move(direct));
}

}  // namespace kerascnn::cpu::onednn
