#include "core/backend/compile_queue.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <new>
#include <system_error>
#include <utility>

#include "core/backend/cpu/parallel.h"
#include "core/base/env.h"
#include "core/base/signal_stack.h"

namespace kerascnn {
namespace {

// Each thread takes memory while it compiles.
constexpr int kMostThreads = 16;
constexpr auto kPatience = std::chrono::seconds(5);
// This changes whenever the meaning of a key does.
constexpr std::string_view kFormat = "kerascnn kernels 1";

// How many compilations the calling thread is at.
thread_local int num_own = 0;

struct Queues {
  std::mutex mutex;
  std::vector<CompileQueue*> all;
};

// These are never destroyed: a process may fork as late as when it ends.
Queues& queues() {
  static Queues& known = *new Queues;
  return known;
}

// Appends it so that two lists of texts never become one text.
void append(std::string& text, std::string_view part) {
  text += std::to_string(part.size());
  text += ':';
  text += part;
}

}  // namespace

struct ForkHandlers {
  static void before() {
    queues().mutex.lock();
    for (CompileQueue* queue : queues().all) queue->before_fork();
  }
  static void in_parent() {
    for (CompileQueue* queue : queues().all) queue->after_fork_in_parent();
    queues().mutex.unlock();
  }
  static void in_child() {
    for (CompileQueue* queue : queues().all) queue->after_fork_in_child();
    queues().mutex.unlock();
  }
};

Digest key_of(const CompileRequest& request) {
  std::string text;
  append(text, kFormat);
  append(text, request.compiler);
  append(text, request.function);
  append(text, request.source);
  for (const std::string& option : request.options) append(text, option);
  return sha256(text);
}

const CompiledCode& Compilation::wait() {
  std::unique_lock lock(queue_->mutex_);
  queue_->has_changed_.wait(lock, [&] { return !queue_->is_forking_; });
  if (progress_ == Progress::Waiting) queue_->run(*this, lock);
  queue_->has_changed_.wait(lock, [&] { return progress_ == Progress::Over; });
  return result_;
}

CompileQueue::CompileQueue(CodeStore& store, int max_threads)
    : store_(store), max_threads_(std::max(1, max_threads)) {
  static const int registered =
      pthread_atfork(ForkHandlers::before, ForkHandlers::in_parent, ForkHandlers::in_child);
  (void)registered;
  const std::lock_guard lock(queues().mutex);
  queues().all.push_back(this);
}

CompileQueue::~CompileQueue() {
  stop();
  const std::lock_guard lock(queues().mutex);
  std::erase(queues().all, this);
}

CompileQueue& CompileQueue::shared() {
  // This is never destroyed: kernels may be compiled as late as when the process ends.
  static CompileQueue& queue = *[] {
    const int most = std::min(cpu::available_cores(), kMostThreads);
    const int64_t wanted = env_positive("KERASCNN_COMPILE_THREADS", most);
    auto* const made =
        new CompileQueue(code_store(), static_cast<int>(std::min<int64_t>(wanted, 1024)));
    std::atexit([] { CompileQueue::shared().end(); });
    return made;
  }();
  return queue;
}

std::shared_ptr<Compilation> CompileQueue::start(CompileRequest request, const Compiler& compiler) {
  const Digest key = key_of(request);
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Compilation>& compilation = known_[key];
  if (compilation) return compilation;
  compilation = std::make_shared<Compilation>();
  compilation->queue_ = this;
  compilation->key_ = key;
  compilation->request_ = std::move(request);
  compilation->compiler_ = compiler;
  if (is_stopped_) return compilation;
  waiting_.push_back(compilation);
  if (waiting_.size() > static_cast<size_t>(num_idle_)) add_thread();
  has_work_.notify_one();
  return compilation;
}

void CompileQueue::add_thread() {
  for (std::thread& thread : ended_) thread.join();  // they take no lock any more
  ended_.clear();
  if (static_cast<int>(threads_.size()) >= max_threads_) return;
  const SignalsBlocked blocked;  // signals are for the threads that were there before
  try {
    threads_.emplace_back([this] { loop(); });
  } catch (const std::system_error&) {
    // The system gives no thread, so whoever waits compiles.
  }
}

void CompileQueue::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++num_idle_;
    const bool has_some = has_work_.wait_for(
        lock, kPatience, [&] { return is_stopped_ || (!waiting_.empty() && !is_forking_); });
    --num_idle_;
    if (is_stopped_) return;  // stop() joins it
    if (!has_some && waiting_.empty()) break;
    if (!has_some) continue;
    const std::shared_ptr<Compilation> next = std::move(waiting_.front());
    waiting_.pop_front();
    if (next->progress_ == Compilation::Progress::Waiting) run(*next, lock);
  }
  const auto own = std::find_if(threads_.begin(), threads_.end(), [](const std::thread& thread) {
    return thread.get_id() == std::this_thread::get_id();
  });
  ended_.push_back(std::move(*own));
  threads_.erase(own);
}

void CompileQueue::run(Compilation& compilation, std::unique_lock<std::mutex>& lock) {
  compilation.progress_ = Compilation::Progress::Running;
  ++num_running_;
  ++num_own;
  const bool has_ended = has_ended_;
  lock.unlock();
  CompiledCode result = compile(compilation, has_ended);
  lock.lock();
  --num_own;
  --num_running_;
  compilation.result_ = std::move(result);
  compilation.request_ = {};
  compilation.compiler_ = nullptr;
  compilation.progress_ = Compilation::Progress::Over;
  has_changed_.notify_all();
}

CompiledCode CompileQueue::compile(const Compilation& compilation, bool has_ended) {
  if (has_ended) return {CompileState::Unavailable, {}, "the process is about to end", false};
  CompiledCode code;
  try {
    if (std::optional<StoredCode> stored = store_.read(compilation.key_)) {
      return {CompileState::Compiled, std::move(*stored), "", true};
    }
    code = compilation.compiler_(compilation.request_);
    if (code.state == CompileState::Compiled) store_.write(compilation.key_, code.stored);
  } catch (const std::exception& error) {
    return {CompileState::Unavailable, {}, error.what(), false};
  }
  return code;
}

void CompileQueue::stop() {
  std::list<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
    waiting_.clear();
    threads.swap(threads_);
    for (std::thread& thread : ended_) threads.push_back(std::move(thread));
    ended_.clear();
    has_work_.notify_all();
  }
  for (std::thread& thread : threads) thread.join();
}

void CompileQueue::end() {
  stop();
  std::unique_lock lock(mutex_);
  has_ended_ = true;
  has_changed_.wait(lock, [&] { return num_running_ <= num_own; });
}

int CompileQueue::num_threads() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(threads_.size());
}

// The compiler may hold locks of its own, which nothing would give back in the child.
void CompileQueue::before_fork() {
  std::unique_lock lock(mutex_);
  is_forking_ = true;
  has_changed_.wait(lock, [&] { return num_running_ <= num_own; });
  (void)lock.release();  // held while the process forks
}

void CompileQueue::after_fork_in_parent() {
  is_forking_ = false;
  has_work_.notify_all();
  has_changed_.notify_all();
  mutex_.unlock();
}

// The thread that forked is the only one here.
void CompileQueue::after_fork_in_child() {
  (void)new std::list<std::thread>(std::move(threads_));  // neither joined nor destroyed
  (void)new std::vector<std::thread>(std::move(ended_));
  threads_.clear();
  ended_.clear();
  new (&has_work_) std::condition_variable;
  new (&has_changed_) std::condition_variable;
  num_idle_ = 0;
  is_forking_ = false;
  mutex_.unlock();
}

}  // namespace kerascnn
