// Who moves bytes between the processes that train one model. libkerascnn has nobody of its own: a
// program that loads it brings an engine, as the Python package brings MPI by mpi4py. What is
// computed of the bytes, and in which order, is the kernels' (cpu/all_reduce.cpp). Devices of one
// process are numbered and connected in the same way (local_collectives.h): to kernels each of them
// looks like a process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace kerascnn {

// All processes make the same calls in the same order. They return when the bytes are there, and
// throw where a process does not come. Memory is the host's.
struct Collectives {
  std::string name;  // "MPICH 5.0.2 by mpi4py 4.1.2"
  int64_t rank = 0;  // the number of this process, from 0
  int64_t processes = 1;
  // Block i of `send` goes to process i, and block i of `receive` comes from it.
  std::function<void(const void* send, void* receive, int64_t block_bytes)> exchange;
  // `send` goes to all processes, and block i of `receive` comes from process i.
  std::function<void(const void* send, void* receive, int64_t block_bytes)> gather;
};

// To be called while no kernel runs; null takes them away.
void set_collectives(std::shared_ptr<const Collectives> collectives);

// While it exists, the kernels that this thread plans and runs are one device of several of this
// process, and meet the others by these in place of those that were set.
class CollectivesScope {
 public:
  explicit CollectivesScope(std::shared_ptr<const Collectives> collectives);
  ~CollectivesScope();
  CollectivesScope(const CollectivesScope&) = delete;
  CollectivesScope& operator=(const CollectivesScope&) = delete;

 private:
  std::shared_ptr<const Collectives> before_;
};

// Returns when all devices of this process have come here, where the thread's is one of several.
void meet_devices_of_process();

// Throws DeviceError, which begins with the op's name, where there are none or where they are of
// another number of processes.
std::shared_ptr<const Collectives> collectives_for(std::string_view op, int64_t processes);

}  // namespace kerascnn
