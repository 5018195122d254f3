// `plan --from`: files of another trainer, what they mean, and the recipe that says the same.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "foreign/findings.h"
#include "foreign/resolved.h"

namespace automodel::foreign {

struct GivenFile {
  std::string format, path;
};

struct Request {
  std::vector<GivenFile> files = {};
  std::vector<std::string> arguments = {};  ///< after "--": the trainer's own, which override the file
  std::optional<int> world_size = {};       ///< never taken from a file
  std::optional<int> ranks_per_node = {};
  std::string model = {};  ///< in place of the file's
  std::optional<std::int64_t> seq_length = {}, vocab_size = {};
  bool accept_adamw = false;   ///< plan AdamW in place of an optimizer that has no equivalent
  bool allow_inexact = false;  ///< plan although something is not expressed
  std::function<std::optional<std::string>(const std::string&)> environment = {};
};

struct Conversion {
  std::string format = {};  ///< of the configuration that decides
  std::string origin = {};  ///< the files, as given
  Resolved resolved = {};
  Findings findings = {};
  Diagnostics problems = {};  ///< empty: `recipe` is usable
  std::string recipe = {};    ///< YAML
};

/// Never throws because of what files hold. Problems: usage, missing-file, yaml-syntax, bad-type, from-format,
/// from-refused, from-missing, from-inexact.
Conversion convert(const Request& request);

/// The formats that --from takes, in the order of the documentation.
std::span<const std::string_view> formats();

/// The member `from` of plan --json: format, resolved, ignored, not_expressed, notes.
std::string to_json(const Conversion& conversion);

/// The trainer that a file belongs to, by its keys; empty if it is none of ours. `text` is the file's.
std::string_view recognise(const std::string& path, std::string_view text);

}  // namespace automodel::foreign
