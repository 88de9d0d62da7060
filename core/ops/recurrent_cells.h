// What a recurrent cell makes of the sums of its gates, and the gradients, for one unit. T is float
// or double; both backends share them.
#pragma once

#include "core/base/host_device.h"
#include "core/ops/element_functions.h"

namespace kerascnn {

#ifdef KERASCNN_SIMD
inline namespace KERASCNN_SIMD {
#endif

namespace recurrent {

// Computes the new cell and hidden state from the gates' activations i, f, c, o.
template <typename T>
KERASCNN_HOST_DEVICE void lstm_state(const T (&gates)[4], T& c, T& h) {
  c = gates[1] * c + gates[0] * gates[2];
  h = gates[3] * element::tanh(c);
}

// `gates` are z, r, the candidate's sum from x, and that from h, which the reset gate scales; in
// the end they are what the gradient needs: z, r, the candidate, and the sum from h.
template <typename T>
KERASCNN_HOST_DEVICE void gru_state(T (&gates)[4], T& h) {
  gates[2] = element::tanh(gates[2] + gates[1] * gates[3]);
  h = gates[0] * h + (T(1) - gates[0]) * gates[2];
}

// The gradients of the sums of the gates, for a step with the gradients gh and gc of its states. gc
// becomes the gradient of the cell state before, gh the part that does not go through the gates.
template <typename T>
KERASCNN_HOST_DEVICE void lstm_gradient(const T (&gates)[4], T cell, T cell_before, T& gh, T& gc,
                                        T (&gradients)[4]) {
  const T bounded = element::tanh(cell);
  const T total = gc + gh * gates[3] * (T(1) - bounded * bounded);
  gradients[0] = total * gates[2] * gates[0] * (T(1) - gates[0]);
  gradients[1] = total * cell_before * gates[1] * (T(1) - gates[1]);
  gradients[2] = total * gates[0] * (T(1) - gates[2] * gates[2]);
  gradients[3] = gh * bounded * gates[3] * (T(1) - gates[3]);
  gc = total * gates[1];
  gh = T(0);
}

// The same; gradients of z, r, the candidate's sum from x, and that from h.
template <typename T>
KERASCNN_HOST_DEVICE void gru_gradient(const T (&gates)[4], T h_before, T& gh, T (&gradients)[4]) {
  gradients[0] = gh * (h_before - gates[2]) * gates[0] * (T(1) - gates[0]);
  gradients[2] = gh * (T(1) - gates[0]) * (T(1) - gates[2] * gates[2]);
  gradients[1] = gradients[2] * gates[3] * gates[1] * (T(1) - gates[1]);
  gradients[3] = gradients[2] * gates[1];
  gh *= gates[0];
}

}  // namespace recurrent

#ifdef KERASCNN_SIMD
}
#endif

}  // namespace kerascnn
