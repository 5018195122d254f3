// Runs that save and resume, for tests.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/format/run_state.h"
#include "comm/world.h"
#include "temporary_folder.h"

namespace automodel::test {

namespace fs = std::filesystem;

/// Trains from the state in the run's folder up to step `end`; saves after every step or only after the last. Returns
/// the losses.
std::vector<double> train_to(comm::World& world, const std::string& text, std::int64_t end, bool save_all = false);

/// Checksums of the tensors of a folder's newest checkpoint.
std::string saved_tensors(const fs::path& root);

/// state.json of a folder's newest checkpoint; fails without one.
checkpoint::RunState saved_state(const fs::path& root);

bool near(const std::vector<double>& a, const std::vector<double>& b, double tolerance);

/// A folder shared by all ranks, created by rank 0 and removed after the last rank is done.
class SharedFolder {
 public:
  explicit SharedFolder(comm::World& world);
  fs::path operator/(const std::string& name) const { return path_ / name; }
  void copy(const std::string& from, const std::string& to) const;

 private:
  comm::World& world_;
  std::unique_ptr<TemporaryFolder> folder_;
  fs::path path_;
};

}  // namespace automodel::test
