// Other threads compile kernels: once for each request, whatever fails, ends or forks meanwhile.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "check.h"
#include "core/backend/compile_queue.h"
#include "temporary_folder.h"

namespace kerascnn {
namespace {

using testing::TemporaryFolder;

constexpr int64_t kLarge = int64_t{1} << 30;

CompileRequest request(const std::string& source) {
  return {source, "f", {"--fast"}, "compiler 1"};
}

// A compiler that puts the source in brackets, counts its calls, and can be held up.
class FakeCompiler {
 public:
  CompileQueue::Compiler function() {
    return [this](const CompileRequest& asked) { return compile(asked); };
  }
  void hold() {
    const std::lock_guard lock(mutex_);
    is_held_ = true;
  }
  void let_go() {
    const std::lock_guard lock(mutex_);
    is_held_ = false;
    changed_.notify_all();
  }
  // Returns when `count` compilations are held up.
  void wait_for(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return num_held_ >= count; });
  }
  int num_compiled() const { return num_compiled_; }

 private:
  CompiledCode compile(const CompileRequest& asked) {
    {
      std::unique_lock lock(mutex_);
      ++num_held_;
      changed_.notify_all();
      changed_.wait(lock, [&] { return !is_held_; });
      --num_held_;
    }
    ++num_compiled_;
    if (asked.source == "fails") return {CompileState::Refused, {}, "line 1: error", false};
    if (asked.source == "throws") throw std::runtime_error("no compiler here");
    return {CompileState::Compiled, {asked.function, '[' + asked.source + ']'}, "", false};
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_held_ = false;
  int num_held_ = 0;
  std::atomic<int> num_compiled_{0};
};

}  // namespace

TEST(keys_differ_where_anything_does) {
  const CompileRequest base{"source", "f", {"a", "b"}, "compiler"};
  std::vector<CompileRequest> all(8, base);
  all[1].source = "source ";
  all[2].function = "g";
  all[3].options = {"ab"};
  all[4].options = {"a", "b", ""};
  all[5].options = {"b", "a"};
  all[6].compiler = "compiler 2";
  all[7].source = "";
  all[7].function = "fsource";
  std::set<Digest> keys;
  for (const CompileRequest& each : all) keys.insert(key_of(each));
  CHECK_EQUAL(keys.size(), all.size());
  CHECK(key_of(base) == key_of(CompileRequest(base)));
}

TEST(each_request_is_compiled_once) {
  CodeStore store("", 0);
  FakeCompiler compiler;
  CompileQueue queue(store, 3);
  std::vector<std::thread> callers;
  std::atomic<int> num_wrong{0};
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      std::vector<std::shared_ptr<Compilation>> begun;
      for (int i = 0; i < 20; ++i) {
        begun.push_back(queue.start(request(std::to_string(i)), compiler.function()));
      }
      for (int i = 0; i < 20; ++i) {
        if (begun[i]->wait().stored.code != '[' + std::to_string(i) + ']') ++num_wrong;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK_EQUAL(num_wrong.load(), 0);
  CHECK_EQUAL(compiler.num_compiled(), 20);
  CHECK(queue.num_threads() <= 3);
}

// The compiler holds up all compilations until `wait_for` has seen enough of them.
TEST(requests_are_compiled_at_the_same_time) {
  CodeStore store("", 0);
  FakeCompiler compiler;
  compiler.hold();
  CompileQueue queue(store, 4);
  std::vector<std::shared_ptr<Compilation>> begun;
  for (int i = 0; i < 6; ++i) {
    begun.push_back(queue.start(request(std::to_string(i)), compiler.function()));
  }
  compiler.wait_for(4);
  CHECK_EQUAL(queue.num_threads(), 4);
  CHECK_EQUAL(compiler.num_compiled(), 0);
  // Whoever waits for a compilation that no thread has begun compiles it.
  std::thread caller([&] { (void)begun[5]->wait(); });
  compiler.wait_for(5);
  compiler.let_go();
  caller.join();
  for (const auto& each : begun) CHECK(each->wait().state == CompileState::Compiled);
  CHECK_EQUAL(compiler.num_compiled(), 6);
}

TEST(failures_are_states_and_stay) {
  const TemporaryFolder folder;
  CodeStore store(folder.path, kLarge);
  FakeCompiler compiler;
  CompileQueue queue(store, 2);
  for (int i = 0; i < 2; ++i) {
    const CompiledCode& refused = queue.start(request("fails"), compiler.function())->wait();
    CHECK(refused.state == CompileState::Refused);
    CHECK_EQUAL(refused.log, "line 1: error");
    const CompiledCode& missing = queue.start(request("throws"), compiler.function())->wait();
    CHECK(missing.state == CompileState::Unavailable);
    CHECK_EQUAL(missing.log, "no compiler here");
  }
  CHECK_EQUAL(compiler.num_compiled(), 2);
  CHECK_EQUAL(folder.num_files(), 0);
}

TEST(the_next_process_takes_it_from_disk) {
  const TemporaryFolder folder;
  CodeStore store(folder.path, kLarge);
  FakeCompiler compiler;
  for (int process = 0; process < 2; ++process) {
    CompileQueue queue(store, 2);
    const CompiledCode& code = queue.start(request("x"), compiler.function())->wait();
    CHECK_EQUAL(code.stored.code, "[x]");
    CHECK_EQUAL(code.stored.name, "f");
    CHECK_EQUAL(code.is_from_disk, process == 1);
  }
  CHECK_EQUAL(compiler.num_compiled(), 1);
  testing::put_content(folder.file(), "damaged");
  CompileQueue third(store, 2);
  CHECK(!third.start(request("x"), compiler.function())->wait().is_from_disk);
  CompileQueue fourth(store, 2);
  CHECK(fourth.start(request("x"), compiler.function())->wait().is_from_disk);
  CHECK_EQUAL(compiler.num_compiled(), 2);
}

TEST(a_queue_that_was_stopped_compiles_for_whoever_waits) {
  CodeStore store("", 0);
  FakeCompiler compiler;
  compiler.hold();
  CompileQueue queue(store, 1);
  const auto running = queue.start(request("running"), compiler.function());
  const auto waiting = queue.start(request("waiting"), compiler.function());
  compiler.wait_for(1);
  std::thread stopping([&] { queue.stop(); });
  compiler.let_go();
  stopping.join();
  CHECK_EQUAL(queue.num_threads(), 0);
  const auto late = queue.start(request("late"), compiler.function());
  CHECK_EQUAL(queue.num_threads(), 0);
  CHECK_EQUAL(running->wait().stored.code, "[running]");
  CHECK_EQUAL(waiting->wait().stored.code, "[waiting]");
  CHECK_EQUAL(late->wait().stored.code, "[late]");
  queue.stop();
}

TEST(a_queue_that_has_ended_waits_for_all_and_compiles_nothing) {
  CodeStore store("", 0);
  FakeCompiler compiler;
  CompileQueue queue(store, 1);
  const auto early = queue.start(request("early"), compiler.function());
  CHECK_EQUAL(early->wait().stored.code, "[early]");
  queue.stop();
  compiler.hold();
  const auto running = queue.start(request("running"), compiler.function());
  std::thread caller([&] { (void)running->wait(); });
  compiler.wait_for(1);
  std::thread ending([&] { queue.end(); });
  compiler.let_go();
  ending.join();
  CHECK_EQUAL(compiler.num_compiled(), 2);
  caller.join();
  CHECK_EQUAL(running->wait().stored.code, "[running]");
  const CompiledCode& late = queue.start(request("late"), compiler.function())->wait();
  CHECK(late.state == CompileState::Unavailable);
  CHECK_EQUAL(late.log, "the process is about to end");
  CHECK_EQUAL(compiler.num_compiled(), 2);
}

// fork() returns only when no thread compiles; then parent and child both go on with their
// requests. The thread sanitizer knows no threads that a forked child starts, and ends it.
#ifndef __SANITIZE_THREAD__
TEST(processes_fork_while_others_compile) {
  const TemporaryFolder folder;
  CodeStore store(folder.path, kLarge);
  FakeCompiler compiler;
  CompileQueue queue(store, 2);
  for (int round = 0; round < 5; ++round) {
    const auto source = [&](int i) { return std::to_string(round) + "." + std::to_string(i); };
    std::vector<std::shared_ptr<Compilation>> begun;
    for (int i = 0; i < 8; ++i) {
      begun.push_back(queue.start(request(source(i)), compiler.function()));
    }
    const pid_t child = fork();
    bool is_right = true;
    for (int i = 0; i < 8; ++i) {
      is_right = is_right && begun[i]->wait().stored.code == '[' + source(i) + ']';
    }
    const auto later = queue.start(request(source(child == 0 ? 8 : 9)), compiler.function());
    is_right = is_right && later->wait().state == CompileState::Compiled;
    if (child == 0) {
      queue.stop();
      _exit(is_right ? 0 : 1);
    }
    CHECK(is_right);
    int status = 0;
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
}
#endif

TEST(a_fork_waits_for_what_is_being_compiled) {
  CodeStore store("", 0);
  FakeCompiler compiler;
  compiler.hold();
  CompileQueue queue(store, 1);
  const auto begun = queue.start(request("x"), compiler.function());
  compiler.wait_for(1);
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    compiler.let_go();
  });
  const pid_t child = fork();
  if (child == 0) _exit(compiler.num_compiled() == 1 ? 0 : 1);
  later.join();
  int status = 0;
  CHECK_EQUAL(waitpid(child, &status, 0), child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK_EQUAL(begun->wait().stored.code, "[x]");
}

}  // namespace kerascnn
