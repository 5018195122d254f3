#include "data/tokenizer.h"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "base/spelling.h"

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

struct TokenizerKind {
  std::string_view name;
  std::unique_ptr<Tokenizer> (*open)();
};
constexpr std::array kKinds = {TokenizerKind{"bytes", make_byte_tokenizer}};

}  // namespace

std::unique_ptr<Tokenizer> make_byte_tokenizer() {
  return std::make_unique<ByteTokenizer>();
}

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& name, const std::string& key, Diagnostics& problems) {
  std::vector<std::string_view> names;
  for (const auto& kind : kKinds) {
    if (name == kind.name) return kind.open();
    names.push_back(kind.name);
  }
  problems.push_back({"bad-value", fmt::format("there is no tokenizer '{}'", name), suggestion(name, names), {}, key});
  return nullptr;
}

}  // namespace automodel::data
