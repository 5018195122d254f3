// Choosing an in-memory copy of a checkpoint on two hosts, which here are two processes with a folder each.
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/format/folder_layout.h"
#include "checkpoint/memory_copies.h"
#include "checkpoint/memory_mark.h"
#include "rank_suite.h"
#include "temporary_folder.h"

namespace {

namespace fs = std::filesystem;
using namespace automodel;
using checkpoint::MemoryCopies;

const checkpoint::RunIdentity kRun = {
    .model = {"llama", "1"}, .data = {"mock", "2"}, .method = {"all parameters", "3"}};
constexpr const char* kName = "epoch_0_step_9";
constexpr std::int64_t kElements = 1000;  // per rank

/// Saves a copy to which each rank contributes its own elements of one tensor.
void save(MemoryCopies& copies, int rank, int ranks) {
  const std::vector<float> mine(kElements, static_cast<float>(rank));
  const auto layout = checkpoint::lay_out_folder({{"w", checkpoint::ElementType::kF32, {ranks * kElements}}}, "model",
                                                 std::uint64_t{1} << 30U);
  copies.save({.name = kName,
               .parts = {{.folder = "model",
                          .layout = layout,
                          .pieces = {{"w", rank * kElements, kElements, checkpoint::ElementType::kF32,
                                      reinterpret_cast<const char*>(mine.data())}}}},
               .run = kRun},
              true);
  RANK_CHECK(copies.finish().has_value());
}

struct TwoHosts {
  explicit TwoHosts(comm::World& world)
      : run(world.broadcast_text(world.rank() == 0 ? folder.path().native() : "")),
        memory(folder.write("memory/kept", "").parent_path()) {
    setenv("AUTOMODEL_MEMORY_DIR", memory.c_str(), 1);
  }
  test::TemporaryFolder folder;
  fs::path run, memory;
};

void completes_a_lost_copy(comm::World& world) {
  const TwoHosts hosts(world);
  MemoryCopies copies(world, hosts.run);
  RANK_EQUAL(copies.hosts().count(), 2);
  save(copies, world.rank(), world.size());
  if (world.rank() == 1) fs::remove_all(copies.root() / kName);
  std::string said;
  const auto found = copies.find(kRun, -1, [&](const std::string& text) { said += text; });
  RANK_EQUAL(said, "");
  RANK_CHECK(found && fs::exists(*found / "parts" / "rank_0.safetensors"));
}

/// Host 1 lost its copy. On host 0 the record of a part is read and verified, and then vanishes: it is a link into what
/// is left of host 1's copy, which host 1 removes before it receives the parts.
void all_ranks_agree_on_a_vanished_record(comm::World& world) {
  const TwoHosts hosts(world);
  MemoryCopies copies(world, hosts.run);
  save(copies, world.rank(), world.size());
  const auto copy = copies.root() / kName;
  const auto others = world.broadcast_text(world.rank() == 1 ? copy.native() : "", 1);
  if (world.rank() == 1) fs::remove(copy / checkpoint::kMarkName);
  if (world.rank() == 0) {
    const auto record = fs::path("parts") / "rank_0.safetensors";
    fs::remove(copy / record);
    fs::create_symlink(fs::path(others) / record, copy / record);
  }
  std::string said;
  const auto found = copies.find(kRun, -1, [&](const std::string& text) { said += text; });
  RANK_CHECK(!found);
  RANK_CHECK(said.starts_with("the copy epoch_0_step_9 in memory cannot be used: "));
  RANK_EQUAL(world.broadcast_text(said, 0), said);
  // The ranks' messages still match.
  RANK_CHECK(!copies.find(kRun, 9, [](const std::string&) {}));
}

const std::vector<test::RankCase> kCases = {
    {"a host that lost its copy receives the parts", completes_a_lost_copy, 2, 2},
    {"all ranks agree when a record vanishes after verification", all_ranks_agree_on_a_vanished_record, 2, 2},
};

}  // namespace

int main(int argc, char** argv) {
  return automodel::test::run_rank_suite(argc, argv, kCases);
}
