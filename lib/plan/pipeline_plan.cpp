#include "plan/pipeline_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include "arch/counts.h"
#include "arch/modules.h"
#include "plan/model_names.h"
#include "plan/pipeline_layout.h"
#include "plan/schedule_choice.h"
#include "plan/virtual_stages.h"
#include "schedule/csv.h"
#include "schedule/generators.h"
#include "schedule/simulate.h"

namespace automodel::plan {
namespace {

constexpr int kMostStages = 1 << 20;  // far above any model's layers

constexpr const char* kSection = "distributed.pipeline";
constexpr const char* kStageLayoutKey = "distributed.pipeline.pipeline_model_parallel_layout";

/// Null and a problem where there is no such schedule.
const schedule::Generator* named_schedule(const config::PipelineConfig& pipeline, Located& report) {
  const auto* found = schedule::find_generator(*pipeline.pp_schedule());
  if (found == nullptr) {
    auto problem = schedule::unknown_schedule(*pipeline.pp_schedule());
    problem.key = "pp_schedule";
    report.refuse_all({std::move(problem)}, kSection);
    return nullptr;
  }
  if (found->generate == nullptr) {
    report.refuse("schedule-needs-csv", "distributed.pipeline.pp_schedule",
                  fmt::format("'{}' takes its order from a file", *pipeline.pp_schedule()),
                  "give pp_schedule_csv, or name a schedule");
    return nullptr;
  }
  return found;
}

/// What is decided step by step; every step may end it with a problem.
class PipelinePlanning {
 public:
  PipelinePlanning(TrainingPlan& plan, const config::LoadedRecipe& recipe, const PlanRequest& request, Located& report)
      : plan_(plan),
        recipe_(recipe),
        request_(request),
        report_(report),
        ranks_(plan.mesh.sizes().pp),
        settings_(section()),
        model_(plan.model ? &*plan.model : nullptr) {}

  void run() {
    if (!choose_generator() || !plan_microbatches() || !split() || !make_schedule()) return;
    out_.timeline = schedule::simulate(out_.schedule.training, out_.schedule.placement, out_.schedule.shape,
                                       schedule::unit_costs(stages_));
    plan_.pipeline = std::move(out_);
    if (model_ == nullptr) return;
    if (plan_.pipelined && settings_.layers_per_stage->automatic)
      balance();
    else
      describe_stages();
  }

 private:
  /// The recipe's section; without a pipeline its defaults, with the whole local batch as one microbatch.
  config::PipelineConfig section() const {
    if (plan_.pipelined) return recipe_.recipe.distributed->pipeline().value_or(config::PipelineConfig{});
    config::PipelineConfig one;
    one.pp_schedule = "GPipe";
    one.pp_microbatch_size = plan_.batch.local;
    return one;
  }

  bool choose_generator() {
    if (settings_.pp_schedule_csv()) return read_table();
    generator_ = named_schedule(settings_, report_);
    return generator_ != nullptr;
  }

  bool read_table() {
    const auto& name = *settings_.pp_schedule_csv();
    const auto path = find_path(name, recipe_.path);
    if (path.empty()) {
      report_.refuse(
          "missing-file", "distributed.pipeline.pp_schedule_csv", fmt::format("the schedule '{}' is not a file", name),
          "a CSV file in PyTorch's format; relative paths are beside the recipe or in the working directory");
      return false;
    }
    table_ = schedule::load_csv(path.string(), schedule::CsvFormat::kComputeOnly);
    const bool communication = std::any_of(table_.problems.begin(), table_.problems.end(),
                                           [](const Diagnostic& d) { return d.id == "schedule-csv-communication"; });
    if (communication) {
      table_ = schedule::load_csv(path.string(), schedule::CsvFormat::kComputeComms);
      format_ = schedule::CsvFormat::kComputeComms;
    }
    if (!table_.problems.empty()) {
      report_.refuse_all(std::move(table_.problems), "");
      return false;
    }
    return true;
  }

  bool plan_microbatches() {
    const int microbatch = settings_.pp_microbatch_size();
    auto& batch = plan_.batch;
    if (batch.local % microbatch != 0) {
      const int down = std::max(1, batch.local / microbatch) * microbatch;
      report_.refuse(
          "indivisible", "distributed.pipeline.pp_microbatch_size",
          fmt::format("local_batch_size {} is no multiple of pp_microbatch_size {}", batch.local, microbatch),
          fmt::format("step_scheduler.local_batch_size: {} or {}, or a pp_microbatch_size that divides {}", down,
                      down + microbatch, batch.local));
      return false;
    }
    batch.microbatch = microbatch;
    batch.microbatches = batch.local / microbatch;
    if (plan_.pipelined && batch.microbatches < ranks_)
      report_.warn("few-microbatches", "distributed.pipeline.pp_microbatch_size",
                   fmt::format("{} microbatch{} for {} pipeline ranks: the pipeline never fills", batch.microbatches,
                               batch.microbatches == 1 ? "" : "es", ranks_),
                   "a smaller pp_microbatch_size or a larger step_scheduler.local_batch_size fills it");
    return true;
  }

  /// Stages a rank by the recipe's various ways to say so.
  std::optional<int> stages_per_rank() {
    const auto& layers = settings_.layers_per_stage();
    const bool v = generator_ != nullptr && generator_->placement == schedule::PlacementStyle::kV;
    const bool single = generator_ != nullptr && generator_->single_stage;
    Diagnostics problems;
    if (!plan_.pipelined) return 1;
    if (generator_ == nullptr) {
      const auto shape = schedule::shape_of(table_.schedule);
      return std::max(1, shape.stages / ranks_);
    }
    if (const auto& fqns = settings_.module_fqns_per_model_part()) {
      problems =
          check_split_schedule(static_cast<int>(fqns->size()), ranks_, single, v ? Placement::kV : Placement::kLoop);
      report_.refuse_all(std::move(problems), "");
      return report_.ok() ? std::optional(static_cast<int>(fqns->size()) / ranks_) : std::nullopt;
    }
    if (settings_.pipeline_model_parallel_layout()) {
      if (!read_layout()) return std::nullopt;
      const auto stages = static_cast<int>(layout_->stages.size());
      problems = check_split_schedule(stages, ranks_, single, v ? Placement::kV : Placement::kLoop);
      for (auto& problem : problems) problem.key = kStageLayoutKey;
      report_.refuse_all(std::move(problems), "");
      return report_.ok() ? std::optional(stages / ranks_) : std::nullopt;
    }
    if (!layers.counts.empty()) {
      problems = check_split_schedule(static_cast<int>(layers.counts.size()), ranks_, single,
                                      v ? Placement::kV : Placement::kLoop);
      for (auto& problem : problems) problem.key = "distributed.pipeline.layers_per_stage";
      report_.refuse_all(std::move(problems), "");
      return report_.ok() ? std::optional(static_cast<int>(layers.counts.size()) / ranks_) : std::nullopt;
    }
    if (const auto chunks = recipe_.recipe.model_parallel->virtual_pipeline_model_parallel_size();
        chunks && !layers.count) {
      if (*chunks >= 1 && *chunks <= kMostStages / ranks_) return *chunks;
      report_.refuse("bad-value", "model_parallel.virtual_pipeline_model_parallel_size",
                     fmt::format("{} stages on each of {} pipeline ranks", *chunks, ranks_),
                     fmt::format("1 to {} stages in all", kMostStages));
      return std::nullopt;
    }
    if (model_ == nullptr) return single ? 1 : 2;  // how many layers there are to divide is not known
    VirtualStagesRequest request{
        .layers = model_->spec.layers, .pp_size = ranks_, .single_stage = single, .v_placement = v};
    if (layers.count) request.layers_per_stage = *layers.count;
    if (const auto rounding = settings_.round_virtual_stages_to_pp_multiple())
      request.rounding = *rounding == config::Rounding::kUp ? StageRounding::kUp : StageRounding::kDown;
    const auto counted = calculate_virtual_stages(request, problems);
    report_.refuse_all(std::move(problems), "");
    if (!counted) return std::nullopt;
    return counted->per_rank;
  }

  /// Megatron Core's layout string.
  bool read_layout() {
    const auto& layers = settings_.layers_per_stage();
    if (settings_.module_fqns_per_model_part() || layers.count || layers.automatic || !layers.counts.empty()) {
      report_.refuse("bad-value", kStageLayoutKey, "a layout together with another key that divides the layers",
                     "remove layers_per_stage or module_fqns_per_model_part, or the layout");
      return false;
    }
    Diagnostics problems;
    PipelineLayoutRequest wanted{.layers = model_ != nullptr ? model_->spec.layers : 1, .pp_size = ranks_};
    wanted.layout = parse_layout(*settings_.pipeline_model_parallel_layout(), problems);
    if (wanted.layout && model_ == nullptr)
      problems.push_back({"missing-key",
                          "a layout for a model whose sizes are unknown",
                          "give --model.config PATH (a config.json)",
                          {},
                          "pipeline_model_parallel_layout"});
    else if (wanted.layout)
      layout_ = place_layers(wanted, problems);
    const auto chunks = recipe_.recipe.model_parallel->virtual_pipeline_model_parallel_size();
    if (layout_ && chunks && *chunks != layout_->chunks.value_or(1))
      problems.push_back({"bad-value",
                          fmt::format("the layout has {} chunks a rank, virtual_pipeline_model_parallel_size says {}",
                                      layout_->chunks.value_or(1), *chunks),
                          "the layout says it all: remove virtual_pipeline_model_parallel_size",
                          {},
                          "pipeline_model_parallel_layout"});
    report_.refuse_all(std::move(problems), kSection);
    return report_.ok();
  }

  bool split() {
    const auto per_rank = stages_per_rank();
    if (!per_rank) return false;
    stages_ = *per_rank * ranks_;
    if (model_ == nullptr) return true;
    tree_ = arch::ModuleTree(model_->layout);
    const auto names = names_of(model_->layout);
    Diagnostics problems;
    const auto& layers = settings_.layers_per_stage();
    if (const auto& fqns = settings_.module_fqns_per_model_part(); fqns && plan_.pipelined) {
      problems = check_split(tree_, *fqns);
      fqns_ = *fqns;
    } else if (!layers.counts.empty()) {
      const int total = std::accumulate(layers.counts.begin(), layers.counts.end(), 0);
      if (total != model_->spec.layers)
        report_.refuse("bad-value", "distributed.pipeline.layers_per_stage",
                       fmt::format("the stages have {} layers, the model {}", total, model_->spec.layers),
                       "the list must add up to the model's layers");
      else
        fqns_ = stage_fqns(names, ranges_of(layers.counts));
    } else if (layout_) {
      fqns_ = stage_fqns(names, *layout_);
    } else if (auto even = stage_fqns(names, stages_, *per_rank, problems)) {  // every stage gets a layer
      fqns_ = std::move(*even);
    }
    report_.refuse_all(std::move(problems), "");
    return report_.ok();
  }

  static std::vector<LayerRange> ranges_of(const std::vector<int>& counts) {
    std::vector<LayerRange> out;
    int begin = 0;
    for (const int count : counts) {
      out.push_back({begin, begin + count});
      begin += count;
    }
    return out;
  }

  /// Stages of equal time, as far as memory allows: a rank that does not fit gets fewer layers, and others more.
  void balance() {
    Diagnostics ignored;  // the estimate reports them
    const auto hardware = plan_hardware(plan_, recipe_.recipe, request_.ranks_per_node, request_.calibration, ignored);
    const auto sharding = sharding_of(plan_, recipe_.recipe);
    const auto recompute = recipe_.recipe.distributed->checkpointing();
    const auto cost = split_cost(plan_, {.hardware = hardware, .sharding = sharding, .recompute = recompute});
    const auto names = names_of(model_->layout);
    std::vector<int> most(static_cast<std::size_t>(stages_), model_->spec.layers);
    std::vector<LayerRange> smallest;  // of those that do not fit
    double bytes = std::numeric_limits<double>::infinity();
    bool smaller = true;
    for (auto ranges = balanced_layers(stages_, cost); smaller && !ranges.empty();
         ranges = balanced_layers(stages_, cost, most)) {
      fqns_ = stage_fqns(names, ranges);
      describe_stages();
      const auto memory = plan_memory(plan_, {.sharding = sharding,
                                              .recompute = recompute,
                                              .moments = moments_of(recipe_.recipe.optimizer()),
                                              .capacity = hardware.memory,
                                              .framework = hardware.framework});
      if (memory.fit != Fit::kDoesNotFit) return;
      const double largest = memory.ranks[static_cast<std::size_t>(memory.heaviest)].most().total();
      if (largest < bytes) {
        bytes = largest;
        smallest = std::move(ranges);
      }
      smaller = false;
      for (const auto& stage : plan_.pipeline->stages) {
        const auto layers = static_cast<int>(stage.part.layers.size());
        const auto& rank = memory.ranks[static_cast<std::size_t>(stage.pp_rank)];
        if (rank.most().total() <= *memory.capacity || layers == 1) continue;
        auto& limit = most[static_cast<std::size_t>(stage.stage)];
        limit = std::min(limit, layers - 1);
        smaller = true;
      }
    }
    // No split fits: the smallest that was tried, which the estimate then calls too large.
    fqns_ = stage_fqns(names, smallest);
    describe_stages();
  }

  std::int64_t sequence() const { return plan_.batch.planned_length(); }

  bool make_schedule() {
    const schedule::Shape shape{ranks_, stages_, plan_.batch.microbatches};
    schedule::PipelineSchedule made;
    if (generator_ != nullptr) {
      schedule::Request request{
          .ranks = ranks_, .stages_per_rank = stages_ / ranks_, .microbatches = plan_.batch.microbatches};
      request.microbatch_group_size = recipe_.recipe.model_parallel->microbatch_group_size_per_vp_stage().value_or(0);
      if (request.microbatch_group_size != 0 && generator_->name != "MegatronInterleaved") {
        report_.warn("no-effect", "model_parallel.microbatch_group_size_per_vp_stage",
                     fmt::format("microbatch_group_size_per_vp_stage has no effect under {}", generator_->name),
                     "it belongs to pp_schedule: MegatronInterleaved");
        request.microbatch_group_size = 0;
      }
      made = schedule::make_schedule(*generator_, request);
      out_.name = generator_->name;
    } else {
      const auto origin = table_.origin;
      made = schedule::make_schedule(std::move(table_), format_, shape);
      out_.name = "CSV";
      // Those that are made here end either way.
      if (made.ok() && plan_.cuda && recipe_.recipe.dist_env->backend().value_or("nccl") == "nccl")
        made.problems = schedule::prove_meetings(made.training, made.placement, made.shape, origin);
    }
    if (!made.ok()) {
      for (auto& problem : made.problems)
        if (problem.key.empty() && problem.where.file.empty()) problem.key = "distributed.pipeline.pp_schedule";
      report_.refuse_all(std::move(made.problems), "");
      return false;
    }
    out_.schedule = std::move(made);
    return true;
  }

  void describe_stages() {
    const auto parts = split_model(tree_, fqns_);
    auto& stages = plan_.pipeline->stages;
    stages.clear();
    StageShapeRequest shapes{.hidden = model_->spec.hidden,
                             .vocab = model_->spec.vocab,
                             .microbatch_size = plan_.batch.microbatch,
                             .sequence_length = sequence(),
                             .dtype = plan_.types.message};
    for (int s = 0; s < stages_; ++s) {
      StagePlan stage{.stage = s,
                      .pp_rank = plan_.pipeline->schedule.placement.rank_of({s}),
                      .part = parts[static_cast<std::size_t>(s)]};
      const double tokens = static_cast<double>(shapes.microbatch_size * shapes.sequence_length);
      for (const int layer : stage.part.layers)
        stage.flops +=
            tokens * arch::layer_flops_per_token(model_->spec, model_->layout, layer, shapes.sequence_length);
      if (stage.part.has_head) stage.flops += tokens * arch::head_flops_per_token(model_->spec);
      if (plan_.adapters) add_adapters(stage, tokens);
      stage.io = stage_io(shapes, s == 0, stage.part.has_head);
      stages.push_back(std::move(stage));
    }
  }

  void add_adapters(StagePlan& stage, double tokens) const {
    for (const auto& info : plan_.adapters->all)
      if (stage.part.has_adapter(info)) stage.adapters += info.shape.elements();
    stage.flops += 2 * tokens * static_cast<double>(stage.adapters);
  }

  TrainingPlan& plan_;
  const config::LoadedRecipe& recipe_;
  const PlanRequest& request_;
  Located& report_;
  int ranks_;
  config::PipelineConfig settings_;
  const ModelChoice* model_;  ///< null where its sizes are unknown
  const schedule::Generator* generator_ = nullptr;
  schedule::CsvTable table_ = {};
  schedule::CsvFormat format_ = schedule::CsvFormat::kComputeOnly;
  int stages_ = 1;
  arch::ModuleTree tree_ = {};
  StageFqns fqns_ = {};
  std::optional<PipelineLayout> layout_ = {};
  PipelinePlan out_ = {};
};

}  // namespace

void plan_pipeline(TrainingPlan& plan, const config::LoadedRecipe& recipe, const PlanRequest& request,
                   Located& report) {
  PipelinePlanning(plan, recipe, request, report).run();
}

void check_schedule_name(const config::LoadedRecipe& recipe, Located& report) {
  const auto& pipeline = recipe.recipe.distributed->pipeline();
  if (pipeline && pipeline->pp_schedule() && !pipeline->pp_schedule_csv()) named_schedule(*pipeline, report);
}

}  // namespace automodel::plan
