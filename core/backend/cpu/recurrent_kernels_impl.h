// The loops of recurrent_kernels.h, compiled once for each instruction set (see simd.h, which has
// to come first: it names the set that host_math.h is compiled for).
//
// A step is a product of the states with the recurrent kernel and functions of its sums. Tiles of
// some rows by one vector of units keep the sums of all gates of these units in registers, so that
// the functions follow at once.
#pragma once

// clang-format off
#include "core/backend/cpu/simd.h"
// clang-format on

#include "core/backend/cpu/recurrent_kernels.h"
#include "core/ops/host_math.h"

namespace kerascnn::cpu::KERASCNN_SIMD {

namespace {

// Rows of a tile: with four vectors each they leave registers for four more and a factor.
constexpr int kMostRows = kRegisters == 32 ? 6 : 2;
constexpr int kMostVectors = 4;

KERASCNN_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

KERASCNN_INLINE Vec at_least(Vec x, float low) {
  return x < splat(low) ? splat(low) : x;  // NaN stays NaN, as in at_most
}
KERASCNN_INLINE Vec at_most(Vec x, float high) { return x > splat(high) ? splat(high) : x; }

// Gives 2^n, and exp(x - n ln(2)) - 1, for x within [-88, 88] or NaN; host_math.h explains the
// constants.
struct Exponential {
  Vec power;
  Vec rest;
};
KERASCNN_INLINE Exponential exponential(Vec x) {
  const Vec shifted = fma(x, splat(0x1.715476p0f), splat(0x1.8p23f));
  const Vec n = shifted - splat(0x1.8p23f);
  const Vec r = fma(n, splat(-host_math::kLn2Lower), fma(n, splat(-host_math::kLn2Upper), x));
  constexpr float kFit[] = {0.5f,           0.166666657f,   0.0416664928f,
                            0.00833354332f, 0.00139323866f, 0.000197644273f};
  Vec sum = splat(kFit[5]);
  for (int i = 4; i >= 0; --i) sum = fma(sum, r, splat(kFit[i]));
  const IntVec exponent = (reinterpret_cast<IntVec>(shifted) - (0x4b400000 - 127)) << 23;
  return {reinterpret_cast<Vec>(exponent), fma(r * r, sum, r)};
}

KERASCNN_INLINE Vec sigmoid(Vec x) {
  const Exponential e = exponential(at_most(at_least(-x, -87.0f), 87.0f));
  return splat(1.0f) / (splat(1.0f) + fma(e.power, e.rest, e.power));
}

// expm1(2 |x|) / (expm1(2 |x|) + 2), which keeps the digits of a small x.
KERASCNN_INLINE Vec tanh(Vec x) {
  const IntVec sign = reinterpret_cast<IntVec>(x) & (static_cast<int32_t>(0x80000000) - IntVec{});
  const Vec size = reinterpret_cast<Vec>(reinterpret_cast<IntVec>(x) ^ sign);
  const Exponential e = exponential(at_most(size + size, 20.0f));
  const Vec m = fma(e.power, e.rest, e.power - splat(1.0f));
  const Vec value = m / (m + splat(2.0f));
  return reinterpret_cast<Vec>(reinterpret_cast<IntVec>(value) | sign);
}

// Calls tile<rows>(row) for tiles that cover [first, last), as even as they can be.
template <int rows, typename Tile>
KERASCNN_INLINE void run_tile(int64_t count, int64_t row, const Tile& tile) {
  if constexpr (rows > 1) {
    if (count < rows) return run_tile<rows - 1>(count, row, tile);
  }
  tile.template operator()<rows>(row);
}
template <typename Tile>
KERASCNN_INLINE void for_tiles(int64_t first, int64_t last, const Tile& tile) {
  const int64_t count = last - first;
  const int64_t tiles = (count + kMostRows - 1) / kMostRows;
  for (int64_t i = 0; i < tiles; ++i) {
    const int64_t begin = count * i / tiles;
    run_tile<kMostRows>(count * (i + 1) / tiles - begin, first + begin, tile);
  }
}

// For each vector of units: (units, gates, width).
void pack(const RecurrentSizes& s, const float* kernel, float* packed, int64_t first,
          int64_t last) {
  const int64_t gates = s.gates(), columns = gates * s.units;
  for (int64_t unit = first * kUnitAlignment; unit < last * kUnitAlignment; unit += kWidth) {
    float* to = packed + unit * columns;
    const int64_t count = s.units - unit;
    for (int64_t k = 0; k < s.units; ++k) {
      for (int64_t gate = 0; gate < gates; ++gate, to += kWidth) {
        store(to,
              count > 0 ? load_some(kernel + k * columns + gate * s.units + unit, count) : Vec{});
      }
    }
  }
}

// For each vector of units: (gates * units, width), the kernel's rows being the units.
void pack_transposed(const RecurrentSizes& s, const float* kernel, float* packed, int64_t first,
                     int64_t last) {
  const int64_t columns = s.gates() * s.units;
  for (int64_t unit = first * kUnitAlignment; unit < last * kUnitAlignment; unit += kWidth) {
    float* to = packed + unit * columns;
    const int64_t count = smaller(kWidth, s.units - unit);
    for (int64_t column = 0; column < columns; ++column, to += kWidth) {
      for (int64_t lane = 0; lane < kWidth; ++lane) {
        to[lane] = lane < count ? kernel[(unit + lane) * columns + column] : 0.0f;
      }
    }
  }
}

// Where the row and vector of units of a step are in the buffers.
struct Place {
  int64_t row, time, unit, count;  // of units; `time` is row * time + position
  bool counts;                     // what the mask says
};

KERASCNN_INLINE void write_state(const RecurrentSizes& s, const RecurrentForward<float>& b,
                                 const Place& p, Vec before, Vec h) {
  const int64_t at = p.time * s.units + p.unit;
  if (b.previous != nullptr) store_some(b.previous + at, before, p.count);
  if (b.outputs != nullptr) store_some(b.outputs + at, h, p.count);
}

template <int count>
KERASCNN_INLINE void write_gates(const RecurrentSizes& s, const RecurrentForward<float>& b,
                                 const Place& p, const Vec (&values)[count]) {
  if (b.gates == nullptr) return;
  float* to = b.gates + p.time * kSavedGates * s.units + p.unit;
  for (int gate = 0; gate < count; ++gate) store_some(to + gate * s.units, values[gate], p.count);
}

// The new hidden state of one row, from the sums of its gates.
KERASCNN_INLINE Vec lstm_cell(const RecurrentSizes& s, const RecurrentForward<float>& b,
                              const Place& p, const Vec (&sums)[4], Vec before, float* cell) {
  const Vec gates[4] = {sigmoid(sums[0]), sigmoid(sums[1]), tanh(sums[2]), sigmoid(sums[3])};
  Vec c = fma(gates[1], load(cell), gates[0] * gates[2]);
  Vec h = gates[3] * tanh(c);
  if (!p.counts) {
    c = load(cell);
    h = before;
  }
  store(cell, c);
  write_gates(s, b, p, gates);
  if (b.cells != nullptr) store_some(b.cells + p.time * s.units + p.unit, c, p.count);
  return h;
}

KERASCNN_INLINE Vec gru_cell(const RecurrentSizes& s, const RecurrentForward<float>& b,
                             const Place& p, const Vec (&sums)[3], Vec before) {
  const Vec x = load_some(b.x + p.time * 3 * s.units + 2 * s.units + p.unit, p.count);
  const Vec z = sigmoid(sums[0]), r = sigmoid(sums[1]);
  const Vec candidate = tanh(fma(r, sums[2], x));
  const Vec gates[4] = {z, r, candidate, sums[2]};
  write_gates(s, b, p, gates);
  const Vec h = fma(z, before - candidate, candidate);
  return p.counts ? h : before;
}

// The gates whose sums begin with x: the candidate of a GRU takes it after the reset.
template <int gates, int rows>
KERASCNN_INLINE void begin_sums(const RecurrentSizes& s, const RecurrentForward<float>& b,
                                const Place (&places)[rows], Vec (&sums)[rows][gates]) {
  for (int i = 0; i < rows; ++i) {
    const Place& p = places[i];
    for (int gate = 0; gate < gates; ++gate) {
      const int64_t column = gate * s.units + p.unit;
      Vec sum{};
      if (gates == 4 || gate < 2) {
        sum = load_some(b.x + p.time * gates * s.units + column, p.count);
      }
      if (gates == 3) sum += load_some(b.bias + column, p.count);
      sums[i][gate] = sum;
    }
  }
}

template <int gates, int rows>
KERASCNN_INLINE void forward_tile(const RecurrentSizes& s, const RecurrentForward<float>& b,
                                  const RecurrentScratch& scratch, int64_t step, int64_t row,
                                  int64_t unit) {
  const int64_t padded = padded_units(s);
  const float* h = scratch.h[step % 2] + row * padded;
  Place places[rows];
  for (int i = 0; i < rows; ++i) {
    const int64_t time = (row + i) * s.time + s.position(step);
    places[i] = {row + i, time, unit, s.units - unit, b.mask == nullptr || b.mask[time]};
  }
  Vec sums[rows][gates];
  begin_sums(s, b, places, sums);
  const float* weights = scratch.packed + unit * gates * s.units;
  for (int64_t k = 0; k < s.units; ++k, weights += gates * kWidth) {
    Vec w[gates];
    for (int gate = 0; gate < gates; ++gate) w[gate] = load(weights + gate * kWidth);
    for (int i = 0; i < rows; ++i) {
      const Vec factor = splat(h[i * padded + k]);
      for (int gate = 0; gate < gates; ++gate) {
        sums[i][gate] = fma(factor, w[gate], sums[i][gate]);
      }
    }
  }
  float* next = scratch.h[(step + 1) % 2];
  for (int i = 0; i < rows; ++i) {
    const int64_t at = (row + i) * padded + unit;
    const Vec before = load(h + i * padded + unit);
    Vec after;
    if constexpr (gates == 4) {
      after = lstm_cell(s, b, places[i], sums[i], before, scratch.c + at);
    } else {
      after = gru_cell(s, b, places[i], sums[i], before);
    }
    write_state(s, b, places[i], before, after);
    store(next + at, after);
  }
}

void read_rows(const RecurrentSizes& s, const float* from, float* to, int64_t first, int64_t last) {
  const int64_t padded = padded_units(s);
  for (int64_t row = first; row < last; ++row) {
    for (int64_t unit = 0; unit < padded; unit += kWidth) {
      const int64_t count = s.units - unit;
      const bool has_any = from != nullptr && count > 0;
      store(to + row * padded + unit,
            has_any ? load_some(from + row * s.units + unit, count) : Vec{});
    }
  }
}

void write_rows(const RecurrentSizes& s, const float* from, float* to, int64_t first,
                int64_t last) {
  if (to == nullptr) return;
  const int64_t padded = padded_units(s);
  for (int64_t row = first; row < last; ++row) {
    for (int64_t unit = 0; unit < s.units; unit += kWidth) {
      store_some(to + row * s.units + unit, load(from + row * padded + unit), s.units - unit);
    }
  }
}

template <int gates>
void forward_steps(const RecurrentSizes& s, const RecurrentForward<float>& b,
                   const RecurrentScratch& scratch, int64_t first, int64_t last) {
  for (int64_t step = 0; step < s.time; ++step) {
    for (int64_t unit = 0; unit < s.units; unit += kWidth) {
      for_tiles(first, last, [&]<int rows>(int64_t row) {
        forward_tile<gates, rows>(s, b, scratch, step, row, unit);
      });
    }
  }
}

void forward(const RecurrentSizes& s, const RecurrentForward<float>& b,
             const RecurrentScratch& scratch, int64_t first, int64_t last) {
  read_rows(s, b.h0, scratch.h[0], first, last);
  if (s.is_lstm) {
    read_rows(s, b.c0, scratch.c, first, last);
    forward_steps<4>(s, b, scratch, first, last);
    write_rows(s, scratch.c, b.last_c, first, last);
  } else {
    forward_steps<3>(s, b, scratch, first, last);
  }
  write_rows(s, scratch.h[s.time % 2], b.last_h, first, last);
}

// The gradients of the sums of a row's gates. The part of h's gradient that does not go through the
// gates stays in h, and c is left with the gradient of the cell before.
KERASCNN_INLINE void lstm_cell_gradient(const RecurrentSizes& s, const RecurrentBackward<float>& b,
                                        const Place& p, bool is_first, float* h, float* c,
                                        Vec (&gradients)[4]) {
  if (!p.counts) {
    for (Vec& gradient : gradients) gradient = Vec{};
    return;
  }
  const float* gates = b.gates + p.time * 4 * s.units + p.unit;
  const auto gate = [&](int i) { return load_some(gates + i * s.units, p.count); };
  const Vec i = gate(0), f = gate(1), candidate = gate(2), o = gate(3);
  const float* cells = b.cells + p.time * s.units + p.unit;
  const Vec bounded = tanh(load_some(cells, p.count));
  const float* before =
      is_first ? b.c0 + p.row * s.units + p.unit : cells + (s.reverse ? s.units : -s.units);
  const Vec one = splat(1.0f);
  const Vec gh = load(h);
  const Vec gc = fma(gh * o, one - bounded * bounded, load(c));
  gradients[0] = gc * candidate * (i * (one - i));
  gradients[1] = gc * load_some(before, p.count) * (f * (one - f));
  gradients[2] = gc * i * (one - candidate * candidate);
  gradients[3] = gh * bounded * (o * (one - o));
  store(c, gc * f);
  store(h, Vec{});
}

// `through_x` is the gradient of the candidate's part that comes from x.
KERASCNN_INLINE void gru_cell_gradient(const RecurrentSizes& s, const RecurrentBackward<float>& b,
                                       const Place& p, float* h, Vec (&gradients)[3],
                                       Vec& through_x) {
  if (!p.counts) {
    for (Vec& gradient : gradients) gradient = Vec{};
    through_x = Vec{};
    return;
  }
  const float* gates = b.gates + p.time * kSavedGates * s.units + p.unit;
  const auto gate = [&](int i) { return load_some(gates + i * s.units, p.count); };
  const Vec z = gate(0), r = gate(1), candidate = gate(2), inner = gate(3);
  const Vec before = load_some(b.previous + p.time * s.units + p.unit, p.count);
  const Vec one = splat(1.0f);
  const Vec gh = load(h);
  through_x = gh * (one - z) * (one - candidate * candidate);
  gradients[0] = gh * (before - candidate) * (z * (one - z));
  gradients[1] = through_x * inner * (r * (one - r));
  gradients[2] = through_x * r;
  store(h, gh * z);
}

template <int gates>
KERASCNN_INLINE void gate_gradients(const RecurrentSizes& s, const RecurrentBackward<float>& b,
                                    const RecurrentScratch& scratch, int64_t step, int64_t row) {
  const int64_t position = s.position(step), time = row * s.time + position;
  const bool counts = b.mask == nullptr || b.mask[time];
  for (int64_t unit = 0; unit < s.units; unit += kWidth) {
    const Place p = {row, time, unit, s.units - unit, counts};
    const int64_t at = row * padded_units(s) + unit;
    float* h = scratch.h[0] + at;
    if (b.outputs != nullptr) {
      store(h, load(h) + load_some(b.outputs + time * s.units + unit, p.count));
    }
    Vec gradients[gates];
    Vec through_x{};
    if constexpr (gates == 4) {
      lstm_cell_gradient(s, b, p, step == 0, h, scratch.c + at, gradients);
    } else {
      gru_cell_gradient(s, b, p, h, gradients, through_x);
    }
    for (int gate = 0; gate < gates; ++gate) {
      const int64_t column = gate * s.units + unit, to = time * gates * s.units + column;
      const bool is_split = gates == 3 && gate == 2;
      store_some(scratch.gradients + row * gradient_row(s) + column, gradients[gate], p.count);
      store_some(b.x + to, is_split ? through_x : gradients[gate], p.count);
      if (b.recurrent != nullptr) store_some(b.recurrent + to, gradients[gate], p.count);
    }
  }
}

// h += the gates' gradients times the transposed kernel, for `vectors` vectors of units.
template <int vectors, int rows>
KERASCNN_INLINE void backward_tile(const RecurrentSizes& s, const RecurrentScratch& scratch,
                                   int64_t row, int64_t unit) {
  const int64_t padded = padded_units(s), columns = s.gates() * s.units, step = gradient_row(s);
  const float* gradients = scratch.gradients + row * step;
  const float* weights = scratch.packed + unit * columns;
  float* h = scratch.h[0] + row * padded + unit;
  Vec sums[rows][vectors];
  for (int i = 0; i < rows; ++i) {
    for (int v = 0; v < vectors; ++v) sums[i][v] = load(h + i * padded + v * kWidth);
  }
  for (int64_t k = 0; k < columns; ++k) {
    Vec w[vectors];
    for (int v = 0; v < vectors; ++v) w[v] = load(weights + (v * columns + k) * kWidth);
    for (int i = 0; i < rows; ++i) {
      const Vec factor = splat(gradients[i * step + k]);
      for (int v = 0; v < vectors; ++v) sums[i][v] = fma(factor, w[v], sums[i][v]);
    }
  }
  for (int i = 0; i < rows; ++i) {
    for (int v = 0; v < vectors; ++v) store(h + i * padded + v * kWidth, sums[i][v]);
  }
}

template <int vectors = kMostVectors>
KERASCNN_INLINE void backward_tiles(const RecurrentSizes& s, const RecurrentScratch& scratch,
                                    int64_t first, int64_t last, int64_t unit, int64_t count) {
  if constexpr (vectors > 1) {
    if (count < vectors) {
      return backward_tiles<vectors - 1>(s, scratch, first, last, unit, count);
    }
  }
  for_tiles(first, last,
            [&]<int rows>(int64_t row) { backward_tile<vectors, rows>(s, scratch, row, unit); });
}

template <int gates>
void backward_steps(const RecurrentSizes& s, const RecurrentBackward<float>& b,
                    const RecurrentScratch& scratch, int64_t first, int64_t last) {
  for (int64_t step = s.time - 1; step >= 0; --step) {
    for (int64_t row = first; row < last; ++row) gate_gradients<gates>(s, b, scratch, step, row);
    if (step == 0 && b.h0 == nullptr) break;
    const int64_t vectors = (s.units + kWidth - 1) / kWidth;
    for (int64_t v = 0; v < vectors; v += kMostVectors) {
      backward_tiles(s, scratch, first, last, v * kWidth, smaller(kMostVectors, vectors - v));
    }
  }
}

void backward(const RecurrentSizes& s, const RecurrentBackward<float>& b,
              const RecurrentScratch& scratch, int64_t first, int64_t last) {
  read_rows(s, b.last_h, scratch.h[0], first, last);
  if (s.is_lstm) {
    read_rows(s, b.last_c, scratch.c, first, last);
    backward_steps<4>(s, b, scratch, first, last);
    write_rows(s, scratch.c, b.c0_gradient, first, last);
  } else {
    backward_steps<3>(s, b, scratch, first, last);
  }
  write_rows(s, scratch.h[0], b.h0, first, last);
}

}  // namespace

const RecurrentKernels kRecurrentKernels = {
    .name = KERASCNN_STRING(KERASCNN_SIMD),
    .pack = pack,
    .pack_transposed = pack_transposed,
    .forward = forward,
    .backward = backward,
};

}  // namespace kerascnn::cpu::KERASCNN_SIMD
