// A part of tokenizer.json with its place, and what is wrong with it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/diagnostic.h"

namespace automodel::tokenizer {

/// Reads members of a JSON object; what is missing or of a wrong type becomes a `bad-tokenizer` problem that names the
/// path within the file ("model.merges[3]"). All getters give a neutral value after a problem.
class JsonPart {
 public:
  JsonPart(const nlohmann::json& node, std::string path, std::string file, Diagnostics& problems)
      : node_(&node), path_(std::move(path)), file_(std::move(file)), problems_(&problems) {}

  const nlohmann::json& node() const { return *node_; }
  const std::string& path() const { return path_; }
  Diagnostics& problems() const { return *problems_; }

  bool is_null() const;
  bool has(std::string_view key) const;  ///< and it is not null
  /// The member; a null part where there is none.
  JsonPart at(std::string_view key) const;
  std::vector<JsonPart> items(std::string_view key) const;  ///< of a list

  /// "type", or "" after a problem.
  std::string type() const { return text("type"); }
  std::string text(std::string_view key) const;
  std::optional<std::string> text_if(std::string_view key) const;  ///< null and absent are nothing
  bool flag(std::string_view key, bool otherwise) const;
  std::int64_t integer(std::string_view key, std::int64_t least, std::int64_t most) const;

  void fail(const std::string& message, const std::string& help = "") const;
  /// Says that this kind is not supported, and which are.
  void refuse_type(std::string_view what, const std::vector<std::string_view>& known) const;

 private:
  const nlohmann::json* node_;
  std::string path_;
  std::string file_;
  Diagnostics* problems_;
};

}  // namespace automodel::tokenizer
