#include "train/generate_run.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/bytes.h"
#include "base/utf8.h"
#include "config/generate_request.h"
#include "data/picture_text.h"
#include "data/tokenizer.h"
#include "estimate/estimated_plan.h"
#include "pictures/decode.h"
#include "plan/vision_choice.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/template_value.h"
#include "train/generate.h"
#include "train/runtime.h"
#include "train/setup.h"
#include "train/text_stream.h"
#include "train/weight_files.h"
#include "train/world_settings.h"

namespace automodel::train {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

/// The result for one prompt.
struct Answer {
  std::string prompt = {};
  std::string text = {};
  std::size_t prompt_tokens = 0;
  std::vector<std::int32_t> ids = {};
  double first_seconds = 0, seconds = 0;  ///< until the first token; in total
  bool ended = false;                     ///< by a token that ends texts
  std::vector<double> logits = {};        ///< behind the prompt, whose tokens are then `ids`
};

void add_ends(const Json& config, std::vector<std::int64_t>& out) {
  if (!config.is_object() || !config.contains("eos_token_id")) return;
  const auto& ids = config["eos_token_id"];
  if (ids.is_number_integer()) out.push_back(ids.get<std::int64_t>());
  if (!ids.is_array()) return;
  for (const auto& id : ids)
    if (id.is_number_integer()) out.push_back(id.get<std::int64_t>());
}

/// The tokens that end a text: the tokenizer's, and those of generation_config.json and config.json, where a model with
/// pictures has them among its decoder's settings.
std::vector<std::int64_t> ends_of(const fs::path& folder, const data::Tokenizer& tokenizer) {
  std::vector<std::int64_t> out;
  if (const auto end = tokenizer.eos()) out.push_back(*end);
  for (const char* name : {"generation_config.json", "config.json"}) {
    std::error_code error;
    if (!fs::is_regular_file(folder / name, error)) continue;
    std::ifstream file(folder / name, std::ios::binary);
    const auto config = Json::parse(file, nullptr, /*allow_exceptions=*/false);
    add_ends(config, out);
    if (config.is_object() && config.contains("text_config")) add_ends(config["text_config"], out);
  }
  return out;
}

class GenerateRun {
 public:
  GenerateRun(const config::GenerateRequest& request, comm::World& world)
      : request_(request), world_(world), loaded_(config::recipe_of(request)), plan_(make_plan()) {
    Diagnostics problems;
    const auto& model = *plan_.model;
    if (model.spec.architecture.ends_with("ForSequenceClassification")) {
      problems.add("unsupported-model")
          .says("'{}' is a classifier ({}): it gives labels, not text", model.folder.native(), model.spec.architecture)
          .hint("name a causal language model");
      agree(world, loaded_, std::move(problems));
    }
    const auto files = WeightFiles::open(model.folder, model, world.rank() == 0, problems);
    const auto adapters = open_adapters(problems);
    tokenizer_ = data::open_tokenizer(request.tokenizer(), {}, "tokenizer", problems);
    if (request.chat() || (model.spec.vision && !request.images().empty())) open_template(problems);
    open_pictures(problems);
    if (tokenizer_ && tokenizer_->vocab_size() > model.spec.vocab)
      problems.add("token-out-of-range")
          .says("the tokenizer has {} ids, the model's vocabulary {}", tokenizer_->vocab_size(), model.spec.vocab)
          .hint("name the tokenizer that the model was trained with: '--tokenizer DIR'");
    agree(world, loaded_, std::move(problems));
    auto weights = stored_values(files);
    if (adapters)
      weights =
          adapters_over(std::move(weights), [adapters](const model::Weight& weight, std::int64_t first,
                                                       const at::Tensor& out) { adapters->read(weight, first, out); });
    runtime_ = std::make_unique<Runtime>(plan_, world, std::move(weights));
    generator_ = std::make_unique<Generator>(*runtime_);
    generator_->set_pictures(pictures_);
    options_ = {.tokens = request.max_new_tokens(),
                .temperature = request.temperature(),
                .top_k = request.top_k(),
                .top_p = request.top_p(),
                .seed = static_cast<std::uint64_t>(request.seed()),
                .ends = ends_of(model.folder, *tokenizer_)};
  }

  ExitCode execute() {
    if (request_.chat() && request_.prompts().empty()) {
      converse();
    } else {
      auto prompts = request_.prompts();
      if (prompts.empty()) prompts.push_back(standard_input());
      for (const auto& prompt : prompts) answer(prompt);
    }
    if (request_.json() && world_.rank() == 0) print_json(request_.logits() ? logits_json() : answers_json());
    return ExitCode::kOk;
  }

 private:
  estimate::EstimatedPlan make_plan() {
    if (!loaded_.problems.empty()) throw Error(ExitCode::kBadInput, loaded_.problems);
    use_settings(world_, loaded_.recipe);
    auto result = estimate::make_plan(loaded_, {.world_size = world_.size(),
                                                .training = true,
                                                .cuda_available = world_.device().is_cuda(),
                                                .ranks_per_node = world_.local_size()});
    agree(world_, loaded_, std::move(result.problems));
    return std::move(*result.plan);
  }

  /// The adapters, whose scale becomes the plan's; null if there are none, or after problems.
  std::shared_ptr<const AdapterFiles> open_adapters(Diagnostics& problems) {
    if (request_.adapters().empty()) return nullptr;
    const auto before = problems.size();
    auto out = AdapterFiles::open(request_.adapters(), *plan_.adapters, problems);
    for (std::size_t i = before; i < problems.size(); ++i)
      if (problems[i].key == "peft")  // as if a recipe had named them
        problems[i].help = "the adapters belong to another model; name theirs with --base";
    if (!out) return nullptr;
    auto& spec = plan_.adapters->spec;
    spec.alpha = out->config().scale(spec.rank) * spec.rank;
    return out;
  }

  void open_template(Diagnostics& problems) {
    const auto* folder = tokenizer_ ? tokenizer_->folder() : nullptr;
    if (tokenizer_ && (folder == nullptr || !folder->chat_template())) {
      problems.add("no-chat-template")
          .says("the tokenizer '{}' has no chat template", request_.tokenizer())
          .hint(request_.images().empty() ? "leave --chat out, or name a tokenizer that has one: '--tokenizer DIR'"
                                          : "pictures need one: name a tokenizer that has it, '--tokenizer DIR'");
      return;
    }
    if (folder != nullptr)
      template_ =
          tokenizer::ChatTemplate::parse(*folder->chat_template(), request_.tokenizer() + " (chat template)", problems);
  }

  /// Reads the pictures, and how text stands around them.
  void open_pictures(Diagnostics& problems) {
    const auto tokens = plan::picture_tokens(*plan_.model);
    if (!tokens) {
      if (!request_.images().empty())
        problems.add("unsupported-model")
            .says("'{}' has no vision tower: it cannot be asked about pictures", plan_.model->folder.native())
            .hint("leave --image out, or name a model that takes pictures: docs/models.md")
            .at({"command line", 0, 0});
      return;
    }
    if (const auto* folder = tokenizer_ ? tokenizer_->folder() : nullptr)
      picture_text_ = data::PictureText::open(
          *folder,
          [folder](std::string_view text, bool special) {
            std::vector<std::int32_t> ids;
            tokenizer::Encoder(*folder).encode(text, special, ids);
            return ids;
          },
          *tokens, "tokenizer", problems);
    data::TextPixels pixels(tokens->processor);
    for (const auto& file : request_.images()) {
      std::error_code ignored;
      if (!fs::exists(file, ignored)) {
        problems.add("missing-file")
            .says("there is no picture '{}'", file)
            .hint("--image names a JPEG, PNG or WebP file; nothing is downloaded")
            .at({"command line", 0, 0});
        continue;
      }
      try {
        pictures_.push_back(pictures::read_picture(file));
        sizes_.push_back(pictures_.back()->size);
        pixels.add(sizes_.back());
      } catch (const pictures::PictureError& error) {
        problems.add("bad-file")
            .says("the picture '{}' cannot be used: {}", file, error.what())
            .hint("a JPEG, PNG or WebP file within the limits of SECURITY.md")
            .at({"command line", 0, 0});
      }
    }
  }

  /// All of standard input, on every rank.
  std::string standard_input() {
    std::string text;
    if (world_.rank() == 0) text.assign(std::istreambuf_iterator<char>(std::cin), {});
    return world_.broadcast_text(text);
  }

  /// The next line of standard input, on every rank; nullopt at its end.
  std::optional<std::string> next_line() {
    std::string text = "-";
    if (world_.rank() == 0) {
      if (isatty(STDIN_FILENO) != 0) std::fputs("> ", stderr);
      if (std::string line; std::getline(std::cin, line)) text = "+" + line;
    }
    text = world_.broadcast_text(text);
    return text[0] == '+' ? std::optional(text.substr(1)) : std::nullopt;
  }

  /// Encodes a text as in training. `special`: with the special tokens that the tokenizer adds.
  std::vector<std::int32_t> encode(const std::string& text, bool special) const {
    std::vector<std::int32_t> ids;
    if (const auto* folder = tokenizer_->folder())
      tokenizer::Encoder(*folder).encode(text, special, ids);
    else
      tokenizer_->encode(text, ids);
    if (ids.empty()) ids.push_back(tokenizer_->bos().value_or(tokenizer_->eos().value_or(0)));
    return ids;
  }

  std::string render(const Json& messages) const {
    try {
      return template_->render(messages, /*add_generation_prompt=*/true, tokenizer_->folder()->roles());
    } catch (const tokenizer::TemplateError& error) {
      throw Error(Diagnostic{"bad-template"}
                      .says("the chat template refuses the conversation (its line {}): {}", error.line, error.what())
                      .hint("the template may want another order of roles, or no --system")
                      .at({"command line", 0, 0}));
    }
  }

  /// A message; with `pictures`, about them. To a model that takes pictures contents are lists, as its processor's
  /// template expects them.
  Json message(const char* role, const std::string& text, bool pictures = false) const {
    if (!picture_text_) return {{"role", role}, {"content", text}};
    Json content = Json::array();
    if (pictures) content = Json(pictures_.size(), {{"type", "image"}});
    content.push_back({{"type", "text"}, {"text", text}});
    return {{"role", role}, {"content", std::move(content)}};
  }

  Json opening() const {
    Json messages = Json::array();
    if (request_.system()) messages.push_back(message("system", *request_.system()));
    return messages;
  }

  /// The tokens of a conversation up to the answer.
  std::vector<std::int32_t> encode_chat(const Json& messages) const {
    const auto text = render(messages);
    if (!picture_text_) return encode(text, false);
    return with_pictures(picture_text_->ids(text));
  }

  std::vector<std::int32_t> with_pictures(const std::vector<std::int32_t>& ids) const {
    try {
      return picture_text_->with_pictures(ids, sizes_, data::kMostPictureTokens);
    } catch (const data::RowRefused& error) {
      const auto placeholder = picture_text_->tokens().placeholder;
      const auto name = tokenizer_->folder()->token(placeholder);
      const auto places = std::ranges::count(ids, placeholder);
      const auto shown = static_cast<std::ptrdiff_t>(sizes_.size());
      throw Error(
          Diagnostic{"bad-value"}
              .says("the prompt cannot be asked about the pictures: {}", error.what())
              .hint(places == shown ? "show fewer or smaller pictures"
                    : places > shown
                        ? fmt::format("leave '{}' out of the text: --image puts it there, once for each picture", name)
                        : fmt::format("the chat template must put '{}' where a message has a picture", name))
              .at({"command line", 0, 0}));
    }
  }

  void converse() {
    Json messages = opening();
    while (const auto line = next_line()) {
      messages.push_back(message("user", *line, answers_.empty()));
      generate(*line, encode_chat(messages));
      messages.push_back(message("assistant", answers_.back().text));
    }
  }

  void answer(const std::string& prompt) {
    if (!template_) {
      const auto ids = encode(prompt, true);
      const auto whole = picture_text_ ? with_pictures(ids) : ids;
      if (world_.rank() == 0 && !request_.json()) std::fputs(prompt.c_str(), stdout);
      return give(prompt, whole);
    }
    Json messages = opening();
    messages.push_back(message("user", prompt, true));
    give(prompt, encode_chat(messages));
  }

  void give(const std::string& prompt, std::vector<std::int32_t> ids) {
    if (!request_.logits()) return generate(prompt, std::move(ids));
    check_room(ids);
    auto logits = generator_->next_logits(ids);
    answers_.push_back({.prompt = prompt, .ids = std::move(ids), .logits = std::move(logits)});
  }

  /// What a model says reaches a terminal without control characters, and without the blank lines at its end: a base
  /// model fills what is left of --max-new-tokens with them. A file or pipe gets every byte.
  void show(const std::string& text) {
    auto shown = text;
    if (isatty(STDOUT_FILENO) != 0) {
      shown = blank_ + text;
      const auto end = shown.find_last_not_of(" \t\r\n") + 1;  // 0 where all is blank
      blank_ = shown.substr(end);
      shown = printable_lines(shown.substr(0, end));
    }
    std::fwrite(shown.data(), 1, shown.size(), stdout);
    std::fflush(stdout);
  }

  /// How many tokens can follow these, which leave room for at least one.
  std::int64_t check_room(const std::vector<std::int32_t>& ids) const {
    const std::int64_t positions = plan_.model->spec.max_positions;
    if (positions == 0) return std::numeric_limits<int>::max();
    const auto room = positions - static_cast<std::int64_t>(ids.size());
    if (room <= 0)
      throw Error(Diagnostic{"prompt-too-long"}
                      .says("the text{} has {} tokens, the model has positions for {}",
                            pictures_.empty() ? "" : " with its pictures", ids.size(), positions)
                      .hint(pictures_.empty() ? "shorten the prompt" : "shorten the prompt, or show smaller pictures")
                      .at({"command line", 0, 0}));
    return room;
  }

  void generate(const std::string& prompt, std::vector<std::int32_t> ids) {
    auto options = options_;
    options.tokens = static_cast<int>(std::min<std::int64_t>(options.tokens, check_room(ids)));
    Answer out{.prompt = prompt, .prompt_tokens = ids.size()};
    const bool prints = world_.rank() == 0 && !request_.json();
    constexpr std::size_t kBefore = 4;  // the most tokens that one character can span
    TextStream stream([&](std::span<const std::int32_t> part) { return tokenizer_->decode(part); },
                      {ids.end() - static_cast<std::ptrdiff_t>(std::min(ids.size(), kBefore)), ids.end()});
    const auto begin = Clock::now();
    const auto passed = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
    options.on_token = [&](std::int32_t token) {
      if (out.first_seconds == 0) out.first_seconds = passed();
      const auto text = stream.add(token);
      if (!prints || text.empty()) return;
      show(text);
    };
    out.ids = generator_->continue_text(std::move(ids), options);
    out.seconds = passed();
    const auto rest = stream.finish();
    out.text = stream.text();
    out.ended = std::find(options.ends.begin(), options.ends.end(), out.ids.back()) != options.ends.end();
    if (prints) {
      show(rest);
      blank_.clear();
      std::fputs("\n", stdout);
      std::fflush(stdout);
      say(out, options.tokens < options_.tokens);
    }
    answers_.push_back(std::move(out));
  }

  void say(const Answer& answer, bool cut) const {
    const auto later = static_cast<double>(answer.ids.size() - 1);
    const auto rate =  // of the tokens after the first one, which reading the prompt gives
        later > 0 ? fmt::format(", {:.1f} tokens/s", later / (answer.seconds - answer.first_seconds)) : "";
    std::fputs(fmt::format(
                   "[{} tokens read in {:.2f} s, {} written{}; {}{}]\n", answer.prompt_tokens, answer.first_seconds,
                   answer.ids.size(), rate,
                   generator_->cache_bytes() > 0
                       ? fmt::format("keys and values {}", format_bytes(static_cast<double>(generator_->cache_bytes())))
                       : "no key-value cache: the model has layers without keys",
                   answer.ended ? "; the model ended its text"
                   : cut        ? "; the model's positions are used up"
                                : "")
                   .c_str(),
               stderr);
  }

  /// In float32's shortest text, so that files of two exports differ where their numbers do.
  static double shortest(double value) { return std::stod(fmt::format("{}", static_cast<float>(value))); }

  Json logits_json() const {
    Json list = Json::array();
    for (const auto& each : answers_) {
      Json logits = Json::array();
      for (const double value : each.logits) logits.push_back(shortest(value));
      list.push_back({{"prompt", each.prompt}, {"ids", each.ids}, {"logits", std::move(logits)}});
    }
    return list;
  }

  Json answers_json() const {
    Json list = Json::array();
    for (const auto& each : answers_)
      list.push_back({{"prompt", each.prompt},
                      {"text", each.text},
                      {"ids", each.ids},
                      {"prompt_tokens", each.prompt_tokens},
                      {"ended", each.ended},
                      {"seconds_to_first_token", each.first_seconds},
                      {"seconds", each.seconds}});
    return list;
  }

  void print_json(const Json& answers) const {
    const Json document = {{"folder", request_.adapters().empty() ? request_.folder() : request_.adapters()},
                           {"answers", answers}};
    std::fputs((document.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n").c_str(), stdout);
  }

  const config::GenerateRequest& request_;
  comm::World& world_;
  config::LoadedRecipe loaded_;
  estimate::EstimatedPlan plan_;
  std::unique_ptr<data::Tokenizer> tokenizer_;
  std::unique_ptr<const tokenizer::ChatTemplate> template_;
  std::optional<data::PictureText> picture_text_ = {};  ///< of a model that takes pictures
  std::vector<pictures::PicturePtr> pictures_ = {};
  std::vector<pictures::Size> sizes_ = {};  ///< theirs
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<Generator> generator_;
  GenerateOptions options_ = {};
  std::vector<Answer> answers_ = {};
  std::string blank_ = {};  ///< not shown yet: shown if more text follows
};

}  // namespace

ExitCode run_generation(const std::string& text, comm::World& world) {
  Diagnostics problems;
  const auto request = config::parse_generate_request(text, problems);
  if (!problems.empty()) throw Error(ExitCode::kBadInput, std::move(problems));
  use_threads(world);
  return GenerateRun(request, world).execute();
}

}  // namespace automodel::train
