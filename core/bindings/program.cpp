#include "core/graph/program.h"

#include "core/bindings/bindings.h"
#include "core/bindings/graph.h"
#include "core/bindings/host_array.h"

namespace kerascnn::bindings {
namespace {

std::shared_ptr<Program> compile(const std::shared_ptr<Graph>& graph,
                                 const std::vector<GraphValue>& outputs, const std::string& device,
                                 bool optimize, bool allow_tf32, bool repeats, bool is_function,
                                 bool autotune, std::shared_ptr<ArenaMemory> arena, bool allocates,
                                 std::vector<std::pair<VariablePtr, VariablePtr>> stand_ins) {
  return Program::compile(*graph, ids_in(graph, outputs), device_from_name(device),
                          {.optimize = optimize,
                           .allow_tf32 = allow_tf32,
                           .repeats = repeats,
                           .is_function = is_function,
                           .autotune = autotune,
                           .arena = std::move(arena),
                           .allocates = allocates,
                           .stand_ins = std::move(stand_ins)});
}

std::vector<Tensor> call(Program& program, const std::vector<nb::object>& inputs) {
  std::vector<CallArgument> arguments;
  std::vector<HostArray> arrays;
  for (const nb::object& input : inputs) {
    if (nb::isinstance<Tensor>(input)) {
      arguments.push_back({nb::cast<const Tensor&>(input)});
    } else {
      arguments.push_back({arrays.emplace_back(input).lent(), true});
    }
  }
  Unlocked released;
  return program.call(arguments);
}

nb::dict stats(const Program& program) {
  const ProgramStats stats = program.stats();
  nb::dict result;
  result["arena_bytes"] = stats.arena_bytes;
  result["least_arena_bytes"] = stats.least_arena_bytes;
  result["output_bytes"] = stats.output_bytes;
  result["num_arenas"] = stats.num_arenas;
  result["constant_bytes"] = stats.constant_bytes;
  result["num_instructions"] = stats.num_instructions;
  result["longest_chain"] = stats.longest_chain;
  result["num_nodes_traced"] = stats.num_nodes_traced;
  return result;
}

nb::list describe(const Program& program) {
  nb::list result;
  for (const InstructionInfo& info : program.describe()) {
    nb::dict attributes;
    for (const auto& [name, value] : info.attributes.entries()) {
      attributes[nb::cast(name)] = nb::cast(value);
    }
    nb::dict row;
    const CallInfo& call = *info.call;
    row["label"] = call.label;
    row["phase"] = call.scope.phase();
    row["layer"] = call.scope.path;
    row["kernel"] = call.kernel;
    row["op"] = info.op;
    row["flop"] = call.flop;
    row["bytes"] = call.bytes;
    row["memory_bytes"] = call.memory_bytes;
    row["attributes"] = attributes;
    row["inputs"] = spec_list(info.inputs);
    row["outputs"] = spec_list(info.outputs);
    result.append(row);
  }
  return result;
}

nb::list memory(const Program& program) {
  nb::list result;
  for (const ArenaBuffer& buffer : program.memory()) {
    nb::dict row;
    row["offset"] = buffer.offset;
    row["bytes"] = buffer.bytes;
    row["first"] = buffer.first;
    row["last"] = buffer.last;
    row["label"] = buffer.call->label;
    row["phase"] = buffer.call->scope.phase();
    row["layer"] = buffer.call->scope.path;
    row["op"] = buffer.call->op;
    row["is_workspace"] = buffer.is_workspace;
    row["dtype"] = buffer.is_workspace ? "uint8" : dtype_name(buffer.spec.dtype);
    row["shape"] = to_tuple(buffer.is_workspace ? Shape{buffer.bytes} : buffer.spec.shape);
    result.append(row);
  }
  return result;
}

}  // namespace

void bind_program(nb::module_& m) {
  nb::class_<ArenaMemory>(m, "ArenaMemory",
                          "Memory for intermediate results, which programs use that take turns.")
      .def(
          "__init__",
          [](ArenaMemory* self, const std::string& device) {
            new (self) ArenaMemory(device_from_name(device));
          },
          nb::arg("device"))
      .def_prop_ro("bytes", &ArenaMemory::bytes, "What is allocated at this moment.");
  nb::class_<Program>(m, "Program", nb::is_weak_referenceable(),
                      "A graph made ready to run on one device.")
      .def_static(
          "compile", &compile, nb::arg("graph"), nb::arg("outputs"), nb::arg("device"),
          nb::arg("optimize") = true, nb::arg("allow_tf32") = true, nb::arg("repeats") = true,
          nb::arg("is_function") = false, nb::arg("autotune") = false,
          nb::arg("arena").none() = nb::none(), nb::arg("allocates") = true,
          nb::arg("stand_ins") = nb::list(),
          "`repeats`: whether runs will have several steps, which may then run side by "
          "side. `is_function`: it is for `call`. `autotune`: kernels may be timed, to take the "
          "fastest. `arena`: the memory of programs that it takes turns with. Without `allocates` "
          "the first run allocates the memory. `stand_ins`: variables, and what the program reads "
          "and writes in place of each.")
      .def("run", &Program::run, nb::arg("inputs"), nb::arg("steps") = 1, nb::arg("later") = false,
           nb::call_guard<Unlocked>(),
           "Runs `steps` steps with these inputs, in the order in which they were declared. With "
           "`later` they may be started together with those of further runs.")
      .def("call", &call, nb::arg("inputs"),
           nb::sig("def call(self, inputs: collections.abc.Sequence[Tensor | numpy.ndarray]) -> "
                   "list[Tensor]"),
           "One step as a function of tensors and of arrays on the host, which are copied: results "
           "of its own. On a GPU calls may be started together with those that follow.")
      .def("release_inputs", &Program::release_inputs, nb::call_guard<Unlocked>(),
           "Lets go of the inputs of the last run, whose memory others may then use after its "
           "steps. They are kept until the next run otherwise.")
      .def("outputs", &Program::outputs, "The last step's results, overwritten by the next run.")
      .def_prop_ro("device", [](const Program& p) { return device_name(p.device()); })
      .def("stats", &stats, nb::sig("def stats(self) -> dict[str, int]"))
      .def("describe", &describe, nb::sig("def describe(self) -> list[dict[str, typing.Any]]"),
           "The kernel calls of a step: label, phase, layer, kernel, op, what it computes, moves "
           "and writes, attributes, and inputs and outputs as (dtype, shape).")
      .def("memory", &memory, nb::sig("def memory(self) -> list[dict[str, typing.Any]]"),
           "What lies in a step's arena: offset, bytes, the calls from which to which it is "
           "needed, label, phase, layer and op of the call that writes it, whether that is its "
           "workspace, dtype and shape.")
      .def_prop_ro("states", &Program::states, nb::rv_policy::copy,
                   "The variables that a step reads or writes.")
      .def("dependencies", &Program::dependencies, nb::arg("repeats") = 1,
           "For each kernel call of so many steps in a row, which ones it waits for; of at most "
           "2**20 calls, or of one step.")
      .def("time_instructions", &Program::time_instructions, nb::arg("inputs"), nb::arg("passes"),
           nb::arg("repeats"), nb::call_guard<Unlocked>(),
           "Seconds of each kernel call, run by itself `repeats` times in a row; a row for each "
           "pass. The first pass warms up. Variables keep their values.")
      .def("to_string", &Program::to_string);
}

}  // namespace kerascnn::bindings
