// Which of several kernels for one call is the fastest on this machine: timed once, when a program
// that has the call is compiled, and kept on disk.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/backend/backend.h"

namespace kerascnn {

struct KernelCandidate {
  std::string name;  // the same in every process
  // Null where it does not take the call.
  std::function<std::unique_ptr<Kernel>()> plan;
};

// Is every number as close to the expected one as this part of the largest? NaN agrees with
// nothing.
bool agree(const std::vector<float>& numbers, const std::vector<float>& expected, double tolerance);

// Plans the first candidate that takes the call; null where none does.
std::unique_ptr<Kernel> first_of(const std::vector<KernelCandidate>& candidates);

struct KernelChoice {
  std::string machine;  // the device, and the versions of all that kernels come from
  std::string call;     // the op, its attributes, dtypes and shapes
  std::string kernel;   // a candidate's name
  std::vector<std::pair<std::string, double>> seconds;  // of a run of each that agrees
  bool is_from_disk = false;
};

class KernelChooser {
 public:
  // The seconds of a run; infinity where the kernel turns out not to work.
  using Timer = std::function<double(Kernel&)>;

  // If `folder` is empty nothing is kept on disk.
  explicit KernelChooser(std::string folder) : folder_(std::move(folder)) {}

  // Returns the kernel that was found to be the fastest, or finds it now. The first candidate stays
  // where no other is clearly faster. Null where none takes the call. What can't be read from disk
  // or written to it counts as missing. Planning a candidate may choose kernels for its parts.
  std::unique_ptr<Kernel> choose(const std::string& machine, const std::string& call,
                                 const std::vector<KernelCandidate>& candidates,
                                 const Timer& timer);

  // The choices are in the order in which they were found.
  std::vector<KernelChoice> choices() const;

 private:
  std::unique_ptr<Kernel> time_all(KernelChoice& choice,
                                   const std::vector<KernelCandidate>& candidates,
                                   const Timer& timer);
  std::string path_of(const KernelChoice& choice) const;
  bool read(KernelChoice& choice) const;
  void write(const KernelChoice& choice) const;

  std::string folder_;
  // One choice is made at a time: kernels are not timed beside others that are.
  mutable std::recursive_mutex mutex_;
  std::vector<KernelChoice> choices_;
  std::unordered_map<std::string, size_t> places_;  // in choices_, by machine and call
};

// The one object of the process; it uses the folder "kernels" of home_folder().
KernelChooser& kernel_chooser();

// A call's name among the choices: op, attributes, specs, whether TF32 is allowed.
std::string call_text(const PlanRequest& request);

}  // namespace kerascnn
