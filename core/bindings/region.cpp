#include "core/backend/regions/region_launch.h"
#include "core/bindings/bindings.h"

namespace kerascnn::bindings {
namespace {

RegionSource source_of(const BodyPtr& body, const std::string& kind, const Shape& domain,
                       int64_t columns, int max_width, int64_t outer) {
  Region region;
  region.kind = kind == "rows"      ? RegionKind::Rows
                : kind == "columns" ? RegionKind::Columns
                                    : RegionKind::Map;
  region.body = body;
  region.domain = domain;
  region.columns = columns;
  region.outer = outer;
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
      .def_ro("parts", &RegionSource::parts)
      .def_ro("lanes", &RegionSource::lanes)
      .def_ro("holds_row", &RegionSource::holds_row)
      .def_ro("cell_bytes", &RegionSource::cell_bytes)
      .def_ro("constants", &RegionSource::constants);
  nb::class_<RegionLaunch>(m, "RegionLaunch", "How many blocks run the kernel of a region.")
      .def_ro("blocks_x", &RegionLaunch::blocks_x)
      .def_ro("blocks_y", &RegionLaunch::blocks_y)
      .def_ro("lane_bits", &RegionLaunch::lane_bits)
      .def_ro("split_rows", &RegionLaunch::split_rows)
      .def("workspace_bytes", &RegionLaunch::workspace_bytes, nb::arg("source"),
           nb::arg("columns"));
  m.def("region_source", &source_of, nb::arg("body"), nb::arg("kind"), nb::arg("domain"),
        nb::arg("columns"), nb::arg("max_width") = 8, nb::arg("outer") = 1,
        "What is compiled on a GPU for a region of kind map, rows or columns with this body.");
  m.def("region_launch", &region_launch, nb::arg("source"), nb::arg("rows"), nb::arg("columns"),
        nb::arg("at_once"), "The blocks for it, where so many of them fit on the device at once.");
}

}  // namespace kerascnn::bindings
