// LSTMs and GRUs of up to 256 units over whole sequences in float32 (recurrent_rows.cuh).
#include "core/backend/cuda/recurrent/recurrent_rows.cuh"

namespace kerascnn::cuda {
namespace recurrent_cluster {
namespace {

// The lanes of a unit in the forward kernel: each has a share of the summands of all gates, then
// some of the sums, then a row or a few.
template <typename S, int rows>
struct ForwardLanes {
  static constexpr int kLanes = S::kAllUnits / kDepth;
  using Sums = Reduction<4 * rows, kLanes>;
  static constexpr int kOwnRows = rows > kLanes ? rows / kLanes : 1;
  static constexpr int kCopies = kLanes > rows ? kLanes / rows : 1;
};

// The parts of the shared memory: states twice, (rows, all units); the lanes' cell states; sums of
// a unit's gates.
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
        first_row_(first_row_of_cluster<S::kBlocks>(job)),
        rank_(rank_in_cluster<S::kBlocks>()),
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
  // The number of the row of a group that this lane finishes as its `own`-th, and which of the
  // row's copies it is.
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

  // The number, row * 4 + gate of the group, of one of the sums that this lane keeps.
  __device__ __forceinline__ int number(int held) const {
    return lane_ / Sums::kRepeats * kHeld + held;
  }

  // Reads what the sums of a step begin with, and whether the step counts. The fourth sum of a GRU
  // is its candidate's part.
  __device__ __forceinline__ void read_sequence(int64_t step, int group) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int row = group + number(i) / 4, gate = number(i) % 4;
      const int from = kGates == 3 && gate == 3 ? 2 : gate;
      const bool is_read = has_row(row) && has_unit() && (kGates == 4 || gate != 2);
      x_[i] = is_read ? b_.x[(time_of(step, row) * kGates + from) * s_.units + unit_] : 0.0f;
    }
#pragma unroll
    for (int own = 0; own < Lanes::kOwnRows; ++own) {
      const int row = group + own_row(own);
      counts_[own] = b_.mask == nullptr || !has_row(row) || b_.mask[time_of(step, row)];
    }
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
      const float value = activated<kGates>(number(i) % 4, sums[i] + x_[i] + bias_[i]);
      if (lane_ % Sums::kRepeats == 0) gates[number(i)] = value;
    }
    __syncwarp();
    bool counts[Lanes::kOwnRows];
#pragma unroll
    for (int own = 0; own < Lanes::kOwnRows; ++own) counts[own] = counts_[own];
    // These are the next ones, which are not needed before the next product is done.
    const bool is_last = group + kRows >= rows_;
    if (!is_last || step + 1 < s_.time) {
      read_sequence(is_last ? step + 1 : step, is_last ? 0 : group + kRows);
    }
#pragma unroll
    for (int own = 0; own < Lanes::kOwnRows; ++own) {
      finish_row(group, own, counts[own], gates, h, next, finished[own]);
    }
    __syncwarp();  // the gates have been read
  }

  __device__ __forceinline__ void finish_row(int group, int own, bool counts, const float* gates,
                                             const float* h, float* next, Finished& f) {
    const int row = own_row(own);
    const float4 sums = *reinterpret_cast<const float4*>(gates + row * 4);
    // The sums of a GRU's candidate from h and from x change places.
    const float values[4] = {sums.x, sums.y, kGates == 3 ? sums.w : sums.z,
                             kGates == 3 ? sums.z : sums.w};
    const float cell_before = kGates == 4 ? *cell(group + row) : 0.0f;
    f = finish_state<kGates>(values, h[row * S::kAllUnits + unit_], cell_before, counts);
    if constexpr (kGates == 4) *cell(group + row) = f.c;
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
  bool counts_[Lanes::kOwnRows];
};

template <typename S, int kGates, int kRows>
__global__ void __launch_bounds__(S::kThreads, 1)
    forward_cluster(const __grid_constant__ Job job,
                    const __grid_constant__ RecurrentForward<float> buffers) {
  extern __shared__ float4 forward_memory[];
  begin_kernel();
  ForwardCluster<S, kGates, kRows>(job, buffers, reinterpret_cast<float*>(forward_memory)).run();
}

template <typename S, int kGates>
Launch<RecurrentForward<float>> make_forward(const RecurrentSizes& s) {
  return make_launch<RecurrentForward<float>>(
      s, S::kBlocks, S::kThreads,
      {{forward_cluster<S, kGates, kFewRows>, kFewRows},
       {forward_cluster<S, kGates, kManyRows>, kManyRows}},
      [](int64_t rows) {
        return std::max(ForwardMemory<S, kFewRows>::floats(rows),
                        ForwardMemory<S, kManyRows>::floats(rows)) *
               static_cast<int64_t>(sizeof(float));
      });
}

}  // namespace
}  // namespace recurrent_cluster

std::unique_ptr<Kernel> plan_recurrent_rows(const PlanRequest& request) {
  using namespace recurrent_cluster;
  if (request.outputs[0].dtype != DType::Float32 || !has_clusters(request)) return nullptr;
  const RecurrentSizes s = recurrent_sizes(request.op, request.attributes, request.inputs);
  return with_split(s.units, [&]<typename S>(S) {
    return make_kernel_of(s.is_lstm ? "kerascnn LSTM cluster" : "kerascnn GRU cluster",
                          s.is_lstm ? make_forward<S, 4>(s) : make_forward<S, 3>(s),
                          [s](const KernelArgs& args) {
                            return recurrent_forward<float>(s, args.inputs, args.outputs);
                          });
  });
}

}  // namespace kerascnn::cuda
