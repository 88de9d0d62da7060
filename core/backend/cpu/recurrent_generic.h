// Recurrent cells row by row in plain C++, for float64, which tests compare with.
#pragma once

#include <cstdint>
#include <utility>

#include "core/ops/recurrent.h"
#include "core/ops/recurrent_cells.h"

namespace kerascnn::cpu {

// Takes one row of the batch at a time, in its own scratch memory.
class GenericRecurrence {
 public:
  static int64_t scratch_size(const RecurrentSizes& s) { return 7 * s.units; }

  GenericRecurrence(const RecurrentSizes& sizes, double* memory)
      : s_(sizes), h_(memory), c_(h_ + s_.units), next_(c_ + s_.units), sums_(next_ + s_.units) {}

  void forward(const RecurrentForward<double>& b, int64_t row) {
    const int64_t units = s_.units;
    for (int64_t j = 0; j < units; ++j) {
      h_[j] = b.h0[row * units + j];
      c_[j] = b.c0 == nullptr ? 0.0 : b.c0[row * units + j];
    }
    for (int64_t step = 0; step < s_.time; ++step) {
      const int64_t time = row * s_.time + s_.position(step);
      const bool counts = b.mask == nullptr || b.mask[time];
      multiply(b);
      for (int64_t j = 0; j < units; ++j) {
        next_[j] = cell(b, time, j, counts);
        if (b.previous != nullptr) b.previous[time * units + j] = h_[j];
        if (b.outputs != nullptr) b.outputs[time * units + j] = next_[j];
      }
      std::swap(h_, next_);
    }
    for (int64_t j = 0; j < units; ++j) {
      b.last_h[row * units + j] = h_[j];
      if (s_.is_lstm) b.last_c[row * units + j] = c_[j];
    }
  }

  void backward(const RecurrentBackward<double>& b, int64_t row) {
    const int64_t units = s_.units, columns = s_.gates() * units;
    for (int64_t j = 0; j < units; ++j) {
      h_[j] = b.last_h == nullptr ? 0.0 : b.last_h[row * units + j];
      c_[j] = b.last_c == nullptr ? 0.0 : b.last_c[row * units + j];
    }
    for (int64_t step = s_.time - 1; step >= 0; --step) {
      const int64_t time = row * s_.time + s_.position(step);
      for (int64_t j = 0; j < units; ++j) {
        if (b.outputs != nullptr) h_[j] += b.outputs[time * units + j];
        cell_gradient(b, row, step, time, j);
      }
      for (int64_t k = 0; k < units; ++k) {
        double sum = 0;
        for (int64_t i = 0; i < columns; ++i) sum += sums_[i] * b.kernel[k * columns + i];
        h_[k] += sum;
      }
    }
    for (int64_t j = 0; j < units; ++j) {
      if (b.h0 != nullptr) b.h0[row * units + j] = h_[j];
      if (b.c0_gradient != nullptr) b.c0_gradient[row * units + j] = c_[j];
    }
  }

 private:
  void multiply(const RecurrentForward<double>& b) {
    const int64_t columns = s_.gates() * s_.units;
    for (int64_t i = 0; i < columns; ++i) sums_[i] = b.bias == nullptr ? 0.0 : b.bias[i];
    for (int64_t k = 0; k < s_.units; ++k) {
      for (int64_t i = 0; i < columns; ++i) sums_[i] += h_[k] * b.kernel[k * columns + i];
    }
  }

  // The hidden state of a unit after the step.
  double cell(const RecurrentForward<double>& b, int64_t time, int64_t j, bool counts) {
    const int64_t units = s_.units;
    const double* x = b.x + time * s_.gates() * units + j;
    const auto sum = [&](int64_t gate) { return x[gate * units] + sums_[gate * units + j]; };
    double values[kSavedGates] = {element::sigmoid(sum(0)), element::sigmoid(sum(1))};
    double h = h_[j], c = c_[j];
    if (s_.is_lstm) {
      values[2] = element::tanh(sum(2));
      values[3] = element::sigmoid(sum(3));
      recurrent::lstm_state(values, c, h);
    } else {
      values[2] = x[2 * units];
      values[3] = sums_[2 * units + j];
      recurrent::gru_state(values, h);
    }
    if (b.gates != nullptr) {
      double* to = b.gates + time * kSavedGates * units + j;
      for (int64_t gate = 0; gate < kSavedGates; ++gate) to[gate * units] = values[gate];
    }
    if (counts) c_[j] = c;
    if (b.cells != nullptr) b.cells[time * units + j] = c_[j];
    return counts ? h : h_[j];
  }

  void cell_gradient(const RecurrentBackward<double>& b, int64_t row, int64_t step, int64_t time,
                     int64_t j) {
    const int64_t units = s_.units, gates = s_.gates(), at = time * units + j;
    double gradients[4] = {};
    if (b.mask == nullptr || b.mask[time]) {
      double values[kSavedGates];
      for (int64_t gate = 0; gate < kSavedGates; ++gate) {
        values[gate] = b.gates[(time * kSavedGates + gate) * units + j];
      }
      if (s_.is_lstm) {
        const double before =
            step == 0 ? b.c0[row * units + j] : b.cells[at + (s_.reverse ? units : -units)];
        recurrent::lstm_gradient(values, b.cells[at], before, h_[j], c_[j], gradients);
      } else {
        recurrent::gru_gradient(values, b.previous[at], h_[j], gradients);
      }
    }
    for (int64_t gate = 0; gate < gates; ++gate) {
      const int64_t to = (time * gates + gate) * units + j;
      const double recurrent = gradients[gates == 3 && gate == 2 ? 3 : gate];
      b.x[to] = gradients[gate];
      sums_[gate * units + j] = recurrent;
      if (b.recurrent != nullptr) b.recurrent[to] = recurrent;
    }
  }

  RecurrentSizes s_;
  double* h_;
  double* c_;
  double* next_;
  double* sums_;  // of all gates, or their gradients
};

}  // namespace kerascnn::cpu
