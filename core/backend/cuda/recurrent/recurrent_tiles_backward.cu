// Computes the gradients of LSTMs and GRUs of up to 512 units over whole sequences on tensor cores
// (recurrent_tiles.cuh). The gradients of the gates are rounded for the product, as they are in
// what the op gives; those of the states are float32.
#include "core/backend/cuda/recurrent/recurrent_backward.cuh"
#include "core/backend/cuda/recurrent/recurrent_tiles.cuh"

namespace kerascnn::cuda {
namespace recurrent_cluster {
namespace {

// This is the product of BackwardCluster. A warp has some tiles of units, and all gates of the
// block's own units. In shared memory are weights, the gradients of the gates, (rows, gates *
// units), and shares in the gradient of h, twice, of each block (rows by 8, units, 8 rows).
template <typename N, typename S, int gates>
class TileProduct {
  static constexpr int kWords = gates * S::kUnits / N::kPerWord;
  static constexpr int kAllTiles = S::kAllUnits / 16;
  // There are at most 16 warps, and at most 8 where they hold all weights in registers.
  static constexpr int kTiles = kAllTiles > 16 || (kAllTiles == 16 && kWords <= 64) ? 2 : 1;
  static constexpr int kWarps = kAllTiles / kTiles;
  static constexpr int kStride = padded_vectors(kWords);
  static constexpr int kShareStride = kTileRows + 2;  // lanes read from different banks
  using Factor = Weights<N, kTiles, kWords / kChunk>;
  static_assert(kWords % kChunk == 0);

 public:
  using T = typename N::T;
  static constexpr int kUnits = S::kUnits, kBlocks = S::kBlocks;
  static constexpr int kThreads = std::max(kTileRows * kUnits, 32 * kWarps);
  static constexpr int kGates = gates, kFilledGates = gates;

  static __host__ __device__ constexpr int64_t floats(int64_t rows) {
    return kWarps * Factor::kFloats + rows * kStride +
           2 * kBlocks * (rows / kTileRows) * kUnits * kShareStride;
  }

  __device__ __forceinline__ TileProduct(float* memory, int rows)
      : tiles_(rows / kTileRows),
        lane_(static_cast<int>(threadIdx.x) % 32),
        warp_(static_cast<int>(threadIdx.x) / 32),
        rest_(memory),
        gates_(memory + kWarps * Factor::kFloats),
        shares_(gates_ + rows * kStride) {}

  __device__ __forceinline__ void read_weights(const T* kernel, const RecurrentSizes& s, int rank) {
    if (warp_ >= kWarps) return;
    weights_.read(rest_ + warp_ * Factor::kFloats, lane_, [&](int row, int number) {
      const int64_t k = warp_ * kTiles * 16 + row, unit = rank * kUnits + number % kUnits;
      const bool is_inside = k < s.units && unit < s.units;
      return is_inside ? load(kernel[(k * kGates + number / kUnits) * s.units + unit]) : 0.0f;
    });
  }

  __device__ __forceinline__ void gate(int row, int unit, int gate, float value) {
    reinterpret_cast<typename N::Stored*>(gates_ + row * kStride)[gate * kUnits + unit] =
        N::stored(value);
  }

  __device__ __forceinline__ void share_out(int parity, int rank) {
    if (warp_ >= kWarps) return;
    for (int tile_rows = 0; tile_rows < tiles_; ++tile_rows) {
      float sums[kTiles][4];
      weights_.multiply(sums,
                        gates_ + (tile_rows * kTileRows + lane_ / 4) * kStride + lane_ % 4 * 4);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int unit = (warp_ * kTiles + tile) * 16 + half * 8 + lane_ / 4;
          float* to = place(parity, rank, tile_rows, unit % kUnits) + lane_ % 4 * 2;
          store_at<kBlocks>(reinterpret_cast<float2*>(to), static_cast<unsigned>(unit / kUnits),
                            float2{sums[tile][half * 2], sums[tile][half * 2 + 1]});
        }
      }
    }
  }

  __device__ __forceinline__ float share(int parity, int rank, int row, int unit) const {
    return place(parity, rank, row / kTileRows, unit)[row % kTileRows];
  }

 private:
  // Where the share of a block in the gradients of a unit is, for 8 rows.
  __device__ __forceinline__ float* place(int parity, int rank, int tile_rows, int unit) const {
    const int tile = (parity * kBlocks + rank) * tiles_ + tile_rows;
    return shares_ + (tile * kUnits + unit) * kShareStride;
  }

  int tiles_;  // of rows
  int lane_, warp_;
  float* rest_;
  float* gates_;
  float* shares_;
  Factor weights_;
};

template <typename N, typename S, int kGates>
Launch<RecurrentBackward<typename N::T>> make_backward(const RecurrentSizes& s) {
  using Product = TileProduct<N, S, kGates>;
  return make_launch<RecurrentBackward<typename N::T>>(s, S::kBlocks, Product::kThreads,
                                                       {{backward_cluster<Product>, kTileRows}},
                                                       BackwardCluster<Product>::bytes);
}

}  // namespace
}  // namespace recurrent_cluster

std::unique_ptr<Kernel> plan_recurrent_tiles_grad(const PlanRequest& request) {
  using namespace recurrent_cluster;
  if (!has_clusters(request)) return nullptr;
  const RecurrentSizes s = recurrent_sizes(request.op, request.attributes, request.inputs);
  const RecurrentGradientInputs places = recurrent_gradient_inputs(request.op, request.attributes);
  return with_tiles(request, s.units, [&]<typename N, typename S>(N, S) {
    return make_kernel_of(s.is_lstm ? "kerascnn LSTM gradient cluster, tensor cores"
                                    : "kerascnn GRU gradient cluster, tensor cores",
                          s.is_lstm ? make_backward<N, S, 4>(s) : make_backward<N, S, 3>(s),
                          [s, places](const KernelArgs& args) {
                            return recurrent_backward<typename N::T>(s, places, args.inputs,
                                                                     args.outputs);
                          });
  });
}

}  // namespace kerascnn::cuda
