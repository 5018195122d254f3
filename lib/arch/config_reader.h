// Typed access to one JSON object of a config.json. Every problem is recorded; a bad value reads as the default.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/diagnostic.h"

namespace automodel::arch {

/// Alternative spellings of a key, tried in order: the first that is present and not null is used. All keys asked for
/// are remembered so that unread ones can be reported.
using Keys = std::initializer_list<std::string_view>;

/// The source text of a JSON document, for the locations in diagnostics.
struct ConfigText {
  std::string file = {};  ///< as shown to the user
  std::string_view text = {};
};

class ConfigReader {
 public:
  /// `object` must be a JSON object. `object`, `source` and `problems` must outlive the reader. `path` is the dotted
  /// key of `object` ("" for the root).
  ConfigReader(const nlohmann::json& object, const ConfigText& source, std::string path, Diagnostics& problems);

  /// Present and not null.
  bool has(std::string_view key) const;
  /// Present, even if null; for keys where null differs from absence.
  bool mentions(std::string_view key) const;
  /// Whether the value is a list, or a text.
  bool is_list(std::string_view key) const;
  bool is_text(std::string_view key) const;
  /// An integer in [least, most]; otherwise reports `missing-key` or `bad-value`.
  int required(Keys keys, int least, int most);
  int integer(Keys keys, int otherwise, int least, int most);
  std::optional<int> integer(std::string_view key);
  double number(Keys keys, double otherwise);
  std::optional<double> number(std::string_view key);
  bool boolean(Keys keys, bool otherwise);
  std::string text(Keys keys, std::string_view otherwise);
  /// Accepts transformers' notation for infinity, {"__float__": "Infinity"}. `null`: what a null in the list means;
  /// unset: it is refused.
  std::vector<double> numbers(std::string_view key, std::optional<double> null = {});
  std::vector<std::string> texts(std::string_view key);
  /// An integer or a list of integers.
  std::vector<int> integers(std::string_view key);
  /// The object at `key`, if any. Keys read from it are tracked by this reader too; see refuse_unread().
  std::optional<ConfigReader> child(std::string_view key);
  /// The objects in the list at `key`, each like child().
  std::vector<ConfigReader> children(std::string_view key);

  /// Reports a problem with `key`, including its location.
  Diagnostic& refuse(ProblemId id, std::string_view key);
  void bad_value(std::string_view key, std::string message, std::string help) {
    refuse("bad-value", key).says(std::move(message)).hint(std::move(help));
  }
  /// Whether no problem was reported for any of these keys, so that values depending on them can be checked.
  bool good(Keys keys) const;
  /// Marks keys as known although they are not used.
  void ignore(Keys keys);
  /// Reports every unread key of this object, and of the objects returned by child(), as `unknown-key`.
  void refuse_unread();

 private:
  struct Asked {
    const nlohmann::json* object = nullptr;
    std::set<std::string, std::less<>> keys = {};
  };
  /// Keyed by the object's dotted key.
  using AskedByPath = std::map<std::string, Asked>;

  ConfigReader(const nlohmann::json& object, const ConfigText& source, std::string path, Diagnostics& problems,
               std::shared_ptr<AskedByPath> asked);
  /// The value of the first key that is present and not null, storing that key in `key`; nullptr if there is none.
  const nlohmann::json* find(Keys keys, std::string_view& key);
  void bad_type(std::string_view key, const nlohmann::json& value, std::string_view wanted);
  std::optional<int> whole(std::string_view key, const nlohmann::json& value, int least, int most);
  SourceLocation place(std::string_view key) const;

  const nlohmann::json* object_;
  const ConfigText* source_;
  std::string path_;
  Diagnostics* problems_;
  std::shared_ptr<AskedByPath> asked_;  ///< shared with the readers returned by child()
  std::set<std::string, std::less<>> refused_ = {};
};

/// Upper limits of accepted sizes: far above any model, low enough for exact arithmetic.
inline constexpr int kMostWidth = 1 << 20;
inline constexpr int kMostLayers = 1 << 14;
inline constexpr int kMostVocab = 1 << 26;
inline constexpr int kMostPositions = 1 << 30;

}  // namespace automodel::arch
