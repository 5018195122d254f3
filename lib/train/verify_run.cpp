#include "train/verify_run.h"

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>

#include <ATen/Parallel.h>

#include "base/json_writer.h"
#include "base/text_table.h"
#include "comm/loopback/loopback.h"
#include "estimate/estimated_plan.h"
#include "plan/shrink.h"
#include "report/plan_text.h"
#include "train/setup.h"
#include "train/verify.h"

namespace automodel::train {
namespace {

constexpr double kTolerance = 1e-9;  // everything is float64
constexpr std::size_t kShown = 5;

estimate::EstimatedPlan plan_of(const config::LoadedRecipe& recipe, std::optional<int> world_size) {
  auto made = estimate::make_plan(recipe, {.world_size = world_size});
  if (made.plan && !made.plan->model)
    made.problems.add("missing-key", "model")
        .says("a model without sizes cannot be verified")
        .hint("give '--model.config PATH' (a config.json)")
        .at(recipe.origins.nearest("model"));
  if (made.plan && made.plan->model && made.plan->model->spec.vision && made.plan->model->folder.empty())
    made.problems.add("missing-file", "model")
        .says("rows with pictures need the tokenizer and the processor of '{}', which are not here",
              made.plan->model->name)
        .hint("model.pretrained_model_name_or_path names the folder of a model")
        .at(recipe.origins.nearest("model"));
  if (!made.problems.empty()) throw Error(std::move(made.problems));
  if (made.plan->mesh.world_size() == 1)
    throw Error(Diagnostic{"one-rank"}
                    .says("the mesh is one rank: there is nothing to compare it with")
                    .hint("for example '--nproc-per-node 2', or '--distributed.tp_size 2'")
                    .at(recipe.origins.nearest("distributed"))
                    .of("distributed"));
  return std::move(*made.plan);
}

std::string tables(const Trace& mesh, const Trace& single, const Difference& difference) {
  TextTable steps({"step", "loss", "on one rank", "difference", "gradient norm", "on one rank", "difference"});
  const auto relative = [](double a, double b) { return std::abs(a - b) / std::max(std::abs(b), 1e-30); };
  for (std::size_t i = 0; i < mesh.losses.size(); ++i)
    steps.add({std::to_string(i), fmt::format("{:.12g}", mesh.losses[i]), fmt::format("{:.12g}", single.losses[i]),
               fmt::format("{:.1e}", relative(mesh.losses[i], single.losses[i])), fmt::format("{:.12g}", mesh.norms[i]),
               fmt::format("{:.12g}", single.norms[i]),
               fmt::format("{:.1e}", relative(mesh.norms[i], single.norms[i]))});
  TextTable parameters({"gradient of", "difference"});
  auto sorted = difference.parameters;
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  for (std::size_t i = 0; i < std::min(kShown, sorted.size()); ++i)
    parameters.add({sorted[i].first, fmt::format("{:.1e}", sorted[i].second)});
  std::string out = steps.text() + "\n" + parameters.text();
  if (sorted.size() > kShown) out += fmt::format("  and {} more, all smaller\n", sorted.size() - kShown);
  return out;
}

std::string report_text(const estimate::EstimatedPlan& plan, const plan::Shrunk& small, const Trace& mesh,
                        const Trace& single, const Difference& difference) {
  std::string out = report::to_text(plan);
  out += fmt::format("verify    {} steps in float64 with {}\n\n", small.steps, small.summary);
  out += tables(mesh, single, difference);
  if (difference.within(kTolerance))
    return out +
           fmt::format("\nequal: loss, gradient norm and the gradients of {} parameters within {:g} of one rank\n",
                       difference.parameters.size(), kTolerance);
  return out + fmt::format("\nDIFFERENT: loss {:.1e}, gradient norm {:.1e}, gradient of {} {:.1e} (allowed: {:g})\n",
                           difference.loss, difference.norm, difference.worst, difference.gradient, kTolerance);
}

/// The same for programs: all steps and parameters.
std::string report_json(const estimate::EstimatedPlan& plan, const plan::Shrunk& small, const Trace& mesh,
                        const Trace& single, const Difference& difference) {
  JsonWriter json;
  json.begin_object();
  json.member("equal", difference.within(kTolerance));
  json.member("tolerance", kTolerance);
  json.member("ranks", plan.mesh.world_size());
  json.member("model", small.summary);
  json.key("steps");
  json.begin_array();
  for (std::size_t i = 0; i < mesh.losses.size(); ++i) {
    json.begin_object();
    json.member("loss", mesh.losses[i]);
    json.member("loss_on_one_rank", single.losses[i]);
    json.member("grad_norm", mesh.norms[i]);
    json.member("grad_norm_on_one_rank", single.norms[i]);
    json.end_object();
  }
  json.end_array();
  json.key("difference");
  json.begin_object();
  json.member("loss", difference.loss);
  json.member("grad_norm", difference.norm);
  json.member("gradient", difference.gradient);
  json.member("worst", difference.worst);
  json.end_object();
  json.key("gradients");
  json.begin_object();
  for (const auto& [name, value] : difference.parameters) json.member(name, value);
  json.end_object();
  json.end_object();
  return json.take() + "\n";
}

}  // namespace

ExitCode run_verification(const config::LoadedRecipe& recipe, comm::World& world, bool json) {
  at::set_num_threads(1);
  const auto plan = plan_of(recipe, world.size());
  const auto small = plan::shrink(recipe, plan);
  const auto mesh = trace_steps(small.mesh, world, small.steps);
  ExitCode code = ExitCode::kOk;
  if (world.rank() == 0) {
    Trace single;
    const auto outcome =
        comm::run_ranks(1, [&](comm::World& alone) { single = trace_steps(small.single, alone, small.steps); });
    if (!outcome.ok())
      throw Error(outcome.code, Diagnostic{"verify-failed"}.says(outcome.text).hint("the run on one rank failed"));
    const auto difference = compare(mesh, single);
    const auto text =
        json ? report_json(plan, small, mesh, single, difference) : report_text(plan, small, mesh, single, difference);
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
    if (!difference.within(kTolerance)) code = ExitCode::kRefused;
  }
  return static_cast<ExitCode>(std::stoi(world.broadcast_text(std::to_string(static_cast<int>(code)))));
}

ExitCode run_verification_alone(const config::LoadedRecipe& recipe, std::optional<int> asked, bool json) {
  const int ranks = plan_of(recipe, asked).mesh.world_size();
  if (ranks > kMostThreads)
    throw Error(Diagnostic{"too-many-ranks"}
                    .says("this recipe's mesh has {} ranks; one process verifies at most {}", ranks, kMostThreads)
                    .hint("start it with mpirun, or make sizes smaller: '--distributed.dp_size 2'"));
  ExitCode code = ExitCode::kOk;
  const auto outcome = comm::run_ranks(ranks, [&](comm::World& world) {
    const auto mine = run_verification(recipe, world, json);
    if (world.rank() == 0) code = mine;
  });
  if (outcome.ok()) return code;
  std::fputs(outcome.text.c_str(), stderr);
  return outcome.code;
}

}  // namespace automodel::train
