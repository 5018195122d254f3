// Whether the outputs of a frozen vision tower are computed once and read from a cache (dataset.cache_features).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include <fmt/format.h>

#include "plan/located.h"

namespace automodel::plan {

struct TrainingPlan;

/// The pictures of a run, known once its data are open.
struct PictureFacts {
  std::int64_t pictures = 0;        ///< that differ, of training and validation
  std::int64_t tokens = 0;          ///< placeholders of these
  double reads = 0;                 ///< pictures that the run's steps read
  std::optional<double> room = {};  ///< bytes that the cache may take on its disk; empty: not known
};

/// What is cached is the longest part of the tower that is frozen from its beginning on: rows as they are put into the
/// embedding, or those that a projector takes which is trained.
struct FeaturePlan {
  bool cached = false;        ///< then no stage has that part
  bool whole = false;         ///< up to the embedding
  std::string why = {};       ///< why it is cached or not, in words
  std::int64_t values = 0;    ///< of an output row, those for later layers (DeepStack) included
  double rows_per_token = 1;  ///< output rows of a placeholder
  std::optional<PictureFacts> facts = {};

  double rows(double tokens) const { return tokens * rows_per_token; }
  /// Of so many placeholders, with values of this many bytes.
  double bytes(double tokens, double size) const { return rows(tokens) * static_cast<double>(values) * size; }
};

/// What a recipe's data sections ask for.
struct FeatureRequest {
  std::optional<PictureFacts> facts = {};
  std::optional<bool> cached = {};  ///< instead of what the recipe says: for comparisons
};

/// Empty if nothing of a tower is frozen from its beginning on. Uses the plan's model, adapters and frozen parameters,
/// and marks those that are cached there. Problems: unsupported-option (`true` where the tower is trained, or beside a
/// teacher), bad-value (sections that contradict each other). Warnings: no-effect (no tower).
void choose_features(const config::LoadedRecipe& recipe, const FeatureRequest& request, TrainingPlan& plan,
                     Located& report);

/// Calls `use` with every data section that may have outputs of a tower, those of a mixture's parts too, and its key.
/// They are kept in the folder of the first that names one (cache_dir).
template <class Use>
void each_with_features(const config::Recipe& recipe, const Use& use) {
  config::for_each_set(recipe, [&](const config::DatasetConfig& section, const std::string& key) {
    const bool mixture = std::holds_alternative<config::MixtureDatasetConfig>(section);
    int number = 0;
    config::each_part(section, [&](const auto& part) {
      const auto here = mixture ? fmt::format("{}.datasets.{}.dataset", key, number++) : key;
      if constexpr (requires { part.cache_features(); }) use(part, here);
    });
  });
}

/// Placeholders of a picture as planned.
std::int64_t planned_picture_tokens(const TrainingPlan& plan);

}  // namespace automodel::plan
