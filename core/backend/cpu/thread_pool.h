// The threads of the CPU's kernels. Work is cut into more pieces than there are threads, and
// whoever has a core takes the next one, so that a thread without one holds up at most the piece
// that it has begun. Threads without work sleep after a short while.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>

namespace kerascnn::cpu {

class ThreadPool {
 public:
  // Work is cut into at most this many pieces.
  static constexpr int64_t kMostPieces = 65535;
  using Piece = void (*)(const void* context, int64_t piece, int64_t thread);

  // A pool of `threads`, of which the caller of run() is one. The others start with the first work.
  explicit ThreadPool(int threads);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  // Ends the threads, none of which may have work.
  ~ThreadPool();

  // The pool of the process, with num_threads() threads; a forked child has one of its own.
  static ThreadPool& shared();

  // Calls piece(context, i, thread) once for each i in [0, pieces), and returns when all of them
  // have ended. Calls at the same time have different threads < num_threads(). If pieces throw,
  // the exception of the first of them in order is thrown; others may have run or not. Work that a
  // piece posts, and work of a second caller while there is work, is done by its caller alone.
  void run(int64_t pieces, Piece piece, const void* context);

 private:
  struct State;

  static void loop(std::shared_ptr<State> state, int thread);
  // Returns whether the threads have been started: not where there is no room for them yet.
  bool start();

  // Threads share it with the pool, because they may see that it has ended only after it is gone.
  const std::shared_ptr<State> state_;
};

}  // namespace kerascnn::cpu
