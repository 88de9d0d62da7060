#include "core/backend/code_store.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <tuple>
#include <vector>

#include "core/base/env.h"
#include "core/base/error.h"
#include "core/base/files.h"

namespace kerascnn {
namespace {

namespace fs = std::filesystem;

// A file is this line, the SHA-256 of all that follows, the key, the number of bytes of the name
// (8 bytes, the lowest first), the name and the code.
constexpr std::string_view kFirstLine = "kerascnn code 1\n";
constexpr size_t kDigestBytes = std::tuple_size_v<Digest>;
constexpr size_t kLengthBytes = 8;
constexpr size_t kHeadBytes = kFirstLine.size() + 2 * kDigestBytes + kLengthBytes;
constexpr std::string_view kSuffix = ".kernel";
constexpr int64_t kUsualMegabytes = 256, kMostMegabytes = int64_t{1} << 30;
constexpr size_t kMostFileBytes = size_t{64} << 20;
// The room that is left is divided by this, before what other processes wrote is counted too.
constexpr int64_t kPartsOfRoom = 16;
// A process that made an unfinished file so long ago does not go on with it.
constexpr auto kLongAgo = std::chrono::hours(1);

std::string text_of(const Digest& digest) { return {digest.begin(), digest.end()}; }

std::string file_of(const Digest& key, const StoredCode& stored) {
  std::string body = text_of(key);
  for (size_t i = 0; i < kLengthBytes; ++i) {
    body += static_cast<char>(uint64_t{stored.name.size()} >> (8 * i) & 0xff);
  }
  body += stored.name;
  body += stored.code;
  return std::string(kFirstLine) + text_of(sha256(body)) + body;
}

std::optional<StoredCode> stored_code(const Digest& key, std::string_view file) {
  if (file.size() < kHeadBytes || !file.starts_with(kFirstLine)) return {};
  file.remove_prefix(kFirstLine.size());
  const std::string_view checksum = file.substr(0, kDigestBytes);
  std::string_view body = file.substr(kDigestBytes);
  if (checksum != text_of(sha256(body)) || !body.starts_with(text_of(key))) return {};
  body.remove_prefix(kDigestBytes);
  uint64_t name_bytes = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    name_bytes |= uint64_t{static_cast<uint8_t>(body[i])} << (8 * i);
  }
  body.remove_prefix(kLengthBytes);
  if (name_bytes > body.size()) return {};
  return StoredCode{std::string(body.substr(0, name_bytes)), std::string(body.substr(name_bytes))};
}

bool is_kernel_file(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.size() == 2 * kDigestBytes + kSuffix.size() && name.ends_with(kSuffix) &&
         name.find_first_not_of("0123456789abcdef") == 2 * kDigestBytes;
}

struct File {
  fs::path path;
  fs::file_time_type changed;
  int64_t bytes = 0;
};

// Other processes may remove listed files meanwhile.
template <typename Wanted>
std::vector<File> list_files(const std::string& folder, const Wanted& wanted) {
  std::vector<File> files;
  std::error_code failed;
  fs::directory_iterator entry(folder, failed), end;
  while (!failed && entry != end) {
    std::error_code gone;
    if (wanted(entry->path()) && entry->is_regular_file(gone) && !gone) {
      File file{entry->path(), entry->last_write_time(gone), 0};
      if (!gone) file.bytes = static_cast<int64_t>(entry->file_size(gone));
      if (!gone) files.push_back(std::move(file));
    }
    entry.increment(failed);
  }
  return files;
}

int64_t total_bytes(const std::vector<File>& files) {
  int64_t total = 0;
  for (const File& file : files) total += file.bytes;
  return total;
}

// Empty where files can be made in the folder, or where the folder can be made; otherwise the
// reason.
std::string why_not_writable(fs::path folder) {
  std::error_code failed;
  while (!fs::exists(folder, failed) && folder.has_parent_path() &&
         folder != folder.parent_path()) {
    folder = folder.parent_path();
  }
  if (!fs::is_directory(folder, failed)) return message(folder.string(), " is not a folder");
  if (access(folder.c_str(), W_OK | X_OK) == 0) return "";
  return message(folder.string(), ": ", std::generic_category().message(errno));
}

}  // namespace

std::string CodeStore::path_of(const Digest& key) const {
  return (fs::path(folder_) / (hex(key) + std::string(kSuffix))).string();
}

std::optional<StoredCode> CodeStore::read(const Digest& key) const {
  if (!is_used()) return {};
  const std::optional<std::string> file = read_file(path_of(key), kMostFileBytes, true);
  return file ? stored_code(key, *file) : std::nullopt;
}

void CodeStore::write(const Digest& key, const StoredCode& stored) {
  if (!is_used()) return;
  const std::string file = file_of(key, stored);
  const auto bytes = static_cast<int64_t>(file.size());
  if (file.size() > kMostFileBytes || bytes > max_bytes_) return;
  const std::string problem = write_file(path_of(key), file);
  const std::lock_guard lock(mutex_);
  problem_ = problem;
  if (!problem.empty()) return;
  room_ -= bytes;
  if (room_ < 0) make_room();
}

void CodeStore::make_room() {
  std::error_code ignored;
  for (const File& file : list_files(folder_, is_unfinished_file)) {
    if (file.changed + kLongAgo < fs::file_time_type::clock::now()) fs::remove(file.path, ignored);
  }
  std::vector<File> files = list_files(folder_, is_kernel_file);
  int64_t bytes = total_bytes(files);
  if (bytes > max_bytes_) {
    std::sort(files.begin(), files.end(),
              [](const File& a, const File& b) { return a.changed < b.changed; });
    // A little more is removed than has to be, so that this is not done for each file.
    const int64_t wanted = max_bytes_ - max_bytes_ / kPartsOfRoom;
    for (const File& file : files) {
      if (bytes <= wanted) break;
      if (fs::remove(file.path, ignored)) bytes -= file.bytes;
    }
  }
  room_ = std::min(max_bytes_ - bytes, max_bytes_ / kPartsOfRoom);
}

CodeStore::State CodeStore::state() const {
  State state{folder_, max_bytes_, 0, 0, ""};
  if (folder_.empty()) {
    state.problem = "neither KERASCNN_HOME nor HOME is set";
  } else if (max_bytes_ == 0) {
    state.problem = "KERASCNN_KERNEL_CACHE_MB is 0";
  }
  if (!is_used()) return state;
  const std::vector<File> files = list_files(folder_, is_kernel_file);
  state.num_kernels = static_cast<int64_t>(files.size());
  state.bytes = total_bytes(files);
  const std::lock_guard lock(mutex_);
  state.problem = problem_.empty() ? why_not_writable(folder_) : problem_;
  return state;
}

CodeStore& code_store() {
  // This is never destroyed: kernels may be compiled as late as when the process ends.
  static CodeStore& store = *[] {
    const std::string home = home_folder();
    const int64_t megabytes = env_count("KERASCNN_KERNEL_CACHE_MB", kUsualMegabytes);
    return new CodeStore(home.empty() ? "" : (fs::path(home) / "kernels" / "compiled").string(),
                         std::min(megabytes, kMostMegabytes) << 20);
  }();
  return store;
}

}  // namespace kerascnn
