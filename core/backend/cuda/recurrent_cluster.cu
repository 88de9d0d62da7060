// LSTMs and GRUs over whole sequences in one launch: a cluster of blocks takes some rows of the
// batch from the first step to the last one. Every block has a part of the units and keeps their
// columns of the recurrent kernel in registers; what a step makes goes to the other blocks' shared
// memory, and one barrier of the cluster ends the step.
//
// Arithmetic is float32 throughout, in an order that depends on the sizes alone.
#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/device/cluster.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/recurrent.h"
#include "core/backend/cuda/runtime/check.h"
#include "core/backend/cuda/runtime/shared_memory.h"
#include "core/ops/recurrent_cells.h"

namespace kerascnn::cuda {
namespace {

// Numbers of the kernel that a thread holds for each of four columns.
constexpr int kDepth = 16;
// Rows that a cluster takes at the most; more of them wait for their turn.
constexpr int64_t kMostRows = 32;
constexpr int64_t kMostBlocks = INT32_MAX;

// Of a block with `units` of the units, one of `blocks`.
template <int units, int blocks>
struct Split {
  static constexpr int kUnits = units;
  static constexpr int kBlocks = blocks;
  static constexpr int kAllUnits = units * blocks;  // filled up
  static constexpr int kThreads = units * kAllUnits / kDepth;
};

struct Job {
  RecurrentSizes sizes;
  int64_t rows;  // of a cluster, a multiple of those that are computed at a time
};

// Adds up v over kLanes neighbouring lanes. Lane l is left with the sums number
// l / kRepeats * kHeld and following, kRepeats lanes having the same ones.
template <int kCount, int kLanes>
struct Reduction {
  static constexpr int kHeld = kCount > kLanes ? kCount / kLanes : 1;
  static constexpr int kRepeats = kLanes > kCount ? kLanes / kCount : 1;

  template <int count = kCount, int distance = kLanes / 2>
  static __device__ __forceinline__ void run(float (&v)[kCount], int lane) {
    if constexpr (distance > 0) {
      if constexpr (count > 1) {
        // A lane passes on the half that it won't hold.
        const bool upper = (lane & distance) != 0;
#pragma unroll
        for (int i = 0; i < count / 2; ++i) {
          const float kept = upper ? v[i + count / 2] : v[i];
          const float passed = upper ? v[i] : v[i + count / 2];
          v[i] = kept + __shfl_xor_sync(0xffffffffu, passed, distance);
        }
        run<count / 2, distance / 2>(v, lane);
      } else {
        v[0] += __shfl_xor_sync(0xffffffffu, v[0], distance);
        run<1, distance / 2>(v, lane);
      }
    }
  }
};

// sums[row * 4 + i] += values[row] . weights[i], of this lane's share of the summands: of each
// kLanes * 4 the four that begin at lane * 4.
template <int kRows, int kLanes, int kColumns>
__device__ __forceinline__ void multiply_rows(const float* values, int row_step, int lane,
                                              const float (&weights)[kColumns][kDepth],
                                              float (&sums)[4 * kRows]) {
#pragma unroll
  for (int chunk = 0; chunk < kDepth / 4; ++chunk) {
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      const float4 x =
          *reinterpret_cast<const float4*>(values + row * row_step + (chunk * kLanes + lane) * 4);
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        float& sum = sums[row * 4 + i];
        sum = fmaf(x.x, weights[i][chunk * 4], sum);
        sum = fmaf(x.y, weights[i][chunk * 4 + 1], sum);
        sum = fmaf(x.z, weights[i][chunk * 4 + 2], sum);
        sum = fmaf(x.w, weights[i][chunk * 4 + 3], sum);
      }
    }
  }
}

// The end of a step in two halves: whoever has passed it sees what all blocks wrote before.
template <int kBlocks>
__device__ __forceinline__ void arrive() {
  if constexpr (kBlocks > 1) {
    __syncwarp();  // the barrier counts warps
    arrive_in_cluster();
  }
}
template <int kBlocks>
__device__ __forceinline__ void wait() {
  if constexpr (kBlocks > 1) {
    __syncwarp();
    wait_for_cluster();
  } else {
    __syncthreads();
  }
}
template <int kBlocks>
__device__ __forceinline__ void store_at(float* shared, unsigned rank, float value) {
  if constexpr (kBlocks > 1) {
    store_in_cluster(shared, rank, value);
  } else {
    *shared = value;
  }
}

// What a step leaves to be written to memory, of one row and unit.
struct Finished {
  float gates[4];
  float h, c, before;
};

// One of the lanes that share a row and a unit writes some of it.
template <int kCopies>
__device__ __forceinline__ void write_step(const RecurrentForward<float>& b, int64_t units,
                                           int64_t time, int64_t unit, int copy,
                                           const Finished& f) {
  if (b.gates != nullptr) {
#pragma unroll
    for (int gate = 0; gate < kSavedGates; ++gate) {
      if (gate % kCopies == copy) {
        b.gates[(time * kSavedGates + gate) * units + unit] = f.gates[gate];
      }
    }
  }
  const int64_t at = time * units + unit;
  if (copy == 0 && b.outputs != nullptr) b.outputs[at] = f.h;
  if (copy == 1 % kCopies && b.previous != nullptr) b.previous[at] = f.before;
  if (copy == 2 % kCopies && b.cells != nullptr) b.cells[at] = f.c;
}

// The lanes of a unit in the forward kernel: each has a share of the summands of all gates, then
// some of the sums, then a row or a few.
template <typename S, int rows>
struct ForwardLanes {
  static constexpr int kLanes = S::kAllUnits / kDepth;
  using Sums = Reduction<4 * rows, kLanes>;
  static constexpr int kOwnRows = rows > kLanes ? rows / kLanes : 1;
  static constexpr int kCopies = kLanes > rows ? kLanes / rows : 1;
};

// Of the shared memory: states twice, (rows, all units); the lanes' cell states; sums of a unit's
// gates.
template <typename S, int kRows>
struct ForwardMemory {
  float* h;
  float* c;
  float* sums;

  static int64_t floats(int64_t rows) {
    using Lanes = ForwardLanes<S, kRows>;
    return 2 * rows * S::kAllUnits + rows * S::kUnits * Lanes::kCopies + S::kUnits * 4 * kRows;
  }
  __device__ ForwardMemory(float* memory, int64_t rows)
      : h(memory),
        c(h + 2 * rows * S::kAllUnits),
        sums(c + rows * S::kUnits * ForwardLanes<S, kRows>::kCopies) {}
};

template <typename S, int kGates, int kRows>
class ForwardCluster {
  using Lanes = ForwardLanes<S, kRows>;
  using Sums = typename Lanes::Sums;
  static constexpr int kHeld = Sums::kHeld;

 public:
  __device__ __forceinline__ ForwardCluster(const Job& job, const RecurrentForward<float>& buffers,
                                            float* memory)
      : s_(job.sizes),
        b_(buffers),
        rows_(static_cast<int>(job.rows)),
        first_row_(static_cast<int64_t>(blockIdx.x) / S::kBlocks * job.rows),
        rank_(static_cast<int>(blockIdx.x) % S::kBlocks),
        lane_(static_cast<int>(threadIdx.x) % Lanes::kLanes),
        own_unit_(static_cast<int>(threadIdx.x) / Lanes::kLanes),
        unit_(rank_ * S::kUnits + own_unit_),
        memory_(memory, job.rows) {}

  __device__ __forceinline__ void run() {
    read_weights();
    read_states();
    arrive<S::kBlocks>();
    wait<S::kBlocks>();  // the others are there, and their shared memory is
    if (s_.time > 0) read_sequence(0, 0);
    for (int64_t step = 0; step < s_.time; ++step) {
      for (int group = 0; group < rows_; group += kRows) {
        Finished finished[Lanes::kOwnRows];
        compute(step, group, finished);
        const bool is_last = group + kRows >= rows_;
        if (is_last) arrive<S::kBlocks>();
        write(step, group, finished);
        if (is_last) wait<S::kBlocks>();
      }
    }
    write_last();
  }

 private:
  __device__ __forceinline__ bool has_unit() const { return unit_ < s_.units; }
  __device__ __forceinline__ int64_t time_of(int64_t step, int row) const {
    return (first_row_ + row) * s_.time + s_.position(step);
  }
  __device__ __forceinline__ bool has_row(int row) const { return first_row_ + row < s_.batch; }
  // The row number `own` of a group's that this lane finishes, and which of its copies it is.
  __device__ __forceinline__ int own_row(int own) const {
    return lane_ % kRows + own * Lanes::kLanes;
  }
  __device__ __forceinline__ int copy() const { return lane_ / kRows % Lanes::kCopies; }
  __device__ __forceinline__ float* cell(int row) const {
    return memory_.c + (row * S::kUnits + own_unit_) * Lanes::kCopies + copy();
  }

  __device__ __forceinline__ void read_weights() {
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate) {
#pragma unroll
      for (int i = 0; i < kDepth; ++i) {
        const int64_t k = (i / 4 * Lanes::kLanes + lane_) * 4 + i % 4;
        const bool is_inside = k < s_.units && has_unit();
        weights_[gate][i] = is_inside ? b_.kernel[(k * kGates + gate) * s_.units + unit_] : 0.0f;
      }
    }
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int gate = number(i) % 4;
      bias_[i] = kGates == 3 && gate < 3 && has_unit() ? b_.bias[gate * s_.units + unit_] : 0.0f;
    }
  }

  __device__ __forceinline__ void read_states() {
    for (int i = static_cast<int>(threadIdx.x); i < rows_ * S::kAllUnits; i += S::kThreads) {
      const int row = i / S::kAllUnits, unit = i % S::kAllUnits;
      const bool is_inside = has_row(row) && unit < s_.units;
      memory_.h[i] = is_inside ? b_.h0[(first_row_ + row) * s_.units + unit] : 0.0f;
    }
    if constexpr (kGates == 4) {
      for (int group = 0; group < rows_; group += kRows) {
#pragma unroll
        for (int own = 0; own < Lanes::kOwnRows; ++own) {
          const int row = group + own_row(own);
          const bool is_inside = has_row(row) && has_unit();
          *cell(row) = is_inside ? b_.c0[(first_row_ + row) * s_.units + unit_] : 0.0f;
        }
      }
    }
    __syncthreads();
  }

  // Of the sums that this lane is left with: number row * 4 + gate of the group's.
  __device__ __forceinline__ int number(int held) const {
    return lane_ / Sums::kRepeats * kHeld + held;
  }

  // What the sums of a step begin with; the fourth of a GRU is its candidate's part.
  __device__ __forceinline__ void read_sequence(int64_t step, int group) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int row = group + number(i) / 4, gate = number(i) % 4;
      const int from = kGates == 3 && gate == 3 ? 2 : gate;
      const bool is_read = has_row(row) && has_unit() && (kGates == 4 || gate != 2);
      x_[i] = is_read ? b_.x[(time_of(step, row) * kGates + from) * s_.units + unit_] : 0.0f;
    }
  }

  // sigmoid(x) = tanh(x / 2) / 2 + 1 / 2: one function for all lanes, whatever their gates.
  __device__ __forceinline__ float activated(int gate, float x) const {
    if (kGates == 3 && gate >= 2) return x;
    const bool is_candidate = kGates == 4 && gate == 2;
    const float t = tanhf(is_candidate ? x : 0.5f * x);
    return is_candidate ? t : fmaf(0.5f, t, 0.5f);
  }

  __device__ __forceinline__ void compute(int64_t step, int group,
                                          Finished (&finished)[Lanes::kOwnRows]) {
    const float* h = memory_.h + (step % 2 * rows_ + group) * S::kAllUnits;
    float* next = memory_.h + ((step + 1) % 2 * rows_ + group) * S::kAllUnits;
    float sums[4 * kRows] = {};
    multiply_rows<kRows, Lanes::kLanes>(h, S::kAllUnits, lane_, weights_, sums);
    Sums::run(sums, lane_);
    float* gates = memory_.sums + own_unit_ * 4 * kRows;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const float value = activated(number(i) % 4, sums[i] + x_[i] + bias_[i]);
      if (lane_ % Sums::kRepeats == 0) gates[number(i)] = value;
    }
    __syncwarp();
    // The next ones, which are not needed before the next product is done.
    const bool is_last = group + kRows >= rows_;
    if (!is_last || step + 1 < s_.time) {
      read_sequence(is_last ? step + 1 : step, is_last ? 0 : group + kRows);
    }
#pragma unroll
    for (int own = 0; own < Lanes::kOwnRows; ++own) {
      finish_row(step, group, own, gates, h, next, finished[own]);
    }
    __syncwarp();  // the gates have been read
  }

  __device__ __forceinline__ void finish_row(int64_t step, int group, int own, const float* gates,
                                             const float* h, float* next, Finished& f) {
    const int row = own_row(own);
    const float4 values = *reinterpret_cast<const float4*>(gates + row * 4);
    f.gates[0] = values.x;
    f.gates[1] = values.y;
    f.gates[2] = values.z;
    f.gates[3] = values.w;
    f.before = h[row * S::kAllUnits + unit_];
    f.h = f.before;
    f.c = 0.0f;
    bool counts = true;
    if (b_.mask != nullptr && has_row(group + row)) counts = b_.mask[time_of(step, group + row)];
    if constexpr (kGates == 4) {
      const float cell_before = *cell(group + row);
      f.c = cell_before;
      recurrent::lstm_state(f.gates, f.c, f.h);
      if (!counts) f.c = cell_before;
      *cell(group + row) = f.c;
    } else {
      // The sums from h and from x change places.
      const float inner = f.gates[2];
      f.gates[2] = f.gates[3];
      f.gates[3] = inner;
      recurrent::gru_state(f.gates, f.h);
    }
    if (!counts) f.h = f.before;
#pragma unroll
    for (int rank = 0; rank < S::kBlocks; ++rank) {
      if (rank % Lanes::kCopies == copy()) {
        store_at<S::kBlocks>(next + row * S::kAllUnits + unit_, static_cast<unsigned>(rank), f.h);
      }
    }
  }

  __device__ __forceinline__ void write(int64_t step, int group,
                                        const Finished (&finished)[Lanes::kOwnRows]) const {
#pragma unroll
    for (int own = 0; own < Lanes::kOwnRows; ++own) {
      const int row = group + own_row(own);
      if (has_row(row) && has_unit()) {
        write_step<Lanes::kCopies>(b_, s_.units, time_of(step, row), unit_, copy(), finished[own]);
      }
    }
  }

  __device__ __forceinline__ void write_last() const {
    if (copy() != 0 || !has_unit()) return;
    for (int group = 0; group < rows_; group += kRows) {
#pragma unroll
      for (int own = 0; own < Lanes::kOwnRows; ++own) {
        const int row = group + own_row(own);
        if (!has_row(row)) continue;
        const int64_t at = (first_row_ + row) * s_.units + unit_;
        b_.last_h[at] = memory_.h[(s_.time % 2 * rows_ + row) * S::kAllUnits + unit_];
        if constexpr (kGates == 4) b_.last_c[at] = *cell(row);
      }
    }
  }

  const RecurrentSizes& s_;
  const RecurrentForward<float>& b_;
  int rows_;
  int64_t first_row_;
  int rank_, lane_, own_unit_, unit_;
  ForwardMemory<S, kRows> memory_;
  float weights_[kGates][kDepth];
  float bias_[kHeld];
  float x_[kHeld];
};

template <typename S, int kGates, int kRows>
__global__ void __launch_bounds__(S::kThreads, 1)
    forward_cluster(const __grid_constant__ Job job,
                    const __grid_constant__ RecurrentForward<float> buffers) {
  extern __shared__ float4 forward_memory[];
  begin_kernel();
  ForwardCluster<S, kGates, kRows>(job, buffers, reinterpret_cast<float*>(forward_memory)).run();
}

// Of the shared memory: the gradients of the gates, (rows, 4 units); shares in the gradient of h,
// twice, of each block (rows, units); what of it does not go through the gates, and the cell
// states' gradient, (rows, units).
template <typename S>
struct BackwardMemory {
  float* gates;
  float* shares;
  float* h;
  float* c;

  static int64_t floats(int64_t rows) { return rows * S::kUnits * (4 + 2 * S::kBlocks + 2); }
  __device__ BackwardMemory(float* memory, int64_t rows)
      : gates(memory),
        shares(gates + rows * S::kUnits * 4),
        h(shares + rows * S::kUnits * 2 * S::kBlocks),
        c(h + rows * S::kUnits) {}
};

// Every block sums over the gates of its own units: its share in the gradient of all of h, of which
// each block gets its part.
template <typename S, int kGates, int kRows>
class BackwardCluster {
  // That have the same four units, and different gates.
  static constexpr int kLanes = S::kUnits * 4 / kDepth;
  using Sums = Reduction<4 * kRows, kLanes>;

  // What the gradient of one row and unit is computed from.
  struct Saved {
    float gates[4];
    float state, before;  // cells of an LSTM; `before` is h of a GRU
    float gradient;       // of the output
    bool counts;
  };

 public:
  __device__ __forceinline__ BackwardCluster(const Job& job,
                                             const RecurrentBackward<float>& buffers, float* memory)
      : s_(job.sizes),
        b_(buffers),
        rows_(static_cast<int>(job.rows)),
        first_row_(static_cast<int64_t>(blockIdx.x) / S::kBlocks * job.rows),
        rank_(static_cast<int>(blockIdx.x) % S::kBlocks),
        lane_(static_cast<int>(threadIdx.x) % kLanes),
        first_unit_(static_cast<int>(threadIdx.x) / kLanes * 4),
        memory_(memory, job.rows) {}

  __device__ __forceinline__ void run() {
    read_weights();
    read_states();
    arrive<S::kBlocks>();
    wait<S::kBlocks>();  // the others are there, and their shared memory is
    Saved saved = {};
    if (s_.time > 0) read_saved(s_.time - 1, static_cast<int>(threadIdx.x), saved);
    for (int64_t step = s_.time - 1; step >= 0; --step) {
      finish_gates(step, saved);
      if (step == 0 && b_.h0 == nullptr) break;
      if (step > 0) read_saved(step - 1, static_cast<int>(threadIdx.x), saved);
      __syncthreads();
      for (int group = 0; group < rows_; group += kRows) share_out(step, group);
      arrive<S::kBlocks>();
      wait<S::kBlocks>();
    }
    write_last();
  }

 private:
  __device__ __forceinline__ int items() const { return rows_ * S::kUnits; }
  __device__ __forceinline__ int64_t row_of(int item) const {
    return first_row_ + item / S::kUnits;
  }
  __device__ __forceinline__ int64_t unit_of(int item) const {
    return rank_ * S::kUnits + item % S::kUnits;
  }
  __device__ __forceinline__ bool is_inside(int item) const {
    return row_of(item) < s_.batch && unit_of(item) < s_.units;
  }

  __device__ __forceinline__ void read_weights() {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t k = first_unit_ + i;
#pragma unroll
      for (int n = 0; n < kDepth; ++n) {
        const int column = (n / 4 * kLanes + lane_) * 4 + n % 4;
        const int gate = column / S::kUnits;
        const int64_t unit = rank_ * S::kUnits + column % S::kUnits;
        const bool inside = k < s_.units && unit < s_.units && gate < kGates;
        weights_[i][n] = inside ? b_.kernel[(k * kGates + gate) * s_.units + unit] : 0.0f;
      }
    }
  }

  __device__ __forceinline__ void read_states() {
    for (int item = static_cast<int>(threadIdx.x); item < items(); item += S::kThreads) {
      const int64_t at = row_of(item) * s_.units + unit_of(item);
      memory_.h[item] = is_inside(item) && b_.last_h != nullptr ? b_.last_h[at] : 0.0f;
      memory_.c[item] = is_inside(item) && b_.last_c != nullptr ? b_.last_c[at] : 0.0f;
    }
  }

  __device__ __forceinline__ void read_saved(int64_t step, int item, Saved& saved) const {
    if (item >= items() || !is_inside(item)) return;
    const int64_t row = row_of(item), unit = unit_of(item);
    const int64_t time = row * s_.time + s_.position(step), at = time * s_.units + unit;
#pragma unroll
    for (int gate = 0; gate < kSavedGates; ++gate) {
      saved.gates[gate] = b_.gates[(time * kSavedGates + gate) * s_.units + unit];
    }
    if constexpr (kGates == 4) {
      saved.state = b_.cells[at];
      saved.before = step == 0 ? b_.c0[row * s_.units + unit]
                               : b_.cells[at + (s_.reverse ? s_.units : -s_.units)];
    } else {
      saved.before = b_.previous[at];
    }
    saved.gradient = b_.outputs == nullptr ? 0.0f : b_.outputs[at];
    saved.counts = b_.mask == nullptr || b_.mask[time];
  }

  // Of h behind the step, but for what comes from its output: the blocks' shares in their order.
  __device__ __forceinline__ float total(int64_t step, int item) const {
    float sum = memory_.h[item];
    if (step + 1 < s_.time) {
      const float* shares = memory_.shares + (step + 1) % 2 * S::kBlocks * items() + item;
#pragma unroll
      for (int rank = 0; rank < S::kBlocks; ++rank) sum += shares[rank * items()];
    }
    return sum;
  }

  // `first` is what belongs to this thread's first item.
  __device__ __forceinline__ void finish_gates(int64_t step, const Saved& first) {
    for (int item = static_cast<int>(threadIdx.x); item < items(); item += S::kThreads) {
      Saved saved = first;
      if (item >= S::kThreads) read_saved(step, item, saved);
      float gradients[4] = {};
      if (is_inside(item)) {
        float gh = total(step, item) + saved.gradient;
        if (saved.counts) {
          if constexpr (kGates == 4) {
            recurrent::lstm_gradient(saved.gates, saved.state, saved.before, gh, memory_.c[item],
                                     gradients);
          } else {
            recurrent::gru_gradient(saved.gates, saved.before, gh, gradients);
          }
        }
        memory_.h[item] = gh;
        write_gradients(step, item, gradients);
      }
      // Of a GRU the fourth, of the sum from h, is in the third's place.
      float* to = memory_.gates + item / S::kUnits * 4 * S::kUnits + item % S::kUnits;
#pragma unroll
      for (int gate = 0; gate < 4; ++gate) {
        const bool is_none = kGates == 3 && gate == 3;
        const int from = kGates == 3 && gate == 2 ? 3 : gate;
        to[gate * S::kUnits] = is_none ? 0.0f : gradients[from];
      }
    }
  }

  __device__ __forceinline__ void write_gradients(int64_t step, int item,
                                                  const float (&gradients)[4]) const {
    const int64_t time = row_of(item) * s_.time + s_.position(step);
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate) {
      const int64_t at = (time * kGates + gate) * s_.units + unit_of(item);
      b_.x[at] = gradients[gate];
      if (b_.recurrent != nullptr) {
        b_.recurrent[at] = gradients[kGates == 3 && gate == 2 ? 3 : gate];
      }
    }
  }

  // This block's share in the gradient of h before the step.
  __device__ __forceinline__ void share_out(int64_t step, int group) {
    float sums[4 * kRows] = {};
    multiply_rows<kRows, kLanes>(memory_.gates + group * 4 * S::kUnits, 4 * S::kUnits, lane_,
                                 weights_, sums);
    Sums::run(sums, lane_);
    if (lane_ % Sums::kRepeats != 0) return;
    float* shares = memory_.shares + (step % 2 * S::kBlocks + rank_) * items();
#pragma unroll
    for (int i = 0; i < Sums::kHeld; ++i) {
      const int number = lane_ / Sums::kRepeats * Sums::kHeld + i;
      const int unit = first_unit_ + number % 4, row = group + number / 4;
      store_at<S::kBlocks>(shares + row * S::kUnits + unit % S::kUnits,
                           static_cast<unsigned>(unit / S::kUnits), sums[i]);
    }
  }

  __device__ __forceinline__ void write_last() const {
    for (int item = static_cast<int>(threadIdx.x); item < items(); item += S::kThreads) {
      if (!is_inside(item)) continue;
      const int64_t at = row_of(item) * s_.units + unit_of(item);
      if (b_.h0 != nullptr) b_.h0[at] = total(-1, item);
      if (b_.c0_gradient != nullptr) b_.c0_gradient[at] = memory_.c[item];
    }
  }

  const RecurrentSizes& s_;
  const RecurrentBackward<float>& b_;
  int rows_;
  int64_t first_row_;
  int rank_, lane_, first_unit_;
  BackwardMemory<S> memory_;
  float weights_[4][kDepth];
};

template <typename S, int kGates, int kRows>
__global__ void __launch_bounds__(S::kThreads, 1)
    backward_cluster(const __grid_constant__ Job job,
                     const __grid_constant__ RecurrentBackward<float> buffers) {
  extern __shared__ float4 backward_memory[];
  begin_kernel();
  BackwardCluster<S, kGates, kRows>(job, buffers, reinterpret_cast<float*>(backward_memory)).run();
}

// Clusters of `split` that the device runs at a time, at most one block to a multiprocessor, 0
// where it runs none.
template <typename... P>
int64_t most_clusters(void (*kernel)(P...), unsigned blocks, unsigned threads, int64_t bytes) {
  const ClusterLaunch launch(dim3(blocks), threads, blocks, static_cast<size_t>(bytes));
  const int64_t multiprocessors = Context::current().properties().multiProcessorCount;
  return std::min<int64_t>(launch.most_active(kernel), multiprocessors / blocks);
}

template <typename Buffers>
struct Launch {
  void (*kernel)(Job, Buffers) = nullptr;
  Job job;
  dim3 grid;
  unsigned threads = 0, blocks = 0;
  int64_t bytes = 0;

  explicit operator bool() const { return kernel != nullptr; }
  void run(const Buffers& buffers, cudaStream_t stream) const {
    ClusterLaunch(grid, threads, blocks, static_cast<size_t>(bytes), stream)
        .run(kernel, job, buffers);
  }
};

// As few rows for each cluster as give all of them work at once.
template <typename S, typename Buffers, typename Floats>
Launch<Buffers> make_launch(const RecurrentSizes& s, void (*few)(Job, Buffers), int64_t few_rows,
                            void (*many)(Job, Buffers), int64_t many_rows, const Floats& floats) {
  const auto bytes = [&](int64_t rows) {
    return floats(rows) * static_cast<int64_t>(sizeof(float));
  };
  allow_most_shared_memory(few);
  allow_most_shared_memory(many);
  const int64_t clusters = std::min(most_clusters(few, S::kBlocks, S::kThreads, bytes(kMostRows)),
                                    most_clusters(many, S::kBlocks, S::kThreads, bytes(kMostRows)));
  if (clusters == 0) return {};
  int64_t rows = std::min(kMostRows, ceil_div(s.batch, clusters));
  const bool is_few = rows <= few_rows;
  const int64_t unit = is_few ? few_rows : many_rows;
  rows = ceil_div(rows, unit) * unit;
  const int64_t count = ceil_div(s.batch, rows) * S::kBlocks;
  if (count > kMostBlocks) return {};
  return {is_few ? few : many, {s, rows},  dim3(static_cast<unsigned>(count)),
          S::kThreads,         S::kBlocks, bytes(rows)};
}

constexpr int kFewRows = 2;
constexpr int kManyRows = 4;

template <typename S, int kGates>
Launch<RecurrentForward<float>> make_forward(const RecurrentSizes& s) {
  return make_launch<S>(s, forward_cluster<S, kGates, kFewRows>, kFewRows,
                        forward_cluster<S, kGates, kManyRows>, kManyRows, [](int64_t rows) {
                          return std::max(ForwardMemory<S, kFewRows>::floats(rows),
                                          ForwardMemory<S, kManyRows>::floats(rows));
                        });
}

template <typename S, int kGates>
Launch<RecurrentBackward<float>> make_backward(const RecurrentSizes& s) {
  return make_launch<S>(s, backward_cluster<S, kGates, kFewRows>, kFewRows,
                        backward_cluster<S, kGates, kManyRows>, kManyRows,
                        BackwardMemory<S>::floats);
}

// Calls function(Split) with the split for so many units; null where there is none.
template <typename Function>
std::unique_ptr<Kernel> with_split(int64_t units, const Function& function) {
  if (units <= 32) return function(Split<32, 1>());
  if (units <= 64) return function(Split<64, 1>());
  if (units <= 128) return function(Split<32, 4>());
  if (units <= 256) return function(Split<32, 8>());
  return nullptr;
}

bool has_clusters(const PlanRequest& request) {
  return request.outputs[0].dtype == DType::Float32 && num_elements(request.outputs[0].shape) > 0 &&
         Context::current().properties().major >= 9;
}

template <typename Buffers, typename MakeBuffers>
std::unique_ptr<Kernel> make_kernel_of(std::string name, const Launch<Buffers>& launch,
                                       const MakeBuffers& buffers) {
  if (!launch) return nullptr;
  return make_early_kernel(std::move(name), [=](const KernelArgs& args) {
    launch.run(buffers(args), static_cast<cudaStream_t>(args.stream));
  });
}

}  // namespace

std::unique_ptr<Kernel> plan_recurrent_cluster(const PlanRequest& request) {
  if (!has_clusters(request)) return nullptr;
  const RecurrentSizes s = recurrent_sizes(request.op, request.attributes, request.inputs);
  return with_split(s.units, [&]<typename S>(S) {
    return make_kernel_of(s.is_lstm ? "kerascnn LSTM cluster" : "kerascnn GRU cluster",
                          s.is_lstm ? make_forward<S, 4>(s) : make_forward<S, 3>(s),
                          [s](const KernelArgs& args) {
                            return recurrent_forward<float>(s, args.inputs, args.outputs);
                          });
  });
}

std::unique_ptr<Kernel> plan_recurrent_cluster_grad(const PlanRequest& request) {
  if (!has_clusters(request)) return nullptr;
  const RecurrentSizes s = recurrent_sizes(request.op, request.attributes, request.inputs);
  const RecurrentGradientInputs places = recurrent_gradient_inputs(request.op, request.attributes);
  return with_split(s.units, [&]<typename S>(S) {
    return make_kernel_of(
        s.is_lstm ? "kerascnn LSTM gradient cluster" : "kerascnn GRU gradient cluster",
        s.is_lstm ? make_backward<S, 4>(s) : make_backward<S, 3>(s),
        [s, places](const KernelArgs& args) {
          return recurrent_backward<float>(s, places, args.inputs, args.outputs);
        });
  });
}

}  // namespace kerascnn::cuda
