#include "core/base/signal_stack.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <new>
#include <system_error>

namespace kerascnn {
namespace {

// What handlers have for themselves: a profiler's walks the frames of the interrupted thread.
// Pages that no handler touches take no memory.
constexpr size_t kBytes = size_t{1} << 18;

// The least that the system asks for: its frame holds all registers, which are more on newer
// processors.
size_t least_bytes() {
  long bytes = MINSIGSTKSZ;
#ifdef _SC_MINSIGSTKSZ
  bytes = std::max(bytes, sysconf(_SC_MINSIGSTKSZ));
#endif
  return static_cast<size_t>(bytes);
}

sigset_t signals_from_elsewhere() {
  sigset_t set;
  sigfillset(&set);
  for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) {
    sigdelset(&set, own);
  }
  return set;
}

class SignalStack {
 public:
  SignalStack() {
    // Where there is one, somebody needs it: faulthandler, for instance.
    stack_t there{};
    if (sigaltstack(nullptr, &there) == 0 && (there.ss_flags & SS_DISABLE) == 0) return;
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    // A handler that needs more runs into the first page, which nobody may touch.
    bytes_ = (page + kBytes + least_bytes() + page - 1) / page * page;
    void* memory =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fail();
    memory_ = static_cast<std::byte*>(memory);
    stack_t mine{};
    mine.ss_sp = memory_ + page;
    mine.ss_size = bytes_ - page;
    if (mprotect(memory_, page, PROT_NONE) != 0 || sigaltstack(&mine, nullptr) != 0) {
      const int error = errno;
      munmap(memory_, bytes_);
      errno = error;
      fail();
    }
  }

  // The thread ends.
  ~SignalStack() {
    if (memory_ == nullptr) return;
    stack_t now{};
    if (sigaltstack(nullptr, &now) != 0) return;
    const auto* at = static_cast<const std::byte*>(now.ss_sp);
    if ((now.ss_flags & SS_DISABLE) == 0 && at > memory_ && at < memory_ + bytes_) {
      stack_t none{};
      none.ss_flags = SS_DISABLE;
      // A handler that ends its thread is still on it.
      if (sigaltstack(&none, nullptr) != 0) return;
    }
    munmap(memory_, bytes_);
  }

  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;

 private:
  [[noreturn]] static void fail() {
    if (errno == ENOMEM || errno == EAGAIN) throw std::bad_alloc();
    throw std::system_error(errno, std::generic_category(),
                            "a thread's stack for handlers of signals");
  }

  std::byte* memory_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace

void ensure_signal_stack() {
  thread_local const SignalStack stack;
  static_cast<void>(stack);
}

SignalsBlocked::SignalsBlocked() {
  static const sigset_t blocked = signals_from_elsewhere();
  pthread_sigmask(SIG_BLOCK, &blocked, &before_);
}

SignalsBlocked::~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

}  // namespace kerascnn
