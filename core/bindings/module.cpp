#include "core/bindings/bindings.h"

NB_MODULE(_core, m) {
  using namespace kerascnn::bindings;
  m.doc() = "The core of kerascnn: tensors, ops, traced graphs, compiled programs, devices.";
  bind_errors(m);
  bind_tensor(m);
  bind_dlpack(m);
  bind_cuda_array(m);
  bind_operators(m);
  bind_ops(m);
  bind_custom_op(m);
  bind_variable(m);
  bind_tape(m);
  bind_graph(m);
  bind_program(m);
  bind_replicas(m);
  bind_region(m);
  bind_device(m);
  bind_collectives(m);
  bind_compile(m);
  bind_upload(m);
  bind_images(m);
  bind_inference(m);
  bind_profile(m);
  bind_watch(m);
  bind_host_fft();
  bind_held_functions(m);
  bind_end();
}
