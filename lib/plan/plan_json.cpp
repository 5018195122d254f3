#include "plan/plan_json.h"

#include <nlohmann/json.hpp>

#include "base/version.h"

namespace automodel::plan {
namespace {

using Json = nlohmann::ordered_json;

Json groups_json(const mesh::GroupList& groups) {
  Json out = Json::array();
  for (std::size_t g = 0; g < groups.size(); ++g)
    out.push_back(std::vector<mesh::Rank>(groups[g].begin(), groups[g].end()));
  return out;
}

Json mesh_json(const mesh::DeviceMesh& mesh) {
  Json out, groups;
  const auto& s = mesh.sizes();
  out["world_size"] = mesh.world_size();
  out["strategy"] = mesh::name_of(mesh.strategy());
  out["dims"] = {"pp", "dp_replicate", "dp_shard", "cp", "tp"};
  out["shape"] = {s.pp, s.dp_replicate, s.dp_shard, s.cp, s.tp};
  out["sizes"] = {
      {"pp", s.pp}, {"dp", s.dp()}, {"dp_replicate", s.dp_replicate}, {"dp_shard", s.dp_shard}, {"cp", s.cp},
      {"tp", s.tp}, {"ep", s.ep}};
  for (const auto axis :
       {mesh::Axis::kPp, mesh::Axis::kDpReplicate, mesh::Axis::kDpShard, mesh::Axis::kCp, mesh::Axis::kTp})
    groups[std::string(mesh::name_of(axis))] = groups_json(mesh.groups(axis));
  for (const auto axes : {mesh::kDp, mesh::kDpCp, mesh::kDpShardCp})
    groups[mesh::name_of(axes)] = groups_json(mesh.groups(axes));
  out["groups"] = std::move(groups);
  return out;
}

Json moe_mesh_json(const mesh::DeviceMesh& mesh) {
  if (mesh.sizes().ep == 1) return nullptr;
  Json out, groups;
  out["dims"] = {"pp", "ep_shard", "ep"};
  out["shape"] = {mesh.sizes().pp, mesh.sizes().per_stage() / mesh.sizes().ep, mesh.sizes().ep};
  for (const auto axis : {mesh::Axis::kEpShard, mesh::Axis::kEp})
    groups[std::string(mesh::name_of(axis))] = groups_json(mesh.groups(axis));
  out["groups"] = std::move(groups);
  return out;
}

Json meta_json(const TensorMeta& meta) {
  return {{"shape", std::vector<std::int64_t>(meta.shape.begin(), meta.shape.end())}, {"dtype", name_of(meta.dtype)}};
}

Json stage_json(const StagePlan& stage) {
  Json out;
  out["stage"] = stage.stage;
  out["pp_rank"] = stage.pp_rank;
  out["fqns"] = stage.part.fqns;
  out["num_layers"] = stage.part.layers.size();
  out["params"] = stage.part.parameters;
  out["flops_per_microbatch"] = stage.flops;
  out["inputs"] = Json::array({meta_json(stage.io.input)});
  out["outputs"] = Json::array({meta_json(stage.io.output)});
  return out;
}

Json pipeline_json(const TrainingPlan& plan, ActionFormat format) {
  if (!plan.pipelined || !plan.pipeline) return nullptr;
  const auto& pipeline = *plan.pipeline;
  const auto& made = pipeline.schedule;
  Json out;
  out["schedule"] = pipeline.name;
  out["style"] = schedule::style_of(made.placement);
  out["pp_size"] = plan.mesh.sizes().pp;
  out["num_stages"] = made.shape.stages;
  out["stages_per_rank"] = made.shape.stages / made.shape.ranks;
  out["microbatch_size"] = plan.batch.microbatch;
  out["n_microbatches"] = plan.batch.microbatches;
  out["stages"] = Json::array();
  for (const auto& stage : pipeline.stages) out["stages"].push_back(stage_json(stage));
  if (format != ActionFormat::kNone) {
    Json rows = Json::array();
    for (const auto& row : format == ActionFormat::kCompute ? made.order : made.training)
      rows.push_back(schedule::to_text(row));
    out["actions"] = {{"format", format == ActionFormat::kCompute ? "compute_only" : "compute_comms"},
                      {"ranks", std::move(rows)}};
  }
  out["deadlock_free"] = made.proof.ok();
  out["bubble_fraction"] = pipeline.timeline.bubble_fraction;
  Json peak = Json::array();
  for (const auto& live : made.proof.ranks) peak.push_back(live.in_flight);
  out["peak_in_flight"] = std::move(peak);
  return out;
}

Json problem_json(const Diagnostic& problem) {
  return {{"id", problem.id},           {"message", problem.message}, {"help", problem.help},
          {"file", problem.where.file}, {"line", problem.where.line}, {"column", problem.where.column},
          {"key", problem.key}};
}

}  // namespace

std::string to_json(const TrainingPlan& plan, ActionFormat actions) {
  Json out;
  out["automodel"] = kVersion;
  out["recipe"] = plan.recipe_path;
  out["ok"] = true;
  out["warnings"] = Json::array();
  for (const auto& warning : plan.warnings) out["warnings"].push_back(problem_json(warning));
  out["mesh"] = mesh_json(plan.mesh);
  out["moe_mesh"] = moe_mesh_json(plan.mesh);
  out["device"] = plan.cuda ? "cuda" : "cpu";
  out["batch"] = {{"global", plan.batch.global},
                  {"local", plan.batch.local},
                  {"runs", plan.batch.runs},
                  {"microbatch", plan.batch.microbatch},
                  {"microbatches", plan.batch.microbatches},
                  {"sequence_length", plan.batch.length}};
  out["dtypes"] = {{"compute", name_of(plan.types.compute)},
                   {"master", name_of(plan.types.master)},
                   {"gradient", name_of(plan.types.gradient)},
                   {"reduce", name_of(plan.types.reduce)},
                   {"message", name_of(plan.types.message)}};
  out["pipeline"] = pipeline_json(plan, actions);
  out["ignored"] = Json::array();
  for (const auto& key : plan.ignored) out["ignored"].push_back({{"key", key.key}, {"reason", key.reason}});
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string errors_to_json(const Diagnostics& problems) {
  Json out = {{"errors", Json::array()}};
  for (const auto& problem : problems) out["errors"].push_back(problem_json(problem));
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace automodel::plan
