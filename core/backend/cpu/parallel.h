// Work that threads share. Sizes decide how it is cut into pieces, never timing: who runs a piece
// is a matter of time, what a piece is is not.
#pragma once

#include <algorithm>
#include <cstdint>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "core/backend/cpu/thread_pool.h"

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

// Work is cut into up to this many pieces for each thread, so that a thread that has to share its
// core leaves pieces to the others.
constexpr int64_t kPiecesOfThread = 4;

// Calls body(piece, thread) for each piece in [0, pieces), by the threads that have time. Calls at
// the same time have different threads < num_threads().
template <typename Body>
void run_pieces(int64_t pieces, const Body& body) {
  ThreadPool::shared().run(
      pieces,
      [](const void* context, int64_t piece, int64_t thread) {
        (*static_cast<const Body*>(context))(piece, thread);
      },
      &body);
}

// Calls body(begin, end) on ranges that cover [0, count), each of at least `grain` where there are
// several. Range borders depend on the number of threads: the body must treat each index by itself.
template <typename Body>
void parallel_for(int64_t count, int64_t grain, const Body& body) {
  if (count <= 0) return;
  const int64_t most = std::max<int64_t>(1, count / std::max<int64_t>(1, grain));
  const int64_t pieces = std::min<int64_t>(most, num_threads() * kPiecesOfThread);
  if (num_threads() == 1 || pieces == 1) {
    body(int64_t{0}, count);
    return;
  }
  run_pieces(pieces, [&](int64_t piece, int64_t) {
    body(count * piece / pieces, count * (piece + 1) / pieces);
  });
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

// Calls body(task, thread) for each task in [0, count). thread < num_threads(), and no two tasks
// that run at the same time have the same one, so it can name a scratch buffer.
template <typename Body>
void parallel_tasks(int64_t count, const Body& body) {
  const int64_t pieces = std::min<int64_t>(count, num_threads() * kPiecesOfThread);
  run_pieces(pieces, [&](int64_t piece, int64_t thread) {
    for (int64_t task = count * piece / pieces; task < count * (piece + 1) / pieces; ++task) {
      body(task, thread);
    }
  });
}

// How many threads OpenMP offers a library's kernel while this lives, to this thread only.
class ThreadCountScope {
 public:
  explicit ThreadCountScope([[maybe_unused]] int threads) {
#ifdef _OPENMP
    previous_ = omp_get_max_threads();
    if (previous_ != threads) omp_set_num_threads(threads);
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
