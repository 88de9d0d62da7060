// The chooser finds the fastest of several kernels and remembers it in memory and on disk.
#include <filesystem>
#include <fstream>
#include <limits>

#include "check.h"
#include "core/backend/kernel_choice.h"
#include "core/base/error.h"
#include "temporary_folder.h"

namespace kerascnn {
namespace {

class TimedKernel : public Kernel {
 public:
  TimedKernel(std::string name, double seconds) : name_(std::move(name)), seconds_(seconds) {}
  void run(const KernelArgs&) override {}
  std::string description() const override { return name_; }
  double seconds() const { return seconds_; }

 private:
  std::string name_;
  double seconds_;
};

KernelCandidate candidate(const std::string& name, double seconds) {
  return {name, [=] { return std::make_unique<TimedKernel>(name, seconds); }};
}

KernelCandidate refusing(const std::string& name) {
  return {name, [] { return std::unique_ptr<Kernel>(); }};
}

using Folder = testing::TemporaryFolder;

// This stands for a process, which forgets what it has in memory when it ends.
struct Process {
  explicit Process(const std::string& folder) : chooser(folder) {}
  std::string choose(const std::vector<KernelCandidate>& candidates,
                     const std::string& call = "f(x)", const std::string& machine = "m 1") {
    const auto kernel = chooser.choose(machine, call, candidates, [&](Kernel& timed) {
      ++num_timed;
      return static_cast<TimedKernel&>(timed).seconds();
    });
    return kernel == nullptr ? "none" : kernel->description();
  }

  KernelChooser chooser;
  int num_timed = 0;
};

const std::vector<KernelCandidate> kThree = {candidate("a", 1.0), candidate("b", 0.5),
                                             candidate("c", 0.7)};

}  // namespace

TEST(the_fastest_is_taken_and_remembered) {
  Process process("");
  CHECK_EQUAL(process.choose(kThree), "b");
  CHECK_EQUAL(process.num_timed, 3);
  CHECK_EQUAL(process.choose(kThree), "b");
  CHECK_EQUAL(process.num_timed, 3);
  CHECK_EQUAL(process.choose(kThree, "g(x)"), "b");  // the call is another one
  CHECK_EQUAL(process.choose(kThree, "f(x)", "m 2"), "b");
  CHECK_EQUAL(process.num_timed, 9);
  const auto choices = process.chooser.choices();
  CHECK_EQUAL(choices.size(), 3u);
  CHECK_EQUAL(choices[0].kernel, "b");
  CHECK_EQUAL(choices[0].seconds.size(), 3u);
  CHECK(!choices[0].is_from_disk);
}

TEST(the_first_stays_where_no_other_is_clearly_faster) {
  Process process("");
  CHECK_EQUAL(process.choose({candidate("a", 1.0), candidate("b", 0.98)}), "a");
  CHECK_EQUAL(
      process.choose({candidate("a", 1.0), candidate("b", 0.96), candidate("c", 0.95)}, "g(x)"),
      "c");
}

TEST(what_takes_no_call_is_left_out) {
  Process process("");
  CHECK_EQUAL(process.choose({refusing("a"), candidate("b", 2.0), candidate("c", 3.0)}), "b");
  CHECK_EQUAL(process.choose({refusing("a")}, "g(x)"), "none");
  CHECK_EQUAL(process.choose({}, "h(x)"), "none");
  CHECK_EQUAL(process.chooser.choices().size(), 1u);
}

TEST(what_fails_is_no_choice) {
  const double infinity = std::numeric_limits<double>::infinity();
  Process process("");
  CHECK_EQUAL(process.choose({candidate("a", infinity), candidate("b", 2.0)}), "b");
  CHECK_EQUAL(process.chooser.choices().front().seconds.size(), 1u);
  CHECK_EQUAL(process.choose({candidate("a", infinity)}, "g(x)"), "none");
}

TEST(a_kernel_of_several_chooses_its_parts) {
  Process process("");
  const KernelCandidate composite{"parts", [&] {
                                    CHECK_EQUAL(process.choose(kThree, "part(x)"), "b");
                                    return std::make_unique<TimedKernel>("parts", 0.1);
                                  }};
  CHECK_EQUAL(process.choose({candidate("whole", 1.0), composite}), "parts");
  CHECK_EQUAL(process.choose({candidate("whole", 1.0), composite}), "parts");
  CHECK_EQUAL(process.chooser.choices().size(), 2u);
  CHECK_EQUAL(process.num_timed, 5);
}

TEST(a_library_that_fails_is_no_choice) {
  const KernelCandidate failing{
      "a", []() -> std::unique_ptr<Kernel> { throw LibraryError("a: not today"); }};
  Process process("");
  CHECK_EQUAL(process.choose({failing, candidate("b", 2.0)}), "b");
  CHECK_EQUAL(process.choose({failing}, "g(x)"), "none");
}

TEST(numbers_agree_up_to_a_part_of_the_largest) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> expected = {-4, 1, 0};
  CHECK(agree(expected, expected, 0));
  CHECK(agree({-4, 1.5, 0.5}, expected, 0.125));
  CHECK(!agree({-4, 1.75, 0}, expected, 0.125));
  CHECK(!agree({-4, 1, -0.75}, expected, 0.125));
  CHECK(!agree({nan, 1, 0}, expected, 0.125));
  CHECK(!agree({-4, nan, 0}, {-4, nan, 0}, 0.125));
  CHECK(agree({}, {}, 0));
}

TEST(another_process_reads_it_from_disk) {
  const Folder folder;
  Process first(folder.path), second(folder.path);
  CHECK_EQUAL(first.choose(kThree), "b");
  CHECK_EQUAL(second.choose(kThree), "b");
  CHECK_EQUAL(second.num_timed, 0);
  const KernelChoice choice = second.chooser.choices().front();
  CHECK(choice.is_from_disk);
  CHECK(choice.seconds == first.chooser.choices().front().seconds);
  CHECK_EQUAL(second.choose(kThree, "f(x)", "m 2"), "b");
  CHECK_EQUAL(second.num_timed, 3);  // the machine is another one
}

TEST(a_choice_that_is_no_candidate_any_more_is_made_anew) {
  const Folder folder;
  CHECK_EQUAL(Process(folder.path).choose(kThree), "b");
  CHECK_EQUAL(Process(folder.path).choose({candidate("a", 1.0), candidate("d", 0.1)}), "d");
  CHECK_EQUAL(Process(folder.path).choose({candidate("a", 1.0), refusing("d")}), "a");
  Process last(folder.path);
  CHECK_EQUAL(last.choose({candidate("a", 1.0), candidate("d", 0.1)}), "a");
  CHECK_EQUAL(last.num_timed, 0);
}

TEST(damaged_files_and_folders_are_as_if_not_there) {
  const Folder folder;
  CHECK_EQUAL(Process(folder.path).choose(kThree), "b");
  std::string whole;
  {
    std::ifstream file(folder.file());
    whole.assign(std::istreambuf_iterator<char>(file), {});
  }
  for (size_t length = 0; length < whole.size(); length += 3) {
    std::ofstream(folder.file(), std::ios::trunc) << whole.substr(0, length);
    CHECK_EQUAL(Process(folder.path).choose(kThree), "b");
  }
  for (const char* text : {"", "\n\n\n\n", "kerascnn kernel choice 2\nm 1\nf(x)\na\n",
                           "kerascnn kernel choice 1\nm 1\ng(x)\na\n"}) {
    std::ofstream(folder.file(), std::ios::trunc) << text;
    CHECK_EQUAL(Process(folder.path).choose(kThree), "b");
  }
  CHECK_EQUAL(std::distance(std::filesystem::directory_iterator(folder.path), {}), 1);
  CHECK_EQUAL(Process("/dev/null/nowhere").choose(kThree), "b");
}

}  // namespace kerascnn
