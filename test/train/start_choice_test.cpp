// The choice of where a run starts from, with fake folders and in-memory copies.
#include "train/start_choice.h"

#include <map>
#include <set>

#include <catch2/catch.hpp>

#include "base/error.h"

namespace automodel::train {
namespace {

namespace fs = std::filesystem;

const checkpoint::RunIdentity kThis = {{"llama", "a"}, {"rows.jsonl", "b"}, {"full", "c"}};
const checkpoint::RunIdentity kOther = {{"gpt2", "x"}, {"rows.jsonl", "b"}, {"full", "c"}};
const fs::path kRoot = "run", kOld = "run/epoch_0_step_3", kNew = "run/epoch_0_step_7";

class FakePlaces : public StartPlaces {
 public:
  std::map<fs::path, checkpoint::RunIdentity> complete_ones = {};  ///< in order of their steps
  fs::path broken = {};
  std::map<fs::path, fs::path> links = {};
  std::optional<std::int64_t> copy = {};  ///< its step
  std::set<fs::path> damaged = {};
  std::vector<fs::path> verified = {};
  std::optional<std::int64_t> asked_behind = {};

  fs::path newest(const fs::path& folder) override {
    fs::path out;
    for (const auto& [path, run] : complete_ones)
      if (path.parent_path() == folder) out = path;
    return out;
  }
  bool complete(const fs::path& folder) override { return complete_ones.contains(folder); }
  fs::path incomplete(const fs::path&) override { return broken; }
  fs::path latest(const fs::path& root) override { return links.contains(root) ? links.at(root) : fs::path(); }
  fs::path newer_copy(std::int64_t step) override {
    asked_behind = step;
    return copy && *copy > step ? fs::path("memory/epoch_0_step_" + std::to_string(*copy)) : fs::path();
  }
  void verify(const fs::path& path) override {
    verified.push_back(path);
    if (damaged.contains(path)) throw Error(ExitCode::kCheckpoint, {"checkpoint-damaged", "torn", "", {}, ""});
  }
  std::optional<checkpoint::RunIdentity> saved_by(const fs::path& path) override {
    return complete_ones.contains(path) ? std::optional(complete_ones.at(path)) : std::nullopt;
  }
};

StartWish wish() {
  return {.root = kRoot, .run = kThis};
}

/// The id of the refusal.
std::string refusal(const StartWish& wish, FakePlaces places, ExitCode code) {
  try {
    choose_start(wish, places);
  } catch (const Error& error) {
    CHECK(error.code() == code);
    return error.problems().front().id;
  }
  return "none";
}

}  // namespace

TEST_CASE("a run does not begin anew beside a checkpoint whose manifest is gone", "[train]") {
  FakePlaces places;
  places.broken = kNew;
  auto wanted = wish();
  CHECK(refusal(wanted, places, ExitCode::kCheckpoint) == "checkpoint-damaged");
  wanted.resumes = false;
  CHECK(choose_start(wanted, places).kind == StartKind::kSeed);
  wanted.resumes = true;
  places.complete_ones = {{kOld, kThis}};
  CHECK(choose_start(wanted, places).checkpoint == kOld);
}

TEST_CASE("a new run starts from the seed or from a pretrained model", "[train]") {
  FakePlaces places;
  auto wanted = wish();
  CHECK(choose_start(wanted, places).kind == StartKind::kSeed);
  wanted.pretrained = true;
  const auto choice = choose_start(wanted, places);
  CHECK(choice.kind == StartKind::kPretrained);
  CHECK(choice.checkpoint.empty());
  CHECK(places.verified.empty());
}

TEST_CASE("the newest checkpoint takes precedence over a pretrained model and is verified", "[train]") {
  FakePlaces places;
  places.complete_ones = {{kOld, kThis}, {kNew, kThis}};
  auto wanted = wish();
  wanted.pretrained = true;
  const auto choice = choose_start(wanted, places);
  CHECK(choice.kind == StartKind::kCheckpoint);
  CHECK(choice.checkpoint == kNew);
  CHECK(choice.differences.empty());
  CHECK(places.verified == std::vector{kNew});
  wanted.resumes = false;
  CHECK(choose_start(wanted, places).kind == StartKind::kPretrained);
}

TEST_CASE("an in-memory copy is used if it is newer than every checkpoint", "[train]") {
  FakePlaces places;
  places.copy = 5;
  CHECK(choose_start(wish(), places).kind == StartKind::kMemoryCopy);
  CHECK(places.asked_behind == -1);
  places.complete_ones = {{kOld, kThis}};
  const auto choice = choose_start(wish(), places);
  CHECK(choice.kind == StartKind::kMemoryCopy);
  CHECK(choice.checkpoint == "memory/epoch_0_step_5");
  CHECK(places.asked_behind == 3);
  CHECK(places.verified.empty());  // it was verified when it was found
  places.complete_ones[kNew] = kThis;
  CHECK(choose_start(wish(), places).checkpoint == kNew);
}

TEST_CASE("in-memory copies are ignored if the recipe names a checkpoint or starts from scratch", "[train]") {
  FakePlaces places;
  places.copy = 5;
  places.complete_ones = {{kOld, kThis}};
  auto wanted = wish();
  wanted.resumes = false;
  CHECK(choose_start(wanted, places).kind == StartKind::kSeed);
  wanted.restore_from = "LATEST";
  CHECK(choose_start(wanted, places).checkpoint == kOld);
  wanted.rollback = kOld;
  CHECK(choose_start(wanted, places).kind == StartKind::kCheckpoint);
  CHECK(!places.asked_behind);
}

TEST_CASE("a damaged checkpoint ends the run, and no older one is used instead", "[train]") {
  FakePlaces places;
  places.complete_ones = {{kOld, kThis}, {kNew, kThis}};
  places.damaged = {kNew};
  CHECK(refusal(wish(), places, ExitCode::kCheckpoint) == "checkpoint-damaged");
}

TEST_CASE("another run's checkpoint is used only with restore_from, and the differences are listed", "[train]") {
  FakePlaces places;
  places.complete_ones = {{kNew, kOther}};
  auto wanted = wish();
  CHECK(refusal(wanted, places, ExitCode::kBadInput) == "checkpoint-of-another-run");
  wanted.rollback = kNew;
  CHECK(refusal(wanted, places, ExitCode::kBadInput) == "checkpoint-of-another-run");
  wanted.rollback.clear();
  wanted.restore_from = "LATEST";
  const auto choice = choose_start(wanted, places);
  CHECK(choice.checkpoint == kNew);
  REQUIRE(choice.differences.size() == 1);
  CHECK(choice.differences.front() == "the model is llama, the checkpoint's is gpt2");
}

TEST_CASE("restore_from accepts a checkpoint, a folder of checkpoints, or LATEST", "[train]") {
  FakePlaces places;
  places.complete_ones = {{"elsewhere/epoch_1_step_9", kThis}, {kOld, kThis}, {kNew, kThis}};
  auto wanted = wish();
  wanted.restore_from = "epoch_0_step_3";
  wanted.named = {kOld};
  CHECK(choose_start(wanted, places).checkpoint == kOld);
  wanted.restore_from = "elsewhere";
  wanted.named = {"run/elsewhere", "elsewhere"};
  CHECK(choose_start(wanted, places).checkpoint == "elsewhere/epoch_1_step_9");
  wanted.restore_from = "nowhere";
  wanted.named = {"run/nowhere"};
  CHECK(refusal(wanted, places, ExitCode::kCheckpoint) == "checkpoint-missing");
  wanted.restore_from = "LATEST";
  CHECK(choose_start(wanted, places).checkpoint == kNew);
  places.links = {{kRoot, kOld}};
  CHECK(choose_start(wanted, places).checkpoint == kOld);
  CHECK(refusal(wanted, {}, ExitCode::kCheckpoint) == "checkpoint-missing");
}

TEST_CASE("a rollback restores the named checkpoint, whatever else exists", "[train]") {
  FakePlaces places;
  places.complete_ones = {{kOld, kThis}, {kNew, kThis}};
  places.copy = 9;
  auto wanted = wish();
  wanted.resumes = false;
  wanted.restore_from = "LATEST";
  wanted.rollback = kOld;
  CHECK(choose_start(wanted, places).checkpoint == kOld);
  CHECK(places.verified == std::vector{kOld});
}

}  // namespace automodel::train
