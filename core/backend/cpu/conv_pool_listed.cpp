// The gradients of a convolution with max pooling after it, by lists of the places that have a
// gradient.
#include <algorithm>
#include <vector>

#include "core/backend/cpu/conv_pool.h"
#include "core/backend/cpu/kernel_util.h"
#include "core/backend/cpu/parallel.h"

namespace kerascnn::cpu {

namespace {

// Bytes that stay in the first-level cache beside what passes through it.
constexpr int64_t kCachedBytes = 40 * 1024;

// A piece of a patch, and where it begins.
struct PlacedPiece {
  PatchPiece piece;
  int64_t row;      // of the kernel
  int64_t element;  // of the run
  int64_t image_offset;
  int64_t kernel_offset;  // of the piece of filter 0 among all pieces
};

struct Pieces {
  std::vector<PlacedPiece> all;
  int64_t kernel_size = 0;  // elements of all pieces of all filters

  // Each piece has at most `most_sums` vectors; all are of nearly equal size.
  Pieces(const ConvPool& g, int64_t width, int64_t most_sums) {
    const int64_t vectors = (g.run + width - 1) / width;
    for (int64_t row = 0; row < g.conv.kernel_height;) {
      const int64_t rows = std::min<int64_t>(
          {g.conv.kernel_height - row, kMostPieceRows, std::max<int64_t>(1, most_sums)});
      const int64_t most = std::clamp<int64_t>(most_sums / rows, 1, kMostPieceColumns);
      const int64_t blocks = (vectors + most - 1) / most;
      for (int64_t block = 0; block < blocks; ++block) {
        const int64_t first = vectors * block / blocks;
        const int64_t columns = vectors * (block + 1) / blocks - first;
        add(g, {static_cast<int>(rows), static_cast<int>(columns), g.row}, row, first * width,
            width);
      }
      row += rows;
    }
  }

 private:
  void add(const ConvPool& g, const PatchPiece& piece, int64_t row, int64_t element,
           int64_t width) {
    all.push_back({piece, row, element, row * g.row + element, kernel_size});
    kernel_size += g.conv.output_channels * piece.rows * piece.columns * width;
  }
};

// Calls body(row of the kernel, element of the run, filter, element of the pieces) for what the
// piece has of a filter.
template <typename Body>
void for_each_element(const ConvPool& g, const PlacedPiece& placed, int64_t width,
                      const Body& body) {
  const int64_t columns = placed.piece.columns * width;
  const int64_t count = std::min(columns, g.run - placed.element);
  for (int64_t i = 0; i < placed.piece.rows; ++i) {
    for (int64_t j = 0; j < count; ++j) {
      for (int64_t filter = 0; filter < g.conv.output_channels; ++filter) {
        const int64_t at = (filter * placed.piece.rows + i) * columns + j;
        body(placed.row + i, placed.element + j, filter, placed.kernel_offset + at);
      }
    }
  }
}

class ListedDgrad final : public Kernel {
 public:
  ListedDgrad(const ConvPool& g, std::unique_ptr<Kernel> otherwise)
      : g_(g),
        kernels_(conv_pool_kernels()),
        pieces_(g, kernels_.width, most_sums(g, kernels_)),
        otherwise_(std::move(otherwise)) {}

  void run(const KernelArgs& args) override {
    const float* kernel = input<float>(args, g_.at.kernel);
    const int64_t kernel_elements = g_.conv.kernel_height * g_.run * g_.conv.output_channels;
    if (!all_finite(kernel, kernel_elements)) return otherwise_->run(args);
    float* pieces = static_cast<float*>(args.workspace);
    cut_kernel(kernel, pieces);
    std::atomic<bool> is_finite{true};
    parallel_tasks(g_.num_shares(), [&](int64_t share, int64_t thread) {
      char* memory = static_cast<char*>(args.workspace) + align_up(pieces_.kernel_size * kFloat) +
                     thread * thread_bytes();
      for (int64_t image = g_.share_begin(share); image < g_.share_begin(share + 1); ++image) {
        if (is_finite && !one_image(args, image, pieces, memory)) is_finite = false;
      }
    });
    if (!is_finite) otherwise_->run(args);
  }

  int64_t workspace_bytes() const override {
    return std::max(otherwise_->workspace_bytes(),
                    align_up(pieces_.kernel_size * kFloat) + num_threads() * thread_bytes());
  }
  std::string description() const override {
    return message("kerascnn listed gradients:", kernels_.name);
  }

 private:
  static int64_t most_sums(const ConvPool& g, const ConvPoolKernels& kernels) {
    const int64_t vector = kernels.width * kFloat * g.conv.output_channels;
    return std::clamp<int64_t>(kCachedBytes / vector, 4, kernels.most_sums);
  }

  int64_t num_lists() const { return g_.pool.output_width * g_.window(); }

  // Memory of a thread: the image, and the lists of a row of places.
  struct Memory {
    float* image;
    int32_t* places;
    int32_t* ends;
    float* gradients;
    int32_t* filters;
    int64_t bytes;
  };
  Memory cut(char* memory) const {
    Scratch scratch(memory);
    Memory m;
    m.image = scratch.take<float>(g_.padded_size() + kernels_.width);
    m.places = scratch.take<int32_t>(num_lists());
    m.ends = scratch.take<int32_t>(num_lists());
    m.gradients = scratch.take<float>(g_.pooled_row() + kernels_.width);
    m.filters = scratch.take<int32_t>(g_.pooled_row() + kernels_.width);
    m.bytes = scratch.bytes();
    return m;
  }
  int64_t thread_bytes() const { return cut(nullptr).bytes; }

  void cut_kernel(const float* kernel, float* pieces) const {
    if (g_.run % kernels_.width != 0) std::fill(pieces, pieces + pieces_.kernel_size, 0.0f);
    const int64_t filters = g_.conv.output_channels;
    for (const PlacedPiece& placed : pieces_.all) {
      for_each_element(g_, placed, kernels_.width,
                       [&](int64_t row, int64_t element, int64_t filter, int64_t at) {
                         pieces[at] = kernel[(row * g_.run + element) * filters + filter];
                       });
    }
  }

  // False where a gradient is not finite.
  bool one_image(const KernelArgs& args, int64_t image, const float* pieces, char* memory) const {
    const Memory m = cut(memory);
    std::fill(m.image, m.image + g_.padded_size() + kernels_.width, 0.0f);
    for (int64_t place = 0; place < g_.pool.output_width; ++place) {
      for (int64_t position = 0; position < g_.window(); ++position) {
        m.places[place * g_.window() + position] =
            static_cast<int32_t>(place * g_.place_step + g_.offset(position));
      }
    }
    for (int64_t row = 0; row < g_.pool.output_height; ++row) {
      const FilterLists lists{g_.pool.output_width,
                              static_cast<int>(g_.window()),
                              m.places,
                              m.ends,
                              m.gradients,
                              m.filters};
      kernels_.list_filters(g_.gradients(args, image, row), lists);
      if (!all_finite(m.gradients, m.ends[num_lists() - 1])) return false;
      for (const PlacedPiece& placed : pieces_.all) {
        kernels_.add_patches(placed.piece, lists, pieces + placed.kernel_offset,
                             m.image + row * g_.place_row_step + placed.image_offset);
      }
    }
    crop(m.image, output<float>(args, 0) + image * g_.image_size());
    return true;
  }

  void crop(const float* padded, float* image) const {
    const int64_t inside = g_.conv.input_width * g_.conv.input_channels;
    padded += g_.conv.pad_top * g_.row + g_.conv.pad_left * g_.conv.input_channels;
    for (int64_t i = 0; i < g_.conv.input_height; ++i) {
      std::copy(padded + i * g_.row, padded + i * g_.row + inside, image + i * inside);
    }
  }

  ConvPool g_;
  const ConvPoolKernels& kernels_;
  Pieces pieces_;
  std::unique_ptr<Kernel> otherwise_;
};

class ListedWgrad final : public Kernel {
 public:
  ListedWgrad(const ConvPool& g, std::unique_ptr<Kernel> otherwise)
      : g_(g),
        kernels_(conv_pool_kernels()),
        pieces_(g, kernels_.width, kernels_.most_sums),
        otherwise_(std::move(otherwise)),
        band_(band_rows(g)) {
    offsets_.resize(256);
    share_bytes_ = cut(nullptr).bytes;
    for (int64_t i = 0; i < g.window(); ++i) {
      offsets_[static_cast<size_t>(i)] = static_cast<int32_t>(g.offset(i));
    }
  }

  void run(const KernelArgs& args) override {
    std::atomic<bool> is_finite{true};
    parallel_tasks(g_.num_shares(), [&](int64_t share, int64_t) {
      if (!one_share(args, share)) is_finite = false;
    });
    if (!is_finite) return otherwise_->run(args);
    add_shares(args);
  }

  int64_t workspace_bytes() const override {
    return std::max(otherwise_->workspace_bytes(), g_.num_shares() * share_bytes_);
  }
  std::string description() const override {
    return message("kerascnn listed gradients:", kernels_.name);
  }

 private:
  // Rows of places that are listed at a time: so many that their part of the image stays in the
  // cache, but enough places for each filter's list to be worth its sums.
  static int64_t band_rows(const ConvPool& g) {
    constexpr int64_t kLeastPlaces = 32;
    int64_t rows = (kLeastPlaces + g.pool.output_width - 1) / g.pool.output_width;
    while (rows < g.pool.output_height && image_rows(g, rows + 1) * g.row * kFloat < kCachedBytes) {
      ++rows;
    }
    return std::min(rows, g.pool.output_height);
  }
  static int64_t image_rows(const ConvPool& g, int64_t band) {
    const int64_t conv_rows = (band - 1) * g.pool.stride_height + g.pool.window_height;
    return (conv_rows - 1) * g.conv.stride_height + g.conv.kernel_height;
  }

  // What each share has.
  struct Memory {
    float* kernel;  // in pieces
    double* bias;
    float* sums;
    int32_t* counts;
    PlacedGradient* lists;
    float* image;
    int64_t bytes;
  };
  Memory cut(char* memory) const {
    const int64_t filters = g_.conv.output_channels;
    Scratch scratch(memory);
    Memory m;
    m.kernel = scratch.take<float>(pieces_.kernel_size);
    m.bias = scratch.take<double>(filters);
    m.sums = scratch.take<float>(filters);
    m.counts = scratch.take<int32_t>(filters);
    m.lists = scratch.take<PlacedGradient>(filters * capacity());
    m.image = scratch.take<float>(image_rows(g_, band_) * g_.row + kernels_.width);
    m.bytes = scratch.bytes();
    return m;
  }
  char* memory_of(const KernelArgs& args, int64_t share) const {
    return static_cast<char*>(args.workspace) + share * share_bytes_;
  }
  // More than places: those behind the last one are written before they are known to count.
  int64_t capacity() const { return band_ * g_.pool.output_width + kernels_.width; }

  // False where an image or a gradient is not finite.
  bool one_share(const KernelArgs& args, int64_t share) const {
    const Memory m = cut(memory_of(args, share));
    std::fill_n(m.kernel, pieces_.kernel_size, 0.0f);
    std::fill_n(m.bias, g_.conv.output_channels, 0.0);
    for (int64_t image = g_.share_begin(share); image < g_.share_begin(share + 1); ++image) {
      if (!one_image(args, image, m)) return false;
    }
    return all_finite(m.bias, g_.conv.output_channels);
  }

  bool one_image(const KernelArgs& args, int64_t image, const Memory& m) const {
    const float* x = input<float>(args, g_.at.x) + image * g_.image_size();
    if (!all_finite(x, g_.image_size())) return false;
    for (int64_t row = 0; row < g_.pool.output_height; row += band_) {
      const int64_t rows = std::min(band_, g_.pool.output_height - row);
      const int64_t height = image_rows(g_, rows);
      g_.pad_rows(x, row * g_.place_row_step / g_.row, height, m.image);
      std::fill_n(m.image + height * g_.row, kernels_.width, 0.0f);
      const PlaceLists lists = list_band(args, image, row, rows, m);
      for (const PlacedPiece& placed : pieces_.all) {
        kernels_.sum_patches(placed.piece, lists, g_.conv.output_channels,
                             m.image + placed.image_offset, m.kernel + placed.kernel_offset);
      }
    }
    return true;
  }

  PlaceLists list_band(const KernelArgs& args, int64_t image, int64_t first, int64_t rows,
                       const Memory& m) const {
    const int64_t filters = g_.conv.output_channels;
    const PlaceLists lists{rows,
                           g_.pool.output_width,
                           g_.place_row_step,
                           g_.place_step,
                           offsets_.data(),
                           capacity(),
                           m.lists,
                           m.counts};
    std::fill(m.sums, m.sums + filters, 0.0f);
    kernels_.list_places(g_.gradients(args, image, first), lists, m.sums);
    for (int64_t i = 0; i < filters; ++i) m.bias[i] += m.sums[i];
    return lists;
  }

  // The shares are added in their order, whoever has computed them: first to those of the first
  // one.
  void add_shares(const KernelArgs& args) const {
    const int64_t filters = g_.conv.output_channels;
    const Memory first = cut(memory_of(args, 0));
    parallel_for(pieces_.kernel_size, kElementGrain / 4, [&](int64_t begin, int64_t end) {
      for (int64_t share = 1; share < g_.num_shares(); ++share) {
        const float* more = cut(memory_of(args, share)).kernel;
        for (int64_t i = begin; i < end; ++i) first.kernel[i] += more[i];
      }
    });
    float* gkernel = output<float>(args, 0);
    parallel_each(static_cast<int64_t>(pieces_.all.size()), kElementGrain, [&](int64_t i) {
      for_each_element(g_, pieces_.all[static_cast<size_t>(i)], kernels_.width,
                       [&](int64_t row, int64_t element, int64_t filter, int64_t at) {
                         gkernel[(row * g_.run + element) * filters + filter] = first.kernel[at];
                       });
    });
    float* gbias = optional_output<float>(args, 1);
    for (int64_t i = 0; gbias != nullptr && i < filters; ++i) {
      double sum = 0;
      for (int64_t share = 0; share < g_.num_shares(); ++share) {
        sum += cut(memory_of(args, share)).bias[i];
      }
      gbias[i] = static_cast<float>(sum);
    }
  }

  ConvPool g_;
  const ConvPoolKernels& kernels_;
  Pieces pieces_;
  std::unique_ptr<Kernel> otherwise_;
  int64_t band_;
  int64_t share_bytes_;
  std::vector<int32_t> offsets_;
};

}  // namespace

std::unique_ptr<Kernel> make_listed_dgrad(const ConvPool& g, std::unique_ptr<Kernel> otherwise) {
  return std::make_unique<ListedDgrad>(g, std::move(otherwise));
}

std::unique_ptr<Kernel> make_listed_wgrad(const ConvPool& g, std::unique_ptr<Kernel> otherwise) {
  return std::make_unique<ListedWgrad>(g, std::move(otherwise));
}

}  // namespace kerascnn::cpu
