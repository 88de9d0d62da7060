// Runs are collected until somebody looks at their results.
#include <atomic>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <thread>

#include "check.h"
#include "core/backend/later_runs.h"

namespace kerascnn {
namespace {

// A device that does nothing by itself: a run is on it from its start until `end_one`.
struct FakeDevice {
  std::vector<std::pair<int, int64_t>> started;  // pairs of executor and steps
  int64_t ended = 0;                             // number of runs

  void end_one() { ++ended; }
};

class FakeFence : public Fence {
 public:
  explicit FakeFence(FakeDevice& device) : device_(device) {}
  void record() override { behind_ = static_cast<int64_t>(device_.started.size()); }
  bool passed() override { return device_.ended >= behind_; }
  void wait() override {}

 private:
  FakeDevice& device_;
  int64_t behind_ = 0;
};

class FakeExecutor : public Executor {
 public:
  FakeExecutor(FakeDevice& device, int name) : device_(device), name_(name) {}
  void run(int64_t steps) override {
    if (asks_for_flush != nullptr) asks_for_flush->flush();  // taking the stream flushes too
    if (while_it_runs) while_it_runs();
    if (fails) throw std::runtime_error("no");
    device_.started.emplace_back(name_, steps);
  }

  LaterRuns* asks_for_flush = nullptr;
  std::function<void()> while_it_runs;
  bool fails = false;

 private:
  FakeDevice& device_;
  int name_;
};

struct Setting {
  FakeDevice device;
  LaterRuns runs{std::make_unique<FakeFence>(device), std::make_unique<FakeFence>(device)};
  FakeExecutor first{device, 1}, second{device, 2};

  int64_t steps() const {
    int64_t sum = 0;
    for (const auto& [name, count] : device.started) sum += count;
    return sum;
  }
};

using Started = std::vector<std::pair<int, int64_t>>;

}  // namespace

TEST(steps_start_at_once_until_the_device_has_a_run_ahead) {
  Setting s;
  for (int i = 0; i < 5; ++i) s.runs.add(s.first, 1);
  CHECK((s.device.started == Started{{1, 1}, {1, 1}}));
  s.device.end_one();
  s.runs.add(s.first, 1);  // four steps wait
  CHECK((s.device.started == Started{{1, 1}, {1, 1}, {1, 4}}));
  s.runs.flush();
  CHECK_EQUAL(s.steps(), 6);
}

TEST(powers_of_two_start_and_the_rest_waits_on) {
  Setting s;
  for (int i = 0; i < 8; ++i) s.runs.add(s.first, 1);  // six steps wait
  s.device.end_one();
  s.runs.add(s.first, 1);
  CHECK((s.device.started == Started{{1, 1}, {1, 1}, {1, 4}}));
  s.runs.flush();
  CHECK((s.device.started == Started{{1, 1}, {1, 1}, {1, 4}, {1, 3}}));
  s.runs.flush();
  CHECK_EQUAL(s.device.started.size(), 4u);
}

TEST(a_long_run_is_not_followed_by_a_short_one_while_it_runs) {
  Setting s;
  s.runs.add(s.first, 8);
  s.runs.add(s.first, 8);
  CHECK_EQUAL(s.device.started.size(), 2u);
  s.device.end_one();
  for (int i = 0; i < 7; ++i) s.runs.add(s.first, 1);
  CHECK_EQUAL(s.device.started.size(), 2u);  // the device is busy with eight steps
  s.runs.add(s.first, 1);
  CHECK((s.device.started.back() == std::pair<int, int64_t>{1, 8}));
  s.runs.add(s.first, 1);
  s.device.end_one();
  s.device.end_one();
  s.runs.add(s.first, 1);  // the device is idle, so the waiting steps start
  CHECK((s.device.started.back() == std::pair<int, int64_t>{1, 2}));
}

TEST(not_too_many_wait) {
  Setting s;
  for (int i = 0; i < 100; ++i) s.runs.add(s.first, 1);
  CHECK_EQUAL(s.device.started[2].second, 16);
  CHECK(100 - s.steps() < 16);
}

TEST(runs_of_several_steps_and_of_two_programs_keep_their_order) {
  Setting s;
  for (int i = 0; i < 3; ++i) s.runs.add(s.first, 2);
  s.runs.add(s.second, 1);
  s.runs.add(s.second, 1);
  s.runs.add(s.first, 1);
  s.runs.flush();
  CHECK((s.device.started == Started{{1, 2}, {1, 2}, {1, 2}, {2, 2}, {1, 1}}));
}

TEST(nothing_waits_once_it_is_stopped) {
  Setting s;
  for (int i = 0; i < 4; ++i) s.runs.add(s.first, 1);
  s.runs.stop();
  CHECK_EQUAL(s.steps(), 4);
  s.runs.add(s.first, 1);
  CHECK_EQUAL(s.steps(), 5);
}

TEST(a_run_may_ask_for_a_flush_itself) {
  Setting s;
  s.first.asks_for_flush = &s.runs;
  for (int i = 0; i < 40; ++i) s.runs.add(s.first, 1);
  s.runs.flush();
  CHECK_EQUAL(s.steps(), 40);
}

TEST(whoever_flushes_finds_what_another_thread_starts) {
  Setting s;
  std::atomic<bool> is_starting = false, may_end = false, has_flushed = false;
  s.first.while_it_runs = [&] {
    is_starting = true;
    while (!may_end) std::this_thread::yield();
  };
  std::thread starting([&] { s.runs.add(s.first, 1); });
  while (!is_starting) std::this_thread::yield();
  std::thread flushing([&] {
    s.runs.flush();
    has_flushed = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const bool was_early = has_flushed;
  may_end = true;
  starting.join();
  flushing.join();
  CHECK(!was_early);
  CHECK_EQUAL(s.steps(), 1);
}

TEST(a_failure_is_told_to_whoever_can_report_it) {
  Setting s;
  for (int i = 0; i < 4; ++i) s.runs.add(s.first, 1);
  s.first.fails = true;
  s.runs.flush_quietly();
  s.runs.flush_quietly();
  s.first.fails = false;
  CHECK_THROWS(std::runtime_error, "no", s.runs.flush());
  s.runs.flush();
  CHECK_EQUAL(s.steps(), 2);  // the steps that waited were given up

  for (int i = 0; i < 4; ++i) s.runs.add(s.first, 1);
  s.first.fails = true;
  s.runs.stop();
  s.first.fails = false;
  CHECK_THROWS(std::runtime_error, "no", s.runs.add(s.second, 1));
  s.runs.add(s.second, 1);
  CHECK((s.device.started.back() == std::pair<int, int64_t>{2, 1}));
}

TEST(steps_that_failed_to_start_are_not_started_again) {
  Setting s;
  s.first.fails = true;
  bool failed = false;
  try {
    s.runs.add(s.first, 1);
  } catch (const std::runtime_error&) {
    failed = true;
  }
  CHECK(failed);
  s.first.fails = false;
  s.runs.flush();
  CHECK(s.device.started.empty());
  s.runs.add(s.first, 1);
  CHECK_EQUAL(s.steps(), 1);
}

}  // namespace kerascnn
