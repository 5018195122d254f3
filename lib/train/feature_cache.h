// Runs the frozen part of a vision tower over every picture of a run, once, before training.
#pragma once

#include <memory>
#include <string>

#include "data/feature_store.h"
#include "parallel/data/unit_storage.h"
#include "plan/feature_choice.h"
#include "train/setup.h"

namespace automodel::train {

/// The pictures of the data that are open, and the room for their outputs: that of the rank that has least, 0 where the
/// folder cannot be written to. Collective.
plan::PictureFacts picture_facts(const Setup& setup);

struct FeatureCache {
  std::shared_ptr<const data::FeatureStore> store = {};  ///< null: the plan caches nothing
  std::string line = {};                                 ///< for people
};

/// Opens the cache with the outputs of all pictures of training and validation. What it lacks is computed first: ranks
/// divide the rows that have the pictures, and where they do not see each other's files, those of each host do again.
/// Collective. `weights`: of the run that starts, from which the cache's name follows, with the settings of model and
/// processor, the types and the kind of device. Throws Error: disk-space, cannot-write, bad-row, features-damaged.
FeatureCache cache_features(const Setup& setup, const parallel::WeightSource& weights);

}  // namespace automodel::train
