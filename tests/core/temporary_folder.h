// A folder for one test, which is removed when the test ends.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

#include "check.h"
#include "core/base/error.h"

namespace kerascnn::testing {

struct TemporaryFolder {
  TemporaryFolder() {
    const std::string name = message("kerascnn-test-", std::random_device()());
    path = (std::filesystem::temp_directory_path() / name).string();
    // This is false where the folder exists already.
    CHECK(std::filesystem::create_directory(path));
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::filesystem::path file() const { return *std::filesystem::directory_iterator(path); }
  int num_files() const {
    return static_cast<int>(std::distance(std::filesystem::directory_iterator(path), {}));
  }

  std::string path;
};

inline std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void put_content(const std::filesystem::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

}  // namespace kerascnn::testing
