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

// Squared deviations that rounding has made negative are 0; NaN stays NaN.
template <typename A>
__device__ __forceinline__ A not_negative(A deviation) {
  return deviation < A(0) ? A(0) : deviation;
}

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

template <int N, typename A>
__device__ __forceinline__ void to_moments(const Differences<A> (&sums)[N], int num_rows,
                                           Moments<A> (&moments)[N]) {
  const A each = A(1) / A(num_rows);
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const A mean = sums[k].sum * each;
    moments[k].mean = sums[k].origin + mean;
    moments[k].deviation = not_negative(fma(-sums[k].sum, mean, sums[k].squares));
  }
}

// A block adds up what its threads have in two steps, of which the second is only for as many
// threads as there are columns: what all threads do is what takes the time. The first step adds up
// within a warp and puts the sums where the second one finds them, behind a barrier. A thread has N
// columns side by side, one with threadIdx.x % lanes equal has the same ones.
template <typename A, int N>
struct alignas(sizeof(A) * N) SideBySide {
  A values[N];
};

template <int N, typename A>
__device__ __forceinline__ void put_columns(const A (&values)[N], A* to) {
  constexpr int kAtOnce = N * sizeof(A) > 16 ? 16 / (int)sizeof(A) : N;
#pragma unroll
  for (int k = 0; k < N; k += kAtOnce) {
    SideBySide<A, kAtOnce> some;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) some.values[i] = values[k + i];
    *reinterpret_cast<SideBySide<A, kAtOnce>*>(to + k) = some;
  }
}

template <int N, typename A>
__device__ __forceinline__ void take_columns(A (&values)[N], const A* from) {
  constexpr int kAtOnce = N * sizeof(A) > 16 ? 16 / (int)sizeof(A) : N;
#pragma unroll
  for (int k = 0; k < N; k += kAtOnce) {
    const auto some = *reinterpret_cast<const SideBySide<A, kAtOnce>*>(from + k);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) values[k + i] = some.values[i];
  }
}

template <int N, typename A>
__device__ __forceinline__ void put_sums(A (&values)[N], A* of_warps, int lane_bits) {
  const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
  for (int bit = 4; bit >= lane_bits; --bit) {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      values[k] = exact::add(values[k], __shfl_xor_sync(0xffffffffu, values[k], 1 << bit));
    }
  }
  if (lane >> lane_bits == 0) put_columns(values, of_warps + ((warp << lane_bits) + lane) * N);
}

// The sum of the column that has the thread's number, among those of the block.
template <int kThreads, int N, typename A>
__device__ __forceinline__ A sum_of_warps(const A* of_warps, int lane_bits) {
  constexpr int kChains = 4;
  const int columns = N << lane_bits;
  A sums[kChains] = {};
#pragma unroll
  for (int w = 0; w < kThreads / 32; ++w) {
    sums[w % kChains] = exact::add(sums[w % kChains], of_warps[w * columns + (int)threadIdx.x]);
  }
  return exact::add(exact::add(sums[0], sums[1]), exact::add(sums[2], sums[3]));
}

// The sums that moments are merged by: of what means differ by from a mean that all have in common,
// and of the squared deviations from that one. What cancels in from_sums() is how far it is from the
// mean of all, and it is the mean of many rows itself.
template <int N, typename A>
__device__ __forceinline__ void to_sums(const Moments<A> (&moments)[N], const A (&origin)[N],
                                        A count, A (&sums)[N], A (&squares)[N]) {
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const A difference = moments[k].mean - origin[k];
    sums[k] = count == A(0) ? A(0) : count * difference;
    squares[k] = count == A(0) ? A(0) : fma(sums[k], difference, moments[k].deviation);
  }
}

// Adds the moments of `count` rows to sums around `origin`.
template <typename A>
__device__ __forceinline__ void add_moments(A mean, A deviation, A count, A origin, A& sum,
                                            A& square) {
  const A difference = mean - origin, product = count * difference;
  sum += product;
  square += fma(product, difference, deviation);
}

template <typename A>
__device__ __forceinline__ Moments<A> from_sums(A origin, A sum, A squares, A total) {
  const A mean = sum / total;
  return {origin + mean, not_negative(fma(-sum, mean, squares))};
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
