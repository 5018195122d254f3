// Fills sections from a tree and collects all problems, the location of every key, and the keys that are accepted but
// have no effect.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "config/node.h"
#include "config/types.h"

namespace automodel::config {

/// A known key of a recipe that has no effect.
struct IgnoredKey {
  std::string key;
  std::string reason;
  SourceLocation where;
};

/// Where each recipe key was set, by dotted path.
class Origins {
 public:
  struct Origin {
    SourceLocation where;
    std::string written;  ///< of a scalar, before environment substitution
  };
  void add(const std::string& path, Origin origin) { origins_[path] = std::move(origin); }
  const Origin* find(const std::string& path) const;
  /// The location of `path`, or of its nearest ancestor that was given, or just the file.
  SourceLocation nearest(std::string path) const;
  void set_file(std::string file) { file_ = std::move(file); }
  const std::string& file() const { return file_; }

 private:
  std::string file_ = {};
  std::map<std::string, Origin> origins_ = {};
};

class Reader {
 public:
  Reader(Diagnostics& problems, Origins& origins, std::vector<IgnoredKey>& ignored,
         std::vector<IgnoredKey>& unsupported)
      : problems_(problems), origins_(origins), ignored_(ignored), unsupported_(unsupported) {}

  template <class T>
  void read(const Node& node, const std::string& path, T& out) {
    type_of<T>().read(*this, node, path, &out);
  }

  void report(std::string id, const SourceLocation& where, const std::string& path, std::string message,
              std::string help);
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

/// "a.b" and "c" give "a.b.c"; an empty path gives "c".
std::string join_path(const std::string& path, std::string_view key);

}  // namespace automodel::config
