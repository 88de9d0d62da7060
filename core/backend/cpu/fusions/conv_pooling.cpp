// Chooses the kernels of convolutions with max pooling and of their gradients. Those of the
// gradients pass over the places without gradient, which are three of four and more; where the
// images have few channels, the forward kernel has no full-size output. All other calls stay as
// they are.
#include <algorithm>
#include <cmath>
#include <string>

#include "core/backend/cpu/conv_pool.h"
#include "core/backend/cpu/float_kernels.h"
#include "core/backend/cpu/fusions/fusions.h"
#include "core/backend/cpu/kernel_util.h"
#include "core/backend/cpu/parallel.h"

namespace kerascnn::cpu {

namespace {

// Is there so little to pool that lists of places pay?
bool pools_enough(const ConvPool& g) {
  constexpr int64_t kLeastPooled = 3;
  return g.conv.output_height * g.conv.output_width >=
         kLeastPooled * g.pool.output_height * g.pool.output_width;
}

bool fits(const Match& match, const ConvPool& g, const ActivationCall& activation) {
  constexpr int64_t kMostElements = int64_t{1} << 30;  // places are 32 bits
  const bool is_padded = g.pool.pad_top != 0 || g.pool.pad_bottom != 0 || g.pool.pad_left != 0 ||
                         g.pool.pad_right != 0;
  return match.spec("convolution").dtype == DType::Float32 && g.conv.groups == 1 &&
         g.conv.dilation_height == 1 && g.conv.dilation_width == 1 && !is_padded &&
         g.pool.index_dtype() == DType::UInt8 && g.padded_size() < kMostElements &&
         g.conv.output_channels * g.run * g.conv.kernel_height < kMostElements &&
         g.conv.batch * g.image_size() * g.pooled_size() > 0 && pools_enough(g) &&
         (activation.kind == Activation::Linear || activation.kind == Activation::Relu);
}

}  // namespace

ConvPool::ConvPool(const Conv2DMaxPool2DGeometry& geometry, const ConvPoolArguments& arguments)
    : at(arguments),
      conv(geometry.conv),
      pool(geometry.pool),
      relu(geometry.activation.kind == Activation::Relu),
      row((conv.input_width + conv.pad_left + conv.pad_right) * conv.input_channels),
      rows(conv.input_height + conv.pad_top + conv.pad_bottom),
      run(conv.kernel_width * conv.input_channels),
      place_step(pool.stride_width * conv.stride_width * conv.input_channels),
      place_row_step(pool.stride_height * conv.stride_height * row),
      column_step(conv.stride_width * conv.input_channels),
      row_step(conv.stride_height * row) {}

PooledGradients ConvPool::gradients(const KernelArgs& args, int64_t image,
                                    int64_t place_row) const {
  const int64_t first = image * pooled_size() + place_row * pooled_row();
  return {input<float>(args, at.gy) + first, relu ? input<float>(args, at.y) + first : nullptr,
          input<uint8_t>(args, at.index) + first, conv.output_channels};
}

void ConvPool::pad_rows(const float* image, int64_t first, int64_t count, float* out) const {
  const int64_t inside = conv.input_width * conv.input_channels;
  const int64_t left = conv.pad_left * conv.input_channels;
  for (int64_t i = first - conv.pad_top; i < first - conv.pad_top + count; ++i, out += row) {
    if (i < 0 || i >= conv.input_height) {
      std::fill(out, out + row, 0.0f);
      continue;
    }
    std::fill(out, out + left, 0.0f);
    std::copy(image + i * inside, image + (i + 1) * inside, out + left);
    std::fill(out + left + inside, out + row, 0.0f);
  }
}

int64_t ConvPool::num_shares() const { return std::min<int64_t>(conv.batch, num_threads()); }

bool all_finite(const float* values, int64_t count) {
  constexpr uint32_t kInfinity = 0x7f800000;
  return float_kernels().largest_magnitude(values, count) < kInfinity;
}

bool all_finite(const double* sums, int64_t count) {
  return std::all_of(sums, sums + count, [](double sum) { return std::isfinite(sum); });
}

std::unique_ptr<Kernel> plan_fused_conv2d_max_pool2d(const Match& match) {
  const Conv2DMaxPool2DGeometry geometry = conv_pool_geometry(match);
  const ConvPool g(geometry, {});
  if (!fits(match, g, geometry.activation) || !takes_small_forward(g)) return nullptr;
  return make_small_forward(g, match.has("bias"));
}

std::unique_ptr<Kernel> plan_fused_conv2d_max_pool2d_dgrad(const Match& match) {
  const Conv2DMaxPool2DGeometry geometry = conv_pool_geometry(match);
  const ConvPool g(geometry, ConvPoolArguments(match));
  if (!fits(match, g, geometry.activation)) return nullptr;
  return make_listed_dgrad(g, match.plan_body());
}

std::unique_ptr<Kernel> plan_fused_conv2d_max_pool2d_wgrad(const Match& match) {
  const Conv2DMaxPool2DGeometry geometry = conv_pool_geometry(match);
  const ConvPool g(geometry, ConvPoolArguments(match));
  if (!fits(match, g, geometry.activation)) return nullptr;
  return takes_small_wgrad(g) ? make_small_wgrad(g, match.plan_body())
                              : make_listed_wgrad(g, match.plan_body());
}

}  // namespace kerascnn::cpu
