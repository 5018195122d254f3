// Chooses the weights and the step that a run starts from, given what the recipe asks for and what exists. Happens
// before anything is opened or built.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/format/manifest.h"

namespace automodel::train {

enum class StartKind {
  kSeed,        ///< a new run, weights drawn from the seed
  kPretrained,  ///< a new run, weights read from a model's folder
  kCheckpoint,  ///< resumes from a checkpoint on disk
  kMemoryCopy,  ///< resumes from a copy in host memory
};

std::string_view name_of(StartKind kind);

/// What the recipe asks for.
struct StartWish {
  std::filesystem::path root = {};  ///< checkpoint.checkpoint_dir
  bool resumes = true;              ///< resume from the newest checkpoint of `root`, if there is one
  bool pretrained = false;          ///< a new run reads its weights from a folder
  std::optional<std::string> restore_from = {};
  std::vector<std::filesystem::path> named = {};  ///< folders that restore_from may mean, in order of preference
  std::filesystem::path rollback = {};  ///< a checkpoint to roll back to, which overrides everything else; or empty
  checkpoint::RunIdentity run = {};
};

/// What exists on disk and in memory. Collective: every result is the same on all ranks.
class StartPlaces {
 public:
  virtual ~StartPlaces() = default;
  /// The newest complete checkpoint in the folder; empty if there is none.
  virtual std::filesystem::path newest(const std::filesystem::path& folder) = 0;
  /// Whether the folder is a complete checkpoint itself.
  virtual bool complete(const std::filesystem::path& folder) = 0;
  /// A folder with the name of a checkpoint that has no manifest, the newest; empty if there is none.
  virtual std::filesystem::path incomplete(const std::filesystem::path& root) = 0;
  /// Target of the link LATEST in the folder, whether complete or not; empty if there is no link.
  virtual std::filesystem::path latest(const std::filesystem::path& root) = 0;
  /// A verified copy of this run in memory, from a step after `step`; empty if there is none.
  virtual std::filesystem::path newer_copy(std::int64_t step) = 0;
  /// Reads every byte of a checkpoint. Throws Error (kCheckpoint) if it is damaged.
  virtual void verify(const std::filesystem::path& checkpoint) = 0;
  /// Identity of the run that saved a verified checkpoint; empty if its manifest does not say.
  virtual std::optional<checkpoint::RunIdentity> saved_by(const std::filesystem::path& checkpoint) = 0;
};

struct StartChoice {
  StartKind kind = StartKind::kSeed;
  std::filesystem::path checkpoint = {};      ///< verified; empty for a new run
  std::vector<std::string> differences = {};  ///< from the run that saved the checkpoint, if that was named
                                              ///< explicitly
};

/// Order of preference: `rollback`; what restore_from names; a copy in memory that is newer than every checkpoint; the
/// newest checkpoint; a model's folder; the seed. A checkpoint of another run is accepted only if restore_from names
/// it, because every recipe saves to `checkpoints/` by default. Throws Error: kCheckpoint (checkpoint-missing, and
/// those of verify), kBadInput (checkpoint-of-another-run).
StartChoice choose_start(const StartWish& wish, StartPlaces& places);

}  // namespace automodel::train
