// Runs that save and resume, for tests.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "comm/world.h"
#include "temporary_folder.h"

namespace automodel::test {

namespace fs = std::filesystem;

/// A run from where its folder is to step `end`; saves after every step, or after the last alone. Returns the losses.
std::vector<double> train_to(comm::World& world, const std::string& text, std::int64_t end, bool save_all = false);

/// Checksums of the tensors of a folder's newest checkpoint.
std::string saved_tensors(const fs::path& root);

bool near(const std::vector<double>& a, const std::vector<double>& b, double tolerance);

/// A folder that all ranks know, made by rank 0, removed when the last has left.
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
