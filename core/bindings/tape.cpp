#include "core/eager/tape.h"

#include "core/bindings/bindings.h"
#include "core/bindings/held_function.h"

namespace kerascnn::bindings {
namespace {

using Source = std::variant<VariablePtr, Tensor>;
using MaybeTensors = std::vector<std::optional<Tensor>>;

std::vector<Tensor> to_tensors(const MaybeTensors& values) {
  std::vector<Tensor> tensors;
  for (const auto& value : values) tensors.push_back(value.value_or(Tensor()));
  return tensors;
}

MaybeTensors from_tensors(const std::vector<Tensor>& tensors) {
  MaybeTensors values;
  for (const Tensor& tensor : tensors) {
    values.push_back(tensor.defined() ? std::optional(tensor) : std::nullopt);
  }
  return values;
}

MaybeTensors gradients(Tape& tape, const std::vector<Tensor>& targets,
                       const MaybeTensors& output_gradients, const std::vector<Source>& sources) {
  std::vector<TapeSource> ends;
  for (const Source& source : sources) {
    ends.push_back(std::visit([&](const auto& s) { return tape.source_of(s); }, source));
  }
  const std::vector<Tensor> seeds = to_tensors(output_gradients);
  Unlocked released;
  return from_tensors(tape.gradients(targets, seeds, ends));
}

// A Python function as the gradient of a call.
GradientOfCall gradient_by(nb::object function) {
  return [held = hold(std::move(function))](std::span<const Tensor> output_gradients) {
    nb::gil_scoped_acquire acquired;
    const std::vector<Tensor> given(output_gradients.begin(), output_gradients.end());
    return to_tensors(nb::cast<MaybeTensors>((*held)(from_tensors(given))));
  };
}

std::vector<Tensor> record_function(const std::string& name, const std::vector<Source>& inputs,
                                    const std::vector<Tensor>& outputs, nb::object gradient) {
  std::vector<TapeEdge> edges;
  std::vector<TensorSpec> specs;
  bool any = false;
  for (const Source& input : inputs) {
    const VariablePtr* variable = std::get_if<VariablePtr>(&input);
    const Tensor tensor = variable ? read_variable(*variable) : std::get<Tensor>(input);
    specs.push_back(tensor.spec());
    edges.push_back(is_tracked(tensor) ? tensor.edge() : TapeEdge{});
    any = any || edges.back().node != nullptr;
  }
  std::vector<Tensor> results;
  for (const Tensor& output : outputs) results.push_back(output.detached());
  if (!is_recording() || !any) return results;
  const auto node = std::make_shared<TapeFunction>(name, std::move(edges), std::move(specs),
                                                   outputs.size(), gradient_by(gradient));
  for (size_t i = 0; i < results.size(); ++i) {
    if (is_floating(results[i].dtype())) results[i].set_edge({node, static_cast<uint32_t>(i)});
  }
  return results;
}

// `with pause:`; recording goes on where it was when the block ends.
class PauseBlock {
 public:
  void enter() { pause_ = std::make_unique<RecordingPause>(); }
  void leave() {
    reads_ = pause_->reads();
    pause_.reset();
  }
  const std::vector<VariablePtr>& reads() const { return pause_ ? pause_->reads() : reads_; }

 private:
  std::unique_ptr<RecordingPause> pause_;
  std::vector<VariablePtr> reads_;
};

// The value with the edge of `like`, so that tapes follow it as they follow that.
Tensor saved_value(const SavedTensor& saved, const std::string& op, const Tensor& like) {
  Tensor value = saved.get(op);
  value.set_edge(like.edge());
  return value;
}

void bind_saved_tensor(nb::module_& m) {
  nb::class_<SavedTensor>(
      m, "SavedTensor",
      "A value as it is now, kept for a gradient: copied where others may write "
      "to it unseen.")
      .def(nb::init<const Tensor&>(), nb::arg("tensor"))
      .def("get", &saved_value, nb::arg("op"), nb::arg("like"),
           "The value, which tapes follow as `like`. Raises ValueError naming `op` where it was "
           "written to since.");
}

}  // namespace

void bind_tape(nb::module_& m) {
  bind_saved_tensor(m);
  nb::class_<Tape>(m, "Tape", nb::is_weak_referenceable(),
                   "Records calls of ops in this thread, for gradients.")
      .def(nb::new_([](bool persistent, bool watches_variables) {
             return std::make_shared<Tape>(persistent, watches_variables);
           }),
           nb::arg("persistent"), nb::arg("watches_variables"))
      .def("start", &Tape::start)
      .def("stop", &Tape::stop)
      .def("pause", &Tape::pause)
      .def("resume", &Tape::resume)
      .def("reset", &Tape::reset)
      .def_prop_ro("is_recording", &Tape::is_recording)
      .def("watch", nb::overload_cast<const VariablePtr&>(&Tape::watch), nb::arg("variable"))
      .def("watch", nb::overload_cast<Tensor&>(&Tape::watch), nb::arg("tensor"))
      .def("watched_variables", &Tape::watched_variables, nb::rv_policy::copy)
      .def("gradients", &gradients, nb::arg("targets"), nb::arg("output_gradients"),
           nb::arg("sources"));
  nb::class_<PauseBlock>(m, "RecordingPause", "A block in which no tape of this thread records.")
      .def(nb::init<>())
      .def(
          "__enter__",
          [](nb::handle self) {
            held_by<PauseBlock>(self, "__enter__").enter();
            return nb::borrow(self);
          },
          nb::sig("def __enter__(self) -> RecordingPause"))
      .def(
          "__exit__", [](PauseBlock& self, const nb::args&) { self.leave(); },
          nb::sig("def __exit__(self, *args: object) -> None"))
      .def_prop_ro("reads", &PauseBlock::reads, nb::rv_policy::copy,
                   "The trainable variables that were read in the block.");
  m.def("is_recording", [] { return is_recording(); }, "Does a tape of this thread record?");
  m.def("records_once", &records_once,
        "Is there one tape that records in this thread, and will it take gradients once?");
  m.def("watched_untrained", &watched_untrained,
        "The variables that are not trained, and that tapes which record in this thread watch.");
  m.def(
      "is_tracked", [](const Tensor& tensor) { return is_recording() && is_tracked(tensor); },
      nb::arg("tensor"), "Do the tapes of this thread follow the tensor?");
  m.def("record_function", &record_function, nb::arg("name"), nb::arg("inputs"), nb::arg("outputs"),
        nb::arg("gradient"),
        "Notes a call whose gradient `gradient` computes: from those of the outputs one for each "
        "input. Returns the outputs as tensors that tapes follow.");
}

}  // namespace kerascnn::bindings
