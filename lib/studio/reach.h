// Which files a request may make the program read.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "config/node.h"

namespace automodel::studio {

/// What the command line names, and what lies below it. Symbolic links count as the place that they lead to.
class Reach {
 public:
  /// Names that do not exist are passed over.
  explicit Reach(const std::vector<std::string>& named);
  bool holds(const std::filesystem::path& path) const;
  /// The first text in an override's tree that may name a file which is not held: an absolute path, one through a home
  /// or parent folder, an environment variable, a name or pattern of files beside `recipe` or in the working directory,
  /// also without its ".idx" or ".bin". Keys are taken as names of files only where they are no plain words. Empty if
  /// there is none.
  std::string stray_text(const config::Node& node, const std::filesystem::path& recipe) const;

 private:
  bool strays(const std::filesystem::path& written, const std::filesystem::path& base) const;
  std::vector<std::filesystem::path> roots_;
};

}  // namespace automodel::studio
