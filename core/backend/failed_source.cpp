#include "core/backend/failed_source.h"

#include <filesystem>
#include <mutex>
#include <set>
#include <system_error>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/sha256.h"
#include "core/base/warn.h"

namespace kerascnn {
namespace {

namespace fs = std::filesystem;

constexpr size_t kNameDigits = 16;
// The most files of one folder. A fault in one kernel is one in all its shapes.
constexpr size_t kMostFiles = 32;

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// Makes room for one more by removing the oldest files, if there are too many.
void make_room(const fs::path& folder) {
  std::error_code failed;
  size_t count = 0;
  fs::path oldest;
  fs::file_time_type oldest_time{};
  fs::directory_iterator entry(folder, failed), end;
  while (!failed && entry != end) {
    std::error_code gone;
    const fs::file_time_type changed = entry->last_write_time(gone);
    if (entry->path().extension() == ".cu" && !gone) {
      if (count == 0 || changed < oldest_time) {
        oldest = entry->path();
        oldest_time = changed;
      }
      ++count;
    }
    entry.increment(failed);
  }
  if (count >= kMostFiles) fs::remove(oldest, failed);
}

// Is it the first time?
bool note_source(const Digest& digest) {
  static std::mutex& mutex = *new std::mutex;
  static auto& known = *new std::set<Digest>;
  const std::lock_guard lock(mutex);
  return known.insert(digest).second;
}

}  // namespace

std::string keep_failed_source(const std::vector<std::string>& folders, const std::string& what,
                               const std::string& source, const std::string& log) {
  const std::string name = hex(sha256(source)).substr(0, kNameDigits) + ".cu";
  std::string lines = "// " + what + "\n// " + log;
  while (lines.ends_with('\n')) lines.pop_back();
  for (size_t at = lines.find('\n', 3); at != std::string::npos; at = lines.find('\n', at + 1)) {
    if (!std::string_view(lines).substr(at + 1).starts_with("// ")) lines.insert(at + 1, "// ");
  }
  for (const std::string& folder : folders) {
    const fs::path path = fs::path(folder) / name;
    std::error_code ignored;
    if (!fs::exists(path, ignored)) make_room(folder);
    if (write_file(path, lines + "\n" + source).empty()) return path.string();
  }
  return "";
}

void warn_of_failed_source(const std::string& what, const std::string& source,
                           const std::string& log) {
  if (!note_source(sha256(source))) return;
  std::vector<std::string> folders;
  if (const std::string home = home_folder(); !home.empty()) {
    folders.push_back((fs::path(home) / "kernels" / "failed").string());
  }
  std::error_code failed;
  const fs::path temporary = fs::temp_directory_path(failed);
  if (!failed) folders.push_back((temporary / "kerascnn-failed").string());
  const std::string path = keep_failed_source(folders, what, source, log);
  warn(message(what, " could not be compiled (", first_line(log),
               "). Its ops run one by one, with the same results but slower. This is a fault of "
               "kerascnn: please report it",
               path.empty() ? "" : " with the file " + path));
}

}  // namespace kerascnn
