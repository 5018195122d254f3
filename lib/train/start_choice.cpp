#include "train/start_choice.h"

#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "checkpoint/format/root_folder.h"

namespace automodel::train {
namespace {

namespace fs = std::filesystem;

fs::path named_checkpoint(const StartWish& wish, StartPlaces& places) {
  const auto& name = *wish.restore_from;
  if (name == checkpoint::kLatest) {
    if (auto linked = places.latest(wish.root); !linked.empty()) return linked;
    if (auto newest = places.newest(wish.root); !newest.empty()) return newest;
    throw Error(Diagnostic{"checkpoint-missing"}
                    .says("'{}' has no checkpoint to restore LATEST from", wish.root.native())
                    .hint("leave restore_from out to start anew where there is none")
                    .of("checkpoint.restore_from"));
  }
  for (const auto& folder : wish.named) {
    if (places.complete(folder)) return folder;
    if (auto newest = places.newest(folder); !newest.empty()) return newest;
  }
  throw Error(Diagnostic{"checkpoint-missing"}
                  .says("'{}' is not a complete checkpoint (it has no {})", name, checkpoint::kManifestName)
                  .hint("give a folder like epoch_0_step_99, LATEST, or nothing for the newest one")
                  .of("checkpoint.restore_from"));
}

std::int64_t step_of(const fs::path& checkpoint) {
  const auto name = checkpoint::parse_checkpoint_name(checkpoint.filename().native());
  return name ? name->step : -1;
}

/// Determines kind and folder, without opening anything.
StartChoice found(const StartWish& wish, StartPlaces& places) {
  if (!wish.rollback.empty()) return {.kind = StartKind::kCheckpoint, .checkpoint = wish.rollback};
  if (wish.restore_from) return {.kind = StartKind::kCheckpoint, .checkpoint = named_checkpoint(wish, places)};
  if (wish.resumes) {
    const auto newest = places.newest(wish.root);
    if (auto copy = places.newer_copy(step_of(newest)); !copy.empty())
      return {.kind = StartKind::kMemoryCopy, .checkpoint = std::move(copy)};
    if (!newest.empty()) return {.kind = StartKind::kCheckpoint, .checkpoint = newest};
    // Saving and deleting rename whole folders, so no interruption of this program leaves one like this.
    if (const auto broken = places.incomplete(wish.root); !broken.empty())
      throw Error(Diagnostic{"checkpoint-damaged"}
                      .says("'{}' has no {}, and no complete checkpoint is beside it", broken.native(),
                            checkpoint::kManifestName)
                      .hint("restore the file; or remove the folder to start a new run")
                      .of("checkpoint.checkpoint_dir"));
  }
  return {.kind = wish.pretrained ? StartKind::kPretrained : StartKind::kSeed};
}

}  // namespace

std::string_view name_of(StartKind kind) {
  static constexpr std::array<std::string_view, 4> kNames = {"seed", "pretrained", "checkpoint", "memory copy"};
  return kNames[static_cast<std::size_t>(kind)];
}

StartChoice choose_start(const StartWish& wish, StartPlaces& places) {
  auto out = found(wish, places);
  if (out.checkpoint.empty()) return out;
  // A copy in memory was verified when it was found.
  if (out.kind == StartKind::kCheckpoint) places.verify(out.checkpoint);
  const auto saver = places.saved_by(out.checkpoint);
  if (!saver) return out;
  out.differences = checkpoint::differences(wish.run, *saver);
  if (!out.differences.empty() && !wish.restore_from)
    throw Error(
        Diagnostic{"checkpoint-of-another-run"}
            .says("'{}' was saved by another run: {}", out.checkpoint.native(), fmt::join(out.differences, "; "))
            .hint("another checkpoint.checkpoint_dir keeps runs apart; '--checkpoint.restore_from LATEST' goes on "
                  "from it all the same; '--checkpoint.resume never' begins a new run")
            .of("checkpoint.checkpoint_dir"));
  return out;
}

}  // namespace automodel::train
