#include "plan/idle_keys.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "base/expression.h"
#include "base/spelling.h"
#include "plan/costs.h"
#include "plan/training_plan.h"
#include "schedule/generators.h"

namespace automodel::plan {
namespace {

/// What the conditions of the table depend on.
struct Situation {
  const config::Recipe& recipe;
  const TrainingPlan& plan;
  const Located& report;
  int per_machine;  ///< ranks

  const mesh::MeshSizes& sizes() const { return plan.mesh.sizes(); }
  template <class Strategy>
  const Strategy* strategy() const {
    return std::get_if<Strategy>(&recipe.distributed->strategy());
  }
  bool validates() const { return recipe.validation_dataset() || !recipe.validation_datasets().empty(); }
  bool saves() const { return recipe.checkpoint->enabled(); }
  bool packs() const { return recipe.packed_sequence->packed_sequence_size() > 0; }
  bool decays_as(config::DecayStyle style) const {
    return recipe.lr_scheduler() && recipe.lr_scheduler()->lr_decay_style() == style;
  }
  bool weight_decay_changes() const {
    const auto& rates = *recipe.lr_scheduler();
    const auto usual = std::visit([](const auto& optimizer) { return optimizer.weight_decay(); }, recipe.optimizer());
    return rates.start_wd().value_or(usual) != rates.end_wd().value_or(usual);
  }
  /// Whether the order of the pipeline is searched.
  bool searches() const {
    const auto& pipeline = recipe.distributed->pipeline();
    if (!pipeline || pipeline->pp_schedule_csv() || !pipeline->pp_schedule()) return false;
    const auto* row = schedule::find_generator(*pipeline->pp_schedule());
    return row != nullptr && row->searched;
  }
  bool steps_before(std::int64_t step) const {
    return recipe.step_scheduler->max_steps() && *recipe.step_scheduler->max_steps() <= step;
  }
  bool has_pretrained_name() const { return recipe.model() && recipe.model()->pretrained_model_name_or_path(); }
  /// The random pictures that are trained on; null: it is other data.
  const config::MockPicturesDatasetConfig* mock_pictures() const {
    return recipe.dataset() ? std::get_if<config::MockPicturesDatasetConfig>(&*recipe.dataset()) : nullptr;
  }
  /// Whether samples are text: the data has a tokenizer, or the model brings one.
  bool has_tokenizer() const {
    if (!recipe.dataset() || has_pretrained_name()) return true;
    bool out = false;
    config::each_part(*recipe.dataset(), [&](const auto& data) {
      out = out || requires {
        data.tokenizer();
      };
    });
    return out;
  }
};
using When = bool (*)(const Situation&);

struct Idle {
  std::string_view key;
  When when;
  std::string_view sentence;
  std::string_view help;
};

const When kNothingSaved = [](const Situation& s) { return !s.saves(); };
/// Validation may follow the steps at which checkpoints are due, even if none is written.
const When kNothingDue = [](const Situation& s) {
  return !s.saves() && !(s.validates() && s.recipe.step_scheduler->validate_on_checkpoint());
};
const When kNothingValidated = [](const Situation& s) { return !s.validates(); };
const When kNothingPacked = [](const Situation& s) { return !s.packs(); };
const When kNoWsd = [](const Situation& s) { return !s.decays_as(config::DecayStyle::kWsd); };
const When kConstantRate = [](const Situation& s) { return s.decays_as(config::DecayStyle::kConstant); };
const When kConstantWeightDecay = [](const Situation& s) { return !s.weight_decay_changes(); };
const When kOneRank = [](const Situation& s) { return s.plan.mesh.world_size() == 1; };
const When kPrefetchOff = [](const Situation& s) {
  const auto* fsdp = s.strategy<config::FSDP2Config>();
  return fsdp != nullptr && !fsdp->enable_fsdp2_prefetch();
};
const When kRecomputesNothing = [](const Situation& s) {
  return s.recipe.distributed->checkpointing() == Recompute::kNone;
};

const When kAttentionNotExchanged = [](const Situation& s) {
  return s.sizes().cp > 1 && s.plan.model && !exchanges_attention(s.plan.model->spec, s.plan.batch.shortest());
};

constexpr std::string_view kSave = "remove it, or set checkpoint.enabled: true";
constexpr std::string_view kValidate = "remove it, or add validation_dataset";
constexpr std::string_view kPack = "remove it, or set packed_sequence.packed_sequence_size";

const Idle kIdle[] = {
    {"distributed.pipeline", [](const Situation& s) { return s.sizes().pp == 1; },
     "the pipeline section has no effect with pp_size 1 (but pp_seq_len, on estimates)",
     "set distributed.pp_size to 2 or more"},
    {"distributed.pipeline.search", [](const Situation& s) { return s.sizes().pp > 1 && !s.searches(); },
     "the search section has no effect on a schedule that is named or read from a file",
     "remove it, or set pp_schedule: searched"},
    {"distributed.pipeline.round_virtual_stages_to_pp_multiple",
     [](const Situation& s) { return s.sizes().pp > 1 && !s.report.given("distributed.pipeline.layers_per_stage"); },
     "round_virtual_stages_to_pp_multiple has no effect without layers_per_stage: the number of stages is not rounded",
     "remove it, or set distributed.pipeline.layers_per_stage"},
    {"model_parallel.delay_wgrad_compute",
     [](const Situation& s) { return s.sizes().pp == 1 && s.recipe.model_parallel->delay_wgrad_compute(); },
     "delay_wgrad_compute has no effect with pp_size 1: no stage waits for an input gradient",
     "remove it, or set distributed.pp_size to 2 or more"},
    {"model_parallel.microbatch_group_size_per_vp_stage", [](const Situation& s) { return s.sizes().pp == 1; },
     "microbatch_group_size_per_vp_stage has no effect with pp_size 1", "set distributed.pp_size to 2 or more"},
    {"model_parallel.cp_comm_type", kAttentionNotExchanged,
     "cp_comm_type has no effect: every layer is recurrent or attends to tokens that an index chooses, which have "
     "exchanges of their own",
     "remove it"},
    {"model_parallel.hierarchical_context_parallel_sizes",
     [](const Situation& s) {
       return kAttentionNotExchanged(s) &&
              s.recipe.model_parallel->cp_comm_type() == config::ContextCommunication::kA2aP2p;
     },
     "hierarchical_context_parallel_sizes has no effect: every layer is recurrent or attends to tokens that an index "
     "chooses",
     "remove it"},
    {"model_parallel.wgrad_deferral_limit",
     [](const Situation& s) { return !s.recipe.model_parallel->defer_embedding_wgrad_compute(); },
     "wgrad_deferral_limit has no effect without defer_embedding_wgrad_compute",
     "set model_parallel.defer_embedding_wgrad_compute: true"},
    {"distributed.moe", [](const Situation& s) { return s.sizes().ep == 1; },
     "the moe section has no effect with ep_size 1", "set distributed.ep_size to 2 or more"},
    {"distributed.moe.reshard_after_forward",
     [](const Situation& s) { return s.sizes().ep > 1 && s.sizes().dp() * s.sizes().cp == s.sizes().ep; },
     "reshard_after_forward has no effect on experts: with dp x cp = ep each expert has one shard, which nothing "
     "gathers",
     "remove it, or use more data-parallel ranks than ep_size"},
    {"model_parallel.overlap_moe_expert_parallel_comm",
     [](const Situation& s) {
       return s.sizes().ep == 1 && s.recipe.model_parallel->overlap_moe_expert_parallel_comm();
     },
     "overlap_moe_expert_parallel_comm has no effect with ep_size 1: no token leaves its rank",
     "set distributed.ep_size to 2 or more"},
    {"model_parallel.overlap_dispatch_backward_with_experts_wgrad",
     [](const Situation& s) {
       return s.sizes().ep == 1 && s.recipe.model_parallel->overlap_dispatch_backward_with_experts_wgrad();
     },
     "overlap_dispatch_backward_with_experts_wgrad has no effect with ep_size 1: no token leaves its rank",
     "set distributed.ep_size to 2 or more"},
    {"distributed.fsdp2_forward_prefetch_depth", kPrefetchOff,
     "fsdp2_forward_prefetch_depth has no effect without enable_fsdp2_prefetch: one unit is gathered ahead",
     "set distributed.enable_fsdp2_prefetch: true"},
    {"distributed.fsdp2_backward_prefetch_depth", kPrefetchOff,
     "fsdp2_backward_prefetch_depth has no effect without enable_fsdp2_prefetch: one unit is gathered ahead",
     "set distributed.enable_fsdp2_prefetch: true"},
    {"distributed.fsdp2_backward_prefetch_depth",
     [](const Situation& s) {
       const auto* fsdp = s.strategy<config::FSDP2Config>();
       return fsdp != nullptr && fsdp->enable_fsdp2_prefetch() &&
              !fsdp->reshard_after_forward().value_or(s.sizes().pp == 1);
     },
     "fsdp2_backward_prefetch_depth has no effect without reshard_after_forward: parameters stay gathered",
     "remove it, or set distributed.reshard_after_forward: true"},
    {"distributed.defer_fsdp_grad_sync",
     // The stages of a pipeline are divided later: it has several microbatches.
     [](const Situation& s) { return !s.plan.pipelined && s.plan.batch.runs == 1; },
     "defer_fsdp_grad_sync has no effect: a step has one microbatch, after which gradients are reduced anyway",
     "remove it, or accumulate gradients over several microbatches"},
    {"distributed.bucket_cap_mb", [](const Situation& s) { return s.sizes().dp() * s.sizes().cp == 1; },
     "bucket_cap_mb has no effect with one data-parallel rank: no gradient is reduced", "remove it"},
    {"distributed.overlap_param_gather", [](const Situation& s) { return s.plan.zero_level.value_or(-1) == 0; },
     "overlap_param_gather has no effect with zero_dp_strategy 0: no parameter is sharded",
     "remove it, or set distributed.zero_dp_strategy: 3"},
    {"distributed.grad_reduce_in_fp32", [](const Situation& s) { return s.plan.types.compute == DType::kFloat32; },
     "grad_reduce_in_fp32 has no effect: gradients are float32 already", "remove it"},
    {"distributed.activation_checkpointing_scope", kRecomputesNothing,
     "activation_checkpointing_scope has no effect: activation_checkpointing is off",
     "set distributed.activation_checkpointing: full"},
    {"hardware.node_bandwidth", kOneRank, "node_bandwidth has no effect with one rank: it exchanges nothing",
     "remove it"},
    {"hardware.node_bandwidth", [](const Situation& s) { return !kOneRank(s) && s.per_machine == 1; },
     "node_bandwidth has no effect: no machine has two ranks", "remove it, or set hardware.network_bandwidth"},
    {"hardware.network_bandwidth", kOneRank, "network_bandwidth has no effect with one rank: it exchanges nothing",
     "remove it"},
    {"hardware.network_bandwidth",
     [](const Situation& s) { return !kOneRank(s) && s.plan.mesh.world_size() <= s.per_machine; },
     "network_bandwidth has no effect: all ranks are on one machine",
     "remove it, or name fewer ranks of a machine (--gpus-per-node)"},
    {"hardware.storage_bandwidth", kNothingSaved, "storage_bandwidth has no effect: checkpoint.enabled is false",
     kSave},
    {"hardware.failures.gpu", [](const Situation& s) { return !s.plan.cuda; },
     "failures of GPUs have no effect on CPUs", "remove it, or plan for a GPU (device: cuda, hardware.profile)"},
    {"hardware.dispatcher", [](const Situation& s) { return s.plan.cuda && s.plan.model && !s.plan.model->spec.moe; },
     "dispatcher has no effect: this model has no experts to dispatch tokens to", "remove it"},
    {"hardware.dispatcher",
     [](const Situation& s) { return s.plan.cuda && s.plan.model && s.plan.model->spec.moe && s.sizes().ep == 1; },
     "dispatcher has no effect with ep_size 1: no token leaves its rank", "set distributed.ep_size to 2 or more"},
    {"model.load_base_model", [](const Situation& s) { return !s.has_pretrained_name(); },
     "load_base_model has no effect on a model given by its config: there are no weights to read",
     "name a folder with weights in model.pretrained_model_name_or_path"},
    {"step_scheduler.val_every_steps", kNothingValidated, "val_every_steps has no effect: there is no validation set",
     kValidate},
    {"step_scheduler.early_stopping_patience", kNothingValidated,
     "early_stopping_patience has no effect: there is no validation set", kValidate},
    {"step_scheduler.early_stopping_threshold",
     [](const Situation& s) { return !s.recipe.step_scheduler->early_stopping_patience(); },
     "early_stopping_threshold has no effect without early_stopping_patience",
     "set step_scheduler.early_stopping_patience, or remove it"},
    {"step_scheduler.validate_on_checkpoint", kNothingValidated,
     "validate_on_checkpoint has no effect: there is no validation set", kValidate},
    {"validation_dataloader", kNothingValidated, "validation_dataloader has no effect: there is no validation set",
     kValidate},
    {"step_scheduler.ckpt_every_steps", kNothingDue, "ckpt_every_steps has no effect: checkpoint.enabled is false",
     kSave},
    {"step_scheduler.save_checkpoint_every_epoch", kNothingDue,
     "save_checkpoint_every_epoch has no effect: checkpoint.enabled is false", kSave},
    {"checkpoint.is_async", kNothingSaved, "is_async has no effect: checkpoint.enabled is false", kSave},
    {"checkpoint.save_consolidated", kNothingSaved, "save_consolidated has no effect: checkpoint.enabled is false",
     kSave},
    {"checkpoint.max_recent_checkpoints", kNothingSaved,
     "max_recent_checkpoints has no effect: checkpoint.enabled is false", kSave},
    {"checkpoint.memory_every_steps", kNothingSaved, "memory_every_steps has no effect: checkpoint.enabled is false",
     kSave},
    {"checkpoint.best_metric_key", kNothingSaved, "best_metric_key has no effect: checkpoint.enabled is false", kSave},
    {"fault_tolerance.max_restarts",
     [](const Situation& s) { return !s.saves() && s.recipe.fault_tolerance->max_restarts() > 0; },
     "max_restarts begins again at step 0: checkpoint.enabled is false", "set checkpoint.enabled: true"},
    {"fault_tolerance.min_ranks", [](const Situation& s) { return s.recipe.fault_tolerance->max_restarts() == 0; },
     "min_ranks has no effect without restarts", "set fault_tolerance.max_restarts, or give train --max-restarts"},
    {"fault_tolerance.start_minutes", kOneRank, "start_minutes has no effect with one rank: it waits for no other",
     "remove it"},
    {"fault_tolerance.slow_rank.factor", kOneRank,
     "factor has no effect with one rank: there is none to compare it with", "remove it"},
    {"fault_tolerance.loss_spike.window",
     [](const Situation& s) {
       const auto& spike = s.recipe.fault_tolerance->loss_spike();
       return spike && s.steps_before(spike->window());
     },
     "loss_spike has no effect: its window is not full before the run's last step",
     "make fault_tolerance.loss_spike.window smaller than step_scheduler.max_steps"},
    {"fault_tolerance.max_bad_steps",
     [](const Situation& s) {
       return s.recipe.fault_tolerance->on_non_finite() == config::BadStepAction::kStop &&
              !s.recipe.fault_tolerance->loss_spike();
     },
     "max_bad_steps has no effect: the first bad step stops the run",
     "set fault_tolerance.on_non_finite to skip or rollback"},
    {"lr_scheduler.wsd_decay_steps", kNoWsd, "wsd_decay_steps has no effect: lr_decay_style is not WSD",
     "remove it, or set lr_scheduler.lr_decay_style: WSD"},
    {"lr_scheduler.lr_wsd_decay_style", kNoWsd, "lr_wsd_decay_style has no effect: lr_decay_style is not WSD",
     "remove it, or set lr_scheduler.lr_decay_style: WSD"},
    {"lr_scheduler.min_lr", kConstantRate, "min_lr has no effect: lr_decay_style is constant",
     "remove it, or choose another lr_decay_style"},
    {"lr_scheduler.lr_decay_steps", kConstantRate, "lr_decay_steps has no effect: lr_decay_style is constant",
     "remove it, or choose another lr_decay_style"},
    {"lr_scheduler.init_lr", [](const Situation& s) { return s.recipe.lr_scheduler()->lr_warmup_steps() == 0; },
     "init_lr has no effect: lr_warmup_steps is 0", "remove it, or set lr_scheduler.lr_warmup_steps to 1 or more"},
    {"lr_scheduler.wd_incr_steps", kConstantWeightDecay, "wd_incr_steps has no effect: start_wd and end_wd are equal",
     "remove it, or set lr_scheduler.start_wd and end_wd"},
    {"lr_scheduler.wd_incr_style", kConstantWeightDecay, "wd_incr_style has no effect: start_wd and end_wd are equal",
     "remove it, or set lr_scheduler.start_wd and end_wd"},
    {"packed_sequence.packing_strategy", kNothingPacked, "packing_strategy has no effect: packed_sequence_size is 0",
     kPack},
    {"packed_sequence.max_packs", kNothingPacked, "max_packs has no effect: packed_sequence_size is 0", kPack},
    {"packed_sequence.drop_long_samples", kNothingPacked, "drop_long_samples has no effect: packed_sequence_size is 0",
     kPack},
    {"packed_sequence.pad_to_multiple_of", kNothingPacked,
     "pad_to_multiple_of has no effect: packed_sequence_size is 0", kPack},
    {"packed_sequence.pad_to_multiple_of",
     [](const Situation& s) { return s.packs() && s.recipe.packed_sequence->neat(); },
     "pad_to_multiple_of has no effect in neat packs", "remove it, or use packing_strategy: thd without pretokenize"},
    {"packed_sequence.post_tokenize_hook_fn", kNothingPacked,
     "post_tokenize_hook_fn has no effect: packed_sequence_size is 0",
     "remove it, or set answer_prefix of the data set, which acts without packs, too"},
    {"packed_sequence.pretokenize", kNothingPacked, "pretokenize has no effect: packed_sequence_size is 0", kPack},
    {"packed_sequence.packing_ratio", kNothingPacked, "packing_ratio has no effect: packed_sequence_size is 0", kPack},
    {"packed_sequence.max_length", kNothingPacked, "max_length has no effect: packed_sequence_size is 0", kPack},
    {"packed_sequence.packing_strategy",
     [](const Situation& s) { return s.packs() && s.recipe.packed_sequence->pretokenize(); },
     "packing_strategy has no effect: packs are neat under pretokenize", "remove one of the two"},
    {"dataset.pretokenize",
     [](const Situation& s) {
       const auto* mock = s.mock_pictures();
       return mock != nullptr && (s.packs() || !mock->max_length());
     },
     "pretokenize has no effect: it is for max_length of rows that are not packed", "remove it"},
    {"dataset.max_length",
     [](const Situation& s) {
       const auto* mock = s.mock_pictures();
       return mock != nullptr && mock->responses() && mock->truncation() == config::SampleTruncation::kNone;
     },
     "max_length has no effect: answers are not random, and rows are not cut", "remove it"},
    {"peft.dropout_position", [](const Situation& s) { return s.recipe.peft() && s.recipe.peft()->dropout() == 0; },
     "dropout_position has no effect: peft.dropout is 0", "remove it, or set peft.dropout"},
    {"peft.moe_rank_scaling", [](const Situation& s) { return s.plan.model && !s.plan.model->spec.moe; },
     "moe_rank_scaling has no effect: this model has no experts", "remove it"},
    {"freeze_config.unfreeze_modules",
     [](const Situation& s) { return s.recipe.freeze_config() && s.recipe.freeze_config()->freeze_modules->empty(); },
     "unfreeze_modules has no effect: freeze_modules names nothing that it could be an exception of",
     "add freeze_config.freeze_modules"},
    {"optimizer.lm_head_lr", [](const Situation& s) { return s.plan.model && s.plan.model->spec.tied_embeddings; },
     "lm_head_lr has no effect: the head is the embedding (tie_word_embeddings)", "set optimizer.embed_lr instead"},
    {"optimizer.dampening",
     [](const Situation& s) {
       const auto* sgd = std::get_if<config::SgdConfig>(&s.recipe.optimizer());
       return sgd != nullptr && sgd->momentum() == 0;
     },
     "dampening has no effect without momentum", "remove it, or set optimizer.momentum"},
    {"generation", [](const Situation& s) { return !s.has_tokenizer(); },
     "generation reads and writes bytes: neither the data nor the model has a tokenizer", "remove the section"},
    {"logging.trace",
     [](const Situation& s) {
       const auto& steps = s.recipe.logging->trace().steps;
       return !steps.empty() && std::ranges::all_of(steps, [&](auto step) { return s.steps_before(step); });
     },
     "logging.trace has no effect: the run ends before its steps", "name steps below step_scheduler.max_steps"},
};

/// A name that no validation set has would leave the run without its best checkpoint.
void warn_of_idle_ranking(const config::Recipe& recipe, Located& report) {
  const auto& name = recipe.checkpoint->best_metric_key();
  std::vector<std::string_view> sets;
  if (recipe.validation_dataset()) sets.emplace_back("default");
  for (const auto& [each, dataset] : recipe.validation_datasets()) sets.emplace_back(each);
  if (sets.empty() ? name == "default" : std::ranges::find(sets, name) != sets.end()) return;
  report.warn("no-effect", "checkpoint.best_metric_key")
      .says("no validation set is named '{}', so no checkpoint becomes LOWEST_VAL{}", name,
            recipe.step_scheduler->early_stopping_patience() ? " and the run never ends early" : "")
      .hint(sets.empty() ? "add validation_dataset, which is named default"
                         : fmt::format("the validation sets are {}", join(sets)));
}

/// Dropout inside the model: transformers' classes apply it in training.
void warn_of_model_dropout(const config::Recipe& recipe, const TrainingPlan& plan, Located& report) {
  if (!plan.model || !recipe.dataset()) return;
  const auto& spec = plan.model->spec;
  std::vector<std::string> rates;
  const auto add = [&](const char* what, double rate) {
    if (rate > 0) rates.push_back(fmt::format("{} {:g}", what, rate));
  };
  add("of attention", spec.attention_dropout);
  add("of embeddings", spec.embedding_dropout);
  add("in residuals", spec.residual_dropout);
  if (rates.empty()) return;
  report.warn("no-effect", "model")
      .says("the model's configuration has dropout ({}), which is not applied", join({rates.begin(), rates.end()}))
      .hint("set its rates to 0 in config.json, or model.config; peft.dropout applies to adapters");
}

/// Folders for outputs of a frozen tower, where none are kept or another section's folder is used. With pictures, that
/// of conversations has no other use: tokens are then not kept.
void warn_of_idle_feature_folders(const config::Recipe& recipe, const TrainingPlan& plan, Located& report) {
  if (!plan.model || !plan.model->spec.vision) return;
  struct Folder {
    std::string key, path;
  };
  std::vector<Folder> folders;
  std::string never = !plan.features ? "no vision tower is frozen" : recipe.teacher_model() ? "there is a teacher" : "";
  each_with_features(recipe, [&](const auto& section, const std::string& key) {
    if (section.cache_dir()) folders.push_back({key + ".cache_dir", *section.cache_dir()});
    if (section.cache_features() == config::CacheFeatures::kNo) never = key + ".cache_features is false";
  });
  for (const auto& [key, path] : folders) {
    const auto& first = folders.front();
    if (!never.empty())
      report.warn("no-effect", key)
          .says("{} has no effect: no outputs of a tower are kept, since {}", key, never)
          .hint("remove it");
    else if (path != first.path)
      report.warn("no-effect", key)
          .says("{} has no effect: outputs for all data sets are kept in {}, '{}'", key, first.key, first.path)
          .hint("remove it: what one section says holds for all");
  }
}

/// What the names of all layers share: their last component but one, and the last two (q_proj, q_proj.weight).
std::set<std::string> endings_of(const std::set<std::string>& names) {
  std::set<std::string> out;
  for (const auto& name : names) {
    const auto last = name.rfind('.');
    const auto before = last == name.npos || last == 0 ? name.npos : name.rfind('.', last - 1);
    const std::size_t begin = before == name.npos ? 0 : before + 1;
    out.insert(name.substr(begin));
    if (last != name.npos) out.insert(name.substr(begin, last - begin));
  }
  return out;
}

/// Refuses a pattern that matches no name: a typo would leave its setting without effect.
template <class Matches>
void refuse_unmatched(const std::string& key, const std::string& pattern, const char* what,
                      const std::set<std::string>& names, Matches matches, Located& report) {
  if (std::ranges::any_of(names, matches)) return;
  const auto endings = endings_of(names);
  report.refuse("bad-value", key)
      .says("no {} of this model matches '{}'", what, pattern)
      .hint(suggestion(pattern, {endings.begin(), endings.end()}));
}

void refuse_idle_patterns(const config::Recipe& recipe, const TrainingPlan& plan, Located& report) {
  if (!plan.model) return;
  std::set<std::string> parameters, modules = {"lm_head"};
  for (const auto& parameter : all_parameters(plan)) {
    parameters.insert(parameter.fqn);
    modules.insert(std::string(parameter.module()));
  }
  const auto& groups = std::visit(
      [](const auto& optimizer) -> const auto& { return optimizer.param_group_overrides(); }, recipe.optimizer());
  for (std::size_t i = 0; i < groups.size(); ++i)
    if (const auto pattern = Expression::read(groups[i].pattern()); pattern)
      refuse_unmatched(
          fmt::format("optimizer.param_group_overrides.{}.pattern", i), groups[i].pattern(), "parameter", parameters,
          [&](const std::string& name) { return pattern->found_in(name); }, report);
  if (!recipe.fp8() || !recipe.fp8()->enabled()) return;
  for (const auto& part : recipe.fp8()->filter_fqns())
    refuse_unmatched(
        "fp8.filter_fqns", part, "module", modules,
        [&](const std::string& name) { return name.find(part) != std::string::npos; }, report);
}

}  // namespace

void check_idle_keys(const config::Recipe& recipe, const TrainingPlan& plan, Costs& costs, Located& report) {
  const Situation situation{recipe, plan, report, costs.ranks_per_machine(plan, recipe)};
  for (const auto& idle : kIdle)
    if (report.given(std::string(idle.key)) && idle.when(situation))
      report.warn("no-effect", std::string(idle.key)).says(std::string(idle.sentence)).hint(std::string(idle.help));
  if (situation.sizes().pp == 1 && recipe.model_parallel->virtual_pipeline_model_parallel_size().value_or(1) != 1)
    report.refuse("bad-value", "model_parallel.virtual_pipeline_model_parallel_size")
        .says("virtual pipeline stages need pipeline parallelism")
        .hint("set distributed.pp_size to 2 or more, or remove the key");
  warn_of_idle_ranking(recipe, report);
  warn_of_model_dropout(recipe, plan, report);
  warn_of_idle_feature_folders(recipe, plan, report);
  refuse_idle_patterns(recipe, plan, report);
}

void warn_of_gpu_estimates(const config::HardwareConfig& hardware, Located& report) {
  const auto warn = [&](const char* key) {
    report.warn("no-effect", key)
        .says("estimates for a CPU assume this program's own kernels and communication")
        .hint("remove the key, or plan for a GPU (device: cuda, hardware.profile)");
  };
  if (hardware.stack() != config::Stack::kOwn) warn("hardware.stack");
  if (hardware.dispatcher()) warn("hardware.dispatcher");
}

}  // namespace automodel::plan
