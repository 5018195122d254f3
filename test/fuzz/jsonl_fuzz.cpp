// An arbitrary line as a row: it is read as tokens or as a conversation, or refused with a reason.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "data/conversation.h"
#include "data/token_row.h"

namespace {

using namespace automodel;  // NOLINT(google-build-using-namespace): a program of one file

/// The byte-level vocabulary with a chat template.
class Chat final : public data::Tokenizer {
 public:
  Chat() {
    Diagnostics problems;
    own_ = tokenizer::Tokenizer::parse(
        {.tokenizer = R"({"model": {"type": "BPE", "unk_token": "?", "vocab": {"?": 0, "a": 1}, "merges": []}})",
         .config = R"({"bos_token": "a"})",
         .folder = "fuzz"},
        problems);
    if (!own_) std::abort();
  }
  std::int32_t vocab_size() const override { return 2; }
  std::optional<std::int32_t> bos() const override { return 1; }
  std::optional<std::int32_t> eos() const override { return 1; }
  std::optional<std::int32_t> pad() const override { return 1; }
  void encode(std::string_view text, std::vector<std::int32_t>& out) const override {
    tokenizer::Encoder(*own_).encode(text, false, out);
  }
  std::string decode(std::span<const std::int32_t> ids) const override { return own_->decode(ids, true); }
  const tokenizer::Tokenizer* folder() const override { return own_.get(); }

 private:
  std::unique_ptr<const tokenizer::Tokenizer> own_;
};

void check(data::ConversationEncoder& encoder, const std::string& line) {
  data::Sample sample;
  const auto problem = encoder.encode(line, sample);
  if (problem && (problem->reason.empty() || problem->column < 1)) std::abort();
  if (!problem && (sample.input_ids.empty() || sample.labels.size() != sample.input_ids.size())) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Chat chat;
  static const auto bytes = data::make_byte_tokenizer();
  static const auto chat_template = [] {
    Diagnostics problems;
    return tokenizer::ChatTemplate::parse(
        "{% for m in messages %}{{ '<' + m['role'] + '>' + m.content | trim }}{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}",
        "fuzz", problems);
  }();
  const std::string line(reinterpret_cast<const char*>(data), size);
  data::ConversationEncoder plain(*bytes, nullptr, {});
  check(plain, line);
  data::ConversationEncoder rendered(chat, chat_template.get(), {});
  check(rendered, line);
  data::TokenRow row;
  if (const auto problem = data::parse_token_row(line, row); problem && problem->reason.empty()) std::abort();
  return 0;
}
