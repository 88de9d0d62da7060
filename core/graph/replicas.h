// One step on several devices of this process. Each has a program of its own over variables of its
// own, which are those of the first device or stand for them, and the programs meet where they sum
// (all_reduce).
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/backend/local_collectives.h"
#include "core/graph/program.h"
#include "core/tensor/variable.h"

namespace kerascnn {

// What stands on the other devices for a variable of the first one. It follows what is assigned
// there, but not what a step writes, which each device does by itself.
class Mirror {
 public:
  // With `adds_up` the values of all devices are parts of a sum, as those of metrics are: what is
  // assigned to the first one is all of it, and the others get zeros.
  Mirror(std::vector<VariablePtr> others, bool adds_up);

  const std::vector<VariablePtr>& others() const { return others_; }
  // Brings them up to date where `first` was written to since settle().
  void refresh(const Variable& first);
  // All devices hold now what they are to hold.
  void settle(const Variable& first);
  // The next refresh() writes in any case.
  void forget() { is_settled_ = false; }

 private:
  const std::vector<VariablePtr> others_;
  const bool adds_up_;
  bool is_settled_ = false;
  uint64_t version_ = 0;
};

// The devices: who they are to kernels, and a thread for each but the first, in which it works
// while the calling thread does the first one's work.
class Replicas {
 public:
  // `names` are for errors.
  Replicas(const std::vector<Device>& devices, std::vector<std::string> names);
  ~Replicas();
  Replicas(const Replicas&) = delete;
  Replicas& operator=(const Replicas&) = delete;

  int64_t size() const { return static_cast<int64_t>(devices_.size()); }
  const std::shared_ptr<const Collectives>& seen_from(int64_t replica) const;
  // Calls work(i) for each device at the same time, and returns when all calls have ended. Where
  // one throws, those that wait for it in a sum, if there are any (`meets`), are released, and its
  // error is thrown with the name of its device. Callers take turns.
  void run(const std::function<void(int64_t)>& work, bool meets);

 private:
  class Worker;

  void start_workers();
  void run_one(const std::function<void(int64_t)>& work, int64_t replica, bool meets);
  void release_sums(const std::string& failure) const;

  const std::vector<Device> devices_;
  const std::vector<std::string> names_;
  const std::shared_ptr<LocalMeeting> meeting_;
  std::vector<std::shared_ptr<const Collectives>> seen_;
  std::mutex turn_;
  std::exception_ptr error_;  // of the first that failed
  int64_t failed_ = 0;
  std::vector<std::shared_ptr<Worker>> workers_;
  int workers_process_ = 0;  // a fork has no threads
};

class ReplicatedProgram {
 public:
  // `programs` has one for each device. `firsts` are the variables of the first one's that have a
  // mirror, and `mirrors` these. Throws ValueError where the programs don't sum the same.
  ReplicatedProgram(std::shared_ptr<Replicas> replicas,
                    std::vector<std::shared_ptr<Program>> programs, std::vector<VariablePtr> firsts,
                    std::vector<std::shared_ptr<Mirror>> mirrors);

  // Runs all programs with their inputs, as Program::run does.
  void run(const std::vector<std::vector<Tensor>>& inputs, int64_t steps);

 private:
  void check_sums();

  const std::shared_ptr<Replicas> replicas_;
  const std::vector<std::shared_ptr<Program>> programs_;
  const std::vector<VariablePtr> firsts_;
  const std::vector<std::shared_ptr<Mirror>> mirrors_;
  bool meets_ = false;  // do the programs sum anything?
};

}  // namespace kerascnn
