// Handlers of signals: on a stack of their own in threads that run kernels, and not at all in
// threads of ours.
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <thread>
#include <vector>

#include "check.h"
#include "core/backend/cpu/thread_pool.h"
#include "core/base/signal_stack.h"

using kerascnn::ensure_signal_stack;
using kerascnn::SignalsBlocked;
using kerascnn::cpu::ThreadPool;

namespace {

stack_t stack_of_thread() {
  stack_t stack{};
  sigaltstack(nullptr, &stack);
  return stack;
}

std::atomic<const void*> frame_of_handler{nullptr};
void note_frame(int) { frame_of_handler = __builtin_frame_address(0); }

// A handler with flags, while it lives.
class Handler {
 public:
  explicit Handler(int flags) {
    struct sigaction mine{};
    mine.sa_handler = note_frame;
    mine.sa_flags = flags;
    sigaction(SIGUSR1, &mine, &before_);
    frame_of_handler = nullptr;
  }
  ~Handler() { sigaction(SIGUSR1, &before_, nullptr); }

 private:
  struct sigaction before_{};
};

template <typename Body>
void in_thread(const Body& body) {
  std::thread(body).join();
}

std::ptrdiff_t mappings() {
  std::ifstream file("/proc/self/maps");
  return std::count(std::istreambuf_iterator<char>(file), {}, '\n');
}

bool is_blocked(int signal) {
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  return sigismember(&mask, signal) == 1;
}

}  // namespace

TEST(a_handler_that_asks_for_it_runs_on_the_stack_of_its_own) {
  const Handler handler(SA_ONSTACK);
  stack_t stack{};
  in_thread([&] {
    ensure_signal_stack();
    ensure_signal_stack();
    stack = stack_of_thread();
    raise(SIGUSR1);
  });
  const auto* begin = static_cast<const std::byte*>(stack.ss_sp);
  const auto* frame = static_cast<const std::byte*>(frame_of_handler.load());
  CHECK_EQUAL(stack.ss_flags & SS_DISABLE, 0);
  CHECK(frame >= begin && frame < begin + stack.ss_size);
}

TEST(each_thread_has_its_own_stack_and_gives_it_back) {
  stack_t one{}, still{}, other{};
  in_thread([&] {
    ensure_signal_stack();
    one = stack_of_thread();
    in_thread([&] {
      ensure_signal_stack();
      other = stack_of_thread();
    });
    still = stack_of_thread();
  });
  CHECK(one.ss_sp != nullptr && other.ss_sp != nullptr && one.ss_sp != other.ss_sp);
  CHECK(one.ss_sp == still.ss_sp);
  // A stack that is kept is two lines: its memory, and the page that nobody may touch.
  constexpr int kThreads = 200;
  const auto before = mappings();
  for (int i = 0; i < kThreads; ++i) in_thread([] { ensure_signal_stack(); });
  CHECK(mappings() < before + kThreads / 2);
}

TEST(a_stack_that_a_thread_has_stays) {
  std::vector<std::byte> memory(1 << 18);
  void* found = nullptr;
  in_thread([&] {
    stack_t mine{};
    stack_t before{};
    mine.ss_sp = memory.data();
    mine.ss_size = memory.size();
    sigaltstack(&mine, &before);
    ensure_signal_stack();
    found = stack_of_thread().ss_sp;
    sigaltstack(&before, nullptr);  // sanitizers free the one they gave
  });
  CHECK(found == memory.data());
}

TEST(signals_wait_but_faults_do_not) {
  const Handler handler(0);
  bool is_early = true;
  {
    const SignalsBlocked blocked;
    raise(SIGUSR1);
    is_early = frame_of_handler != nullptr;
    CHECK(is_blocked(SIGINT) && is_blocked(SIGALRM) && is_blocked(SIGPROF) && is_blocked(SIGCHLD));
    CHECK(!is_blocked(SIGSEGV) && !is_blocked(SIGBUS) && !is_blocked(SIGFPE));
    CHECK(!is_blocked(SIGILL) && !is_blocked(SIGABRT));
    const SignalsBlocked again;
  }
  CHECK(!is_early);
  CHECK(frame_of_handler != nullptr);
  CHECK(!is_blocked(SIGUSR1) && !is_blocked(SIGINT));
}

TEST(threads_of_the_pool_leave_signals_to_others) {
  ThreadPool pool(3);
  std::atomic<int> open{0}, faults_held{0}, arrived{0};
  const std::thread::id caller = std::this_thread::get_id();
  // Each piece waits for the others, so that all threads have one.
  const auto piece = [&](int64_t, int64_t) {
    ++arrived;
    while (arrived < 3) std::this_thread::yield();
    if (std::this_thread::get_id() != caller && !is_blocked(SIGINT)) ++open;
    if (is_blocked(SIGSEGV)) ++faults_held;
  };
  pool.run(
      3,
      [](const void* context, int64_t i, int64_t thread) {
        (*static_cast<decltype(piece)*>(context))(i, thread);
      },
      &piece);
  CHECK_EQUAL(open.load(), 0);
  CHECK_EQUAL(faults_held.load(), 0);
  CHECK(!is_blocked(SIGINT));
}
