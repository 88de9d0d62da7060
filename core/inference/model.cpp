// The public interface, kerascnn/inference.h.
#include <algorithm>
#include <cstring>
#include <deque>
#include <list>
#include <mutex>
#include <new>
#include <set>
#include <utility>

#include "core/backend/backend.h"
#include "core/base/env.h"
#include "core/graph/program.h"
#include "core/inference/build_graph.h"
#include "core/inference/safetensors.h"
#include "kerascnn/inference.h"

namespace kerascnn {
namespace {

using inference::AxisSizes;
using inference::Extent;
using inference::ModelFile;
using inference::OpenSpec;

constexpr size_t kMaxPrograms = 16;
// Batches on a GPU whose results wait there while the next ones are enqueued.
constexpr size_t kMaxBatchesAhead = 4;

ArraySpec public_spec(const std::string& name, const OpenSpec& spec) {
  ArraySpec result{name, spec.dtype, {}};
  for (const Extent& size : spec.shape) {
    result.shape.push_back(size.is_open() ? kOpenSize : size.number);
  }
  return result;
}

// "(?, 28, 28, 1)"
std::string open_shape_string(const ArraySpec& spec) {
  std::string text = "(";
  for (const int64_t n : spec.shape) {
    text += (text.size() > 1 ? ", " : "") + (n == kOpenSize ? "?" : std::to_string(n));
  }
  return text + (spec.shape.size() == 1 ? ",)" : ")");
}

// Does a cast to `wanted` keep what a number is, up to rounding?
bool can_be_cast(DType given, DType wanted) {
  return given == wanted || is_floating(wanted) || (!is_floating(given) && wanted != DType::Bool);
}

// The memory that was lent, from a row on.
Tensor lent(const ArrayView& array, int64_t first_row, const TensorSpec& spec) {
  const int64_t row_bytes =
      spec.shape.empty() || spec.shape[0] == 0 ? 0 : num_bytes(spec) / spec.shape[0];
  char* const data = static_cast<char*>(const_cast<void*>(array.data())) + first_row * row_bytes;
  auto memory = std::make_shared<Storage>(data, num_bytes(spec), Device{}, std::function<void()>());
  return {std::move(memory), spec, contiguous_strides(spec.shape), 0, true};
}

}  // namespace

struct Model::Impl {
  struct CompiledSizes {
    AxisSizes sizes;
    std::vector<DType> dtypes;
    std::shared_ptr<Program> program;
  };

  Device device;
  ModelFile file;
  inference::Arrays arrays;
  std::vector<ArraySpec> inputs;
  std::vector<ArraySpec> outputs;
  int32_t batch_axis = -1;  // among the open axes; -1 where samples can't be taken apart
  bool allow_tf32 = true;

  std::mutex mutex;
  std::shared_ptr<ArenaMemory> arena;
  std::list<CompiledSizes> programs;  // the one used last first

  void describe();
  void read(inference::Safetensors& source);
  AxisSizes sizes_of(const std::vector<ArrayView>& given) const;
  Program& program_for(const AxisSizes& sizes, const std::vector<DType>& dtypes);
  std::vector<Array> predict(const std::vector<ArrayView>& given, int64_t batch_size);
};

// What is known of the file without its arrays.
void Model::Impl::describe() {
  for (size_t i = 0; i < file.input_names.size(); ++i) {
    inputs.push_back(public_spec(file.input_names[i], file.graph.inputs[i]));
  }
  for (size_t i = 0; i < file.output_names.size(); ++i) {
    outputs.push_back(public_spec(file.output_names[i], file.outputs[i]));
  }
  const auto found = std::find(file.axes.begin(), file.axes.end(), ModelFile::kBatch);
  if (found == file.axes.end()) return;
  const auto axis = static_cast<uint32_t>(found - file.axes.begin());
  const auto has_rows = [&](const OpenSpec& spec) {
    if (spec.shape.empty() || !spec.shape[0].is_axis(axis)) return false;
    return std::all_of(spec.shape.begin() + 1, spec.shape.end(), [&](const Extent& size) {
      return std::all_of(size.terms.begin(), size.terms.end(), [&](const Extent::Term& term) {
        return std::find(term.axes.begin(), term.axes.end(), axis) == term.axes.end();
      });
    });
  };
  if (std::all_of(file.graph.inputs.begin(), file.graph.inputs.end(), has_rows) &&
      std::all_of(file.outputs.begin(), file.outputs.end(), has_rows)) {
    batch_axis = static_cast<int32_t>(axis);
  }
}

// Reads what the graph needs of the arrays, each once.
void Model::Impl::read(inference::Safetensors& source) {
  using Kind = inference::Source::Kind;
  std::vector<const inference::GraphFile*> graphs = {&file.graph};
  while (!graphs.empty()) {
    const inference::GraphFile& graph = *graphs.back();
    graphs.pop_back();
    for (const inference::Source& each : graph.sources) {
      if (each.kind == Kind::Weight && !arrays.weights.contains(each.array)) {
        arrays.weights[each.array] =
            std::make_shared<Variable>(each.array, source.read(each.array).to(device));
      } else if ((each.kind == Kind::Constant || each.kind == Kind::Full) &&
                 !arrays.constants.contains(each.array)) {
        arrays.constants[each.array] = source.read(each.array);
      }
    }
    for (const inference::NodeFile& node : graph.nodes) {
      for (const auto& [name, attribute] : node.attributes) {
        const auto* bodies = std::get_if<inference::BodyFiles>(&attribute);
        if (bodies == nullptr) continue;
        for (const auto& body : *bodies) graphs.push_back(body.get());
      }
    }
  }
}

// The sizes of the open axes, from shapes that are checked.
AxisSizes Model::Impl::sizes_of(const std::vector<ArrayView>& given) const {
  if (given.size() != inputs.size()) {
    throw ValueError(message("predict: the model has ", inputs.size(), " inputs, received ",
                             given.size(), " arrays"));
  }
  AxisSizes sizes(file.axes.size(), kOpenSize);
  for (size_t i = 0; i < given.size(); ++i) {
    const ArrayView& array = given[i];
    const auto fail = [&](const std::string& what) {
      throw ValueError(message("predict: input \"", inputs[i].name, "\" has the shape ",
                               open_shape_string(inputs[i]), ", received ",
                               shape_string(array.shape()), what));
    };
    const std::vector<Extent>& shape = file.graph.inputs[i].shape;
    if (array.shape().size() != shape.size()) fail("");
    num_bytes({array.dtype(), array.shape()});  // throws for sizes that are negative or overflow
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      const int64_t size = array.shape()[axis];
      if (!shape[axis].is_open()) {
        if (size != shape[axis].number) fail("");
        continue;
      }
      int64_t& known = sizes[shape[axis].terms[0].axes[0]];
      if (known == kOpenSize) known = size;
      if (known != size) {
        fail(message("; its axis ", axis, " must have the size ", known,
                     ", as that of another has"));
      }
    }
    if (!can_be_cast(array.dtype(), inputs[i].dtype)) {
      throw TypeError(message("predict: input \"", inputs[i].name, "\" takes ",
                              dtype_name(inputs[i].dtype), ", received ", dtype_name(array.dtype()),
                              ", which a cast would change"));
    }
    if (array.data() == nullptr && num_elements(array.shape()) > 0) {
      throw ValueError(message("predict: input \"", inputs[i].name, "\" has no memory"));
    }
  }
  return sizes;
}

Program& Model::Impl::program_for(const AxisSizes& sizes, const std::vector<DType>& dtypes) {
  const auto found = std::find_if(programs.begin(), programs.end(), [&](const auto& each) {
    return each.sizes == sizes && each.dtypes == dtypes;
  });
  if (found != programs.end()) {
    programs.splice(programs.begin(), programs, found);
    return *programs.front().program;
  }
  const RootedGraph graph = inference::build_graph(file, sizes, dtypes, arrays);
  CompileOptions options;
  options.allow_tf32 = allow_tf32;
  options.is_function = true;
  options.arena = arena;
  auto program = Program::compile(graph.graph, graph.outputs, device, options);
  if (programs.size() == kMaxPrograms) programs.pop_back();
  programs.push_front({sizes, dtypes, std::move(program)});
  return *programs.front().program;
}

std::vector<Array> Model::Impl::predict(const std::vector<ArrayView>& given, int64_t batch_size) {
  if (batch_size < 1) {
    throw ValueError(message("predict: batch_size must be at least 1, received ", batch_size));
  }
  AxisSizes sizes = sizes_of(given);
  std::vector<DType> dtypes;
  for (const ArrayView& array : given) dtypes.push_back(array.dtype());
  const AxisSizes all = sizes;
  const bool has_samples = batch_axis >= 0;
  const int64_t count = has_samples ? sizes[batch_axis] : 1;
  const std::lock_guard lock(mutex);
  if (has_samples) sizes[batch_axis] = std::min(batch_size, count);
  if (count > 0) program_for(sizes, dtypes);  // finds out whether outputs are as the file says
  std::vector<Array> results;
  for (const OpenSpec& output : file.outputs) {
    results.emplace_back(output.dtype, inference::at(output.shape, all));
  }
  std::vector<char*> targets;
  for (Array& result : results) targets.push_back(static_cast<char*>(result.data()));
  std::deque<std::vector<Tensor>> waiting;
  const auto take_first = [&] {
    for (size_t i = 0; i < results.size(); ++i) {
      const Tensor& batch = waiting.front()[i];
      if (batch.bytes() > 0) batch.copy_to_host(targets[i]);
      targets[i] += batch.bytes();
    }
    waiting.pop_front();
  };
  const size_t most_ahead = device.type == DeviceType::Cpu ? 0 : kMaxBatchesAhead;
  for (int64_t first = 0; first < count;) {
    const int64_t rows = has_samples ? std::min(batch_size, count - first) : count;
    if (has_samples) sizes[batch_axis] = rows;
    Program& program = program_for(sizes, dtypes);
    std::vector<CallArgument> arguments;
    for (size_t i = 0; i < given.size(); ++i) {
      const TensorSpec spec{dtypes[i], inference::at(file.graph.inputs[i].shape, sizes)};
      arguments.push_back({lent(given[i], first, spec), true});
    }
    waiting.push_back(program.call(arguments));
    while (waiting.size() > most_ahead) take_first();
    first += rows;
  }
  while (!waiting.empty()) take_first();
  return results;
}

Model Model::load(const std::string& path, const std::string& device) {
  auto impl = std::make_shared<Impl>();
  impl->device = device_from_name(device);
  backend(impl->device);  // throws where it can't be used
  impl->arena = std::make_shared<ArenaMemory>(impl->device);
  impl->allow_tf32 = env_flag("KERASCNN_TF32", true);
  inference::Safetensors source(path);
  const std::string* graph = source.text("graph");
  if (graph == nullptr) {
    throw ValueError(message("\"", path,
                             "\" has no graph of what its model computes; write it with "
                             "model.export(path, include_graph=True) of kerascnn"));
  }
  try {
    impl->file = inference::parse_model(inference::parse_json(*graph));
    inference::check_graph(impl->file, source.specs());
  } catch (const OutOfMemoryError&) {
    throw;
  } catch (const Error& error) {
    throw ValueError(message("\"", path, "\": its graph can't be used: ", error.what()));
  }
  impl->describe();
  impl->read(source);
  return Model(std::move(impl));
}

const std::vector<ArraySpec>& Model::inputs() const { return impl_->inputs; }
const std::vector<ArraySpec>& Model::outputs() const { return impl_->outputs; }
std::string Model::device() const { return device_name(impl_->device); }

std::vector<Array> Model::predict(const std::vector<ArrayView>& inputs, int64_t batch_size) const {
  return impl_->predict(inputs, batch_size);
}

void ArrayView::check_count(int64_t count) const {
  if (num_elements(shape_) == count) return;
  throw ValueError(message("an array of the shape ", shape_string(shape_), " has ",
                           num_elements(shape_), " elements, received ", count));
}

Array::Array(DType dtype, std::vector<int64_t> shape) : dtype_(dtype), shape_(std::move(shape)) {
  const int64_t bytes = num_bytes({dtype_, shape_});
  try {
    memory_.resize(static_cast<size_t>(bytes));
  } catch (const std::exception&) {  // std::bad_alloc, std::length_error
    throw OutOfMemoryError(message("there is no memory for an array of ", bytes, " bytes"), bytes,
                           0, 0, 0);
  }
}

int64_t Array::size() const { return num_elements(shape_); }

void Array::check_dtype(DType wanted) const {
  if (wanted == dtype_) return;
  throw TypeError(message("the elements of this array are ", dtype_name(dtype_), ", and not ",
                          dtype_name(wanted)));
}

}  // namespace kerascnn
