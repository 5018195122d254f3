#include "plan/pipeline_plan.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "arch/counts.h"
#include "arch/modules.h"
#include "base/bytes.h"
#include "base/find_file.h"
#include "plan/costs.h"
#include "plan/model_names.h"
#include "plan/pipeline_layout.h"
#include "plan/searched_schedule.h"
#include "plan/virtual_stages.h"
#include "schedule/csv.h"
#include "schedule/generators.h"
#include "schedule/simulate.h"

namespace automodel::plan {
namespace {

// Above it, planning one table for a whole step would take longer than the instant in which a plan is due.
constexpr std::int64_t kMostMergedPairs = 1 << 17;  // stages times microbatches
constexpr int kMostStages = 1 << 20;                // far above any model's layers

constexpr const char* kSection = "distributed.pipeline";
constexpr const char* kScheduleKey = "distributed.pipeline.pp_schedule";
constexpr const char* kStageLayersKey = "distributed.pipeline.layers_per_stage";
constexpr const char* kModulesKey = "distributed.pipeline.module_fqns_per_model_part";
constexpr const char* kStageLayoutKey = "distributed.pipeline.pipeline_model_parallel_layout";
constexpr const char* kVirtualKey = "model_parallel.virtual_pipeline_model_parallel_size";

/// Null after reporting a problem if there is no such schedule.
const schedule::Generator* named_schedule(const config::PipelineConfig& pipeline, Located& report) {
  const auto* found = schedule::find_generator(*pipeline.pp_schedule());
  if (found == nullptr) {
    auto problem = schedule::unknown_schedule(*pipeline.pp_schedule());
    problem.key = "pp_schedule";
    report.refuse_all({std::move(problem)}, kSection);
    return nullptr;
  }
  if (found->generate == nullptr && !found->searched) {
    report.refuse("schedule-needs-csv", "distributed.pipeline.pp_schedule")
        .says("the schedule '{}' is read from a file", *pipeline.pp_schedule())
        .hint("give pp_schedule_csv, or name a schedule");
    return nullptr;
  }
  return found;
}

/// Plans the pipeline in steps, each of which may stop with a problem.
class PipelinePlanning {
 public:
  PipelinePlanning(TrainingPlan& plan, const config::LoadedRecipe& recipe, const PlanRequest& request, Costs& costs,
                   Located& report)
      : plan_(plan),
        recipe_(recipe),
        request_(request),
        costs_(costs),
        report_(report),
        ranks_(plan.mesh.sizes().pp),
        settings_(section()),
        model_(plan.model ? &*plan.model : nullptr) {}

  void run() {
    if (!plan_.pipelined || plan_.batch.runs == 1) return plan();
    const auto wanted = settings_.merge_accumulation();
    const auto& reason =
        wanted == config::Merging::kAuto ? separate_by_rule() : std::string("merge_accumulation is false");
    if (wanted != config::Merging::kAlways && !reason.empty()) {
      plan();
      return say_merged("each of {} accumulation steps runs by itself: {}", plan_.batch.runs, reason);
    }
    if (wanted == config::Merging::kAuto) return choose_merging();
    merge_ = true;
    plan();
    say_merged("{} accumulation steps run as one: merge_accumulation is true", plan_.batch.merged);
  }

 private:
  /// One way to run the accumulation steps of an optimizer step.
  struct Merged {
    std::optional<PipelinePlan> pipeline = {};
    BatchPlan batch = {};
    Located report;
    double step = 0;
    PeakMemory memory = {};
  };

  /// Why `merge_accumulation: auto` need not try; empty if it does.
  std::string separate_by_rule() const {
    const auto pairs = static_cast<std::int64_t>(plan_.batch.global) / plan_.mesh.sizes().dp() * 2 * ranks_;
    if (model_ == nullptr) return "the model's sizes are unknown";
    if (plan_.stack != config::Stack::kOwn) return "the stack that is planned for has no other way";
    if (pairs > kMostMergedPairs) return "a schedule of the whole step would be too large";
    return "";
  }

  Merged planned(bool merge) {
    Merged out{.report = Located(recipe_)};
    const auto before = plan_.batch;
    PipelinePlanning one(plan_, recipe_, request_, costs_, out.report);
    one.merge_ = merge;
    one.plan();
    if (out.report.ok() && plan_.pipeline) {
      out.step = costs_.step(plan_, recipe_.recipe);
      out.memory = costs_.memory(plan_, recipe_.recipe);
    }
    out.pipeline = std::exchange(plan_.pipeline, std::nullopt);
    out.batch = std::exchange(plan_.batch, before);
    return out;
  }

  /// Merged steps hold a little more for every microbatch, such as its labels: where memory is tight or unknown, that
  /// little is allowed, unless it is what no longer fits.
  static bool needs_too_much(const PeakMemory& merged, const PeakMemory& apart) {
    constexpr double kLittle = 1.01;
    const double together = merged.heaviest(), separate = apart.heaviest();
    const double room = merged.capacity.value_or(std::numeric_limits<double>::infinity());
    return together > std::max(kLittle * separate, merged.usual()) || (separate <= room && together > room);
  }

  /// Merges where the schedule allows it, nothing gets slower, and memory that did not have to be is not exceeded.
  void choose_merging() {
    auto apart = planned(false), merged = planned(true);
    const int steps = plan_.batch.runs;
    const bool both = merged.report.ok() && apart.report.ok();
    std::string reason;
    if (!merged.report.ok())
      reason = merged.report.problems().front().message;
    else if (both && needs_too_much(merged.memory, apart.memory))
      reason = fmt::format("together they need {}, apart {}", format_bytes(merged.memory.heaviest()),
                           format_bytes(apart.memory.heaviest()));
    else if (both && merged.step > apart.step)
      reason =
          fmt::format("together a step takes {}, apart {}", format_seconds(merged.step), format_seconds(apart.step));
    auto& chosen = reason.empty() ? merged : apart;
    plan_.pipeline = std::move(chosen.pipeline);
    plan_.batch = chosen.batch;
    report_.take(std::move(chosen.report));
    if (!reason.empty()) return say_merged("each of {} accumulation steps runs by itself: {}", steps, reason);
    if (!apart.report.ok())
      return say_merged("{} accumulation steps run as one: the schedule needs that many microbatches", steps);
    say_merged("{} accumulation steps run as one: a step takes {} instead of {}", steps, format_seconds(merged.step),
               format_seconds(apart.step));
  }

  template <class... Values>
  void say_merged(fmt::format_string<Values...> text, Values&&... values) {
    if (plan_.pipeline) plan_.pipeline->merged = fmt::format(text, std::forward<Values>(values)...);
  }

  void plan() {
    if (!choose_generator() || !plan_microbatches()) return;
    if (generator_ != nullptr && generator_->searched)
      search();
    else
      build();
  }

  /// The stages and their schedule, once its generator or its table and the microbatches are known.
  bool build() {
    if (!split() || !make_schedule()) return false;
    out_.timeline = schedule::simulate(out_.schedule.training, out_.schedule.placement, out_.schedule.shape,
                                       schedule::unit_costs(stages_));
    plan_.pipeline = std::move(out_);
    if (model_ == nullptr) return true;
    if (plan_.pipelined && settings_.layers_per_stage->automatic)
      balance();
    else
      describe_stages();
    return true;
  }

  /// Splits the model for one, two and four stages per rank, in a loop and as a V, or as the recipe says, searches the
  /// fastest order of each, and keeps the best.
  void search() {
    if (model_ == nullptr) {
      report_.refuse("missing-key", kScheduleKey)
          .says("a search for the schedule needs a model with known sizes")
          .hint("give '--model.config PATH' (a config.json), or name a schedule");
      return;
    }
    const auto key = split_key();
    if (!key) return;
    const bool counted = key->empty() || *key == kStageLayersKey;
    const bool free = counted && !settings_.layers_per_stage->count && settings_.layers_per_stage->counts.empty() &&
                      !recipe_.recipe.model_parallel->virtual_pipeline_model_parallel_size();
    // Generators that take any number of microbatches with one, several, or two stages per rank.
    constexpr std::array kPlacements = {std::pair("1F1B", 1), std::pair("LoopedBFS", 2), std::pair("ZBVZeroBubble", 2),
                                        std::pair("LoopedBFS", 4)};
    std::optional<FoundSchedule> best;
    std::optional<Located> said;
    for (const auto& [name, per_rank] : kPlacements) {
      if (free ? per_rank > 1 && model_->spec.layers < per_rank * ranks_ : per_rank > 2) continue;
      Located report(recipe_);
      PipelinePlanning one(plan_, recipe_, request_, costs_, report);
      one.merge_ = merge_;
      one.generator_ = schedule::find_generator(name);
      if (free) one.stages_per_rank_ = per_rank;
      std::optional<FoundSchedule> found;
      if (one.build()) found = fastest_schedule(plan_, recipe_, costs_, report);
      if (found ? !best || found->needs.better_than(best->needs) : !said) {
        said = std::move(report);
        if (found) best = std::move(found);
      }
    }
    report_.take(std::move(*said));
    if (!best) return plan_.pipeline.reset();
    best->pipeline.name = generator_->name;
    plan_.pipeline = std::move(best->pipeline);
    const auto& made = plan_.pipeline->schedule;
    plan_.pipeline->timeline =
        schedule::simulate(made.training, made.placement, made.shape, schedule::unit_costs(made.shape.stages));
  }

  /// The recipe's pipeline section or, without a pipeline, its defaults with the whole local batch as one microbatch.
  config::PipelineConfig section() const {
    if (plan_.pipelined) return recipe_.recipe.distributed->pipeline().value_or(config::PipelineConfig{});
    config::PipelineConfig one;
    one.pp_schedule = "GPipe";
    one.pp_microbatch_size = plan_.batch.local;
    return one;
  }

  bool choose_generator() {
    if (settings_.pp_schedule_csv()) {
      warn_of_unused_name();
      return read_table();
    }
    if (plan_.pipelined && !interleave()) return false;
    generator_ = named_schedule(settings_, report_);
    return generator_ != nullptr;
  }

  /// PipelineScheduleSingle and PipelineScheduleMulti mean that the order comes from a CSV file. With a file, any other
  /// name has no effect.
  void warn_of_unused_name() {
    const auto* named = settings_.pp_schedule() ? schedule::find_generator(*settings_.pp_schedule()) : nullptr;
    if (report_.given(kScheduleKey) && (named == nullptr || named->generate != nullptr))
      report_.warn("no-effect", kScheduleKey)
          .says("pp_schedule '{}' has no effect together with pp_schedule_csv", *settings_.pp_schedule())
          .hint("remove one of the two");
  }

  /// In Megatron Core, virtual_pipeline_model_parallel_size alone selects the interleaved schedule. The same applies
  /// here if the recipe does not name a schedule.
  bool interleave() {
    const auto chunks = recipe_.recipe.model_parallel->virtual_pipeline_model_parallel_size();
    if (!chunks) return true;
    if (*chunks < 1 || *chunks > kMostStages / ranks_) {
      report_.refuse("bad-value", kVirtualKey)
          .says("{} stages on each of {} pipeline ranks", *chunks, ranks_)
          .hint("1 to {} stages in all", kMostStages);
      return false;
    }
    if (*chunks > 1 && !report_.given(kScheduleKey))
      settings_.pp_schedule = report_.given("model_parallel.microbatch_group_size_per_vp_stage") ? "MegatronInterleaved"
                                                                                                 : "Interleaved1F1B";
    return true;
  }

  bool read_table() {
    const auto& name = *settings_.pp_schedule_csv();
    const auto path = find_beside(name, recipe_.folder());
    if (!path) {
      report_.refuse("missing-file", "distributed.pipeline.pp_schedule_csv")
          .says("the schedule '{}' is not a file", name)
          .hint(
              "give a CSV file in PyTorch's format; relative paths are resolved beside the recipe, then in the "
              "working directory");
      return false;
    }
    table_path_ = name;
    table_ = schedule::load_csv(path->string(), schedule::CsvFormat::kComputeOnly);
    const bool communication = std::any_of(table_.problems.begin(), table_.problems.end(),
                                           [](const Diagnostic& d) { return d.id == "schedule-csv-communication"; });
    if (communication) {
      table_ = schedule::load_csv(path->string(), schedule::CsvFormat::kComputeComms);
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
      report_.refuse("indivisible", "distributed.pipeline.pp_microbatch_size")
          .says("local_batch_size {} is not a multiple of pp_microbatch_size {}", batch.local, microbatch)
          .hint("step_scheduler.local_batch_size: {} or {}, or a pp_microbatch_size that divides {}", down,
                down + microbatch, batch.local);
      return false;
    }
    batch.microbatch = microbatch;
    if (merge_) batch.merged = std::exchange(batch.runs, 1);
    batch.microbatches = batch.local / microbatch * batch.merged;
    if (plan_.pipelined && batch.microbatches < ranks_)
      report_.warn("few-microbatches", "distributed.pipeline.pp_microbatch_size")
          .says("{} microbatch{} for {} pipeline ranks: the pipeline never fills", batch.microbatches,
                batch.microbatches == 1 ? "" : "es", ranks_)
          .hint("a smaller pp_microbatch_size or a larger step_scheduler.local_batch_size fills it");
    return true;
  }

  /// The key that divides the layers among stages; an empty string if the recipe has none. More than one is rejected.
  std::optional<std::string> split_key() {
    const auto& layers = settings_.layers_per_stage();
    std::vector<std::string> given;
    if (settings_.module_fqns_per_model_part()) given.emplace_back(kModulesKey);
    if (settings_.pipeline_model_parallel_layout()) given.emplace_back(kStageLayoutKey);
    if (layers.count || layers.automatic || !layers.counts.empty()) given.emplace_back(kStageLayersKey);
    if (given.size() > 1) {
      report_.refuse("split-conflict", given[1])
          .says("{} and {} both assign layers to stages", given[0], given[1])
          .hint("remove one of the two");
      return std::nullopt;
    }
    return given.empty() ? std::string() : given[0];
  }

  /// Stages per rank. Everything that determines the number of stages must agree: the division of layers,
  /// virtual_pipeline_model_parallel_size and a CSV file's table.
  std::optional<int> stages_per_rank() {
    if (!plan_.pipelined) return 1;
    if (stages_per_rank_) return stages_per_rank_;
    const auto key = split_key();
    if (!key) return std::nullopt;
    const auto divided = divided_stages(*key);
    if (!report_.ok()) return std::nullopt;
    const auto chunks = recipe_.recipe.model_parallel->virtual_pipeline_model_parallel_size();
    const auto disagree = [&](const std::string& where, int stages, const std::string& other, int others) {
      if (stages != others)
        report_.refuse("split-conflict", where)
            .says("{} makes {} stages, {} has {}", where, stages, other, others)
            .hint("make both {}, or remove {}", others, where);
    };
    if (generator_ == nullptr) {
      const int stages = schedule::shape_of(table_.schedule).stages;
      const auto file = fmt::format("the schedule in {}", table_path_);
      if (divided) disagree(*key, *divided, file, stages);
      if (chunks) disagree(kVirtualKey, static_cast<int>(*chunks * ranks_), file, stages);
      if (stages % ranks_ != 0)
        report_.refuse("indivisible", "distributed.pipeline.pp_schedule_csv")
            .says("{} stages are not a multiple of {} pipeline ranks", stages, ranks_)
            .hint("use a schedule with the same number of stages on every rank");
      return report_.ok() ? std::optional(stages / ranks_) : std::nullopt;
    }
    if (divided) {
      if (chunks) disagree(kVirtualKey, static_cast<int>(*chunks * ranks_), *key, *divided);
      return report_.ok() ? std::optional(*divided / ranks_) : std::nullopt;
    }
    if (chunks) {
      // With an explicit number of stages per rank, a looping schedule may have just one; the schedule's own limits
      // apply.
      const bool fixed = generator_->single_stage || style() == schedule::PlacementStyle::kV;
      auto problems =
          fixed ? check_split_schedule(static_cast<int>(*chunks * ranks_), ranks_, generator_->single_stage, style())
                : Diagnostics();
      for (auto& problem : problems) problem.key = kVirtualKey;
      report_.refuse_all(std::move(problems), "");
      return report_.ok() ? std::optional(static_cast<int>(*chunks)) : std::nullopt;
    }
    if (model_ == nullptr) return generator_->single_stage ? 1 : 2;  // the number of layers is unknown
    return counted_stages(std::nullopt);
  }

  schedule::PlacementStyle style() const {
    return generator_ != nullptr ? generator_->placement : schedule::PlacementStyle::kLoop;
  }

  /// Number of stages implied by `key`; empty if it does not determine one.
  std::optional<int> divided_stages(const std::string& key) {
    std::optional<int> stages;
    const auto& layers = settings_.layers_per_stage();
    if (key == kModulesKey) {
      stages = static_cast<int>(settings_.module_fqns_per_model_part()->size());
    } else if (key == kStageLayoutKey) {
      if (read_layout()) stages = static_cast<int>(layout_->stages.size());
    } else if (!layers.counts.empty()) {
      stages = static_cast<int>(layers.counts.size());
    } else if (layers.count && model_ != nullptr) {
      if (generator_ == nullptr) return static_cast<int>((model_->spec.layers + *layers.count - 1) / *layers.count);
      const auto per_rank = counted_stages(*layers.count);
      return per_rank ? std::optional(*per_rank * ranks_) : std::nullopt;
    }
    if (!stages || generator_ == nullptr) return stages;
    auto problems = check_split_schedule(*stages, ranks_, generator_->single_stage, style());
    for (auto& problem : problems) problem.key = key;
    report_.refuse_all(std::move(problems), "");
    return stages;
  }

  /// Stages per rank by NeMo AutoModel's rule.
  std::optional<int> counted_stages(std::optional<int> layers_per_stage) {
    VirtualStagesRequest request{.layers = model_->spec.layers,
                                 .pp_size = ranks_,
                                 .single_stage = generator_->single_stage,
                                 .v_placement = style() == schedule::PlacementStyle::kV};
    if (layers_per_stage) request.layers_per_stage = *layers_per_stage;
    if (const auto rounding = settings_.round_virtual_stages_to_pp_multiple())
      request.rounding = *rounding == config::Rounding::kUp ? StageRounding::kUp : StageRounding::kDown;
    Diagnostics problems;
    const auto counted = calculate_virtual_stages(request, problems);
    report_.refuse_all(std::move(problems), "");
    return counted ? std::optional(counted->per_rank) : std::nullopt;
  }

  /// Megatron Core's layout string.
  bool read_layout() {
    Diagnostics problems;
    PipelineLayoutRequest wanted{.layers = model_ != nullptr ? model_->spec.layers : 1, .pp_size = ranks_};
    wanted.layout = parse_layout(*settings_.pipeline_model_parallel_layout(), problems);
    // A layout may omit multi-token-prediction layers, as a checkpoint may.
    if (wanted.layout && model_ != nullptr && has_mtp(*wanted.layout)) wanted.mtp_layers = model_->spec.mtp_layers;
    if (wanted.layout && model_ == nullptr)
      problems.add("missing-key", "pipeline_model_parallel_layout")
          .says("a layout needs a model with known sizes")
          .hint("give '--model.config PATH' (a config.json)");
    else if (wanted.layout)
      layout_ = place_layers(wanted, problems);
    report_.refuse_all(std::move(problems), kSection);
    if (layout_ && wanted.mtp_layers > 0)
      report_.plan_only(request_.training, "multi-token-prediction layers (m)",
                        Diagnostic{"unsupported"}
                            .says("multi-token-prediction layers (m) can be planned but not trained")
                            .hint("leave them out of the layout: the model trains without them")
                            .of(kStageLayoutKey));
    return report_.ok();
  }

  bool split() {
    const auto per_rank = stages_per_rank();
    if (!per_rank) return false;
    stages_ = *per_rank * ranks_;
    if (model_ == nullptr) return true;
    tree_ = arch::ModuleTree(model_->layout);
    for (const auto& tower : towers_of(*model_)) tree_.add(tower.fqn, tower.cached ? 0 : tower.parameters.value_or(0));
    const auto names = names_of(*model_);
    Diagnostics problems;
    const auto& layers = settings_.layers_per_stage();
    if (const auto& fqns = settings_.module_fqns_per_model_part(); fqns && plan_.pipelined) {
      problems = check_split(tree_, *fqns);
      fqns_ = *fqns;
    } else if (!layers.counts.empty()) {
      const int total = std::accumulate(layers.counts.begin(), layers.counts.end(), 0);
      if (total != model_->spec.layers)
        report_.refuse("bad-value", kStageLayersKey)
            .says("the stages have {} layers, the model {}", total, model_->spec.layers)
            .hint("the list must add up to the model's layers");
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

  /// Balances stages by time as far as memory allows: a rank that does not fit gets fewer layers, others more.
  void balance() {
    const auto cost = costs_.layers(plan_, recipe_.recipe);
    const auto names = names_of(*model_);
    std::vector<int> most(static_cast<std::size_t>(stages_), model_->spec.layers);
    std::vector<LayerRange> smallest;  // the smallest split so far that does not fit
    double bytes = std::numeric_limits<double>::infinity();
    bool smaller = true;
    for (auto ranges = balanced_layers(stages_, cost); smaller && !ranges.empty();
         ranges = balanced_layers(stages_, cost, most)) {
      fqns_ = stage_fqns(names, ranges);
      describe_stages();
      const auto memory = costs_.memory(plan_, recipe_.recipe);
      const double largest = memory.heaviest();
      if (!memory.capacity || largest <= *memory.capacity) return;
      if (largest < bytes) {
        bytes = largest;
        smallest = std::move(ranges);
      }
      smaller = false;
      for (const auto& stage : plan_.pipeline->stages) {
        const auto layers = static_cast<int>(stage.part.layers.size());
        if (memory.ranks[static_cast<std::size_t>(stage.pp_rank)] <= *memory.capacity || layers == 1) continue;
        auto& limit = most[static_cast<std::size_t>(stage.stage)];
        limit = std::min(limit, layers - 1);
        smaller = true;
      }
    }
    // No split fits: use the smallest one tried, which the estimate then reports as too large.
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
        if (ranks_ > 1)  // with one, check_idle_keys() says so
          report_.warn("no-effect", "model_parallel.microbatch_group_size_per_vp_stage")
              .says("microbatch_group_size_per_vp_stage has no effect under {}", generator_->name)
              .hint("it belongs to pp_schedule: MegatronInterleaved");
        request.microbatch_group_size = 0;
      }
      made = schedule::make_schedule(*generator_, request);
      out_.name = generator_->name;
    } else {
      const auto origin = table_.origin;
      made = schedule::make_schedule(std::move(table_), format_, shape);
      out_.name = "CSV";
      // Splits generated here are always complete.
      if (made.ok() && plan_.cuda && config::backend_of(recipe_.recipe) != config::Backend::kMpi)
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
                             .vocab = model_->spec.outputs(),
                             .microbatch_size = plan_.batch.microbatch,
                             .sequence_length = sequence(),
                             .dtype = plan_.types.message};
    const auto towers = towers_of(*model_);
    for (int s = 0; s < stages_; ++s) {
      StagePlan stage{.stage = s,
                      .pp_rank = plan_.pipeline->schedule.placement.rank_of({s}),
                      .part = parts[static_cast<std::size_t>(s)]};
      for (const auto& tower : towers)
        if (tower.cached) std::erase(stage.part.fqns, tower.fqn);
      const double tokens = static_cast<double>(shapes.microbatch_size * shapes.sequence_length);
      for (const int layer : stage.part.layers)
        stage.flops +=
            tokens * arch::layer_flops_per_token(model_->spec, model_->layout, layer, shapes.sequence_length);
      if (stage.part.has_head) stage.flops += tokens * arch::head_flops_per_token(model_->spec);
      for (const auto& tower : towers)
        if (std::ranges::find(stage.part.fqns, tower.fqn) != stage.part.fqns.end())
          stage.flops += static_cast<double>(shapes.microbatch_size) * (tower.flops + adapter_flops(plan_, tower));
      if (layout_) add_mtp_layers(stage, tokens);
      if (plan_.adapters) add_adapters(stage, tokens);
      // Layers are in order: what they have not added yet goes on to the next stage.
      const auto& spec = model_->spec;
      if (s == 0) shapes.carried_out = spec.deep_layers() + spec.carried_streams();
      shapes.carried_in = shapes.carried_out;
      for (const int layer : stage.part.layers)
        shapes.carried_out = spec.carried_streams() +
                             std::clamp(spec.deep_layers() - 1 - layer, 0, shapes.carried_out - spec.carried_streams());
      stage.io = stage_io(shapes, s == 0, stage.part.has_head);
      if (stage.part.has_head) stage.io.output.dtype = plan_.types.output.value_or(plan_.types.compute);
      stages.push_back(std::move(stage));
    }
  }

  void add_mtp_layers(StagePlan& stage, double tokens) const {
    const auto& spec = model_->spec;
    stage.mtp_layers = layout_->stages[static_cast<std::size_t>(stage.stage)].mtp_layers;
    stage.flops += stage.mtp_layers * tokens *
                   (arch::layer_flops_per_token(spec, model_->layout, spec.layers - 1, sequence()) +
                    2 * arch::mtp_join_elements(spec) + arch::head_flops_per_token(spec));
  }

  void add_adapters(StagePlan& stage, double tokens) const {
    for (const auto& info : plan_.adapters->all) {
      if (!stage.part.has_adapter(info)) continue;
      stage.adapters += info.shape.elements();
      if (info.in_tower()) continue;  // whose rows are patches
      stage.active_adapters += static_cast<double>(info.shape.elements()) * token_share(model_->spec, info);
    }
    stage.flops += 2 * tokens * stage.active_adapters;
  }

  TrainingPlan& plan_;
  const config::LoadedRecipe& recipe_;
  const PlanRequest& request_;
  Costs& costs_;
  Located& report_;
  int ranks_;
  config::PipelineConfig settings_;
  const ModelChoice* model_;  ///< null if its sizes are unknown
  const schedule::Generator* generator_ = nullptr;
  schedule::CsvTable table_ = {};
  std::string table_path_ = {};
  schedule::CsvFormat format_ = schedule::CsvFormat::kComputeOnly;
  bool merge_ = false;                       ///< all accumulation steps in one pass
  std::optional<int> stages_per_rank_ = {};  ///< if not by the recipe's keys
  int stages_ = 1;
  arch::ModuleTree tree_ = {};
  StageFqns fqns_ = {};
  std::optional<PipelineLayout> layout_ = {};
  PipelinePlan out_ = {};
};

}  // namespace

void plan_pipeline(TrainingPlan& plan, const config::LoadedRecipe& recipe, const PlanRequest& request, Costs& costs,
                   Located& report) {
  PipelinePlanning(plan, recipe, request, costs, report).run();
}

std::int64_t widest_message(const TrainingPlan& plan) {
  return std::ranges::max(message_widths(plan));
}

std::vector<std::int64_t> message_widths(const TrainingPlan& plan) {
  std::vector<std::int64_t> out;
  for (std::size_t stage = 1; stage < plan.pipeline->stages.size(); ++stage)
    out.push_back(plan.pipeline->stages[stage].io.input.shape[2]);
  return out.empty() ? std::vector{std::int64_t{plan.model->spec.hidden}} : out;
}

void check_schedule_name(const config::LoadedRecipe& recipe, Located& report) {
  const auto& pipeline = recipe.recipe.distributed->pipeline();
  if (pipeline && pipeline->pp_schedule() && !pipeline->pp_schedule_csv()) named_schedule(*pipeline, report);
}

}  // namespace automodel::plan
