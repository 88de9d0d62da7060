// The loops of conv_pool_kernels.h, compiled once for each instruction set (see simd.h).
#pragma once

#include "core/backend/cpu/conv_pool_kernels.h"
#include "core/backend/cpu/simd.h"

namespace kerascnn::cpu::KERASCNN_SIMD {

namespace {

constexpr int kMostPooledSums = kRegisters == 32 ? 24 : 12;

// The gradients before relu of up to kWidth filters from `at` on, 0 behind the last one.
KERASCNN_INLINE Vec gradients_at(const PooledGradients& g, int64_t at, int64_t count) {
  const Vec gy = load_some(g.gy + at, count);
  return g.y == nullptr ? gy : ((load_some(g.y + at, count) > Vec{}) ? gy : Vec{});
}

KERASCNN_INLINE IntVec positions_at(const PooledGradients& g, int64_t at, int64_t count) {
  return __builtin_convertvector(load_bytes(g.index + at, count), IntVec);
}

KERASCNN_INLINE IntVec count_up() {
  IntVec lanes{};
  for (int lane = 0; lane < kWidth; ++lane) lanes[lane] = lane;
  return lanes;
}

void list_filters(const PooledGradients& g, const FilterLists& lists) {
  int32_t end = 0;
  int32_t* ends = lists.ends;
  for (int64_t place = 0; place < lists.places; ++place) {
    for (int position = 0; position < lists.window; ++position) {
      for (int64_t filter = 0; filter < g.filters; filter += kWidth) {
        const int64_t at = place * g.filters + filter;
        const int64_t count = g.filters - filter;
        const Vec gradient = gradients_at(g, at, count);
        const IntVec here = positions_at(g, at, count) == (position - IntVec{});
        // NaN is not equal to 0: it is listed.
        const uint32_t lanes = lanes_of(here & (gradient != Vec{}));
        store_lanes(lists.gradients + end, gradient, lanes);
        store_lanes(lists.filters + end, count_up() + static_cast<int32_t>(filter), lanes);
        end += __builtin_popcount(lanes);
      }
      *ends++ = end;
    }
  }
}

// One piece for all rows and columns that a piece can have: calls
// Loop::run<rows, columns>(arguments...).
template <typename Loop, int rows, int columns, typename... Arguments>
KERASCNN_INLINE void with_columns(const PatchPiece& piece, const Arguments&... arguments) {
  if constexpr (columns > 1) {
    if (piece.columns < columns) {
      return with_columns<Loop, rows, columns - 1>(piece, arguments...);
    }
  }
  Loop::template run<rows, columns>(piece, arguments...);
}

constexpr int most_pooled_columns(int rows) {
  return kMostPooledSums / rows < kMostPieceColumns ? kMostPooledSums / rows : kMostPieceColumns;
}

template <typename Loop, typename... Arguments>
KERASCNN_INLINE void with_piece(const PatchPiece& piece, const Arguments&... arguments) {
  static_assert(kMostPieceRows == 3);
  if (piece.rows == 1) return with_columns<Loop, 1, most_pooled_columns(1)>(piece, arguments...);
  if (piece.rows == 2) return with_columns<Loop, 2, most_pooled_columns(2)>(piece, arguments...);
  with_columns<Loop, 3, most_pooled_columns(3)>(piece, arguments...);
}

// Keeps the compiler from computing an address of its own for each vector behind this one, for
// which there are not enough registers.
KERASCNN_INLINE const float* one_address(const float* from) {
  __asm__("" : "+r"(from));
  return from;
}

// sums += value * the piece at `from`, whose rows are `row_step` elements apart.
template <int rows, int columns>
KERASCNN_INLINE void add_product(Vec (&sums)[rows][columns], float value, const float* from,
                                 int64_t row_step) {
  const Vec factor = splat(value);
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < columns; ++j) {
      sums[i][j] = fma(factor, load(from + j * kWidth), sums[i][j]);
    }
    from = one_address(from + row_step);
  }
}

struct AddPatches {
  template <int rows, int columns>
  static void run(const PatchPiece& piece, const FilterLists& lists, const float* kernel,
                  float* gx) {
    int32_t entry = 0;
    for (int64_t list = 0; list < lists.places * lists.window; ++list) {
      const int32_t end = lists.ends[list];
      if (entry == end) continue;
      Vec sums[rows][columns] = {};
      for (; entry < end; ++entry) {
        const int64_t filter = lists.filters[entry];
        add_product<rows, columns>(sums, lists.gradients[entry],
                                   kernel + filter * (rows * columns * kWidth), columns * kWidth);
      }
      float* to = gx + lists.starts[list];
      for (int i = 0; i < rows; ++i) {
        for (int j = 0; j < columns; ++j) {
          store(to + j * kWidth, load(to + j * kWidth) + sums[i][j]);
        }
        to += piece.row_step;
      }
    }
  }
};

void add_patches(const PatchPiece& piece, const FilterLists& lists, const float* kernel,
                 float* gx) {
  with_piece<AddPatches>(piece, lists, kernel, gx);
}

// Lists the places of up to kWidth filters from `first` on, so that few lists grow at a time.
KERASCNN_INLINE void list_some_places(const PooledGradients& g, const PlaceLists& lists,
                                      int64_t first, float* sums) {
  constexpr int64_t kSumPlaces = 64;  // in float, more of them in double
  const int64_t count = g.filters - first < kWidth ? g.filters - first : kWidth;
  PlacedGradient* ends[kWidth];
  for (int64_t i = 0; i < count; ++i) ends[i] = lists.entries + (first + i) * lists.capacity;
  double totals[kWidth] = {};
  Vec sum{};
  int64_t at = first;
  for (int64_t place = 0; place < lists.rows * lists.places; ++place, at += g.filters) {
    const Vec gradient = gradients_at(g, at, count);
    sum += gradient;
    if (place % kSumPlaces == kSumPlaces - 1) {
      for (int64_t i = 0; i < count; ++i) totals[i] += sum[i];
      sum = Vec{};
    }
    float values[kWidth];
    store(values, gradient);
    const auto start = static_cast<int32_t>(place / lists.places * lists.row_step +
                                            place % lists.places * lists.step);
    for (int64_t i = 0; i < count; ++i) {
      uint32_t bits;
      std::memcpy(&bits, values + i, sizeof(bits));
      // Written in any case, kept where it is not 0: no jump that nobody can foresee.
      *ends[i] = {values[i], start + lists.offsets[g.index[at + i]]};
      ends[i] += bits << 1 != 0 ? 1 : 0;
    }
  }
  for (int64_t i = 0; i < count; ++i) {
    lists.counts[first + i] =
        static_cast<int32_t>(ends[i] - (lists.entries + (first + i) * lists.capacity));
    sums[first + i] = static_cast<float>(totals[i] + sum[i]);
  }
}

void list_places(const PooledGradients& g, const PlaceLists& lists, float* sums) {
  for (int64_t first = 0; first < g.filters; first += kWidth) {
    list_some_places(g, lists, first, sums);
  }
}

struct SumPatches {
  template <int rows, int columns>
  static void run(const PatchPiece& piece, const PlaceLists& lists, int64_t filters,
                  const float* image, float* totals) {
    for (int64_t filter = 0; filter < filters; ++filter) {
      float* total = totals + filter * (rows * columns * kWidth);
      Vec sums[rows][columns];
      for (int i = 0; i < rows; ++i) {
        for (int j = 0; j < columns; ++j) sums[i][j] = load(total + (i * columns + j) * kWidth);
      }
      const PlacedGradient* entry = lists.entries + filter * lists.capacity;
      for (const PlacedGradient* end = entry + lists.counts[filter]; entry < end; ++entry) {
        add_product<rows, columns>(sums, entry->value, image + entry->place, piece.row_step);
      }
      for (int i = 0; i < rows; ++i) {
        for (int j = 0; j < columns; ++j) store(total + (i * columns + j) * kWidth, sums[i][j]);
      }
    }
  }
};

void sum_patches(const PatchPiece& piece, const PlaceLists& lists, int64_t filters,
                 const float* image, float* totals) {
  with_piece<SumPatches>(piece, lists, filters, image, totals);
}

// Two rows of patches are two halves of a table that the maxima's positions look up.
bool takes_small(int64_t window_rows, int64_t window_columns, int64_t reach) {
  return window_rows <= 2 && window_rows * window_columns <= kWidth && reach <= kWidth;
}

// Where each position of the window begins in the table.
KERASCNN_INLINE IntVec table_starts(const SmallWindow& s, int64_t window_columns) {
  IntVec starts{};
  for (int position = 0; position < kWidth; ++position) {
    const int64_t row = position / window_columns;
    const int64_t column = position % window_columns;
    starts[position] = static_cast<int32_t>(row * kWidth + column * s.column_step);
  }
  return starts;
}

KERASCNN_INLINE IntVec look_up_start(IntVec starts, IntVec position) {
  const Vec table = reinterpret_cast<Vec>(starts);
  return reinterpret_cast<IntVec>(look_up(table, table, position));
}

// `rows` rows of the kernel from kernel_row on, for one block of filters.
template <int rows, int run>
KERASCNN_INLINE void small_wgrad_block(const SmallWindow& s, const PooledGradients& g,
                                       IntVec starts, int64_t filter, const float* image,
                                       float* totals) {
  Vec sums[rows][run];
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < run; ++j) sums[i][j] = load(totals + (i * run + j) * kWidth);
  }
  const int64_t count = g.filters - filter;
  for (int64_t place = 0; place < s.places; ++place) {
    const int64_t at = place * g.filters + filter;
    const Vec gradient = gradients_at(g, at, count);
    const IntVec start = look_up_start(starts, positions_at(g, at, count));
    for (int i = 0; i < rows; ++i) {
      const float* from = image + place * s.step + i * s.image_row_step;
      const Vec low = load(from);
      const Vec high = load(from + s.row_step);
      for (int j = 0; j < run; ++j) {
        sums[i][j] = fma(gradient, look_up(low, high, start + j), sums[i][j]);
      }
    }
  }
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < run; ++j) store(totals + (i * run + j) * kWidth, sums[i][j]);
  }
}

// Takes as many rows of the kernel at a time as fit into registers, with a vector of positions for
// each element of the run.
template <int run>
KERASCNN_INLINE void small_wgrad_rows(const SmallWindow& s, const PooledGradients& g, IntVec starts,
                                      int64_t filter, const float* image, float* totals) {
  constexpr int kFit = (kRegisters * 7 / 8) / run - 1;
  constexpr int rows = kFit < 1 ? 1 : (kFit > 3 ? 3 : kFit);
  int64_t row = 0;
  for (; row + rows <= s.kernel_rows; row += rows) {
    small_wgrad_block<rows, run>(s, g, starts, filter, image + row * s.image_row_step,
                                 totals + row * run * kWidth);
  }
  for (; row < s.kernel_rows; ++row) {
    small_wgrad_block<1, run>(s, g, starts, filter, image + row * s.image_row_step,
                              totals + row * run * kWidth);
  }
}

template <int run = kWidth>
KERASCNN_INLINE void small_wgrad_run(const SmallWindow& s, const PooledGradients& g, IntVec starts,
                                     int64_t filter, const float* image, float* totals) {
  if constexpr (run > 1) {
    if (s.run < run) return small_wgrad_run<run - 1>(s, g, starts, filter, image, totals);
  }
  small_wgrad_rows<run>(s, g, starts, filter, image, totals);
}

void small_wgrad(const SmallWindow& s, const PooledGradients& g, int64_t window_columns,
                 const float* image, float* totals, float* sums) {
  const IntVec starts = table_starts(s, window_columns);
  for (int64_t filter = 0; filter < s.filters; filter += kWidth) {
    small_wgrad_run(s, g, starts, filter, image, totals + filter * s.kernel_rows * s.run);
    Vec sum = load(sums + filter);
    for (int64_t place = 0; place < s.places; ++place) {
      sum += gradients_at(g, place * g.filters + filter, g.filters - filter);
    }
    store(sums + filter, sum);
  }
}

// The largest of the 4 sums of a window. After relu, all sums that are not above 0 are equal.
KERASCNN_INLINE void pool_sums(const Vec (&sums)[4], bool relu, Vec& largest, IntVec& best) {
  Vec lower = sums[2];
  IntVec lower_best = 2 - IntVec{};
  largest = sums[0];
  best = IntVec{};
  take_larger(sums[1], 1 - IntVec{}, largest, best);
  take_larger(sums[3], 3 - IntVec{}, lower, lower_best);
  take_larger(lower, lower_best, largest, best);
  if (relu) {
    const IntVec is_off = largest <= Vec{};
    largest = is_off ? Vec{} : largest;
    best = is_off ? IntVec{} : best;
  }
}

// The convolution at the 4 positions of `places` neighbouring windows, for `blocks` vectors of
// filters. `column` is the window's column_step and half of its step, where it is not 0.
template <int places, int blocks, int column>
KERASCNN_INLINE void small_forward_block(const SmallWindow& s, bool relu, const float* image,
                                         const float* kernel, const float* bias, int64_t filters,
                                         float* y, uint8_t* index) {
  const int64_t column_step = column > 0 ? column : s.column_step;
  const int64_t step = column > 0 ? 2 * column : s.step;
  const int64_t taps = s.kernel_rows * s.run;
  Vec sums[blocks][places][4];
  for (int b = 0; b < blocks; ++b) {
    const Vec start = load(bias + b * kWidth);
    for (int p = 0; p < places; ++p) {
      for (Vec& sum : sums[b][p]) sum = start;
    }
  }
  for (int64_t row = 0; row < s.kernel_rows; ++row) {
    const float* upper = image + row * s.image_row_step;
    const float* lower = upper + s.row_step;
    const float* weight = kernel + row * s.run * kWidth;
    for (int64_t j = 0; j < s.run; ++j, ++upper, ++lower, weight += kWidth) {
      Vec weights[blocks];
      for (int b = 0; b < blocks; ++b) weights[b] = load(weight + b * taps * kWidth);
      for (int p = 0; p < places; ++p) {
        for (int k = 0; k < 4; ++k) {
          const float* from = k < 2 ? upper : lower;
          const Vec x = splat(from[p * step + k % 2 * column_step]);
          for (int b = 0; b < blocks; ++b) sums[b][p][k] = fma(x, weights[b], sums[b][p][k]);
        }
      }
    }
  }
  for (int b = 0; b < blocks; ++b) {
    const int64_t count = filters - b * kWidth;
    for (int p = 0; p < places; ++p) {
      Vec largest;
      IntVec best;
      pool_sums(sums[b][p], relu, largest, best);
      const int64_t at = p * s.filters + b * kWidth;
      store_some(y + at, largest, count);
      if (index != nullptr) {
        store_bytes(index + at, __builtin_convertvector(best, ByteVec), count);
      }
    }
  }
}

template <int blocks, int column>
KERASCNN_INLINE void small_forward_row(const SmallWindow& s, bool relu, const float* image,
                                       const float* kernel, const float* bias, int64_t filters,
                                       float* y, uint8_t* index) {
  // There are as many sums as registers allow beside weights and one number of the image.
  constexpr int kPlaces = kRegisters == 32 ? 3 : (blocks == 1 ? 2 : 1);
  int64_t place = 0;
  const auto run = [&]<int places>() {
    small_forward_block<places, blocks, column>(
        s, relu, image + place * s.step, kernel, bias, filters, y + place * s.filters,
        index == nullptr ? index : index + place * s.filters);
    place += places;
  };
  while (place + kPlaces <= s.places) run.template operator()<kPlaces>();
  if constexpr (kPlaces > 2) {
    while (place + 2 <= s.places) run.template operator()<2>();
  }
  while (place < s.places) run.template operator()<1>();
}

template <int column>
KERASCNN_INLINE void small_forward_filters(const SmallWindow& s, bool relu, const float* image,
                                           const float* kernel, const float* bias, float* y,
                                           uint8_t* index) {
  const int64_t taps = s.kernel_rows * s.run;
  int64_t filter = 0;
  const auto run = [&]<int blocks>() {
    small_forward_row<blocks, column>(s, relu, image, kernel + filter * taps, bias + filter,
                                      s.filters - filter, y + filter,
                                      index == nullptr ? index : index + filter);
    filter += blocks * kWidth;
  };
  while (filter + kWidth < s.filters) run.template operator()<2>();
  if (filter < s.filters) run.template operator()<1>();
}

void small_forward(const SmallWindow& s, bool relu, const float* image, const float* kernel,
                   const float* bias, float* y, uint8_t* index) {
  if (s.column_step == 1 && s.step == 2) {
    small_forward_filters<1>(s, relu, image, kernel, bias, y, index);
  } else {
    small_forward_filters<0>(s, relu, image, kernel, bias, y, index);
  }
}

}  // namespace

const ConvPoolKernels kConvPoolKernels = {
    .name = KERASCNN_STRING(KERASCNN_SIMD),
    .width = kWidth,
    .most_sums = kMostPooledSums,
    .list_filters = list_filters,
    .add_patches = add_patches,
    .list_places = list_places,
    .sum_patches = sum_patches,
    .takes_small = takes_small,
    .small_wgrad = small_wgrad,
    .small_forward = small_forward,
};

}  // namespace kerascnn::cpu::KERASCNN_SIMD
