// Sizes of recurrent sequences and where the buffers of their ops are, which both backends share.
//
// Both cells have gates of as many units each, side by side along the last axis: the input gate,
// the forget gate, the candidate and the output gate of an LSTM (i, f, c, o); the update gate, the
// reset gate and the candidate of a GRU (z, r, h), whose saved gates end with the recurrent half
// of the candidate, "inner", before the reset gate scales it.
#pragma once

#include <span>

#include "core/base/host_device.h"
#include "core/ops/op.h"

namespace kerascnn {

constexpr int kSavedGates = 4;

struct RecurrentSizes {
  int64_t batch = 0;
  int64_t time = 0;
  int64_t units = 0;
  bool is_lstm = true;
  bool reverse = false;

  // Blocks of `units` columns in the recurrent kernel and in x.
  KERASCNN_HOST_DEVICE int64_t gates() const { return is_lstm ? 4 : 3; }
  // The place along the time axis that step number `step` works on.
  KERASCNN_HOST_DEVICE int64_t position(int64_t step) const {
    return reverse ? time - 1 - step : step;
  }
};

// The sizes of a call of lstm, gru, lstm_grad or gru_grad.
RecurrentSizes recurrent_sizes(const OpDef& op, const Attributes& attributes, Specs inputs);

// Where lstm_grad and gru_grad have those inputs that a call may lack; -1 for one that is not
// there.
struct RecurrentGradientInputs {
  int mask = -1;
  int last_h = -1;
  int last_c = -1;
  int outputs = -1;
  int count = 0;
};
RecurrentGradientInputs recurrent_gradient_inputs(const OpDef& op, const Attributes& attributes);

// The buffers of a call; null where there is none, or nothing reads it.
template <typename T>
struct RecurrentForward {
  const T* x = nullptr;   // (batch, time, gates * units)
  const T* h0 = nullptr;  // (batch, units), as is c0
  const T* c0 = nullptr;
  const T* kernel = nullptr;   // (units, gates * units)
  const T* bias = nullptr;     // (gates * units), of a GRU
  const bool* mask = nullptr;  // (batch, time)
  T* last_h = nullptr;
  T* last_c = nullptr;
  T* outputs = nullptr;   // (batch, time, units), as are cells and previous
  T* gates = nullptr;     // (batch, time, kSavedGates * units)
  T* cells = nullptr;     // after each step
  T* previous = nullptr;  // the hidden state before each step
};

template <typename T>
struct RecurrentBackward {
  const T* kernel = nullptr;
  const T* gates = nullptr;
  const T* cells = nullptr;
  const T* c0 = nullptr;
  const T* previous = nullptr;
  const bool* mask = nullptr;
  const T* last_h = nullptr;  // the gradients of the outputs
  const T* last_c = nullptr;
  const T* outputs = nullptr;
  T* x = nullptr;          // of x
  T* recurrent = nullptr;  // of the products of h and the kernel, where it is not that of x (GRU)
  T* h0 = nullptr;
  T* c0_gradient = nullptr;
};

template <typename T>
RecurrentForward<T> recurrent_forward(const RecurrentSizes& sizes,
                                      std::span<const void* const> inputs,
                                      std::span<void* const> outputs) {
  const auto in = [&](size_t i) { return static_cast<const T*>(inputs[i]); };
  const auto out = [&](size_t i) { return static_cast<T*>(outputs[i]); };
  const auto* mask = inputs.size() > 4 ? static_cast<const bool*>(inputs[4]) : nullptr;
  if (sizes.is_lstm) {
    return {in(0),  in(1),  in(2),  in(3),  nullptr, mask,
            out(0), out(1), out(2), out(3), out(4),  out(5)};
  }
  return {in(0),  in(1),   nullptr, in(2),  in(3),   mask,
          out(0), nullptr, out(1),  out(2), nullptr, out(3)};
}

template <typename T>
RecurrentBackward<T> recurrent_backward(const RecurrentSizes& sizes,
                                        const RecurrentGradientInputs& places,
                                        std::span<const void* const> inputs,
                                        std::span<void* const> outputs) {
  const auto in = [&](int i) {
    return i < 0 ? nullptr : static_cast<const T*>(inputs[static_cast<size_t>(i)]);
  };
  const auto out = [&](size_t i) { return static_cast<T*>(outputs[i]); };
  const auto* mask = places.mask < 0
                         ? nullptr
                         : static_cast<const bool*>(inputs[static_cast<size_t>(places.mask)]);
  RecurrentBackward<T> b;
  b.kernel = in(0);
  b.gates = in(1);
  b.mask = mask;
  b.last_h = in(places.last_h);
  b.last_c = in(places.last_c);
  b.outputs = in(places.outputs);
  b.x = out(0);
  if (sizes.is_lstm) {
    b.cells = in(2);
    b.c0 = in(3);
    b.h0 = out(1);
    b.c0_gradient = out(2);
  } else {
    b.previous = in(2);
    b.recurrent = out(1);
    b.h0 = out(2);
  }
  return b;
}

}  // namespace kerascnn
