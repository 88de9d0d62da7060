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

}  // namespace

// May a tape take gradients through the call, or by the leaf, with this number?
bool may_be_asked_for(uint64_t sequence) {
  const std::lock_guard lock(living_tapes().mutex);
  const auto& tapes = living_tapes().tapes;
  return std::any_of(tapes.begin(), tapes.end(), [&](const Tape* tape) {
    return tape->may_take_gradients() && tape->ranges_.front().first <= sequence &&
           sequence <= tape->ranges_.back().second;
  });
}

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
  if (variable == nullptr) throw ValueError("expected a variable or a tensor, received None");
  Recorder& recorder = Recorder::here();
  if (!is_floating(variable->value().dtype())) return variable->value();
  if (recorder.reads != nullptr && variable->trainable()) {
    const auto& reads = *recorder.reads;
    if (std::find(reads.begin(), reads.end(), variable) == reads.end()) {
      recorder.reads->push_back(variable);
    }
  }
  if (recorder.tapes.empty()) return variable->value();
  std::shared_ptr<TapeLeaf> leaf;
  for (const std::shared_ptr<Tape>& tape : recorder.tapes) {
    if (!tape->follows(variable)) continue;
    if (leaf == nullptr) leaf = std::make_shared<TapeLeaf>();
    tape->note(variable, leaf);
  }
  Tensor value = variable->value();
  if (leaf != nullptr) value.set_edge({leaf, 0});
  return value;
}

bool records_once() {
  const auto& tapes = Recorder::here().tapes;
  return tapes.size() == 1 && !tapes.front()->persistent_;
}

std::vector<VariablePtr> watched_untrained() {
  std::vector<VariablePtr> found;
  for (const std::shared_ptr<Tape>& tape : Recorder::here().tapes) {
    for (const VariablePtr& variable : tape->watched_variables()) {
      const bool is_new = std::find(found.begin(), found.end(), variable) == found.end();
      if (!variable->trainable() && is_new) found.push_back(variable);
    }
  }
  return found;
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
  first_ = std::min(first_, ranges_.front().first);
  const bool is_alone = recorder.tapes.empty() && recorder.num_pauses == 0;
  recorder.first = is_alone ? first_ : std::min(recorder.first, first_);
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

void Tape::pause() {
  stop();
  ++Recorder::here().num_pauses;
}

void Tape::resume() {
  start();
  --Recorder::here().num_pauses;
}

void Tape::reset() {
  const bool records = is_recording_;
  stop();
  ranges_.clear();
  first_ = kOpenEnd;
  watched_.clear();
  last_before_.clear();
  variables_.clear();
  readings_.clear();
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
  if (!is_tracked(tensor)) {
    // What another tape may ask for stays as it is.
    const std::shared_ptr<TapeNode>& before = tensor.edge().node;
    if (before == nullptr || !may_be_asked_for(before->sequence())) {
      tensor.set_edge({std::make_shared<TapeLeaf>(), 0});
    }
  }
  const TapeEdge& edge = tensor.edge();
  first_ = std::min(first_, edge.node->sequence());
  Recorder::here().first = std::min(Recorder::here().first, first_);
  if (last_before_.try_emplace({edge.node.get(), edge.output}, sequence_now()).second) {
    watched_.push_back(edge.node);
  }
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
  readings_of(variable);
}

bool Tape::follows(const VariablePtr& variable) const {
  return (watches_variables_ && variable->trainable()) || readings_.contains(variable.get());
}

std::vector<std::shared_ptr<TapeNode>>& Tape::readings_of(const VariablePtr& variable) {
  const auto [at, is_new] = readings_.try_emplace(variable.get());
  if (is_new) variables_.push_back(variable);
  return at->second;
}

void Tape::note(const VariablePtr& variable, const std::shared_ptr<TapeLeaf>& leaf) {
  readings_of(variable).push_back(leaf);
  last_before_.emplace(Edge{leaf.get(), 0}, leaf->sequence());
}

TapeSource Tape::source_of(const VariablePtr& variable) const {
  const auto found = readings_.find(variable.get());
  TapeSource source;
  if (found == readings_.end()) return source;
  for (const std::shared_ptr<TapeNode>& leaf : found->second) source.push_back({leaf, 0});
  return source;
}

TapeSource Tape::source_of(const Tensor& source) const {
  return source.edge().node == nullptr ? TapeSource{} : TapeSource{source.edge()};
}

bool Tape::watched(const TapeEdge& edge, uint64_t sequence) const {
  const auto found = last_before_.find({edge.node.get(), edge.output});
  return found != last_before_.end() && found->second < sequence;
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
    if (other == this || !other->may_take_gradients()) return false;
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
  BackwardWalk(const Tape& tape, const std::vector<TapeSource>& sources, bool forgets)
      : tape_(tape), sources_(sources), forgets_(forgets), results_(sources.size()) {}

  std::vector<Tensor> run(const std::vector<Tensor>& targets,
                          const std::vector<Tensor>& output_gradients) {
    collect(targets);
    find_followed();
    find_needed();
    for (size_t i = 0; i < targets.size(); ++i) {
      const TapeEdge& edge = targets[i].edge();
      if (!is_followed(edge, kAfterAll) || !is_needed(edge)) continue;
      add(edge, output_gradients[i].defined() ? output_gradients[i] : ones_like(targets[i]));
    }
    for (size_t place = visits_.size(); place-- > 0;) visit(visits_[place]);
    return std::move(results_);
  }

 private:
  static constexpr uint64_t kAfterAll = std::numeric_limits<uint64_t>::max();

  struct Visit {
    std::shared_ptr<TapeNode> node;
    std::vector<Tensor> gradients;  // of the outputs, as far as they are known
    bool followed = false;          // the tape recorded it, as one of its inputs was followed
    bool needed = false;
  };

  void reach(const std::shared_ptr<TapeNode>& node, std::vector<TapeNode*>& pending) {
    if (node == nullptr || !places_.emplace(node.get(), 0).second) return;
    visits_.push_back({node, {}, false, false});
    pending.push_back(node.get());
  }

  void collect(const std::vector<Tensor>& targets) {
    std::vector<TapeNode*> pending;
    for (const Tensor& target : targets) reach(target.edge().node, pending);
    while (!pending.empty()) {
      const TapeNode& node = *pending.back();
      pending.pop_back();
      if (!tape_.covers(node.sequence())) continue;
      for (const TapeEdge& input : node.inputs()) reach(input.node, pending);
    }
    std::sort(visits_.begin(), visits_.end(), [](const Visit& a, const Visit& b) {
      return a.node->sequence() < b.node->sequence();
    });
    for (size_t place = 0; place < visits_.size(); ++place) {
      places_[visits_[place].node.get()] = place;
    }
  }

  // Was the result or leaf followed before the call with this number? Tensors hold what any of the
  // tapes recorded.
  bool is_followed(const TapeEdge& edge, uint64_t sequence) const {
    const auto found = places_.find(edge.node.get());
    return found != places_.end() &&
           (visits_[found->second].followed || tape_.watched(edge, sequence));
  }

  bool is_needed(const TapeEdge& edge) const { return visits_[places_.at(edge.node.get())].needed; }

  bool is_wanted(const TapeNode& node, const TapeEdge& input) const {
    return is_followed(input, node.sequence()) && is_needed(input);
  }

  void find_followed() {
    for (Visit& visit : visits_) {
      const TapeNode& node = *visit.node;
      if (!tape_.covers(node.sequence())) continue;
      const std::vector<TapeEdge>& inputs = node.inputs();
      visit.followed = std::any_of(inputs.begin(), inputs.end(), [&](const TapeEdge& edge) {
        return is_followed(edge, node.sequence());
      });
    }
  }

  void find_needed() {
    for (size_t i = 0; i < sources_.size(); ++i) {
      for (const TapeEdge& edge : sources_[i]) {
        if (!is_followed(edge, kAfterAll)) continue;
        wanted_[{edge.node.get(), edge.output}].push_back(i);
        visits_[places_.at(edge.node.get())].needed = true;
      }
    }
    for (Visit& visit : visits_) {
      if (visit.needed || !visit.followed) continue;
      const std::vector<TapeEdge>& inputs = visit.node->inputs();
      visit.needed = std::any_of(inputs.begin(), inputs.end(), [&](const TapeEdge& edge) {
        return is_wanted(*visit.node, edge);
      });
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
    take_results(visit);
    if (visit.followed) {
      pass_on(node, visit.gradients);
      if (forgets_) node.forget_values();
    }
    visit.gradients.clear();
  }

  void pass_on(TapeNode& node, const std::vector<Tensor>& output_gradients) {
    const std::vector<TapeEdge>& inputs = node.inputs();
    std::vector<bool> is_wanted_input(inputs.size());
    uint64_t wanted = 0;
    bool any = false;
    for (size_t i = 0; i < inputs.size(); ++i) {
      is_wanted_input[i] = is_wanted(node, inputs[i]);
      any = any || is_wanted_input[i];
      if (is_wanted_input[i] && i < 64) wanted |= uint64_t{1} << i;
    }
    if (!any) return;
    if (inputs.size() > 64) wanted = ~uint64_t{0};
    const std::vector<Tensor> gradients = gradients_of(node, output_gradients, wanted);
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (gradients[i].defined() && is_wanted_input[i]) add(inputs[i], gradients[i]);
    }
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
      for (const size_t source : found->second) {
        Tensor& sum = results_[source];
        sum = sum.defined() ? sum_of(sum, visit.gradients[i]) : visit.gradients[i];
      }
    }
  }

  const Tape& tape_;
  const std::vector<TapeSource>& sources_;
  const bool forgets_;
  std::vector<Tensor> results_;
  std::unordered_map<std::pair<const TapeNode*, uint32_t>, std::vector<size_t>, EdgeHash> wanted_;
  std::unordered_map<const TapeNode*, size_t> places_;
  std::vector<Visit> visits_;
};

std::vector<Tensor> Tape::gradients(const std::vector<Tensor>& targets,
                                    const std::vector<Tensor>& output_gradients,
                                    const std::vector<TapeSource>& sources) {
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
