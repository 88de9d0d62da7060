// The store keeps compiled kernels on disk. A kernel is there as a whole or not at all, many
// threads and processes may use the store at once, and its size is bounded.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>
#include <vector>

#include "check.h"
#include "core/backend/code_store.h"
#include "temporary_folder.h"

namespace kerascnn {
namespace {

namespace fs = std::filesystem;
using testing::content_of;
using testing::put_content;
using testing::TemporaryFolder;

constexpr int64_t kLarge = int64_t{1} << 30;

Digest key(int number) { return sha256(std::to_string(number)); }

StoredCode code(int number, size_t bytes = 1000) {
  return {"kernel_" + std::to_string(number), std::string(bytes, static_cast<char>(number))};
}

bool is_code(const std::optional<StoredCode>& found, const StoredCode& expected) {
  return found && found->name == expected.name && found->code == expected.code;
}

fs::path path_of(const TemporaryFolder& folder, const Digest& of) {
  return fs::path(folder.path) / (hex(of) + ".kernel");
}

void set_age(const fs::path& path, int hours) {
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(hours));
}

// Runs the function in a copy of this process, whose exit status says whether it returned true.
template <typename Function>
pid_t begin_process(const Function& function) {
  const pid_t child = fork();
  if (child != 0) return child;
  bool is_right = false;
  try {
    is_right = function();
  } catch (...) {
  }
  _exit(is_right ? 0 : 1);
}

bool ends_well(pid_t child) {
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

TEST(what_was_written_is_read_by_the_next_process) {
  const TemporaryFolder folder;
  const std::string below = folder.path + "/a/b";  // this folder is made by the first write
  CodeStore first(below, kLarge);
  CHECK(!first.read(key(1)));
  CHECK(!fs::exists(below));
  const StoredCode binary{"_Z3addPf", std::string("\0\xff\n\r\0", 5)};
  first.write(key(1), binary);
  first.write(key(2), {"", ""});
  CodeStore second(below, kLarge);
  CHECK(is_code(second.read(key(1)), binary));
  CHECK(is_code(second.read(key(2)), {"", ""}));
  CHECK(!second.read(key(3)));
  second.write(key(1), code(5));
  CHECK(is_code(first.read(key(1)), code(5)));
  const CodeStore::State state = second.state();
  CHECK_EQUAL(state.folder, below);
  CHECK_EQUAL(state.num_kernels, 2);
  CHECK_EQUAL(state.bytes,
              static_cast<int64_t>(fs::file_size(fs::path(below) / (hex(key(1)) + ".kernel")) +
                                   fs::file_size(fs::path(below) / (hex(key(2)) + ".kernel"))));
  CHECK_EQUAL(state.problem, "");
}

TEST(each_damaged_byte_is_noticed) {
  const TemporaryFolder folder;
  CodeStore store(folder.path, kLarge);
  store.write(key(1), code(1, 40));
  const fs::path path = path_of(folder, key(1));
  const std::string whole = content_of(path);
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ (1 << (i % 8)));
    put_content(path, damaged);
    CHECK(!store.read(key(1)));
  }
  for (size_t length = 0; length < whole.size(); ++length) {
    put_content(path, whole.substr(0, length));
    CHECK(!store.read(key(1)));
  }
  put_content(path, whole + '\0');
  CHECK(!store.read(key(1)));
  store.write(key(1), code(2));  // the new code takes the place of the old one
  CHECK(is_code(store.read(key(1)), code(2)));
}

TEST(a_whole_file_under_another_name_is_not_taken) {
  const TemporaryFolder folder;
  CodeStore store(folder.path, kLarge);
  store.write(key(1), code(1));
  fs::copy_file(path_of(folder, key(1)), path_of(folder, key(2)));
  CHECK(!store.read(key(2)));
  CHECK(is_code(store.read(key(1)), code(1)));
}

TEST(what_was_not_used_for_longest_goes) {
  const TemporaryFolder folder;
  CodeStore store(folder.path, 10500);
  for (int i = 0; i < 8; ++i) {
    store.write(key(i), code(i));
    set_age(path_of(folder, key(i)), 20 - i);
  }
  // Reading the oldest kernel makes it the one that was used last.
  CHECK(is_code(store.read(key(0)), code(0)));
  put_content(fs::path(folder.path) / "somebody's.txt", std::string(50000, 'x'));
  CodeStore other(folder.path, 10500);
  for (int i = 8; i < 12; ++i) other.write(key(i), code(i));
  CHECK(other.state().bytes <= 10500);
  CHECK(store.read(key(0)).has_value());
  CHECK(!store.read(key(1)).has_value());
  CHECK(!store.read(key(2)).has_value());
  CHECK(store.read(key(7)).has_value());
  CHECK(store.read(key(11)).has_value());
  CHECK_EQUAL(content_of(fs::path(folder.path) / "somebody's.txt").size(), 50000u);
}

TEST(the_folder_stays_within_its_size) {
  const TemporaryFolder folder;
  constexpr int64_t kMost = 20000;
  CodeStore store(folder.path, kMost);
  for (int i = 0; i < 100; ++i) {
    store.write(key(i), code(i, static_cast<size_t>(100 + 37 * i)));
    CHECK(store.state().bytes <= kMost);
  }
  CHECK(store.state().num_kernels > 2);
  store.write(key(200), code(200, kMost));  // this is more than the whole store may hold
  CHECK(!store.read(key(200)));
  CHECK(store.read(key(99)).has_value());
}

TEST(what_writers_left_unfinished_goes_after_a_while) {
  const TemporaryFolder folder;
  const std::string base = path_of(folder, key(1)).string();
  put_content(base + ".1.1.aa.unfinished", "left long ago");
  put_content(base + ".2.1.bb.unfinished", "being written");
  set_age(base + ".1.1.aa.unfinished", 3);
  CodeStore store(folder.path, kLarge);
  store.write(key(1), code(1));
  CHECK(!fs::exists(base + ".1.1.aa.unfinished"));
  CHECK(fs::exists(base + ".2.1.bb.unfinished"));
}

TEST(a_store_without_a_place_keeps_nothing_and_says_so) {
  CodeStore nowhere("", kLarge);
  nowhere.write(key(1), code(1));
  CHECK(!nowhere.read(key(1)));
  CHECK_EQUAL(nowhere.state().problem, "neither KERASCNN_HOME nor HOME is set");
  const TemporaryFolder folder;
  CodeStore off(folder.path, 0);
  off.write(key(1), code(1));
  CHECK(!off.read(key(1)));
  CHECK_EQUAL(folder.num_files(), 0);
  CHECK_EQUAL(off.state().problem, "KERASCNN_KERNEL_CACHE_MB is 0");
  put_content(folder.path + "/file", "");
  CodeStore below_file(folder.path + "/file/kernels", kLarge);
  CHECK(below_file.state().problem.find("/file is not a folder") != std::string::npos);
  below_file.write(key(1), code(1));
  CHECK(!below_file.read(key(1)));
  CHECK(!below_file.state().problem.empty());
}

// A limit on the file size makes writes fail as a full disk does.
TEST(a_full_disk_is_no_error) {
  const TemporaryFolder folder;
  CodeStore store(folder.path, kLarge);
  store.write(key(1), code(1));
  rlimit before{};
  CHECK_EQUAL(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 500;
  CHECK_EQUAL(setrlimit(RLIMIT_FSIZE, &small), 0);
  store.write(key(2), code(2));
  const CodeStore::State full = store.state();
  CHECK_EQUAL(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, old_handler);
  CHECK(!full.problem.empty());
  CHECK_EQUAL(folder.num_files(), 1);
  CHECK(!store.read(key(2)));
  CHECK(is_code(store.read(key(1)), code(1)));
  store.write(key(2), code(2));  // there is room again
  CHECK(is_code(store.read(key(2)), code(2)));
  CHECK_EQUAL(store.state().problem, "");
}

// All processes and threads write all kernels again and again; the folder has room for only some.
TEST(processes_and_threads_share_a_folder) {
  const TemporaryFolder folder;
  const auto work = [&folder] {
    CodeStore store(folder.path, 12000);
    bool is_right = true;
    std::vector<std::thread> threads;
    std::vector<char> right(3, 1);
    for (size_t t = 0; t < right.size(); ++t) {
      threads.emplace_back([&store, &right, t] {
        for (int i = 0; i < 60; ++i) {
          const int number = (i * 7 + static_cast<int>(t)) % 20;
          if (const auto found = store.read(key(number))) {
            right[t] = static_cast<char>(right[t] && is_code(found, code(number)));
          } else {
            store.write(key(number), code(number));
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const char each : right) is_right = is_right && each != 0;
    return is_right;
  };
  std::vector<pid_t> processes;
  for (int i = 0; i < 4; ++i) processes.push_back(begin_process(work));
  bool is_right = true;
  for (const pid_t process : processes) is_right = ends_well(process) && is_right;
  CHECK(is_right);
  for (const auto& entry : fs::directory_iterator(folder.path)) {
    CHECK(entry.path().extension() == ".kernel");
  }
  CodeStore after(folder.path, 12000);
  after.write(key(50), code(50));  // the next writer counts what all the others have left
  CHECK(after.state().bytes <= 12000);
}

}  // namespace kerascnn
