// Computes LSTMs and GRUs of up to 512 units over whole sequences on tensor cores
// (recurrent_tiles.cuh).
// States and all that is made of the sums are float32; for the products, states are rounded as the
// weights are.
#include "core/backend/cuda/recurrent/recurrent_tiles.cuh"

namespace kerascnn::cuda {
namespace recurrent_cluster {
namespace {

// Who computes what: a warp multiplies two tiles of columns, gate by gate of the block's units, and
// a slice of the summands. Then a thread has one row of the batch and one unit; some threads have
// none.
template <typename N, typename S, int gates>
struct Parts {
  static constexpr int kColumns = gates * S::kUnits;
  static constexpr int kWords = S::kAllUnits / N::kPerWord;
  static constexpr int kStride = padded_vectors(kWords);
  static constexpr int kPairs = kColumns / 32;
  static constexpr int kSlices = kWords >= 256 ? 128 / S::kUnits : S::kBlocks > 1 ? 2 : 1;
  static constexpr int kChunks = kWords / kChunk / kSlices;
  static constexpr int kProductWarps = kPairs * kSlices;
  static constexpr int kThreads = std::max(kTileRows * S::kUnits, 32 * kProductWarps);
  static constexpr int kSumStride = kColumns + 4;  // lanes write to different banks

  using Factor = Weights<N, 2, kChunks>;
  static_assert(kWords == kChunks * kChunk * kSlices && kColumns == kPairs * 32);
  static_assert(kThreads % S::kUnits == 0 && S::kUnits % 32 == 0);
};

// These are the parts of the shared memory: weights; states twice, (rows, all units), as factors;
// states and cell states of the block's units in float32; sums of a tile's rows, of each slice; the
// new states of the block's units, which go to the other blocks in pieces.
template <typename N, typename S, int gates>
struct ForwardMemory {
  using P = Parts<N, S, gates>;
  static constexpr int kWeights = P::kProductWarps * P::Factor::kFloats;
  static constexpr int kSums = P::kSlices * kTileRows * P::kSumStride;
  static constexpr int kPieces = kTileRows * S::kUnits / N::kPerWord;

  float* weights;
  float* factor;
  float* h;
  float* c;
  float* sums;
  float* pieces;

  static int64_t bytes(int64_t rows) {
    const int64_t floats =
        kWeights + 2 * rows * P::kStride + 2 * rows * S::kUnits + kSums + kPieces;
    return floats * static_cast<int64_t>(sizeof(float));
  }
  __device__ ForwardMemory(float* memory, int rows)
      : weights(memory),
        factor(weights + kWeights),
        h(factor + 2 * rows * P::kStride),
        c(h + rows * S::kUnits),
        sums(c + rows * S::kUnits),
        pieces(sums + kSums) {}
};

template <typename N, typename S, int kGates>
class ForwardTiles {
  using P = Parts<N, S, kGates>;
  using T = typename N::T;
  using Stored = typename N::Stored;

 public:
  __device__ __forceinline__ ForwardTiles(const Job& job, const RecurrentForward<T>& buffers,
                                          float* memory)
      : s_(job.sizes),
        b_(buffers),
        rows_(static_cast<int>(job.rows)),
        first_row_(first_row_of_cluster<S::kBlocks>(job)),
        rank_(rank_in_cluster<S::kBlocks>()),
        lane_(static_cast<int>(threadIdx.x) % 32),
        warp_(static_cast<int>(threadIdx.x) / 32),
        own_unit_(static_cast<int>(threadIdx.x) % S::kUnits),
        own_row_(static_cast<int>(threadIdx.x) / S::kUnits),
        unit_(rank_ * S::kUnits + own_unit_),
        memory_(memory, rows_) {}

  __device__ __forceinline__ void run() {
    read_weights();
    read_states();
    arrive<S::kBlocks>();
    wait<S::kBlocks>();  // the others are there, and their shared memory is
    if (s_.time > 0) read_sequence(0, 0);
    for (int64_t step = 0; step < s_.time; ++step) {
      for (int group = 0; group < rows_; group += kTileRows) {
        Finished finished;
        compute(step, group, finished);
        const bool is_last = group + kTileRows >= rows_;
        if (is_last) arrive<S::kBlocks>();
        write(step, group, finished);
        if (is_last) {
          wait<S::kBlocks>();
        } else {
          __syncthreads();  // the sums have been read
        }
      }
    }
    write_last();
  }

 private:
  __device__ __forceinline__ bool has_unit() const { return unit_ < s_.units; }
  __device__ __forceinline__ bool has_row(int row) const { return first_row_ + row < s_.batch; }
  __device__ __forceinline__ int64_t time_of(int64_t step, int row) const {
    return (first_row_ + row) * s_.time + s_.position(step);
  }
  // Does this thread have a row of a tile?
  __device__ __forceinline__ bool is_finishing() const { return own_row_ < kTileRows; }
  __device__ __forceinline__ float* factor_row(int64_t step, int row) const {
    return memory_.factor + (static_cast<int>(step % 2) * rows_ + row) * P::kStride;
  }

  __device__ __forceinline__ void read_weights() {
    if (warp_ < P::kProductWarps) {
      const int first_column = warp_ % P::kPairs * 32;
      const int first = warp_ / P::kPairs * P::kChunks * kChunk * N::kPerWord;
      weights_.read(memory_.weights + warp_ * P::Factor::kFloats, lane_, [&](int row, int number) {
        const int column = first_column + row, k = first + number;
        const int64_t unit = rank_ * S::kUnits + column % S::kUnits;
        const bool is_inside = k < s_.units && unit < s_.units;
        const int64_t at =
            (static_cast<int64_t>(k) * kGates + column / S::kUnits) * s_.units + unit;
        return is_inside ? load(b_.kernel[at]) : 0.0f;
      });
    }
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate) {
      bias_[gate] = kGates == 3 && has_unit() ? load(b_.bias[gate * s_.units + unit_]) : 0.0f;
    }
  }

  __device__ __forceinline__ void read_states() {
    for (int i = static_cast<int>(threadIdx.x); i < rows_ * S::kAllUnits; i += P::kThreads) {
      const int row = i / S::kAllUnits, unit = i % S::kAllUnits;
      const bool is_inside = has_row(row) && unit < s_.units;
      const float h = is_inside ? load(b_.h0[(first_row_ + row) * s_.units + unit]) : 0.0f;
      reinterpret_cast<Stored*>(factor_row(0, row))[unit] = N::stored(h);
    }
    for (int i = static_cast<int>(threadIdx.x); i < rows_ * S::kUnits; i += P::kThreads) {
      const int row = i / S::kUnits;
      const bool is_inside = has_row(row) && has_unit();
      const int64_t at = (first_row_ + row) * s_.units + unit_;
      memory_.h[i] = is_inside ? load(b_.h0[at]) : 0.0f;
      memory_.c[i] = is_inside && kGates == 4 ? load(b_.c0[at]) : 0.0f;
    }
    __syncthreads();
  }

  // Reads what the sums of a step begin with, and whether the step counts.
  __device__ __forceinline__ void read_sequence(int64_t step, int group) {
    const int row = group + own_row_;
    const bool is_read = is_finishing() && has_row(row) && has_unit();
    const int64_t time = time_of(step, row);
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate) {
      x_[gate] = is_read ? b_.x[(time * kGates + gate) * s_.units + unit_] : store<T>(0.0f);
    }
    counts_ = b_.mask == nullptr || !is_read || b_.mask[time];
  }

  __device__ __forceinline__ void compute(int64_t step, int group, Finished& finished) {
    if (warp_ < P::kProductWarps) multiply(factor_row(step, group));
    __syncthreads();
    if (!is_finishing()) return;
    float gates[4];
    find_gates(gates);
    const bool counts = counts_;
    // These are the next ones, which are not needed before the next product is done.
    const bool is_last = group + kTileRows >= rows_;
    if (!is_last || step + 1 < s_.time) {
      read_sequence(is_last ? step + 1 : step, is_last ? 0 : group + kTileRows);
    }
    const int at = (group + own_row_) * S::kUnits + own_unit_;
    finished = finish_state<kGates>(gates, memory_.h[at], memory_.c[at], counts);
    memory_.h[at] = finished.h;
    memory_.c[at] = finished.c;
    share(factor_row(step + 1, group + own_row_), finished.h);
  }

  // Multiplies this warp's part of the sums of all gates.
  __device__ __forceinline__ void multiply(const float* factor) {
    const int slice = warp_ / P::kPairs, column = warp_ % P::kPairs * 32 + lane_ / 4;
    float sums[2][4];
    weights_.multiply(
        sums, factor + lane_ / 4 * P::kStride + slice * P::kChunks * kChunk + lane_ % 4 * 4);
    float* to = memory_.sums + (slice * kTileRows + lane_ % 4 * 2) * P::kSumStride + column;
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        to[i % 2 * P::kSumStride + tile * 16 + i / 2 * 8] = sums[tile][i];
      }
    }
  }

  // Applies the activations; the last two sums of a GRU are those of its candidate, from x and from
  // h.
  __device__ __forceinline__ void find_gates(float (&gates)[4]) const {
    const float* sums = memory_.sums + own_row_ * P::kSumStride + own_unit_;
    float found[kGates];
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate) {
      found[gate] = bias_[gate];
#pragma unroll
      for (int slice = 0; slice < P::kSlices; ++slice) {
        found[gate] += sums[slice * kTileRows * P::kSumStride + gate * S::kUnits];
      }
    }
#pragma unroll
    for (int gate = 0; gate < (kGates == 4 ? 4 : 2); ++gate) {
      gates[gate] = activated<kGates>(gate, found[gate] + load(x_[gate]));
    }
    if constexpr (kGates == 3) {
      gates[2] = load(x_[2]);
      gates[3] = found[2];
    }
  }

  // Sends a new state to all blocks, as a factor; a warp has 32 units of one row.
  __device__ __forceinline__ void share(float* to, float h) const {
    if constexpr (S::kBlocks == 1) {
      reinterpret_cast<Stored*>(to)[own_unit_] = N::stored(h);
    } else {
      constexpr int kPieces = 32 * static_cast<int>(sizeof(Stored)) / 16;
      float4* pieces = reinterpret_cast<float4*>(memory_.pieces) + warp_ * kPieces;
      reinterpret_cast<Stored*>(pieces)[lane_] = N::stored(h);
      __syncwarp();
      const float4 piece = pieces[lane_ % kPieces];
      float4* place = reinterpret_cast<float4*>(to) + (unit_ - lane_) / 32 * kPieces;
#pragma unroll
      for (int rank = lane_ / kPieces; rank < S::kBlocks; rank += 32 / kPieces) {
        store_at<S::kBlocks>(place + lane_ % kPieces, static_cast<unsigned>(rank), piece);
      }
    }
  }

  __device__ __forceinline__ void write(int64_t step, int group, const Finished& finished) const {
    const int row = group + own_row_;
    if (is_finishing() && has_row(row) && has_unit()) {
      write_step<1>(b_, s_.units, time_of(step, row), unit_, 0, finished);
    }
  }

  __device__ __forceinline__ void write_last() const {
    for (int i = static_cast<int>(threadIdx.x); i < rows_ * S::kUnits; i += P::kThreads) {
      const int row = i / S::kUnits;
      if (!has_row(row) || !has_unit()) continue;
      const int64_t at = (first_row_ + row) * s_.units + unit_;
      b_.last_h[at] = store<T>(memory_.h[i]);
      if constexpr (kGates == 4) b_.last_c[at] = store<T>(memory_.c[i]);
    }
  }

  const RecurrentSizes& s_;
  const RecurrentForward<T>& b_;
  int rows_;
  int64_t first_row_;
  int rank_, lane_, warp_, own_unit_, own_row_, unit_;
  ForwardMemory<N, S, kGates> memory_;
  typename P::Factor weights_;
  float bias_[kGates];
  T x_[kGates];
  bool counts_ = true;
};

template <typename N, typename S, int kGates>
__global__ void __launch_bounds__(Parts<N, S, kGates>::kThreads, 1)
    forward_tiles(const __grid_constant__ Job job,
                  const __grid_constant__ RecurrentForward<typename N::T> buffers) {
  extern __shared__ float4 forward_memory[];
  begin_kernel();
  ForwardTiles<N, S, kGates>(job, buffers, reinterpret_cast<float*>(forward_memory)).run();
}

template <typename N, typename S, int kGates>
Launch<RecurrentForward<typename N::T>> make_forward(const RecurrentSizes& s) {
  return make_launch<RecurrentForward<typename N::T>>(s, S::kBlocks, Parts<N, S, kGates>::kThreads,
                                                      {{forward_tiles<N, S, kGates>, kTileRows}},
                                                      ForwardMemory<N, S, kGates>::bytes);
}

}  // namespace
}  // namespace recurrent_cluster

std::unique_ptr<Kernel> plan_recurrent_tiles(const PlanRequest& request) {
  using namespace recurrent_cluster;
  if (!has_clusters(request)) return nullptr;
  const RecurrentSizes s = recurrent_sizes(request.op, request.attributes, request.inputs);
  return with_tiles(request, s.units, [&]<typename N, typename S>(N, S) {
    return make_kernel_of(
        s.is_lstm ? "kerascnn LSTM cluster, tensor cores" : "kerascnn GRU cluster, tensor cores",
        s.is_lstm ? make_forward<N, S, 4>(s) : make_forward<N, S, 3>(s),
        [s](const KernelArgs& args) {
          return recurrent_forward<typename N::T>(s, args.inputs, args.outputs);
        });
  });
}

}  // namespace kerascnn::cuda
