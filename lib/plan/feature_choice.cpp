#include "plan/feature_choice.h"

#include <algorithm>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "base/bytes.h"
#include "plan/model_names.h"
#include "plan/training_plan.h"
#include "plan/vision_choice.h"

namespace automodel::plan {
namespace {

using config::CacheFeatures;

constexpr int kUsualEpochs = 10;  // of a recipe that names neither epochs nor steps (train/step_scheduler.cpp)

/// What the data sections ask for, and the key that does.
struct Asked {
  CacheFeatures what = CacheFeatures::kAuto;
  std::string key = "dataset.cache_features";
};

Asked asked_by(const config::LoadedRecipe& loaded, Located& report) {
  Asked out;
  config::for_each_set(loaded.recipe, [&](const config::DatasetConfig& section, const std::string& key) {
    config::each_part(section, [&](const auto& part) {
      if constexpr (requires { part.cache_features(); }) {
        const auto here = part.cache_features();
        if (here == CacheFeatures::kAuto || here == out.what) return;
        if (out.what != CacheFeatures::kAuto)
          report.refuse("bad-value", key + ".cache_features")
              .says("cache_features is true in one data section and false in another")
              .hint("what one section says holds for all: write it once");
        out = {here, key + ".cache_features"};
      }
    });
  });
  return out;
}

/// The modules, from the tower's beginning on, of which nothing is trained.
std::vector<std::string> frozen_modules(const TrainingPlan& plan) {
  std::vector<std::string> out;
  for (const auto& tower : towers_of(*plan.model)) {
    if (trains_tower(plan, tower.fqn)) return out;
    out.push_back(tower.fqn);
  }
  return out;
}

bool is_below(const std::string& name, const std::vector<std::string>& modules) {
  return std::ranges::any_of(modules, [&](const std::string& module) { return name.starts_with(module + "."); });
}

void mark_cached(TrainingPlan& plan, const std::vector<std::string>& modules) {
  for (auto& parameter : plan.model->layout.tower_parameters) parameter.cached = is_below(parameter.name, modules);
  for (auto* all : {plan.adapters ? &plan.adapters->all : nullptr, plan.frozen ? &plan.frozen->all : nullptr})
    if (all != nullptr)
      for (auto& parameter : *all)
        parameter.cached = parameter.role == arch::Role::kTower && is_below(parameter.fqn, modules);
}

void set_sizes(const ModelChoice& model, FeaturePlan& out) {
  const auto& vision = *model.spec.vision;
  out.values = out.whole ? std::int64_t{model.spec.hidden} * (1 + model.spec.deep_layers()) : vision.out_width();
  if (out.whole) return;
  if (vision.pooled > 0) out.rows_per_token = static_cast<double>(vision.rows()) / vision.tokens();
  using enum arch::TowerKind;
  if (vision.kind == kPixtral || vision.kind == kMuse || vision.kind == kMiniMax)
    out.rows_per_token = vision.merge * vision.merge;
}

/// Pictures of random pixels are known by their section alone.
std::optional<PictureFacts> mock_facts(const config::Recipe& recipe, const TrainingPlan& plan) {
  const auto* section = recipe.dataset() ? std::get_if<config::MockPicturesDatasetConfig>(&*recipe.dataset()) : nullptr;
  const auto tokens = picture_tokens(*plan.model);
  if (section == nullptr || (tokens->per_picture == 0 && !tokens->processor)) return std::nullopt;
  const auto [width, height] = section->image_size();
  PictureFacts out{.pictures = std::int64_t{section->num_samples()} * section->num_images_per_sample()};
  out.tokens = out.pictures * tokens->placeholders({width, height});
  const auto& steps = recipe.step_scheduler();
  const double in_epochs = steps.num_epochs().value_or(kUsualEpochs) * static_cast<double>(out.pictures),
               in_steps = static_cast<double>(steps.max_steps().value_or(0)) * plan.batch.global *
                          section->num_images_per_sample();
  out.reads = !steps.max_steps() ? in_epochs : steps.num_epochs() ? std::min(in_epochs, in_steps) : in_steps;
  return out;
}

/// Reads once are what no cache needs: computing all pictures before training costs as much.
void choose_by_reads(const config::Recipe& recipe, const TrainingPlan& plan, FeaturePlan& out) {
  const auto& steps = recipe.step_scheduler();
  if (!out.facts) {
    const int epochs = steps.num_epochs().value_or(kUsualEpochs);
    out.cached = epochs > 1 && !steps.max_steps();
    out.why = out.cached          ? fmt::format("pictures are read in {} epochs", epochs)
              : steps.max_steps() ? "how often pictures are read is known when the data are open"
                                  : "each picture is read once";
    return;
  }
  const auto& facts = *out.facts;
  const double needed = out.bytes(static_cast<double>(facts.tokens), size_of(plan.types.compute));
  out.cached = facts.reads > static_cast<double>(facts.pictures);
  out.why = fmt::format("{} pictures are read {:.3g} times", facts.pictures,
                        facts.reads / static_cast<double>(std::max<std::int64_t>(facts.pictures, 1)));
  if (!out.cached || !facts.room || needed <= *facts.room) return;
  out.cached = false;
  out.why = *facts.room > 0 ? fmt::format("the disk has room for {}", format_bytes(*facts.room))
                            : "the folder of the cache cannot be written to, or its disk is full";
}

}  // namespace

void choose_features(const config::LoadedRecipe& loaded, const FeatureRequest& request, TrainingPlan& plan,
                     Located& report) {
  const auto asked = asked_by(loaded, report);
  const bool yes = asked.what == CacheFeatures::kYes;
  if (!plan.model || !plan.model->spec.vision) {
    if (yes && plan.model && plan.model->spec.nested_in.empty())
      report.warn("no-effect", asked.key)
          .says("{} has no effect: no vision tower is trained", asked.key)
          .hint("remove it");
    return;
  }
  auto modules = frozen_modules(plan);
  const bool whole = modules.size() == towers_of(*plan.model).size();
  if (!whole && modules.size() > 1) modules.resize(1);  // a projector of several modules is cached as one
  if (yes && modules.empty()) {
    report.refuse("unsupported-option", asked.key)
        .says("{} keeps the outputs of a frozen tower, and weights of {} are trained", asked.key,
              towers_of(*plan.model).front().fqn)
        .hint("freeze_config: {freeze_vision_tower: true} freezes it; auto caches only where it is frozen");
    return;
  }
  if (yes && loaded.recipe.teacher_model()) {
    report.refuse("unsupported-option", asked.key)
        .says("{} leaves out the pixels of pictures, which the tower of teacher_model needs", asked.key)
        .hint("set it to false or auto");
    return;
  }
  if (modules.empty()) return;
  // An estimate of another trainer, which computes the tower for every picture that it reads.
  if (!yes && !request.facts && loaded.recipe.hardware->stack() != config::Stack::kOwn) return;
  FeaturePlan out{.whole = whole, .facts = request.facts};
  set_sizes(*plan.model, out);
  if (!out.facts) out.facts = mock_facts(loaded.recipe, plan);
  if (loaded.recipe.teacher_model()) {
    out.why = "the tower of teacher_model needs the pixels";
  } else if (asked.what != CacheFeatures::kAuto) {
    out.cached = yes;
    out.why = fmt::format("{} is {}", asked.key, yes);
  } else {
    choose_by_reads(loaded.recipe, plan, out);
  }
  if (request.cached) out.cached = *request.cached;
  if (out.cached) mark_cached(plan, modules);
  plan.features = std::move(out);
}

std::int64_t planned_picture_tokens(const TrainingPlan& plan) {
  const auto& vision = *plan.model->spec.vision;
  if (!vision.any_size()) return vision.tokens();
  const auto towers = towers_of(*plan.model);
  const auto& last = towers.back();
  return last.projects() ? last.tokens : last.tokens / (std::int64_t{vision.merge} * vision.merge);
}

}  // namespace automodel::plan
