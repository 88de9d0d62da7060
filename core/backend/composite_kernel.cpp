#include "core/backend/composite_kernel.h"

#include <algorithm>
#include <array>

#include "core/base/error.h"

namespace kerascnn {
namespace {

constexpr int64_t kPartAlignment = 256;
// Of one op: so many that a run needs no memory for the lists.
constexpr size_t kMaxArguments = 8;

int64_t aligned(int64_t bytes) {
  return (bytes + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
}

std::vector<TensorSpec> specs_of(const std::vector<CompositePart>& parts) {
  std::vector<TensorSpec> specs;
  for (const CompositePart& part : parts) specs.push_back(part.spec);
  return specs;
}

}  // namespace

class CompositePlan::CompositeKernel final : public Kernel {
 public:
  CompositeKernel(std::vector<Step> steps, int64_t intermediate_bytes)
      : steps_(std::move(steps)), intermediate_bytes_(intermediate_bytes) {
    for (const Step& step : steps_) {
      shared_bytes_ = std::max(shared_bytes_, aligned(step.kernel->workspace_bytes()));
    }
  }

  void run(const KernelArgs& args) override {
    for (const Step& step : steps_) {
      std::array<const void*, kMaxArguments> inputs{};
      std::array<void*, kMaxArguments> outputs{};
      bool is_wanted = false;
      for (size_t i = 0; i < step.inputs.size(); ++i) inputs[i] = read(args, step.inputs[i]);
      for (size_t i = 0; i < step.outputs.size(); ++i) {
        outputs[i] = written(args, step.outputs[i]);
        is_wanted = is_wanted || outputs[i] != nullptr;
      }
      if (!is_wanted) continue;
      step.kernel->run({std::span(inputs).first(step.inputs.size()),
                        std::span(outputs).first(step.outputs.size()), args.workspace,
                        args.stream});
    }
  }

  int64_t workspace_bytes() const override { return shared_bytes_ + intermediate_bytes_; }

  bool keeps_state() const override {
    return std::any_of(steps_.begin(), steps_.end(),
                       [](const Step& step) { return step.kernel->keeps_state(); });
  }

  std::string description() const override {
    std::string all;
    for (const Step& step : steps_) {
      all += (all.empty() ? "" : " + ") + step.kernel->description();
    }
    return all;
  }

 private:
  void* in_workspace(const KernelArgs& args, const CompositePart& part) const {
    return static_cast<char*>(args.workspace) + shared_bytes_ + part.place;
  }

  const void* read(const KernelArgs& args, const CompositePart& part) const {
    return part.kind == CompositePart::Kind::Input ? args.inputs[static_cast<size_t>(part.place)]
                                                   : written(args, part);
  }

  // Null for an output that nobody reads, and where an op's optional output is left out.
  void* written(const KernelArgs& args, const CompositePart& part) const {
    if (part.kind == CompositePart::Kind::Output) {
      return args.outputs[static_cast<size_t>(part.place)];
    }
    return part.place < 0 ? nullptr : in_workspace(args, part);
  }

  std::vector<Step> steps_;
  int64_t intermediate_bytes_;
  int64_t shared_bytes_ = 0;
};

CompositePart CompositePlan::input(size_t index) const {
  return {CompositePart::Kind::Input, static_cast<int64_t>(index), request_.inputs[index]};
}

CompositePart CompositePlan::output(size_t index) const {
  return {CompositePart::Kind::Output, static_cast<int64_t>(index), request_.outputs[index]};
}

CompositePart CompositePlan::apply(std::string_view op, const Attributes& attributes,
                                   const std::vector<CompositePart>& inputs) {
  const std::vector<TensorSpec> specs = infer_outputs(find_op(op), attributes, specs_of(inputs));
  std::vector<CompositePart> outputs;
  for (const TensorSpec& spec : specs) {
    outputs.push_back({CompositePart::Kind::Workspace, -1, spec});
  }
  outputs[0].place = intermediate_bytes_;
  intermediate_bytes_ += aligned(num_bytes(specs[0]));
  plan(op, attributes, inputs, outputs, specs);
  return outputs[0];
}

void CompositePlan::apply_into(std::string_view op, const Attributes& attributes,
                               const std::vector<CompositePart>& inputs,
                               const std::vector<CompositePart>& outputs) {
  plan(op, attributes, inputs, outputs, specs_of(outputs));
}

void CompositePlan::plan(std::string_view op, const Attributes& attributes,
                         const std::vector<CompositePart>& inputs,
                         const std::vector<CompositePart>& outputs,
                         const std::vector<TensorSpec>& output_specs) {
  const auto row = std::find_if(table_.begin(), table_.end(),
                                [&](const KernelTableRow& each) { return each.op == op; });
  if (row == table_.end() || inputs.size() > kMaxArguments || outputs.size() > kMaxArguments) {
    throw ValueError(message(request_.op.name, ": ", op, " can't be a part of a composite kernel"));
  }
  const bool is_empty =
      std::all_of(output_specs.begin(), output_specs.end(),
                  [](const TensorSpec& spec) { return num_elements(spec.shape) == 0; });
  if (is_empty) return;
  const std::vector<TensorSpec> input_specs = specs_of(inputs);
  const PlanRequest request{find_op(op),  attributes,          input_specs,
                            output_specs, request_.allow_tf32, request_.autotune};
  steps_.push_back({row->plan(request), inputs, outputs});
  steps_.back().kernel->finish_planning();
}

std::unique_ptr<Kernel> CompositePlan::finish() {
  return std::make_unique<CompositeKernel>(std::move(steps_), intermediate_bytes_);
}

}  // namespace kerascnn
