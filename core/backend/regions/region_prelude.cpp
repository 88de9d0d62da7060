#include "core/backend/regions/element_source.h"
#include "core/backend/regions/region_text.h"

namespace kerascnn {
namespace {

// Registers hold elements as `Value`, which is rounded to the dtype by way of its bits.
constexpr const char* kTypes = R"(
namespace kerascnn {
namespace region {

typedef unsigned int Word;
typedef unsigned long long Wide;

// See core/backend/cuda/device/begin.cuh.
__device__ __forceinline__ void begin_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

struct Float16 {
  typedef float Value;
  typedef unsigned short Bits;
  __device__ __forceinline__ static float value(Word bits) {
#ifdef __CUDA_ARCH__
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"((Bits)bits));
    return value;
#else
    return __half_to_float((Bits)bits);
#endif
  }
  __device__ __forceinline__ static Word bits(float value) {
#ifdef __CUDA_ARCH__
    Bits bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
#else
    return __float_to_half(value);
#endif
  }
};
struct BFloat16 {
  typedef float Value;
  typedef unsigned short Bits;
  __device__ __forceinline__ static float value(Word bits) { return __uint_as_float(bits << 16); }
  __device__ __forceinline__ static Word bits(float value) {
#if __CUDA_ARCH__ >= 800
    Bits bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
#else
    const Word from = __float_as_uint(value);
    if ((from & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;
    return (from + 0x7fffu + (from >> 16 & 1u)) >> 16;
#endif
  }
};
struct Float32 {
  typedef float Value;
  typedef Word Bits;
  __device__ __forceinline__ static float value(Word bits) { return __uint_as_float(bits); }
  __device__ __forceinline__ static Word bits(float value) { return __float_as_uint(value); }
};
struct Float64 {
  typedef double Value;
  typedef Wide Bits;
  __device__ __forceinline__ static double value(Wide bits) {
    return __longlong_as_double((long long)bits);
  }
  __device__ __forceinline__ static Wide bits(double value) {
    return (Wide)__double_as_longlong(value);
  }
};
struct Bool {
  typedef bool Value;
  typedef unsigned char Bits;
  __device__ __forceinline__ static bool value(Word bits) { return bits != 0; }
  __device__ __forceinline__ static Word bits(bool value) { return value ? 1u : 0u; }
};
template <typename Integer, typename Unsigned>
struct IntegerType {
  typedef long long Value;
  typedef Unsigned Bits;
  __device__ __forceinline__ static long long value(Wide bits) { return (Integer)bits; }
  __device__ __forceinline__ static Unsigned bits(long long value) { return (Unsigned)value; }
};
typedef IntegerType<unsigned char, unsigned char> UInt8;
typedef IntegerType<signed char, unsigned char> Int8;
typedef IntegerType<short, unsigned short> Int16;
typedef IntegerType<int, Word> Int32;
typedef IntegerType<long long, Wide> Int64;

// One operation each, which compilers never contract with another.
namespace exact {
__device__ __forceinline__ float add(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ float subtract(float a, float b) { return __fsub_rn(a, b); }
__device__ __forceinline__ float multiply(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double add(double a, double b) { return __dadd_rn(a, b); }
__device__ __forceinline__ double subtract(double a, double b) { return __dsub_rn(a, b); }
__device__ __forceinline__ double multiply(double a, double b) { return __dmul_rn(a, b); }
__device__ __forceinline__ long long add(long long a, long long b) {
  return element::add<long long>(a, b);
}
}  // namespace exact
)";

constexpr const char* kPacks = R"(
// Several elements as they lie in memory.
template <typename T, int N>
struct Pack {
  static constexpr int kBytes = (int)sizeof(typename T::Bits) * N;
  Word words[(kBytes + 3) / 4];

  __device__ __forceinline__ typename T::Value get(int k) const {
    if constexpr (sizeof(typename T::Bits) == 8) {
      return T::value((Wide)words[2 * k + 1] << 32 | words[2 * k]);
    } else {
      constexpr int kPerWord = 4 / (int)sizeof(typename T::Bits);
      constexpr int kStep = 32 / kPerWord;
      return T::value((typename T::Bits)(words[k / kPerWord] >> (k % kPerWord * kStep)));
    }
  }
  // Calls it for each element once, in order.
  __device__ __forceinline__ void put(int k, typename T::Bits bits) {
    if constexpr (sizeof(typename T::Bits) == 8) {
      words[2 * k] = (Word)bits;
      words[2 * k + 1] = (Word)((Wide)bits >> 32);
    } else {
      constexpr int kPerWord = 4 / (int)sizeof(typename T::Bits);
      constexpr int kStep = 32 / kPerWord;
      if (k % kPerWord == 0) {
        words[k / kPerWord] = bits;
      } else {
        words[k / kPerWord] |= (Word)bits << (k % kPerWord * kStep);
      }
    }
  }
};

// `whole` says that all elements are there, and lie where one access can take them.
template <typename T, int N>
__device__ __forceinline__ Pack<T, N> load(const void* data, long long at, int count, bool whole) {
  const typename T::Bits* from = static_cast<const typename T::Bits*>(data) + at;
  constexpr int kBytes = Pack<T, N>::kBytes;
  Pack<T, N> pack;
  if (!whole) {
#pragma unroll
    for (int k = 0; k < N; ++k) pack.put(k, k < count ? from[k] : (typename T::Bits)0);
  } else if constexpr (kBytes % 16 == 0) {
#pragma unroll
    for (int i = 0; i < kBytes / 16; ++i) {
      const uint4 four = reinterpret_cast<const uint4*>(from)[i];
      pack.words[4 * i] = four.x;
      pack.words[4 * i + 1] = four.y;
      pack.words[4 * i + 2] = four.z;
      pack.words[4 * i + 3] = four.w;
    }
  } else if constexpr (kBytes == 8) {
    const uint2 two = *reinterpret_cast<const uint2*>(from);
    pack.words[0] = two.x;
    pack.words[1] = two.y;
  } else if constexpr (kBytes == 4) {
    pack.words[0] = *reinterpret_cast<const Word*>(from);
  } else if constexpr (kBytes == 2) {
    pack.words[0] = *reinterpret_cast<const unsigned short*>(from);
  } else {
    pack.words[0] = *reinterpret_cast<const unsigned char*>(from);
  }
  return pack;
}

// Which of several elements dropout keeps, a bit for each.
struct Kept {
  Word bits;
  __device__ __forceinline__ bool get(int k) const { return (bits >> k & 1u) != 0; }
};

// `at` is a multiple of N.
template <int N>
__device__ __forceinline__ Kept draw(const void* state, long long stream, long long threshold,
                                     long long at) {
  const auto* const numbers = static_cast<const kerascnn::int64_t*>(state);
  const auto decide = [&](Word word) { return (Word)philox_keep(word, (Word)threshold); };
  Kept kept = {0};
  if constexpr (N % 4 == 0) {
#pragma unroll
    for (int b = 0; b < N / 4; ++b) {
      const PhiloxBlock block = philox_block(numbers, (Word)stream, at / 4 + b);
#pragma unroll
      for (int k = 0; k < 4; ++k) kept.bits |= decide(block.words[k]) << (4 * b + k);
    }
  } else {
    const PhiloxBlock block = philox_block(numbers, (Word)stream, at / 4);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const int i = (int)(at % 4) + k;
      const Word low = i % 2 == 0 ? block.words[0] : block.words[1];
      const Word high = i % 2 == 0 ? block.words[2] : block.words[3];
      kept.bits |= decide(i < 2 ? low : high) << k;
    }
  }
  return kept;
}

template <typename T, int N>
__device__ __forceinline__ void store(void* data, long long at, int count, bool whole,
                                      const Pack<T, N>& pack) {
  typename T::Bits* to = static_cast<typename T::Bits*>(data) + at;
  constexpr int kBytes = Pack<T, N>::kBytes;
  if (!whole) {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      if (k < count) to[k] = T::bits(pack.get(k));
    }
  } else if constexpr (kBytes % 16 == 0) {
#pragma unroll
    for (int i = 0; i < kBytes / 16; ++i) {
      uint4 four;
      four.x = pack.words[4 * i];
      four.y = pack.words[4 * i + 1];
      four.z = pack.words[4 * i + 2];
      four.w = pack.words[4 * i + 3];
      reinterpret_cast<uint4*>(to)[i] = four;
    }
  } else if constexpr (kBytes == 8) {
    uint2 two;
    two.x = pack.words[0];
    two.y = pack.words[1];
    *reinterpret_cast<uint2*>(to) = two;
  } else if constexpr (kBytes == 4) {
    *reinterpret_cast<Word*>(to) = pack.words[0];
  } else if constexpr (kBytes == 2) {
    *reinterpret_cast<unsigned short*>(to) = (unsigned short)pack.words[0];
  } else {
    *reinterpret_cast<unsigned char*>(to) = (unsigned char)pack.words[0];
  }
}
)";

constexpr const char* kReductions = R"(
struct Add {
  template <typename A>
  __device__ __forceinline__ A operator()(A a, A b) const { return exact::add(a, b); }
};
struct Maximum {
  template <typename A>
  __device__ __forceinline__ A operator()(A a, A b) const { return element::maximum(a, b); }
};
struct Minimum {
  template <typename A>
  __device__ __forceinline__ A operator()(A a, A b) const { return element::minimum(a, b); }
};

// Mean and sum of squared deviations of rows that are counted elsewhere. They are merged as Chan,
// Golub and LeVeque do (see normalization/batch_norm.cu).
template <typename A>
struct Moments {
  A mean, deviation;
};

// The sums that a thread takes its moments from: of the differences from its first row, and of
// their squares. With n rows that row's squared difference from the mean is at most n times the
// variance, so what cancels in to_moments() is no more than what adding n squares may round off.
// The bits of sums depend on their order anyway, so these operations may be joined (fma).
template <typename A>
struct Differences {
  A origin, sum, squares;
};

template <typename A>
__device__ __forceinline__ void add_term(Differences<A>& sums, A term, bool is_first) {
  if (is_first) sums.origin = term;
  const A difference = term - sums.origin;
  sums.sum += difference;
  sums.squares = fma(difference, difference, sums.squares);
}

template <int kWidth, typename A>
__device__ __forceinline__ void to_moments(const Differences<A> (&sums)[kWidth], int num_rows,
                                           Moments<A> (&moments)[kWidth]) {
  const A each = A(1) / A(num_rows);
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    const A mean = sums[k].sum * each;
    const A deviation = fma(-sums[k].sum, mean, sums[k].squares);
    moments[k].mean = sums[k].origin + mean;
    moments[k].deviation = deviation < A(0) ? A(0) : deviation;  // keeps NaN
  }
}

// What threads of a block exchange while they add up N values of each column. Parts are written once
// between two barriers that all threads come to, so a part needs none of its own before it.
template <int kThreads, int N, typename A>
struct Exchange {
  A of_warps[N * kThreads];  // by value, warp and lane
  A results[N * 32];         // by value and lane
  A origins[N * 32];         // the same
};

// Adds up the values of threads with equal threadIdx.x % lanes; all of these threads have the
// result.
template <int kThreads, int N, typename A>
__device__ __forceinline__ void add_rows(A (&values)[N], Exchange<kThreads, N, A>& shared,
                                         int lanes) {
  constexpr int kWarps = kThreads / 32;
  const int own = (int)threadIdx.x, warp = own / 32, lane = own % 32;
  for (int step = 16; step >= lanes; step /= 2) {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      values[k] = exact::add(values[k], __shfl_xor_sync(0xffffffffu, values[k], step));
    }
  }
  if (lane < lanes) {
#pragma unroll
    for (int k = 0; k < N; ++k) shared.of_warps[(k * kWarps + warp) * lanes + lane] = values[k];
  }
  __syncthreads();
  for (int i = own; i < N * lanes; i += kThreads) {
    const A* const from = shared.of_warps + i / lanes * kWarps * lanes + i % lanes;
    A sums[kWarps];
#pragma unroll
    for (int w = 0; w < kWarps; ++w) sums[w] = from[w * lanes];
#pragma unroll
    for (int half = kWarps / 2; half > 0; half /= 2) {
#pragma unroll
      for (int w = 0; w < half; ++w) sums[w] = exact::add(sums[w], sums[w + half]);
    }
    shared.results[i] = sums[0];
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < N; ++k) values[k] = shared.results[k * lanes + own % lanes];
}

// The same of moments of `count` rows for each thread and `total` for all, of which the first
// threads have some. The mean is that of the first threads and what the others differ from it by, so
// it has all digits where deviations are small.
template <int kThreads, int N, typename A>
__device__ __forceinline__ void merge_moments(Moments<A> (&sums)[N], A count, A total,
                                              Exchange<kThreads, N, A>& shared, int lanes) {
  const int own = (int)threadIdx.x;
  if (own < lanes) {
#pragma unroll
    for (int k = 0; k < N; ++k) shared.origins[k * lanes + own] = sums[k].mean;
  }
  __syncthreads();
  A origin[N], values[N];
#pragma unroll
  for (int k = 0; k < N; ++k) origin[k] = shared.origins[k * lanes + own % lanes];
  const A share = count / total;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    if (count == A(0)) sums[k].mean = origin[k];
    values[k] = (sums[k].mean - origin[k]) * share;
  }
  add_rows(values, shared, lanes);
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const A mean = origin[k] + values[k];
    const A delta = sums[k].mean - mean;
    values[k] = fma(delta * delta, count, sums[k].deviation);
    sums[k].mean = mean;
  }
  add_rows(values, shared, lanes);
#pragma unroll
  for (int k = 0; k < N; ++k) sums[k].deviation = values[k];
}

// Merges moments of `count` rows with those of the `seen` rows before.
template <int N, typename A, typename Cells>
__device__ __forceinline__ void append_moments(Moments<A> (&sums)[N], const Cells& means,
                                               const Cells& deviations, A count, A seen) {
  const A share = count / (seen + count), weight = seen * share;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const A from = seen == A(0) ? means.get(k) : sums[k].mean;
    const A delta = means.get(k) - from;
    sums[k].mean = fma(delta, share, from);
    sums[k].deviation += fma(delta * delta, weight, deviations.get(k));
  }
}

// Tells the last block of `count` to arrive that it is last (see device/block.cuh).
__device__ __forceinline__ bool is_last_block(unsigned* ticket, unsigned count) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicInc(ticket, count - 1) == count - 1;
  __syncthreads();
  if (last) __threadfence();
  return last;
}

// Reduces across kLanes neighbouring threads, a power of two, or all threads of a block of so many.
template <int kLanes, typename A, typename Combine>
__device__ __forceinline__ A merge_lanes(A value, Combine combine) {
#pragma unroll
  for (int step = (kLanes < 32 ? kLanes : 32) / 2; step > 0; step /= 2) {
    value = combine(value, __shfl_xor_sync(0xffffffffu, value, step));
  }
  if constexpr (kLanes > 32) {
    __shared__ A shared[32];
    __syncthreads();  // the values of the reduction before have been read
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
    __syncthreads();
    value = shared[0];
    for (int warp = 1; warp < kLanes / 32; ++warp) value = combine(value, shared[warp]);
  }
  return value;
}

}  // namespace region
}  // namespace kerascnn

using namespace kerascnn;
using namespace kerascnn::region;
)";

}  // namespace

std::string region_prelude() { return std::string(kElementSource) + kTypes + kPacks + kReductions; }

}  // namespace kerascnn
