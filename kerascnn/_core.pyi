"""
The core of kerascnn: tensors, ops, traced graphs, compiled programs, devices.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

import numpy
from numpy import ndarray as NDArray


class DeviceError(RuntimeError):
    """
    A device that is missing, failed, or is mixed with another; or a failed call into a library.
    """

class OutOfMemoryError(MemoryError):
    """Memory ran out. The sizes are in bytes."""

    requested: int = 0

    allocated: int = 0

    cached: int = 0

    free: int = 0

class Tensor:
    """An array on one device. Its dtype and shape are fixed."""

    def __add__(self, value, /):
        """Return self+value."""

    def __radd__(self, value, /):
        """Return value+self."""

    def __sub__(self, value, /):
        """Return self-value."""

    def __rsub__(self, value, /):
        """Return value-self."""

    def __mul__(self, value, /):
        """Return self*value."""

    def __rmul__(self, value, /):
        """Return value*self."""

    def __neg__(self, /):
        """-self"""

    def __abs__(self, /):
        """abs(self)"""

    def __truediv__(self, value, /):
        """Return self/value."""

    def __rtruediv__(self, value, /):
        """Return value/self."""

    def __matmul__(self, value, /):
        """Return self@value."""

    def __rmatmul__(self, value, /):
        """Return value@self."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def strides(self) -> tuple[int, ...]:
        """In elements."""

    @property
    def dtype(self) -> str: ...

    @property
    def device(self) -> str: ...

    @property
    def size(self) -> int: ...

    @property
    def ndim(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def address(self) -> int:
        """Where the first element is in its device's memory."""

    @property
    def is_contiguous(self) -> bool: ...

    @property
    def read_only(self) -> bool: ...

    def numpy(self) -> NDArray:
        """
        The values as a NumPy array: this memory itself on a CPU, a copy from a GPU.
        """

    def __array__(self, dtype: object = None, copy: bool | None = None) -> NDArray: ...

    def to(self, device: str) -> Tensor:
        """This tensor where it is there already, else a copy."""

    def piece(self, shape: Sequence[int], dtype: str, offset: int) -> Tensor:
        """
        A piece of this contiguous memory, from a byte on, as another dtype and shape.
        """

    def copy(self) -> Tensor:
        """The same values in contiguous memory of their own."""

    def fill_zero(self) -> None:
        """Sets every bit to 0, in the order of other work."""

    def contiguous(self) -> Tensor:
        """This tensor where it is contiguous, else a copy."""

    def reshape(self, shape: Sequence[int]) -> Tensor:
        """
        Shares the memory where this tensor is contiguous. One extent may be -1.
        """

    def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None, dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> object: ...

    def __dlpack_device__(self) -> tuple[int, int]: ...

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...

def from_numpy(array: object, device: str) -> Tensor:
    """Copies an array (or what numpy.asarray takes) to a device."""

def copies_on_host(tensors: Sequence[Tensor], patience: float = 5e-05) -> list[numpy.ndarray]:
    """
    Copies of tensors as NumPy arrays, with one wait for their device: for `patience` seconds by looking again and again, then asleep.
    """

def empty(shape: Sequence[int], dtype: str, device: str) -> Tensor: ...

def zeros(shape: Sequence[int], dtype: str, device: str) -> Tensor: ...

def from_dlpack(array: object, *, device: str | None = None, copy: bool | None = None) -> Tensor:
    """
    Shares the memory of another library's array (anything with __dlpack__, or a fresh capsule).
    """

def from_cuda_array(array: object) -> Tensor:
    """
    Shares the memory of another library's array on a GPU, by its __cuda_array_interface__.
    """

def at_once(op: str) -> Callable[..., Any]:
    """
    A function that runs one op on tensors without any conversion, and returns NotImplemented for arguments that need one.
    """

def set_fallback(op: str, function: Callable[..., Any]) -> None:
    """
    What an operator of tensors calls where its operands need a conversion.
    """

def set_variable_type(type: object) -> None:
    """
    The class whose instances operators read as the tensor in their attribute `core`.
    """

def enter_scope() -> None:
    """
    From here on every operator takes the long way, where traces and casts are known.
    """

def leave_scope() -> None: ...

def apply(op: str, inputs: Sequence[Tensor], attrs: Mapping[str, bool | int | float | str | Sequence[int] | Sequence[float] | Sequence[Body]] = {}) -> list[Tensor]:
    """Runs one op at once."""

def op_names() -> list[str]: ...

def fusion_names(device: str) -> list[str]:
    """
    The kernels for several nodes that a device has, in the order in which they take nodes.
    """

def op_info(name: str) -> dict[str, Any]:
    """
    Facts about an op: its gradient (or why there is none) and which devices have a kernel.
    """

def set_allow_tf32(allowed: bool) -> None:
    """
    May ops that run at once use TF32 on a GPU? Programs are told when they are compiled.
    """

def allow_tf32() -> bool: ...

def define_op(name: str, inputs: Sequence[str], outputs: Sequence[str], dtypes: Sequence[Sequence[str]], elementwise: bool, num_differentiated: int = 0, cuda: tuple[str, str, str, object] | None = None, cpp: tuple[str, str, str, object] | None = None, infer: object | None = None, run: object | None = None, gradient: str = '', increasing: bool = False) -> str:
    """
    Defines an op, and returns what the attribute "op" of custom_op names it by. Sources are (text, function, label, launch); `infer(inputs)`, `launch(inputs, outputs)` and `run(tensors, outputs)` take lists of (dtype, shape).
    """

def op_cuda_source(key: str, inputs: Sequence[tuple[str, Sequence[int]]]) -> str:
    """The CUDA C++ that is compiled for inputs of these (dtype, shape)."""

def forget_op_functions() -> None:
    """Lets go of the functions of all defined ops, as the process ends."""

class Variable:
    """Named state whose memory stays in place: programs update it there."""

    def __init__(self, name: str, value: Tensor) -> None:
        """Starts from a copy of `value`."""

    @property
    def name(self) -> str: ...

    @property
    def value(self) -> Tensor:
        """Shares the variable's memory."""

    @property
    def trainable(self) -> bool:
        """Do tapes watch it when it is read?"""

    @trainable.setter
    def trainable(self, arg: bool, /) -> None: ...

    @property
    def version(self) -> int:
        """How often it was written to."""

    @property
    def dtype(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def device(self) -> str: ...

    def assign(self, value: Tensor) -> None:
        """
        Copies a tensor of the same shape and dtype, from any device, into place.
        """

class SavedTensor:
    """
    A value as it is now, kept for a gradient: copied where others may write to it unseen.
    """

    def __init__(self, tensor: Tensor) -> None: ...

    def get(self, op: str, like: Tensor) -> Tensor:
        """
        The value, which tapes follow as `like`. Raises ValueError naming `op` where it was written to since.
        """

class Tape:
    """Records calls of ops in this thread, for gradients."""

    def __init__(self, persistent: bool, watches_variables: bool) -> None: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def reset(self) -> None: ...

    @property
    def is_recording(self) -> bool: ...

    @overload
    def watch(self, variable: Variable) -> None: ...

    @overload
    def watch(self, tensor: Tensor) -> None: ...

    def watched_variables(self) -> list[Variable]: ...

    def gradients(self, targets: Sequence[Tensor], output_gradients: Sequence[Tensor | None], sources: Sequence[Variable | Tensor]) -> list[Tensor | None]: ...

class RecordingPause:
    """A block in which no tape of this thread records."""

    def __init__(self) -> None: ...

    def __enter__(self) -> RecordingPause: ...

    def __exit__(self, *args: object) -> None: ...

    @property
    def reads(self) -> list[Variable]:
        """The trainable variables that were read in the block."""

def is_recording() -> bool:
    """Does a tape of this thread record?"""

def records_once() -> bool:
    """
    Is there one tape that records in this thread, and will it take gradients once?
    """

def watched_untrained() -> list[Variable]:
    """
    The variables that are not trained, and that tapes which record in this thread watch.
    """

def is_tracked(tensor: Tensor) -> bool:
    """Do the tapes of this thread follow the tensor?"""

def record_function(name: str, inputs: Sequence[Variable | Tensor], outputs: Sequence[Tensor], gradient: object) -> list[Tensor]:
    """
    Notes a call whose gradient `gradient` computes: from those of the outputs one for each input. Returns the outputs as tensors that tapes follow.
    """

class Graph:
    """A traced computation."""

    def __init__(self, parent: Graph | None = None) -> None:
        """With a parent: of a body, which may read the parent's values."""

    def bind(self, variable: Variable, outer: int) -> None:
        """
        From now on this value of the parent is the variable's before the body.
        """

    def knows(self, variable: Variable) -> bool: ...

    @property
    def captured(self) -> list[tuple[int, Value]]:
        """What inputs of a body stand for: the number of the parent's value."""

    @property
    def bound_states(self) -> list[tuple[Variable, int, Value, Value]]:
        """
        Of a body, for each variable: the number of the parent's value, the input that stands for it, and the value at the end.
        """

    def input(self, name: str, shape: Sequence[int], dtype: str) -> Value: ...

    def constant(self, value: Tensor) -> Value: ...

    def full(self, shape: Sequence[int], dtype: str, value: float) -> Value: ...

    def apply(self, op: str, inputs: Sequence[Value], attrs: Mapping[str, bool | int | float | str | Sequence[int] | Sequence[float] | Sequence[Body]] = {}) -> list[Value]: ...

    def read(self, variable: Variable) -> Value:
        """The variable's value at this point of the trace."""

    def inside(self, value: Value) -> Value:
        """
        The value itself; of a value of a graph around, the input of this body that stands for it.
        """

    def reading(self, variable: Variable) -> Value:
        """
        The same as a value of its own, which gradients can be taken by and end at.
        """

    def variable_of(self, value: Value) -> Variable | None:
        """The variable that the value is a reading of, or None."""

    def assign(self, variable: Variable, value: Value) -> None:
        """Written to the variable when the step ends."""

    def gradients(self, loss: Value, wrt: Sequence[Value]) -> list[Value | None]:
        """
        d loss / d value for each of `wrt`; None where the loss does not depend on it.
        """

    def gradients_of(self, targets: Sequence[Value], output_gradients: Sequence[Value | None], sources: Sequence[Sequence[Value]], spans: Sequence[tuple[int, int]], watched: Sequence[tuple[Value, int]]) -> list[Value | None]:
        """
        The gradient by each source, a list of values, of several targets of any shape with their gradients, None for ones. It goes through the calls in `spans`, pairs of `num_values` before and after them, whose inputs follow from `watched`, pairs of a value and the `num_values` from which on it is followed.
        """

    def with_own_gradient(self, inputs: Sequence[Value], outputs: Sequence[Value], gradient: Callable) -> list[Value | None]:
        """
        The outputs again; `gradient` makes gradients of the inputs from theirs.
        """

    def cut_from(self, first_node: int, outputs: Sequence[Value | None]) -> tuple[Graph, list[Value | None], list[Value | None]]:
        """
        A graph of what the outputs need of the nodes from `first_node` on, the values of this graph that are its inputs, and the outputs in it.
        """

    def forget_own_gradients(self) -> None: ...

    def copy(self) -> Graph: ...

    def value(self, id: int) -> Value: ...

    @property
    def num_values(self) -> int: ...

    @property
    def num_nodes(self) -> int: ...

    def push_scope(self, name: str) -> None: ...

    def pop_scope(self) -> None: ...

    @property
    def in_scope(self) -> bool: ...

    @property
    def phase(self) -> str:
        """
        The part of a step that nodes to come belong to: forward, backward or update.
        """

    @phase.setter
    def phase(self, arg: str, /) -> None: ...

    @property
    def states(self) -> list[Variable]:
        """The variables that are read or assigned."""

    @property
    def nodes(self) -> list[tuple[str, dict[str, Any], list[int], list[int], str]]:
        """The calls in order: op, attributes, inputs, outputs, layer."""

    def origin(self, value: Value) -> tuple[str, Any]:
        """
        Where a value comes from: ("input", number), ("state", variable), ("constant", tensor) or ("result", number of the call).
        """

    def alias(self, value: Value) -> int | None:
        """
        The number of the value that a reading of a variable is equal to, or None.
        """

    def to_string(self) -> str: ...

class Value:
    """A value of a traced computation, with static shape and dtype."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> str: ...

    @property
    def ndim(self) -> int: ...

    @property
    def graph(self) -> Graph: ...

    @property
    def id(self) -> int: ...

class Body:
    """A graph that a node owns, with the inputs that it is given."""

    def __init__(self, graph: Graph, inputs: Sequence[Value | None], outputs: Sequence[Value]) -> None: ...

    @property
    def graph(self) -> Graph: ...

    @property
    def inputs(self) -> list[int]:
        """
        Which values of the graph the node's stand for, -1 for one that is not read.
        """

    @property
    def outputs(self) -> list[int]: ...

    def to_string(self) -> str: ...

class ArenaMemory:
    """Memory for intermediate results, which programs use that take turns."""

    def __init__(self, device: str) -> None: ...

    @property
    def bytes(self) -> int:
        """What is allocated at this moment."""

class Program:
    """A graph made ready to run on one device."""

    @staticmethod
    def compile(graph: Graph, outputs: Sequence[Value], device: str, optimize: bool = True, allow_tf32: bool = True, repeats: bool = True, is_function: bool = False, autotune: bool = False, arena: ArenaMemory | None = None, allocates: bool = True, stand_ins: Sequence[tuple[Variable, Variable]] = []) -> Program:
        """
        `repeats`: whether runs will have several steps, which may then run side by side. `is_function`: it is for `call`. `autotune`: kernels may be timed, to take the fastest. `arena`: the memory of programs that it takes turns with. Without `allocates` the first run allocates the memory. `stand_ins`: variables, and what the program reads and writes in place of each.
        """

    def run(self, inputs: Sequence[Tensor], steps: int = 1, later: bool = False) -> None:
        """
        Runs `steps` steps with these inputs, in the order in which they were declared. With `later` they may be started together with those of further runs.
        """

    def call(self, inputs: Sequence[Tensor | numpy.ndarray]) -> list[Tensor]:
        """
        One step as a function of tensors and of arrays on the host, which are copied: results of its own. On a GPU calls may be started together with those that follow.
        """

    def release_inputs(self) -> None:
        """
        Lets go of the inputs of the last run, whose memory others may then use after its steps. They are kept until the next run otherwise.
        """

    def outputs(self) -> list[Tensor]:
        """The last step's results, overwritten by the next run."""

    @property
    def device(self) -> str: ...

    def stats(self) -> dict[str, int]: ...

    def describe(self) -> list[dict[str, Any]]:
        """
        The kernel calls of a step: label, phase, layer, kernel, op, what it computes, moves and writes, attributes, and inputs and outputs as (dtype, shape).
        """

    def memory(self) -> list[dict[str, Any]]:
        """
        What lies in a step's arena: offset, bytes, the calls from which to which it is needed, label, phase, layer and op of the call that writes it, whether that is its workspace, dtype and shape.
        """

    @property
    def states(self) -> list[Variable]:
        """The variables that a step reads or writes."""

    def dependencies(self, repeats: int = 1) -> list[list[int]]:
        """
        For each kernel call of so many steps in a row, which ones it waits for; of at most 2**20 calls, or of one step.
        """

    def time_instructions(self, inputs: Sequence[Tensor], passes: int, repeats: int) -> list[list[float]]:
        """
        Seconds of each kernel call, run by itself `repeats` times in a row; a row for each pass. The first pass warms up. Variables keep their values.
        """

    def to_string(self) -> str: ...

class Mirror:
    """
    What stands on other devices for a variable of the first one, and follows what is assigned to it.
    """

    def __init__(self, others: Sequence[Variable], adds_up: bool) -> None:
        """
        With `adds_up` the values are parts of a sum: the others follow by zeros.
        """

    @property
    def others(self) -> list[Variable]: ...

    def refresh(self, first: Variable) -> None:
        """
        Brings the others up to date where the first one was written to since `settle`.
        """

    def settle(self, first: Variable) -> None:
        """All devices hold now what they are to hold."""

class Replicas:
    """Devices of this process that compute one step together."""

    def __init__(self, devices: Sequence[str], names: Sequence[str]) -> None:
        """`names` are what errors call them."""

    @property
    def size(self) -> int: ...

class AsReplica:
    """A block whose kernels are planned for one of the devices."""

    def __init__(self, replicas: Replicas, replica: int) -> None: ...

    def __enter__(self) -> object: ...

    def __exit__(self, *args) -> None: ...

class ReplicatedProgram:
    """A step on several devices, a program for each."""

    def __init__(self, replicas: Replicas, programs: Sequence[Program], firsts: Sequence[Variable], mirrors: Sequence[Mirror]) -> None:
        """
        `firsts`: the variables of the first program that have one of the `mirrors`.
        """

    def run(self, inputs: Sequence[Sequence[Tensor]], steps: int = 1) -> None:
        """
        Runs `steps` steps of all programs at the same time, each with its own inputs.
        """

class RegionSource:
    """CUDA C++ for a region, and what a launch needs to know of it."""

    @property
    def text(self) -> str: ...

    @property
    def by_column(self) -> bool: ...

    @property
    def threads(self) -> int: ...

    @property
    def width(self) -> int: ...

    @property
    def depth(self) -> int: ...

    @property
    def parts(self) -> int: ...

    @property
    def lanes(self) -> int: ...

    @property
    def holds_row(self) -> bool: ...

    @property
    def cell_bytes(self) -> int: ...

    @property
    def constants(self) -> list[int]: ...

class RegionLaunch:
    """How many blocks run the kernel of a region."""

    @property
    def blocks_x(self) -> int: ...

    @property
    def blocks_y(self) -> int: ...

    @property
    def lane_bits(self) -> int: ...

    @property
    def split_rows(self) -> int: ...

    def workspace_bytes(self, source: RegionSource, columns: int) -> int: ...

def region_source(body: Body, kind: str, domain: Sequence[int], columns: int, max_width: int = 8, outer: int = 1) -> RegionSource:
    """
    What is compiled on a GPU for a region of kind map, rows or columns with this body.
    """

def region_launch(source: RegionSource, rows: int, columns: int, at_once: int) -> RegionLaunch:
    """The blocks for it, where so many of them fit on the device at once."""

def list_devices() -> list[tuple[str, bool, str]]:
    """
    (name, usable, description or reason) of the CPU and every GPU. Looks for GPUs.
    """

def synchronize(device: str, patience: float = 5e-05) -> None:
    """
    Waits until all work on the device is done: for `patience` seconds by looking again and again, then asleep.
    """

def memory_stats(device: str) -> dict[str, int]:
    """
    Bytes allocated, cached, peak and available, and the number of allocations.
    """

def reset_peak_memory(device: str) -> None: ...

def release_cached(device: str) -> None:
    """Gives unused cached memory back to the system."""

def launch_stats(device: str) -> dict[str, int]:
    """
    Kernels and graphs launched by the host, and graphs captured, since the process began.
    """

def kernel_choices() -> list[dict[str, Any]]:
    """What was found by timing kernels, by this process or by one before."""

def set_cuda_library_folder(folder: str) -> None:
    """
    Where the CUDA backend is looked for if it is not beside the core. Loads nothing.
    """

def build_info() -> dict[str, str]: ...

def cuda_versions() -> str:
    """
    Versions of the CUDA libraries in use; empty where the CUDA backend can't be loaded.
    """

def set_collectives(name: str, rank: int, processes: int, exchange: object, gather: object) -> None:
    """
    Sets the functions by which kernels exchange bytes with other processes, called with two addresses and the bytes of a block. `exchange`: block i of the first goes to process i, and block i of the second comes from it. `gather`: the first goes to all processes.
    """

def clear_collectives() -> None:
    """Takes them away: this process is alone again."""

def open_nccl(library: str) -> str:
    """
    Opens NCCL, a file or a name that the system finds, and returns its version.
    """

def make_nccl_id() -> bytes:
    """What the first process makes and gives to all."""

def gpu_uuid(device: int) -> str:
    """A name that no other GPU has."""

def join_nccl(device: int, id: bytes, rank: int, processes: int, patience: float) -> None:
    """
    Connects the GPU with those of the other processes, all of which call this, and sums something over them once. Waits for so many seconds.
    """

def gpu_meetings() -> dict[str, Any]:
    """
    How many sums over processes were started on the GPU and how many have ended, for how many seconds none of those under way has, what NCCL has found wrong, and whether anybody was told that they were given up.
    """

def give_up_gpus(reason: str) -> None:
    """
    Ends sums that wait for other processes: whoever waits for the GPU or uses it from now on gets a DeviceError with this reason.
    """

def compiled_kernels() -> dict[str, Any]:
    """
    The folder with compiled kernels, how many and how many bytes there are and may be, and why nothing more is kept there, if so.
    """

def nvrtc_state() -> str:
    """Its version, or why NVRTC can't compile CUDA C++ here."""

def compile_cuda(sources: Sequence[tuple[str, str]], options: Sequence[str], compute_capability: int, wait: bool = True) -> list[dict[str, Any]]:
    """
    The code of (source, function) pairs, as programs have them compiled, for a compute capability such as 90; nothing where nobody waits. No GPU is needed.
    """

def warn_of_failed_source(what: str, source: str, log: str) -> None:
    """
    What the core does where a kernel that it wrote does not compile: keeps the source for a report and warns.
    """

def stop_compiling() -> None:
    """Ends the threads that compile kernels. For the end of the interpreter."""

class Fence:
    """A point in what a device has to do."""

    def __init__(self, device: str) -> None: ...

    def record(self) -> None:
        """Puts it behind all work that is enqueued now."""

    def passed(self) -> bool:
        """Whether the device is past it."""

    def wait(self) -> None:
        """Waits until the device is past it."""

class Upload:
    """Copies of rows to a device, beside its work on those that came before."""

    def __init__(self, device: str) -> None: ...

    def send(self, targets: Sequence[Tensor], sources: Sequence[Tensor], first: int, count: int) -> None:
        """
        Enqueues copies of `count` rows from `first` on of each source on the host. The rows of the sources must stay as they are until `sent`.
        """

    def mark_used(self) -> None:
        """The work enqueued so far is the last that reads what was sent."""

    def sent(self) -> bool:
        """Whether every copy is done."""

    def wait(self) -> None:
        """Waits until every copy is done."""

class PieceUpload:
    """
    Pieces of arrays on their way to a device: threads copy them to `sources`, page-locked memory, and from there to the same rows of `targets`.
    """

    def __init__(self, device: str, targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None: ...

    def start(self, arrays: Sequence[object], first: int) -> None:
        """
        Begins to bring all rows of the contiguous arrays to the rows of the targets from `first` on. The arrays must stay as they are until the piece has arrived.
        """

    def arrive(self) -> None:
        """
        Of the pieces that have not arrived, that which was started first: returns when its arrays were read. Steps that are run from now on find its rows.
        """

    def mark_used(self) -> None:
        """
        The work enqueued so far is the last that reads the pieces that have arrived.
        """

    def cancel(self) -> None:
        """Gives up what has not arrived; nothing reads the arrays any more."""

def empty_for_upload(shape: Sequence[int], dtype: str, device: str) -> Tensor:
    """
    Memory on the host to upload to `device` from: page-locked where that is a GPU.
    """

def resample_image(pixels: object, row_indices: object, row_shares: object, column_indices: object, column_shares: object) -> Tensor:
    """
    An image (height, width, channels) of uint8 as float32 in another size: the pixels that each new row and column is made of, and their shares.
    """

class JpegReader:
    """
    Reads, decodes and resizes JPEG files, by the libjpeg of a loaded library, for batches of images of one size.
    """

    def __init__(self, user: str, height: int, width: int, small: int, expansion: int) -> None:
        """
        ValueError where the library `user`, a path, calls no libjpeg that is known. Files that unpack to more than `small` bytes and `expansion` times their own are left.
        """

    def add_plan(self, size: tuple[int, int], denominator: int, row_indices: object, row_shares: object, column_indices: object, column_shares: object) -> None:
        """
        How files of a size (height, width) are resized, after they are decoded at a part of it.
        """

    def read(self, files: Sequence[bytes | tuple[bytes, int, int, int]], images: object, channels_first: bool, most_pixels: int) -> list[bool | tuple[int, int]]:
        """
        Writes an image for each file, its content or (path, offset, size, changed). True where it was made, False where the file is left, its size where a plan is needed.
        """

def plain_jpeg(content: bytes) -> tuple[int, int, int] | None:
    """
    Height, width and length of a JPEG file that a GPU may decode, or None: what is not baseline, in grey or YCbCr, whole and without contradictions.
    """

def open_nvjpeg(library: str) -> str:
    """
    Opens nvJPEG, a file or a name that the system finds, and returns its version. DeviceError where there is no GPU, LibraryError with the remedy where there is no such library.
    """

class GpuJpegReader:
    """
    Makes batches of images of one size, of JPEG files that a GPU decodes and resizes, by nvJPEG, which was opened before.
    """

    def __init__(self, device: int, height: int, width: int, dtype: str, channels_first: bool, small: int, expansion: int) -> None:
        """
        For the GPU of this number. Files that unpack to more than `small` bytes and `expansion` times their own are left.
        """

    def add_plan(self, size: tuple[int, int], denominator: int, row_indices: object, row_shares: object, column_indices: object, column_shares: object) -> None:
        """How files of a size (height, width) are resized; the denominator is 1."""

class GpuImageBatch:
    """A batch in the making: threads fill rows, one decodes them."""

    def __init__(self, reader: GpuJpegReader, rows: int) -> None: ...

    def read(self, files: Sequence[bytes | tuple[bytes, int, int, int]], first: int, most_pixels: int) -> list[bool | tuple[int, int]]:
        """
        Reads files for the rows from `first` on, each its content or (path, offset, size, changed). True where the GPU will decode it, False where it is left to others, its size where a plan is needed.
        """

    def put(self, row: int, image: object) -> None:
        """Copies an image that is made already."""

    def decode(self) -> Tensor | None:
        """
        The rows that have a file or an image, on the GPU, done. None where nvJPEG does not take one of the files: all of them have to be made by others then.
        """

class InferenceModel:
    """What C++ makes of a model that was exported with its graph."""

    @staticmethod
    def load(path: str, device: str) -> InferenceModel: ...

    @property
    def inputs(self) -> list[tuple[str, str, tuple[int, ...]]]:
        """Name, dtype and shape of each, with -1 for open axes."""

    @property
    def outputs(self) -> list[tuple[str, str, tuple[int, ...]]]: ...

    @property
    def device(self) -> str: ...

    def predict(self, inputs: Sequence[object], batch_size: int = 32) -> list[Tensor]:
        """An array for each output, from one for each input."""

def start_profile(max_events: int, device: str) -> None:
    """
    Records the kernel calls of all threads from here on. Raises ValueError where somebody records already, DeviceError where the device's kernels can't be recorded.
    """

def stop_profile() -> dict[str, Any]:
    """
    Ends the recording and gives what ran: calls, names of kernels, and for each event the call, the kernel (-1: what the call says), the track, and start and end in nanoseconds.
    """

def is_profiling() -> bool: ...

def profile_clock() -> int:
    """Nanoseconds of the clock that events are timed with."""

def push_eager_scope(name: str, phase: str | None) -> None:
    """What this thread computes at once belongs to this layer, for profiles."""

def pop_eager_scope() -> None: ...

def in_eager_scope() -> bool: ...

class Watch:
    """What the attributes of some objects were."""

    def is_unchanged(self) -> bool:
        """
        Whether they have the same names and values of the same types, and where a value is of one of the kinds, a bool, a list, a dictionary or a tuple, the same value; the same for all in lists and dictionaries among them. Variables have to be as trainable.
        """

def watch(owners: list, kinds: tuple[type, ...], left_out: frozenset[str]) -> tuple[Watch, list]:
    """
    A `Watch` of the attributes of the objects, and of those of the kinds that they lead to, but not of attributes with the names that are left out; and what has to be kept for as long as it is asked.
    """

class Settings:
    """What plain values and functions some objects had."""

    def is_unchanged(self) -> bool:
        """
        Whether they have equal numbers and texts, and the same functions, bools and None.
        """

    def changed(self) -> set:
        """The names of attributes for which this is not so."""

def note_settings(owners: list, kinds: tuple[type, ...], left_out: frozenset[str]) -> tuple[Settings, list]:
    """
    The `Settings` among the attributes of the objects, but for callables of the kinds and names that are left out; and what has to be kept for as long as it is asked.
    """

def release_functions() -> None:
    """
    Lets go of all functions of Python's that gradients and ops hold: none can be computed from then on. For the end of the interpreter.
    """

class Operators:
    """The operators of tensors, for a class whose instances hold one."""
