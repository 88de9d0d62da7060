// Files of kerascnn's own, which other processes may read and write at the same time.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace kerascnn {

// KERASCNN_HOME, in which "~" is HOME; ~/.kerascnn where it is not set. Empty where HOME is needed
// and not known.
std::string home_folder();

// The same, of the values of these two.
std::string home_folder(const std::string& own, const std::string& home);

// Nothing where it can't be read, is no plain file or has more bytes than that. `mark_used` makes
// it the file that was changed last, where that is allowed.
std::optional<std::string> read_file(const std::filesystem::path& path, size_t max_bytes,
                                     bool mark_used = false);

// Makes the folder too. A reader finds the old file, no file, or the whole new one. Returns what
// went wrong, in the words of the system; then nothing is left behind. Empty where all went well.
std::string write_file(const std::filesystem::path& path, std::string_view bytes);

// Is it one that write_file() made and did not come to rename?
bool is_unfinished_file(const std::filesystem::path& path);

}  // namespace kerascnn
