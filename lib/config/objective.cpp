#include "config/objective.h"

#include <string>
#include <type_traits>
#include <variant>

#include "config/recipe_class.h"

namespace automodel::config {
namespace {

/// Whether the data can have one class per row, and whether it always has.
bool has_classes(const DatasetConfig& dataset) {
  bool out = true;
  each_part(dataset, [&]<class Config>(const Config&) {
    out = out && requires {
      Config::kHasClasses;
    };
  });
  return out;
}
bool only_classes(const DatasetConfig& dataset) {
  bool out = false;
  each_part(dataset, [&]<class Config>(const Config&) { out = out || std::is_base_of_v<ClassSetFields, Config>; });
  return out;
}

/// Keys of rows that become conversations, for rows with a class.
void warn_of_conversations(const DatasetConfig& dataset, const std::string& key, Problems& problems) {
  if (const auto* mixture = std::get_if<MixtureDatasetConfig>(&dataset)) {
    for (std::size_t i = 0; i < mixture->datasets().size(); ++i)
      if (const auto& part = mixture->datasets()[i].dataset())
        std::visit(
            [&](const auto& section) {
              warn_of_conversations(section, key + ".datasets." + std::to_string(i) + ".dataset", problems);
            },
            *part);
  } else if (std::holds_alternative<JsonlDatasetConfig>(dataset)) {
    for (const char* name : {".mask_prompt", ".chat_template"})
      if (problems.given(key + name))
        problems.warn("no-effect", key + name)
            .says("{} has no effect: a classifier's rows are a text or two and a label", key + name)
            .hint("remove it");
  }
}

void check_classifier(const Recipe& recipe, Problems& problems) {
  const auto& model = *recipe.model();
  if (!model.num_labels())
    problems.refuse("missing-key", "model.num_labels")
        .says("sequence classification needs the number of classes")
        .hint("set model.num_labels: rows have labels from 0 to num_labels - 1");
  if (model.target() == ModelTarget::kGpt2)
    problems.refuse("bad-value", "model._target_")
        .says("build_gpt2_model builds a language model, not a classifier")
        .hint("set model._target_: nemo_automodel.NeMoAutoModelForSequenceClassification.from_config");
  if (recipe.peft())
    problems.refuse("unsupported-option", "peft")
        .says(
            "adapters cannot be trained with a classifier: its new head would stay as it was drawn, because adapters "
            "are trained and saved alone")
        .hint("remove peft; freeze_config freezes parts of the model");
  if (recipe.teacher_model())
    problems.refuse("bad-value", "teacher_model")
        .says("a classifier cannot learn from a teacher: distillation is for next-token prediction")
        .hint("remove teacher_model");
  if (recipe.generation())
    problems.refuse("bad-value", "generation").says("a classifier generates no text").hint("remove generation");
  for_each_set(recipe, [&](const DatasetConfig& dataset, const std::string& key) {
    if (!has_classes(dataset))
      problems.refuse("bad-value", key + "._target_")
          .says("the rows of this data set have no classes")
          .hint(
              "tokens, with rows {\"input_ids\": [...], \"label\": 0}, or jsonl, with rows {\"text\": ..., "
              "\"label\": 0}");
    warn_of_conversations(dataset, key, problems);
  });
}

void check_language_model(const Recipe& recipe, Problems& problems) {
  if (const auto& labels = recipe.model()->num_labels())
    problems.refuse("bad-value", "model.num_labels")
        .says("num_labels is {}, but the model is for next-token prediction, which has no classes", *labels)
        .hint(
            "remove it, or set model._target_: nemo_automodel.NeMoAutoModelForSequenceClassification.from_pretrained");
  for_each_set(recipe, [&](const DatasetConfig& dataset, const std::string& key) {
    if (only_classes(dataset))
      problems.refuse("bad-value", key + "._target_")
          .says("the rows of this data set have a class, which next-token prediction cannot learn")
          .hint("set recipe: TrainFinetuneRecipeForSequenceClassification, and model.num_labels");
  });
}

void check_distillation(const Recipe& recipe, std::string_view name, Problems& problems) {
  if (!recipe.teacher_model())
    return void(problems.refuse("missing-key", "teacher_model")
                    .says("distillation needs a teacher")
                    .hint("add 'teacher_model:' with pretrained_model_name_or_path"));
  const auto& teacher = *recipe.teacher_model();
  if (!name.empty() && name.find(kDistillationRecipe) == name.npos)
    problems.refuse("bad-value", "recipe")
        .says("there is a teacher_model, but '{}' does not distil", name)
        .hint("set recipe: KnowledgeDistillationRecipeForNextTokenPrediction, or remove teacher_model");
  if (!teacher.pretrained_model_name_or_path() && !teacher.config())
    problems.refuse("missing-key", "teacher_model")
        .says("teacher_model needs pretrained_model_name_or_path or config")
        .hint("a folder with config.json and safetensors");
  if (is_classifier(teacher.target()) || teacher.num_labels())
    problems.refuse("bad-value", teacher.num_labels() ? "teacher_model.num_labels" : "teacher_model._target_")
        .says("the teacher is a classifier; the student learns to predict tokens")
        .hint("name a language model");
  if (teacher.moe_overrides() && teacher.moe_overrides()->gate_bias_update_factor().value_or(0) != 0)
    problems.refuse("unsupported-option", "teacher_model.moe_overrides.gate_bias_update_factor")
        .says("a teacher's router biases do not change")
        .hint("remove it");
  if (!teacher.quantization_config().is_null())
    problems.refuse("unsupported-option", "teacher_model.quantization_config")
        .says("a teacher's weights cannot be quantized")
        .hint("remove it; set teacher_model.torch_dtype: bfloat16 for two bytes per weight");
  const auto ignored = std::visit([](const auto& loss) { return loss.ignore_index(); }, recipe.loss_fn());
  if (const auto& loss = std::get<KDLossConfig>(recipe.kd_loss_fn()); loss.ignore_index() != ignored)
    problems.refuse("bad-value", "kd_loss_fn.ignore_index")
        .says("kd_loss_fn.ignore_index is {}, but loss_fn.ignore_index is {}", loss.ignore_index(), ignored)
        .hint("both parts of the loss are over the same label tokens: set one value");
}

/// Keys of distillation, for a recipe without.
void warn_of_lessons(Problems& problems) {
  for (const char* key : {"kd_ratio", "kd_loss_fn"})
    if (problems.given(key))
      problems.warn("no-effect", key)
          .says("{} has no effect without a teacher_model", key)
          .hint("add 'teacher_model:' to distil, or remove it");
}

}  // namespace

Objective objective_of(const Recipe& recipe) {
  const bool named = recipe_class_of(recipe.recipe()).find(kClassifierRecipe) != std::string_view::npos;
  if (named || (recipe.model() && is_classifier(recipe.model()->target()))) return Objective::kClassification;
  const bool teaches = recipe_class_of(recipe.recipe()).find(kDistillationRecipe) != std::string_view::npos;
  return teaches || recipe.teacher_model() ? Objective::kDistillation : Objective::kNextToken;
}

int classes_of(const Recipe& recipe) {
  if (!recipe.model() || objective_of(recipe) != Objective::kClassification) return 0;
  return recipe.model()->num_labels().value_or(0);
}

void check_objective(const Recipe& recipe, Problems& problems) {
  if (!recipe.model()) return;
  const auto& model = *recipe.model();
  const auto name = recipe_class_of(recipe.recipe());
  const bool classifies = is_classifier(model.target());
  const bool generates = !classifies && (reads_weights(model.target()) || leaves_weights(model.target()));
  if (name.find(kClassifierRecipe) != name.npos && generates)
    problems.refuse("bad-value", "model._target_")
        .says("the recipe is for sequence classification, but the model is for next-token prediction")
        .hint("set model._target_: nemo_automodel.NeMoAutoModelForSequenceClassification.{}",
              reads_weights(model.target()) ? "from_pretrained" : "from_config");
  if (name.find("NextTokenPrediction") != name.npos && classifies)
    problems.refuse("bad-value", "recipe")
        .says("the recipe is for next-token prediction, but the model is for sequence classification")
        .hint("set recipe: TrainFinetuneRecipeForSequenceClassification");
  const auto objective = objective_of(recipe);
  if (objective == Objective::kClassification)
    check_classifier(recipe, problems);
  else
    check_language_model(recipe, problems);
  if (objective == Objective::kDistillation)
    check_distillation(recipe, name, problems);
  else
    warn_of_lessons(problems);
}

}  // namespace automodel::config
