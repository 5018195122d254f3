// A tokenizer in llama.cpp's keys.
#pragma once

#include <filesystem>
#include <string>

#include "arch/model_spec.h"
#include "checkpoint/gguf/gguf_head.h"

namespace automodel::checkpoint {

/// Adds the tokenizer of the model folder: byte-level BPE whose splitting llama.cpp knows by a name (GPT-2, Llama 3,
/// Qwen 2), or BPE over words with "▁" (Llama 2), both from tokenizer.json. Returns what it is, for people; "no
/// tokenizer" if the folder has none, whose file takes ids only. Throws Error (kBadInput, bad-tokenizer).
std::string add_vocabulary(const std::filesystem::path& folder, const arch::ModelSpec& spec, GgufHead& head);

}  // namespace automodel::checkpoint
