// Which kernels of a program have to wait for which others, by the memory they touch. The rest may
// run side by side with the same results.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "core/backend/backend.h"

namespace kerascnn {

// For each instruction, the earlier ones that it waits for, in ascending order.
using Dependencies = std::vector<std::vector<int32_t>>;

// Lists with more instructions than this, repeats included, become a chain: the sets of each
// instruction's predecessors take memory that grows with the square of their number.
constexpr int64_t kMaxBranchedInstructions = 8192;

// The dependencies of a step that runs `repeats` times in a row, each time in the arena that
// arena_of says; instruction i of repeat r has the number r * size + i. An instruction waits for
// those that wrote what it reads or writes, for those that read what it writes, for the last run of
// the same kernel object where that keeps state, and for the one before in which processes meet,
// where they meet in it too. An instruction that it waits for through another one is left out.
Dependencies find_dependencies(const ArenaSteps& arenas, int64_t repeats);
// The same for one arena.
Dependencies find_dependencies(std::span<const Instruction> instructions, int64_t repeats);

// The instruction that has the number `index` among those of all repeats.
const Instruction& instruction_at(const ArenaSteps& arenas, int64_t repeats, int64_t index);

// Every instruction waits for the one before.
Dependencies chain_dependencies(int64_t count);

// Any order in which each instruction comes after those that it waits for.
std::vector<int32_t> random_order(const Dependencies& dependencies, std::mt19937& random);

// The memory that a run of the instruction writes without reading it.
std::vector<MemoryRange> overwritten_memory(const Instruction& instruction);

// The instructions that nothing waits for, in ascending order.
std::vector<int32_t> find_leaves(const Dependencies& dependencies);

// For each instruction, the one that waits for it and has the longest chain after it, the first of
// equals; -1 where nothing waits for it. A path through these decides how long a step takes.
std::vector<int32_t> critical_successors(const Dependencies& dependencies);

// Bit i says that none of the instructions `running`, which may still run when this one is started,
// writes input i.
uint32_t settled_inputs(const Instruction& instruction,
                        std::span<const Instruction* const> running);

// For each instruction: how many instructions could run before it begins without making the longest
// chain longer? This is 0 for those on a longest chain.
std::vector<int64_t> find_slack(const Dependencies& dependencies);

// How many instructions have to run one after another.
int64_t longest_chain(const Dependencies& dependencies);

}  // namespace kerascnn
