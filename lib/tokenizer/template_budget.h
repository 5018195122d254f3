// What one rendering of a chat template may use. Templates come with tokenizers that strangers made, so everything that
// a template makes the program do draws from one budget: no operation has a limit of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace automodel::tokenizer {

/// Aborts the parsing or rendering of a template; `line` is the template's line, 0 if unknown. Long messages are cut.
class TemplateError : public std::runtime_error {
 public:
  explicit TemplateError(const std::string& message, int at_line = 0)
      : std::runtime_error(message.substr(0, kMostMessage)), line(at_line) {}
  int line;

 private:
  static constexpr std::size_t kMostMessage = 2000;
};

class TemplateBudget {
 public:
  static constexpr std::size_t kMostSource = std::size_t{1} << 20;   ///< bytes of a template
  static constexpr std::size_t kMostOutput = std::size_t{16} << 20;  ///< bytes of one rendered text
  static constexpr std::size_t kMostText = std::size_t{128} << 20;   ///< bytes of all texts made in a rendering
  static constexpr std::int64_t kMostSteps = 5'000'000;
  static constexpr int kMostDepth = 300;       ///< blocks, expressions, macros and filters inside each other
  static constexpr int kMostValueDepth = 100;  ///< lists and dictionaries inside each other

  /// A step is a node evaluated, an item made or looked at, or 64 bytes of text read.
  void step(std::int64_t count = 1) {
    steps_ += count;
    if (steps_ > kMostSteps) throw TemplateError("the template does not come to an end");
  }
  void read(std::size_t bytes) { step(static_cast<std::int64_t>(bytes / 64)); }
  /// To be called before the memory is taken.
  void write(std::size_t bytes) {
    if (bytes > kMostText - text_) throw TemplateError("the text is too long");
    text_ += bytes;
  }
  static void check_value_depth(int depth) {
    if (depth > kMostValueDepth) throw TemplateError("the values are nested too deeply");
  }

  /// One level of recursion.
  class Level {
   public:
    explicit Level(TemplateBudget& budget) : budget_(budget) {
      if (budget_.depth_ >= kMostDepth) throw TemplateError("blocks and calls are nested too deeply");
      ++budget_.depth_;
    }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    ~Level() { --budget_.depth_; }

   private:
    TemplateBudget& budget_;
  };

 private:
  std::int64_t steps_ = 0;
  std::size_t text_ = 0;
  int depth_ = 0;
};

/// A text in the making, paid for as it grows.
class TemplateText {
 public:
  explicit TemplateText(TemplateBudget& budget) : budget_(budget) {}
  TemplateText& add(std::string_view part) {
    budget_.write(part.size());
    text_ += part;
    return *this;
  }
  bool empty() const { return text_.empty(); }
  std::size_t size() const { return text_.size(); }
  std::string take() { return std::move(text_); }
  TemplateBudget& budget() { return budget_; }

 private:
  TemplateBudget& budget_;
  std::string text_;
};

}  // namespace automodel::tokenizer
