"""Which kernel runs: what models and other code compute, kernel by kernel.

`trace` records any code, `Model.profile` a training step; both give a `Profile`. `kernel_choices`
says which kernels were found to be the fastest by timing them, and `Model.step_memory` what a
training step takes, as `StepMemory`.
"""

from kerascnn.profiler.choices import kernel_choices
from kerascnn.profiler.machine import Machine, measure_machine
from kerascnn.profiler.memory import StepMemory
from kerascnn.profiler.profile import Profile
from kerascnn.profiler.trace import trace

__all__ = ["Machine", "Profile", "StepMemory", "kernel_choices", "measure_machine", "trace"]
