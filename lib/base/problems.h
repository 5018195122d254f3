// Collects the problems of one recipe, each with the place where its key is written.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "base/diagnostic.h"

namespace automodel {

/// Where each recipe key was set, by dotted path.
class Origins {
 public:
  struct Origin {
    SourceLocation where;
    std::string written;  ///< of a scalar, before environment substitution
  };
  void add(const std::string& path, Origin origin) { origins_[path] = std::move(origin); }
  const Origin* find(const std::string& path) const;
  /// The recipe gives `path` only under another section's name: problems of `path` are told under that.
  void give_as(const std::string& path, std::string other) { other_names_[path] = std::move(other); }
  /// The key as the recipe has it.
  const std::string& as_given(const std::string& path) const;
  /// The location of `path`, or of its nearest ancestor that was given, or just the file.
  SourceLocation nearest(std::string path) const;
  void set_file(std::string file) { file_ = std::move(file); }
  const std::string& file() const { return file_; }

 private:
  std::string file_ = {};
  std::map<std::string, Origin> origins_ = {};
  std::map<std::string, std::string> other_names_ = {};
};

/// "a.b" and "c" give "a.b.c"; an empty path gives "c".
std::string join_path(const std::string& path, std::string_view key);

/// Problems and warnings of one recipe. Keys are dotted recipe keys.
class Problems {
 public:
  explicit Problems(const Origins& origins) : origins_(&origins) {}

  /// problems.refuse("indivisible", "distributed.tp_size").says("{} heads", heads).hint("...").
  Diagnostic& refuse(ProblemId id, const std::string& key) { return add(refused_, id, origins_->as_given(key)); }
  Diagnostic& warn(ProblemId id, const std::string& key) { return add(warned_, id, origins_->as_given(key)); }
  /// Adds problems whose keys are relative to `prefix`. A problem that already has a place (in a CSV file) keeps it.
  void refuse_all(Diagnostics list, const std::string& prefix = "") { place_all(refused_, std::move(list), prefix); }
  void warn_all(Diagnostics list, const std::string& prefix = "") { place_all(warned_, std::move(list), prefix); }

  bool ok() const { return refused_.empty(); }
  /// The exit code of a command that reports these problems; kOk if there are none.
  ExitCode exit() const { return ok() ? ExitCode::kOk : exit_code(refused_); }
  bool given(const std::string& key) const { return origins_->find(key) != nullptr; }
  Diagnostics& problems() { return refused_; }
  Diagnostics& warnings() { return warned_; }

 private:
  Diagnostic& add(Diagnostics& list, ProblemId id, const std::string& key) {
    return list.add(id, key).at(origins_->nearest(key));
  }
  void place_all(Diagnostics& list, Diagnostics all, const std::string& prefix);

  const Origins* origins_;
  Diagnostics refused_ = {};
  Diagnostics warned_ = {};
};

/// Gives every problem without a place the one of its key.
void locate(Diagnostics& problems, const Origins& origins);

}  // namespace automodel
