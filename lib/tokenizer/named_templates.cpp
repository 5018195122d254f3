#include "tokenizer/named_templates.h"

#include <algorithm>
#include <array>

namespace automodel::tokenizer {
namespace {

constexpr std::array kTemplates = {
    NamedTemplate{"chatml", "<|im_end|>",
                  R"({% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }})"
                  R"({% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] + '<|im_end|>' }})"
                  R"({% endgeneration %}{{ '\n' }}{% else %}{{ message['content'] + '<|im_end|>\n' }}{% endif %})"
                  R"({% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %})"},
    NamedTemplate{"llama3", "<|eot_id|>",
                  R"({{ bos_token }}{% for message in messages %})"
                  R"({{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }})"
                  R"({% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] | trim }})"
                  R"({{ '<|eot_id|>' }}{% endgeneration %}{% else %}{{ message['content'] | trim }})"
                  R"({{ '<|eot_id|>' }}{% endif %}{% endfor %})"
                  R"({% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }})"
                  R"({% endif %})"},
};

}  // namespace

std::span<const NamedTemplate> named_templates() {
  return kTemplates;
}

const NamedTemplate* find_named_template(std::string_view name) {
  const auto* found = std::ranges::find(kTemplates, name, &NamedTemplate::name);
  return found == kTemplates.end() ? nullptr : found;
}

}  // namespace automodel::tokenizer
