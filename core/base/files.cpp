#include "core/base/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <random>
#include <sstream>
#include <system_error>
#include <utility>

namespace kerascnn {
namespace {

constexpr std::string_view kUnfinished = ".unfinished";

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string words_of(int error) { return std::generic_category().message(error); }

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) (void)::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return value_; }
  // 0, or the error: some file systems tell only now that there is no room.
  int close() { return ::close(std::exchange(value_, -1)) == 0 ? 0 : errno; }

 private:
  int value_;
};

int write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(file, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return 0;
}

// Processes in different containers can have one number.
std::filesystem::path unfinished_path(const std::filesystem::path& path) {
  static std::atomic<unsigned> number{0};
  std::ostringstream name;
  name << path.string() << '.' << ::getpid() << '.' << ++number << '.' << std::hex
       << std::random_device()() << kUnfinished;
  return name.str();
}

}  // namespace

std::string home_folder() { return home_folder(variable("KERASCNN_HOME"), variable("HOME")); }

std::string home_folder(const std::string& own, const std::string& home) {
  using std::filesystem::path;
  const bool is_below_home = own == "~" || own.starts_with("~/");
  if (home.empty() && (own.empty() || is_below_home)) return "";
  if (own.empty()) return (path(home) / ".kerascnn").string();
  if (!is_below_home) return own;
  return (path(home) / own.substr(std::min<size_t>(own.size(), 2))).string();
}

std::optional<std::string> read_file(const std::filesystem::path& path, size_t max_bytes,
                                     bool mark_used) {
  // Opening a pipe would wait for its writer.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info{};
  if (file.get() < 0 || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) return {};
  if (info.st_size < 0 || static_cast<uint64_t>(info.st_size) > max_bytes) return {};
  std::string bytes(static_cast<size_t>(info.st_size), '\0');
  size_t at = 0;
  while (at < bytes.size()) {
    const ssize_t count = ::read(file.get(), bytes.data() + at, bytes.size() - at);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return {};
    at += static_cast<size_t>(count);
  }
  if (mark_used) (void)::futimens(file.get(), nullptr);
  return bytes;
}

std::string write_file(const std::filesystem::path& path, std::string_view bytes) {
  std::error_code failed;
  std::filesystem::create_directories(path.parent_path(), failed);
  if (failed) return failed.message();
  const std::filesystem::path unfinished = unfinished_path(path);
  Descriptor file(::open(unfinished.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (file.get() < 0) return words_of(errno);
  int error = write_all(file.get(), bytes);
  if (const int when_closed = file.close(); error == 0) error = when_closed;
  if (error == 0 && ::rename(unfinished.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return "";
  (void)::unlink(unfinished.c_str());
  return words_of(error);
}

bool is_unfinished_file(const std::filesystem::path& path) {
  return path.filename().string().ends_with(kUnfinished);
}

}  // namespace kerascnn
