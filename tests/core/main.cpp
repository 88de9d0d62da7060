// Runs the tests whose file or name is given, or all of them.
#include <cstdio>
#include <exception>
#include <filesystem>

#include "check.h"

namespace kerascnn::testing {

std::vector<Test>& all_tests() {
  static std::vector<Test> tests;
  return tests;
}

Registration::Registration(const char* file, const char* name, std::function<void()> body) {
  all_tests().push_back({std::filesystem::path(file).stem().string(), name, std::move(body)});
}

namespace {

int run_tests(const std::string& filter) {
  int run = 0;
  int failed = 0;
  for (const Test& test : all_tests()) {
    if (!filter.empty() && filter != test.file && filter != test.name) continue;
    ++run;
    try {
      test.body();
    } catch (const std::exception& error) {
      ++failed;
      std::printf("FAILED %s/%s: %s\n", test.file.c_str(), test.name.c_str(), error.what());
    }
  }
  std::printf("%d tests run, %d failed\n", run, failed);
  // A filter that matches nothing must not look like a success.
  return run == 0 || failed > 0 ? 1 : 0;
}

}  // namespace
}  // namespace kerascnn::testing

int main(int argc, char** argv) { return kerascnn::testing::run_tests(argc > 1 ? argv[1] : ""); }
