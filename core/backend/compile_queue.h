// Kernels that other threads compile while the caller plans on. Each is compiled once in a process
// and, by way of a CodeStore, once on a machine.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/backend/code_store.h"
#include "core/base/sha256.h"

namespace kerascnn {

// Everything that the code depends on.
struct CompileRequest {
  std::string source;
  std::string function;
  std::vector<std::string> options;
  std::string compiler;  // its name and version
};

// The key is the same in every process, and another one for each other request.
Digest key_of(const CompileRequest& request);

enum class CompileState : uint8_t {
  Compiled,
  Refused,      // by the compiler; the log says why
  Unavailable,  // there is no compiler for this; the log says why
};

struct CompiledCode {
  CompileState state = CompileState::Unavailable;
  StoredCode stored;  // where it compiled
  std::string log;    // the compiler's messages, or why there are none
  bool is_from_disk = false;
};

class CompileQueue;

class Compilation {
 public:
  // Returns when it is over; begins it where no other thread has done so.
  const CompiledCode& wait();
  // For callers that have loaded the code: nothing asks for it any more.
  void forget_code() { result_.stored.code = std::string(); }

 private:
  friend class CompileQueue;
  using Compiler = std::function<CompiledCode(const CompileRequest&)>;
  enum class Progress : uint8_t { Waiting, Running, Over };

  CompileQueue* queue_ = nullptr;
  Digest key_{};
  CompileRequest request_;
  Compiler compiler_;
  Progress progress_ = Progress::Waiting;  // guarded by the queue's mutex
  CompiledCode result_;                    // written by the thread that runs it, until it is over
};

// The threads start with the work, at most `max_threads` of them, and end when there has been none
// for a while. They need no lock of Python's. A process that forks waits until nothing is being
// compiled; its child can use the queue, and starts threads of its own.
class CompileQueue {
 public:
  // Several threads call it at a time. It throws the reason where there is no compiler.
  using Compiler = Compilation::Compiler;

  // The store has to live longer than the queue.
  CompileQueue(CodeStore& store, int max_threads);
  ~CompileQueue();
  CompileQueue(const CompileQueue&) = delete;
  CompileQueue& operator=(const CompileQueue&) = delete;

  // The queue of the process. It has KERASCNN_COMPILE_THREADS threads: by default as many as there
  // are cores, at most 16.
  static CompileQueue& shared();

  // A request that is known already is not compiled again.
  std::shared_ptr<Compilation> start(CompileRequest request, const Compiler& compiler);
  // Ends the threads when they are done with what they have begun. Later requests are compiled by
  // the threads that wait for them.
  void stop();
  // The same, and nothing is compiled any more, since the compiler's library is about to be closed.
  void end();

  int num_threads() const;

 private:
  friend class Compilation;
  friend struct ForkHandlers;

  void add_thread();
  void loop();
  void run(Compilation& compilation, std::unique_lock<std::mutex>& lock);
  CompiledCode compile(const Compilation& compilation, bool has_ended);
  void before_fork();
  void after_fork_in_parent();
  void after_fork_in_child();

  CodeStore& store_;
  const int max_threads_;
  mutable std::mutex mutex_;  // guards all that follows
  std::condition_variable has_work_, has_changed_;
  std::map<Digest, std::shared_ptr<Compilation>> known_;
  std::deque<std::shared_ptr<Compilation>> waiting_;
  std::list<std::thread> threads_;
  std::vector<std::thread> ended_;  // to be joined
  int num_idle_ = 0;
  int num_running_ = 0;
  bool is_forking_ = false;
  bool is_stopped_ = false;
  bool has_ended_ = false;
};

}  // namespace kerascnn
