#include "tokenizer/surround.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace automodel::tokenizer {
namespace {

constexpr std::int64_t kMostId = (1 << 30) - 1;
constexpr std::size_t kMostAround = 256;  ///< tokens that every row gets; the known files have at most four

/// Tokens are added outside those of earlier processors.
void add_before(Surround& out, const std::vector<Id>& ids) {
  out.before.insert(out.before.begin(), ids.begin(), ids.end());
}

void read_template(const JsonPart& part, Surround& out) {
  Surround own;
  int sequences = 0;
  for (const auto& item : part.items("single")) {
    if (item.has("Sequence")) {
      ++sequences;
      continue;
    }
    if (!item.has("SpecialToken")) {
      item.fail("Sequence or SpecialToken is expected");
      return;
    }
    const std::string name = item.at("SpecialToken").text("id");
    const JsonPart token = part.at("special_tokens").at(name);
    for (const auto& id : token.items("ids")) {
      if (!id.node().is_number_integer() || id.node().get<std::int64_t>() < 0 ||
          id.node().get<std::int64_t>() > kMostId)
        return id.fail("an id is expected");
      if (own.before.size() + own.after.size() > kMostAround) break;  // said at the end
      (sequences == 0 ? own.before : own.after).push_back(id.node().get<Id>());
    }
  }
  if (sequences != 1) return part.at("single").fail("the text must stand in it once");
  add_before(out, own.before);
  out.after.insert(out.after.end(), own.after.begin(), own.after.end());
}

/// Reads a pair such as ["[CLS]", 101].
Id read_pair(const JsonPart& part) {
  const auto& node = part.node();
  if (node.is_array() && node.size() == 2 && node[1].is_number_integer() && node[1].get<std::int64_t>() >= 0 &&
      node[1].get<std::int64_t>() <= kMostId)
    return node[1].get<Id>();
  part.fail("a token and its id are expected");
  return 0;
}

/// `closed`: after TemplateProcessing, `tokenizers` takes every token around the text for a text of its own.
void add(const JsonPart& part, Surround& out, bool& closed) {
  const std::string type = part.type();
  if (part.path().size() > 300) return part.fail("sequences lie too deep in each other");
  if (out.before.size() + out.after.size() > kMostAround) return;  // said at the end
  if (closed && type != "Sequence" && type != "ByteLevel")
    return part.fail("nothing that adds tokens may follow TemplateProcessing");
  if (type == "Sequence") {
    for (const auto& item : part.items("processors")) add(item, out, closed);
  } else if (type == "TemplateProcessing") {
    read_template(part, out);
    closed = true;
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    add_before(out, {read_pair(part.at("cls"))});
    out.after.push_back(read_pair(part.at("sep")));
    if (type == "RobertaProcessing") out.trims = part.flag("trim_offsets", true);
  } else if (type == "ByteLevel") {
    out.trims = part.flag("trim_offsets", true);
  } else {
    part.refuse_type("post_processor",
                     {"TemplateProcessing", "ByteLevel", "BertProcessing", "RobertaProcessing", "Sequence"});
  }
}

}  // namespace

Surround Surround::read(const JsonPart& part) {
  Surround out;
  bool closed = false;
  if (!part.is_null()) add(part, out, closed);
  if (out.before.size() + out.after.size() > kMostAround)
    part.fail(fmt::format("more than {} tokens stand around a text", kMostAround));
  return out;
}

}  // namespace automodel::tokenizer
