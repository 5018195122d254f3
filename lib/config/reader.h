// Fills sections from a tree and collects all problems, the location of every key, and the keys that are accepted but
// have no effect.
#pragma once

#include <string>
#include <vector>

#include "base/problems.h"
#include "config/node.h"
#include "config/types.h"

namespace automodel::config {

/// A known key of a recipe that has no effect.
struct IgnoredKey {
  std::string key;
  std::string reason;
  SourceLocation where;
};

using automodel::join_path;
using automodel::Origins;

class Reader {
 public:
  Reader(Diagnostics& problems, Origins& origins, std::vector<IgnoredKey>& ignored,
         std::vector<IgnoredKey>& unsupported)
      : problems_(problems), origins_(origins), ignored_(ignored), unsupported_(unsupported) {}

  template <class T>
  void read(const Node& node, const std::string& path, T& out) {
    type_of<T>().read(*this, node, path, &out);
  }

  Diagnostic& refuse(ProblemId id, const std::string& path, const SourceLocation& where) {
    return problems_.add(id, path).at(where);
  }
  /// "`path` must be TYPE, got 'text'".
  void mismatch(const Node& node, const std::string& path, std::string_view type_name, std::string help = "");
  void note_ignored(const std::string& path, std::string_view reason, const SourceLocation& where);
  /// Notes a key that planning takes into account but that prevents training.
  void note_unsupported(const std::string& path, std::string reason, const SourceLocation& where);
  void note_origin(const std::string& path, const Node& node, const SourceLocation& where);
  std::size_t problem_count() const { return problems_.size(); }

 private:
  Diagnostics& problems_;
  Origins& origins_;
  std::vector<IgnoredKey>& ignored_;
  std::vector<IgnoredKey>& unsupported_;
};

}  // namespace automodel::config
