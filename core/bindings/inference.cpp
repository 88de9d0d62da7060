// The C++ interface for inference, for tests that compare it with the models that were exported.
#include "kerascnn/inference.h"

#include "core/bindings/bindings.h"
#include "core/bindings/host_array.h"

namespace kerascnn::bindings {
namespace {

std::vector<Tensor> predict(const Model& model, const std::vector<nb::object>& inputs,
                            int64_t batch_size) {
  std::vector<HostArray> arrays;
  std::vector<ArrayView> views;
  for (const nb::object& input : inputs) {
    const HostArray& array = arrays.emplace_back(input);
    views.emplace_back(array.data(), array.spec().dtype, array.spec().shape);
  }
  const Unlocked released;
  std::vector<Tensor> results;
  for (const Array& output : model.predict(views, batch_size)) {
    results.push_back(Tensor::from_host(output.data(), {output.dtype(), output.shape()}, Device{}));
  }
  return results;
}

nb::list specs_of(const std::vector<ArraySpec>& specs) {
  nb::list list;
  for (const ArraySpec& spec : specs) {
    list.append(nb::make_tuple(spec.name, dtype_name(spec.dtype), to_tuple(spec.shape)));
  }
  return list;
}

}  // namespace

void bind_inference(nb::module_& m) {
  nb::class_<Model>(m, "InferenceModel",
                    "What C++ makes of a model that was exported with its graph.")
      .def_static(
          "load",
          [](const std::string& path, const std::string& device) {
            const Unlocked released;
            return Model::load(path, device);
          },
          nb::arg("path"), nb::arg("device"))
      .def_prop_ro(
          "inputs", [](const Model& model) { return specs_of(model.inputs()); },
          nb::sig("def inputs(self) -> list[tuple[str, str, tuple[int, ...]]]"),
          "Name, dtype and shape of each, with -1 for open axes.")
      .def_prop_ro(
          "outputs", [](const Model& model) { return specs_of(model.outputs()); },
          nb::sig("def outputs(self) -> list[tuple[str, str, tuple[int, ...]]]"))
      .def_prop_ro("device", &Model::device)
      .def("predict", &predict, nb::arg("inputs"), nb::arg("batch_size") = 32,
           nb::sig("def predict(self, inputs: collections.abc.Sequence[object], batch_size: int = "
                   "32) -> list[Tensor]"),
           "An array for each output, from one for each input.");
}

}  // namespace kerascnn::bindings
