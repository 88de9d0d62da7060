// Compiled kernels on disk, for the processes that come after this one.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "core/base/sha256.h"

namespace kerascnn {

struct StoredCode {
  std::string name;  // of the kernel in it
  std::string code;
};

// A folder with a file for each kernel, named after its key. Many processes and threads may use it
// at a time. A file that can't be read, is damaged or is not what its name says counts as missing;
// code that can't be written is not kept. None of this is ever an error.
class CodeStore {
 public:
  // Nothing is kept where `folder` is empty or `max_bytes` is 0.
  CodeStore(std::string folder, int64_t max_bytes)
      : folder_(std::move(folder)), max_bytes_(max_bytes) {}

  // Returns the code whole and as its checksum says, or nothing. It counts as used now.
  std::optional<StoredCode> read(const Digest& key) const;
  // If the folder gets larger than it may, the files that were not used for the longest time are
  // removed.
  void write(const Digest& key, const StoredCode& stored);

  struct State {
    std::string folder;
    int64_t max_bytes = 0;
    int64_t num_kernels = 0;
    int64_t bytes = 0;
    std::string problem;  // why nothing more is kept; empty where all is well
  };
  State state() const;

 private:
  bool is_used() const { return !folder_.empty() && max_bytes_ > 0; }
  std::string path_of(const Digest& key) const;
  void make_room();

  const std::string folder_;
  const int64_t max_bytes_;
  mutable std::mutex mutex_;  // of what follows
  int64_t room_ = 0;          // bytes that may be written before the folder is looked through again
  std::string problem_;
};

// The store below KERASCNN_HOME, as large as KERASCNN_KERNEL_CACHE_MB says.
CodeStore& code_store();

}  // namespace kerascnn
