#include "plan/adapter_choice.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "arch/families.h"
#include "base/spelling.h"
#include "plan/frozen_part.h"
#include "plan/module_pattern.h"

namespace automodel::plan {
namespace {

/// "q_proj" of "model.layers.0.self_attn.q_proj".
std::string last_part(std::string_view module) {
  return std::string(module.substr(module.rfind('.') + 1));
}

/// The module's name in NeMo AutoModel's own class of the family.
std::string nemo_name(const arch::Family* family, std::string module) {
  if (family == nullptr) return module;
  for (const auto& [own, nemo] : family->nemo_spellings)
    if (const auto at = module.find(own); at != std::string::npos) module.replace(at, own.size(), nemo);
  return module;
}

class Choosing {
 public:
  Choosing(const config::Recipe& recipe, const ModelChoice& model, const std::optional<arch::QuantizedBase>& base,
           bool training, Located& report)
      : section_(*recipe.peft()),
        model_(model),
        family_(arch::find_family(model.spec.model_type)),
        frozen_(frozen_words(recipe, model)),
        expert_tensor_(recipe.model_parallel->expert_tensor_parallel_size().value_or(1)),
        training_(training),
        report_(report) {
    out_.spec.base = base;
  }

  std::optional<AdapterPlan> run() {
    if (!read()) return std::nullopt;
    auto parameters = arch::parameters(model_.layout);
    for (const auto& parameter : parameters)
      if (!consider(parameter)) return std::nullopt;
    warn_frozen();
    if (left_out_ && training_) return std::nullopt;
    if (out_.spec.weights.empty()) {
      if (family_ != nullptr && !left_out_) return refuse_nothing();
      if (family_ == nullptr)
        report_.warn("no-effect", key_)
            .says("adapters are not counted: the module names of this model_type are unknown")
            .hint("the model is planned by its sizes; the adapters' share is small");
      fill(std::move(parameters));
      return std::move(out_);
    }
    // Patterns may exclude modules of a tower whose names are not known.
    const bool may_match = excluding_ && !model_.spec.nested_in.empty() && !model_.spec.vision;
    for (std::size_t i = 0; i < patterns_.size() && !may_match; ++i)
      if (!used_.contains(i))
        report_.warn("no-effect", key_)
            .says("no linear module of this model matches '{}'", patterns_[i])
            .hint(suggestion(patterns_[i], last_parts()));
    fill(std::move(parameters));
    return std::move(out_);
  }

 private:
  /// Gives the weight an adapter if it is chosen and can have one. Returns false after refusing it.
  bool consider(const arch::Parameter& parameter) {
    const bool tower = parameter.role == arch::Role::kTower;
    if (tower && !can_be_adapted(parameter)) return true;
    auto module = std::string(parameter.module());
    if (parameter.part == arch::Part::kInputsProduct) {
      if (is_target(module)) leave_out_inputs(module);
      return true;
    }
    const bool expert = parameter.is_expert() && parameter.shape.rank() >= 2;
    if (arch::is_of_index(parameter.part)) return true;  // no gradient would reach its adapter
    if (!expert && !arch::is_linear_weight(parameter)) return true;
    linear_.insert(module);
    if (expert) module = experts_of(parameter);
    if (expert ? !are_targets(module) : !is_target(module)) return true;
    if (!parameter.tied_to.empty()) {
      if (!excluding_ && !section_.match_all_linear()) return refuse_tied(module);
      leave_out_tied(module);
    } else if (const auto key = frozen_.key_of(module); !key.empty()) {
      note_frozen(module, key);
    } else if (const auto why = expert ? against_experts(parameter) : ""; !why.empty()) {
      leave_out_experts(module, why);
    } else if (tower && section_.dropout() > 0) {
      leave_out_tower(module);
    } else {
      out_.spec.weights.push_back(parameter.fqn);
      out_.spec.transposed = out_.spec.transposed || parameter.transposed;
    }
    return true;
  }

  /// Determines the key that selects modules, and its patterns. Returns false after reporting a problem.
  bool read() {
    const auto& targets = section_.target_modules->patterns;
    const auto& excludes = section_.exclude_modules->patterns;
    excluding_ = !excludes.empty();
    key_ = section_.match_all_linear() ? "peft.match_all_linear"
           : excluding_                ? "peft.exclude_modules"
                                       : "peft.target_modules";
    patterns_ = excluding_ ? excludes : targets;
    if (patterns_.empty() && !section_.match_all_linear()) patterns_ = {"*_proj"};
    for (const auto& pattern : patterns_) {
      if (auto compiled = ModulePattern::read(pattern))
        compiled_.push_back(std::move(*compiled));
      else
        report_.refuse("bad-value", key_)
            .says("'{}' cannot be read as a pattern", pattern)
            .hint("* matches anything; everything else is a regular expression with balanced brackets");
    }
    return compiled_.size() == patterns_.size();
  }

  bool is_target(const std::string& module) {
    if (section_.match_all_linear()) return true;
    bool any = false;
    const auto there = nemo_name(family_, module);
    for (std::size_t i = 0; i < compiled_.size(); ++i)
      if (compiled_[i].matches(module) || (there != module && compiled_[i].matches(there))) {
        used_.insert(i);
        any = true;
      }
    return any != excluding_;
  }

  /// The module containing all experts of a layer: "model.layers.0.mlp.experts". As in NeMo AutoModel, it is a single
  /// target and not a linear module.
  static std::string experts_of(const arch::Parameter& weight) {
    constexpr std::string_view kName = "experts";
    const auto module = weight.module();
    const auto at = module.rfind(kName);
    return std::string(at == std::string_view::npos ? module : module.substr(0, at + kName.size()));
  }
  bool are_targets(const std::string& experts) {
    return !excluding_ && !section_.match_all_linear() && is_target(experts);
  }

  std::string against_experts(const arch::Parameter& weight) const {
    if (weight.expert < 0) return "they are stored as one tensor";
    if (section_.use_dora()) return "DoRA does not support them (use_dora)";
    return expert_tensor_ > 1 ? "they are split by width (expert_tensor_parallel_size)" : "";
  }
  void leave_out_experts(const std::string& module, const std::string& why) {
    leave_out(fmt::format("the experts of '{}' cannot have adapters: {}", module, why),
              "name modules outside the experts: target_modules: ['*self_attn*_proj']");
  }

  /// Whether a tower's weight can have an adapter: no gradient reaches layers that never run, and convolutions and
  /// tables are no linear modules. By their last names the PEFT library might take them for some.
  bool can_be_adapted(const arch::Parameter& parameter) {
    if (parameter.shape.rank() > 1 && parameter.fqn.ends_with(".weight"))
      linear_.insert(std::string(parameter.module()));
    return parameter.trainable && arch::is_linear_weight(parameter);
  }
  void leave_out_tower(const std::string& module) {
    leave_out(fmt::format("'{}' is part of the vision tower, whose adapters have no dropout", module),
              excluding_ ? "dropout: 0, or exclude_modules: ['*visual*', '*vision*', '*multi_modal_projector*']"
                         : "dropout: 0, or target_modules: ['*language_model*_proj']");
  }

  /// NeMo AutoModel freezes behind the making of adapters, these with their modules, where they stay without effect.
  void note_frozen(const std::string& module, std::string_view key) {
    auto& [first, count] = kept_[std::string(key)];
    if (count++ == 0) first = module;
  }
  void warn_frozen() {
    for (const auto& [key, matched] : kept_)
      report_.warn("no-effect", key)
          .says("{} freezes '{}' {}its adapter: there is none", key, matched.first,
                matched.second > 1 ? fmt::format("and {} other modules that match, each with ", matched.second - 1)
                                   : "with ")
          .hint("set it to false to train adapters there; the weights themselves are frozen beside adapters");
  }
  /// A match that cannot have an adapter is not counted in a plan, and refused for training. The first is reported.
  void leave_out(const std::string& what, const std::string& hint) {
    if (!std::exchange(left_out_, true))
      report_.plan_only(training_, what, Diagnostic{"adapter-target"}.says("{}", what).hint(hint).of(key_));
  }

  bool refuse_tied(const std::string& module) {
    report_.refuse("adapter-target", key_)
        .says("'{}' shares its weight with the embedding", module)
        .hint("leave it out: exclude_modules: [{}]", module);
    return false;
  }
  /// Used instead of refuse_tied() if modules were not selected by name.
  void leave_out_tied(const std::string& module) {
    report_.warn("adapter-target", key_)
        .says("'{}' shares its weight with the embedding and gets no adapter", module)
        .hint("model.tie_word_embeddings: false gives it its own weight");
  }

  /// Gemma 4's projection of the residual stream to the inputs of all layers: NeMo AutoModel gives it an adapter.
  void leave_out_inputs(std::string_view module) {
    report_.warn("adapter-target", key_)
        .says("'{}' makes the inputs of all layers and gets no adapter", module)
        .hint("matrices inside the layers, and the head, get one");
  }

  std::optional<AdapterPlan> refuse_nothing() {
    report_.refuse("adapter-target", key_)
        .says(!kept_.empty() ? "freeze_config freezes every linear module that is chosen"
              : excluding_   ? "exclude_modules excludes every linear module"
                             : fmt::format("no linear module of this model matches {}", fmt::join(patterns_, ", ")))
        .hint(suggestion(patterns_.front(), last_parts()));
    return std::nullopt;
  }

  /// Last name components of all linear modules, without duplicates.
  std::vector<std::string_view> last_parts() {
    for (const auto& module : linear_) parts_.insert(last_part(module));
    return {parts_.begin(), parts_.end()};
  }

  void fill(std::vector<arch::Parameter> parameters) {
    auto& spec = out_.spec;
    spec.rank = spec.expert_rank = section_.dim();
    if (section_.moe_rank_scaling() && model_.spec.moe)
      spec.expert_rank = std::max(1, section_.dim() / model_.spec.moe->top_k);
    spec.alpha = section_.alpha();
    spec.dropout = section_.dropout();
    spec.dropout_first = section_.dropout_position() == config::DropoutPosition::kPre;
    spec.magnitudes = section_.use_dora();
    if (spec.magnitudes && spec.base)
      report_.refuse("quantized-weights", "peft.use_dora")
          .says("row norms are not computed for quantized weights")
          .hint("remove use_dora or quantization");
    spec.start = section_.lora_A_init() == config::AdapterInit::kXavier ? arch::AdapterStart::kXavier
                                                                        : arch::AdapterStart::kKaiming;
    out_.modules = module_names();
    out_.all = arch::with_adapters(std::move(parameters), spec);
    if (spec.base && std::none_of(out_.all.begin(), out_.all.end(), [](const auto& each) { return each.bits > 0; }))
      report_.refuse("quantized-weights", "quantization")
          .says("'{}' has no weights that can be quantized: its linear modules are stored transposed",
                model_.spec.model_type)
          .hint("remove quantization");
    out_.layers.assign(static_cast<std::size_t>(model_.layout.layer_count()), kNoProducts);
    for (const auto& parameter : out_.all) {
      if (!parameter.trained()) continue;
      out_.elements += parameter.shape.elements();
      if (parameter.layer >= 0)
        out_.layers[static_cast<std::size_t>(parameter.layer)].*product_of(parameter.part) = true;
    }
  }

  /// A last name component where all modules that have it are selected, else their full names.
  std::vector<std::string> module_names() const {
    std::set<std::string> selected, out;
    for (const auto& weight : out_.spec.weights) selected.insert(weight.substr(0, weight.rfind('.')));
    std::map<std::string, bool> all;  // by last component
    for (const auto& module : linear_) {
      auto& whole = all.try_emplace(last_part(module), true).first->second;
      whole = whole && selected.contains(module);
    }
    for (const auto& module : selected) out.insert(all.at(last_part(module)) ? last_part(module) : module);
    return {out.begin(), out.end()};
  }

  const config::PeftConfig& section_;
  const ModelChoice& model_;
  const arch::Family* family_;  ///< null: unknown
  FrozenWords frozen_;
  int expert_tensor_;  ///< ranks that hold parts of the same experts
  bool training_;
  Located& report_;
  AdapterPlan out_ = {};
  std::string key_ = {};
  bool excluding_ = false;
  bool left_out_ = false;                                         ///< a match that cannot have an adapter
  std::map<std::string, std::pair<std::string, int>> kept_ = {};  ///< matches that are frozen: first and number, by key
  std::vector<std::string> patterns_ = {};
  std::set<std::string> linear_ = {};  ///< every module that could be selected
  std::set<std::string> parts_ = {};
  std::vector<ModulePattern> compiled_ = {};
  std::set<std::size_t> used_ = {};  ///< patterns that matched
};

}  // namespace

double token_share(const arch::ModelSpec& spec, const arch::Parameter& adapter) {
  return adapter.is_expert() ? static_cast<double>(spec.moe->top_k) / spec.moe->experts : 1;
}

bool TrainedProducts::*product_of(arch::Part part) {
  if (const auto role = arch::role_of(part); role == arch::Role::kAttention || role == arch::Role::kRecurrence)
    return part == arch::Part::kAttentionOut || part == arch::Part::kStateOut ? &TrainedProducts::output
                                                                              : &TrainedProducts::queries;
  using arch::Part;
  if (part == Part::kExpertDown) return &TrainedProducts::expert_down;
  if (part == Part::kExpertGate || part == Part::kExpertUp || part == Part::kExpertGateUp)
    return &TrainedProducts::expert_up;
  return part == Part::kDown || part == Part::kSharedDown ? &TrainedProducts::down : &TrainedProducts::up;
}

bool share_input(const arch::Parameter& a, const arch::Parameter& b) {
  return a.layer == b.layer && a.expert == b.expert && product_of(a.part) == product_of(b.part) &&
         a.shape[1] == b.shape[1];
}

std::optional<AdapterPlan> choose_adapters(const config::LoadedRecipe& recipe, const ModelChoice& model,
                                           const std::optional<arch::QuantizedBase>& base, bool training,
                                           Located& report) {
  if (!recipe.recipe.peft()) return std::nullopt;
  auto out = Choosing(recipe.recipe, model, base, training, report).run();
  const auto& section = *recipe.recipe.model();
  const bool stored =
      section.pretrained_model_name_or_path() && section.load_base_model() && !config::leaves_weights(section.target());
  if (out && !stored)
    report.warn("adapter-base", "peft")
        .says("the adapters' base weights are initialised from the seed: no other program has them")
        .hint("set model.pretrained_model_name_or_path to a folder of trained weights");
  return out;
}

}  // namespace automodel::plan
