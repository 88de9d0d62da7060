#include "core/backend/dependencies.h"

#include <algorithm>
#include <functional>
#include <unordered_map>

namespace kerascnn {
namespace {

// Pieces of memory from `begin` to before `end`, by number.
struct Pieces {
  size_t begin = 0;
  size_t end = 0;
};

uintptr_t address(const MemoryRange& range) { return reinterpret_cast<uintptr_t>(range.data); }
uintptr_t length(const MemoryRange& range) { return static_cast<uintptr_t>(range.bytes); }
bool is_empty(const MemoryRange& range) { return range.data == nullptr || range.bytes <= 0; }

bool overlaps(const MemoryRange& a, const MemoryRange& b) {
  return !is_empty(a) && !is_empty(b) && address(a) < address(b) + length(b) &&
         address(b) < address(a) + length(a);
}

// All ranges, cut at one another's ends, so that two of them share whole pieces or nothing.
class Memory {
 public:
  explicit Memory(std::span<const std::span<const Instruction>> arenas) {
    for (const std::span<const Instruction> arena : arenas) {
      for (const Instruction& instruction : arena) {
        for (const MemoryRange& range : instruction.reads) add_ends(range);
        for (const MemoryRange& range : instruction.writes) add_ends(range);
      }
    }
    std::sort(ends_.begin(), ends_.end());
    ends_.erase(std::unique(ends_.begin(), ends_.end()), ends_.end());
  }

  size_t size() const { return ends_.size(); }

  std::vector<Pieces> pieces(const std::vector<MemoryRange>& ranges) const {
    std::vector<Pieces> result;
    for (const MemoryRange& range : ranges) {
      if (is_empty(range)) continue;
      result.push_back({number(address(range)), number(address(range) + length(range))});
    }
    return result;
  }

 private:
  void add_ends(const MemoryRange& range) {
    if (is_empty(range)) return;
    ends_.push_back(address(range));
    ends_.push_back(address(range) + length(range));
  }

  size_t number(uintptr_t end) const {
    return static_cast<size_t>(std::lower_bound(ends_.begin(), ends_.end(), end) - ends_.begin());
  }

  std::vector<uintptr_t> ends_;
};

// The last accesses to a piece of memory.
struct PieceState {
  bool is_ever_written = false;
  int32_t writer = -1;
  std::vector<int32_t> readers;  // since it was written
};

// An instruction of a step in one arena, and the pieces that it touches.
struct Touching {
  const Kernel* kernel = nullptr;
  std::vector<Pieces> reads, writes;
};

class DependencyFinder {
 public:
  DependencyFinder(std::span<const std::span<const Instruction>> arenas, int64_t repeats)
      : size_(arenas[0].size()), repeats_(repeats) {
    const Memory memory(arenas);
    states_.resize(memory.size());
    for (const std::span<const Instruction> arena : arenas) {
      std::vector<Touching>& touching = arenas_.emplace_back();
      for (const Instruction& instruction : arena) {
        touching.push_back({instruction.kernel.get(), memory.pieces(instruction.reads),
                            memory.pieces(instruction.writes)});
        for_each_piece(touching.back().writes,
                       [](PieceState& piece) { piece.is_ever_written = true; });
      }
    }
    const size_t count = size_ * static_cast<size_t>(repeats);
    words_ = (count + 63) / 64;
    before_.assign(count * words_, 0);
  }

  Dependencies run() {
    Dependencies result;
    for (int64_t repeat = 0; repeat < repeats_; ++repeat) {
      for (const Touching& instruction : arenas_[arena_of(repeat, repeats_, arenas_.size())]) {
        const auto index = static_cast<int32_t>(result.size());
        result.push_back(reduced(index, conflicts(instruction)));
        note(instruction, index);
      }
    }
    return result;
  }

 private:
  void for_each_piece(const std::vector<Pieces>& ranges, auto&& visit) {
    for (const Pieces& range : ranges) {
      for (size_t piece = range.begin; piece < range.end; ++piece) visit(states_[piece]);
    }
  }

  std::vector<int32_t> conflicts(const Touching& instruction) {
    std::vector<int32_t> found;
    const auto add = [&](int32_t index) {
      if (index >= 0) found.push_back(index);
    };
    for_each_piece(instruction.reads, [&](PieceState& piece) { add(piece.writer); });
    for_each_piece(instruction.writes, [&](PieceState& piece) {
      add(piece.writer);
      for (int32_t reader : piece.readers) add(reader);
    });
    const auto last = last_runs_.find(instruction.kernel);
    if (last != last_runs_.end()) add(last->second);
    if (instruction.kernel->meets_processes()) add(last_meeting_);
    return found;
  }

  void note(const Touching& instruction, int32_t index) {
    for_each_piece(instruction.reads, [&](PieceState& piece) {
      if (piece.is_ever_written) piece.readers.push_back(index);
    });
    // What the instruction reads and writes counts as written: whoever waits for the writer waits
    // for the readers too.
    for_each_piece(instruction.writes, [&](PieceState& piece) {
      piece.writer = index;
      piece.readers.clear();
    });
    if (instruction.kernel->keeps_state()) last_runs_[instruction.kernel] = index;
    if (instruction.kernel->meets_processes()) last_meeting_ = index;
  }

  // Leaves out instructions that another one waits for, and marks all that is before this
  // instruction. The latest come first, as nothing waits for a later one.
  std::vector<int32_t> reduced(int32_t index, std::vector<int32_t> candidates) {
    std::sort(candidates.begin(), candidates.end(), std::greater<>());
    uint64_t* before = &before_[static_cast<size_t>(index) * words_];
    std::vector<int32_t> direct;
    for (int32_t candidate : candidates) {
      const auto bit = static_cast<size_t>(candidate);
      if ((before[bit / 64] >> (bit % 64) & 1) != 0) continue;
      direct.push_back(candidate);
      const uint64_t* further = &before_[bit * words_];
      for (size_t word = 0; word < words_; ++word) before[word] |= further[word];
      before[bit / 64] |= uint64_t{1} << (bit % 64);
    }
    std::reverse(direct.begin(), direct.end());
    return direct;
  }

  size_t size_;  // of a step
  int64_t repeats_;
  std::vector<std::vector<Touching>> arenas_;
  std::vector<PieceState> states_;
  std::unordered_map<const Kernel*, int32_t> last_runs_;  // of kernels that keep state
  int32_t last_meeting_ = -1;                             // of processes
  size_t words_ = 0;
  std::vector<uint64_t> before_;  // for each instruction one bit for each
};

Dependencies find(std::span<const std::span<const Instruction>> arenas, int64_t repeats) {
  const int64_t count = static_cast<int64_t>(arenas[0].size()) * repeats;
  if (count > kMaxBranchedInstructions) return chain_dependencies(count);
  if (count == 0) return {};
  return DependencyFinder(arenas, repeats).run();
}

}  // namespace

Dependencies find_dependencies(const ArenaSteps& arenas, int64_t repeats) {
  const std::vector<std::span<const Instruction>> spans(arenas.begin(), arenas.end());
  return find(spans, repeats);
}

Dependencies find_dependencies(std::span<const Instruction> instructions, int64_t repeats) {
  return find(std::span(&instructions, 1), repeats);
}

const Instruction& instruction_at(const ArenaSteps& arenas, int64_t repeats, int64_t index) {
  const auto size = static_cast<int64_t>(arenas[0].size());
  const std::vector<Instruction>& arena = arenas[arena_of(index / size, repeats, arenas.size())];
  return arena[static_cast<size_t>(index % size)];
}

Dependencies chain_dependencies(int64_t count) {
  Dependencies result(static_cast<size_t>(count));
  for (int64_t i = 1; i < count; ++i) result[i].push_back(static_cast<int32_t>(i - 1));
  return result;
}

std::vector<int32_t> random_order(const Dependencies& dependencies, std::mt19937& random) {
  std::vector<size_t> waiting_for(dependencies.size());
  std::vector<std::vector<int32_t>> successors(dependencies.size());
  std::vector<int32_t> ready, order;
  for (size_t i = 0; i < dependencies.size(); ++i) {
    waiting_for[i] = dependencies[i].size();
    for (int32_t before : dependencies[i]) successors[before].push_back(static_cast<int32_t>(i));
    if (waiting_for[i] == 0) ready.push_back(static_cast<int32_t>(i));
  }
  while (!ready.empty()) {
    std::swap(ready[random() % ready.size()], ready.back());
    const int32_t next = ready.back();
    ready.pop_back();
    order.push_back(next);
    for (int32_t successor : successors[next]) {
      if (--waiting_for[successor] == 0) ready.push_back(successor);
    }
  }
  return order;
}

std::vector<MemoryRange> overwritten_memory(const Instruction& instruction) {
  std::vector<MemoryRange> result;
  for (const MemoryRange& written : instruction.writes) {
    const bool is_read =
        std::any_of(instruction.reads.begin(), instruction.reads.end(),
                    [&](const MemoryRange& read) { return overlaps(read, written); });
    if (!is_empty(written) && !is_read) result.push_back(written);
  }
  return result;
}

std::vector<int32_t> find_leaves(const Dependencies& dependencies) {
  std::vector<bool> is_awaited(dependencies.size(), false);
  for (const std::vector<int32_t>& predecessors : dependencies) {
    for (int32_t predecessor : predecessors) is_awaited[predecessor] = true;
  }
  std::vector<int32_t> leaves;
  for (size_t i = 0; i < is_awaited.size(); ++i) {
    if (!is_awaited[i]) leaves.push_back(static_cast<int32_t>(i));
  }
  return leaves;
}

std::vector<int32_t> critical_successors(const Dependencies& dependencies) {
  std::vector<int32_t> successors(dependencies.size(), -1);
  std::vector<int64_t> behind(dependencies.size(), 0);  // length of the chain behind each
  for (size_t i = dependencies.size(); i-- > 0;) {
    for (int32_t predecessor : dependencies[i]) {
      const int64_t length = behind[i] + 1;
      if (length < behind[predecessor]) continue;  // successors come from the last to the first
      behind[predecessor] = length;
      successors[predecessor] = static_cast<int32_t>(i);
    }
  }
  return successors;
}

uint32_t settled_inputs(const Instruction& instruction,
                        std::span<const Instruction* const> running) {
  const auto is_written = [&](const MemoryRange& range) {
    return std::any_of(running.begin(), running.end(), [&](const Instruction* other) {
      return std::any_of(other->writes.begin(), other->writes.end(),
                         [&](const MemoryRange& written) { return overlaps(range, written); });
    });
  };
  uint32_t settled = 0;
  const size_t count = std::min<size_t>(instruction.inputs.size(), 32);
  for (size_t i = 0; i < count; ++i) {
    // Nothing is known of memory without an extent.
    bool is_settled = false;
    for (const MemoryRange& range : instruction.reads) {
      if (range.data != instruction.inputs[i]) continue;
      is_settled = !is_written(range);
      if (!is_settled) break;
    }
    if (is_settled) settled |= uint32_t{1} << i;
  }
  return settled;
}

std::vector<int64_t> find_slack(const Dependencies& dependencies) {
  const size_t count = dependencies.size();
  std::vector<int64_t> before(count, 0), behind(count, 0);  // lengths of the longest chains
  for (size_t i = 0; i < count; ++i) {
    for (int32_t predecessor : dependencies[i]) {
      before[i] = std::max(before[i], before[predecessor] + 1);
    }
  }
  for (size_t i = count; i-- > 0;) {
    for (int32_t predecessor : dependencies[i]) {
      behind[predecessor] = std::max(behind[predecessor], behind[i] + 1);
    }
  }
  std::vector<int64_t> slack(count);
  const int64_t longest = longest_chain(dependencies);
  for (size_t i = 0; i < count; ++i) slack[i] = longest - 1 - before[i] - behind[i];
  return slack;
}

int64_t longest_chain(const Dependencies& dependencies) {
  std::vector<int64_t> lengths;
  int64_t longest = 0;
  for (const std::vector<int32_t>& predecessors : dependencies) {
    int64_t length = 1;
    for (int32_t predecessor : predecessors) length = std::max(length, lengths[predecessor] + 1);
    lengths.push_back(length);
    longest = std::max(longest, length);
  }
  return longest;
}

}  // namespace kerascnn
