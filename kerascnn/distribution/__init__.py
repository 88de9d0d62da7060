"""Training one model in several processes: `keras.distribution`, see docs/distribution.md."""

from kerascnn.distribution.data_parallel import (
    DataParallel,
    LayoutMap,
    ModelParallel,
    TensorLayout,
    distribute_tensor,
    distribution,
    set_distribution,
)
from kerascnn.distribution.device_mesh import DeviceMesh, get_device_count, list_devices
from kerascnn.distribution.processes import initialize, num_processes, process_id

__all__ = [
    "DataParallel",
    "DeviceMesh",
    "LayoutMap",
    "ModelParallel",
    "TensorLayout",
    "distribute_tensor",
    "distribution",
    "get_device_count",
    "initialize",
    "list_devices",
    "num_processes",
    "process_id",
    "set_distribution",
]
