#include "core/images/resample.h"

#include <algorithm>
#include <cstring>

#include "core/backend/cpu/resample_kernels.h"
#include "core/base/error.h"

namespace kerascnn {
namespace {

// Four floats: a pixel in colors, and one float beside it that nobody looks at.
typedef float FourFloats __attribute__((vector_size(16), aligned(4), may_alias));
constexpr int64_t kBeside = 1;

FourFloats& four_at(float* from) { return *reinterpret_cast<FourFloats*>(from); }
const FourFloats& four_at(const float* from) { return *reinterpret_cast<const FourFloats*>(from); }

// (pixels, channels) as (channels, pixels), of which a plane is `step` elements away from the next.
template <typename T>
void put_planes(const T* from, int64_t pixels, int64_t channels, int64_t step, T* to) {
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t x = 0; x < pixels; ++x) to[c * step + x] = from[x * channels + c];
  }
}

}  // namespace

Resampler::Axis::Axis(const AxisTaps& from, int64_t old_size, const char* name) {
  const Shape& shape = from.indices.shape();
  if (shape.size() != 2 || shape[1] == 0 || from.shares.shape() != shape ||
      from.indices.dtype() != DType::Int32 || from.shares.dtype() != DType::Float32) {
    throw ValueError(message("resample_image: the taps of ", name,
                             " must be indices (size, taps) of int32 and shares of that shape of "
                             "float32. Received: ",
                             spec_string(from.indices.spec()), " and ",
                             spec_string(from.shares.spec())));
  }
  size = shape[0], taps = shape[1];
  const auto* index = static_cast<const int32_t*>(from.indices.data());
  const auto* share = static_cast<const float*>(from.shares.data());
  indices.assign(index, index + size * taps);
  shares.assign(share, share + size * taps);
  for (const int32_t i : indices) {
    if (i < 0 || i >= old_size) {
      throw ValueError(message("resample_image: index ", i, " of ", name,
                               " is outside of an image with ", old_size, " ", name));
    }
  }
  begin = end = 0;
  if (indices.empty()) return;
  const auto [low, high] = std::minmax_element(indices.begin(), indices.end());
  begin = *low, end = *high + 1;
}

Resampler::Resampler(const AxisTaps& rows, const AxisTaps& columns, int64_t height, int64_t width)
    : rows_(rows, height, "rows"), columns_(columns, width, "columns"), old_width_(width) {}

int64_t Resampler::bytes() const {
  return static_cast<int64_t>((rows_.indices.size() + columns_.indices.size()) *
                              (sizeof(int32_t) + sizeof(float)));
}

// A row of the new height, which begins with the first column that is needed.
void Resampler::weigh_rows(const uint8_t* pixels, int64_t y, int64_t channels, float* line) const {
  const cpu::ResampleKernels& kernels = cpu::resample_kernels();
  const int32_t* indices = rows_.indices.data() + y * rows_.taps;
  const float* shares = rows_.shares.data() + y * rows_.taps;
  const int64_t length = (columns_.end - columns_.begin) * channels;
  const auto row = [&](int64_t t) {
    return pixels + (indices[t] * old_width_ + columns_.begin) * channels;
  };
  if (rows_.taps == 1) {
    kernels.weigh(row(0), shares[0], length, line);
    return;
  }
  kernels.weigh_two(row(0), shares[0], row(1), shares[1], length, line);
  for (int64_t t = 2; t < rows_.taps; ++t) {
    kernels.weigh_and_add(row(t), shares[t], length, line);
  }
}

// `line` and `to` have kBeside floats more than pixels.
void Resampler::weigh_columns(const float* line, int64_t channels, float* to) const {
  const int32_t* indices = columns_.indices.data();
  const float* shares = columns_.shares.data();
  const auto pixel = [&](int64_t t) { return line + (indices[t] - columns_.begin) * channels; };
  for (int64_t x = 0; x < columns_.size; ++x, to += channels) {
    if (channels == 3) {
      FourFloats sum = four_at(pixel(0)) * shares[0];
      for (int64_t t = 1; t < columns_.taps; ++t) {
        sum += four_at(pixel(t)) * shares[t];
      }
      four_at(to) = sum;
    } else {
      for (int64_t c = 0; c < channels; ++c) {
        to[c] = pixel(0)[c] * shares[0];
        for (int64_t t = 1; t < columns_.taps; ++t) {
          to[c] += pixel(t)[c] * shares[t];
        }
      }
    }
    indices += columns_.taps, shares += columns_.taps;
  }
}

void Resampler::run(const uint8_t* pixels, int64_t channels, const ImageTarget& target,
                    std::vector<float>& scratch) const {
  const int64_t length = (columns_.end - columns_.begin) * channels;
  const int64_t across = columns_.size * channels, plane = rows_.size * columns_.size;
  // The line that is weighted, the row that comes of it, and that row as bytes.
  scratch.resize(static_cast<size_t>(length + kBeside + across + kBeside + across));
  float* const line = scratch.data();
  float* const row = line + length + kBeside;
  auto* const bytes = reinterpret_cast<uint8_t*>(row + across + kBeside);
  line[length] = 0.0f;  // is read beside the last pixel
  for (int64_t y = 0; y < rows_.size; ++y) {
    weigh_rows(pixels, y, channels, line);
    weigh_columns(line, channels, row);
    if (target.dtype == DType::Float32) {
      auto* to = static_cast<float*>(target.data);
      if (target.channels_first) {
        put_planes(row, columns_.size, channels, plane, to + y * columns_.size);
      } else {
        std::memcpy(to + y * across, row, static_cast<size_t>(across) * sizeof(float));
      }
      continue;
    }
    auto* to = static_cast<uint8_t*>(target.data);
    if (target.channels_first) {
      cpu::resample_kernels().round(row, across, bytes);
      put_planes(bytes, columns_.size, channels, plane, to + y * columns_.size);
    } else {
      cpu::resample_kernels().round(row, across, to + y * across);
    }
  }
}

Tensor resample_image(const Tensor& pixels, const AxisTaps& rows, const AxisTaps& columns) {
  const Shape& shape = pixels.shape();
  if (shape.size() != 3 || pixels.dtype() != DType::UInt8) {
    throw ValueError(
        message("resample_image: `pixels` must be (height, width, channels) of uint8. "
                "Received: ",
                spec_string(pixels.spec())));
  }
  const Resampler resampler(rows, columns, shape[0], shape[1]);
  Tensor resized =
      Tensor::empty({DType::Float32, {resampler.height(), resampler.width(), shape[2]}}, Device{});
  if (num_elements(resized.shape()) == 0) return resized;
  std::vector<float> scratch;
  resampler.run(static_cast<const uint8_t*>(pixels.data()), shape[2],
                {resized.data(), DType::Float32}, scratch);
  return resized;
}

}  // namespace kerascnn
