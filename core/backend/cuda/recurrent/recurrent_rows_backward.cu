// Gradients of LSTMs and GRUs of up to 256 units over whole sequences in float32
// (recurrent_rows.cuh).
#include "core/backend/cuda/recurrent/recurrent_backward.cuh"
#include "core/backend/cuda/recurrent/recurrent_rows.cuh"

namespace kerascnn::cuda {
namespace recurrent_cluster {
namespace {

// The product of BackwardCluster. A thread holds four units' numbers of the kernel, for some gates.
// In shared memory are the gradients of the gates, (rows, 4 units), and, twice, each block's shares
// in the gradient of h, (rows, units).
template <typename S, int gates, int kRows>
class RowProduct {
  // These lanes have the same four units, and different gates.
  static constexpr int kLanes = S::kUnits * 4 / kDepth;
  using Sums = Reduction<4 * kRows, kLanes>;

 public:
  using T = float;
  static constexpr int kUnits = S::kUnits, kBlocks = S::kBlocks, kThreads = S::kThreads;
  static constexpr int kGates = gates, kFilledGates = 4;

  static __host__ __device__ constexpr int64_t floats(int64_t rows) {
    return rows * kUnits * (4 + 2 * kBlocks);
  }

  __device__ __forceinline__ RowProduct(float* memory, int rows)
      : rows_(rows),
        lane_(static_cast<int>(threadIdx.x) % kLanes),
        first_unit_(static_cast<int>(threadIdx.x) / kLanes * 4),
        gates_(memory),
        shares_(memory + rows * kUnits * 4) {}

  __device__ __forceinline__ void read_weights(const float* kernel, const RecurrentSizes& s,
                                               int rank) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t k = first_unit_ + i;
#pragma unroll
      for (int n = 0; n < kDepth; ++n) {
        const int column = (n / 4 * kLanes + lane_) * 4 + n % 4;
        const int gate = column / kUnits;
        const int64_t unit = rank * kUnits + column % kUnits;
        const bool inside = k < s.units && unit < s.units && gate < kGates;
        weights_[i][n] = inside ? kernel[(k * kGates + gate) * s.units + unit] : 0.0f;
      }
    }
  }

  __device__ __forceinline__ void gate(int row, int unit, int gate, float value) {
    gates_[(row * 4 + gate) * kUnits + unit] = value;
  }

  __device__ __forceinline__ void share_out(int parity, int rank) {
    for (int group = 0; group < rows_; group += kRows) share_rows(parity, rank, group);
  }

  __device__ __forceinline__ float share(int parity, int rank, int row, int unit) const {
    return shares_[((parity * kBlocks + rank) * rows_ + row) * kUnits + unit];
  }

 private:
  __device__ __forceinline__ void share_rows(int parity, int rank, int group) {
    float sums[4 * kRows] = {};
    multiply_rows<kRows, kLanes>(gates_ + group * 4 * kUnits, 4 * kUnits, lane_, weights_, sums);
    Sums::run(sums, lane_);
    if (lane_ % Sums::kRepeats != 0) return;
    float* shares = shares_ + (parity * kBlocks + rank) * rows_ * kUnits;
#pragma unroll
    for (int i = 0; i < Sums::kHeld; ++i) {
      const int number = lane_ / Sums::kRepeats * Sums::kHeld + i;
      const int unit = first_unit_ + number % 4, row = group + number / 4;
      store_at<kBlocks>(shares + row * kUnits + unit % kUnits, static_cast<unsigned>(unit / kUnits),
                        sums[i]);
    }
  }

  int rows_;
  int lane_, first_unit_;
  float* gates_;
  float* shares_;
  float weights_[4][kDepth];
};

template <typename S, int kGates>
Launch<RecurrentBackward<float>> make_backward(const RecurrentSizes& s) {
  using Few = RowProduct<S, kGates, kFewRows>;
  using Many = RowProduct<S, kGates, kManyRows>;
  return make_launch<RecurrentBackward<float>>(
      s, S::kBlocks, S::kThreads,
      {{backward_cluster<Few>, kFewRows}, {backward_cluster<Many>, kManyRows}},
      BackwardCluster<Many>::bytes);
}

}  // namespace
}  // namespace recurrent_cluster

std::unique_ptr<Kernel> plan_recurrent_rows_grad(const PlanRequest& request) {
  using namespace recurrent_cluster;
  if (request.outputs[0].dtype != DType::Float32 || !has_clusters(request)) return nullptr;
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
