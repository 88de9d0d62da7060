// Sizes of a CTC loss and the steps of its recurrences, which both backends share.
//
// A sequence of n labels has 2n + 1 states: a blank before, between and after the labels, the
// labels being the odd states. From one frame to the next a path stays, moves on by one state, or
// skips the blank between two labels that differ.
#pragma once

#include <cmath>

#include "core/base/host_device.h"
#include "core/ops/op.h"

namespace kerascnn {

struct CtcSizes {
  int64_t samples = 0;
  int64_t frames = 0;  // of the longest sequence, as are labels
  int64_t classes = 0;
  int64_t labels = 0;
  int64_t blank = 0;

  KERASCNN_HOST_DEVICE int64_t states() const { return 2 * labels + 1; }
};

CtcSizes ctc_sizes(const Attributes& attributes, Specs inputs);

// The labels of one sample.
template <typename Label>
struct CtcStates {
  const Label* labels;
  int64_t blank;

  KERASCNN_HOST_DEVICE int64_t class_of(int64_t state) const {
    return state % 2 == 0 ? blank : static_cast<int64_t>(labels[state / 2]);
  }
  // May a path enter the state from the one two before it?
  KERASCNN_HOST_DEVICE bool can_skip_to(int64_t state) const {
    return state % 2 == 1 && state > 1 && labels[state / 2] != labels[state / 2 - 1];
  }
};

// log(exp(a) + exp(b) + exp(c)); -inf where all of them are.
template <typename T>
KERASCNN_HOST_DEVICE T log_sum_exp(T a, T b, T c) {
  T most = a;
  if (b > most) most = b;
  if (c > most) most = c;
  // Returns the sum, so that a NaN beside it is not lost.
  if (most == static_cast<T>(-INFINITY)) return a + b + c;
  return most + std::log(std::exp(a - most) + std::exp(b - most) + std::exp(c - most));
}

}  // namespace kerascnn
