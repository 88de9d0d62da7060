// When a kernel of kerascnn's own does not compile, its source is kept and the user is told.
#include <chrono>
#include <stdexcept>
#include <vector>

#include "check.h"
#include "core/backend/failed_source.h"
#include "core/base/error.h"
#include "core/base/sha256.h"
#include "core/base/warn.h"
#include "temporary_folder.h"

namespace kerascnn {
namespace {

namespace fs = std::filesystem;
using testing::content_of;
using testing::put_content;
using testing::TemporaryFolder;

// The warnings that were given during the life of the object.
struct Warnings {
  Warnings()
      : before(set_warning_handler([this](const std::string& text) { all.push_back(text); })) {}
  ~Warnings() { set_warning_handler(std::move(before)); }

  std::vector<std::string> all;
  WarningHandler before;
};

}  // namespace

TEST(a_failed_source_is_kept_with_the_messages) {
  const TemporaryFolder folder;
  const std::string below = folder.path + "/failed";
  const std::string source = "__global__ void f() { x; }\n";
  const std::string path =
      keep_failed_source({below}, "the kernel of add", source, "1: error\n// 2: error\n\n");
  CHECK_EQUAL(fs::path(path).parent_path().string(), below);
  CHECK_EQUAL(content_of(path), "// the kernel of add\n// 1: error\n// 2: error\n" + source);
  CHECK_EQUAL(keep_failed_source({below}, "again", source, "log"), path);
  CHECK_EQUAL(std::distance(fs::directory_iterator(below), {}), 1);
}

TEST(the_first_folder_that_can_be_written_is_taken) {
  const TemporaryFolder folder;
  put_content(folder.path + "/file", "");
  const std::string impossible = folder.path + "/file/failed";
  const std::string path = keep_failed_source({impossible, folder.path}, "f", "source", "log");
  CHECK_EQUAL(fs::path(path).parent_path().string(), folder.path);
  CHECK_EQUAL(keep_failed_source({impossible}, "f", "source", "log"), "");
}

TEST(only_the_latest_failed_sources_are_kept) {
  const TemporaryFolder folder;
  std::string first;
  for (int i = 0; i < 40; ++i) {
    const std::string path = keep_failed_source({folder.path}, "f", std::to_string(i), "log");
    const int hours = 100 - i;
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(hours));
    if (i == 0) first = path;
    CHECK(fs::exists(path));
  }
  CHECK_EQUAL(folder.num_files(), 32);
  CHECK(!fs::exists(first));
}

TEST(one_warning_for_each_source_names_ops_and_file) {
  const TemporaryFolder folder;
  const char* const home = std::getenv("KERASCNN_HOME");
  const std::string before = home != nullptr ? home : "";
  setenv("KERASCNN_HOME", folder.path.c_str(), 1);
  const std::string source = "this test's own " + folder.path;
  std::vector<std::string> all;
  {
    Warnings warnings;
    warn_of_failed_source("the kernel of add+relu", source, "error: no such thing\nmore");
    warn_of_failed_source("the kernel of add+relu", source, "error: no such thing\nmore");
    all = warnings.all;
  }
  if (home != nullptr) {
    setenv("KERASCNN_HOME", before.c_str(), 1);
  } else {
    unsetenv("KERASCNN_HOME");
  }
  CHECK_EQUAL(all.size(), 1u);
  const std::string path =
      (fs::path(folder.path) / "kernels" / "failed" / (hex(sha256(source)).substr(0, 16) + ".cu"))
          .string();
  CHECK(fs::exists(path));
  CHECK_EQUAL(all[0],
              "the kernel of add+relu could not be compiled (error: no such thing). Its ops "
              "run one by one, with the same results but slower. This is a fault of "
              "kerascnn: please report it with the file " +
                  path);
}

TEST(a_warning_that_is_an_error_is_thrown) {
  WarningHandler before =
      set_warning_handler([](const std::string& text) { throw ValueError(text); });
  std::string thrown;
  try {
    warn("slower");
  } catch (const ValueError& error) {
    thrown = error.what();
  }
  set_warning_handler(std::move(before));
  CHECK_EQUAL(thrown, "slower");
}

}  // namespace kerascnn
