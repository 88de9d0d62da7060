// Work that OpenMP threads share. Sizes decide how it is cut into parts, never timing.
#pragma once

#include <algorithm>
#include <cstdint>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace kerascnn::cpu {

// How many threads kernels use: KERASCNN_NUM_THREADS where it is set, otherwise what OpenMP offers
// (OMP_NUM_THREADS and the process' affinity); in both cases not more than the container's CPU
// quota.
int num_threads();

// How many CPUs the process may use, by its affinity and the container's quota.
int available_cores();

// With so many elements, a simple function of each is worth a thread of its own: waking a thread
// costs a few microseconds.
constexpr int64_t kElementGrain = 16384;

// Calls body(begin, end) on ranges that cover [0, count), each of at least `grain` where there are
// several. Range borders depend on the number of threads: the body must treat each index by itself.
template <typename Body>
void parallel_for(int64_t count, int64_t grain, const Body& body) {
  if (count <= 0) return;
#ifdef _OPENMP
  const int64_t most = std::max<int64_t>(1, count / std::max<int64_t>(1, grain));
  const int threads = static_cast<int>(std::min<int64_t>(num_threads(), most));
  if (threads > 1) {
#pragma omp parallel num_threads(threads)
    {
      const int64_t team = omp_get_num_threads();
      const int64_t rank = omp_get_thread_num();
      const int64_t begin = count * rank / team;
      const int64_t end = count * (rank + 1) / team;
      if (begin < end) body(begin, end);
    }
    return;
  }
#endif
  body(0, count);
}

// How many indices are worth a thread where one takes as long as `work` elements.
inline int64_t grain_of(int64_t work) {
  return std::max<int64_t>(1, kElementGrain / std::max<int64_t>(1, work));
}

// The work of an exponential function.
constexpr int64_t kExpWork = 8;

// Calls body(i) for each i in [0, count), each of which takes as long as `work` elements.
template <typename Body>
void parallel_each(int64_t count, int64_t work, const Body& body) {
  parallel_for(count, grain_of(work), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(i);
  });
}

// Calls body(task, thread) for each task in [0, count). Threads take tasks in turn; thread <
// num_threads(), and no two tasks that run at the same time have the same one, so it can name a
// scratch buffer.
template <typename Body>
void parallel_tasks(int64_t count, const Body& body) {
#ifdef _OPENMP
  const int threads = static_cast<int>(std::min<int64_t>(num_threads(), count));
  if (threads > 1) {
#pragma omp parallel num_threads(threads)
    {
      const int64_t team = omp_get_num_threads();
      const int64_t rank = omp_get_thread_num();
      for (int64_t task = count * rank / team; task < count * (rank + 1) / team; ++task) {
        body(task, rank);
      }
    }
    return;
  }
#endif
  for (int64_t task = 0; task < count; ++task) body(task, int64_t{0});
}

// Holds OpenMP's own thread count at num_threads() while a library's kernel runs, for this thread
// only.
class ThreadCountScope {
 public:
  ThreadCountScope() {
#ifdef _OPENMP
    previous_ = omp_get_max_threads();
    if (previous_ != num_threads()) omp_set_num_threads(num_threads());
#endif
  }
  ~ThreadCountScope() {
#ifdef _OPENMP
    if (previous_ != omp_get_max_threads()) omp_set_num_threads(previous_);
#endif
  }
  ThreadCountScope(const ThreadCountScope&) = delete;
  ThreadCountScope& operator=(const ThreadCountScope&) = delete;

 private:
  [[maybe_unused]] int previous_ = 1;
};

}  // namespace kerascnn::cpu
