// Arbitrary bytes as a chat template: it renders, or fails with a reason.
#include <cstdint>
#include <cstdlib>
#include <string>

#include <nlohmann/json.hpp>

#include "tokenizer/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace automodel;  // NOLINT(google-build-using-namespace): a program of one file
  const std::string text(reinterpret_cast<const char*>(data), size);
  Diagnostics problems;
  const auto chat = tokenizer::ChatTemplate::parse(text, "fuzz", problems);
  if ((chat == nullptr) == problems.empty()) std::abort();
  if (!chat) return 0;
  const auto messages = nlohmann::ordered_json::parse(
      R"([{"role": "system", "content": "Be kind."}, {"role": "user", "content": " Hi "},
          {"role": "assistant", "content": "Hello", "tool_calls": [{"name": "f", "arguments": {"x": 1.5}}]}])");
  try {
    const auto rendered = chat->render(messages, true, {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
    if (rendered.size() > tokenizer::TemplateBudget::kMostOutput) std::abort();
  } catch (const tokenizer::TemplateError& error) {
    if (error.line < 0) std::abort();
  }
  return 0;
}
