// The clusters of recurrent_cluster.cuh multiply on tensor cores here. The recurrent kernel is the
// first factor, in tiles of 16 rows that each warp keeps in registers, and what they don't hold in
// shared memory; the second one is 8 rows of the batch, in shared memory.
#pragma once

#include "core/backend/cuda/recurrent/recurrent_cluster.cuh"
#include "core/backend/cuda/tiles/numbers.cuh"
#include "core/backend/cuda/tiles/shared_tile.cuh"

namespace kerascnn::cuda::recurrent_cluster {

constexpr int kTileRows = 8;      // of the batch
constexpr int kChunk = 16;        // words of two tiles side by side
constexpr int kTileWeights = 4;   // words that a lane has of a tile of weights
constexpr int kMostWeights = 64;  // such words in registers

// One warp has this of the first factor: `tiles` tiles of 16 rows by `chunks` chunks of words.
// Numbers of k within a chunk are in the order in which a lane reads four words of the second
// factor at once.
template <typename Numbers, int tiles, int chunks>
class Weights {
  static constexpr int kHeld = std::min(chunks, kMostWeights / (2 * kTileWeights * tiles));
  static constexpr int kRest = chunks - kHeld;

 public:
  // How much shared memory each warp needs.
  static constexpr int kFloats = kRest * tiles * 2 * 32 * kTileWeights;

  // number(row, k) gives the numbers of the factor.
  template <typename Number>
  __device__ __forceinline__ void read(float* shared, int lane, const Number& number) {
    rest_ = reinterpret_cast<LeftFragment*>(shared) + lane;
#pragma unroll
    for (int tile = 0; tile < tiles; ++tile) {
#pragma unroll
      for (int part = 0; part < 2 * kHeld; ++part) {
        held_[tile][part] = read_fragment(lane, number, tile, part);
      }
#pragma unroll 1  // otherwise all are read before the first one is stored
      for (int part = 2 * kHeld; part < 2 * chunks; ++part) {
        rest_[(tile * 2 * kRest + part - 2 * kHeld) * 32] = read_fragment(lane, number, tile, part);
      }
    }
  }

  // sums[tile] = weights . b, with b where this lane's row and words of a chunk begin.
  __device__ __forceinline__ void multiply(float (&sums)[tiles][4], const float* b) const {
    float parts[2][tiles][4] = {};  // two chains of products, half as long
#pragma unroll
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const uint4 words = *reinterpret_cast<const uint4*>(b + chunk * kChunk);
#pragma unroll
      for (int tile = 0; tile < tiles; ++tile) {
        Numbers::multiply(parts[0][tile], fragment(tile, 2 * chunk), {{words.x, words.y}});
        Numbers::multiply(parts[1][tile], fragment(tile, 2 * chunk + 1), {{words.z, words.w}});
      }
    }
#pragma unroll
    for (int tile = 0; tile < tiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[tile][i] = parts[0][tile][i] + parts[1][tile][i];
    }
  }

 private:
  template <typename Number>
  static __device__ __forceinline__ LeftFragment read_fragment(int lane, const Number& number,
                                                               int tile, int part) {
    const int row = tile * 16 + lane / 4;
    const int word = part / 2 * kChunk + lane % 4 * 4 + part % 2 * 2;
    return {{word_of(number, row, word), word_of(number, row + 8, word),
             word_of(number, row, word + 1), word_of(number, row + 8, word + 1)}};
  }

  template <typename Number>
  static __device__ __forceinline__ uint32_t word_of(const Number& number, int row, int word) {
    constexpr int kPerWord = Numbers::kPerWord;
    union {
      typename Numbers::Stored numbers[kPerWord];
      uint32_t word;
    } result = {};
#pragma unroll
    for (int i = 0; i < kPerWord; ++i) {
      result.numbers[i] = Numbers::stored(number(row, word * kPerWord + i));
    }
    return result.word;
  }

  __device__ __forceinline__ LeftFragment fragment(int tile, int part) const {
    if (part < 2 * kHeld) return held_[tile][part];
    return rest_[(tile * 2 * kRest + part - 2 * kHeld) * 32];
  }

  LeftFragment held_[tiles][2 * kHeld];
  LeftFragment* rest_;
};

// The sizes of a block that has `units` of the units and is one of `blocks`.
template <int units, int blocks>
struct TileSplit {
  static constexpr int kUnits = units;
  static constexpr int kBlocks = blocks;
  static constexpr int kAllUnits = units * blocks;  // filled up
};

// Calls function(numbers, split) with the numbers for the dtype and the split for the units; null
// where there are none.
template <typename Function>
std::unique_ptr<Kernel> with_tiles(const PlanRequest& request, int64_t units,
                                   const Function& function) {
  const auto with_halves = [&]<typename T>(Type<T>) -> std::unique_ptr<Kernel> {
    using N = HalfNumbers<T>;
    if (units <= 64) return function(N(), TileSplit<64, 1>());
    if (units <= 128) return function(N(), TileSplit<32, 4>());
    if (units <= 256) return function(N(), TileSplit<32, 8>());
    return function(N(), TileSplit<64, 8>());
  };
  if (units > 512) return nullptr;
  switch (request.outputs[0].dtype) {
    case DType::Float16:
      return with_halves(Type<__half>());
    case DType::BFloat16:
      return with_halves(Type<__nv_bfloat16>());
    case DType::Float32:
      if (!request.allow_tf32) return function(SplitNumbers(), TileSplit<32, 16>());
      return units <= 256 ? function(Tf32Numbers(), TileSplit<32, 8>())
                          : function(Tf32Numbers(), TileSplit<32, 16>());
    default:
      return nullptr;
  }
}

}  // namespace kerascnn::cuda::recurrent_cluster
