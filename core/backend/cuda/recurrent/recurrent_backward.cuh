// The gradient of LSTMs and GRUs over whole sequences, by clusters of blocks. Every block sums over
// the gates of its own units, which gives its share in the gradient of all of h; then each block
// gets its part of the shares.
#pragma once

#include "core/backend/cuda/recurrent/recurrent_cluster.cuh"

namespace kerascnn::cuda::recurrent_cluster {

// How to multiply is up to the Product. It has the sizes kUnits (of a block), kBlocks (of a
// cluster), kThreads and kGates, the element type T, floats(rows) of shared memory, and
// - read_weights(kernel, sizes, rank), once for each thread;
// - gate(row, unit, gate, value), for all gates of the block's units: a factor of the product, of
//   the cluster's rows. There are kFilledGates, the last of which may be zeros;
// - share_out(parity, rank): sends the block's share to the others, who have two places for it;
// - share(parity, rank, row, unit): of what has come.
template <typename Product>
class BackwardCluster {
  using T = typename Product::T;
  static constexpr int kUnits = Product::kUnits, kBlocks = Product::kBlocks;
  static constexpr int kGates = Product::kGates, kThreads = Product::kThreads;

  // The gradient of one row and unit is computed from these.
  struct Saved {
    T gates[kSavedGates];
    T state, before;  // cells of an LSTM; `before` is h of a GRU
    T gradient;       // of the output
    bool counts;
  };

 public:
  // Behind the product's shared memory lie the part of the gradient of h that does not go through
  // the gates, and the gradient of the cell states, each (rows, units).
  static int64_t bytes(int64_t rows) {
    return (Product::floats(rows) + 2 * rows * kUnits) * static_cast<int64_t>(sizeof(float));
  }

  __device__ __forceinline__ BackwardCluster(const Job& job, const RecurrentBackward<T>& buffers,
                                             float* memory)
      : s_(job.sizes),
        b_(buffers),
        rows_(static_cast<int>(job.rows)),
        first_row_(first_row_of_cluster<kBlocks>(job)),
        rank_(rank_in_cluster<kBlocks>()),
        product_(memory, rows_),
        h_(memory + Product::floats(rows_)),
        c_(h_ + rows_ * kUnits) {}

  __device__ __forceinline__ void run() {
    product_.read_weights(b_.kernel, s_, rank_);
    read_states();
    arrive<kBlocks>();
    wait<kBlocks>();  // the others are there, and their shared memory is
    Saved saved = {};
    if (s_.time > 0) read_saved(s_.time - 1, static_cast<int>(threadIdx.x), saved);
    for (int64_t step = s_.time - 1; step >= 0; --step) {
      finish_gates(step, saved);
      if (step == 0 && b_.h0 == nullptr) break;
      if (step > 0) read_saved(step - 1, static_cast<int>(threadIdx.x), saved);
      __syncthreads();
      product_.share_out(static_cast<int>(step % 2), rank_);
      arrive<kBlocks>();
      wait<kBlocks>();
    }
    write_last();
  }

 private:
  __device__ __forceinline__ int items() const { return rows_ * kUnits; }
  __device__ __forceinline__ int64_t row_of(int item) const { return first_row_ + item / kUnits; }
  __device__ __forceinline__ int64_t unit_of(int item) const {
    return rank_ * kUnits + item % kUnits;
  }
  __device__ __forceinline__ bool is_inside(int item) const {
    return row_of(item) < s_.batch && unit_of(item) < s_.units;
  }

  __device__ __forceinline__ void read_states() {
    for (int item = static_cast<int>(threadIdx.x); item < items(); item += kThreads) {
      const int64_t at = row_of(item) * s_.units + unit_of(item);
      h_[item] = is_inside(item) && b_.last_h != nullptr ? load(b_.last_h[at]) : 0.0f;
      c_[item] = is_inside(item) && b_.last_c != nullptr ? load(b_.last_c[at]) : 0.0f;
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
    saved.gradient = b_.outputs == nullptr ? store<T>(0.0f) : b_.outputs[at];
    saved.counts = b_.mask == nullptr || b_.mask[time];
  }

  // The gradient of h after the step without what comes from its output: the sum of the blocks'
  // shares, in their order.
  __device__ __forceinline__ float total(int64_t step, int item) const {
    float sum = h_[item];
    if (step + 1 < s_.time) {
#pragma unroll
      for (int rank = 0; rank < kBlocks; ++rank) {
        sum += product_.share(static_cast<int>((step + 1) % 2), rank, item / kUnits, item % kUnits);
      }
    }
    return sum;
  }

  // `first` belongs to this thread's first item.
  __device__ __forceinline__ void finish_gates(int64_t step, const Saved& first) {
    for (int item = static_cast<int>(threadIdx.x); item < items(); item += kThreads) {
      Saved saved = first;
      if (item >= kThreads) read_saved(step, item, saved);
      float gradients[4] = {};
      if (is_inside(item)) {
        float gh = total(step, item) + load(saved.gradient);
        if (saved.counts) derive(saved, gh, c_[item], gradients);
        h_[item] = gh;
        write_gradients(step, item, gradients);
      }
      // A GRU's fourth gate, the sum from h, is in the third one's place.
#pragma unroll
      for (int gate = 0; gate < Product::kFilledGates; ++gate) {
        const bool is_none = kGates == 3 && gate == 3;
        const int from = kGates == 3 && gate == 2 ? 3 : gate;
        product_.gate(item / kUnits, item % kUnits, gate, is_none ? 0.0f : gradients[from]);
      }
    }
  }

  static __device__ __forceinline__ void derive(const Saved& saved, float& gh, float& gc,
                                                float (&gradients)[4]) {
    const float gates[4] = {load(saved.gates[0]), load(saved.gates[1]), load(saved.gates[2]),
                            load(saved.gates[3])};
    if constexpr (kGates == 4) {
      recurrent::lstm_gradient(gates, load(saved.state), load(saved.before), gh, gc, gradients);
    } else {
      recurrent::gru_gradient(gates, load(saved.before), gh, gradients);
    }
  }

  __device__ __forceinline__ void write_gradients(int64_t step, int item,
                                                  const float (&gradients)[4]) const {
    const int64_t time = row_of(item) * s_.time + s_.position(step);
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate) {
      const int64_t at = (time * kGates + gate) * s_.units + unit_of(item);
      b_.x[at] = store<T>(gradients[gate]);
      if (b_.recurrent != nullptr) {
        b_.recurrent[at] = store<T>(gradients[kGates == 3 && gate == 2 ? 3 : gate]);
      }
    }
  }

  __device__ __forceinline__ void write_last() const {
    for (int item = static_cast<int>(threadIdx.x); item < items(); item += kThreads) {
      if (!is_inside(item)) continue;
      const int64_t at = row_of(item) * s_.units + unit_of(item);
      if (b_.h0 != nullptr) b_.h0[at] = store<T>(total(-1, item));
      if (b_.c0_gradient != nullptr) b_.c0_gradient[at] = store<T>(c_[item]);
    }
  }

  const RecurrentSizes& s_;
  const RecurrentBackward<T>& b_;
  int rows_;
  int64_t first_row_;
  int rank_;
  Product product_;
  float* h_;
  float* c_;
};

template <typename Product>
__global__ void __launch_bounds__(Product::kThreads, 1)
    backward_cluster(const __grid_constant__ Job job,
                     const __grid_constant__ RecurrentBackward<typename Product::T> buffers) {
  extern __shared__ float4 backward_memory[];
  begin_kernel();
  BackwardCluster<Product>(job, buffers, reinterpret_cast<float*>(backward_memory)).run();
}

}  // namespace kerascnn::cuda::recurrent_cluster
