// The rules are from 156 convolutions of ResNet-18, ResNet-50, VGG-16 and of other sizes, for each
// of which the first eight engines of the list of cuDNN 9.19 were timed on an H200. Those of
// Hopper's generation are named like eng62_k2=0_k13=1_k18=0_k25=1_k27=8_k28=1, where k2 is the size
// of the tile of results that a block computes, and k27 and k28 are how many blocks form a cluster
// along the rows and along the columns of such tiles. The heuristics overrate large clusters: their
// blocks start and load together, and fill a GPU's groups of multiprocessors badly. Where another
// version of cuDNN numbers its tiles otherwise, another engine runs, which is as exact.
#include "core/backend/cuda/convolution/cudnn_engines.h"

#include <charconv>
#include <string_view>
#include <utility>

#include "core/base/ceil_div.h"

namespace kerascnn::cuda {
namespace {

enum Tile : int64_t { k128x128 = 0, k256x128 = 3, k256x64 = 4 };
using Cluster = std::pair<int64_t, int64_t>;

constexpr int64_t kSide = 128;          // of a square tile
constexpr int64_t kNarrowColumns = 64;  // half of that tile's columns stay empty
constexpr int64_t kLargeCluster = 4;    // blocks
constexpr int64_t kLargeClusterOfSums = 8;

struct Engine {
  std::string_view number;
  int64_t tile = -1;
  Cluster cluster = {0, 0};  // of an engine without clusters
  int64_t blocks() const { return cluster.first * cluster.second; }
};

int64_t knob(std::string_view name, std::string_view key, int64_t otherwise) {
  const size_t at = name.find(key);
  if (at == std::string_view::npos) return otherwise;
  const char* const digits = name.data() + at + key.size();
  std::from_chars(digits, name.data() + name.size(), otherwise);
  return otherwise;
}

Engine engine(std::string_view name) {
  return {name.substr(0, name.find('_')),
          knob(name, "_k2=", -1),
          {knob(name, "_k27=", 0), knob(name, "_k28=", 0)}};
}

class Engines {
 public:
  Engines(const std::vector<std::string>& names, size_t first) : first_(engine(names[first])) {
    for (const std::string& name : names) engines_.push_back(engine(name));
  }

  const Engine& first() const { return first_; }

  template <typename Suits>
  std::optional<size_t> find(Suits suits) const {
    for (size_t i = 0; i < engines_.size(); ++i) {
      if (suits(engines_[i])) return i;
    }
    return std::nullopt;
  }

 private:
  std::vector<Engine> engines_;
  Engine first_;
};

// The sums of a kernel's gradient are long, and engines split them. Where square tiles alone give
// each multiprocessor a block, the fewest splits are the fastest.
std::optional<size_t> for_kernel_gradient(const Conv2DGeometry& g, const Engines& engines,
                                          int multiprocessors) {
  const Engine& first = engines.first();
  const int64_t tiles = ceil_div(g.output_channels, kSide) * ceil_div(g.num_taps(), kSide);
  if (first.blocks() < kLargeClusterOfSums || first.cluster == Cluster(2, 4) ||
      tiles < multiprocessors) {
    return std::nullopt;
  }
  return engines.find([](const Engine& each) {
    return each.tile == k128x128 && each.cluster.first == 1 && each.cluster.second >= 2 &&
           each.cluster.second <= 4;
  });
}

std::optional<size_t> for_results(const Conv2DCall& call, const Engines& engines) {
  const Engine& first = engines.first();
  const bool is_forward = call.op == &op_conv2d;
  const bool is_float32 = call.dtype == DType::Float32;
  const int64_t columns =
      is_forward ? call.geometry.group_output_channels() : call.geometry.group_input_channels();
  if (columns <= kNarrowColumns) {
    if (is_float32 || first.tile == k256x64) return std::nullopt;
    return engines.find(
        [](const Engine& each) { return each.tile == k256x64 && each.cluster == Cluster(8, 1); });
  }
  const bool is_small = first.blocks() > 0 && first.blocks() < kLargeCluster;
  if (is_small && !(is_forward && is_float32)) return std::nullopt;
  const auto square = engines.find([](const Engine& each) {
    return each.tile == k128x128 &&
           (each.cluster == Cluster(1, 1) || each.cluster == Cluster(1, 2));
  });
  if (square || is_forward) return square;
  return engines.find([&](const Engine& each) {
    return each.number == first.number && each.tile == k256x128 &&
           (each.cluster == Cluster(1, 1) || each.cluster == Cluster(2, 1));
  });
}

}  // namespace

std::optional<size_t> faster_engine(const Conv2DCall& call, const std::vector<std::string>& names,
                                    size_t first, int multiprocessors) {
  const Engines engines(names, first);
  const Conv2DGeometry& g = call.geometry;
  if (call.op == &op_conv2d_wgrad) return for_kernel_gradient(g, engines, multiprocessors);
  // Data gradients with strides have engines of their own.
  const bool is_strided = g.stride_height > 1 || g.stride_width > 1;
  if (call.op == &op_conv2d_dgrad && is_strided) return std::nullopt;
  const auto found = for_results(call, engines);
  return found == first ? std::nullopt : found;
}

}  // namespace kerascnn::cuda
