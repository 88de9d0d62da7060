#include "core/bindings/unlocked.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "core/bindings/bindings.h"

namespace kerascnn::bindings {
namespace {

// Threads in blocks, those included that have left and wait for the lock.
std::atomic<int> inside{0};
// The thread that ends the interpreter; 0 before.
std::atomic<unsigned long> survivor{0};

// Work on a GPU may be an epoch. A process that is told to end should not take longer than this.
constexpr auto kPatience = std::chrono::seconds(10);

bool sleeps_from_now_on() {
  const unsigned long last = survivor.load();
  return last != 0 && last != PyThread_get_thread_ident();
}

[[noreturn]] void sleep_forever() {
  inside.fetch_sub(1);
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

}  // namespace

Unlocked::Unlocked() {
  inside.fetch_add(1);
  state_ = PyEval_SaveThread();
  if (sleeps_from_now_on()) sleep_forever();
}

Unlocked::~Unlocked() {
  if (sleeps_from_now_on()) sleep_forever();
  PyEval_RestoreThread(state_);
  inside.fetch_sub(1);
}

namespace {

// The interpreter is about to end: only the calling thread leaves its blocks from now on.
void keep_other_threads_unlocked() {
  // What other threads have is not given back, and nanobind's report of it would look like a fault.
  // Frames show all of them: `threading` doesn't know those that `_thread` and C code have started.
  // This thread may have none by now.
  nb::object frames = nb::module_::import_("sys").attr("_current_frames")();
  frames.attr("pop")(PyThread_get_thread_ident(), nb::none());
  if (nb::len(frames) > 0) nb::set_leak_warnings(false);
  survivor = PyThread_get_thread_ident();
  // Threads that had left their blocks just before get the lock while this one waits without it.
  PyThreadState* state = PyEval_SaveThread();
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (inside.load() > 0 && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  PyEval_RestoreThread(state);
}

}  // namespace

// Whatever was registered before kerascnn was imported runs after this, and may use it: that is the
// same thread.
void bind_end() {
  nb::module_::import_("atexit").attr("register")(nb::cpp_function(&keep_other_threads_unlocked));
  // A fork has one thread, which is in no block.
  pthread_atfork(nullptr, nullptr, [] { inside = 0; });
}

}  // namespace kerascnn::bindings
