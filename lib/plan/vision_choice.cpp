#include "plan/vision_choice.h"

#include <array>
#include <string>
#include <tuple>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "base/find_file.h"
#include "config/objective.h"

namespace automodel::plan {
namespace {

namespace fs = std::filesystem;

using config::Recipe;

/// What a setting that does not work with pictures is recognised by.
struct Situation {
  const Recipe& recipe;
  const mesh::MeshSizes& sizes;
  const ModelChoice* model;  ///< null: unknown
};
struct Obstacle {
  bool (*stands)(const Situation& s);
  const char* key;
  const char* why;
};
constexpr std::array kObstacles = {
    Obstacle{[](const Situation& s) { return s.sizes.cp > 1 && s.model != nullptr && s.model->spec.vision->both_ways; },
             "distributed.cp_size", "context parallelism knows no tokens that see later ones"},
    Obstacle{[](const Situation& s) { return config::classes_of(s.recipe) > 0; }, "model._target_",
             "classifiers are language models"},
    Obstacle{[](const Situation& s) { return s.recipe.generation().has_value(); }, "generation",
             "text is not generated about pictures"},
    Obstacle{[](const Situation& s) { return s.recipe.fp8().has_value(); }, "fp8",
             "a vision tower is not computed in float8"},
    Obstacle{[](const Situation& s) {
               return std::holds_alternative<config::MuonConfig>(s.recipe.optimizer()) ||
                      std::holds_alternative<config::DionMuonConfig>(s.recipe.optimizer());
             },
             "optimizer", "Muon does not know which weights of a vision tower are matrices"},
};

std::optional<std::string> processor_name(const Recipe& recipe) {
  const auto& section = recipe.processor();
  return section ? section->pretrained_model_name_or_path() : std::nullopt;
}

void warn_of_idle(const Recipe& recipe, Located& report) {
  const auto warn = [&](const std::string& key) {
    report.warn("no-effect", key).says("{} has no effect: no vision tower is trained", key).hint("remove it");
  };
  if (recipe.processor()) warn("processor");
  if (!recipe.freeze_config()) return;
  if (recipe.freeze_config()->freeze_vision_tower()) warn("freeze_config.freeze_vision_tower");
  if (recipe.freeze_config()->freeze_language_model()) warn("freeze_config.freeze_language_model");
}

/// The recipe's limits of a resized picture.
void set_pixels(const config::LoadedRecipe& recipe, pictures::Processor& processor, Located& report) {
  const auto& section = recipe.recipe.processor();
  if (!section || (!section->min_pixels() && !section->max_pixels())) return;
  if (!processor.patches || !processor.patches->by_area()) {
    const std::string key = section->min_pixels() ? "processor.min_pixels" : "processor.max_pixels";
    report.warn("no-effect", key)
        .says("{} has no effect: {}", key,
              !processor.patches                ? "all pictures are resized to one size"
              : processor.patches->longest_edge ? "the longest side limits pictures"
              : processor.patches->grid_tokens  ? "max_image_tokens of the processor limits pictures"
              : processor.patches->parts        ? "pictures become squares of two sizes"
                                                : "max_soft_tokens of the processor limits pictures")
        .hint("remove it");
    return;
  }
  auto& patches = *processor.patches;
  patches.least = section->min_pixels().value_or(patches.least);
  patches.most = section->max_pixels().value_or(patches.most);
  if (patches.least > patches.most)
    report.refuse("bad-value", section->min_pixels() ? "processor.min_pixels" : "processor.max_pixels")
        .says("pictures have at least {} pixels and at most {}", patches.least, patches.most)
        .hint("processor.min_pixels and processor.max_pixels set both");
}

/// Why a tower cannot take what the processor makes; empty if it can.
std::string against_tower(const pictures::Processor& processor, const arch::VisionSpec& vision) {
  if (vision.any_size()) {
    if (!processor.patches) return "it makes pictures of one size, the tower takes patches";
    const auto& patches = *processor.patches;
    if ((vision.kind == arch::TowerKind::kPixtral) != patches.longest_edge.has_value() ||
        (vision.kind == arch::TowerKind::kGemma4) != patches.soft_tokens.has_value() ||
        (vision.kind == arch::TowerKind::kMuse) != patches.grid_tokens.has_value() ||
        (vision.kind == arch::TowerKind::kStep) != patches.parts.has_value())
      return "it resizes pictures for another tower";
    if (patches.patch == vision.patch && patches.merge == vision.merge && patches.frames == vision.frames) return "";
    return fmt::format(
        "its patches of {} pixels in {} x {} blocks and {} frames are not the tower's: {} pixels, {} x "
        "{}, {} frames",
        patches.patch, patches.merge, patches.merge, patches.frames, vision.patch, vision.merge, vision.merge,
        vision.frames);
  }
  const int side = vision.image;
  const auto size = processor.result();
  if (size == pictures::Size{side, side}) return "";
  return size ? fmt::format("it makes pictures of {} x {}, the tower takes {} x {}", size->width, size->height, side,
                            side)
              : fmt::format("its pictures differ in size, the tower takes {} x {}", side, side);
}

}  // namespace

fs::path processor_folder(const config::LoadedRecipe& recipe, const ModelChoice& model) {
  const auto name = processor_name(recipe.recipe);
  return name ? find_beside(*name, recipe.folder()).value_or(fs::path()) : model.folder;
}

void choose_processor(const config::LoadedRecipe& recipe, ModelChoice& model, Located& report, bool training) {
  if (!model.spec.vision) return;
  const auto name = processor_name(recipe.recipe);
  const std::string key = name ? "processor.pretrained_model_name_or_path" : "model";
  const auto folder = processor_folder(recipe, model);
  const auto refuse = [&](const std::string& why, ProblemId id = "unsupported-model") {
    report.refuse(id, key)
        .says("the processor of pictures in '{}' cannot be used: {}",
              folder.empty() ? name.value_or(model.name) : folder.native(), why)
        .hint("a folder with preprocessor_config.json; processor.pretrained_model_name_or_path names another one");
  };
  const bool there = !folder.empty() && pictures::has_processor(folder);
  // Where the model is known by its name alone, so is its processor.
  if (!there && (training || (name && !model.folder.empty())))
    return refuse(folder.empty() ? "there is no such folder" : "it is not there", "missing-file");
  const auto& vision = *model.spec.vision;
  if (there) {
    std::string why;
    model.processor = pictures::read_processor(folder, why);
    if (!model.processor) return refuse(why);
  } else if (vision.any_size()) {  // a plan of sizes alone: what is published with such towers
    auto& patches = model.processor.emplace().patches;
    patches = {.patch = vision.patch, .merge = vision.merge, .frames = vision.frames};
    using enum arch::TowerKind;
    if (vision.kind == kPixtral) patches->longest_edge = vision.image;
    if (vision.kind == kQwen25) std::tie(patches->least, patches->most) = std::pair(56 * 56, 16384 * 28 * 28);
    if (vision.kind == kQwen3) std::tie(patches->least, patches->most) = std::pair(64 * 32 * 32, 16384 * 32 * 32);
    if (vision.kind == kGemma4) patches->soft_tokens = 280;
    if (vision.kind == kMuse) patches->grid_tokens = 4096;
    if (vision.kind == kMiniMax) std::tie(patches->least, patches->most) = std::pair(4 * 28 * 28, 451584);
    if (vision.kind == kStep) patches->parts = {.whole = vision.image};
  } else {
    return;
  }
  set_pixels(recipe, *model.processor, report);
  if (vision.kind == arch::TowerKind::kGemma4 && model.processor->patches)
    model.processor->patches->positions = vision.table;
  if (const auto why = against_tower(*model.processor, vision); !why.empty()) refuse(why);
}

std::optional<pictures::PictureTokens> picture_tokens(const ModelChoice& model) {
  const auto& vision = model.spec.vision;
  if (!vision) return std::nullopt;
  pictures::PictureTokens out{.placeholder = vision->image_token, .processor = model.processor};
  out.both_ways = vision->both_ways;
  out.begin = vision->begin_token;
  out.end = vision->end_token;
  out.own_lines = !vision->any_size();
  if (!vision->any_size()) {
    out.per_picture = vision->tokens();
    return out;
  }
  out.axes = vision->qwen();
  if (!out.axes) return out;
  // As NeMo AutoModel for the processors of these models, whatever a template puts in front of an answer.
  out.answer = "<|im_start|>assistant\n";
  out.stop = "<|im_end|>";
  return out;
}

void check_vision(const config::LoadedRecipe& recipe, const ModelChoice* model, const mesh::MeshSizes& sizes,
                  bool training, Located& report) {
  const bool asked = recipe.recipe.model() && config::takes_pictures(recipe.recipe.model()->target());
  if (model == nullptr && (training || !asked)) return;
  if (model != nullptr && !model->spec.vision) {
    if (!model->spec.nested_in.empty()) return;  // it has a tower, and is planned only
    warn_of_idle(recipe.recipe, report);
    if (asked)
      report.plan_only(training, "the class takes pictures, but its configuration has no vision tower",
                       Diagnostic{"unsupported-model"}
                           .says("the class takes pictures, but '{}' has no vision tower", model->name)
                           .hint("NeMoAutoModelForCausalLM, or the folder of a model with a vision_config")
                           .of("model._target_"));
    return;
  }
  for (const auto& each : kObstacles)
    if (each.stands({recipe.recipe, sizes, model}))
      report.plan_only(training, each.why,
                       Diagnostic{"unsupported-option"}
                           .says("the model has a vision tower: {}", each.why)
                           .hint("leave it out; what is trained with pictures: docs/models.md")
                           .of(each.key));
}

std::optional<Diagnostic> refuse_pictures(const config::LoadedRecipe& recipe, const ModelChoice& model,
                                          std::string_view command) {
  if (!model.spec.vision) return std::nullopt;
  return Diagnostic{"unsupported-model"}
      .says("{} takes language models only, and '{}' has a vision tower", command, model.name)
      .hint("train works with pictures: docs/models.md")
      .at(recipe.origins.nearest("model"))
      .of("model");
}

}  // namespace automodel::plan
