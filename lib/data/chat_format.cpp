#include "data/chat_format.h"

#include <algorithm>
#include <map>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file_text.h"
#include "base/find_file.h"
#include "data/messages.h"
#include "rows/load.h"
#include "tokenizer/named_templates.h"

namespace automodel::data {
namespace {

using nlohmann::ordered_json;

bool is_assistant(const ordered_json& message) {
  return message.value("role", ordered_json()) == "assistant";
}

/// Keeps only the last run of set items.
template <class Is, class Clear>
void keep_last_run(std::size_t size, Is is, Clear clear) {
  std::size_t end = size;
  while (end > 0 && !is(end - 1)) --end;
  std::size_t begin = end;
  while (begin > 0 && is(begin - 1)) --begin;
  for (std::size_t i = 0; i < begin; ++i) clear(i);
}

/// Moves the system text into the first user message, for templates without a system role.
ordered_json without_system(const ordered_json& messages) {
  ordered_json out = ordered_json::array();
  const auto system = std::find_if(messages.begin(), messages.end(), [](const auto& message) {
    return message.value("role", ordered_json()) == "system";
  });
  if (system == messages.end()) return messages;
  const auto text = [](const ordered_json& message) {
    const auto content = message.value("content", ordered_json(""));
    return content.is_string() ? content.get<std::string>() : content.dump();
  };
  bool done = false;
  for (const auto& message : messages) {
    if (message.value("role", ordered_json()) == "system") continue;
    out.push_back(message);
    if (done || message.value("role", ordered_json()) != "user") continue;
    out.back()["content"] = text(*system) + "\n" + text(message);
    done = true;
  }
  if (!done) out.insert(out.begin(), ordered_json{{"role", "user"}, {"content", text(*system)}});
  return out;
}

constexpr std::size_t kMostTemplateFile = 8 * tokenizer::TemplateBudget::kMostSource;  // as JSON it may be escaped

std::optional<std::string> template_source(const std::string& source, const DatasetContext& context,
                                           const std::string& key, Diagnostics& problems) {
  const bool inline_text = source.find("{%") != std::string::npos || source.find("{{") != std::string::npos;
  if (inline_text) return source;
  if (const auto* named = tokenizer::find_named_template(source)) return std::string(named->text);
  const auto place = find_beside(source, context.recipe_folder);
  std::error_code error;
  if (!place || !std::filesystem::is_regular_file(*place, error)) {
    problems.add("missing-file", key)
        .says("there is no chat template '{}'", source)
        .hint("name a file in Jinja or JSON, chatml or llama3, or write the template itself");
    return std::nullopt;
  }
  auto [text, problem, too_large] = file_text(*place, kMostTemplateFile);
  if (!problem.empty()) {
    problems.add("bad-template", key).says("'{}' cannot be read: {}", place->native(), problem);
    return std::nullopt;
  }
  const auto document = nlohmann::json::parse(text, nullptr, false);
  if (document.is_object() && document.contains("chat_template") && document["chat_template"].is_string())
    return document["chat_template"].get<std::string>();
  return text;
}

}  // namespace

std::unique_ptr<const ChatFormat> ChatFormat::open(std::shared_ptr<const RowTokenizer> tokenizer,
                                                   const std::optional<std::string>& source,
                                                   const DatasetContext& context, Diagnostics& problems) {
  const std::string key = context.key + ".chat_template";
  const auto text = source ? template_source(*source, context, key, problems) : tokenizer->folder().chat_template();
  if (!text) return nullptr;
  auto out = std::make_unique<ChatFormat>();
  const std::size_t before = problems.size();
  out->plain_ = tokenizer::ChatTemplate::parse(*text, source.value_or("chat template of the tokenizer"), problems);
  out->marks_ = tokenizer::ChatTemplate::marks_generation(*text);
  out->text_ = *text;
  if (const auto& tools = tokenizer->folder().tool_template(); tools && !source) {
    out->with_tools_ = tokenizer::ChatTemplate::parse(*tools, "tool_use template of the tokenizer", problems);
    out->text_ += "\n" + *tools;
  }
  for (std::size_t i = before; i < problems.size(); ++i) problems[i].key = key;
  out->tokenizer_ = std::move(tokenizer);
  if (problems.size() > before) return nullptr;
  return out;
}

void RenderedMessages::add(std::size_t messages) {
  count_ += messages;
  if (count_ > kMost)
    throw RowRefused(fmt::format(
        "the conversation has too many messages: it is rendered again for each turn that counts, {} messages in all",
        kMost));
}

/// One row's messages: renders and encodes them, and determines which tokens count.
class ChatFormat::Conversation {
 public:
  Conversation(const ChatFormat& owner, const ordered_json& messages, const ordered_json& tools,
               const ChatOptions& options)
      : owner_(owner), tokenizer_(*owner.tokenizer_), messages_(messages), tools_(tools), options_(options) {
    if (tokenizer_.plain()) return;
    const auto systems = std::count_if(messages.begin(), messages.end(), [](const auto& message) {
      return message.value("role", ordered_json()) == "system";
    });
    if (systems > 1) throw RowRefused("the conversation has more than one system message");
  }

  BuiltRow build() {
    const std::string text = render(messages_, &marked_);
    check_calls(messages_, text, [&](const ordered_json& others) { return render(others); });
    encoded_ = encoded(text);
    for (std::size_t t = 0; t < encoded_.ids.size(); ++t)
      if (encoded_.real[t]) plain_.push_back(encoded_.ids[t]);
    counts_.assign(encoded_.ids.size(), false);
    if (owner_.marks_)
      count_marked();
    else if (options_.answer_only)
      count_answers();
    else
      counts_.assign(encoded_.ids.size(), true);
    for (std::size_t t = 0; t < counts_.size(); ++t) counts_[t] = counts_[t] && encoded_.real[t];
    if (options_.last_turn)
      keep_last_run(
          counts_.size(), [&](std::size_t t) { return counts_[t]; }, [&](std::size_t t) { counts_[t] = false; });
    if (options_.mask_reasoning) mask_reasoning(text);
    BuiltRow out = package(encoded_.ids, counts_, options_.lengths.full, tokenizer_);
    if (options_.last_labels)
      keep_last_run(
          out.labels.size(), [&](std::size_t t) { return out.labels[t] != kIgnoredLabel; },
          [&](std::size_t t) { out.labels[t] = kIgnoredLabel; });
    return out;
  }

  std::string render(const ordered_json& messages, std::vector<tokenizer::TextSpan>* marked = nullptr) {
    if (messages.empty()) throw RowRefused("the conversation has nothing before the assistant's first turn");
    rendered_.add(messages.size());
    const auto& chat = tools_.is_array() && owner_.with_tools_ ? *owner_.with_tools_ : *owner_.plain_;
    try {
      return chat.render(messages, tools_, false, tokenizer_.roles(), marked);
    } catch (const tokenizer::TemplateError& error) {
      if (marked != nullptr) marked->clear();
      const bool no_system = std::string_view(error.what()).find("System role not supported") != std::string_view::npos;
      if (!no_system || tokenizer_.plain())
        throw RowRefused(fmt::format("the chat template refuses the row (its line {}): {}", error.line, error.what()));
      try {
        return chat.render(without_system(messages), tools_, false, tokenizer_.roles(), marked);
      } catch (const tokenizer::TemplateError& again) {
        throw RowRefused(fmt::format("the chat template refuses the row (its line {}): {}", again.line, again.what()));
      }
    }
  }

 private:
  Encoding encoded(const std::string& text) const {
    const auto& lengths = options_.lengths;
    try {
      return tokenizer_.encode(
          text, {.special = false, .limit = lengths.limit, .full = lengths.full, .spans = owner_.marks_});
    } catch (const Error& error) {
      if (!owner_.marks_) throw;
      throw RowRefused(error.problems().front().message);  // the place of a token cannot be told
    }
  }

  /// The token that covers a byte of the text; the number of tokens if none does.
  std::size_t token_at(std::size_t byte) const {
    for (std::size_t t = 0; t < encoded_.spans.size(); ++t)
      if (encoded_.spans[t].begin <= byte && byte < encoded_.spans[t].end) return t;
    return encoded_.spans.size();
  }

  /// Once a marked span's start has been truncated, it and all later spans are ignored, as in transformers.
  void count_marked() {
    for (const auto& span : marked_) {
      const std::size_t first = token_at(span.begin), none = encoded_.spans.size();
      if (first == none) return;
      std::size_t last = span.end > 0 ? token_at(span.end - 1) : none;
      if (last == none || last == 0) last = none - 1;
      for (std::size_t t = first; t <= last; ++t) counts_[t] = true;
    }
  }

  void count_answers() {
    bool any = false;
    for (std::size_t i = 0; i < messages_.size(); ++i) {
      if (!is_assistant(messages_[i])) continue;
      any = true;
      const std::size_t begin = tokens_up_to(i), end = tokens_up_to(i + 1);
      for (std::size_t t = begin; t < std::min(end, counts_.size()); ++t) counts_[t] = true;
    }
    if (!any) throw RowRefused("the conversation has no turn of the assistant to learn");
    shift_over_padding(counts_);
  }

  /// Number of tokens of the first `count` messages, whose rendering must be a prefix of the whole.
  std::size_t tokens_up_to(std::size_t count) {
    if (count == messages_.size()) return plain_.size();
    if (const auto known = lengths_.find(count); known != lengths_.end()) return known->second;
    ordered_json first = ordered_json::array();
    for (std::size_t i = 0; i < count; ++i) first.push_back(messages_[i]);
    const auto ids = tokenizer_.encode(render(first), {.special = false, .limit = options_.lengths.limit}).ids;
    const auto begins = [&](std::size_t size) {
      return size <= plain_.size() &&
             std::equal(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(size), plain_.begin());
    };
    const bool same = begins(ids.size()) || (ids.size() > 1 && ids.size() <= plain_.size() && tokenizer_.eos() &&
                                             ids.back() == *tokenizer_.eos() && begins(ids.size() - 1));
    if (!same)
      throw RowRefused(
          fmt::format("the template renders the first {} messages otherwise than the whole, so that it "
                      "cannot be told which tokens the assistant says",
                      count));
    return lengths_[count] = ids.size();
  }

  /// Shifts a mask relative to the first real token to account for left padding.
  void shift_over_padding(std::vector<bool>& mask) const {
    const std::size_t padding = encoded_.ids.size() - plain_.size();
    if (!tokenizer_.pads_left() || padding == 0) return;
    mask.insert(mask.begin(), padding, false);
    mask.resize(encoded_.ids.size());
  }

  /// Renders the conversation without each turn's reasoning in turn; the tokens that differ are the reasoning.
  void mask_reasoning(const std::string& text) {
    std::vector<std::int32_t> whole = plain_;
    std::size_t base = 0;  // tokens truncated on the left
    if (options_.lengths.limit) {
      whole = tokenizer_.encode(text, {.special = false}).ids;
      if (!std::equal(plain_.begin(), plain_.end(), whole.begin())) base = whole.size() - plain_.size();
    }
    std::vector<bool> hole(encoded_.ids.size(), false);
    for (std::size_t i = 0; i < messages_.size(); ++i) {
      const auto reasoning = messages_[i].value("reasoning_content", ordered_json());
      if (!is_assistant(messages_[i]) || !reasoning.is_string() || reasoning.get_ref<const std::string&>().empty())
        continue;
      ordered_json other = messages_;
      other[i]["reasoning_content"] = "";
      const auto ids = tokenizer_.encode(render(other), {.special = false}).ids;
      const std::size_t least = std::min(whole.size(), ids.size());
      std::size_t same = 0, behind = 0;
      while (same < least && whole[same] == ids[same]) ++same;
      while (behind < least - same && whole[whole.size() - 1 - behind] == ids[ids.size() - 1 - behind]) ++behind;
      const std::size_t begin = same > base ? same - base : 0;
      const std::size_t end = whole.size() - behind > base ? whole.size() - behind - base : 0;
      for (std::size_t t = begin; t < std::min(plain_.size(), end); ++t) hole[t] = true;
    }
    shift_over_padding(hole);
    for (std::size_t t = 0; t < counts_.size(); ++t) counts_[t] = counts_[t] && !hole[t];
  }

  const ChatFormat& owner_;
  const RowTokenizer& tokenizer_;
  const ordered_json& messages_;
  const ordered_json& tools_;
  const ChatOptions& options_;
  std::vector<tokenizer::TextSpan> marked_;
  Encoding encoded_;
  std::vector<std::int32_t> plain_;  ///< the ids without padding
  std::vector<bool> counts_;
  std::map<std::size_t, std::size_t> lengths_;
  RenderedMessages rendered_;
};

BuiltRow ChatFormat::build(const ordered_json& messages, const ordered_json& tools, const ChatOptions& options) const {
  return Conversation(*this, messages, tools, options).build();
}

std::string ChatFormat::render(const ordered_json& messages, const ordered_json& tools) const {
  return Conversation(*this, messages, tools, {}).render(messages);
}

std::int64_t ChatFormat::count(const ordered_json& messages, const ordered_json& tools) const {
  const ChatOptions options;
  return tokenizer_->count(Conversation(*this, messages, tools, options).render(messages));
}

}  // namespace automodel::data
