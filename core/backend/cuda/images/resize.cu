#include "core/backend/cuda/images/resize.h"
#include "core/backend/cuda/runtime/check.h"
#include "core/base/ceil_div.h"
#include "core/base/error.h"

namespace kerascnn::cuda {
namespace {

constexpr int kResizeThreads = 256;

struct Color {
  float parts[3];
};

// Each product and each sum is rounded to float32: a fused multiply-add would have other bits than
// the host's.
__device__ void add_share(Color& sum, const Color& color, float share, bool is_first) {
#pragma unroll
  for (int c = 0; c < 3; ++c) {
    const float product = __fmul_rn(color.parts[c], share);
    sum.parts[c] = is_first ? product : __fadd_rn(sum.parts[c], product);
  }
}

__device__ void put(float value, float* to) { *to = value; }
__device__ void put(float value, uint8_t* to) {
  *to = static_cast<uint8_t>(__float2int_rn(fminf(fmaxf(value, 0.0f), 255.0f)));
}

// A thread makes a pixel: rows are weighted first, and then columns of what that gives.
template <typename T>
__global__ void __launch_bounds__(kResizeThreads)
    resize(const ResizeImage* images, const int32_t* words, int64_t height, int64_t width,
           bool channels_first) {
  const int64_t pixel = int64_t{blockIdx.x} * kResizeThreads + threadIdx.x;
  if (pixel >= height * width) return;
  const ResizeImage image = images[blockIdx.y];
  const int64_t y = pixel / width, x = pixel - y * width;
  const int32_t* rows = words + image.rows.indices + y * image.rows.taps;
  const int32_t* row_shares = words + image.rows.shares + y * image.rows.taps;
  const int32_t* columns = words + image.columns.indices + x * image.columns.taps;
  const int32_t* column_shares = words + image.columns.shares + x * image.columns.taps;
  Color sum{};
  for (int64_t c = 0; c < image.columns.taps; ++c) {
    const uint8_t* column = image.pixels + int64_t{3} * columns[c];
    Color line{};
    for (int64_t r = 0; r < image.rows.taps; ++r) {
      const uint8_t* from = column + rows[r] * image.pitch;
      const Color color{static_cast<float>(from[0]), static_cast<float>(from[1]),
                        static_cast<float>(from[2])};
      add_share(line, color, __int_as_float(row_shares[r]), r == 0);
    }
    add_share(sum, line, __int_as_float(column_shares[c]), c == 0);
  }
  const int64_t plane = channels_first ? height * width : 1;
  T* to = static_cast<T*>(image.target) + (channels_first ? pixel : 3 * pixel);
#pragma unroll
  for (int c = 0; c < 3; ++c) put(sum.parts[c], to + c * plane);
}

}  // namespace

void resize_images(const ResizeImage* images, int64_t count, const int32_t* words,
                   const ImageForm& form, cudaStream_t stream) {
  const int64_t blocks = ceil_div(form.height * form.width, kResizeThreads);
  if (blocks == 0 || count == 0) return;
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(count));
  const auto launch = [&](auto kernel) {
    kernel<<<grid, kResizeThreads, 0, stream>>>(images, words, form.height, form.width,
                                                form.channels_first);
  };
  if (form.dtype == DType::UInt8) {
    launch(resize<uint8_t>);
  } else {
    launch(resize<float>);
  }
  check_launch("resize of decoded images");
}

}  // namespace kerascnn::cuda
