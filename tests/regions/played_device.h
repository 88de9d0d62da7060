// Lets a C++ compiler compile the CUDA C++ of a kernel, and plays the device: the threads of a
// block are contexts that take turns between barriers. So index arithmetic and merges can be tried
// on any machine. Results are those of a GPU, except that exp, tanh and the like are the host's.
#include <math.h>
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#define __CUDACC_RTC__
#define __host__
#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static

struct uint2 {
  unsigned x, y;
};
struct uint4 {
  unsigned x, y, z, w;
};
struct Indices {
  unsigned x = 1, y = 1, z = 1;
};
static Indices threadIdx, blockIdx, gridDim, blockDim;

namespace played {
using std::unique_ptr;
using std::vector;
constexpr size_t kStack = 256 << 10;
struct Thread {
  ucontext_t context;
  unique_ptr<char[]> stack{new char[kStack]};
  bool is_done = false;
};
static vector<Thread> threads;
static ucontext_t scheduler;
static uint64_t exchanged[1024];
static void (*body)();

static void wait() { swapcontext(&threads[threadIdx.x].context, &scheduler); }
static void begin() {
  body();
  threads[threadIdx.x].is_done = true;
}
static void run_block() {
  for (Thread& thread : threads) {
    thread.is_done = false;
    getcontext(&thread.context);
    thread.context.uc_stack.ss_sp = thread.stack.get();
    thread.context.uc_stack.ss_size = kStack;
    thread.context.uc_link = &scheduler;
    makecontext(&thread.context, begin, 0);
  }
  bool goes_on = true;
  while (goes_on) {
    goes_on = false;
    for (size_t i = 0; i < threads.size(); ++i) {
      if (threads[i].is_done) continue;
      threadIdx.x = static_cast<unsigned>(i);
      swapcontext(&scheduler, &threads[i].context);
      goes_on = goes_on || !threads[i].is_done;
    }
  }
}
static void launch(unsigned x, unsigned y, unsigned count, void (*function)()) {
  body = function;
  threads.resize(count);
  blockDim.x = count;
  gridDim.x = x;
  gridDim.y = y;
  for (blockIdx.y = 0; blockIdx.y < y; ++blockIdx.y) {
    for (blockIdx.x = 0; blockIdx.x < x; ++blockIdx.x) run_block();
  }
}
template <typename To, typename From>
To bits_of(From from) {
  To to;
  memcpy(&to, &from, sizeof(to));
  return to;
}
}  // namespace played

inline void __syncthreads() { played::wait(); }
inline void __threadfence() {}
template <typename T>
T __shfl_xor_sync(unsigned, T value, int step) {
  memcpy(&played::exchanged[threadIdx.x], &value, sizeof(value));
  played::wait();
  T result;
  memcpy(&result, &played::exchanged[threadIdx.x ^ step], sizeof(result));
  played::wait();
  return result;
}
inline unsigned atomicInc(unsigned* at, unsigned limit) {
  const unsigned old = *at;
  *at = old >= limit ? 0 : old + 1;
  return old;
}
inline float __uint_as_float(unsigned bits) { return played::bits_of<float>(bits); }
inline unsigned __float_as_uint(float value) { return played::bits_of<unsigned>(value); }
inline double __longlong_as_double(long long bits) { return played::bits_of<double>(bits); }
inline long long __double_as_longlong(double value) { return played::bits_of<long long>(value); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline float __half_to_float(unsigned short bits) { return played::bits_of<_Float16>(bits); }
inline unsigned short __float_to_half(float value) {
  return played::bits_of<unsigned short>(static_cast<_Float16>(value));
}
