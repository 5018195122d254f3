// A part of tokenizer.json that knows its path, for reporting problems.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/diagnostic.h"

namespace automodel::tokenizer {

/// Reads members of a JSON object; a member that is missing or has the wrong type becomes a `bad-tokenizer` problem
/// that names its path in the file ("model.merges[3]"). After a problem all getters return a neutral value.
class JsonPart {
 public:
  JsonPart(const nlohmann::json& node, std::string path, std::string file, Diagnostics& problems)
      : node_(&node), path_(std::move(path)), file_(std::move(file)), problems_(&problems) {}

  const nlohmann::json& node() const { return *node_; }
  const std::string& path() const { return path_; }
  Diagnostics& problems() const { return *problems_; }

  bool is_null() const;
  bool has(std::string_view key) const;  ///< present and not null
  /// The member; a null part if absent.
  JsonPart at(std::string_view key) const;
  std::vector<JsonPart> items(std::string_view key) const;  ///< of a list

  /// The member "type"; "" after a problem.
  std::string type() const { return text("type"); }
  std::string text(std::string_view key) const;
  std::optional<std::string> text_if(std::string_view key) const;  ///< empty if null or absent
  bool flag(std::string_view key, bool otherwise) const;
  std::int64_t integer(std::string_view key, std::int64_t least, std::int64_t most) const;

  void fail(const std::string& message, const std::string& help = "") const;
  /// Reports that this type is not supported, and which ones are.
  void refuse_type(std::string_view what, const std::vector<std::string_view>& known) const;

 private:
  const nlohmann::json* node_;
  std::string path_;
  std::string file_;
  Diagnostics* problems_;
};

}  // namespace automodel::tokenizer
