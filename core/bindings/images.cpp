#include "core/bindings/bindings.h"
#include "core/bindings/host_array.h"
#include "core/images/resample.h"

namespace kerascnn::bindings {
namespace {

Tensor resample(nb::handle pixels, nb::handle row_indices, nb::handle row_shares,
                nb::handle column_indices, nb::handle column_shares) {
  const HostArray image(pixels), down(row_indices), down_shares(row_shares), across(column_indices),
      across_shares(column_shares);
  const Unlocked released;
  return resample_image(image.lent(), {down.lent(), down_shares.lent()},
                        {across.lent(), across_shares.lent()});
}

}  // namespace

void bind_images(nb::module_& m) {
  m.def("resample_image", &resample, nb::arg("pixels"), nb::arg("row_indices"),
        nb::arg("row_shares"), nb::arg("column_indices"), nb::arg("column_shares"),
        nb::sig("def resample_image(pixels: object, row_indices: object, row_shares: object, "
                "column_indices: object, column_shares: object) -> Tensor"),
        "An image (height, width, channels) of uint8 as float32 in another size: the pixels that "
        "each new row and column is made of, and their shares.");
}

}  // namespace kerascnn::bindings
