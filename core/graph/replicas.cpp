#include "core/graph/replicas.h"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <thread>
#include <utility>

#include "core/backend/gpu_collectives.h"
#include "core/base/error.h"
#include "core/base/signal_stack.h"

namespace kerascnn {
namespace {

// The same error, with the device in front.
[[noreturn]] void rethrow_named(const std::exception_ptr& error, const std::string& device) {
  const auto named = [&](const std::exception& found) { return device + ": " + found.what(); };
  try {
    std::rethrow_exception(error);
  } catch (const OutOfMemoryError& found) {
    throw OutOfMemoryError(named(found), found.requested, found.allocated, found.cached,
                           found.free);
  } catch (const LibraryError& found) {
    throw LibraryError(named(found));
  } catch (const DeviceError& found) {
    throw DeviceError(named(found));
  } catch (const TypeError& found) {
    throw TypeError(named(found));
  } catch (const ValueError& found) {
    throw ValueError(named(found));
  }
}

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& found) {
    return found.what();
  } catch (...) {
    return "an error without a message";
  }
}

// Callers from other languages may pass null.
template <typename T>
void check_present(const std::vector<std::shared_ptr<T>>& objects, const char* what) {
  for (const auto& object : objects) {
    if (object == nullptr) throw ValueError(message("replicas: one of the ", what, " is null"));
  }
}

std::string text_of(const std::vector<TensorSpec>& specs) {
  std::string text;
  for (const TensorSpec& spec : specs) text += (text.empty() ? "" : ", ") + spec_string(spec);
  return text;
}

}  // namespace

Mirror::Mirror(std::vector<VariablePtr> others, bool adds_up)
    : others_(std::move(others)), adds_up_(adds_up) {
  check_present(others_, "variables");
}

void Mirror::refresh(const Variable& first) {
  const uint64_t version = first.value().storage()->version();
  if (is_settled_ && version == version_) return;
  for (const VariablePtr& other : others_) {
    if (adds_up_) {
      other->value().fill_zero();
    } else {
      other->assign(first.value());
    }
  }
  is_settled_ = true;
  version_ = version;
}

void Mirror::settle(const Variable& first) {
  is_settled_ = true;
  version_ = first.value().storage()->version();
}

// A thread that waits for work, which it does one after another.
class Replicas::Worker {
 public:
  // The thread ends after end(), and whoever started it does not wait for that.
  static std::shared_ptr<Worker> start() {
    auto worker = std::make_shared<Worker>();
    const SignalsBlocked blocked;
    std::thread([worker] { worker->loop(); }).detach();
    return worker;
  }

  void begin(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    work_ = std::move(work);
    changed_.notify_all();
  }

  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return work_ == nullptr; });
  }

  void end() {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    changed_.notify_all();
  }

 private:
  void loop() {
    ensure_signal_stack();
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return is_over_ || work_ != nullptr; });
      if (work_ == nullptr) return;
      lock.unlock();
      work_();
      lock.lock();
      work_ = nullptr;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> work_;
  bool is_over_ = false;
};

Replicas::Replicas(const std::vector<Device>& devices, std::vector<std::string> names)
    : devices_(devices),
      names_(std::move(names)),
      meeting_(std::make_shared<LocalMeeting>(size())) {
  if (devices_.empty() || names_.size() != devices_.size()) {
    throw ValueError(message("replicas: expected a name for each of at least one device, received ",
                             devices_.size(), " devices and ", names_.size(), " names"));
  }
  for (int64_t i = 0; i < size(); ++i) seen_.push_back(local_collectives(meeting_, i, size()));
}

Replicas::~Replicas() {
  if (workers_process_ != getpid()) return;
  for (const auto& worker : workers_) worker->end();
}

const std::shared_ptr<const Collectives>& Replicas::seen_from(int64_t replica) const {
  if (replica < 0 || replica >= size()) {
    throw ValueError(message("replicas: there is no number ", replica, " among ", size()));
  }
  return seen_[replica];
}

void Replicas::start_workers() {
  if (workers_process_ == getpid()) return;
  workers_.clear();
  for (int64_t i = 1; i < size(); ++i) workers_.push_back(Worker::start());
  workers_process_ = getpid();
}

void Replicas::run_one(const std::function<void(int64_t)>& work, int64_t replica, bool meets) {
  try {
    const CollectivesScope scope(seen_[replica]);
    work(replica);
    meeting_->leave();
  } catch (...) {
    // What fails after the first device does so because of it.
    if (!meeting_->fail()) return;
    error_ = std::current_exception();
    failed_ = replica;
    if (meets) release_sums(names_[replica] + ": " + text_of(error_));
  }
}

// GPUs meet before they start a run with sums. From then on one of them may wait for ever for the
// one that has failed.
void Replicas::release_sums(const std::string& failure) const {
  if (devices_.front().type != DeviceType::Cuda || !meeting_->has_met()) return;
  gpu_collectives().give_up(failure);
}

void Replicas::run(const std::function<void(int64_t)>& work, bool meets) {
  const std::lock_guard lock(turn_);
  start_workers();
  meeting_->begin();
  for (int64_t i = 1; i < size(); ++i) {
    workers_[i - 1]->begin([this, &work, i, meets] { run_one(work, i, meets); });
  }
  run_one(work, 0, meets);
  for (const auto& worker : workers_) worker->wait();
  if (error_ != nullptr) rethrow_named(std::exchange(error_, nullptr), names_[failed_]);
}

ReplicatedProgram::ReplicatedProgram(std::shared_ptr<Replicas> replicas,
                                     std::vector<std::shared_ptr<Program>> programs,
                                     std::vector<VariablePtr> firsts,
                                     std::vector<std::shared_ptr<Mirror>> mirrors)
    : replicas_(std::move(replicas)),
      programs_(std::move(programs)),
      firsts_(std::move(firsts)),
      mirrors_(std::move(mirrors)) {
  check_present<Replicas>({replicas_}, "groups");
  check_present(programs_, "programs");
  check_present(firsts_, "variables");
  check_present(mirrors_, "mirrors");
  if (programs_.size() != static_cast<size_t>(replicas_->size()) ||
      firsts_.size() != mirrors_.size()) {
    throw ValueError(message("replicas: ", programs_.size(), " programs for ", replicas_->size(),
                             " devices, ", mirrors_.size(), " mirrors of ", firsts_.size(),
                             " variables"));
  }
  check_sums();
}

// A device that comes to a sum to which no other one comes would wait for ever.
void ReplicatedProgram::check_sums() {
  const auto expected = programs_.front()->meetings();
  meets_ = !expected.empty();
  for (const auto& program : programs_) {
    const auto found = program->meetings();
    if (found == expected) continue;
    size_t i = 0;
    while (i < std::min(found.size(), expected.size()) && found[i] == expected[i]) ++i;
    const auto sum = [i](const auto& sums) {
      return i < sums.size() ? text_of(sums[i]) : std::string("none");
    };
    throw ValueError(message(
        "The devices have to sum the same, but sum ", i, " of the step is of ", sum(expected),
        " on ", device_name(programs_.front()->device()), " and of ", sum(found), " on ",
        device_name(program->device()),
        "; what a step computes must not depend on anything but its batch and the weights"));
  }
}

void ReplicatedProgram::run(const std::vector<std::vector<Tensor>>& inputs, int64_t steps) {
  if (inputs.size() != programs_.size()) {
    throw ValueError(
        message("replicas: inputs for ", inputs.size(), " programs, expected ", programs_.size()));
  }
  for (size_t i = 0; i < mirrors_.size(); ++i) mirrors_[i]->refresh(*firsts_[i]);
  try {
    replicas_->run([&](int64_t i) { programs_[i]->run(inputs[i], steps); }, meets_);
  } catch (...) {
    // Some devices may have gone on where others have not.
    for (const auto& mirror : mirrors_) mirror->forget();
    throw;
  }
  for (size_t i = 0; i < mirrors_.size(); ++i) mirrors_[i]->settle(*firsts_[i]);
}

}  // namespace kerascnn
