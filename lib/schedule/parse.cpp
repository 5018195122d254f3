// The grammar of one cell:
//   cell    = blanks [ action | overlap ] blanks
//   action  = number op [ number ]
//   overlap = "(" blanks action blanks ";" blanks action blanks ")OVERLAP_F_B"
#include <cctype>

#include <fmt/format.h>

#include "base/spelling.h"
#include "schedule/action.h"

namespace automodel::schedule {
namespace {

constexpr std::string_view kForm = "an action is <stage><action><microbatch>, for example 2F0";

constexpr std::size_t kLongest = 32;  // characters of a cell quoted in a message

/// Text for use in a message: unprintable bytes escaped, long text truncated.
std::string quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text.substr(0, kLongest))
    out += std::isprint(static_cast<unsigned char>(c)) != 0 ? std::string(1, c)
                                                            : fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return out + (text.size() > kLongest ? "...'" : "'");
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_word(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
}
bool is_blank(char c) {
  return c == ' ' || c == '\t';
}

class CellReader {
 public:
  CellReader(std::string_view text, ParseProblem& problem) : text_(text), problem_(problem) {}

  std::optional<Slot> cell() {
    skip_blanks();
    if (at_end()) return Slot();
    std::optional<Slot> slot;
    if (text_[at_] == '(') {
      slot = overlap();
    } else if (const auto single = action()) {
      slot = Slot(*single);
    }
    if (!slot) return std::nullopt;
    const std::size_t end = at_;
    skip_blanks();
    if (at_end()) return slot;
    fail(end, fmt::format("unexpected {} after {}", quoted(text_.substr(end)), to_text(*slot)),
         fmt::format("one action per cell; PyTorch would ignore the rest and run {}", to_text(*slot)));
    return std::nullopt;
  }

 private:
  bool at_end() const { return at_ == text_.size(); }
  void skip_blanks() {
    while (!at_end() && is_blank(text_[at_])) ++at_;
  }
  template <class Predicate>
  std::string_view take(Predicate&& predicate) {
    const std::size_t begin = at_;
    while (!at_end() && predicate(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  void fail(std::size_t offset, std::string message, std::string help) {
    problem_ = {offset, std::move(message), std::move(help)};
  }

  /// Parses a number below `limit`; otherwise returns nothing and fills in the problem.
  std::optional<int> number(std::string_view what, int limit) {
    const std::size_t begin = at_;
    const auto digits = take(is_digit);
    if (digits.empty()) {
      fail(begin, fmt::format("no {} number at {}", what, quoted(text_.substr(begin))), std::string(kForm));
      return std::nullopt;
    }
    int value = 0;
    for (const char digit : digits) {
      value = value * 10 + (digit - '0');
      if (value >= limit) {
        fail(begin, fmt::format("{} {} is too large", what, quoted(digits)),
             fmt::format("a {} is at most {}", what, limit - 1));
        return std::nullopt;
      }
    }
    return value;
  }

  std::optional<Action> action() {
    const std::size_t begin = at_;
    const auto stage = number("stage", kMaxStages);
    if (!stage) return std::nullopt;
    const std::size_t word_begin = at_;
    const auto word = take(is_word);
    std::size_t op = 0;
    while (op < kOps.size() && kOps[op].spelling != word) ++op;
    if (op == kOps.size()) {
      unknown_op(word_begin, word);
      return std::nullopt;
    }
    const bool has_number = !at_end() && is_digit(text_[at_]);
    if (has_number != kOps[op].has_microbatch) {
      if (has_number)
        fail(at_, fmt::format("{} takes no microbatch", word), fmt::format("write {}{}", *stage, word));
      else
        fail(at_, fmt::format("{} has no microbatch", text_.substr(begin, at_ - begin)),
             fmt::format("write the microbatch after the action, for example {}{}0", *stage, word));
      return std::nullopt;
    }
    if (!has_number) return make_action(static_cast<Op>(op), Stage{*stage});
    const auto microbatch = number("microbatch", kMaxMicrobatches);
    if (!microbatch) return std::nullopt;
    return make_action(static_cast<Op>(op), *stage, *microbatch);
  }

  void unknown_op(std::size_t offset, std::string_view word) {
    if (word.empty()) {
      const auto rest = text_.substr(offset);
      return fail(offset, rest.empty() ? "no action after the stage number" : "no action at " + quoted(rest),
                  std::string(kForm));
    }
    std::vector<std::string_view> known;
    known.reserve(kOps.size());
    for (const auto& row : kOps) known.push_back(row.spelling);
    if (word == "OVERLAP_F_B")
      return fail(offset, "OVERLAP_F_B without its two actions", "write it as (0F3;7B0)OVERLAP_F_B");
    fail(offset, fmt::format("unknown action {}", quoted(word)), suggestion(word.substr(0, 32), known));
  }

  bool expect(std::string_view wanted) {
    if (text_.substr(at_).starts_with(wanted)) {
      at_ += wanted.size();
      return true;
    }
    const auto rest = text_.substr(at_);
    fail(at_, fmt::format("expected '{}' {}", wanted, rest.empty() ? "at the end of the cell" : "at " + quoted(rest)),
         "an overlap is written (0F3;7B0)OVERLAP_F_B: a forward and a full backward");
    return false;
  }

  std::optional<Slot> overlap() {
    ++at_;
    skip_blanks();
    const std::size_t forward_at = at_;
    const auto forward = action();
    if (!forward) return std::nullopt;
    skip_blanks();
    if (!expect(";")) return std::nullopt;
    skip_blanks();
    const std::size_t backward_at = at_;
    const auto backward = action();
    if (!backward) return std::nullopt;
    skip_blanks();
    if (!expect(")") || !expect("OVERLAP_F_B")) return std::nullopt;
    const bool first_ok = forward->op() == Op::kForward;
    if (!first_ok || backward->op() != Op::kFullBackward) {
      fail(first_ok ? backward_at : forward_at,
           fmt::format("an overlap is a forward and a full backward, not {} and {}", to_text(*forward),
                       to_text(*backward)),
           "write it as (0F3;7B0)OVERLAP_F_B");
      return std::nullopt;
    }
    return Slot(Overlap{*forward, *backward});
  }

  std::string_view text_;
  ParseProblem& problem_;
  std::size_t at_ = 0;
};

}  // namespace

std::optional<Slot> parse_slot(std::string_view text, ParseProblem& problem) {
  return CellReader(text, problem).cell();
}

}  // namespace automodel::schedule
