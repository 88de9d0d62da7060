// The pool of threads: who runs which piece is a matter of time, that each runs once is not.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "core/backend/cpu/parallel.h"
#include "core/backend/cpu/thread_pool.h"

using kerascnn::cpu::ThreadPool;

namespace {

template <typename Body>
void run(ThreadPool& pool, int64_t pieces, const Body& body) {
  pool.run(
      pieces,
      [](const void* context, int64_t piece, int64_t thread) {
        (*static_cast<const Body*>(context))(piece, thread);
      },
      &body);
}

// The sum of [0, count) from a call in pieces.
int64_t sum_of(ThreadPool& pool, int64_t count) {
  std::vector<int64_t> found(static_cast<size_t>(count), -1);
  run(pool, count, [&](int64_t piece, int64_t) { found[static_cast<size_t>(piece)] = piece; });
  return std::accumulate(found.begin(), found.end(), int64_t{0});
}

}  // namespace

TEST(each_piece_runs_once) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    for (const int64_t pieces : {0, 1, 2, 3, 7, 64, 1000, 65535}) {
      std::vector<std::atomic<int>> runs(static_cast<size_t>(pieces));
      for (int repeat = 0; repeat < 5; ++repeat) {
        run(pool, pieces, [&](int64_t piece, int64_t) { ++runs[static_cast<size_t>(piece)]; });
      }
      CHECK(std::all_of(runs.begin(), runs.end(), [](const auto& count) { return count == 5; }));
    }
  }
}

TEST(short_calls_follow_one_another) {
  ThreadPool pool(4);
  int64_t plain = 0;  // written by one piece of each call: the calls must not overlap
  for (int64_t call = 0; call < 20000; ++call) {
    run(pool, 1 + call % 9, [&](int64_t piece, int64_t) {
      if (piece == call % (1 + call % 9)) plain += 1;
    });
  }
  CHECK_EQUAL(plain, 20000);
}

TEST(threads_at_the_same_time_differ) {
  ThreadPool pool(4);
  std::vector<std::atomic<int>> inside(4);
  std::atomic<int> clashes{0};
  for (int call = 0; call < 100; ++call) {
    run(pool, 64, [&](int64_t, int64_t thread) {
      if (inside.at(static_cast<size_t>(thread))++ != 0) ++clashes;
      std::this_thread::yield();
      --inside.at(static_cast<size_t>(thread));
    });
  }
  CHECK_EQUAL(clashes.load(), 0);
}

TEST(other_threads_help) {
  // The caller's first piece waits for a piece that only another thread can run.
  ThreadPool pool(2);
  std::atomic<bool> has_helped{false};
  run(pool, 2, [&](int64_t piece, int64_t) {
    if (piece == 0) {
      has_helped.wait(false);
    } else {
      has_helped = true;
      has_helped.notify_all();
    }
  });
  CHECK(has_helped.load());
}

TEST(first_exception_in_order_is_thrown_after_all_pieces) {
  for (const int threads : {2, 4}) {
    ThreadPool pool(threads);
    std::atomic<int> ended{0};
    std::string text;
    try {
      run(pool, 50, [&](int64_t piece, int64_t) {
        ++ended;
        if (piece % 10 == 7) throw std::runtime_error(std::to_string(piece));
      });
    } catch (const std::runtime_error& error) {
      text = error.what();
    }
    CHECK_EQUAL(text, "7");
    CHECK_EQUAL(ended.load(), 50);
    CHECK_EQUAL(sum_of(pool, 100), 4950);  // and the pool goes on
  }
}

TEST(work_of_a_piece_is_done_by_its_thread) {
  ThreadPool pool(3);
  std::vector<int64_t> sums(20);
  run(pool, 20,
      [&](int64_t piece, int64_t) { sums[static_cast<size_t>(piece)] = sum_of(pool, 50); });
  CHECK(std::all_of(sums.begin(), sums.end(), [](int64_t sum) { return sum == 1225; }));
}

TEST(callers_at_the_same_time_all_finish) {
  ThreadPool pool(3);
  std::vector<int64_t> sums(4);
  std::vector<std::thread> callers;
  for (size_t i = 0; i < sums.size(); ++i) {
    callers.emplace_back([&, i] {
      for (int call = 0; call < 500; ++call) sums[i] += sum_of(pool, 40);
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK(std::all_of(sums.begin(), sums.end(), [](int64_t sum) { return sum == 500 * 780; }));
}

TEST(a_forked_child_has_threads_of_its_own) {
  const auto sum = [] {
    std::vector<int64_t> squares(100);
    kerascnn::cpu::run_pieces(
        100, [&](int64_t piece, int64_t) { squares[static_cast<size_t>(piece)] = piece * piece; });
    return std::accumulate(squares.begin(), squares.end(), int64_t{0});
  };
  CHECK_EQUAL(sum(), 328350);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // a child that waits for the parent's threads ends by this
    _exit(sum() == 328350 ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK_EQUAL(status, 0);
  CHECK_EQUAL(sum(), 328350);
}
