#include "core/backend/regions/region_source.h"
#include "core/bindings/bindings.h"

namespace kerascnn::bindings {
namespace {

RegionSource source_of(const BodyPtr& body, const std::string& kind, const Shape& domain,
                       int64_t columns, int max_width) {
  Region region;
  region.kind = kind == "rows"      ? RegionKind::Rows
                : kind == "columns" ? RegionKind::Columns
                                    : RegionKind::Map;
  region.body = body;
  region.domain = domain;
  region.columns = columns;
  region.rows = num_elements(domain) / columns;
  std::vector<TensorSpec> inputs;
  for (const ValueId id : body->inputs) {
    inputs.push_back(id == kNoValue ? TensorSpec{} : body->graph->value(id).spec);
  }
  return region_source(region_code(region, inputs), max_width);
}

}  // namespace

void bind_region(nb::module_& m) {
  nb::class_<RegionSource>(m, "RegionSource",
                           "CUDA C++ for a region, and what a launch needs to know of it.")
      .def_ro("text", &RegionSource::text)
      .def_ro("by_column", &RegionSource::by_column)
      .def_ro("threads", &RegionSource::threads)
      .def_ro("width", &RegionSource::width)
      .def_ro("depth", &RegionSource::depth)
      .def_ro("lanes", &RegionSource::lanes)
      .def_ro("holds_row", &RegionSource::holds_row)
      .def_ro("num_cells", &RegionSource::num_cells)
      .def_ro("constants", &RegionSource::constants);
  m.def("region_source", &source_of, nb::arg("body"), nb::arg("kind"), nb::arg("domain"),
        nb::arg("columns"), nb::arg("max_width") = 8,
        "What is compiled on a GPU for a region of kind map, rows or columns with this body.");
}

}  // namespace kerascnn::bindings
