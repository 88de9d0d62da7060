// Kernels that are compiled while a program runs.
#include "core/backend/backend.h"
#include "core/backend/code_store.h"
#include "core/backend/compile_queue.h"
#include "core/backend/failed_source.h"
#include "core/base/warn.h"
#include "core/bindings/bindings.h"

namespace kerascnn::bindings {
namespace {

nb::dict compiled_kernels() {
  const CodeStore::State state = code_store().state();
  nb::dict result;
  result["folder"] = state.folder;
  result["max_bytes"] = state.max_bytes;
  result["num_kernels"] = state.num_kernels;
  result["bytes"] = state.bytes;
  result["problem"] = state.problem;
  return result;
}

const char* name_of(CompileState state) {
  switch (state) {
    case CompileState::Compiled:
      return "compiled";
    case CompileState::Refused:
      return "refused";
    case CompileState::Unavailable:
      return "unavailable";
  }
  return "";
}

nb::list compile_cuda(const std::vector<std::pair<std::string, std::string>>& sources,
                      const std::vector<std::string>& options, int compute_capability, bool wait) {
  std::vector<CompiledCode> all;
  {
    Unlocked released;
    std::vector<std::shared_ptr<Compilation>> begun;
    for (const auto& [source, function] : sources) {
      begun.push_back(start_cuda_compile(compute_capability, source, function, options));
    }
    for (size_t i = 0; wait && i < begun.size(); ++i) all.push_back(begun[i]->wait());
  }
  nb::list result;
  for (const CompiledCode& code : all) {
    nb::dict row;
    row["state"] = name_of(code.state);
    row["name"] = code.stored.name;
    row["code"] = nb::bytes(code.stored.code.data(), code.stored.code.size());
    row["log"] = code.log;
    row["is_from_disk"] = code.is_from_disk;
    result.append(row);
  }
  return result;
}

void show_warning(const std::string& text) {
  if (!can_release_objects()) return;  // the interpreter has ended
  nb::gil_scoped_acquire acquired;
  if (PyErr_WarnEx(PyExc_UserWarning, text.c_str(), 1) != 0) throw nb::python_error();
}

}  // namespace

void bind_compile(nb::module_& m) {
  set_warning_handler(show_warning);
  m.def("compiled_kernels", &compiled_kernels,
        nb::sig("def compiled_kernels() -> dict[str, typing.Any]"),
        "The folder with compiled kernels, how many and how many bytes there are and may be, and "
        "why nothing more is kept there, if so.");
  m.def("nvrtc_state", &nvrtc_state, "Its version, or why NVRTC can't compile CUDA C++ here.");
  m.def("compile_cuda", &compile_cuda, nb::arg("sources"), nb::arg("options"),
        nb::arg("compute_capability"), nb::arg("wait") = true,
        nb::sig("def compile_cuda(sources: collections.abc.Sequence[tuple[str, str]], options: "
                "collections.abc.Sequence[str], compute_capability: int, wait: bool = True) -> "
                "list[dict[str, typing.Any]]"),
        "The code of (source, function) pairs, as programs have them compiled, for a compute "
        "capability such as 90; nothing where nobody waits. No GPU is needed.");
  m.def("warn_of_failed_source", &warn_of_failed_source, nb::arg("what"), nb::arg("source"),
        nb::arg("log"),
        "What the core does where a kernel that it wrote does not compile: keeps the source for a "
        "report and warns.");
  m.def(
      "stop_compiling", [] { CompileQueue::shared().stop(); }, nb::call_guard<Unlocked>(),
      "Ends the threads that compile kernels. For the end of the interpreter.");
  nb::module_::import_("atexit").attr("register")(m.attr("stop_compiling"));
}

}  // namespace kerascnn::bindings
