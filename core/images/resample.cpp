#include "core/images/resample.h"

#include <algorithm>
#include <vector>

#include "core/base/error.h"

namespace kerascnn {
namespace {

// A range of the old axis.
struct Range {
  int64_t begin, end;
};

struct Axis {
  const int32_t* indices;
  const float* shares;
  int64_t size, taps;
};

Axis axis_of(const AxisTaps& taps, int64_t old_size, const char* name) {
  const Shape& shape = taps.indices.shape();
  if (shape.size() != 2 || shape[1] == 0 || taps.shares.shape() != shape ||
      taps.indices.dtype() != DType::Int32 || taps.shares.dtype() != DType::Float32) {
    throw ValueError(message("resample_image: the taps of ", name,
                             " must be indices (size, taps) of int32 and shares of that shape of "
                             "float32. Received: ",
                             spec_string(taps.indices.spec()), " and ",
                             spec_string(taps.shares.spec())));
  }
  const Axis axis{static_cast<const int32_t*>(taps.indices.data()),
                  static_cast<const float*>(taps.shares.data()), shape[0], shape[1]};
  for (int64_t i = 0; i < axis.size * axis.taps; ++i) {
    if (axis.indices[i] < 0 || axis.indices[i] >= old_size) {
      throw ValueError(message("resample_image: index ", axis.indices[i], " of ", name,
                               " is outside of an image with ", old_size, " ", name));
    }
  }
  return axis;
}

// What is read of the old axis.
Range range_of(const Axis& axis) {
  const auto [low, high] = std::minmax_element(axis.indices, axis.indices + axis.size * axis.taps);
  return {*low, *high + 1};
}

void weigh(const uint8_t* from, float share, int64_t size, float* to) {
  for (int64_t i = 0; i < size; ++i) to[i] = static_cast<float>(from[i]) * share;
}

void weigh_and_add(const uint8_t* from, float share, int64_t size, float* to) {
  for (int64_t i = 0; i < size; ++i) to[i] += static_cast<float>(from[i]) * share;
}

// One new row from a line of weighted rows, which begins with column `first`.
template <int kChannels>  // 0: `channels` says
void weigh_columns(const Axis& columns, const float* line, int64_t first, int64_t channels,
                   float* to) {
  const int64_t depth = kChannels != 0 ? kChannels : channels;
  for (int64_t x = 0; x < columns.size; ++x, to += depth) {
    const int32_t* indices = columns.indices + x * columns.taps;
    const float* shares = columns.shares + x * columns.taps;
    for (int64_t c = 0; c < depth; ++c) to[c] = line[(indices[0] - first) * depth + c] * shares[0];
    for (int64_t t = 1; t < columns.taps; ++t) {
      for (int64_t c = 0; c < depth; ++c) {
        to[c] += line[(indices[t] - first) * depth + c] * shares[t];
      }
    }
  }
}

}  // namespace

Tensor resample_image(const Tensor& pixels, const AxisTaps& rows, const AxisTaps& columns) {
  const Shape& shape = pixels.shape();
  if (shape.size() != 3 || pixels.dtype() != DType::UInt8) {
    throw ValueError(
        message("resample_image: `pixels` must be (height, width, channels) of uint8. "
                "Received: ",
                spec_string(pixels.spec())));
  }
  const int64_t width = shape[1], channels = shape[2];
  const Axis down = axis_of(rows, shape[0], "rows"), across = axis_of(columns, width, "columns");
  Tensor resized = Tensor::empty({DType::Float32, {down.size, across.size, channels}}, Device{});
  if (num_elements(resized.shape()) == 0) return resized;
  const Range range = range_of(across);
  const int64_t length = (range.end - range.begin) * channels;
  const auto* first = static_cast<const uint8_t*>(pixels.data()) + range.begin * channels;
  std::vector<float> line(static_cast<size_t>(length));
  const auto finish = channels == 3   ? weigh_columns<3>
                      : channels == 1 ? weigh_columns<1>
                                      : weigh_columns<0>;
  auto* to = static_cast<float*>(resized.data());
  for (int64_t y = 0; y < down.size; ++y, to += across.size * channels) {
    for (int64_t t = 0; t < down.taps; ++t) {
      const uint8_t* row = first + down.indices[y * down.taps + t] * width * channels;
      const float share = down.shares[y * down.taps + t];
      if (t == 0) {
        weigh(row, share, length, line.data());
      } else {
        weigh_and_add(row, share, length, line.data());
      }
    }
    finish(across, line.data(), range.begin, channels, to);
  }
  return resized;
}

}  // namespace kerascnn
