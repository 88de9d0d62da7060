// The transforms of Winograd's convolution with every instruction set of this machine, put together
// for one tile, are compared with plain sums. Buffers end where the tile's part of the image does.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "check.h"
#include "core/backend/cpu/cpu_features.h"
#include "core/backend/cpu/winograd_kernels.h"
#include "core/backend/cpu/winograd_tiles.h"

using namespace kerascnn;
using cpu::WinogradKernels;
using cpu::WinogradTile;

namespace {

constexpr int64_t kSide = 6, kOut = 4, kTaps = 3, kPositions = cpu::kWinogradPositions;
constexpr int64_t kChannels = 32;

std::vector<const WinogradKernels*> all_kernels() {
  std::vector<const WinogradKernels*> all = {&cpu::plain::kWinogradKernels};
#ifdef KERASCNN_X86_DISPATCH
  const cpu::InstructionSet set = cpu::instruction_set();
  if (set >= cpu::InstructionSet::Avx2) all.push_back(&cpu::avx2::kWinogradKernels);
  if (set >= cpu::InstructionSet::Avx512) all.push_back(&cpu::avx512::kWinogradKernels);
#endif
  return all;
}

std::vector<float> random_floats(int64_t count, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

// An image of `height` x `width`, of which a tile begins at (row, column).
struct Image {
  int64_t height, width, row, column;
  std::vector<float> values;

  Image(int64_t h, int64_t w, int64_t r, int64_t c, std::mt19937& random)
      : height(h), width(w), row(r), column(c), values(random_floats(h * w * kChannels, random)) {}
  WinogradTile tile(int64_t side) const {
    return cpu::tile_at(row, column, side, height, width, kChannels);
  }
  float* begin() { return values.data() + (row * width + column) * kChannels; }
  double at(int64_t i, int64_t j, int64_t c) const {
    const int64_t y = row + i, x = column + j;
    const bool is_inside = y >= 0 && y < height && x >= 0 && x < width;
    return is_inside ? values[static_cast<size_t>((y * width + x) * kChannels + c)] : 0;
  }
};

void check_near(double found, double wanted) {
  CHECK(std::abs(found - wanted) <= 2e-5);  // sums of up to 36 numbers of about 1, transformed
}

std::vector<float> transformed_inputs(const WinogradKernels& kernels, Image& image) {
  std::vector<float> out(kPositions * kChannels);
  kernels.transform_inputs(image.tile(kSide), image.begin(), out.data(), kChannels);
  return out;
}

// Each channel by itself: outputs are those of a depthwise convolution.
void check_outputs(const WinogradKernels& kernels, Image& image, bool turned,
                   std::mt19937& random) {
  const std::vector<float> kernel = random_floats(kTaps * kTaps * kChannels, random);
  std::vector<float> products(kPositions * kChannels);
  kernels.transform_kernel(kernel.data(), kChannels, kChannels, turned, products.data(), kChannels);
  const std::vector<float> inputs = transformed_inputs(kernels, image);
  for (size_t i = 0; i < products.size(); ++i) products[i] *= inputs[i];
  constexpr float kUntouched = -7;
  // Of the tile's outputs the last row and the first column lie outside.
  const WinogradTile tile{0, 3, 1, 4, kOut * kChannels, kChannels};
  std::vector<float> y(kOut * kOut * kChannels, kUntouched);
  CHECK(kernels.transform_outputs(tile, products.data(), kChannels, y.data()));
  for (int64_t i = 0; i < kOut; ++i) {
    for (int64_t j = 0; j < kOut; ++j) {
      for (int64_t c = 0; c < kChannels; ++c) {
        double sum = 0;
        for (int64_t t = 0; t < kTaps * kTaps; ++t) {
          const int64_t tap = turned ? kTaps * kTaps - 1 - t : t;
          sum += image.at(i + t / kTaps, j + t % kTaps, c) *
                 kernel[static_cast<size_t>(tap * kChannels + c)];
        }
        const bool is_inside = i < 3 && j >= 1;
        check_near(y[static_cast<size_t>((i * kOut + j) * kChannels + c)],
                   is_inside ? sum : kUntouched);
      }
    }
  }
}

void check_sums(const WinogradKernels& kernels, Image& image, Image& upper) {
  std::vector<float> sums = transformed_inputs(kernels, image);
  std::vector<float> gradients(kPositions * kChannels);
  kernels.transform_gradients(upper.tile(kOut), upper.begin(), gradients.data(), kChannels);
  for (size_t i = 0; i < sums.size(); ++i) sums[i] *= gradients[i];
  std::vector<float> found(kTaps * kTaps * kChannels);
  CHECK(kernels.transform_sums(sums.data(), kChannels, kChannels, found.data(), kChannels));
  for (int64_t t = 0; t < kTaps * kTaps; ++t) {
    for (int64_t c = 0; c < kChannels; ++c) {
      double sum = 0;
      for (int64_t p = 0; p < kOut * kOut; ++p) {
        sum += upper.at(p / kOut, p % kOut, c) *
               image.at(p / kOut + t / kTaps, p % kOut + t % kTaps, c);
      }
      check_near(found[static_cast<size_t>(t * kChannels + c)], sum);
    }
  }
}

}  // namespace

TEST(tiles_in_and_at_the_edges_of_images) {
  std::mt19937 random(17);
  for (const WinogradKernels* kernels : all_kernels()) {
    for (const int64_t row : {-1, 0, 3}) {
      for (const int64_t column : {-2, 0, 2}) {
        Image image(7, 6, row, column, random);
        check_outputs(*kernels, image, false, random);
        check_outputs(*kernels, image, true, random);
        Image upper(5, 7, std::max<int64_t>(row, 0), std::max<int64_t>(column, 0), random);
        check_sums(*kernels, image, upper);
      }
    }
  }
}

TEST(what_is_not_finite_is_told) {
  for (const WinogradKernels* kernels : all_kernels()) {
    for (const float value :
         {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      std::vector<float> products(kPositions * kChannels, 1.0f);
      std::vector<float> out(kPositions * kChannels);
      const WinogradTile tile{0, kOut, 0, kOut, kOut * kChannels, kChannels};
      CHECK(kernels->transform_outputs(tile, products.data(), kChannels, out.data()));
      CHECK(kernels->transform_sums(products.data(), kChannels, kChannels, out.data(), kChannels));
      products[20 * kChannels + kChannels - 1] = value;
      CHECK(!kernels->transform_outputs(tile, products.data(), kChannels, out.data()));
      CHECK(!kernels->transform_sums(products.data(), kChannels, kChannels, out.data(), kChannels));
    }
  }
}
