#include "core/backend/kernel_choice.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/ops/op.h"

namespace kerascnn {
namespace {

// Times vary: a kernel is faster than the first candidate if it takes this part of its time or
// less.
constexpr double kClearly = 0.97;
constexpr const char* kFirstLineOfChoice = "kerascnn kernel choice 1";

// FNV-1a: the same in every process, unlike std::hash.
uint64_t stable_hash(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

std::string key_of(const KernelChoice& choice) { return choice.machine + "\n" + choice.call; }

// A file has one entry for each line.
std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

const KernelCandidate* find(const std::vector<KernelCandidate>& candidates,
                            const std::string& name) {
  const auto found = std::find_if(candidates.begin(), candidates.end(),
                                  [&](const auto& candidate) { return candidate.name == name; });
  return found == candidates.end() ? nullptr : &*found;
}

}  // namespace

bool agree(const std::vector<float>& numbers, const std::vector<float>& expected,
           double tolerance) {
  float largest = 0;
  for (float number : expected) largest = std::max(largest, std::abs(number));
  const float limit = static_cast<float>(tolerance) * largest;
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (!(std::abs(numbers[i] - expected[i]) <= limit)) return false;
  }
  return true;
}

std::unique_ptr<Kernel> first_of(const std::vector<KernelCandidate>& candidates) {
  for (const KernelCandidate& candidate : candidates) {
    if (auto kernel = candidate.plan()) return kernel;
  }
  return nullptr;
}

std::unique_ptr<Kernel> KernelChooser::choose(const std::string& machine, const std::string& call,
                                              const std::vector<KernelCandidate>& candidates,
                                              const Timer& timer) {
  const std::lock_guard lock(mutex_);
  KernelChoice choice{one_line(machine), one_line(call), "", {}, false};
  const auto known = places_.find(key_of(choice));
  if (known != places_.end()) choice = choices_[known->second];
  std::unique_ptr<Kernel> kernel;
  if (known != places_.end() || read(choice)) {
    const KernelCandidate* const candidate = find(candidates, choice.kernel);
    if (candidate != nullptr) kernel = candidate->plan();
  }
  if (kernel == nullptr) {
    choice.seconds.clear();  // of other candidates than these
    choice.is_from_disk = false;
    kernel = time_all(choice, candidates, timer);
    if (kernel == nullptr) return nullptr;
    write(choice);
  }
  const auto [place, is_new] = places_.emplace(key_of(choice), choices_.size());
  if (is_new) choices_.emplace_back();
  choices_[place->second] = std::move(choice);
  return kernel;
}

std::unique_ptr<Kernel> KernelChooser::time_all(KernelChoice& choice,
                                                const std::vector<KernelCandidate>& candidates,
                                                const Timer& timer) {
  std::unique_ptr<Kernel> best;
  double limit = 0;
  for (const KernelCandidate& candidate : candidates) {
    std::unique_ptr<Kernel> kernel;
    try {
      kernel = candidate.plan();
    } catch (const LibraryError&) {
      // The library of this candidate fails; another one may work.
    }
    if (kernel == nullptr) continue;
    const double seconds = timer(*kernel);
    if (!std::isfinite(seconds)) continue;
    choice.seconds.emplace_back(candidate.name, seconds);
    if (best != nullptr && seconds >= limit) continue;
    limit = best == nullptr ? kClearly * seconds : seconds;
    best = std::move(kernel);
    choice.kernel = candidate.name;
  }
  return best;
}

std::vector<KernelChoice> KernelChooser::choices() const {
  const std::lock_guard lock(mutex_);
  return choices_;
}

std::string KernelChooser::path_of(const KernelChoice& choice) const {
  std::ostringstream name;
  name << std::hex << stable_hash(key_of(choice)) << ".txt";
  return (std::filesystem::path(folder_) / name.str()).string();
}

bool KernelChooser::read(KernelChoice& choice) const {
  if (folder_.empty()) return false;
  std::ifstream file(path_of(choice));
  std::string line, machine, call, kernel;
  if (!std::getline(file, line) || line != kFirstLineOfChoice) return false;
  if (!std::getline(file, machine) || !std::getline(file, call) || !std::getline(file, kernel)) {
    return false;
  }
  // Two calls may have one hash.
  if (machine != choice.machine || call != choice.call) return false;
  choice.kernel = kernel;
  double seconds = 0;
  while (file >> seconds && file.get() == ' ' && std::getline(file, line)) {
    choice.seconds.emplace_back(line, seconds);
  }
  choice.is_from_disk = true;
  return true;
}

void KernelChooser::write(const KernelChoice& choice) const {
  if (folder_.empty()) return;
  std::ostringstream text;
  text << kFirstLineOfChoice << '\n'
       << choice.machine << '\n'
       << choice.call << '\n'
       << choice.kernel;
  for (const auto& [kernel, seconds] : choice.seconds) text << '\n' << seconds << ' ' << kernel;
  text << '\n';
  (void)write_file(path_of(choice), text.str());  // the next process times them again
}

KernelChooser& kernel_chooser() {
  // This is never destroyed: programs may be compiled as late as when the process ends.
  static KernelChooser& chooser = *[] {
    const std::string home = home_folder();
    return new KernelChooser(home.empty() ? ""
                                          : (std::filesystem::path(home) / "kernels").string());
  }();
  return chooser;
}

std::string call_text(const PlanRequest& request) {
  std::ostringstream text;
  text << request.op.name << '(' << specs_string(request.inputs) << ") -> "
       << specs_string(request.outputs) << ' ' << request.attributes.key()
       << (request.allow_tf32 ? " tf32" : "");
  return text.str();
}

}  // namespace kerascnn
