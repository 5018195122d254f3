#include "data/tokenizer.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "base/find_file.h"
#include "base/hub.h"
#include "base/spelling.h"
#include "rows/load.h"

namespace automodel::data {
namespace {

class ByteTokenizer final : public Tokenizer {
 public:
  std::int32_t vocab_size() const override { return 259; }
  std::optional<std::int32_t> bos() const override { return 256; }
  std::optional<std::int32_t> eos() const override { return 257; }
  std::optional<std::int32_t> pad() const override { return 258; }
  bool bytes_are_tokens() const override { return true; }
  void encode(std::string_view text, std::vector<std::int32_t>& out) const override {
    for (const char c : text) out.push_back(static_cast<unsigned char>(c));
  }
  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string text;
    for (const std::int32_t id : ids)
      if (id >= 0 && id < 256) text += static_cast<char>(id);
    return text;
  }
};

/// A tokenizer loaded from a folder; encodes one text at a time.
class FolderTokenizer final : public Tokenizer {
 public:
  explicit FolderTokenizer(std::unique_ptr<const tokenizer::Tokenizer> own)
      : own_(std::move(own)), encoder_(std::make_unique<tokenizer::Encoder>(*own_)) {}
  std::int32_t vocab_size() const override { return own_->vocab_size(); }
  std::optional<std::int32_t> bos() const override { return own_->role_id("bos_token"); }
  std::optional<std::int32_t> eos() const override { return own_->role_id("eos_token"); }
  std::optional<std::int32_t> pad() const override { return own_->role_id("pad_token"); }
  const tokenizer::Tokenizer* folder() const override { return own_.get(); }
  void encode(std::string_view text, std::vector<std::int32_t>& out) const override {
    const std::lock_guard lock(mutex_);
    encoder_->encode(text, false, out);
  }
  std::string decode(std::span<const std::int32_t> ids) const override { return own_->decode(ids, true); }

 private:
  std::unique_ptr<const tokenizer::Tokenizer> own_;
  mutable std::mutex mutex_;
  std::unique_ptr<tokenizer::Encoder> encoder_;
};

struct TokenizerKind {
  std::string_view name;
  std::unique_ptr<Tokenizer> (*open)();
};
constexpr std::array kTokenizers = {TokenizerKind{"bytes", make_byte_tokenizer}};

}  // namespace

std::unique_ptr<Tokenizer> make_byte_tokenizer() {
  return std::make_unique<ByteTokenizer>();
}

std::filesystem::path tokenizer_path(const std::string& name, const std::filesystem::path& recipe_folder,
                                     const std::optional<std::string>& revision) {
  if (std::any_of(kTokenizers.begin(), kTokenizers.end(), [&](const auto& kind) { return kind.name == name; }))
    return {};
  if (auto local = find_beside(name, recipe_folder)) return *local;
  return find_snapshot(HubKind::kModel, name, revision);
}

std::string tokenizer_of_model(const std::filesystem::path& folder) {
  std::error_code error;
  for (const char* name : {"tokenizer.json", "tokenizer.model"})
    if (!folder.empty() && std::filesystem::is_regular_file(folder / name, error)) return folder.native();
  return "bytes";
}

TextChoice text_choice(const config::DatasetConfig& dataset) {
  TextChoice out;
  config::each_part(dataset, [&](const auto& section) {
    if constexpr (requires { section.tokenizer().written; }) {
      if (!out.tokenizer) {
        out.tokenizer = section.tokenizer().path;
        out.revision = section.tokenizer().revision;
      }
      out.has_text = true;
    } else if constexpr (requires { section.tokenizer()->size(); }) {
      if (!out.tokenizer) out.tokenizer = section.tokenizer();
      out.has_text = true;
    }
    if constexpr (requires { section.chat_template(); })
      if (!out.chat_template) out.chat_template = section.chat_template();
    using Section = std::decay_t<decltype(section)>;
    if constexpr (std::is_same_v<Section, config::ChatDatasetConfig> ||
                  std::is_same_v<Section, config::AgentChatDatasetConfig> ||
                  std::is_same_v<Section, config::XlamDatasetConfig>)
      out.chats = true;
  });
  return out;
}

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& name, const std::filesystem::path& recipe_folder,
                                          const std::string& key, Diagnostics& problems,
                                          const std::optional<std::string>& revision) {
  std::vector<std::string_view> names;
  for (const auto& kind : kTokenizers) {
    if (name == kind.name) return kind.open();
    names.push_back(kind.name);
  }
  const std::size_t before = problems.size();
  const auto path = tokenizer_path(name, recipe_folder, revision);
  if (!path.empty()) {
    if (auto own = tokenizer::Tokenizer::load(path, problems)) return std::make_unique<FolderTokenizer>(std::move(own));
    for (std::size_t i = before; i < problems.size(); ++i) problems[i].key = key;
    return nullptr;
  }
  const std::string near(nearest(name, names));
  problems.add("bad-value", key)
      .says("there is no tokenizer '{}'", name)
      .hint(near.empty() ? "name a folder with tokenizer.json or a model in the Hugging Face cache, or write bytes"
                         : suggestion(name, names));
  return nullptr;
}

}  // namespace automodel::data
