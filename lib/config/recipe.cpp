#include "config/recipe.h"

#include <algorithm>
#include <array>
#include <iterator>

#include <fmt/format.h>

#include "base/file_text.h"
#include "base/find_file.h"
#include "config/differences.h"
#include "config/limits.h"
#include "config/objective.h"
#include "config/recipe_change.h"
#include "config/recipe_class.h"

namespace automodel::config {
namespace {

/// `distributed._target_` selects the strategy if `distributed.strategy` is absent. Done on the tree, because the
/// strategy decides which keys the section has.
void apply_manager_class(Node& root, Diagnostics& problems) {
  auto* section = root.kind == Node::Kind::kMap ? root.find("distributed") : nullptr;
  if (section == nullptr || section->value.kind != Node::Kind::kMap) return;
  const auto* target = section->value.find("_target_");
  if (target == nullptr || target->value.kind != Node::Kind::kScalar || target->value.is_null()) return;
  const auto& text = target->value.text;
  const auto manager = PythonClass<ManagerClass>::named(text);
  if (!manager) return;
  const std::string wanted(strategy_of(*manager));
  const auto* strategy = section->value.find("strategy");
  if (strategy == nullptr || strategy->value.is_null()) {
    auto chosen = target->value;
    chosen.text = chosen.written = wanted;
    const auto where = target->where;
    if (strategy != nullptr) return void(section->value.find("strategy")->value = std::move(chosen));
    Node::Entry entry;
    entry.key = "strategy";
    entry.where = where;
    entry.value = std::move(chosen);
    section->value.entries.push_back(std::move(entry));
    return;
  }
  const auto& choice = type_of<Strategy>().choice();
  for (const auto& alternative : choice.alternatives)
    if (std::find(alternative.names.begin(), alternative.names.end(), strategy->value.text) !=
            alternative.names.end() &&
        alternative.name != wanted)
      problems.add("strategy-conflict", "distributed._target_")
          .says("distributed._target_ {} means strategy '{}', but distributed.strategy is '{}'", text, wanted,
                strategy->value.text)
          .hint("remove one of the two")
          .at(target->value.where);
}

Value shown(const Value& value, const std::string& path, const Origins& origins) {
  if (const auto* origin = origins.find(path); origin != nullptr && origin->written.find('$') != std::string::npos)
    return origin->written;
  if (const auto* list = value.list()) {
    Value::List out;
    for (const auto& item : *list) out.push_back(shown(item, fmt::format("{}.{}", path, out.size()), origins));
    return out;
  }
  if (value.map() == nullptr) return value;
  Value out = Value::Map{};
  for (const auto& [key, item] : *value.map()) out.set(key, shown(item, join_path(path, key), origins));
  return out;
}

/// Keys of one section that set keys of another: mesh sizes under Megatron Core's names, and settings that another
/// switch requires.
class Resolution {
 public:
  Resolution(LoadedRecipe& loaded, Problems& problems) : loaded_(loaded), problems_(problems) {}

  void run() {
    auto& d = loaded_.recipe.distributed();
    auto& m = loaded_.recipe.model_parallel();
    size("tensor_model_parallel_size", m.tensor_model_parallel_size, "tp_size", d.tp_size);
    size("pipeline_model_parallel_size", m.pipeline_model_parallel_size, "pp_size", d.pp_size);
    // Megatron Core has no pipeline section: its schedule is 1F1B, interleaved if there are virtual stages.
    if (given("model_parallel.pipeline_model_parallel_size") && d.pp_size().value_or(1) > 1 && !d.pipeline())
      d.pipeline = PipelineConfig{};
    size("context_parallel_size", m.context_parallel_size, "cp_size", d.cp_size);
    size("expert_model_parallel_size", m.expert_model_parallel_size, "ep_size", d.ep_size);
    if (auto* fsdp = std::get_if<FSDP2Config>(&d.strategy());
        fsdp != nullptr && fsdp->enable_async_tensor_parallel() && !fsdp->sequence_parallel()) {
      fsdp->sequence_parallel = true;
      problems_.warn("sequence-parallel", "distributed.enable_async_tensor_parallel")
          .says(
              "enable_async_tensor_parallel turns on sequence_parallel: only tokens that are sharded over tp ranks can "
              "be "
              "gathered during a matmul")
          .hint("set distributed.sequence_parallel: true");
    }
    const auto& e = loaded_.recipe.dist_env->backend();
    if (e && d.backend() && *e != Backend::kAuto && *d.backend() != Backend::kAuto && *e != *d.backend())
      problems_.refuse("backend-conflict", "distributed.backend")
          .says("distributed.backend is {}, but dist_env.backend is {}", *to_dict(*d.backend()).string(),
                *to_dict(*e).string())
          .hint("remove one of the two");
    auto& recipe = loaded_.recipe;
    if (recipe.dataset()) collate("dataloader", recipe.dataloader->collate_fn(), *recipe.dataset(), "dataset");
    const auto& other = recipe.validation_dataloader->collate_fn();
    if (recipe.validation_dataset())
      collate("validation_dataloader", other, *recipe.validation_dataset(), "validation_dataset");
    for (auto& [name, set] : recipe.validation_datasets())
      collate("validation_dataloader", other, set, "validation_dataset_" + name);
  }

 private:
  /// A collate function's max_length is the length to which the data set's rows are cut and padded; some begin answers
  /// with a text, and so does a hook of packs.
  void collate(const std::string& loader, const CollateFunction& function, DatasetConfig& set, const std::string& key) {
    const std::string name = loader + ".collate_fn", there = name + ".max_length";
    const auto& packs = loaded_.recipe.packed_sequence();
    const bool packed = key == "dataset" && packs.packed_sequence_size() > 0;
    const bool mixture = std::holds_alternative<MixtureDatasetConfig>(set);
    int part = 0;
    each_part(set, [&](auto& section) {
      using Section = std::remove_cvref_t<decltype(section)>;
      const auto here = mixture ? fmt::format("{}.datasets.{}.dataset", key, part++) : key;
      const auto refuse = [&](const std::string& what) {
        if constexpr (!requires { section.kPlanOnly; })
          problems_.refuse("bad-value", what)
              .says("{} is for rows with pictures, and {} has none", what, here)
              .hint("remove it; seq_length is a key of the data set");
      };
      if (function.max_length) {
        if constexpr (std::is_base_of_v<EncodedFields, Section>) {
          same("size-conflict", here + ".seq_length", section.seq_length, std::optional<int>(function.max_length),
               there);
          same("size-conflict", here + ".padding", section.padding, SamplePadding::kMaxLength, there);
          same("size-conflict", here + ".truncation", section.truncation, SampleTruncation::kCut, there);
        } else {
          refuse(there);
        }
      }
      const auto begin = [&](const std::string& prefix, const std::string& by) {
        if (prefix.empty()) return;
        if constexpr (requires { section.answer_prefix; })
          same("bad-value", here + ".answer_prefix", section.answer_prefix, prefix, by);
        else
          refuse(by);
      };
      begin(function.answer_prefix, name);
      if (packed) begin(packs.post_tokenize_hook_fn().answer_prefix, "packed_sequence.post_tokenize_hook_fn");
      if constexpr (std::is_base_of_v<EncodedFields, Section>) {
        cut(section, here, packed);
        if (section.seq_length() && !section.uses_length())
          problems_.warn("no-effect", here + ".seq_length")
              .says("seq_length has no effect: rows are neither truncated nor padded to it")
              .hint("set {0}.truncation: true, or {0}.padding: max_length", here);
      }
      if constexpr (requires { section.truncate_history; })
        if (section.truncate_history() && !section.seq_length())
          problems_.warn("no-effect", here + ".truncate_history")
              .says("truncate_history has no effect without seq_length")
              .hint("set {}.seq_length", here);
    });
  }
  /// Rows that are cut without a length of their own have that of the packs; rows with random pictures also that of
  /// their words, and are cut unless the recipe says otherwise.
  template <class Section>
  void cut(Section& section, const std::string& key, bool packed) {
    std::optional<int> length = packed ? loaded_.recipe.packed_sequence->max_length() : std::nullopt;
    std::string there = "packed_sequence.max_length";
    if constexpr (requires { section.pretokenize; }) {
      const std::string words = key + ".max_length", truncation = key + ".truncation";
      const bool cuts = packed || section.pretokenize();
      if (cuts && !length) {
        length = section.max_length();
        there = words;
      }
      if (cuts && section.max_length() && !given(truncation)) {
        section.truncation = SampleTruncation::kCut;
        loaded_.origins.give_as(truncation, words);
      }
    }
    if (!length || section.seq_length() || section.truncation() != SampleTruncation::kCut) return;
    section.seq_length = length;
    loaded_.origins.give_as(key + ".seq_length", there);
  }
  template <class T>
  void same(ProblemId id, const std::string& here, Field<T>& field, const T& value, const std::string& there) {
    if (given(here) && field() != value)
      problems_.refuse(id, there).says("{} says otherwise than {}", here, there).hint("remove one of the two");
    field = value;
    loaded_.origins.give_as(here, there);
  }

  /// Afterwards both fields hold the size, so that a printed recipe can be read back.
  void size(const std::string& field, Field<int>& megatron, const std::string& key, Field<std::optional<int>>& ours) {
    const auto there = "model_parallel." + field, here = "distributed." + key;
    if (!given(there) && ours()) {
      megatron = *ours();
    } else if (!given(here) || !ours()) {
      ours = megatron();
      loaded_.origins.give_as(here, there);
    } else if (*ours() != megatron()) {
      problems_.refuse("size-conflict", there)
          .says("{} is {}, but {} is {}", there, megatron(), here, *ours())
          .hint("remove one of the two");
    }
  }
  bool given(const std::string& key) const { return loaded_.origins.find(key) != nullptr; }

  LoadedRecipe& loaded_;
  Problems& problems_;
};

bool is_for_text(const CollateFunction& function) {
  return !function.written.is_null() && !function.for_pictures;
}

constexpr std::array kIgnoredValues = {
    IgnoredValue{"checkpoint.model_save_format", "is torch_save", "weights are always written as safetensors",
                 [](const Recipe& recipe) { return recipe.checkpoint->model_save_format() == "torch_save"; }},
    IgnoredValue{"dataloader.collate_fn", "is a function for text", "rows are padded to the longest of a batch",
                 [](const Recipe& recipe) { return is_for_text(recipe.dataloader->collate_fn()); }},
    IgnoredValue{"validation_dataloader.collate_fn", "is a function for text",
                 "rows are padded to the longest of a batch",
                 [](const Recipe& recipe) { return is_for_text(recipe.validation_dataloader->collate_fn()); }},
    IgnoredValue{"validation_dataloader.batch_size", "is not step_scheduler.local_batch_size",
                 "validation uses batches of step_scheduler.local_batch_size sequences; its loss is a mean over "
                 "tokens, regardless of the batch size",
                 [](const Recipe& recipe) {
                   const auto rows = recipe.validation_dataloader->batch_size();
                   return rows && *rows != recipe.step_scheduler->local_batch_size();
                 }},
};

void note_ignored_values(LoadedRecipe& loaded) {
  for (const auto& row : kIgnoredValues) {
    const std::string key(row.key);
    std::erase_if(loaded.ignored, [&](const IgnoredKey& each) { return each.key == key; });  // from an earlier check
    if (row.holds(loaded.recipe)) loaded.ignored.push_back({key, std::string(row.reason), loaded.origins.nearest(key)});
  }
}

/// Checks rules across sections that depend only on the recipe.
void check_recipe(LoadedRecipe& loaded, Problems& problems) {
  const Recipe& recipe = loaded.recipe;
  check_objective(recipe, problems);
  problems.refuse_all(check(recipe.distributed()), "distributed");
  for_each_set(recipe, [&](const DatasetConfig& set, const std::string& key) { problems.refuse_all(check(set), key); });
  if (recipe.freeze_config()) problems.refuse_all(check(*recipe.freeze_config()), "freeze_config");
  if (recipe.peft()) problems.refuse_all(check(*recipe.peft()), "peft");
  if (recipe.quantization()) problems.refuse_all(check(*recipe.quantization()), "quantization");
  if (recipe.model() && !recipe.model()->pretrained_model_name_or_path() && !recipe.model()->config() &&
      recipe.model()->target() != ModelTarget::kGpt2)
    problems.refuse("missing-key", "model")
        .says("model needs pretrained_model_name_or_path or config")
        .hint("a folder with config.json, or inline Hugging Face keys under model.config");
  else if (recipe.model() && !recipe.model()->pretrained_model_name_or_path() &&
           reads_weights(recipe.model()->target()))
    problems.refuse("missing-key", "model._target_")
        .says("model._target_ is from_pretrained, but no pretrained model is named")
        .hint(
            "add model.pretrained_model_name_or_path; for random weights: _target_: "
            "nemo_automodel.NeMoAutoModelForCausalLM.from_config");
  if (recipe.checkpoint->restore_from() && recipe.checkpoint->resume() == ResumeMode::kNever)
    problems.refuse("bad-value", "checkpoint.resume")
        .says("checkpoint.resume is never, but checkpoint.restore_from names '{}'", *recipe.checkpoint->restore_from())
        .hint("remove one of the two");
  if (const auto* sgd = std::get_if<SgdConfig>(&recipe.optimizer());
      sgd != nullptr && sgd->nesterov() && (sgd->momentum() <= 0 || sgd->dampening() != 0))
    problems.refuse("bad-value", "optimizer.nesterov")
        .says("nesterov needs momentum above 0 and dampening 0")
        .hint("for example optimizer.momentum: 0.9, without dampening");
  if (const auto* muon = std::get_if<MuonConfig>(&recipe.optimizer()); muon != nullptr && muon->ns_steps() >= 100)
    problems.refuse("bad-value", "optimizer.ns_steps")
        .says("ns_steps is {}", muon->ns_steps())
        .hint("must be below 100, as in torch.optim.Muon; 5 is usual");
  if (!recipe.model())
    problems.refuse("missing-key", "model")
        .says("the recipe has no model")
        .hint("add 'model:' with config or pretrained_model_name_or_path");
  const auto& format = recipe.checkpoint->model_save_format();
  if (format != "torch_save" && format != "safetensors")
    problems.refuse("bad-value", "checkpoint.model_save_format")
        .says("checkpoints cannot be written as '{}'", format)
        .hint("safetensors is the only format");
  const auto& faults = recipe.fault_tolerance();
  const auto needs_checkpoint = [&](BadStepAction action, const std::string& key) {
    if (action == BadStepAction::kRollback && !recipe.checkpoint->enabled())
      problems.refuse("bad-value", key)
          .says("rollback needs checkpoints, but none are written")
          .hint("set checkpoint.enabled: true, or choose skip or stop");
  };
  needs_checkpoint(faults.on_non_finite(), "fault_tolerance.on_non_finite");
  if (faults.loss_spike()) needs_checkpoint(faults.loss_spike()->action(), "fault_tolerance.loss_spike.action");
  if (faults.slow_rank() && faults.slow_rank()->factor() <= 1)
    problems.refuse("bad-value", "fault_tolerance.slow_rank.factor")
        .says("with a factor of {}, ordinary ranks count as slow", faults.slow_rank()->factor())
        .hint("must be greater than 1; 1.5 is usual");
  if (faults.loss_spike() && faults.loss_spike()->factor() <= 1)
    problems.refuse("bad-value", "fault_tolerance.loss_spike.factor")
        .says("with a factor of {}, ordinary losses count as spikes", faults.loss_spike()->factor())
        .hint("must be greater than 1; 2 is usual");
  note_ignored_values(loaded);
}

/// Rules across sections; `whole`: the recipe could be read, so that rules about what it lacks apply.
void check_sections(LoadedRecipe& loaded, bool whole) {
  Problems found(loaded.origins);
  Resolution(loaded, found).run();
  if (whole) check_recipe(loaded, found);
  std::ranges::move(found.problems(), std::back_inserter(loaded.problems));
  std::ranges::move(found.warnings(), std::back_inserter(loaded.warnings));
}

/// Whether a section has no effect here: what it refers to (${HF_TOKEN}) need not be set, and is not looked up.
bool is_ignored(std::string_view section) {
  const auto& fields = type_of<Recipe>().fields();
  const auto found = std::ranges::find(fields, section, &FieldInfo::key);
  return found != fields.end() && !found->ignored.empty();
}

}  // namespace

Value shown_values(const LoadedRecipe& loaded) {
  return shown(to_dict(loaded.recipe), "", loaded.origins);
}

std::span<const IgnoredValue> ignored_values() {
  return kIgnoredValues;
}

bool deterministic(const Recipe& recipe) {
  return recipe.model_parallel->deterministic_mode() || recipe.rng->deterministic();
}

int seed_of(const Recipe& recipe) {
  return recipe.seed().value_or(42);
}

std::optional<Backend> backend_of(const Recipe& recipe) {
  for (const auto& asked : {recipe.dist_env->backend(), recipe.distributed->backend()})
    if (asked && *asked != Backend::kAuto) return asked;
  return std::nullopt;
}

LoadedRecipe read_recipe(std::string text, const std::string& path, std::span<const Override> overrides,
                         const Environment& environment) {
  LoadedRecipe loaded;
  loaded.path = path;
  loaded.text = std::move(text);
  loaded.overrides.assign(overrides.begin(), overrides.end());
  loaded.origins.set_file(path);
  Node root = parse_yaml(loaded.text, path, loaded.problems);
  const bool broken = std::any_of(loaded.problems.begin(), loaded.problems.end(),
                                  [](const Diagnostic& d) { return d.id == "yaml-syntax"; });
  if (broken) return loaded;
  apply_overrides(root, overrides, loaded.problems);
  if (refuse_other_recipe(root, loaded.problems)) return loaded;
  interpolate(root, environment, loaded.problems, is_ignored);
  apply_manager_class(root, loaded.problems);
  Reader reader(loaded.problems, loaded.origins, loaded.ignored, loaded.unsupported);
  if (root.is_null())
    loaded.problems.add("missing-key").says("the recipe is empty").hint("see recipes/quickstart.yaml").at({path, 1, 1});
  else
    reader.read(root, "", loaded.recipe);
  const bool structural = !loaded.problems.empty();
  check_sections(loaded, !root.is_null() && (!structural || root.kind == Node::Kind::kMap));
  std::stable_sort(loaded.problems.begin(), loaded.problems.end(), [](const Diagnostic& a, const Diagnostic& b) {
    return std::pair(a.where.line, a.where.column) < std::pair(b.where.line, b.where.column);
  });
  return loaded;
}

LoadedRecipe load_recipe(const std::string& path, std::span<const Override> overrides, const Environment& environment) {
  auto file = file_text(path, kMaxRecipe);
  if (!file.problem.empty()) {
    LoadedRecipe loaded;
    loaded.path = path;
    loaded.problems.add(file.too_large ? ProblemId("yaml-syntax") : ProblemId("missing-file"))
        .says("recipe '{}' cannot be read: {}", path, file.problem)
        .hint(file.too_large ? "a recipe is a page of text; data belongs into files that it names"
                             : "give the path of a YAML file" + near_name(path))
        .at({path, 0, 0});
    return loaded;
  }
  return read_recipe(std::move(file.text), path, overrides, environment);
}

LoadedRecipe load_recipe(const std::string& path, std::span<const std::string> words, const Environment& environment) {
  Diagnostics problems;
  auto loaded = load_recipe(path, parse_overrides(words, problems), environment);
  loaded.problems.insert(loaded.problems.begin(), problems.begin(), problems.end());
  return loaded;
}

LoadedRecipe read_again(const LoadedRecipe& recipe, std::span<const Override> further, const Environment& environment) {
  auto overrides = recipe.overrides;
  overrides.insert(overrides.end(), further.begin(), further.end());
  return read_recipe(recipe.text, recipe.path, overrides, environment);
}

LoadedRecipe changed(const LoadedRecipe& recipe, const std::function<void(Recipe&)>& edit) {
  auto out = recipe;
  edit(out.recipe);
  for (auto& each : differences(recipe.recipe, out.recipe)) {
    out.origins.add(each.key, {{each.shown, 0, 0}, each.value});
    out.overrides.push_back(std::move(each));
  }
  out.warnings.clear();  // the rules run again below
  check_sections(out, true);
  return out;
}

std::string recipe_schema() {
  Value schema = type_of<Recipe>().schema();
  Value out;
  out.set("$schema", "https://json-schema.org/draft/2020-12/schema");
  out.set("title", "automodel recipe");
  for (const auto& [key, item] : *schema.map()) out.set(key, item);
  Value anchors = Value::Map{}, text, definitions;
  if (const auto* patterns = out.find("patternProperties"); patterns != nullptr) anchors = *patterns;
  anchors.set("^_", Value::Map{});  // parts for YAML anchors
  out.set("patternProperties", anchors);
  text.set("type", "string");
  text.set("pattern", "[$]|^ *[\\[{]");
  text.set("description", "${NAME} or ${NAME,default}; or a list or mapping as text.");
  definitions.set("text", text);
  out.set("$defs", definitions);
  return to_json(out, 2);
}

}  // namespace automodel::config
