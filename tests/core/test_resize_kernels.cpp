// The CPU's kernels of resized images write their output and nothing behind it, in parts of vectors
// too, and give weighted sums. Reads outside the arrays are found under the sanitizers.
#include <cmath>
#include <random>

#include "check.h"
#include "core/backend/cpu/kernel_util.h"
#include "core/backend/cpu/kernels.h"
#include "core/ops/definitions.h"
#include "core/ops/resize2d.h"

namespace kerascnn {
namespace {

// Behind the output; a number that no sum gives.
constexpr float kGuard = 12345.0f;
constexpr size_t kGuards = 64;

double wanted(const Resize2DGeometry& g, const std::vector<float>& x, int64_t image, int64_t row,
              int64_t column, int64_t channel) {
  double sum = 0.0;
  const auto i = static_cast<size_t>(row), j = static_cast<size_t>(column);
  for (int64_t r = 0; r < g.rows.counts[i]; ++r) {
    for (int64_t c = 0; c < g.columns.counts[j]; ++c) {
      const int64_t from_row = image * g.rows.old_size + g.rows.firsts[i] + r;
      const int64_t from = from_row * g.columns.old_size + g.columns.firsts[j] + c;
      const double share = g.rows.shares[static_cast<size_t>(row * g.rows.most + r)] *
                           g.columns.shares[static_cast<size_t>(column * g.columns.most + c)];
      sum += share * static_cast<double>(x[static_cast<size_t>(from * g.channels + channel)]);
    }
  }
  return sum;
}

void check_resizing(const OpDef& op, PlanFunction plan, const Attributes& attributes,
                    const Shape& shape, std::mt19937& random) {
  const std::vector<TensorSpec> inputs = {{DType::Float32, shape}};
  const std::vector<TensorSpec> outputs = infer_outputs(op, attributes, inputs);
  const std::unique_ptr<Kernel> kernel = plan({op, attributes, inputs, outputs, false});
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(num_elements(shape)));
  for (float& value : x) value = normal(random);
  const auto size = static_cast<size_t>(num_elements(outputs[0].shape));
  std::vector<float> y(size + kGuards, kGuard);
  std::vector<char> memory(static_cast<size_t>(kernel->workspace_bytes() + cpu::kAlignment));
  char* workspace = memory.data() +
                    (cpu::kAlignment - reinterpret_cast<intptr_t>(memory.data()) % cpu::kAlignment);
  const std::vector<const void*> from = {x.data()};
  const std::vector<void*> to = {y.data()};
  kernel->run({from, to, workspace, nullptr});
  const Resize2DGeometry g = resize2d_geometry(op, attributes, inputs);
  size_t at = 0;
  for (int64_t image = 0; image < g.batch; ++image) {
    for (int64_t row = 0; row < g.rows.size; ++row) {
      for (int64_t column = 0; column < g.columns.size; ++column) {
        for (int64_t channel = 0; channel < g.channels; ++channel) {
          const double sum = wanted(g, x, image, row, column, channel);
          CHECK(std::abs(static_cast<double>(y[at++]) - sum) < 1e-4);
        }
      }
    }
  }
  for (; at < y.size(); ++at) CHECK(y[at] == kGuard);
}

void check_both(const Shape& shape, const Shape& size, const char* method, bool antialias,
                std::mt19937& random) {
  Attributes attributes = {{"size", size}, {"method", method}, {"antialias", antialias}};
  check_resizing(op_resize2d, cpu::plan_resize2d, attributes, shape, random);
  attributes.set("input_shape", shape);
  check_resizing(op_resize2d_grad, cpu::plan_resize2d_grad, attributes,
                 {shape[0], size[0], size[1], shape[3]}, random);
}

TEST(every_number_of_channels) {
  std::mt19937 random(1);
  for (int64_t channels = 1; channels <= 70; ++channels) {
    check_both({1, 3, 4, channels}, {5, 3}, "bilinear", false, random);
    check_both({2, 3, 5, channels}, {2, 1}, "bicubic", false, random);
    check_both({1, 5, 7, channels}, {2, 3}, "lanczos3", true, random);
  }
  for (const int64_t channels : {255, 256, 257, 530}) {
    check_both({1, 3, 4, channels}, {5, 3}, "bilinear", false, random);
    check_both({1, 3, 40, channels}, {2, 5}, "lanczos5", true, random);
  }
}

TEST(rows_in_several_pieces) {
  std::mt19937 random(2);
  for (const int64_t channels : {1, 3, 16}) {
    check_both({1, 3, 2000, channels}, {2, 3100}, "bilinear", false, random);
    check_both({1, 3, 900, channels}, {4, 7}, "bilinear", false, random);
    check_both({1, 9, 2500, channels}, {2, 3}, "bicubic", true, random);
  }
}

TEST(nearest_pixels) {
  std::mt19937 random(3);
  for (const int64_t channels : {1, 2, 3, 4, 5, 33}) {
    check_both({2, 5, 7, channels}, {9, 4}, "nearest", false, random);
    check_both({2, 5, 7, channels}, {3, 7}, "nearest", false, random);
  }
}

}  // namespace
}  // namespace kerascnn
