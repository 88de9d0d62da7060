"""CUDA C++ and C++ sources of elementwise kernels, written around a user's expressions."""

from __future__ import annotations

import re
from collections.abc import Sequence

# This matches a separate number: not a part of a name, a hexadecimal number or one with a suffix.
_NUMBER = re.compile(r"(?<![\w.])((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?![\w.])")
# This matches a comment, which may hold anything.
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_KERNEL = re.compile(
    r"__global__\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?void\s+"
    r"(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\("
)
_FUNCTION = re.compile(r"^[ \t]*(?:static\s+|inline\s+)*void\s+(\w+)\s*\(", re.MULTILINE)


def kernel_names(source: str, cuda: bool) -> list[str]:
    """Finds the kernels of a CUDA C++ source, or the functions without result of a C++ source."""
    pattern = _KERNEL if cuda else _FUNCTION
    return list(dict.fromkeys(pattern.findall(_COMMENT.sub(" ", source))))


def _typed(expression: str) -> str:
    """The expression with its numbers in the type that elements are computed in.

    In C++, 1 / 2 is 0, and 1.0 makes a float expression one of doubles.
    """
    return _NUMBER.sub(r"real(\1)", expression)


def _is_body(expression: str) -> bool:
    return re.search(r"\breturn\b", _COMMENT.sub(" ", expression)) is not None


def _functions(
    qualifiers: str, inputs: Sequence[str], expressions: Sequence[tuple[str, str]]
) -> list[str]:
    """Writes a function of elements for each expression; messages call it by its label."""
    parameters = ", ".join(f"real {name}" for name in inputs)
    lines = []
    for number, (label, expression) in enumerate(expressions):
        begin, end = ("{", "}") if _is_body(expression) else ("{ return (", "); }")
        lines += [
            f"{qualifiers} real kerascnn_f{number}({parameters}) {begin}",
            f'#line 1 "{label}"',
            _typed(expression),
            # This is on its own line, since a comment may end the expression, but has the
            # expression's name: compilers report here that the expression is not complete.
            f'#line {expression.count(chr(10)) + 1} "{label}"',
            end,
            '#line 1 "kerascnn"',
        ]
    return lines


def _element(count: int, outputs: Sequence[str], load: str, store: str, indent: str) -> list[str]:
    """Writes statements for one element, which read everything before they write anything."""
    arguments = ", ".join(f"a{i}" for i in range(count))
    lines = [f"const real a{i} = static_cast<real>({load.format(i=i)});" for i in range(count)]
    lines += [f"const real r{k} = kerascnn_f{k}({arguments});" for k in range(len(outputs))]
    lines += [f"{store.format(k=k)} = {name}_t(r{k});" for k, name in enumerate(outputs)]
    return [indent + line for line in lines]


def cpp_elements(
    function: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    expressions: Sequence[tuple[str, str]],
) -> str:
    """A C++ function that computes a range of elements.

    Args:
        function: Its name.
        inputs: Names of the inputs; each stands for its element in the expressions.
        outputs: Names of the outputs.
        expressions: For each output what the expression is called in messages, and itself.
    """
    count = len(inputs)
    lines = _functions("static inline", inputs, expressions)
    lines += [
        f'extern "C" void {function}(const void* const* inputs, void* const* outputs,',
        "    const int64_t* sizes, int64_t begin, int64_t end) {",
    ]
    for i, name in enumerate(inputs):
        lines.append(f"  const {name}_t* in{i} = static_cast<const {name}_t*>(inputs[{i}]);")
        lines.append(f"  const int64_t step{i} = sizes[{i + 1}];")
    for k, name in enumerate(outputs):
        lines.append(f"  {name}_t* out{k} = static_cast<{name}_t*>(outputs[{k}]);")
    in_order = " && ".join(f"step{i} == 1" for i in range(count))
    for condition, load in (
        (f"if ({in_order})", "in{i}[at]"),
        ("else", "in{i}[at * step{i}]"),
    ):
        lines += [f"  {condition} {{", "#pragma GCC ivdep"]
        lines.append("    for (int64_t at = begin; at < end; ++at) {")
        lines += _element(count, outputs, load, "out{k}[at]", "      ")
        lines += ["    }", "  }"]
    return "\n".join([*lines, "}"])


def cuda_elements(
    function: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    expressions: Sequence[tuple[str, str]],
) -> str:
    """The same as a CUDA kernel: four elements at a time where all memory is aligned to that."""
    count = len(inputs)
    lines = _functions("__device__ __forceinline__", inputs, expressions)
    parameters = [f"const {name}_t* in{i}" for i, name in enumerate(inputs)]
    parameters += [f"{name}_t* out{k}" for k, name in enumerate(outputs)]
    parameters += ["int64_t size"] + [f"int64_t step{i}" for i in range(count)]
    lines += [
        "template <typename T> struct alignas(4 * sizeof(T)) kerascnn_four { T values[4]; };",
        "template <typename T>",
        "__device__ __forceinline__ bool kerascnn_is_aligned(const T* data) {",
        "  return reinterpret_cast<uint64_t>(data) % (4 * sizeof(T)) == 0;",
        "}",
        "template <typename T>",
        "__device__ __forceinline__ kerascnn_four<T> kerascnn_load(",
        "    const T* data, int64_t four, int64_t step) {",
        "  if (step != 0) return reinterpret_cast<const kerascnn_four<T>*>(data)[four];",
        "  return {{data[0], data[0], data[0], data[0]}};",
        "}",
        f'extern "C" __global__ void __launch_bounds__(128) {function}(',
        f"    {', '.join(parameters)}) {{",
        # The kernel may start before what it waits for has ended (device/begin.cuh).
        "#if __CUDA_ARCH__ >= 900",
        '  asm volatile("griddepcontrol.wait;" ::: "memory");',
        '  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");',
        "#endif",
        "  const int64_t first = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;",
        "  const int64_t stride = int64_t(gridDim.x) * blockDim.x;",
    ]
    aligned = [f"(step{i} == 0 || kerascnn_is_aligned(in{i}))" for i in range(count)]
    aligned += [f"kerascnn_is_aligned(out{k})" for k in range(len(outputs))]
    lines += [
        f"  const int64_t fours = {' && '.join(aligned)} ? size / 4 : 0;",
        "  for (int64_t four = first; four < fours; four += stride) {",
        *(f"    const auto v{i} = kerascnn_load(in{i}, four, step{i});" for i in range(count)),
        *(f"    kerascnn_four<{name}_t> w{k};" for k, name in enumerate(outputs)),
        "#pragma unroll",
        "    for (int at = 0; at < 4; ++at) {",
        *_element(count, outputs, "v{i}.values[at]", "w{k}.values[at]", "      "),
        "    }",
        *(
            f"    reinterpret_cast<kerascnn_four<{name}_t>*>(out{k})[four] = w{k};"
            for k, name in enumerate(outputs)
        ),
        "  }",
        "  for (int64_t at = 4 * fours + first; at < size; at += stride) {",
        *_element(count, outputs, "in{i}[at * step{i}]", "out{k}[at]", "    "),
        "  }",
        "}",
    ]
    return "\n".join(lines)
