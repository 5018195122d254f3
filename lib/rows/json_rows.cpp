#include "rows/json_rows.h"

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_text.h"
#include "rows/bounded_json.h"

namespace automodel::rows {
namespace {

using nlohmann::ordered_json;
constexpr std::string_view kBlanks = " \t\r\n";
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

class MappedText final : public Text {
 public:
  explicit MappedText(const std::filesystem::path& path) {
    const int file = open_regular(path);
    struct stat info {};
    if (file < 0 || fstat(file, &info) != 0) {
      const int reason = errno;
      if (file >= 0) close(file);
      throw std::system_error(reason, std::generic_category(), path.native());
    }
    size_ = static_cast<std::size_t>(info.st_size);
    if (size_ > 0) data_ = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
    const int reason = errno;
    close(file);
    if (data_ == MAP_FAILED) throw std::system_error(reason, std::generic_category(), path.native());
  }
  MappedText(const MappedText&) = delete;
  MappedText& operator=(const MappedText&) = delete;
  ~MappedText() override {
    if (data_ != nullptr) munmap(data_, size_);
  }
  std::string_view view() const override { return {static_cast<const char*>(data_), size_}; }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

class OwnText final : public Text {
 public:
  explicit OwnText(std::string text) : text_(std::move(text)) {}
  std::string_view view() const override { return text_; }

 private:
  std::string text_;
};

struct Place {
  std::size_t begin;
  std::size_t size;
  int line;
};

class JsonRows final : public Rows {
 public:
  JsonRows(std::shared_ptr<const Text> text, std::string file, std::vector<Place> places)
      : text_(std::move(text)), file_(std::move(file)), places_(std::move(places)) {}
  std::int64_t size() const override { return static_cast<std::int64_t>(places_.size()); }
  SourceLocation where(std::int64_t index) const override {
    return {file_, places_[static_cast<std::size_t>(index)].line, 1};
  }
  void read(std::int64_t index, ordered_json& out) const override {
    const Place& place = places_[static_cast<std::size_t>(index)];
    SourceLocation at = where(index);
    if (const auto problem = parse_bounded(text_->view().substr(place.begin, place.size), out)) {
      at.column = static_cast<int>(std::clamp<std::size_t>(problem->byte, 1, 1u << 30));
      throw RowError(problem->message, at);
    }
    if (!out.is_object()) throw RowError("a row is a JSON object", at);
  }

 private:
  std::shared_ptr<const Text> text_;
  std::string file_;
  std::vector<Place> places_;
};

/// Skips over JSON without building values.
class Scanner {
 public:
  Scanner(std::string_view text, std::size_t at) : text_(text), at_(at) {}

  std::size_t at() const { return at_; }
  int line() const { return line_; }
  bool done() {
    skip_blanks();
    return at_ >= text_.size();
  }
  char now() const { return text_[at_]; }
  bool take(char c) {
    skip_blanks();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  /// Skips one value. False if the text ends first.
  bool value() {
    skip_blanks();
    int depth = 0;
    const std::size_t begin = at_;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"') {
        if (!string()) return false;
        if (depth == 0) return true;
        continue;
      }
      if (depth == 0 && at_ > begin && (c == ',' || c == ']' || c == '}' || kBlanks.find(c) != std::string_view::npos))
        return true;  // just past a number or a literal
      if (c == '\n') ++line_;
      if (c == '{' || c == '[') ++depth;
      if (c == '}' || c == ']') {
        if (--depth < 0) return false;
      }
      ++at_;
      if (depth == 0 && (c == '}' || c == ']')) return true;
    }
    return depth == 0 && at_ > begin;
  }

 private:
  bool string() {
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      if (text_[at_] == '\\') ++at_;
      if (at_ < text_.size() && text_[at_] == '\n') ++line_;
    }
    if (at_ >= text_.size()) return false;
    ++at_;
    return true;
  }
  void skip_blanks() {
    while (at_ < text_.size() && kBlanks.find(text_[at_]) != std::string_view::npos) {
      if (text_[at_] == '\n') ++line_;
      ++at_;
    }
  }

  std::string_view text_;
  std::size_t at_;
  int line_ = 1;
};

std::vector<Place> lines_of(std::string_view text, std::size_t at) {
  std::vector<Place> out;
  for (int line = 1; at < text.size(); ++line) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view row = text.substr(at, end - at);
    if (row.find_first_not_of(kBlanks) != std::string_view::npos) out.push_back({at, row.size(), line});
    at = end + 1;
  }
  return out;
}

/// The items of a top-level array, or a sequence of values.
std::vector<Place> values_of(std::string_view text, std::size_t at, const std::string& file, Diagnostics& problems) {
  std::vector<Place> out;
  Scanner scanner(text, at);
  const bool array = scanner.take('[');
  const auto fail = [&](const char* what) {
    problems.add("bad-row")
        .says(what)
        .hint("the file may have been cut off; copy it again")
        .at({file, scanner.line(), 1});
    return out;
  };
  while (!scanner.done() && !(array && scanner.now() == ']')) {
    const std::size_t begin = scanner.at();
    const int line = scanner.line();
    if (!scanner.value()) return fail("a value does not end");
    out.push_back({begin, scanner.at() - begin, line});
    if (array && !scanner.take(',') && (scanner.done() || scanner.now() != ']')) return fail("',' or ']' is expected");
  }
  if (array && !scanner.take(']')) return fail("the array does not end");
  if (!scanner.done()) return fail("the array is not the end of the file");
  return out;
}

std::size_t begin_of(std::string_view text) {
  return text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
}

}  // namespace

std::shared_ptr<const Text> map_text(const std::filesystem::path& file) {
  return std::make_shared<MappedText>(file);
}

std::shared_ptr<const Text> own_text(std::string text) {
  return std::make_shared<OwnText>(std::move(text));
}

bool is_document(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kBlanks, begin_of(text));
  if (first == std::string_view::npos) return false;
  if (text[first] == '[') return true;
  const std::string_view line = text.substr(first, std::min(text.find('\n', first), text.size()) - first);
  // An object that continues past its first line; a broken line among several is left to the line reader.
  return text[first] == '{' && line.find_first_not_of(kBlanks, 1) == std::string_view::npos;
}

std::unique_ptr<Rows> json_rows(std::shared_ptr<const Text> text, const std::string& file, Diagnostics& problems) {
  const std::string_view view = text->view();
  const std::size_t before = problems.size();
  auto places = is_document(view) ? values_of(view, begin_of(view), file, problems) : lines_of(view, begin_of(view));
  if (problems.size() > before) return nullptr;
  return std::make_unique<JsonRows>(std::move(text), file, std::move(places));
}

}  // namespace automodel::rows
