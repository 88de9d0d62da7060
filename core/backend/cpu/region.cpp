// Regions of all kinds (core/graph/region.h) run tile by tile. Where a sum is cut follows from the
// domain's size alone, so results don't depend on the number of threads.
#include <algorithm>
#include <cmath>
#include <memory>

#include "core/backend/cpu/broadcast.h"
#include "core/backend/cpu/float_kernels.h"
#include "core/backend/cpu/kernels.h"
#include "core/backend/cpu/parallel.h"
#include "core/backend/cpu/reductions.h"
#include "core/backend/cpu/region_tiles.h"
#include "core/graph/body_program.h"
#include "core/ops/definitions.h"

namespace kerascnn::cpu {

namespace {

// Rows [row, row + rows) and columns [column, column + columns) of the domain.
struct Tile {
  int64_t row = 0, rows = 1;
  int64_t column = 0, columns = 1;

  int64_t size() const { return rows * columns; }
};

template <typename T, typename Function>
void with_reduction(Reduction reduction, const Function& function) {
  if (reduction == Reduction::Max) return function(Type<Max<T>>());
  if (reduction == Reduction::Min) return function(Type<Min<T>>());
  return function(Type<Sum<T>>());
}

// A thread's memory: a pointer for each register, what reductions over pieces of a row have so far,
// what moments of a tile need, and the registers that lie in no tensor.
class Memory {
 public:
  explicit Memory(const TileProgram& program)
      : registers_(align_up(static_cast<int64_t>(program.registers.size() * sizeof(void*)))),
        accumulators_(align_up(program.num_accumulators * int64_t{8})),
        moments_(align_up(3 * kWidestVector * program.tiling.tile_columns * int64_t{8})),
        bytes_(registers_ + accumulators_ + moments_ + program.register_bytes) {}

  int64_t bytes() const { return bytes_; }
  void** pointers(char* memory) const { return reinterpret_cast<void**>(memory); }
  char* accumulators(char* memory) const { return memory + registers_; }
  double* moments(char* memory) const {
    return reinterpret_cast<double*>(memory + registers_ + accumulators_);
  }
  char* registers(char* memory) const { return memory + registers_ + accumulators_ + moments_; }

 private:
  int64_t registers_, accumulators_, moments_, bytes_;
};

// Runs steps in one thread.
class TileRunner {
 public:
  TileRunner(const TileProgram& program, const KernelArgs& args, char* memory)
      : program_(program),
        args_(args),
        registers_(Memory(program).pointers(memory)),
        accumulators_(Memory(program).accumulators(memory)),
        moments_(Memory(program).moments(memory)) {
    char* const first = Memory(program).registers(memory);
    for (size_t r = 0; r < program.registers.size(); ++r) {
      const int64_t offset = program.registers[r].offset;
      registers_[r] = offset < 0 ? nullptr : first + offset;
    }
  }

  // What all tiles of these columns have in common.
  void begin(int64_t column, int64_t columns) const {
    const Tile tile{0, program_.tiling.tile_rows, column, columns};
    for (const TileStep& step : program_.fixed) run(step, tile);
  }

  void run(const std::vector<TileStep>& steps, const Tile& tile, bool is_first = true,
           bool is_last = true) const {
    for (const TileStep& step : steps) run(step, tile, is_first, is_last);
  }

  // Adds a tile to the sums of columns; `sums` are those of the first column, `num_rows` is how
  // many rows they are of so far.
  void add_columns(const TileStep& step, const Tile& tile, double* sums, int64_t num_rows) const;

  void run(const TileStep& step, const Tile& tile, bool is_first = true, bool is_last = true) const;

 private:
  void load(const TileStep& step, const Tile& tile) const;
  void compute(const TileStep& step, const Tile& tile) const;
  void spread(const TileStep& step, const Tile& tile) const;
  void reduce(const TileStep& step, const Tile& tile, bool is_first, bool is_last) const;
  void store(const TileStep& step, const Tile& tile) const;
  template <typename T>
  void add_moments(const T* x, const Tile& tile, double* sums, double* squares,
                   int64_t num_rows) const;

  bool is_float(int number) const { return program_.registers[number].kind == RegisterKind::Float; }

  // Calls function(first element, place in the tile, count) for neighbours in a tensor that has
  // the domain's elements, or one for each row.
  template <typename Function>
  void for_each_stretch(const Tile& tile, bool is_row, const Function& function) const {
    if (is_row) return function(tile.row, int64_t{0}, tile.rows);
    const int64_t width = program_.tiling.columns;
    const int64_t first = tile.row * width + tile.column;
    if (tile.columns == width || tile.rows == 1) return function(first, int64_t{0}, tile.size());
    for (int64_t r = 0; r < tile.rows; ++r) {
      function(first + r * width, r * tile.columns, tile.columns);
    }
  }

  const TileProgram& program_;
  const KernelArgs& args_;
  void** registers_;
  char* accumulators_;
  double* moments_;
};

void TileRunner::run(const TileStep& step, const Tile& tile, bool is_first, bool is_last) const {
  switch (step.kind) {
    case TileStep::Kind::Fill:
      return with_kind(step.dtype, [&]<typename T>(Type<T>) {
        std::fill_n(static_cast<T*>(registers_[step.to]), program_.tiling.tile_size(),
                    to_register<T>(step.dtype, step.number));
      });
    case TileStep::Kind::Load:
      return load(step, tile);
    case TileStep::Kind::Compute:
      return compute(step, tile);
    case TileStep::Kind::Spread:
      return spread(step, tile);
    case TileStep::Kind::Reduce:
      return reduce(step, tile, is_first, is_last);
    case TileStep::Kind::Store:
      return store(step, tile);
    case TileStep::Kind::Sum:
      return;  // add_columns()
  }
}

void TileRunner::load(const TileStep& step, const Tile& tile) const {
  with_storage(step.dtype, [&]<typename T>(Type<T>) {
    const T* from = input<T>(args_, static_cast<size_t>(step.tensor));
    for_each_stretch(
        tile, program_.registers[step.to].is_row, [&](int64_t first, int64_t place, int64_t count) {
          if (step.is_direct) {
            registers_[step.to] = const_cast<T*>(from + first);
            return;
          }
          const auto load_as = [&]<typename R>(Type<R>) {
            R* const to = static_cast<R*>(registers_[step.to]) + place;
            const int64_t apart = step.geometry.strides[0].back();
            for_each_run<1>(step.geometry, first, first + count,
                            [&](int64_t begin, const auto& offsets, int64_t some) {
                              load_block(from + offsets[0], apart, some, to + (begin - first));
                            });
          };
          if (std::is_integral_v<T> && is_float(step.to)) return load_as(Type<float>());
          load_as(Type<register_of_t<T>>());
        });
  });
}

void TileRunner::compute(const TileStep& step, const Tile& tile) const {
  const void* operands[3] = {};
  for (int i = 0; i < 3 && step.from[i] >= 0; ++i) operands[i] = registers_[step.from[i]];
  if (step.tensor >= 0) {
    const int64_t first = tile.row * program_.tiling.columns + tile.column;
    registers_[step.to] = output<char>(args_, static_cast<size_t>(step.tensor)) +
                          first * static_cast<int64_t>(itemsize(step.dtype));
  }
  if (step.row_loop != nullptr) {
    return step.row_loop(static_cast<const float*>(operands[step.matrix]),
                         static_cast<const float*>(operands[1 - step.matrix]),
                         static_cast<float*>(registers_[step.to]), tile.rows, tile.columns);
  }
  const int64_t count = program_.registers[step.to].is_row ? tile.rows : tile.size();
  run_element_block(step.instruction, operands, registers_[step.to], count);
}

void TileRunner::spread(const TileStep& step, const Tile& tile) const {
  const auto spread_as = [&]<typename T>(Type<T>) {
    const T* from = static_cast<const T*>(registers_[step.from[0]]);
    T* to = static_cast<T*>(registers_[step.to]);
    for (int64_t r = 0; r < tile.rows; ++r) {
      std::fill(to + r * tile.columns, to + (r + 1) * tile.columns, from[r]);
    }
  };
  const RegisterKind kind = program_.registers[step.to].kind;
  if (kind == RegisterKind::Float) return spread_as(Type<float>());
  spread_as(Type<int64_t>());  // of the size of double
}

void TileRunner::reduce(const TileStep& step, const Tile& tile, bool is_first, bool is_last) const {
  with_kind(step.dtype, [&]<typename T>(Type<T>) {
    with_reduction<T>(step.reduction, [&]<typename Op>(Type<Op>) {
      const T* from = static_cast<const T*>(registers_[step.from[0]]);
      T* to = static_cast<T*>(registers_[step.to]);
      auto* so_far = reinterpret_cast<typename Op::Accumulator*>(accumulators_ +
                                                                 step.accumulator * int64_t{8});
      constexpr int64_t kBlock = 64;
      typename Op::Accumulator values[kBlock];
      for (int64_t begin = 0; begin < tile.rows; begin += kBlock) {
        const int64_t rows = std::min(kBlock, tile.rows - begin);
        reduce_rows<T, Op>(float_kernels(), from + begin * tile.columns, rows, tile.columns,
                           values);
        // Rows that are gone through in pieces are one at a time.
        if (!is_first) values[0] = Op::combine(*so_far, values[0]);
        if (!is_last) {
          *so_far = values[0];
          return;
        }
        for (int64_t r = 0; r < rows; ++r) {
          to[begin + r] = to_register<T>(step.dtype, finish<T>(values[r], step.number));
        }
      }
    });
  });
}

void TileRunner::store(const TileStep& step, const Tile& tile) const {
  with_storage(step.dtype, [&]<typename T>(Type<T>) {
    T* to = output<T>(args_, static_cast<size_t>(step.tensor));
    for_each_stretch(tile, step.is_row, [&](int64_t first, int64_t place, int64_t count) {
      const void* const from = registers_[step.from[0]];
      if constexpr (std::is_integral_v<T>) {
        if (is_float(step.from[0])) {
          return store_integers(static_cast<const float*>(from) + place, to + first, count);
        }
      }
      store_block(static_cast<const register_of_t<T>*>(from) + place, to + first, count);
    });
  });
}

// Sums and squared deviations (Chan, Golub and LeVeque, 1983): those of the tile are taken from its
// first row, which is one of the numbers, so that hardly any digits are lost, and join those of the
// rows before.
void join_moments(int64_t columns, double* sums, double* squares, int64_t num_rows,
                  const double* more_sums, const double* more_squares, int64_t more_rows) {
  const auto before = static_cast<double>(num_rows), more = static_cast<double>(more_rows);
  for (int64_t c = 0; c < columns; ++c) {
    if (num_rows > 0) {
      const double apart = more_sums[c] / more - sums[c] / before;
      squares[c] += more_squares[c] + apart * apart * (before * more / (before + more));
      sums[c] += more_sums[c];
    } else {
      sums[c] = more_sums[c];
      squares[c] = more_squares[c];
    }
  }
}

template <typename T>
void TileRunner::add_moments(const T* x, const Tile& tile, double* sums, double* squares,
                             int64_t num_rows) const {
  const int64_t columns = tile.columns, fold = rows_folded(tile.rows, columns);
  const int64_t width = fold * columns, whole = tile.rows / fold;
  double* const shift = moments_;
  double* const own_sums = shift + width;
  double* const own_squares = own_sums + width;
  for (int64_t i = 0; i < width; ++i) {
    const auto first = static_cast<double>(x[i % columns]);
    shift[i] = std::isfinite(first) ? first : 0;
  }
  std::fill(own_sums, own_sums + 2 * width, 0.0);
  const auto add = [&](const T* from, int64_t rows, int64_t row_width) {
    if constexpr (std::is_same_v<T, float>) {
      float_kernels().sum_moments(from, rows, row_width, shift, own_sums, own_squares);
    } else {
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < row_width; ++c) {
          const double off = static_cast<double>(from[r * row_width + c]) - shift[c];
          own_sums[c] += off;
          own_squares[c] += off * off;
        }
      }
    }
  };
  add(x, whole, width);
  add(x + whole * width, tile.rows - whole * fold, columns);
  for (int64_t i = columns; i < width; ++i) {
    own_sums[i % columns] += own_sums[i];
    own_squares[i % columns] += own_squares[i];
  }
  const auto count = static_cast<double>(tile.rows);
  for (int64_t c = 0; c < columns; ++c) {
    own_squares[c] -= own_sums[c] * own_sums[c] / count;
    own_sums[c] += shift[c] * count;
  }
  join_moments(columns, sums, squares, num_rows, own_sums, own_squares, tile.rows);
}

void TileRunner::add_columns(const TileStep& step, const Tile& tile, double* sums,
                             int64_t num_rows) const {
  with_kind(step.dtype, [&]<typename T>(Type<T>) {
    const T* x = static_cast<const T*>(registers_[step.from[0]]);
    double* const own = sums + step.accumulator * program_.tiling.columns;
    if constexpr (!std::is_same_v<T, int64_t>) {
      if (step.reduction == Reduction::Moments) {
        return add_moments(x, tile, own, own + program_.tiling.columns, num_rows);
      }
    }
    if constexpr (std::is_same_v<T, float>) {
      add_float_columns(float_kernels(), x, tile.rows, tile.columns, own);
    } else {
      combine_columns<T, Sum<T>>(x, tile.rows, tile.columns,
                                 reinterpret_cast<typename Sum<T>::Accumulator*>(own));
    }
  });
}

// What regions of all kinds have.
class TileKernel : public Kernel {
 public:
  explicit TileKernel(TileProgram program) : program_(std::move(program)), memory_(program_) {}

  std::string description() const override { return "kerascnn region " + program_.name; }

 protected:
  // Elements that are worth a thread.
  int64_t grain() const {
    const auto ops = static_cast<int64_t>(program_.registers.size());
    return std::max<int64_t>(1024, kElementGrain / std::max<int64_t>(1, ops));
  }

  const TileProgram program_;
  const Memory memory_;
};

// It runs regions of the kinds rows and map.
class RowsKernel final : public TileKernel {
 public:
  using TileKernel::TileKernel;

  int64_t workspace_bytes() const override { return num_threads() * memory_.bytes(); }

  void run(const KernelArgs& args) override {
    const Tiling& tiling = program_.tiling;
    // Of maps each piece is by itself.
    const int64_t pieces = pieces_by_themselves();
    const int64_t tasks =
        std::clamp<int64_t>(tiling.rows * tiling.columns / grain(), 1,
                            std::min<int64_t>(num_threads(), tiling.rows * pieces));
    parallel_tasks(tasks, [&](int64_t task, int64_t) {
      const TileRunner runner(program_, args,
                              static_cast<char*>(args.workspace) + task * memory_.bytes());
      runner.begin(0, tiling.tile_columns);
      const int64_t begin = tiling.rows * pieces * task / tasks;
      const int64_t end = tiling.rows * pieces * (task + 1) / tasks;
      if (tiling.tile_columns == tiling.columns) {
        run_whole(runner, begin, end);
      } else if (pieces > 1) {
        for (int64_t i = begin; i < end; ++i) {
          runner.run(program_.passes[0].of_tiles, piece(i / pieces, i % pieces));
        }
      } else {
        for (int64_t row = begin; row < end; ++row) run_row(runner, row);
      }
    });
  }

 private:
  int64_t num_pieces() const {
    const Tiling& tiling = program_.tiling;
    return (tiling.columns + tiling.tile_columns - 1) / tiling.tile_columns;
  }
  int64_t pieces_by_themselves() const {
    return program_.kind == RegionKind::Map ? num_pieces() : 1;
  }
  Tile piece(int64_t row, int64_t number) const {
    const Tiling& tiling = program_.tiling;
    const int64_t column = number * tiling.tile_columns;
    return {row, 1, column, std::min(tiling.tile_columns, tiling.columns - column)};
  }

  void run_whole(const TileRunner& runner, int64_t begin, int64_t end) const {
    const int64_t rows = program_.tiling.tile_rows;
    for (int64_t row = begin; row < end; row += rows) {
      const Tile tile{row, std::min(rows, end - row), 0, program_.tiling.columns};
      runner.run(program_.passes[0].of_tiles, tile);
    }
  }

  void run_row(const TileRunner& runner, int64_t row) const {
    for (const TilePass& pass : program_.passes) {
      runner.run(pass.of_rows, {row, 1, 0, 1});
      if (pass.of_tiles.empty()) continue;
      const int64_t pieces = num_pieces();
      for (int64_t i = 0; i < pieces; ++i) {
        runner.run(pass.of_tiles, piece(row, i), i == 0, i == pieces - 1);
      }
    }
  }
};

// Blocks of rows have sums of their own, which are added up in order, for each part of the domain.
class ColumnsKernel final : public TileKernel {
 public:
  explicit ColumnsKernel(TileProgram program) : TileKernel(std::move(program)) {
    const Tiling& tiling = program_.tiling;
    constexpr int64_t kBlockSize = 65536;
    constexpr int64_t kMostBlocks = 64;
    parts_ = (tiling.columns + tiling.tile_columns - 1) / tiling.tile_columns;
    rows_ = tiling.rows / tiling.outer;
    blocks_ =
        std::clamp<int64_t>(rows_ * tiling.columns / kBlockSize, 1, std::min(kMostBlocks, rows_));
    sums_bytes_ = align_up(tiling.outer * blocks_ * sums_of_block() * int64_t{8});
  }

  int64_t workspace_bytes() const override { return sums_bytes_ + num_threads() * memory_.bytes(); }

  void run(const KernelArgs& args) override {
    auto* const sums = static_cast<double*>(args.workspace);
    char* const memory = static_cast<char*>(args.workspace) + sums_bytes_;
    const Tiling& tiling = program_.tiling;
    const int64_t parts = tiling.outer * blocks_ * parts_;
    const int64_t tasks = std::clamp<int64_t>(tiling.rows * tiling.columns / grain(), 1,
                                              std::min<int64_t>(num_threads(), parts));
    parallel_tasks(tasks, [&](int64_t task, int64_t) {
      const TileRunner runner(program_, args, memory + task * memory_.bytes());
      for (int64_t i = parts * task / tasks; i < parts * (task + 1) / tasks; ++i) {
        run_part(runner, sums, i / parts_, i % parts_);
      }
    });
    for (int64_t of = 0; of < tiling.outer; ++of) {
      double* const own = sums + of * blocks_ * sums_of_block();
      add_up(own);
      for (const ColumnResult& result : program_.results) write(result, own, of, args);
    }
  }

 private:
  int64_t sums_of_block() const { return program_.num_accumulators * program_.tiling.columns; }
  // Of a block of one part, from the part's first row on.
  int64_t first_row(int64_t block) const { return rows_ * block / blocks_; }

  void run_part(const TileRunner& runner, double* all_sums, int64_t block, int64_t part) const {
    const Tiling& tiling = program_.tiling;
    const int64_t column = part * tiling.tile_columns;
    const int64_t columns = std::min(tiling.tile_columns, tiling.columns - column);
    double* const sums = all_sums + block * sums_of_block() + column;
    for (int k = 0; k < program_.num_accumulators; ++k) {
      std::fill_n(sums + k * tiling.columns, columns, 0.0);
    }
    runner.begin(column, columns);
    const int64_t first = block / blocks_ * rows_, own = block % blocks_;
    const int64_t begin = first + first_row(own), end = first + first_row(own + 1);
    for (int64_t row = begin; row < end; row += tiling.tile_rows) {
      const Tile tile{row, std::min(tiling.tile_rows, end - row), column, columns};
      for (const TileStep& step : program_.passes[0].of_tiles) {
        if (step.kind == TileStep::Kind::Sum) {
          runner.add_columns(step, tile, sums, row - begin);
        } else {
          runner.run(step, tile);
        }
      }
    }
  }

  // The sums of all blocks, in those of the first one.
  void add_up(double* all_sums) const {
    const int64_t columns = program_.tiling.columns;
    const int64_t grain = std::max<int64_t>(1, kElementGrain / blocks_);
    for (const TileStep& step : program_.passes[0].of_tiles) {
      if (step.kind != TileStep::Kind::Sum) continue;
      parallel_for(columns, grain, [&](int64_t begin, int64_t end) {
        double* const sums = all_sums + step.accumulator * columns + begin;
        for (int64_t block = 1; block < blocks_; ++block) {
          const double* const more = sums + block * sums_of_block();
          if (step.reduction == Reduction::Moments) {
            join_moments(end - begin, sums, sums + columns, first_row(block), more, more + columns,
                         first_row(block + 1) - first_row(block));
          } else if (register_kind(step.dtype) == RegisterKind::Integer) {
            combine_columns<int64_t, Sum<int64_t>>(reinterpret_cast<const int64_t*>(more), 1,
                                                   end - begin, reinterpret_cast<uint64_t*>(sums));
          } else {
            combine_columns<double, Sum<double>>(more, 1, end - begin, sums);
          }
        }
      });
    }
  }

  void write(const ColumnResult& result, const double* all_sums, int64_t outer,
             const KernelArgs& args) const {
    const int64_t columns = program_.tiling.columns;
    const double* const sums = all_sums + (result.accumulator + result.is_variance) * columns;
    with_storage(result.dtype, [&]<typename T>(Type<T>) {
      T* const to = output<T>(args, static_cast<size_t>(result.output)) + outer * columns;
      for (int64_t c = 0; c < columns; ++c) {
        if constexpr (is_floating_storage<T>) {
          to[c] = finish<T>(sums[c], result.divisor);
        } else {
          to[c] = static_cast<T>(reinterpret_cast<const int64_t*>(sums)[c]);
        }
      }
    });
  }

  // Rows of a part of the domain; pieces of its columns; blocks of its rows.
  int64_t rows_ = 1, parts_ = 1, blocks_ = 1;
  int64_t sums_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Kernel> plan_region(const PlanRequest& request) {
  const Region region = read_region(request.attributes);
  // Dropout has numbers for the whole tensor, in groups of four. What is transposed lies elsewhere
  // than the tile.
  const std::vector<Node>& nodes = region.body->graph->nodes();
  if (std::any_of(nodes.begin(), nodes.end(), [](const Node& node) {
        return node.op == &op_dropout || node.op == &op_transpose;
      })) {
    return plan_body_kernel(*region.body, request, Device{});
  }
  TileProgram program = make_tile_program(region);
  if (region.kind == RegionKind::Columns)
    return std::make_unique<ColumnsKernel>(std::move(program));
  return std::make_unique<RowsKernel>(std::move(program));
}

}  // namespace kerascnn::cpu
