#include "core/backend/cpu/host_compiler.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <vector>

#include "core/base/error.h"

extern char** environ;

namespace kerascnn::cpu {
namespace {

namespace fs = std::filesystem;

// A folder that is there as long as this object is.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::error_code failed;
    fs::path parent = fs::temp_directory_path(failed);
    if (failed) parent = "/tmp";
    std::string path = (parent / "kerascnn-XXXXXX").string();
    if (mkdtemp(path.data()) == nullptr) {
      throw DeviceError(message("no folder can be made in ", parent.string(), " (",
                                std::strerror(errno), "); set TMPDIR to one that can be written"));
    }
    path_ = path;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  fs::path file(const char* name) const { return path_ / name; }

 private:
  fs::path path_;
};

bool is_on_path(const std::string& program) {
  if (program.find('/') != std::string::npos) return access(program.c_str(), X_OK) == 0;
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (access((fs::path(folder) / program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

// The compiler with the options that belong to it. It is CXX where that is set.
std::vector<std::string> find_compiler() {
  const char* wanted = std::getenv("CXX");
  std::istringstream words(wanted != nullptr ? wanted : "");
  const std::vector<std::string> command{std::istream_iterator<std::string>(words), {}};
  if (!command.empty()) {
    return is_on_path(command[0]) ? command : std::vector<std::string>();
  }
  for (const char* name : {"c++", "g++", "clang++"}) {
    if (is_on_path(name)) return {name};
  }
  return {};
}

// There is no contraction, because the result must not depend on how the compiler vectorizes.
std::vector<std::string> compile_command(std::vector<std::string> compiler, const fs::path& source,
                                         const fs::path& library) {
#if defined(__aarch64__)
  compiler.emplace_back("-mcpu=native");
#else
  compiler.emplace_back("-march=native");
#endif
  for (const char* option :
       {"-std=c++17", "-O3", "-fPIC", "-shared", "-fno-math-errno", "-fno-trapping-math",
        "-ffp-contract=off", "-fno-diagnostics-show-caret", "-fdiagnostics-color=never"}) {
    compiler.emplace_back(option);
  }
  compiler.emplace_back("-o");
  compiler.push_back(library.string());
  compiler.push_back(source.string());
  return compiler;
}

// Libraries that are preloaded into this process (an allocator, a sanitizer) are not meant for the
// compiler.
std::vector<char*> compiler_environment() {
  std::vector<char*> kept;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, "LD_PRELOAD=", 11) != 0) kept.push_back(*entry);
  }
  kept.push_back(nullptr);
  return kept;
}

// Returns the exit status; the file gets what the command prints.
int run(const std::vector<std::string>& command, const fs::path& log) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  std::vector<char*> environment = compiler_environment();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  pid_t child = 0;
  const int failed =
      posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) {
    throw DeviceError(
        message("the compiler ", command[0], " can't be started (", std::strerror(failed), ")"));
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return -1;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::string read_file(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

CompiledLibrary compile(const std::string& source, const std::string& title,
                        const std::string& remedy) {
  const std::vector<std::string> compiler = find_compiler();
  if (compiler.empty()) {
    const char* wanted = std::getenv("CXX");
    const std::string looked_for = wanted != nullptr && *wanted != '\0'
                                       ? message("CXX=", wanted)
                                       : "c++, g++ and clang++ on PATH";
    throw DeviceError(message(title, ": there is no C++ compiler on this machine (looked for ",
                              looked_for, "). Install one (Debian: apt install g++), ", remedy));
  }
  const TemporaryFolder folder;
  const fs::path file = folder.file("source.cpp"), library = folder.file("library.so"),
                 log = folder.file("log.txt");
  std::ofstream(file) << source;
  const int status = run(compile_command(compiler, file, library), log);
  if (status != 0) return {nullptr, read_file(log)};
  // The file may go afterwards: the mapping stays.
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* error = dlerror();
    throw DeviceError(message(title, ": the compiled C++ source can't be loaded (",
                              error != nullptr ? error : "unknown error",
                              "). It needs all its functions, and a folder for temporary files "
                              "(TMPDIR) from which libraries may be loaded"));
  }
  return {handle, ""};
}

}  // namespace

const CompiledLibrary& compile_and_load(const std::string& source, const std::string& title,
                                        const std::string& remedy) {
  static std::mutex& mutex = *new std::mutex;
  // These are never destroyed: kernels that live longer than static objects call into the
  // libraries.
  static auto& known = *new std::map<std::string, std::unique_ptr<CompiledLibrary>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<CompiledLibrary>& library = known[source];
  if (!library) {
    library = std::make_unique<CompiledLibrary>(compile(source, title, remedy));
  }
  return *library;
}

}  // namespace kerascnn::cpu
