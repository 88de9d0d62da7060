// Devices of one process meet in threads of their own.
#include "core/graph/replicas.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "core/base/error.h"

namespace kerascnn {
namespace {

std::unique_ptr<Replicas> cpus(size_t count) {
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i) names.push_back("cpu:" + std::to_string(i));
  return std::make_unique<Replicas>(std::vector<Device>(count), names);
}

int64_t sum_over(int64_t own) {
  const auto collectives = collectives_for("test", 3);
  std::vector<int64_t> all(3);
  collectives->gather(&own, all.data(), sizeof(own));
  return all[0] + all[1] + all[2];
}

std::string failure_of(Replicas& replicas, const std::function<void(int64_t)>& work) {
  try {
    replicas.run(work, true);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(devices_gather) {
  const auto replicas = cpus(3);
  for (int64_t turn = 0; turn < 200; ++turn) {
    std::vector<int64_t> sums(3);
    replicas->run([&](int64_t i) { sums[i] = sum_over(sum_over(i + turn)); }, true);
    CHECK(sums == std::vector<int64_t>(3, 9 * (1 + turn)));
  }
}

TEST(devices_exchange) {
  const auto replicas = cpus(3);
  std::vector<std::vector<int64_t>> received(3, std::vector<int64_t>(3));
  replicas->run(
      [&](int64_t i) {
        const std::vector<int64_t> sent = {10 * i, 10 * i + 1, 10 * i + 2};
        collectives_for("test", 3)->exchange(sent.data(), received[i].data(), sizeof(int64_t));
      },
      true);
  for (int64_t i = 0; i < 3; ++i) CHECK(received[i] == (std::vector<int64_t>{i, 10 + i, 20 + i}));
}

TEST(an_error_of_one_device_is_that_of_all) {
  const auto replicas = cpus(3);
  for (int64_t place = 0; place < 3; ++place) {
    const std::string failure = failure_of(*replicas, [&](int64_t i) {
      if (i == place) throw ValueError("no");
      sum_over(i);
    });
    CHECK_EQUAL(failure, "cpu:" + std::to_string(place) + ": no");
    CHECK_EQUAL(failure_of(*replicas, [](int64_t i) { sum_over(i); }), "");  // they go on
  }
}

TEST(the_kind_of_an_error_is_kept) {
  const auto replicas = cpus(2);
  const auto throws = [](int64_t i) {
    if (i == 1) throw OutOfMemoryError("none left", 5, 4, 3, 2);
  };
  try {
    replicas->run(throws, true);
    CHECK(false);
  } catch (const OutOfMemoryError& error) {
    CHECK_EQUAL(std::string(error.what()), "cpu:1: none left");
    CHECK_EQUAL(error.requested, 5);
    CHECK_EQUAL(error.free, 2);
  }
}

TEST(a_device_that_is_done_is_not_waited_for) {
  const auto replicas = cpus(3);
  for (int64_t place = 0; place < 3; ++place) {
    const std::string failure = failure_of(*replicas, [&](int64_t i) {
      sum_over(i);
      if (i != place) sum_over(i);
    });
    CHECK(failure.find("another device is done, though this one has a sum left") !=
          std::string::npos);
  }
}

TEST(outside_of_a_run_there_are_no_other_devices) {
  const auto replicas = cpus(2);
  replicas->run([](int64_t) { CHECK(collectives_for("test", 2) != nullptr); }, true);
  CHECK(collectives_for("test", 1) == nullptr);
  const CollectivesScope scope(replicas->seen_from(1));
  CHECK_EQUAL(collectives_for("test", 2)->rank, 1);
}

TEST(callers_take_turns) {
  const auto replicas = cpus(3);
  std::atomic<int64_t> wrong{0};
  const auto train = [&](int64_t number) {
    for (int64_t turn = 0; turn < 100; ++turn) {
      replicas->run(
          [&](int64_t) {
            if (sum_over(number) != 3 * number) ++wrong;
          },
          true);
    }
  };
  std::thread other(train, 7);
  train(1);
  other.join();
  CHECK_EQUAL(wrong.load(), 0);
}

#ifndef __SANITIZE_THREAD__  // which knows no threads that a forked child starts
TEST(a_forked_child_has_threads_of_its_own) {
  const auto replicas = cpus(3);
  const auto sums_right = [&] {
    std::atomic<int64_t> right{0};
    replicas->run([&](int64_t i) { right += sum_over(i) == 3 ? 1 : 0; }, true);
    return right.load() == 3;
  };
  CHECK(sums_right());
  const pid_t child = fork();
  if (child == 0) _exit(sums_right() ? 0 : 1);
  int status = 0;
  CHECK_EQUAL(waitpid(child, &status, 0), child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK(sums_right());
}
#endif

}  // namespace
}  // namespace kerascnn
