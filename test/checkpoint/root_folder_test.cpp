// The folder of checkpoints: which are complete, how one is committed, which are deleted.
#include "checkpoint/format/root_folder.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <sys/resource.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "checkpoint/format/file.h"
#include "checkpoint/format/folder_layout.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/format/run_state.h"
#include "checkpoint/format/shard_index.h"
#include "temporary_folder.h"

using namespace automodel;
using namespace automodel::checkpoint;
using automodel::test::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

void add(const TemporaryFolder& root, const std::string& name, bool complete = true) {
  root.write(name + "/state.json", name);
  if (complete) root.write(name + "/" + kManifestName, "{}");
}

std::string names(const fs::path& root) {
  std::string out;
  for (const auto& each : list_checkpoints(root)) out += to_text(each.name) + (each.complete ? " " : "? ");
  return out;
}

}  // namespace

TEST_CASE("Only folders with exact checkpoint names are listed, ordered by step") {
  CHECK(parse_checkpoint_name("epoch_1_step_20") == CheckpointName{1, 20});
  for (const char* wrong : {"epoch_1_step_", "epoch_1_step_2x", "epoch_-1_step_2", "epoch_1_step_02", "step_3", "",
                            "epoch_1_step_99999999999999999999", ".epoch_1_step_2.partial"})
    CHECK_FALSE(parse_checkpoint_name(wrong));
  const TemporaryFolder root;
  add(root, "epoch_0_step_9");
  add(root, "epoch_0_step_10");
  add(root, "epoch_0_step_11", false);
  add(root, ".epoch_0_step_12.partial");
  root.write("epoch_0_step_13", "a file");
  CHECK(names(root.path()) == "epoch_0_step_9 epoch_0_step_10 epoch_0_step_11? ");
  CHECK(newest_checkpoint(root.path()).filename() == "epoch_0_step_10");
  CHECK(newest_checkpoint(root.path() / "none").empty());
}

TEST_CASE("A folder that cannot be listed is an error, not an empty folder") {
  const TemporaryFolder root;
  add(root, "epoch_0_step_9");
  CHECK(entries_of(root.path()).size() == 1);
  CHECK(entries_of(root.path() / "none").empty());
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  const rlimit none{0, files.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  CHECK_THROWS_AS(entries_of(root.path()), Error);
  CHECK_THROWS_AS(newest_checkpoint(root.path()), Error);
  setrlimit(RLIMIT_NOFILE, &files);
}

TEST_CASE("LATEST decides which checkpoint is newest if it points at a complete one") {
  const TemporaryFolder root;
  add(root, "epoch_0_step_4");
  add(root, "epoch_0_step_9");
  set_link(root.path(), kLatest, "epoch_0_step_4");
  CHECK(newest_checkpoint(root.path()).filename() == "epoch_0_step_4");
  CHECK(fs::exists(root.path() / "LATEST" / kManifestName));
  set_link(root.path(), kLatest, "epoch_0_step_5");
  CHECK(newest_checkpoint(root.path()).filename() == "epoch_0_step_9");
}

TEST_CASE("A commit gives a checkpoint its name, replaces an older one and leaves nothing behind") {
  const TemporaryFolder root;
  add(root, ".epoch_0_step_3.partial");
  commit(root.path(), "epoch_0_step_3");
  CHECK(names(root.path()) == "epoch_0_step_3 ");
  root.write(".epoch_0_step_3.partial/state.json", "second");
  commit(root.path(), "epoch_0_step_3");
  CHECK(root.read("epoch_0_step_3/state.json") == "second");
  CHECK_FALSE(fs::exists(partial_path(root.path(), "epoch_0_step_3")));
  CHECK_THROWS_AS(commit(root.path(), "epoch_0_step_4"), Error);
}

TEST_CASE("Only the leftovers of killed runs are removed") {
  const TemporaryFolder root;
  add(root, ".epoch_0_step_3.partial", false);
  add(root, ".epoch_0_step_2.deleted");
  add(root, "epoch_0_step_1");
  root.write(".notes.partial/x", "mine");
  remove_leftovers(root.path());
  CHECK(names(root.path()) == "epoch_0_step_1 ");
  CHECK_FALSE(fs::exists(root.path() / ".epoch_0_step_3.partial"));
  CHECK_FALSE(fs::exists(root.path() / ".epoch_0_step_2.deleted"));
  CHECK(fs::exists(root.path() / ".notes.partial"));
}

TEST_CASE("Retention deletes the oldest checkpoints, but never a linked one or the last complete one") {
  const TemporaryFolder root;
  for (int step = 1; step <= 6; ++step) add(root, "epoch_0_step_" + std::to_string(step), step != 6);
  set_link(root.path(), kLowestLoss, "epoch_0_step_1");
  set_link(root.path(), kLatest, "epoch_0_step_5");
  CHECK(retain(root.path(), 2) == std::vector<std::string>{"epoch_0_step_2", "epoch_0_step_3"});
  CHECK(names(root.path()) == "epoch_0_step_1 epoch_0_step_4 epoch_0_step_5 epoch_0_step_6? ");
  set_link(root.path(), kLatest, "epoch_0_step_4");  // a run resumed from an earlier checkpoint
  CHECK(retain(root.path(), 1) == std::vector<std::string>{"epoch_0_step_5"});
  CHECK(retain(root.path(), 1).empty());
  CHECK(names(root.path()) == "epoch_0_step_1 epoch_0_step_4 epoch_0_step_6? ");
  fs::remove(root.path() / kLatest);
  CHECK(retain(root.path(), 0).empty());
}

TEST_CASE("Other content under the same name is another run") {
  const RunIdentity here{{"llama", "1"}, {"rows.jsonl", "2"}, {"full", "3"}};
  CHECK(differences(here, here).empty());
  auto there = here;
  there.data.digest = "4";
  REQUIRE(differences(here, there).size() == 1);
  CHECK(differences(here, there)[0].find("is rows.jsonl, as in the checkpoint, but its content differs") !=
        std::string::npos);
  there = here;
  there.model = {"gpt2", "5"};
  REQUIRE(differences(here, there).size() == 1);
  CHECK(differences(here, there)[0].find("is llama, the checkpoint's is gpt2") != std::string::npos);
}

TEST_CASE("A manifest detects a file that was truncated, changed or deleted") {
  const TemporaryFolder root;
  root.write("a/model/x.bin", "hello world");
  root.write("a/state.json", "{}");
  const Manifest manifest{{{"model/x.bin", 11, crc32c("hello world")}, {"state.json", 2, crc32c("{}")}}};
  root.write("a/manifest.json", to_json(manifest));
  Diagnostics problems;
  const auto read = read_manifest(root.path() / "a", problems);
  REQUIRE(read);
  CHECK(*read == manifest);
  CHECK(read->bytes() == 13);
  const auto check = [&] {
    Diagnostics found;
    check_sizes(root.path() / "a", manifest, found);
    if (found.empty())
      for (const auto& entry : manifest.files) check_content(root.path() / "a", entry, found);
    return found.empty() ? std::string() : std::string(found.front().id) + " " + found.front().message;
  };
  CHECK(check().empty());
  root.write("a/model/x.bin", "hello worle");
  CHECK(check().find("checkpoint-damaged '" + (root.path() / "a/model/x.bin").native() + "' does not have the bytes") ==
        0);
  root.write("a/model/x.bin", "hello worl");
  CHECK(check().find("has 10 bytes and should have 11") != std::string::npos);
  root.write("a/model/x.bin", "hello worlds");
  CHECK(check().find("has 12 bytes and should have 11") != std::string::npos);
  fs::remove(root.path() / "a/model/x.bin");
  CHECK(check().find("is gone") != std::string::npos);
}

TEST_CASE("Malformed manifests and run states are refused") {
  Diagnostics problems;
  for (const char* text : {"", "[]", "{}", R"({"files":{"../x":{"size":1,"crc32c":"0x00000000"}}})",
                           R"({"files":{"x":{"size":-1,"crc32c":"0x00000000"}}})", R"({"files":{"x":{"size":1}}})"})
    CHECK_FALSE(parse_manifest(text, "m", problems));
  for (const auto& problem : problems) CHECK(problem.id == "manifest-syntax");
  for (const char* text : {"", "[]", "{}", R"({"format": 2})"}) CHECK_FALSE(parse_run_state(text, "s", problems));
  CHECK(problems.size() == 10);
  CHECK(problems.back().id == "state-syntax");
}

TEST_CASE("Numbers of a run state out of range are refused") {
  const RunState state{.step = 7,
                       .optimizer = "adamw",
                       .global_batch_size = 8,
                       .lr_schedule = "{}",
                       .best = "epoch_0_step_3",
                       .resolved = "{}",
                       .ranks = 4};
  const auto problem = [&](const char* key, const nlohmann::json& value) {
    auto json = nlohmann::json::parse(to_json(state));
    json[key] = value;
    Diagnostics problems;
    return parse_run_state(json.dump(), "s", problems) ? std::string() : problems.at(0).message;
  };
  CHECK(problem("step", 8).empty());
  const auto wrong = [](const std::string& key) {
    return "'s' is not the state of a run: '" + key + "' is missing, of the wrong type or out of range";
  };
  for (const char* key : {"step", "epoch", "samples_consumed", "optimizer_steps", "global_batch_size", "ranks"})
    for (const nlohmann::json& value :
         {nlohmann::json(-2), nlohmann::json(std::int64_t{1} << 62), nlohmann::json(9223372036854775807LL),
          nlohmann::json(18446744073709551615ULL), nlohmann::json(1.5)})
      CHECK(problem(key, value) == wrong(key));
  CHECK(problem("step", -1).empty());              // an imported run that has not begun
  CHECK(problem("global_batch_size", 0).empty());  // an imported run without a recipe
  CHECK(problem("ranks", 0) == wrong("ranks"));
  CHECK(problem("ranks", std::int64_t{1} << 40).find("'ranks' is out of range") != std::string::npos);
  CHECK(problem("recent_losses", "x") == wrong("recent_losses"));
  CHECK(problem("validations", nlohmann::json{{"lowest", 1}, {"not_lower", -1}}) == wrong("not_lower"));
  CHECK(problem("best", "../../etc").find("not the name of a checkpoint") != std::string::npos);
}

TEST_CASE("A run state is read back as it was saved") {
  const RunState state{.step = 7,
                       .epoch = 1,
                       .samples = 64,
                       .optimizer_steps = 8,
                       .optimizer = "adamw",
                       .seed = 18446744073709551615U,
                       .global_batch_size = 8,
                       .lr_schedule = R"({"max_lr":0.1})",
                       .loss = 0.1 + 0.2,
                       .best = "epoch_0_step_3",
                       .validations = {.lowest = 0.25, .not_lower = 3},
                       .recipe = "a: \"b\"\n",
                       .version = "1",
                       .ranks = 4};
  Diagnostics problems;
  const auto read = parse_run_state(to_json(state), "s", problems);
  INFO(to_text(problems));
  REQUIRE(read);
  CHECK(read->seed == state.seed);
  CHECK(read->loss == state.loss);
  CHECK_FALSE(read->val_loss);
  CHECK(read->lr_schedule == state.lr_schedule);
  CHECK(read->validations == state.validations);
  CHECK(read->recipe == state.recipe);
  CHECK(to_json(*read) == to_json(state));
}

TEST_CASE("Tensors are split over files up to the size limit and found through the index") {
  std::vector<TensorInfo> tensors;
  for (int i = 0; i < 5; ++i) tensors.push_back({"t" + std::to_string(i), ElementType::kF32, {i == 3 ? 100 : 10}});
  const auto one = lay_out_folder(tensors, "model", 1 << 20);
  CHECK(one.files.size() == 1);
  CHECK(one.files[0].name == "model.safetensors");
  CHECK(one.index_name.empty());
  const auto many = lay_out_folder(tensors, "model", 80);
  REQUIRE(many.files.size() == 4);
  CHECK(many.files[0].name == "model-00001-of-00004.safetensors");
  CHECK(many.positions.at("t3").file == 2);
  CHECK(many.positions.at("t3").offset == many.files[2].layout.head.size());
  Diagnostics problems;
  const auto index = parse_shard_index(many.index, "i", problems);
  REQUIRE(index);
  CHECK(index->files.at("t4") == "model-00004-of-00004.safetensors");
  CHECK(index->total_size == 140 * 4);
}
