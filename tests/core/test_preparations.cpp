// Kernels that begin with what needs one input only: a program runs that part by itself, beside
// what comes before (PreparedKernel).
#include <bit>
#include <cstdlib>

#include "core/backend/dependencies.h"
#include "core/graph/program.h"
#include "fusion_testing.h"

namespace kerascnn {
namespace {

constexpr int64_t kSize = 1000;
constexpr int64_t kBytes = kSize * int64_t{sizeof(float)};

// Takes w from x. Prepared it adds what the first part has negated, which has the same bits.
class Difference final : public Kernel {
 public:
  explicit Difference(bool is_prepared) : is_prepared_(is_prepared) {}

  void run(const KernelArgs& args) override {
    const auto* x = static_cast<const float*>(args.inputs[0]);
    const auto* w = static_cast<const float*>(args.inputs[1]);
    if (is_prepared_) CHECK_EQUAL(args.inputs.size(), 3u);
    const auto* negated = static_cast<const float*>(args.inputs.back());
    auto* y = static_cast<float*>(args.outputs[0]);
    for (int64_t i = 0; i < kSize; ++i) y[i] = is_prepared_ ? x[i] + negated[i] : x[i] - w[i];
  }
  std::string description() const override { return "difference"; }

  std::optional<PreparedKernel> prepared() const override {
    if (is_prepared_) return std::nullopt;
    return PreparedKernel{std::make_unique<Negation>(), 1, kBytes,
                          std::make_unique<Difference>(true)};
  }

 private:
  class Negation final : public Kernel {
   public:
    void run(const KernelArgs& args) override {
      const auto* w = static_cast<const float*>(args.inputs[0]);
      auto* negated = static_cast<float*>(args.outputs[0]);
      for (int64_t i = 0; i < kSize; ++i) negated[i] = -w[i];
    }
    std::string description() const override { return "negation"; }
  };

  bool is_prepared_;
};

constexpr Fusion kDifference = {
    "difference",
    [](Pattern& pattern) {
      const PatternValue x = pattern.input("x");
      pattern.output("y", x.call(op_subtract, {pattern.input("w")}));
    },
    [](const Match&) -> std::unique_ptr<Kernel> { return std::make_unique<Difference>(false); }};

// Differences from variables between other ops, and one with nothing before it.
RootedGraph differences(const std::vector<VariablePtr>& weights) {
  RootedGraph rooted;
  Graph& graph = rooted.graph;
  ValueId y = graph.input("x", testing::f32({kSize}));
  for (const VariablePtr& weight : weights) {
    y = testing::call(graph, "subtract", {y, graph.read(weight)});
    y = testing::call(graph, "tanh", {testing::call(graph, "sin", {y})});
    // The update comes last, but memory of the variable is all that it shares with the difference.
    graph.assign(weight, testing::call(graph, "cos", {y}));
  }
  rooted.outputs = {y};
  return rooted;
}

std::vector<VariablePtr> make_weights() {
  std::vector<VariablePtr> weights;
  for (int i = 0; i < 4; ++i) {
    weights.push_back(
        testing::make_variable(message("w", i), {kSize}, 0.25f * static_cast<float>(i)));
  }
  return weights;
}

std::shared_ptr<Program> compiled(const RootedGraph& rooted) {
  return Program::compile(rooted.graph, rooted.outputs, Device{}, {.optimize = false});
}

size_t count_preparations(const Program& program) {
  const std::vector<InstructionInfo> list = program.describe();
  CHECK_EQUAL(static_cast<int64_t>(list.size()), program.stats().num_instructions);
  return static_cast<size_t>(std::ranges::count(list, "preparation", &InstructionInfo::op));
}

std::vector<uint32_t> bits_of(const Program& program, const std::vector<VariablePtr>& weights) {
  std::vector<Tensor> tensors = program.outputs();
  for (const VariablePtr& weight : weights) tensors.push_back(weight->value());
  std::vector<uint32_t> bits;
  for (const Tensor& tensor : tensors) {
    for (float value : testing::floats(tensor)) bits.push_back(std::bit_cast<uint32_t>(value));
  }
  return bits;
}

TEST(preparations_run_in_every_allowed_order) {
  constexpr int64_t kSteps = 3;
  std::mt19937 values(1);
  const std::vector<Tensor> inputs = {testing::random_tensor({kSize}, values)};
  const std::vector<VariablePtr> expected_weights = make_weights();
  const auto expected = compiled(testing::fuse(differences(expected_weights), kDifference));
  CHECK_EQUAL(count_preparations(*expected), 0u);  // on a CPU nothing runs side by side
  expected->run(inputs, kSteps);
  size_t earlier = 0;
  for (unsigned seed = 0; seed < 50; ++seed) {
    const std::vector<VariablePtr> weights = make_weights();
    const RootedGraph rooted = testing::fuse(differences(weights), kDifference);
    CHECK_EQUAL(testing::count_nodes(rooted.graph, "fused"), 4u);
    setenv("KERASCNN_SHUFFLE_KERNELS", std::to_string(seed + 1).c_str(), 1);
    const auto program = compiled(rooted);
    unsetenv("KERASCNN_SHUFFLE_KERNELS");
    // The first difference has no kernel before it.
    CHECK_EQUAL(count_preparations(*program), 3u);
    const ArenaSteps arenas = program->arena_steps(inputs);
    std::mt19937 random(seed);
    int32_t last = -1;
    for (int32_t index : random_order(find_dependencies(arenas, kSteps), random)) {
      const Instruction& item = instruction_at(arenas, kSteps, index);
      item.kernel->run({item.inputs, item.outputs, item.workspace, nullptr});
      earlier += item.kernel->description() == "negation" && index < last ? 1 : 0;
      last = index;
    }
    CHECK(bits_of(*program, weights) == bits_of(*expected, expected_weights));
  }
  CHECK(earlier > 50);  // they wait for little
}

TEST(a_preparation_has_memory_until_its_kernel_has_run) {
  setenv("KERASCNN_SHUFFLE_KERNELS", "1", 1);
  const auto program = compiled(testing::fuse(differences(make_weights()), kDifference));
  unsetenv("KERASCNN_SHUFFLE_KERNELS");
  const std::vector<InstructionInfo> list = program->describe();
  size_t found = 0;
  for (const ArenaBuffer& buffer : program->memory()) {
    if (list[buffer.first].op != "preparation") continue;
    ++found;
    CHECK_EQUAL(buffer.bytes, kBytes);
    CHECK(buffer.last > buffer.first);
    CHECK_EQUAL(list[buffer.last].call->kernel, "difference");
  }
  CHECK_EQUAL(found, 3u);
  CHECK(program->to_string().find("negation -> 4000 bytes") != std::string::npos);
}

}  // namespace
}  // namespace kerascnn
