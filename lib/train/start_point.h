// Where a run starts from: weights, learning-rate schedule, first step, and the rest of a checkpoint's state.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/format/run_state.h"
#include "checkpoint/memory_copies.h"
#include "comm/communicator.h"
#include "metrics/event_log.h"
#include "parallel/data/unit_storage.h"
#include "plan/lr_schedule.h"
#include "train/saved_run.h"
#include "train/setup.h"
#include "train/start_choice.h"
#include "train/trainer.h"

namespace automodel::train {

struct StartPoint {
  StartKind kind = StartKind::kSeed;
  std::filesystem::path checkpoint = {};  ///< empty for a new run
  std::int64_t first_step = 0;
  plan::LrSchedule rates;
  parallel::WeightSource weights = {};  ///< valid until restore()
  checkpoint::RunState state = {};      ///< from the checkpoint
  checkpoint::RunIdentity run = {};     ///< of the run that starts now
  std::vector<std::string> lines = {};  ///< messages for people
  std::vector<metrics::Event> events = {};

  bool resumed() const { return !checkpoint.empty(); }
  /// Restores the rest of a checkpoint's state: optimizer, loss scale, recent losses. Collective; call once, before the
  /// first step. Closes the files, which occupy space while they are open. Throws Error (kCheckpoint,
  /// optimizer-differs).
  void restore(Trainer& trainer);

  std::unique_ptr<SavedRun> saved = {};  ///< null for a new run, and after restore()
  std::shared_ptr<comm::Communicator> ranks = {};
};

/// Chooses and opens the start point; call before anything is built. Collective. `copies`: the run's copies in memory,
/// or null; all but the chosen one are removed. `rollback`: a checkpoint to go back to, instead of what the recipe
/// says; or empty. Throws Error: those of choose_start and of SavedRun::open; kBadInput for pretrained weights that do
/// not fit the model.
StartPoint find_start(const Setup& setup, checkpoint::MemoryCopies* copies, const std::filesystem::path& rollback = {});

}  // namespace automodel::train
