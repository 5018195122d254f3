#include "report/plan_json.h"

#include "arch/counts.h"
#include "base/json_writer.h"
#include "base/version.h"
#include "plan/communicators.h"
#include "plan/facts.h"

namespace automodel::report {
namespace {

void write_groups(JsonWriter& json, const std::string& name, const mesh::GroupList& groups) {
  json.key(name);
  json.begin_array();
  for (std::size_t g = 0; g < groups.size(); ++g) json.value(groups[g]);
  json.end_array();
}

void write_mesh(JsonWriter& json, const mesh::DeviceMesh& mesh) {
  const auto& s = mesh.sizes();
  json.begin_object();
  json.member("world_size", mesh.world_size());
  json.member("strategy", mesh::name_of(mesh.strategy()));
  json.member("dims", std::vector<std::string_view>{"pp", "dp_replicate", "dp_shard", "cp", "tp"});
  json.member("shape", std::vector<int>{s.pp, s.dp_replicate, s.dp_shard, s.cp, s.tp});
  json.key("sizes");
  json.begin_object();
  json.member("pp", s.pp);
  json.member("dp", s.dp());
  json.member("dp_replicate", s.dp_replicate);
  json.member("dp_shard", s.dp_shard);
  json.member("cp", s.cp);
  json.member("tp", s.tp);
  json.member("ep", s.ep);
  json.end_object();
  json.key("groups");
  json.begin_object();
  for (const auto axis :
       {mesh::Axis::kPp, mesh::Axis::kDpReplicate, mesh::Axis::kDpShard, mesh::Axis::kCp, mesh::Axis::kTp})
    write_groups(json, std::string(mesh::name_of(axis)), mesh.groups(axis));
  for (const auto axes : {mesh::kDp, mesh::kDpCp, mesh::kDpShardCp})
    write_groups(json, mesh::name_of(axes), mesh.groups(axes));
  json.end_object();
  json.end_object();
}

void write_moe_mesh(JsonWriter& json, const mesh::DeviceMesh& mesh) {
  if (mesh.sizes().ep == 1) return json.value(nullptr);
  json.begin_object();
  json.member("dims", std::vector<std::string_view>{"pp", "ep_shard", "ep"});
  json.member("shape", std::vector<int>{mesh.sizes().pp, mesh.sizes().per_stage() / mesh.sizes().ep, mesh.sizes().ep});
  json.key("groups");
  json.begin_object();
  for (const auto axis : {mesh::Axis::kEpShard, mesh::Axis::kEp})
    write_groups(json, std::string(mesh::name_of(axis)), mesh.groups(axis));
  json.end_object();
  json.end_object();
}

void write_meta(JsonWriter& json, std::string_view name, const plan::TensorMeta& meta) {
  json.key(name);
  json.begin_array();
  json.begin_object();
  json.member("shape", std::vector<std::int64_t>(meta.shape.begin(), meta.shape.end()));
  json.member("dtype", name_of(meta.dtype));
  json.end_object();
  json.end_array();
}

void write_stage(JsonWriter& json, const plan::StagePlan& stage) {
  json.begin_object();
  json.member("stage", stage.stage);
  json.member("pp_rank", stage.pp_rank);
  json.member("fqns", stage.part.fqns);
  json.member("num_layers", stage.part.layers.size());
  json.member("params", stage.part.parameters + stage.adapters);
  json.member("flops_per_microbatch", stage.flops);
  write_meta(json, "inputs", stage.io.input);
  write_meta(json, "outputs", stage.io.output);
  json.end_object();
}

void write_actions(JsonWriter& json, const schedule::PipelineSchedule& made, ActionFormat format) {
  json.key("actions");
  json.begin_object();
  json.member("format", format == ActionFormat::kCompute ? "compute_only" : "compute_comms");
  json.key("ranks");
  json.begin_array();
  for (const auto& row : format == ActionFormat::kCompute ? made.order : made.training)
    json.value(schedule::to_text(row));
  json.end_array();
  json.end_object();
}

void write_pipeline(JsonWriter& json, const plan::TrainingPlan& plan, ActionFormat format) {
  if (!plan.pipelined || !plan.pipeline) return json.value(nullptr);
  const auto& pipeline = *plan.pipeline;
  const auto& made = pipeline.schedule;
  json.begin_object();
  json.member("schedule", pipeline.name);
  json.member("style", schedule::style_of(made.placement));
  json.member("pp_size", plan.mesh.sizes().pp);
  json.member("num_stages", made.shape.stages);
  json.member("stages_per_rank", made.shape.stages / made.shape.ranks);
  json.member("microbatch_size", plan.batch.microbatch);
  json.member("n_microbatches", plan.batch.microbatches);
  if (!pipeline.merged.empty()) json.member("merged", pipeline.merged);
  json.key("stages");
  json.begin_array();
  for (const auto& stage : pipeline.stages) write_stage(json, stage);
  json.end_array();
  if (format != ActionFormat::kNone) write_actions(json, made, format);
  json.member("deadlock_free", made.proof.ok());
  json.member("bubble_fraction", pipeline.timeline.bubble_fraction);
  json.key("peak_in_flight");
  json.begin_array();
  for (const auto& live : made.proof.ranks) json.value(live.in_flight);
  json.end_array();
  json.end_object();
}

void write_problems(JsonWriter& json, std::string_view name, const Diagnostics& problems) {
  json.key(name);
  json.begin_array();
  for (const auto& problem : problems) {
    json.begin_object();
    json.member("id", problem.id.name());
    json.member("message", problem.message);
    json.member("help", problem.help);
    json.member("file", problem.where.file);
    json.member("line", problem.where.line);
    json.member("column", problem.where.column);
    json.member("key", problem.key);
    json.end_object();
  }
  json.end_array();
}

void write_keys(JsonWriter& json, std::string_view name, const std::vector<config::IgnoredKey>& keys) {
  json.key(name);
  json.begin_array();
  for (const auto& key : keys) {
    json.begin_object();
    json.member("key", key.key);
    json.member("reason", key.reason);
    json.end_object();
  }
  json.end_array();
}

void write_communicators(JsonWriter& json, const plan::TrainingPlan& plan) {
  json.begin_array();
  for (const auto& row : plan::channels()) {
    const auto groups = groups_of(plan, row.channel);
    if (groups.empty()) continue;
    json.begin_object();
    json.member("name", row.name);
    json.member("purpose", row.doc);
    const auto traffic = traffic_of(plan, row.channel);
    json.member("collectives", traffic.collectives);
    json.member("all_to_all", traffic.all_to_all);
    json.member("messages", traffic.messages);
    json.member("ranks", groups);
    json.end_object();
  }
  json.end_array();
}

void write_adapters(JsonWriter& json, const plan::TrainingPlan& plan) {
  if (!plan.adapters) return json.value(nullptr);
  const auto& spec = plan.adapters->spec;
  json.begin_object();
  json.member("rank", spec.rank);
  json.member("alpha", spec.alpha);
  json.member("dropout", spec.dropout);
  json.member("magnitudes", spec.magnitudes);
  json.member("target_modules", plan.adapters->modules);
  json.member("weights", spec.weights);
  json.member("trained_parameters", plan.adapters->elements);
  json.end_object();
}

void write_frozen(JsonWriter& json, const plan::TrainingPlan& plan) {
  if (!plan.frozen) return json.value(nullptr);
  json.begin_object();
  json.member("parameters", plan.frozen->elements);
  json.member("names", std::vector<std::string>(plan.frozen->names.begin(), plan.frozen->names.end()));
  json.end_object();
}

void write_features(JsonWriter& json, const estimate::EstimatedPlan& plan) {
  if (!plan.features) return json.value(nullptr);
  json.begin_object();
  json.member("cached", plan.features->cached);
  json.member("whole", plan.features->whole);
  json.member("why", plan.features->why);
  if (const auto& costs = plan.feature_costs) {
    json.member("picture_seconds", costs->once);
    json.member("picture_bytes", costs->file);
    if (costs->pictures > 0) {
      json.member("pictures", static_cast<std::int64_t>(costs->pictures));
      json.member("bytes", static_cast<std::int64_t>(costs->bytes));
    }
    json.key("otherwise");
    json.begin_object();
    json.member("step_seconds", costs->step);
    json.member("memory_bytes", static_cast<std::int64_t>(costs->peak));
    json.end_object();
  }
  json.end_object();
}

void write_from(JsonWriter& json, const std::string& from) {
  if (from.empty()) return;
  json.key("from");
  json.document(from);
}

void write_teacher(JsonWriter& json, const plan::TrainingPlan& plan) {
  if (!plan.teacher) return json.value(nullptr);
  const auto& teacher = *plan.teacher;
  const auto counts = arch::count_parameters(teacher.model->layout, arch::whole_model(teacher.model->layout));
  json.begin_object();
  json.member("name", teacher.model->name);
  json.member("model_type", teacher.model->spec.model_type);
  json.member("layers", teacher.model->spec.layers);
  json.member("parameters", counts.total());
  json.member("dtype", name_of(teacher.types.compute));
  json.key("weights");
  if (teacher.weights.folder)
    json.value(*teacher.weights.folder);
  else
    json.value(nullptr);
  json.end_object();
}

}  // namespace

std::string to_json(const estimate::EstimatedPlan& plan, ActionFormat actions, const std::string& from) {
  JsonWriter json;
  json.begin_object();
  json.member("automodel", kVersion);
  json.member("recipe", plan.recipe_path);
  json.member("ok", true);
  write_problems(json, "warnings", plan.warnings);
  json.key("mesh");
  write_mesh(json, plan.mesh);
  json.key("moe_mesh");
  write_moe_mesh(json, plan.mesh);
  json.key("zero_dp_strategy");
  if (plan.zero_level)
    json.value(*plan.zero_level);
  else
    json.value(nullptr);
  json.member("device", plan.cuda ? "cuda" : "cpu");
  json.key("communicators");
  write_communicators(json, plan);
  write_parts(json, plan);
  json.key("adapters");
  write_adapters(json, plan);
  json.key("frozen");
  write_frozen(json, plan);
  json.key("features");
  write_features(json, plan);
  json.key("teacher");
  write_teacher(json, plan);
  json.key("pipeline");
  write_pipeline(json, plan, actions);
  if (plan.estimate) write_members(json, *plan.estimate, plan);
  write_keys(json, "unsupported", plan.unsupported);
  write_keys(json, "ignored", plan.ignored);
  write_from(json, from);
  json.end_object();
  return json.take();
}

std::string errors_to_json(const Diagnostics& problems, const std::string& from) {
  JsonWriter json;
  json.begin_object();
  write_problems(json, "errors", problems);
  write_from(json, from);
  json.end_object();
  return json.take();
}

}  // namespace automodel::report
