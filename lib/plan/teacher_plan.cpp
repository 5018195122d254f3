#include "plan/teacher_plan.h"

#include <string>
#include <utility>

#include "arch/modules.h"
#include "arch/tensor_plan.h"
#include "plan/vision_choice.h"

namespace automodel::plan {
namespace {

/// The recipe with the teacher in the model's place.
config::LoadedRecipe teachers_recipe(const config::LoadedRecipe& loaded) {
  auto out = loaded;
  auto& recipe = out.recipe;
  recipe.model = std::optional(*recipe.teacher_model());
  recipe.teacher_model = std::nullopt;
  recipe.recipe = config::Value();
  recipe.peft = std::nullopt;
  recipe.freeze_config = std::nullopt;
  recipe.neftune = std::nullopt;
  recipe.quantization = std::nullopt;
  recipe.fp8 = std::nullopt;
  recipe.loss_fn = config::LossConfig(config::MaskedCrossEntropyConfig{});
  recipe.optimizer = config::OptimizerConfig(config::AdamWConfig{});
  recipe.lr_scheduler = std::nullopt;
  recipe.model_parallel->cpu_offloading = false;
  recipe.model_parallel->enable_cuda_graph = false;
  if (auto pipeline = recipe.distributed->pipeline()) {
    pipeline->module_fqns_per_model_part = std::nullopt;
    pipeline->pipeline_model_parallel_layout = std::nullopt;
    recipe.distributed->pipeline = pipeline;
  }
  out.warnings.clear();
  out.ignored.clear();
  out.unsupported.clear();
  return out;
}

/// Problems of the teacher's plan, told under the teacher's keys.
Diagnostics as_the_teachers(Diagnostics problems, const config::LoadedRecipe& loaded) {
  for (auto& problem : problems) {
    if (problem.key == "model" || problem.key.starts_with("model.")) {
      problem.key = "teacher_" + problem.key;
      problem.where = problem.where.file.empty() || problem.where.file == loaded.path
                          ? loaded.origins.nearest(problem.key)
                          : problem.where;
    } else {
      problem.message = "for the teacher: " + problem.message;
    }
    for (auto* text : {&problem.message, &problem.help})
      for (auto at = text->find("'--model."); at != text->npos; at = text->find("'--model.", at + 1))
        text->replace(at, 9, "'--teacher_model.");
  }
  return problems;
}

/// Freezes every parameter.
void freeze(TrainingPlan& plan) {
  const auto layers = static_cast<std::size_t>(plan.model->spec.layers);
  FrozenPart out{.all = arch::parameters(plan.model->layout),
                 .layers = std::vector<TrainedProducts>(layers, kNoProducts),
                 .embedding = true,
                 .head = true,
                 .trained_products = std::vector<double>(layers, 0.0)};
  for (std::size_t place = 0; place < out.all.size(); ++place) out.freeze(place);
  plan.frozen = std::move(out);
}

bool divides_head(const TrainingPlan& plan) {
  return arch::divides_vocabulary(plan.tensor, plan.model->layout, arch::Role::kHead);
}

void check_pair(const TrainingPlan& student, const TrainingPlan& teacher, Located& report) {
  const auto& theirs = teacher.model->spec;
  const auto& ours = student.model->spec;
  if (theirs.vocab != ours.vocab)
    report.refuse("size-conflict", "teacher_model")
        .says("the teacher's vocabulary has {} tokens, the student's {}", theirs.vocab, ours.vocab)
        .hint("the two models need the same tokenizer and vocab_size");
  if (ours.vision && picture_tokens(*student.model) != picture_tokens(*teacher.model))
    report.refuse("size-conflict", "teacher_model")
        .says(theirs.vision ? "the teacher's pictures become other tokens than the student's"
                            : "the student takes pictures, the teacher does not")
        .hint("the two models need towers with the same patches, and one processor");
  if (theirs.head_rows_normed)
    report.refuse("unsupported-option", "teacher_model")
        .says("a model whose head's rows are normalised cannot be a teacher")
        .hint("choose another teacher");
  if (student.mesh.sizes().tp > 1 && divides_head(student) != divides_head(teacher))
    report.refuse("unsupported-option", "distributed.tp_plan")
        .says("tensor-parallel ranks divide the head of one of the two models, but not that of the other")
        .hint("remove distributed.tp_plan, or name a plan that treats both heads alike");
}

}  // namespace

std::shared_ptr<const TrainingPlan> plan_teacher(const config::LoadedRecipe& loaded, const TrainingPlan& student,
                                                 const PlanRequest& request, Costs& costs, Located& report) {
  auto made = make_plan(teachers_recipe(loaded), request, costs);
  report.refuse_all(as_the_teachers(std::move(made.problems), loaded));
  if (!made.plan) return nullptr;
  for (auto& warning : as_the_teachers(std::move(made.warnings), loaded))
    if (warning.key.starts_with("teacher_model")) report.warnings().push_back(std::move(warning));
  const auto& section = *loaded.recipe.teacher_model();
  if (!section.pretrained_model_name_or_path() || !section.load_base_model() ||
      config::leaves_weights(section.target()))
    report.warn("no-effect", "teacher_model")
        .says("the teacher's weights are drawn from the seed: a student learns nothing of use from it")
        .hint("set teacher_model.pretrained_model_name_or_path to a folder of trained weights");
  if (!made.plan->model || !student.model) return nullptr;
  check_pair(student, *made.plan, report);
  freeze(*made.plan);
  ++made.plan->weights.seed;  // a teacher that is drawn, not read, is not its student
  return std::make_shared<const TrainingPlan>(std::move(*made.plan));
}

}  // namespace automodel::plan
