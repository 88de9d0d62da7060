#include "core/backend/cpu/parallel.h"

#include <sched.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "core/base/env.h"

namespace kerascnn::cpu {

namespace {

// The number of CPUs whose time the container may use, 0 where there is no limit. Reads cgroup
// version 2, then 1.
int quota_threads() {
  double quota = 0;
  double period = 0;
  std::string text;
  if (std::ifstream file("/sys/fs/cgroup/cpu.max"); file >> text >> period) {
    quota = text == "max" ? 0 : std::atof(text.c_str());
  } else {
    std::ifstream quota_file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
    std::ifstream period_file("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
    if (!(quota_file >> quota) || !(period_file >> period)) return 0;
  }
  if (quota <= 0 || period <= 0) return 0;
  return std::max(1, static_cast<int>(std::floor(quota / period + 0.5)));
}

int find_num_threads() {
#ifdef _OPENMP
  const int offered = omp_get_max_threads();
#else
  const int offered = available_cores();
#endif
  // More threads would have no cores, and scratch memory that names the threads has an end.
  constexpr int64_t kMostThreads = ThreadPool::kMostPieces / kPiecesOfThread;
  const auto threads =
      static_cast<int>(std::min(kMostThreads, env_positive("KERASCNN_NUM_THREADS", offered)));
  const int quota = quota_threads();
  return quota > 0 ? std::min(threads, quota) : threads;
}

}  // namespace

int available_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const bool is_known = sched_getaffinity(0, sizeof(allowed), &allowed) == 0;
  const unsigned all = std::thread::hardware_concurrency();
  const int cores = std::max(1, is_known ? CPU_COUNT(&allowed) : static_cast<int>(all));
  const int quota = quota_threads();
  return quota > 0 ? std::min(cores, quota) : cores;
}

int num_threads() {
  static const int threads = find_num_threads();
  return threads;
}

}  // namespace kerascnn::cpu
