#include "data/token_row.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "data/class_rows.h"
#include "data/dataset.h"

namespace automodel::data {
namespace {

/// Keys that other programs act on; ignoring them would train on something other than what the file says.
constexpr std::array<std::string_view, 7> kRefusedKeys = {"position_ids", "loss_mask",  "segment_ids", "token_type_ids",
                                                          "seq_lens",     "cu_seqlens", "weights"};
constexpr int kMaxDepth = 64;

/// Walks JSON text. Functions return false after recording the problem and its position.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : begin_(text.data()), at_(text.data()), end_(text.data() + text.size()) {}

  RowProblem problem() const { return problem_; }

  bool fail(std::string reason, std::string help = {}) {
    problem_ = {static_cast<std::size_t>(at_ - begin_) + 1, std::move(reason), std::move(help)};
    return false;
  }
  void skip_space() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\r' || *at_ == '\n')) ++at_;
  }
  bool at_end() {
    skip_space();
    return at_ == end_;
  }
  /// Consumes `c` if it comes next.
  bool take(char c) {
    skip_space();
    if (at_ == end_ || *at_ != c) return false;
    ++at_;
    return true;
  }
  bool expect(char c) { return take(c) || fail(fmt::format("expected '{}'", c)); }

  /// The text between the quotes, with escapes left as written.
  bool string(std::string_view& out) {
    if (!expect('"')) return false;
    const char* first = at_;
    while (at_ != end_ && *at_ != '"') {
      if (static_cast<unsigned char>(*at_) < 0x20) return fail("a control character in a string");
      if (*at_ == '\\') {
        ++at_;
        if (at_ == end_ || std::string_view("\"\\/bfnrtu").find(*at_) == std::string_view::npos)
          return fail("an unknown escape in a string");
      }
      ++at_;
    }
    if (at_ == end_) return fail("a string does not end");
    out = {first, static_cast<std::size_t>(at_ - first)};
    ++at_;
    return true;
  }

  bool skip_value(int depth = 0) {
    skip_space();
    if (at_ == end_) return fail("a value is missing");
    if (depth > kMaxDepth) return fail("nested too deeply");
    std::string_view text;
    switch (*at_) {
      case '"': return string(text);
      case '{': return skip_members('}', true, depth);
      case '[': return skip_members(']', false, depth);
      default: return skip_word();
    }
  }

  /// A list of integers within [least, most], appended to `out`.
  bool integers(std::vector<std::int32_t>& out, std::int64_t least, std::int64_t most) {
    if (!expect('[')) return false;
    if (take(']')) return true;
    do {
      std::int64_t value = 0;
      if (!integer(value)) return false;
      if (value < least || value > most)
        return fail(fmt::format("item {} is {}; it must lie between {} and {}", out.size(), value, least, most));
      out.push_back(static_cast<std::int32_t>(value));
    } while (take(','));
    return expect(']');
  }

  bool truth(bool& out) {
    skip_space();
    const std::string_view rest(at_, static_cast<std::size_t>(end_ - at_));
    out = rest.starts_with("true");
    if (!out && !rest.starts_with("false")) return fail("expected true or false");
    at_ += out ? 4 : 5;
    return true;
  }

  bool integer(std::int64_t& out) {
    skip_space();
    const char* first = at_;
    const bool negative = at_ != end_ && *at_ == '-';
    if (negative) ++at_;
    const char* digits = at_;
    std::int64_t value = 0;
    while (at_ != end_ && *at_ >= '0' && *at_ <= '9' && at_ - digits < 18) value = value * 10 + (*at_++ - '0');
    const bool more = at_ != end_ && (*at_ == '.' || *at_ == 'e' || *at_ == 'E' || (*at_ >= '0' && *at_ <= '9'));
    if (at_ == digits || more || (*digits == '0' && at_ - digits > 1)) {
      at_ = first;
      return fail("expected an integer");
    }
    out = negative ? -value : value;
    return true;
  }

 private:
  bool skip_members(char close, bool keyed, int depth) {
    ++at_;
    if (take(close)) return true;
    do {
      std::string_view key;
      if (keyed && (!string(key) || !expect(':'))) return false;
      if (!skip_value(depth + 1)) return false;
    } while (take(','));
    return expect(close);
  }
  /// true, false, null, or a sequence of characters that occur in numbers.
  bool skip_word() {
    const char* first = at_;
    while (at_ != end_ && std::string_view(" \t\r\n,]}:\"[{").find(*at_) == std::string_view::npos) ++at_;
    const std::string_view word(first, static_cast<std::size_t>(at_ - first));
    const bool number = !word.empty() && word.find_first_not_of("0123456789+-.eE") == std::string_view::npos &&
                        word.find_first_of("0123456789") != std::string_view::npos;
    if (number || word == "true" || word == "false" || word == "null") return true;
    at_ = first;
    return fail("expected a JSON value");
  }

  const char* begin_;
  const char* at_;
  const char* end_;
  RowProblem problem_;
};

/// The lists of a row and the range of their values.
struct List {
  std::string_view key;
  std::vector<std::int32_t> TokenRow::*member;
  std::int64_t least;
  std::int64_t most;
};
constexpr std::int64_t kLargestId = 2147483647;
constexpr std::array<List, 3> kLists = {List{"input_ids", &TokenRow::input_ids, 0, kLargestId},
                                        List{"labels", &TokenRow::labels, kIgnoredLabel, kLargestId},
                                        List{"attention_mask", &TokenRow::attention_mask, 0, 1}};

bool read_label(Scanner& scanner, int classes, std::optional<std::int32_t>& out) {
  if (out) return scanner.fail("'label' appears twice");
  std::int64_t label = 0;
  if (!scanner.expect(':') || !scanner.integer(label)) return false;
  if (auto problem = check_class(label, classes)) return scanner.fail(problem->reason, problem->help);
  out = static_cast<std::int32_t>(label);
  return true;
}

bool read_member(Scanner& scanner, TokenRow& out, std::array<bool, 3>& seen, int classes) {
  std::string_view key;
  if (!scanner.string(key)) return false;
  const auto* list = std::find_if(kLists.begin(), kLists.end(), [&](const List& l) { return l.key == key; });
  if (classes > 0 && key == "label") return read_label(scanner, classes, out.label);
  if (classes > 0 && (key == "labels" || key == "shifted"))
    return scanner.fail(fmt::format("'{}' is for next-token prediction; a classifier's row has one 'label'", key));
  if (key == "shifted") return scanner.expect(':') && scanner.truth(out.shifted);
  if (std::find(kRefusedKeys.begin(), kRefusedKeys.end(), key) != kRefusedKeys.end())
    return scanner.fail(fmt::format("'{}' is not read; rows hold input_ids, labels and attention_mask", key));
  if (!scanner.expect(':')) return false;
  if (list == kLists.end()) return scanner.skip_value();
  bool& given = seen[static_cast<std::size_t>(list - kLists.begin())];
  if (given) return scanner.fail(fmt::format("'{}' appears twice", key));
  given = true;
  return scanner.integers(out.*(list->member), list->least, list->most);
}

/// Aligns labels with their own tokens again. A target behind the last token becomes a token of its own.
void unshift(TokenRow& row) {
  row.labels.insert(row.labels.begin(), kIgnoredLabel);
  const auto behind = row.labels.back();
  if (behind == kIgnoredLabel) return row.labels.pop_back();
  row.input_ids.push_back(behind);
  if (!row.attention_mask.empty()) row.attention_mask.push_back(row.attention_mask.back());
}

}  // namespace

std::optional<RowProblem> parse_token_row(std::string_view line, TokenRow& out, int classes) {
  for (const auto& list : kLists) (out.*(list.member)).clear();
  out.shifted = false;
  out.label.reset();
  Scanner scanner(line);
  std::array<bool, 3> seen{};
  bool good = scanner.expect('{');
  if (good && !scanner.take('}')) {
    do {
      good = read_member(scanner, out, seen, classes);
    } while (good && scanner.take(','));
    good = good && scanner.expect('}');
  }
  if (good && !scanner.at_end()) good = scanner.fail("text after the row's object");
  if (!good) return scanner.problem();
  if (!seen[0]) return RowProblem{1, "the row has no input_ids"};
  if (classes > 0 && !out.label) return RowProblem{1, "the row has no label"};
  if (out.input_ids.empty()) return RowProblem{1, "input_ids is empty"};
  for (std::size_t i = 1; i < kLists.size(); ++i) {
    const std::size_t size = (out.*(kLists[i].member)).size();
    if (seen[i] && size != out.input_ids.size())
      return RowProblem{1, fmt::format("{} has {} items, input_ids has {}", kLists[i].key, size, out.input_ids.size())};
  }
  for (std::size_t t = 0; t < out.labels.size(); ++t)
    if (out.labels[t] < 0 && out.labels[t] != kIgnoredLabel)
      return RowProblem{1, fmt::format("labels[{}] is {}; a label is an id or -100", t, out.labels[t])};
  if (out.shifted && out.labels.empty()) return RowProblem{1, "the row is shifted, but has no labels"};
  if (out.shifted) unshift(out);
  return std::nullopt;
}

}  // namespace automodel::data
