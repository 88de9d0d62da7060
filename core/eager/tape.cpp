#include "core/eager/tape.h"

#include <algorithm>
#include <mutex>

#include "core/base/error.h"
#include "core/eager/eager.h"
#include "core/ops/definitions.h"

namespace kerascnn {

thread_local Recorder thread_recorder;

namespace {

constexpr uint64_t kOpenEnd = std::numeric_limits<uint64_t>::max();

// All tapes that may still take gradients: what one of them does not need any more, another might.
struct LivingTapes {
  std::mutex mutex;
  std::unordered_set<const Tape*> tapes;
};
LivingTapes& living_tapes() {
  static LivingTapes& living = *new LivingTapes;
  return living;
}

void check_floating_target(const Tensor& target) {
  if (is_floating(target.dtype())) return;
  throw TypeError(message("gradient: the target is ", spec_string(target.spec()),
                          ", and only floating tensors have gradients; cast it (ops.cast) before "
                          "what follows is computed"));
}

Tensor ones_like(const Tensor& like) {
  const Tensor one = scalar_tensor(like.dtype(), 1.0, like.device());
  if (like.shape().empty()) return one;
  const Tensor* input = &one;
  return apply_one(op_broadcast_to, {&input, 1}, {{"shape", like.shape()}});
}

Tensor sum_of(const Tensor& a, const Tensor& b) {
  const Tensor* inputs[] = {&a, &b};
  return apply_one(op_add, inputs);
}

struct EdgeHash {
  size_t operator()(const std::pair<const TapeNode*, uint32_t>& edge) const {
    return reinterpret_cast<size_t>(edge.first) * 31 + edge.second;
  }
};

}  // namespace

void record_call(const EagerPlanPtr& plan, Inputs inputs, std::span<Tensor> outputs) {
  uint64_t tracked = 0;
  bool any = false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!is_floating(inputs[i]->dtype()) || !is_tracked(*inputs[i])) continue;
    any = true;
    if (i < 64) tracked |= uint64_t{1} << i;
  }
  if (!any || plan->op == &op_stop_gradient) return;
  const auto floats = [](const Tensor& output) { return is_floating(output.dtype()); };
  if (std::none_of(outputs.begin(), outputs.end(), floats)) return;
  if (inputs.size() > 64) tracked = ~uint64_t{0};
  const auto node = std::make_shared<TapeCall>(plan, inputs, outputs, tracked);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (floats(outputs[i])) outputs[i].set_edge({node, static_cast<uint32_t>(i)});
  }
}

Tensor read_variable(const VariablePtr& variable) {
  Recorder& recorder = Recorder::here();
  if (!is_floating(variable->value().dtype())) return variable->value();
  if (recorder.reads != nullptr && variable->trainable()) {
    const auto& reads = *recorder.reads;
    if (std::find(reads.begin(), reads.end(), variable) == reads.end()) {
      recorder.reads->push_back(variable);
    }
  }
  if (recorder.tapes.empty()) return variable->value();
  const auto known = recorder.leaves.find(variable.get());
  std::shared_ptr<TapeLeaf> leaf = known == recorder.leaves.end() ? nullptr : known->second;
  if (variable->trainable()) {
    for (const std::shared_ptr<Tape>& tape : recorder.tapes) {
      if (!tape->watches_variables_) continue;
      if (leaf == nullptr) {
        leaf = std::make_shared<TapeLeaf>();
        recorder.leaves.emplace(variable.get(), leaf);
      }
      tape->note(variable, leaf);
    }
  }
  Tensor value = variable->value();
  if (leaf != nullptr) value.set_edge({leaf, 0});
  return value;
}

bool records_once() {
  const auto& tapes = Recorder::here().tapes;
  return tapes.size() == 1 && !tapes.front()->persistent_;
}

Tape::Tape(bool persistent, bool watches_variables)
    : persistent_(persistent), watches_variables_(watches_variables) {
  const std::lock_guard lock(living_tapes().mutex);
  living_tapes().tapes.insert(this);
}

Tape::~Tape() {
  const std::lock_guard lock(living_tapes().mutex);
  living_tapes().tapes.erase(this);
}

void Tape::start() {
  if (is_recording_) throw ValueError("GradientTape: the tape records already");
  Recorder& recorder = Recorder::here();
  ranges_.emplace_back(sequence_now() + 1, kOpenEnd);
  if (recorder.tapes.empty()) recorder.leaves.clear();
  for (const auto& [variable, leaf] : leaves_) recorder.leaves.try_emplace(variable, leaf);
  recorder.first = recorder.tapes.empty() ? ranges_.front().first
                                          : std::min(recorder.first, ranges_.front().first);
  recorder.tapes.push_back(shared_from_this());
  is_recording_ = true;
}

void Tape::stop() {
  if (!is_recording_) return;
  Recorder& recorder = Recorder::here();
  const auto own = [&](const std::shared_ptr<Tape>& tape) { return tape.get() == this; };
  if (std::erase_if(recorder.tapes, own) == 0) {
    throw ValueError(
        "GradientTape: a tape records in the thread that began its block, and ends there");
  }
  ranges_.back().second = sequence_now();
  is_recording_ = false;
}

void Tape::reset() {
  const bool records = is_recording_;
  stop();
  ranges_.clear();
  watched_.clear();
  is_watched_.clear();
  variables_.clear();
  leaves_.clear();
  is_used_ = false;
  if (records) start();
}

void Tape::watch(Tensor& tensor) {
  if (!is_floating(tensor.dtype())) {
    throw TypeError(message("watch: the tensor is ", spec_string(tensor.spec()),
                            ", and gradients are taken by floating tensors only; cast it first"));
  }
  if (!is_recording_) {
    throw ValueError("watch: the tape does not record; call it inside `with GradientTape()`");
  }
  if (!is_tracked(tensor)) tensor.set_edge({std::make_shared<TapeLeaf>(), 0});
  const std::shared_ptr<TapeNode>& node = tensor.edge().node;
  if (is_watched_.insert(node.get()).second) watched_.push_back(node);
}

void Tape::watch(const VariablePtr& variable) {
  if (!is_floating(variable->value().dtype())) {
    throw TypeError(message("watch: the variable \"", variable->name(), "\" is ",
                            spec_string(variable->value().spec()),
                            ", and gradients are taken by floating variables only"));
  }
  if (!is_recording_) {
    throw ValueError("watch: the tape does not record; call it inside `with GradientTape()`");
  }
  std::shared_ptr<TapeLeaf>& leaf = Recorder::here().leaves[variable.get()];
  if (leaf == nullptr) leaf = std::make_shared<TapeLeaf>();
  note(variable, leaf);
}

void Tape::note(const VariablePtr& variable, const std::shared_ptr<TapeLeaf>& leaf) {
  const auto [at, is_new] = leaves_.try_emplace(variable.get(), leaf);
  if (is_new) {
    variables_.push_back(variable);
  } else {
    at->second = leaf;
  }
}

TapeEdge Tape::edge_of(const VariablePtr& variable) const {
  const auto found = leaves_.find(variable.get());
  return found == leaves_.end() ? TapeEdge{} : TapeEdge{found->second, 0};
}

TapeEdge Tape::edge_of(const Tensor& source) const {
  const TapeEdge& edge = source.edge();
  if (edge.node == nullptr) return {};
  const bool known = is_watched_.contains(edge.node.get()) ||
                     (!edge.node->is_leaf() && covers(edge.node->sequence())) ||
                     std::any_of(leaves_.begin(), leaves_.end(),
                                 [&](const auto& entry) { return entry.second == edge.node; });
  return known ? edge : TapeEdge{};
}

bool Tape::covers(uint64_t sequence) const {
  return std::any_of(ranges_.begin(), ranges_.end(), [&](const auto& range) {
    return range.first <= sequence && sequence <= range.second;
  });
}

bool Tape::is_needed_by_others() const {
  if (ranges_.empty()) return false;
  const std::lock_guard lock(living_tapes().mutex);
  const auto& tapes = living_tapes().tapes;
  return std::any_of(tapes.begin(), tapes.end(), [&](const Tape* other) {
    if (other == this || other->ranges_.empty() || (!other->persistent_ && other->is_used_)) {
      return false;
    }
    return other->ranges_.front().first <= ranges_.back().second &&
           ranges_.front().first <= other->ranges_.back().second;
  });
}

void Tape::check_usable() const {
  if (persistent_ || !is_used_) return;
  throw ValueError(
      "GradientTape: a tape takes gradients once and then releases what it recorded; use "
      "GradientTape(persistent=True) to take several, or reset() to begin anew");
}

// One walk: which nodes lie between the targets and the sources, then their gradients.
class BackwardWalk {
 public:
  BackwardWalk(const Tape& tape, const std::vector<TapeEdge>& sources, bool forgets)
      : tape_(tape), forgets_(forgets), results_(sources.size()) {
    for (size_t i = 0; i < sources.size(); ++i) {
      if (sources[i].node == nullptr) continue;
      wanted_[{sources[i].node.get(), sources[i].output}].push_back(i);
      source_nodes_.insert(sources[i].node.get());
    }
  }

  std::vector<Tensor> run(const std::vector<Tensor>& targets,
                          const std::vector<Tensor>& output_gradients) {
    collect(targets);
    mark_needed();
    for (size_t i = 0; i < targets.size(); ++i) {
      const TapeEdge& edge = targets[i].edge();
      const auto found = places_.find(edge.node.get());
      if (found == places_.end() || !visits_[found->second].needed) continue;
      add(edge, output_gradients[i].defined() ? output_gradients[i] : ones_like(targets[i]));
    }
    for (size_t place = visits_.size(); place-- > 0;) visit(visits_[place]);
    return std::move(results_);
  }

 private:
  struct Visit {
    std::shared_ptr<TapeNode> node;
    std::vector<Tensor> gradients;  // of the outputs, as far as they are known
    bool needed = false;
  };

  bool goes_on(const TapeNode& node) const { return tape_.covers(node.sequence()); }

  void reach(const std::shared_ptr<TapeNode>& node, std::vector<TapeNode*>& pending) {
    if (node == nullptr || !places_.emplace(node.get(), 0).second) return;
    visits_.push_back({node, {}, false});
    pending.push_back(node.get());
  }

  void collect(const std::vector<Tensor>& targets) {
    std::vector<TapeNode*> pending;
    for (const Tensor& target : targets) reach(target.edge().node, pending);
    while (!pending.empty()) {
      const TapeNode& node = *pending.back();
      pending.pop_back();
      if (!goes_on(node)) continue;
      for (const TapeEdge& input : node.inputs()) reach(input.node, pending);
    }
    std::sort(visits_.begin(), visits_.end(), [](const Visit& a, const Visit& b) {
      return a.node->sequence() < b.node->sequence();
    });
    for (size_t place = 0; place < visits_.size(); ++place) {
      places_[visits_[place].node.get()] = place;
    }
  }

  bool is_needed(const TapeEdge& edge) const {
    return edge.node != nullptr && visits_[places_.at(edge.node.get())].needed;
  }

  void mark_needed() {
    for (Visit& visit : visits_) {
      visit.needed = source_nodes_.contains(visit.node.get());
      if (visit.needed || !goes_on(*visit.node)) continue;
      const std::vector<TapeEdge>& inputs = visit.node->inputs();
      visit.needed = std::any_of(inputs.begin(), inputs.end(),
                                 [&](const TapeEdge& edge) { return is_needed(edge); });
    }
  }

  void add(const TapeEdge& edge, const Tensor& gradient) {
    Visit& visit = visits_[places_.at(edge.node.get())];
    if (visit.gradients.empty()) visit.gradients.resize(edge.node->num_outputs());
    Tensor& sum = visit.gradients[edge.output];
    sum = sum.defined() ? sum_of(sum, gradient) : gradient;
  }

  void visit(Visit& visit) {
    if (!visit.needed || visit.gradients.empty()) {
      visit.node.reset();
      return;
    }
    TapeNode& node = *visit.node;
    if (source_nodes_.contains(&node)) take_results(visit);
    uint64_t wanted = 0;
    bool any = false;
    if (goes_on(node)) {
      for (size_t i = 0; i < node.inputs().size(); ++i) {
        if (!is_needed(node.inputs()[i])) continue;
        any = true;
        if (i < 64) wanted |= uint64_t{1} << i;
      }
      if (node.inputs().size() > 64) wanted = ~uint64_t{0};
    }
    if (any) {
      const std::vector<Tensor> gradients = gradients_of(node, visit.gradients, wanted);
      visit.gradients.clear();
      for (size_t i = 0; i < gradients.size(); ++i) {
        if (gradients[i].defined() && is_needed(node.inputs()[i])) {
          add(node.inputs()[i], gradients[i]);
        }
      }
    }
    visit.gradients.clear();
    if (forgets_) node.forget_values();
  }

  // Computed for the layer that made the call, where a profile wants to know.
  static std::vector<Tensor> gradients_of(TapeNode& node, const std::vector<Tensor>& gradients,
                                          uint64_t wanted) {
    if (!is_profiling()) return node.gradients(gradients, wanted);
    const std::string layer = node.scope() == nullptr ? "" : node.scope()->path;
    const EagerScopeGuard guard({.path = layer, .phases = kBackward});
    return node.gradients(gradients, wanted);
  }

  void take_results(const Visit& visit) {
    for (size_t i = 0; i < visit.gradients.size(); ++i) {
      const auto found = wanted_.find({visit.node.get(), static_cast<uint32_t>(i)});
      if (found == wanted_.end() || !visit.gradients[i].defined()) continue;
      for (const size_t source : found->second) results_[source] = visit.gradients[i];
    }
  }

  const Tape& tape_;
  const bool forgets_;
  std::vector<Tensor> results_;
  std::unordered_map<std::pair<const TapeNode*, uint32_t>, std::vector<size_t>, EdgeHash> wanted_;
  std::unordered_set<const TapeNode*> source_nodes_;
  std::unordered_map<const TapeNode*, size_t> places_;
  std::vector<Visit> visits_;
};

std::vector<Tensor> Tape::gradients(const std::vector<Tensor>& targets,
                                    const std::vector<Tensor>& output_gradients,
                                    const std::vector<TapeEdge>& sources) {
  check_usable();
  for (const Tensor& target : targets) check_floating_target(target);
  for (size_t i = 0; i < targets.size(); ++i) {
    const Tensor& gradient = output_gradients[i];
    if (!gradient.defined() || gradient.spec() == targets[i].spec()) continue;
    throw ValueError(message("gradient: the output gradient of target ", i, " must be ",
                             spec_string(targets[i].spec()), " as the target is, received ",
                             spec_string(gradient.spec())));
  }
  if (!persistent_) stop();
  is_used_ = true;
  BackwardWalk walk(*this, sources, !persistent_ && !is_needed_by_others());
  return walk.run(targets, output_gradients);
}

}  // namespace kerascnn
