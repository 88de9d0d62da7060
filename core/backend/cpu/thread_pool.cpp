#include "core/backend/cpu/thread_pool.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <chrono>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/backend/cpu/parallel.h"
#include "core/base/signal_stack.h"

namespace kerascnn::cpu {
namespace {

// How long a thread looks for work before it sleeps: about what waking it up costs. Kernels of a
// step follow one another sooner than that.
constexpr auto kSpin = std::chrono::microseconds(50);

thread_local bool is_in_piece = false;

// What a thread needs of the system before its first piece, with much to spare: its thread-local
// data, a stack for handlers of signals, and room for malloc to begin.
constexpr size_t kBytesOfThread = size_t{1} << 20;

void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

// Waits for a short while until `is_done`. Returns whether it is.
template <typename IsDone>
bool spin_until(bool may_spin, const IsDone& is_done) {
  if (is_done()) return true;
  if (!may_spin) return false;
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 32; ++i) {
      if (is_done()) return true;
      pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

// Pieces [next, end) that nobody has taken, in one word so that taking one is one exchange.
struct alignas(64) Lane {
  std::atomic<uint32_t> word{0};

  static uint32_t pack(int64_t next, int64_t end) {
    return static_cast<uint32_t>(next << 16 | end);
  }
  // Returns the next piece, or -1 where there is none.
  int64_t take() {
    uint32_t before = word.load(std::memory_order_acquire);
    while (before >> 16 < (before & 0xffff)) {
      // A word of later work that looks the same is as good: its next piece is then taken.
      if (word.compare_exchange_weak(before, before + (1u << 16), std::memory_order_acq_rel,
                                     std::memory_order_acquire)) {
        return before >> 16;
      }
    }
    return -1;
  }
};

// Threads that OpenMP is asked to bind to cores (OMP_PROC_BIND, OMP_PLACES) get one each.
void bind_to_place([[maybe_unused]] int thread) {
#ifdef _OPENMP
  if (omp_get_proc_bind() == omp_proc_bind_false || omp_get_num_places() == 0) return;
  const int place = thread % omp_get_num_places();
  std::vector<int> ids(omp_get_place_num_procs(place));
  omp_get_place_proc_ids(place, ids.data());
  cpu_set_t cores;
  CPU_ZERO(&cores);
  for (const int id : ids) CPU_SET(id, &cores);
  // Threads that can't be bound run where the process may.
  pthread_setaffinity_np(pthread_self(), sizeof(cores), &cores);
#endif
}

// Asks Linux for the shortest time slices (0.1 ms) for this thread. That changes nothing about its
// share of a core, but with busy processes beside it is put on a core sooner when it wakes up: all
// threads of a kernel wait for the one that runs its last piece. Linux before 6.12 has one length
// of slices for all threads and ignores this; a thread that may not ask for it goes on as before.
// Source: "EEVDF: allow custom slices", sched(7) and sched_setattr(2).
void ask_for_short_slices() {
#if defined(__linux__) && defined(SYS_sched_setattr) && defined(SYS_sched_getattr)
  struct {  // glibc before 2.41 has no struct sched_attr
    uint32_t size = 48, policy = 0;
    uint64_t flags = 0;
    int32_t nice = 0;
    uint32_t priority = 0;
    uint64_t runtime = 0, deadline = 0, period = 0;
  } attributes;
  if (syscall(SYS_sched_getattr, 0, &attributes, attributes.size, 0) != 0) return;
  if (attributes.policy != SCHED_OTHER && attributes.policy != SCHED_BATCH) return;
  attributes.runtime = 100'000;  // nanoseconds
  static_cast<void>(syscall(SYS_sched_setattr, 0, &attributes, 0));
#endif
}

// Uses what a thread gets from the system at its first use.
void prepare(int thread) {
  is_in_piece = false;
  try {
    ensure_signal_stack();
    bind_to_place(thread);
  } catch (const std::exception&) {
    // Whoever needs it asks for it again, and says so.
  }
  ask_for_short_slices();
}

// The shared pool. A fork has none of the threads, so a child begins with a pool of its own; the
// parent's, of which it has a copy, may be in any state and is left alone.
std::atomic<ThreadPool*> shared_pool{nullptr};
void forget_shared_pool() { shared_pool.store(nullptr); }

}  // namespace

struct ThreadPool::State {
  State(int count)
      : threads(count),
        may_spin(count <= available_cores()),
        lanes(std::make_unique<Lane[]>(count)) {}

  // Takes pieces until there are none, from its own lane first, so that a thread has the same part
  // of the data from kernel to kernel. Returns whether there were any.
  bool work(int64_t thread) {
    bool has_worked = false;
    for (int i = 0; i < threads; ++i) {
      Lane& lane = lanes[(thread + i) % threads];
      for (int64_t taken = lane.take(); taken >= 0; taken = lane.take()) {
        run_piece(taken, thread);
        has_worked = true;
      }
    }
    return has_worked;
  }

  void run_piece(int64_t taken, int64_t thread) {
    is_in_piece = true;
    try {
      piece.load(std::memory_order_relaxed)(context.load(std::memory_order_relaxed), taken, thread);
    } catch (...) {
      const std::lock_guard lock(error_mutex);
      if (!error || taken < error_piece) {
        error = std::current_exception();
        error_piece = taken;
      }
    }
    is_in_piece = false;
    if (left.fetch_sub(1, std::memory_order_acq_rel) == 1) left.notify_all();
  }

  const int threads;
  const bool may_spin;
  const std::unique_ptr<Lane[]> lanes;
  std::atomic<bool> has_caller{false}, has_started{false}, is_over{false};
  std::atomic<bool> may_prepare{false};
  std::atomic<int> prepared{0};
  // Written before the lanes, and read by threads that have taken a piece, while which they stay.
  std::atomic<Piece> piece{nullptr};
  std::atomic<const void*> context{nullptr};
  alignas(64) std::atomic<uint32_t> calls{0};  // counts work; threads sleep until it changes
  alignas(64) std::atomic<uint32_t> left{0};   // pieces that have not ended
  std::mutex error_mutex;
  std::exception_ptr error;
  int64_t error_piece = 0;
};

ThreadPool::ThreadPool(int threads) : state_(std::make_shared<State>(threads)) {}

ThreadPool::~ThreadPool() {
  state_->is_over = true;
  state_->calls.fetch_add(1);
  state_->calls.notify_all();
}

ThreadPool& ThreadPool::shared() {
  static const int once = pthread_atfork(nullptr, nullptr, forget_shared_pool);
  static_cast<void>(once);
  ThreadPool* pool = shared_pool.load();
  if (pool != nullptr) return *pool;
  // Never destroyed: its threads may outlive static objects.
  auto* fresh = new ThreadPool(num_threads());
  if (shared_pool.compare_exchange_strong(pool, fresh)) return *fresh;
  delete fresh;
  return *pool;
}

// The C library makes a thread's thread-local data when they are first used, and ends the process
// where there is no memory for them. So room for all threads is set aside before they start, and
// given to them while the caller waits.
bool ThreadPool::start() {
  State& state = *state_;
  const size_t bytes = kBytesOfThread * static_cast<size_t>(state.threads - 1);
  void* const room =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) return false;
  // Signals are the business of the threads that were there before.
  const SignalsBlocked blocked;
  int started = 0;
  try {
    for (int i = 1; i < state.threads; ++i, ++started) {
      std::thread(loop, state_, i).detach();
    }
  } catch (const std::exception&) {
    // The system gives no more threads: those that there are do all the work.
  }
  munmap(room, bytes);
  state.may_prepare = true;
  state.may_prepare.notify_all();
  for (int now = state.prepared; now < started; now = state.prepared) state.prepared.wait(now);
  return true;
}

void ThreadPool::run(int64_t pieces, Piece piece, const void* context) {
  State& state = *state_;
  const bool is_shared =
      pieces > 1 && state.threads > 1 && !is_in_piece && !state.has_caller.exchange(true);
  if (!is_shared) {
    for (int64_t i = 0; i < pieces; ++i) piece(context, i, 0);
    return;
  }
  if (!state.has_started) state.has_started = start();
  static thread_local const bool once = (ask_for_short_slices(), true);
  static_cast<void>(once);
  state.piece.store(piece, std::memory_order_relaxed);
  state.context.store(context, std::memory_order_relaxed);
  state.left.store(static_cast<uint32_t>(pieces), std::memory_order_relaxed);
  const int64_t lanes = std::min<int64_t>(state.threads, pieces);
  for (int64_t i = 0; i < lanes; ++i) {
    state.lanes[i].word.store(Lane::pack(pieces * i / lanes, pieces * (i + 1) / lanes),
                              std::memory_order_release);
  }
  state.calls.fetch_add(1);
  if (lanes == state.threads) {
    state.calls.notify_all();
  } else {
    for (int64_t i = 1; i < lanes; ++i) state.calls.notify_one();
  }
  state.work(0);
  const auto is_done = [&] { return state.left.load(std::memory_order_acquire) == 0; };
  while (!spin_until(state.may_spin, is_done)) {
    if (const uint32_t left = state.left.load(std::memory_order_acquire)) state.left.wait(left);
  }
  std::exception_ptr error;
  {
    const std::lock_guard lock(state.error_mutex);
    error = std::exchange(state.error, nullptr);
  }
  state.has_caller.store(false);
  if (error) std::rethrow_exception(error);
}

void ThreadPool::loop(std::shared_ptr<State> state, int thread) {
  state->may_prepare.wait(false);
  prepare(thread);
  state->prepared.fetch_add(1);
  state->prepared.notify_one();
  for (;;) {
    const uint32_t seen = state->calls.load();
    if (state->is_over) return;
    if (state->work(thread)) continue;
    const auto is_called = [&] { return state->calls.load(std::memory_order_acquire) != seen; };
    if (!spin_until(state->may_spin, is_called)) state->calls.wait(seen);
  }
}

}  // namespace kerascnn::cpu
