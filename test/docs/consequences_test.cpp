// Every key has an effect: each declared field is set in recipes where it can act, and compared with its default
// something must change: the plan, an error or warning at the key, or an entry in the list of ignored keys. Keys that
// act only in a running engine are listed with the test that shows it.
#include <algorithm>
#include <functional>
#include <map>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "config/recipe.h"
#include "docs/pages.h"
#include "estimate/estimated_plan.h"
#include "golden_file.h"
#include "plan/facts.h"
#include "report/plan_json.h"
#include "temporary_folder.h"

namespace automodel {
namespace {

using config::FieldInfo;
using config::Value;

const std::string kModel =
    "hidden_size: 64, intermediate_size: 128, num_hidden_layers: 8, num_attention_heads: 8, vocab_size: 256, "
    "max_position_embeddings: 128";
const std::string kDense = "model: {config: {model_type: llama, num_key_value_heads: 2, " + kModel + "}}\n";
const std::string kExperts =
    "model: {config: {model_type: mixtral, num_key_value_heads: 8, num_local_experts: 4, num_experts_per_tok: 2, " +
    kModel + "}}\n";
const std::string kBiasedExperts =
    "model: {config: {model_type: deepseek_v3, num_key_value_heads: 8, n_routed_experts: 4, num_experts_per_tok: 2, "
    "n_group: 1, topk_group: 1, moe_intermediate_size: 32, first_k_dense_replace: 0, q_lora_rank: 16, kv_lora_rank: "
    "16, "
    "qk_nope_head_dim: 8, qk_rope_head_dim: 4, v_head_dim: 8, " +
    kModel + "}}\n";
const std::string kRest =
    "dataset: {_target_: mock, vocab_size: 256, seq_length: 64}\n"
    "step_scheduler: {global_batch_size: 32, local_batch_size: 8, max_steps: 20}\n";
const std::string kCuda = "device: cuda\nhardware: {profile: h100}\n";

/// Recipes that differ in which keys can act in them.
const std::vector<std::string> kBases = {
    kDense + kRest + kCuda,
    kDense + kRest + "device: cpu\n",
    kDense + kRest + kCuda + "distributed: {dp_size: 2, pp_size: 2, pipeline: {}}\n",
    kDense + kRest + kCuda +
        "distributed: {dp_size: 2, pp_size: 2, activation_checkpointing: full, pipeline: {pp_schedule: "
        "MegatronInterleaved}}\n"
        "model_parallel: {gradient_accumulation_fusion: true, defer_embedding_wgrad_compute: true}\n",
    kDense + kRest + kCuda +
        "distributed: {dp_size: 1, pp_size: 3, pipeline: {layers_per_stage: 2, pp_schedule: Interleaved1F1B, "
        "round_virtual_stages_to_pp_multiple: up}}\n",
    kDense + kRest + kCuda + "distributed: {tp_size: 2, dp_size: 1}\n",
    // Two machines.
    kDense + kRest + kCuda + "distributed: {dp_size: 2, tp_size: 2, pp_size: 4, pipeline: {}}\n",
    kDense + kRest + kCuda +
        "distributed: {tp_size: 2, dp_size: 1}\nmodel_parallel: {sequence_parallel: true, tp_comm_overlap: true}\n",
    kDense + kRest + kCuda + "distributed: {cp_size: 4, dp_size: 1}\n",
    kDense + kRest + kCuda +
        "distributed: {cp_size: 4, dp_size: 1}\nmodel_parallel: {cp_comm_type: a2a+p2p, "
        "hierarchical_context_parallel_sizes: [2, 2]}\n",
    kDense + kRest + kCuda + "distributed: {dp_size: 4, mp_policy: {param_dtype: float32}}\n",
    kDense + kRest + kCuda + "distributed: {dp_size: 4, enable_fsdp2_prefetch: true}\n",
    kDense + kRest + kCuda + "distributed: {strategy: megatron_fsdp, dp_size: 4}\n",
    kDense + kRest + kCuda + "distributed: {strategy: megatron_fsdp, tp_size: 2, dp_size: 2}\n",
    kDense + kRest + kCuda + "distributed: {strategy: ddp, dp_size: 4}\n",
    kDense + kRest + kCuda + "distributed: {tp_size: 8, dp_size: 2}\n",  // two nodes
    kDense + kRest + kCuda + "model_parallel: {cpu_offloading: true, cpu_offloading_num_layers: 2}\n",
    kDense + kRest + kCuda + "model_parallel: {enable_autocast: true, autocast_dtype: float16}\n",
    kDense + kRest + kCuda + "peft: {dim: 4}\n",
    kDense + kRest + kCuda + "fp8: {enabled: true}\n",
    kDense + kRest + kCuda + "peft: {dim: 4}\nquantization: {load_in_4bit: true}\n",
    kDense + kRest + kCuda + "teacher_" + kDense,
    kBiasedExperts + kRest + kCuda,
    kExperts + kRest + kCuda + "distributed: {dp_size: 4, ep_size: 2, moe: {}}\n",
    kExperts + kRest + kCuda + "distributed: {dp_size: 4, ep_size: 2, reshard_after_forward: true, moe: {}}\n",
};

/// Values for keys whose type does not say what can be tried.
const std::map<std::string, std::vector<std::string>> kValues = {
    {"distributed._target_", {"nemo_automodel.components.distributed.ddp.DDPManager"}},
    {"distributed.mp_policy._target_", {"Nonsense"}},
    {"distributed.offload_policy._target_", {"torch.distributed.fsdp.CPUOffloadPolicy"}},
    {"distributed.tp_plan",
     {"auto",
      "{model.layers.*.mlp.gate_proj: replicated, model.layers.*.mlp.up_proj: replicated, "
      "model.layers.*.mlp.down_proj: replicated}"}},
    {"distributed.activation_checkpointing_scope", {"vision"}},
    {"distributed.pipeline.pp_schedule_csv", {"none.csv"}},
    {"distributed.pipeline.layers_per_stage", {"4", "[3, 5]"}},
    {"distributed.pipeline.module_fqns_per_model_part", {"[[model.embed_tokens], [lm_head]]"}},
    {"distributed.pipeline.pipeline_model_parallel_layout", {"Et*3|t*5L"}},
    {"distributed.pipeline.pp_schedule", {"GPipe"}},
    {"distributed.megatron_fsdp_unit_modules", {"[GPT2Block]"}},
    {"distributed.zero_dp_strategy", {"1"}},
    {"model_parallel.hierarchical_context_parallel_sizes", {"[1, 4]"}},
    {"distributed.multimodal", {"{frozen_sharding: replicate}"}},
    {"distributed.moe.mp_policy", {"{param_dtype: float32}"}},
    {"model.cache_dir", {"cache2"}},
    {"model.revision", {"second"}},
    {"rng._target_", {"Nonsense"}},
    {"model.pretrained_model_name_or_path", {"./nowhere"}},
    {"model.config", {"./nowhere"}},
    {"model.torch_dtype", {"float16"}},
    {"model._target_", {"transformers.AutoModelForCausalLM.from_config"}},
    {"hardware.profile", {"a100-80"}},
    {"model_parallel.recompute_modules", {"[mlp, core_attn]"}},
    {"hardware.memory", {"7GiB"}},
    {"optimizer.betas", {"[0.8, 0.9]"}},
    {"optimizer.scalar_opt", {"lion"}},
    {"optimizer.scalar_betas", {"[0.8, 0.9]"}},
    {"optimizer.scalar_opt", {"lion"}},
    {"optimizer.ns_coefficients", {"[3, -4, 2]"}},
    {"optimizer.param_group_overrides", {"[{pattern: norm, wd_mult: 0}]"}},
    {"peft.target_modules", {"[q_proj]"}},
    {"peft.exclude_modules", {"[q_proj]"}},
    {"peft.dim", {"8"}},
    {"neftune.noise_alpha", {"3.0"}},
    {"freeze_config.freeze_modules", {"[{path: lm_head}]"}},
    {"freeze_config.unfreeze_modules", {"[{path: nowhere}]"}},
    {"fp8.filter_fqns", {"[lm_head]"}},
    {"fp8.recipe_name", {"rowwise"}},
    {"dataset._target_", {}},
};

/// Sections whose keys act on files, output and loops around the computation, and are tested there.
const std::vector<std::string> kOutside = {"fault_tolerance.",
                                           "checkpoint.",
                                           "logging.",
                                           "generation.",
                                           "dataloader.",
                                           "validation_d",
                                           "dataset.",
                                           "recipe",
                                           "packed_sequence.",
                                           "hardware.failures.",
                                           "hardware.storage_bandwidth"};

/// Keys of those sections that also change the plan.
const std::vector<std::string> kCounted = {"checkpoint.memory_every_steps"};

using Overrides = std::vector<config::Override>;

config::Override set(const std::string& key, const std::string& value) {
  return {key, value, "--" + key + " " + value};
}

/// A model in a folder, and two caches of the Hugging Face hub with two revisions of one; paths are relative to a
/// recipe that lies beside them.
void write_models(const test::TemporaryFolder& folder) {
  const auto config = [](int layers) {
    return fmt::format(
        R"({{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": {},
            "num_attention_heads": 8, "vocab_size": 256, "max_position_embeddings": 128}})",
        layers);
  };
  folder.write("model/config.json", config(4));
  int layers = 4;
  for (const char* cache : {"cache", "cache2"})
    for (const char* revision : {"main", "second"}) {
      const auto snapshot = fmt::format("{}/models--some--model", cache);
      folder.write(snapshot + "/refs/" + revision, fmt::format("hash{}", layers));
      folder.write(fmt::format("{}/snapshots/hash{}/config.json", snapshot, layers), config(layers));
      layers += 4;
    }
}

config::LoadedRecipe read(const std::string& base, const Overrides& overrides) {
  return config::read_recipe(base, "recipe.yaml", overrides, [](const std::string&) { return std::nullopt; });
}

struct Outcome {
  std::optional<estimate::EstimatedPlan> plan;
  std::string json;
  std::string told;  ///< ids and keys of problems, warnings and ignored keys
};

Outcome outcome_of(const std::string& base, const Overrides& overrides) {
  const auto loaded = read(base, overrides);
  Outcome out;
  const auto tell = [&](const Diagnostics& list) {
    for (const auto& each : list) out.told += std::string(each.id) + " " + each.key + "\n";
  };
  tell(loaded.problems);
  if (!loaded.problems.empty()) return out;
  for (const auto& each : loaded.ignored) out.told += "ignored " + each.key + "\n";
  for (const auto& each : loaded.unsupported) out.told += "unsupported " + each.key + "\n";
  auto result = estimate::make_plan(loaded, {.cuda_available = base.find("cuda") != std::string::npos});
  tell(result.problems);
  if (result.plan) {
    tell(result.plan->warnings);
    out.json = report::to_json(*result.plan, report::ActionFormat::kLowered);
    out.plan = std::move(result.plan);
  }
  return out;
}

/// True if `key` visibly acts on this recipe, other than by being refused for a wrong type.
bool acts(const Outcome& before, const std::string& base, Overrides context, const std::string& key,
          const std::string& value) {
  context.push_back(set(key, value));
  const auto after = outcome_of(base, context);
  if (after.told.find("bad-type " + key) != std::string::npos) return false;
  if (after.told.find("unknown-key " + key) != std::string::npos) return false;
  if (after.told != before.told && after.told.find(key) != std::string::npos) return true;
  return before.plan && after.plan && before.json != after.json;
}

std::vector<std::string> values_for(const std::string& key, const FieldInfo& field) {
  const auto row = kValues.find(key.starts_with("teacher_model.") ? key.substr(std::string("teacher_").size()) : key);
  if (row != kValues.end()) return row->second;
  const auto schema = field.type->schema();
  std::vector<std::string> out;
  const std::function<void(const Value&)> collect = [&](const Value& node) {
    if (const auto* names = node.find("enum"); names != nullptr && names->list() != nullptr)
      for (const auto& name : *names->list()) out.push_back(config::to_json(name));
    if (const auto* any = node.find("anyOf"); any != nullptr && any->list() != nullptr)
      for (const auto& each : *any->list()) collect(each);
    const auto* type = node.find("type");
    const auto is = [&](std::string_view name) {
      return type != nullptr && type->string() != nullptr && *type->string() == name;
    };
    if (is("boolean")) out.insert(out.end(), {"true", "false"});
    if (is("integer")) out.insert(out.end(), {"2", "1", "3", "0", "4", "16"});
    if (is("number")) out.insert(out.end(), {"0.5", "2.5", "0.01"});
    if (is("string")) out.insert(out.end(), {"bfloat16", "float16", "float32", "x"});
  };
  collect(schema);
  if (out.empty()) out = {"x", "{x: 1}", "[x]"};  // a value of no particular shape
  return out;
}

using Visit = std::function<void(const std::string&, const FieldInfo&, const Overrides& context)>;

/// Visits every field below `fields` with its dotted key and the overrides that select its section.
void walk(const std::vector<FieldInfo>& fields, const std::string& path, const Overrides& context, const Visit& visit) {
  for (const auto& field : fields) {
    if (field.form == FieldInfo::Form::kRest || field.form == FieldInfo::Form::kPrefix) continue;
    const std::string here = field.form == FieldInfo::Form::kFlat ? path : config::join_path(path, field.key);
    const config::TypeInfo* type = field.type;
    bool list = false;
    while (type->inner != nullptr) {
      list = list || type->name().starts_with("list");
      type = &type->inner();
    }
    const bool section = (type->fields != nullptr || type->choice != nullptr) && !list;
    if (!section || !field.ignored.empty() || !field.unsupported.empty()) {
      if (field.form != FieldInfo::Form::kFlat) visit(here, field, context);
      continue;
    }
    if (type->fields != nullptr) walk(type->fields(), here, context, visit);
    if (type->choice == nullptr) continue;
    for (const auto& each : type->choice().alternatives) {
      if (!each.plan_only.empty()) continue;
      auto chosen = context;
      chosen.push_back(set(config::join_path(here, type->choice().key), std::string(each.name)));
      walk(each.type->fields(), here, chosen, visit);
    }
  }
}

/// Dotted names of the values in which the JSON of two plans differs, without list indices.
std::set<std::string> changed_values(const std::string& before, const std::string& after) {
  const auto flat = [](const std::string& text) {
    std::map<std::string, std::string> out;
    const auto leaves = nlohmann::json::parse(text).flatten();
    for (const auto& [path, value] : leaves.items()) out[path] = value.dump();
    return out;
  };
  const auto a = flat(before), b = flat(after);
  std::set<std::string> out;
  const auto add = [&](const std::string& path) {
    std::string name;
    for (std::size_t begin = 1; begin <= path.size();) {
      const auto end = std::min(path.find('/', begin), path.size());
      const auto part = path.substr(begin, end - begin);
      if (part.find_first_not_of("0123456789") != std::string::npos) name += (name.empty() ? "" : ".") + part;
      begin = end + 1;
    }
    out.insert(name);
  };
  for (const auto& [path, value] : a)
    if (const auto other = b.find(path); other == b.end() || other->second != value) add(path);
  for (const auto& [path, value] : b)
    if (!a.contains(path)) add(path);
  return out;
}

/// True if `claim`, a value in the plan's JSON or a problem's id, results from the key on one of the recipes.
bool shows(const std::string& claim, const std::string& key, const Overrides& context,
           const std::vector<std::string>& values) {
  for (const auto& base : kBases) {
    const auto before = outcome_of(base, context);
    if (!before.plan) continue;
    for (const auto& value : values) {
      auto with = context;
      with.push_back(set(key, value));
      const auto after = outcome_of(base, with);
      if (after.told.find(claim + " " + key) != std::string::npos) return true;
      if (!after.plan) continue;
      for (const auto& name : changed_values(before.json, after.json))
        if (name == claim || name.starts_with(claim + ".")) return true;
    }
  }
  return false;
}

/// Values for keys whose effect docs/compatibility.md claims, if those of kValues would not show it.
const std::map<std::string, std::vector<std::string>> kClaimed = {
    {"distributed.mp_policy", {"{param_dtype: float32}"}},
    {"distributed.offload_policy", {"{_target_: torch.distributed.fsdp.CPUOffloadPolicy}"}},
    {"distributed.pipeline.module_fqns_per_model_part",
     {"[[model.embed_tokens, model.layers.0, model.layers.1], [model.layers.2, model.layers.3, model.layers.4, "
      "model.layers.5, model.layers.6, model.layers.7, model.norm, lm_head]]"}},
};

/// A key of a recipe: its field and the overrides that select its section.
struct KnownKey {
  FieldInfo field;
  Overrides context;
};
/// By strategy (empty for keys of no strategy) and dotted key; sections too.
std::map<std::pair<std::string, std::string>, KnownKey> known_keys() {
  std::map<std::pair<std::string, std::string>, KnownKey> out;
  walk(config::fields_of<config::Recipe>(), "", {},
       [&](const std::string& key, const FieldInfo& field, const Overrides& context) {
         std::string strategy;
         for (const auto& each : context)
           if (each.key == "distributed.strategy") strategy = each.value;
         out.try_emplace({strategy, key}, KnownKey{field, context});
       });
  return out;
}

/// The rows of one `##` section of a page.
std::vector<std::vector<std::string>> rows_below(const std::string& page, const std::string& heading) {
  const auto begin = page.find("\n## `" + heading + "`\n");
  if (begin == std::string::npos) return {};
  return test::table_rows(page.substr(begin, page.find("\n## ", begin + 1) - begin));
}

std::string unquoted(const std::string& cell) {
  return cell.size() > 2 && cell.front() == '`' && cell.back() == '`' ? cell.substr(1, cell.size() - 2) : cell;
}

class CompatibilityPage {
 public:
  CompatibilityPage() : page_(test::read_file(test::repository() / "docs/compatibility.md")), keys_(known_keys()) {}

  void fields(const std::string& heading, const std::string& section, const std::string& strategy,
              std::set<std::string> wanted) {
    for (const auto& cells : rows_below(page_, heading)) {
      REQUIRE(cells.size() == 4);
      const auto name = unquoted(cells[0]);
      INFO(heading << "." << name);
      CHECK(wanted.erase(name) == 1);
      const std::string key = section + "." + name;
      const auto known = find(strategy, key);
      if (cells[1] == "no effect") {
        REQUIRE(known != nullptr);
        CHECK(cells[3] == known->field.ignored);
      } else {
        CHECK(cells[1] == "acts");
        shown(key, strategy_of(strategy), known, unquoted(cells[2]));
      }
    }
    INFO(heading);
    CHECK(wanted == std::set<std::string>());
  }

  void functions(const std::string& heading, std::set<std::string> wanted) {
    for (const auto& cells : rows_below(page_, heading)) {
      REQUIRE(cells.size() == 4);
      INFO(cells[0]);
      CHECK(wanted.erase(unquoted(cells[0])) == 1);
      const auto seen = unquoted(cells[2]);
      if (cells[1] != "acts") {
        CHECK((cells[1] == "no effect" || cells[1] == "refused"));
        CHECK_FALSE(cells[3].empty());
      } else if (seen.starts_with("test/")) {
        CHECK(test::fs::exists(test::repository() / seen));
      } else {
        // The test of all keys shows that it has an effect.
        const bool any = std::any_of(keys_.begin(), keys_.end(), [&](const auto& each) {
          return each.first.second == seen && each.second.field.ignored.empty() &&
                 each.second.field.unsupported.empty();
        });
        CHECK(any);
      }
    }
    INFO(heading);
    CHECK(wanted == std::set<std::string>());
  }

 private:
  static Overrides strategy_of(const std::string& strategy) {
    if (strategy.empty()) return {};
    return {set("distributed.strategy", strategy)};
  }

  const KnownKey* find(const std::string& strategy, const std::string& key) const {
    for (const auto& each : {strategy, std::string()})
      if (const auto found = keys_.find({each, key}); found != keys_.end()) return &found->second;
    return nullptr;
  }

  static void shown(const std::string& key, const Overrides& context, const KnownKey* known, const std::string& claim) {
    if (claim.starts_with("test/")) {
      CHECK(test::fs::exists(test::repository() / claim));
      return;
    }
    const auto claimed = kClaimed.find(key);
    REQUIRE((claimed != kClaimed.end() || known != nullptr));
    const auto values = claimed != kClaimed.end() ? claimed->second : values_for(key, known->field);
    INFO("claims " << claim);
    CHECK(shows(claim, key, context, values));
  }

  std::string page_;
  std::map<std::pair<std::string, std::string>, KnownKey> keys_;
};

}  // namespace

TEST_CASE("every key of a recipe changes the plan, is reported or is listed as ignored", "[docs]") {
  const test::TemporaryFolder folder;
  write_models(folder);
  auto bases = kBases;
  const auto beside = folder.path().native() + "/";
  bases.push_back("model: {pretrained_model_name_or_path: " + beside + "model}\n" + kRest + kCuda);
  bases.push_back("model: {pretrained_model_name_or_path: some/model, cache_dir: " + beside + "cache}\n" + kRest +
                  kCuda);
  for (std::size_t i = bases.size() - 2, end = bases.size(); i < end; ++i)
    bases.push_back(kDense + kRest + kCuda + "teacher_" + bases[i].substr(0, bases[i].find('\n') + 1));
  for (const auto& base : bases) {
    const auto plain = outcome_of(base, {});
    INFO(base << plain.told);
    CHECK(plain.plan);
  }
  int shown = 0, outside = 0;
  std::string silent;
  walk(config::fields_of<config::Recipe>(), "", {},
       [&](const std::string& key, const FieldInfo& field, const Overrides& context) {
         const bool by_others =
             std::find(kCounted.begin(), kCounted.end(), key) == kCounted.end() &&
             std::any_of(kOutside.begin(), kOutside.end(), [&](const auto& part) { return key.starts_with(part); });
         const bool refused = !field.ignored.empty() || !field.unsupported.empty();
         if (by_others && (!refused || key.find("dataset.") != std::string::npos)) return void(++outside);
         for (const auto& base : bases) {
           // If this is an option of another strategy than the recipe's, another recipe shows its effect.
           const auto before = outcome_of(base, context);
           if (!before.plan) continue;
           for (auto value : values_for(key, field)) {
             if (key.ends_with("model.cache_dir")) value = beside + value;
             if (acts(before, base, context, key, value)) return void(++shown);
           }
         }
         silent += "  " + key + "\n";
       });
  INFO(shown << " keys act, " << outside << " lie outside; silent are\n" << silent);
  CHECK(silent.empty());
  CHECK(shown > 250);
}

TEST_CASE("docs/compatibility.md states the effect of every option of NeMo AutoModel", "[docs]") {
  const auto options = golden::load("nemo/options.json");
  const auto names = [&](const char* list) { return options[list].get<std::set<std::string>>(); };
  CompatibilityPage page;
  page.fields("PipelineConfig", "distributed.pipeline", "", names("PipelineConfig"));
  page.fields("FSDP2Config", "distributed", "fsdp2", names("FSDP2Config"));
  page.fields("MegatronFSDPConfig", "distributed", "megatron_fsdp", names("MegatronFSDPConfig"));
  page.fields("DDPConfig", "distributed", "ddp", names("DDPConfig"));
  for (const auto& [heading, list] :
       {std::pair("pipelining.functional", "nemo_functions"), std::pair("parallelizer", "nemo_parallelizer")}) {
    std::set<std::string> wanted;
    for (const auto& [function, parameters] : options[list].items()) {
      wanted.insert(function);
      for (const auto& each : parameters) wanted.insert(function + "." + each.get<std::string>());
    }
    page.functions(heading, wanted);
  }
  // Megatron Core's fields have a page of their own, whose rows are checked by another test.
  const auto megatron = test::first_column(test::read_file(test::repository() / "docs/megatron.md"));
  for (const auto& name : names("ModelParallelConfig")) {
    INFO("model_parallel." << name);
    CHECK(megatron.contains(name));
  }
}

}  // namespace automodel
