// Split strings of Hugging Face's datasets: "train[:1000]", "train[10%:20%]+validation".
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace automodel::rows {

/// One part of a sum: "train[:1000]".
struct SplitPart {
  enum class Rounding { kClosest, kDropRemainder };
  std::string name;
  std::optional<std::int64_t> from = {}, to = {};  ///< rows or percent; negative values count from the end
  bool percent = false;
  Rounding rounding = Rounding::kClosest;

  bool sliced() const { return from.has_value() || to.has_value(); }
};

struct SplitText {
  std::vector<SplitPart> parts = {};
  std::string problem = {};  ///< why the text is not a split, or ""
};

/// Parses a split string. "all" becomes a single part of that name.
SplitText parse_split(std::string_view text);

struct RowRange {
  std::int64_t from = 0;
  std::int64_t to = 0;  ///< at or below `from`: no rows
};

/// The rows that a part selects from a split of `count` rows; `problem` is set if the rounding rule rules out any.
RowRange range_of(const SplitPart& part, std::int64_t count, std::string& problem);

}  // namespace automodel::rows
