#include "config/node.h"

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>
#include <unordered_map>

#include <fmt/format.h>
#include <yaml-cpp/depthguard.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/yaml.h>

#include "config/limits.h"
#include "config/scalar.h"
#include "config/syntax_fault.h"

namespace automodel::config {
namespace {

/// What a part of the tree takes; the tree's sum is limited, aliases included.
struct Size {
  std::size_t nodes = 0, bytes = 0;

  Size& operator+=(const Size& other) {
    nodes += other.nodes;
    bytes += other.bytes;
    return *this;
  }
};

Size size_of(const Node& node) {
  Size out{1, node.text.size()};
  for (const auto& item : node.items) out += size_of(item);
  for (const auto& entry : node.entries) (out += size_of(entry.value)).bytes += entry.key.size();
  return out;
}

/// Length in bytes of the character at the start of `text`; 0 if it is not valid there. Accepts shortest-form UTF-8
/// without surrogates (RFC 3629) and, as YAML does, no control characters except tab and line breaks.
std::size_t text_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto follows = [&](std::size_t i) { return (byte(i) & 0xc0u) == 0x80u; };
  const unsigned first = byte(0);
  if (first < 0x80) return (first >= 0x20 && first != 0x7f) || first == '\t' || first == '\n' || first == '\r' ? 1 : 0;
  if (first < 0xc2 || first > 0xf4 || !follows(1)) return 0;
  if (first < 0xe0) return 2;
  if (!follows(2)) return 0;
  if (first < 0xf0) return (first == 0xe0 && byte(1) < 0xa0) || (first == 0xed && byte(1) > 0x9f) ? 0 : 3;
  if (!follows(3) || (first == 0xf0 && byte(1) < 0x90) || (first == 0xf4 && byte(1) > 0x8f)) return 0;
  return 4;
}

/// Number of leading bytes of `text` that are valid text.
std::size_t text_length(std::string_view text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const auto bytes = text_character(text.substr(done));
    if (bytes == 0) break;
    done += bytes;
  }
  return done;
}

/// Builds the tree from parser events, with a stack of open collections that also holds a map's pending key.
class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(std::string file, Diagnostics& problems) : file_(std::move(file)), problems_(problems) {}

  Node take() { return std::move(root_); }

  /// The last quoted text so far; nowhere if there is none.
  const std::optional<YAML::Mark>& last_quoted() const { return last_quoted_; }
  /// The innermost list or mapping in brackets that is open.
  std::optional<SourceLocation> open_bracket() const {
    for (auto each = stack_.rbegin(); each != stack_.rend(); ++each)
      if (each->bracketed) return each->node.where;
    return std::nullopt;
  }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ == 2)
      problems_.add("yaml-syntax")
          .at(location(mark))
          .says("a recipe is one YAML document")
          .hint("remove the second '---'");
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { add(scalar(mark, "", false), anchor); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end())
      return void(problems_.add("yaml-syntax")
                      .at(location(mark))
                      .says("this alias is inside its own anchor")
                      .hint("name an anchor that ends before it"));
    Node copy = found->second.node;
    const Size whole = found->second.size;
    count({whole.nodes - 1, whole.bytes - copy.text.size()}, mark);  // add() counts the rest
    copy.where = location(mark);
    add(std::move(copy), YAML::NullAnchor);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    if (tag != "?") last_quoted_ = mark;
    add(scalar(mark, value, tag == "!" || tag == "tag:yaml.org,2002:str"), anchor);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value style) override {
    open(mark, Node::Kind::kList, anchor, style);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value style) override {
    open(mark, Node::Kind::kMap, anchor, style);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Open {
    Node node;
    YAML::anchor_t anchor;
    bool bracketed;
    bool has_key = false;
    std::string key = {};
    SourceLocation key_where = {};
    std::unordered_map<std::string, std::size_t> places = {};  ///< of a map's entries
  };
  struct Anchored {
    Node node;
    Size size;
  };

  SourceLocation location(const YAML::Mark& mark) const { return {file_, mark.line + 1, mark.column + 1}; }
  Node scalar(const YAML::Mark& mark, const std::string& text, bool quoted) const {
    return {.kind = Node::Kind::kScalar,
            .text = text,
            .written = text,
            .quoted = quoted,
            .entries = {},
            .where = location(mark)};
  }
  void open(const YAML::Mark& mark, Node::Kind kind, YAML::anchor_t anchor, YAML::EmitterStyle::value style) {
    stack_.push_back({.node = {.kind = kind, .entries = {}, .where = location(mark)},
                      .anchor = anchor,
                      .bracketed = style == YAML::EmitterStyle::Flow});
  }
  void close() {
    Open done = std::move(stack_.back());
    stack_.pop_back();
    add(std::move(done.node), done.anchor);
  }
  void add(Node node, YAML::anchor_t anchor) {
    count({1, node.text.size()}, YAML::Mark::null_mark());
    if (anchor != YAML::NullAnchor) {
      const Size size = size_of(node);
      count(size, YAML::Mark::null_mark());  // the copy that aliases are made from
      anchors_[anchor] = {node, size};
    }
    if (stack_.empty()) {
      if (documents_ <= 1) root_ = std::move(node);
      return;
    }
    Open& parent = stack_.back();
    if (parent.node.kind == Node::Kind::kList) return void(parent.node.items.push_back(std::move(node)));
    if (!parent.has_key) return take_key(parent, node);
    parent.has_key = false;
    if (parent.key == "<<") return merge(parent, node);
    put(parent, {parent.key, parent.key_where, std::move(node)});
  }
  void take_key(Open& parent, const Node& node) {
    if (node.kind != Node::Kind::kScalar)
      problems_.add("yaml-syntax")
          .says("a key must be a word, not a list or a mapping")
          .hint("quote a value that begins with '[' or '{'")
          .at(node.where);
    parent.has_key = true;
    parent.key = node.text;
    parent.key_where = node.where;
  }
  void put(Open& map, Node::Entry entry) {
    const auto [place, added] = map.places.try_emplace(entry.key, map.node.entries.size());
    if (added) return void(map.node.entries.push_back(std::move(entry)));
    auto& first = map.node.entries[place->second];
    if (first.merged)
      first = std::move(entry);
    else
      problems_.add("duplicate-key", entry.key)
          .says("'{}' appears here twice", entry.key)
          .hint("it was first given on line {}; keep one", first.where.line)
          .at(entry.where);
  }
  /// YAML 1.1's merge key: adds the entries of `source` (a map or a list of maps) that `map` does not define itself.
  void merge(Open& map, const Node& source) {
    if (source.kind == Node::Kind::kList) {
      for (const auto& item : source.items) merge(map, item);
      return;
    }
    if (source.kind != Node::Kind::kMap)
      return void(problems_.add("yaml-syntax", "<<")
                      .says("'<<' must name a mapping")
                      .hint("use '<<: *anchor'")
                      .at(source.where));
    for (const auto& entry : source.entries)
      if (map.places.try_emplace(entry.key, map.node.entries.size()).second)
        map.node.entries.push_back({entry.key, entry.where, entry.value, true});
  }
  void count(const Size& more, const YAML::Mark& mark) {
    size_ += more;
    if (size_.nodes > kMaxNodes) throw YAML::ParserException(mark, "too many values, aliases included");
    if (size_.bytes > kMaxExpanded) throw YAML::ParserException(mark, "too much text, aliases included");
  }

  std::string file_;
  Diagnostics& problems_;
  Node root_ = {};
  std::vector<Open> stack_ = {};
  std::optional<YAML::Mark> last_quoted_ = {};
  std::map<YAML::anchor_t, Anchored> anchors_ = {};
  int documents_ = 0;
  Size size_ = {};
};

/// The cause of a parser's exception, which the parser may notice lines later.
SyntaxFault fault_of(std::string_view text, const YAML::Exception& error, const TreeBuilder& builder) {
  const int line = error.mark.line + 1;
  if (const auto& quoted = builder.last_quoted())
    if (auto fault = find_quote_fault(text, quoted->line, quoted->column, line)) return *fault;
  if (error.msg == YAML::ErrorMsg::END_OF_SEQ_FLOW || error.msg == YAML::ErrorMsg::END_OF_MAP_FLOW)
    if (const auto open = builder.open_bracket())
      return {open->line, open->column, "the bracket that opens here is not closed",
              error.msg == YAML::ErrorMsg::END_OF_SEQ_FLOW ? "a list ends with ']', and commas part its items"
                                                           : "a mapping ends with '}', and commas part its keys"};
  if (auto fault = find_line_fault(text, line)) return *fault;
  return {line, error.mark.column + 1, error.msg, "invalid YAML from here on"};
}

}  // namespace

const Node::Entry* Node::find(std::string_view key) const {
  const auto found = std::find_if(entries.begin(), entries.end(), [&](const Entry& entry) { return entry.key == key; });
  return found == entries.end() ? nullptr : &*found;
}

Node::Entry* Node::find(std::string_view key) {
  return const_cast<Entry*>(static_cast<const Node*>(this)->find(key));
}

bool Node::is_null() const {
  return kind == Kind::kScalar && is_null_word(text, quoted);
}

Node parse_yaml(std::string_view text, const std::string& file, Diagnostics& problems) {
  TreeBuilder builder(file, problems);
  const auto report = [&](const SyntaxFault& fault) {
    problems.add("yaml-syntax").says(fault.message).hint(fault.help).at({file, fault.line, fault.column});
  };
  if (text.size() > kMaxRecipe) {
    problems.add("yaml-syntax")
        .says("the text has {} bytes; at most {} are read", text.size(), kMaxRecipe)
        .at({file, 1, 1});
    return {};
  }
  if (const auto valid = text_length(text); valid < text.size()) {
    const auto before = text.substr(0, valid);
    const auto line_begin = before.rfind('\n') + 1;  // 0 on the first line
    problems.add("yaml-syntax")
        .says("the byte 0x{:02x} is not UTF-8 text", static_cast<unsigned char>(text[valid]))
        .hint("save the file as UTF-8")
        .at({file, static_cast<int>(std::ranges::count(before, '\n')) + 1, static_cast<int>(valid - line_begin) + 1});
    return {};
  }
  try {
    // With a line break at the end, a quote that is not closed there is found below instead of far from where it opens.
    std::istringstream stream{std::string(text) + "\n"};
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
    if (const auto& quoted = builder.last_quoted())
      if (const auto fault = find_quote_fault(text, quoted->line, quoted->column, 0)) report(*fault);
  } catch (const YAML::DeepRecursion& error) {
    problems.add("yaml-syntax")
        .says("lists and mappings are nested more than {} deep", error.depth() - 1)
        .hint("no key of a recipe needs that")
        .at({file, error.mark.line + 1, error.mark.column + 1});
  } catch (const YAML::Exception& error) {
    report(fault_of(text, error, builder));
  }
  return builder.take();
}

Value to_value(const Node& node) {
  if (node.kind == Node::Kind::kScalar) return scalar_value(node.text, node.quoted);
  if (node.kind == Node::Kind::kList) {
    Value::List list;
    for (const auto& item : node.items) list.push_back(to_value(item));
    return list;
  }
  Value map = Value::Map{};
  for (const auto& entry : node.entries) map.map()->emplace_back(entry.key, to_value(entry.value));
  return map;
}

}  // namespace automodel::config
