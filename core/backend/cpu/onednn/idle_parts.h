// Which parts of a convolution meet padding alone. Some of oneDNN's kernels are wrong there.
#pragma once

#include <array>
#include <cstdint>

#include "core/ops/conv2d.h"

namespace kerascnn::cpu::onednn {

// One axis of a convolution.
struct ConvolvedAxis {
  int64_t inputs, outputs, taps, stride, dilation, padding;

  bool meet(int64_t output, int64_t tap) const {
    const int64_t input = output * stride + tap * dilation - padding;
    return input >= 0 && input < inputs;
  }
  bool has_idle_outputs() const {
    return has_idle(outputs, taps, [&](int64_t output, int64_t tap) { return meet(output, tap); });
  }
  bool has_idle_taps() const {
    return has_idle(taps, outputs, [&](int64_t tap, int64_t output) { return meet(output, tap); });
  }
  // The axis of the convolution that gives the gradient to the input, where there are no strides.
  ConvolvedAxis backward() const {
    return {outputs, inputs, taps, 1, dilation, (taps - 1) * dilation - padding};
  }

 private:
  // Is there one of `count` that meets none of the `others`? Most soon meet one.
  template <typename Meet>
  static bool has_idle(int64_t count, int64_t others, const Meet& meet) {
    for (int64_t i = 0; i < count; ++i) {
      int64_t other = 0;
      while (other < others && !meet(i, other)) ++other;
      if (other == others) return true;
    }
    return false;
  }
};

inline std::array<ConvolvedAxis, 2> axes_of(const Conv2DGeometry& g) {
  return {{{g.input_height, g.output_height, g.kernel_height, g.stride_height, g.dilation_height,
            g.pad_top},
           {g.input_width, g.output_width, g.kernel_width, g.stride_width, g.dilation_width,
            g.pad_left}}};
}

// Are there taps, on either axis, that meet padding for all outputs?
inline bool has_idle_taps(const Conv2DGeometry& g) {
  const auto axes = axes_of(g);
  return axes[0].has_idle_taps() || axes[1].has_idle_taps();
}

// Are there outputs of which all taps meet padding?
inline bool has_idle_outputs(const Conv2DGeometry& g) {
  const auto axes = axes_of(g);
  return axes[0].has_idle_outputs() || axes[1].has_idle_outputs();
}

// Are there inputs that no output reads? For convolutions without strides.
inline bool has_idle_inputs(const Conv2DGeometry& g) {
  const auto axes = axes_of(g);
  return axes[0].backward().has_idle_outputs() || axes[1].backward().has_idle_outputs();
}

}  // namespace kerascnn::cpu::onednn
