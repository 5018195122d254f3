// Checkpoints of torch.distributed.checkpoint, made by hand: sound ones are read, and those that would run something,
// or whose files do not fit together, are refused.
#include <cstring>
#include <functional>
#include <numeric>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "arch/families.h"
#include "arch/hf_config.h"
#include "arch/modules.h"
#include "base/error.h"
#include "checkpoint/dcp/dcp_folder.h"
#include "checkpoint/dcp/dcp_writer.h"
#include "checkpoint/dcp/foreign_run.h"
#include "checkpoint/dcp/import.h"
#include "checkpoint/dcp/pickled.h"
#include "checkpoint/dcp/titan_names.h"
#include "checkpoint/format/weight_names.h"
#include "temporary_folder.h"

using namespace automodel;
using namespace automodel::checkpoint;
using automodel::test::TemporaryFolder;

namespace {

using Sizes = std::vector<std::int64_t>;

std::string little(std::uint64_t value, std::size_t size) {
  std::string out;
  for (std::size_t i = 0; i < size; ++i) out += static_cast<char>(value >> (8 * i) & 0xFFU);
  return out;
}

// Pickles, one function per value.
std::string text(const std::string& value) {
  return "X" + little(value.size(), 4) + value;
}
std::string number(std::int64_t value) {
  return "\x8a\x08" + little(static_cast<std::uint64_t>(value), 8);
}
std::string sequence(const std::vector<std::string>& items, char end) {
  return "(" + std::accumulate(items.begin(), items.end(), std::string()) + end;
}
std::string tuple(const std::vector<std::string>& items) {
  return sequence(items, 't');
}
std::string list(const std::vector<std::string>& items) {
  return "]" + sequence(items, 'e');
}
std::string dict(const std::vector<std::string>& keys_and_values) {
  return "}" + sequence(keys_and_values, 'u');
}
std::string named(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}
std::string call(const std::string& module, const std::string& name, const std::vector<std::string>& arguments) {
  return named(module, name) + tuple(arguments) + "R";
}
std::string sizes(const Sizes& values) {
  std::vector<std::string> items;
  for (const auto value : values) items.push_back(number(value));
  return call("torch", "Size", {tuple(items)});
}
std::string object(const std::string& name, const std::string& state) {
  return call("torch.distributed.checkpoint.metadata", name, {}) + state + "b";
}
std::string pickle(const std::string& value) {
  return "\x80\x02" + value + ".";
}

struct Member {
  std::string name, data;
  int method = 0;
};

std::string zip(const std::vector<Member>& members) {
  std::string out, directory;
  for (const auto& [name, data, method] : members) {
    const auto at = out.size();
    const auto middle = little(static_cast<std::uint64_t>(method), 2) + little(0, 8) + little(data.size(), 4) +
                        little(data.size(), 4) + little(name.size(), 2) + little(0, 2);
    out += "PK\3\4" + little(0, 4) + middle + name + data;
    directory += "PK\1\2" + little(0, 6) + middle + little(0, 10) + little(at, 4) + name;
  }
  const auto count = little(members.size(), 2);
  return out + directory + "PK\5\6" + little(0, 4) + count + count + little(directory.size(), 4) +
         little(out.size(), 4) + little(0, 2);
}

std::string floats(const std::vector<float>& values) {
  std::string out(values.size() * 4, '\0');
  std::memcpy(out.data(), values.data(), out.size());
  return out;
}

std::string tensor_value(const Sizes& shape, std::int64_t elements) {
  std::vector<std::string> extents, strides;
  std::int64_t stride = 1;
  for (const auto size : shape) extents.push_back(number(size));
  for (auto i = shape.size(); i-- > 0; stride *= shape[i]) strides.insert(strides.begin(), number(stride));
  return call("torch._utils", "_rebuild_tensor_v2",
              {tuple({text("storage"), named("torch", "FloatStorage"), text("0"), text("cpu"), number(elements)}) + "Q",
               number(0), tuple(extents), tuple(strides), "\x89", call("collections", "OrderedDict", {})});
}

struct Part {
  Sizes offsets, sizes;
  std::vector<float> values;
  std::string record = {};  ///< instead of the archive of these values
};
struct Tensor {
  std::string name;
  Sizes shape;
  std::vector<Part> parts;
};

std::string record_of(const Part& part) {
  if (!part.record.empty()) return part.record;
  return zip({{"archive/data.pkl", pickle(tensor_value(part.sizes, static_cast<std::int64_t>(part.values.size())))},
              {"archive/byteorder", "little"},
              {"archive/data/0", floats(part.values)}});
}

std::string chunk(const Sizes& offsets, const Sizes& extent) {
  return object("ChunkStorageMetadata", dict({text("offsets"), sizes(offsets), text("sizes"), sizes(extent)}));
}
std::string tensor_entry(const Sizes& shape, const std::string& chunks) {
  return object("TensorStorageMetadata",
                dict({text("properties"), object("TensorProperties", tuple({named("torch", "float32"), "N"})),
                      text("size"), sizes(shape), text("chunks"), chunks}));
}
std::string storage_key(const std::string& name, const std::string& place) {
  return object("MetadataIndex", dict({text("fqn"), name, text("offset"), place}));
}
std::string storage_info(const std::string& file, std::size_t offset, std::size_t length) {
  return call("torch.distributed.checkpoint.filesystem", "_StorageInfo", {}) +
         dict({text("relative_path"), text(file), text("offset"), number(static_cast<std::int64_t>(offset)),
               text("length"), number(static_cast<std::int64_t>(length))}) +
         "b";
}
std::string metadata(const std::vector<std::string>& entries, const std::vector<std::string>& storage) {
  return pickle(object("Metadata", dict({text("state_dict_metadata"), dict(entries), text("planner_data"), "}",
                                         text("storage_data"), dict(storage)})));
}

/// A whole folder; a value's record is given as it is.
struct Source {
  std::vector<Tensor> tensors = {};
  std::vector<std::pair<std::string, std::string>> values = {};
  std::string file = "__0_0.distcp";
  std::function<void(std::string& data)> damage = {};

  void write(const TemporaryFolder& folder) const {
    std::string data;
    std::vector<std::string> entries, storage;
    const auto add = [&](const std::string& name, const std::string& place, const std::string& record) {
      storage.push_back(storage_key(text(name), place));
      storage.push_back(storage_info(file, data.size(), record.size()));
      data += record;
    };
    for (const auto& tensor : tensors) {
      std::vector<std::string> chunks;
      for (const auto& part : tensor.parts) {
        chunks.push_back(chunk(part.offsets, part.sizes));
        add(tensor.name, sizes(part.offsets), record_of(part));
      }
      entries.push_back(text(tensor.name));
      entries.push_back(tensor_entry(tensor.shape, list(chunks)));
    }
    for (const auto& [name, record] : values) {
      entries.push_back(text(name));
      entries.push_back(object("BytesStorageMetadata", "}"));
      add(name, "N", record);
    }
    folder.write(".metadata", metadata(entries, storage));
    if (damage) damage(data);
    folder.write("__0_0.distcp", data);
  }
};

std::vector<float> counted(std::int64_t from, std::int64_t count) {
  std::vector<float> out(static_cast<std::size_t>(count));
  std::iota(out.begin(), out.end(), static_cast<float>(from));
  return out;
}

/// Rows 0 and 1 of [3, 4], then two parts of the last one.
Source sound() {
  Source out;
  out.tensors = {
      {"w",
       {3, 4},
       {{{0, 0}, {2, 4}, counted(0, 8)}, {{2, 0}, {1, 2}, counted(8, 2)}, {{2, 2}, {1, 2}, counted(10, 2)}}}};
  out.values = {{"step", zip({{"archive/data.pkl", pickle(number(3))}})}};
  return out;
}

std::vector<float> whole(const ChunkedTensor& tensor, std::int64_t first, std::int64_t count,
                         const RowOrder& order = {}) {
  std::vector<float> out(static_cast<std::size_t>(count), -1.0F);
  for_each_run(tensor, first, count, order, [&](std::int64_t element, std::string_view bytes) {
    std::memcpy(out.data() + element, bytes.data(), bytes.size());
  });
  return out;
}

/// "id: message" of the refusal.
std::string refusal(const Source& source) {
  const TemporaryFolder folder;
  source.write(folder);
  try {
    const DcpFolder read(folder.path());
    for (const auto& [name, tensor] : read.tensors())
      for_each_run(tensor, 0, 1, {}, [](std::int64_t, std::string_view) {});
    return "read";
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kCheckpoint);
    return std::string(error.problems().at(0).id.name()) + ": " + error.problems().at(0).message;
  }
}

std::string of_metadata(const std::string& bytes) {
  const TemporaryFolder folder;
  folder.write(".metadata", bytes);
  try {
    const DcpFolder read(folder.path());
    return "read";
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kCheckpoint);
    return std::string(error.problems().at(0).id.name()) + ": " + error.problems().at(0).message;
  }
}

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

}  // namespace

TEST_CASE("A distributed checkpoint is read back: rows, columns, a window, another order of rows, values") {
  const TemporaryFolder folder;
  sound().write(folder);
  const DcpFolder read(folder.path());
  REQUIRE(read.tensor("w") != nullptr);
  const auto& tensor = *read.tensor("w");
  CHECK(tensor.shape == Sizes{3, 4});
  CHECK(whole(tensor, 0, 12) == counted(0, 12));
  CHECK(whole(tensor, 5, 6) == counted(5, 6));
  CHECK(whole(tensor, 0, 12, [](std::int64_t row) { return 2 - row; }) ==
        std::vector<float>{8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3});
  CHECK(read.number("step") == 3.0);
  CHECK_FALSE(read.number("w"));
  CHECK(read.ranks() == 1);
}

TEST_CASE("What the writer writes is read back: tensors in parts, scalars, values") {
  const TemporaryFolder folder;
  const auto elements = counted(0, 12);
  DcpWriter writer(folder.path(), 2 * 4 * sizeof(float));  // two of three rows
  writer.add_tensor("w", {pickled::text("w")}, ElementType::kF32, {3, 4},
                    [&](std::int64_t first, std::int64_t count, const Sink& sink) {
                      // In pieces, as they are read from files.
                      for (auto row = first; row < first + count; ++row)
                        sink({reinterpret_cast<const char*>(elements.data() + row * 4), 4 * sizeof(float)});
                    });
  const std::int64_t steps = std::int64_t{1} << 40;
  writer.add_tensor("step", {pickled::text("step")}, ElementType::kI64, {},
                    [&](std::int64_t, std::int64_t, const Sink& sink) {
                      sink({reinterpret_cast<const char*>(&steps), sizeof steps});
                    });
  writer.add_value("optimizer.lr", {pickled::text("optimizer"), pickled::text("lr")}, pickled::real(-1.5e-3));
  for (const std::int64_t number : {std::int64_t{-7}, steps + 1})
    writer.add_value(fmt::format("n{}", number), {pickled::text("n")}, pickled::integer(number));
  // More entries than a reader takes at once.
  for (int i = 0; i < 1500; ++i) writer.add_value(fmt::format("v{}", i), {pickled::text("v")}, pickled::none());
  const auto bytes = writer.finish();
  CHECK(bytes == std::filesystem::file_size(folder.path() / "__0_0.distcp") +
                     std::filesystem::file_size(folder.path() / ".metadata"));
  const DcpFolder read(folder.path());
  REQUIRE(read.tensor("w") != nullptr);
  CHECK(read.tensor("w")->chunks.size() == 2);
  CHECK(read.tensor("w")->shape == Sizes{3, 4});
  CHECK(whole(*read.tensor("w"), 0, 12) == elements);
  CHECK(read.number("step") == 1099511627776.0);
  CHECK(read.number("optimizer.lr") == -1.5e-3);
  CHECK(read.number("n-7") == -7);
  CHECK(read.number("n1099511627777") == 1099511627777.0);
  CHECK(read.tensors().size() == 2);
}

TEST_CASE("every name of torchtitan comes back from Hugging Face's") {
  for (const char* family : {"llama", "qwen3"})
    for (const char* name :
         {"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight", "model.layers.11.self_attn.q_proj.weight",
          "model.layers.11.self_attn.k_norm.weight", "model.layers.0.self_attn.v_proj.weight",
          "model.layers.0.mlp.gate_proj.weight", "model.layers.3.post_attention_layernorm.weight"}) {
      INFO(name);
      const auto there = to_titan(name, family);
      REQUIRE(there);
      const auto back = from_titan(there->name, family);
      REQUIRE(back);
      CHECK(back->name == name);
      CHECK(back->paired_rows == there->paired_rows);
    }
  CHECK(to_titan("model.layers.2.self_attn.k_proj.weight", "llama")->name == "layers.2.attention.qkv_linear.wk.weight");
  CHECK(to_titan("lm_head.weight", "llama")->name == "lm_head.weight");
  CHECK_FALSE(to_titan("model.layers.2.mlp.experts.0.up_proj.weight", "llama"));
}

TEST_CASE("torchtitan's rows in pairs become halves of heads, under Hugging Face's names") {
  std::vector<std::int64_t> rows;
  for (std::int64_t row = 0; row < 8; ++row) rows.push_back(unpaired_row(row, 4));
  CHECK(rows == Sizes{0, 2, 1, 3, 4, 6, 5, 7});
  CHECK(from_titan("layers.11.attention.wq.weight", "llama")->paired_rows);
  CHECK_FALSE(from_titan("layers.11.attention.qkv_linear.wk.weight", "qwen3")->paired_rows);
  CHECK(from_titan("layers.11.attention.qkv_linear.wk.weight", "llama")->name ==
        "model.layers.11.self_attn.k_proj.weight");
  CHECK_FALSE(from_titan("layers.11.attention.wv.weight", "llama")->paired_rows);
  CHECK_FALSE(from_titan("optimizer.state.norm.weight.exp_avg", "llama"));
}

TEST_CASE("Pickles that ask for anything but the format's classes are refused by name, and nothing runs") {
  const TemporaryFolder folder;
  const auto made = folder.path() / "made";
  const auto attack = call("os", "system", {text("touch " + made.native())});
  CHECK_THAT(of_metadata(pickle(attack)), StartsWith("checkpoint-damaged: ") && Contains("asks for os.system"));
  CHECK_THAT(of_metadata(pickle(text("posix") + text("system") + "\x93")), Contains("asks for posix.system"));
  CHECK_THAT(of_metadata(pickle(object("Metadata", dict({text("a"), attack})))), Contains("asks for os.system"));
  CHECK_THAT(of_metadata(pickle(named("torch.distributed.checkpoint.metadata", "Metadat"))), Contains("Metadat,"));
  CHECK_THAT(of_metadata("\x80\x02(i__builtin__\neval\n."), Contains("the opcode 0x69"));
  auto source = sound();
  source.values[0].second = zip({{"archive/data.pkl", pickle(attack)}});
  CHECK_THAT(refusal(source), StartsWith("checkpoint-damaged: ") && Contains("asks for os.system"));
  source = sound();
  source.tensors[0].parts[0].record = zip({{"archive/data.pkl", pickle(call("builtins", "getattr", {}))}});
  CHECK_THAT(refusal(source), Contains("asks for builtins.getattr"));
  CHECK_FALSE(std::filesystem::exists(made));
}

TEST_CASE("Pickles that are cut off, nested too deep or inconsistent are refused") {
  for (const std::string& wrong : {std::string(),
                                   std::string("\x80"),
                                   pickle("X" + little(100, 4) + "a"),
                                   pickle(""),
                                   pickle("\x94"),
                                   pickle("NNu"),
                                   pickle("(u"),
                                   pickle("Nh\x05"),
                                   pickle("Nq\x05"),
                                   pickle("Nr" + little(1U << 31U, 4)),
                                   pickle("NNa"),
                                   pickle("NNb"),
                                   pickle("NNR"),
                                   pickle("\x8a\x09" + little(0, 9)),
                                   pickle("Nt"),
                                   pickle(std::string(1000, '(')),
                                   pickle(std::string(200'000, ']')),
                                   pickle("N"),
                                   pickle(tuple({})),
                                   pickle("\x8d" + little(~std::uint64_t{0}, 8))})
    CHECK_THAT(of_metadata(wrong), StartsWith("checkpoint-damaged: "));
  CHECK_THAT(of_metadata(pickle(std::string(200'000, ']'))), Contains("nested too deep"));
  CHECK_THAT(of_metadata(pickle(object("Metadata", "}"))), Contains("no storage_data"));
}

TEST_CASE("Parts that overlap, leave holes or leave their tensor are refused") {
  auto source = sound();
  source.tensors[0].parts[1] = {{1, 0}, {2, 2}, counted(8, 4)};
  CHECK_THAT(refusal(source), StartsWith("checkpoint-damaged: ") && Contains("overlaps another part of 'w'"));
  source = sound();
  source.tensors[0].parts.pop_back();
  CHECK_THAT(refusal(source), StartsWith("checkpoint-damaged: ") && Contains("no part has some elements of 'w'"));
  source = sound();
  source.tensors[0].parts[2] = {{2, 3}, {1, 2}, counted(10, 2)};
  CHECK_THAT(refusal(source), Contains("leaves the [3, 4]"));
  source = sound();
  source.tensors[0].parts[2] = {{2}, {2}, counted(10, 2)};
  CHECK_THAT(refusal(source), Contains("other dimensions"));
  source = sound();
  source.tensors[0].parts.clear();
  CHECK_THAT(refusal(source), Contains("no part has some elements"));
}

TEST_CASE("Absurd sizes are refused before anything is allocated") {
  Source source;
  constexpr std::int64_t kMuch = std::int64_t{1} << 40;
  source.tensors = {{"w", {kMuch, kMuch}, {{{0, 0}, {kMuch, kMuch}, counted(0, 2)}}}};
  CHECK_THAT(refusal(source), Contains("absurd sizes"));
  source.tensors = {{"w", {kMuch}, {{{0}, {kMuch}, counted(0, 2)}}}};
  CHECK_THAT(refusal(source), StartsWith("checkpoint-damaged: ") && Contains("its record only"));
  source.tensors = {{"w", {kMuch, kMuch, 0}, {}}};
  CHECK_THAT(refusal(source), Contains("read"));
  // A grid of 20,000 x 20,000 cells.
  source.tensors = {{"w", {40'000, 40'000}, {}}};
  for (std::int64_t i = 0; i < 20'000; ++i) source.tensors[0].parts.push_back({{2 * i, 2 * i}, {1, 1}, {}, "x"});
  CHECK_THAT(refusal(source), Contains("too many parts"));
}

TEST_CASE("Archives that are cut off, compressed, too short for their storage or of another tensor are refused") {
  const auto part = [](const std::string& record) {
    auto source = sound();
    source.tensors[0].parts[0].record = record;
    return refusal(source);
  };
  const auto value = pickle(tensor_value({2, 4}, 8));
  const auto good = floats(counted(0, 8));
  CHECK(part(zip({{"a/data.pkl", value}, {"a/data/0", good}})) == "read");
  CHECK_THAT(part(zip({{"a/data.pkl", value}, {"a/data/0", good.substr(4)}})),
             StartsWith("checkpoint-damaged: ") && Contains("8 elements is longer than its record of 28 bytes"));
  CHECK_THAT(part(zip({{"a/data.pkl", pickle(tensor_value({2, 4}, 7))}, {"a/data/0", good}})),
             Contains("needs 32 bytes from element 0 of a storage of 28"));
  CHECK_THAT(part(zip({{"a/data.pkl", pickle(tensor_value({2, 4}, std::int64_t{1} << 62))}, {"a/data/0", good}})),
             Contains("is longer than its record"));
  CHECK_THAT(part(zip({{"a/data.pkl", value}})), Contains("no storage '0'"));
  CHECK_THAT(part(zip({{"a/data.pkl", value}, {"../../data/0", good}})), Contains("no storage '0'"));
  CHECK_THAT(part(zip({{"a/data.pkl", value}, {"a/data/0", good, 8}})), Contains("'a/data/0' is compressed"));
  CHECK_THAT(part(zip({{"a/data/0", good}})), Contains("no data.pkl"));
  CHECK_THAT(part(zip({{"a/data.pkl", value}, {"a/byteorder", "big"}, {"a/data/0", good}})),
             Contains("not little-endian"));
  CHECK_THAT(part(zip({{"a/data.pkl", pickle(tensor_value({4, 2}, 8))}, {"a/data/0", good}})),
             StartsWith("checkpoint-damaged: ") && Contains("another tensor than the part"));
  const auto whole = zip({{"a/data.pkl", value}, {"a/data/0", good}});
  for (const std::size_t cut : {std::size_t{1}, std::size_t{22}, std::size_t{60}})
    CHECK_THAT(part(whole.substr(0, whole.size() - cut)),
               StartsWith("checkpoint-damaged: ") && Contains("no whole zip archive"));
  auto wrong = whole;
  wrong.replace(whole.size() - 6, 4, little(0x7FFFFFFF, 4));
  CHECK_THAT(part(wrong), Contains("its directory is elsewhere"));
  wrong = whole;
  wrong.replace(wrong.find("PK\1\2") + 24, 4, little(0x7FFFFFFF, 4));
  CHECK_THAT(part(wrong), Contains("has two sizes"));
  wrong.replace(wrong.find("PK\1\2") + 20, 4, little(0x7FFFFFFF, 4));
  CHECK_THAT(part(wrong), Contains("leaves the archive"));
}

TEST_CASE("Files elsewhere, cut off, or shared by several parts are refused") {
  auto source = sound();
  for (const char* name : {"../__0_0.distcp", "/etc/passwd", "..", "", "a/b"}) {
    source.file = name;
    CHECK_THAT(refusal(source), StartsWith("checkpoint-damaged: ") && Contains("is not the name of a file beside it"));
  }
  source.file = "__1_0.distcp";
  CHECK_THAT(refusal(source), StartsWith("cannot-read: "));
  source = sound();
  source.damage = [](std::string& data) { data.pop_back(); };
  CHECK_THAT(refusal(source), StartsWith("checkpoint-damaged: ") && Contains("before a part of 'step'"));
  // One record as the content of many tensors would grow with each of them.
  const TemporaryFolder folder;
  sound().write(folder);
  auto text_of = folder.read(".metadata");
  const auto begin = "X" + little(6, 4) + "offset\x8a\x08";
  for (auto at = text_of.find(begin); at != std::string::npos; at = text_of.find(begin, at + 1))
    text_of.replace(at + begin.size(), 8, little(0, 8));
  const auto length = "X" + little(6, 4) + "length\x8a\x08";
  const auto data = folder.read("__0_0.distcp");
  for (auto at = text_of.find(length); at != std::string::npos; at = text_of.find(length, at + 1))
    text_of.replace(at + length.size(), 8, little(data.size(), 8));
  folder.write(".metadata", text_of);
  CHECK_THROWS_WITH(DcpFolder(folder.path()), Contains("its parts are together longer than it"));
}

TEST_CASE("A tensor without elements is no number") {
  const TemporaryFolder folder;
  folder.write(".metadata", metadata({text("step"), tensor_entry({0}, list({chunk({0}, {0})}))}, {}));
  const DcpFolder read(folder.path());
  REQUIRE(read.tensor("step") != nullptr);
  CHECK_FALSE(read.number("step"));
}

TEST_CASE("Values that a pickle names again and again do not multiply") {
  const auto remember = [](const std::string& value, int place) { return value + "q" + little(place, 1); };
  const auto recall = [](int place) { return "h" + little(place, 1); };
  // 60,000 parts without elements, of two tensors: one list.
  std::string parts = remember(chunk({0}, {0}), 0);
  for (int i = 1; i < 60'000; ++i) parts += recall(0);
  const auto shared = remember(list({parts}), 1);
  const std::vector<std::string> two = {text("a"), tensor_entry({0}, shared), text("b"), tensor_entry({0}, recall(1))};
  CHECK_THAT(of_metadata(metadata(two, {})),
             StartsWith("checkpoint-damaged: ") && Contains("more parts than there are records"));
  CHECK(of_metadata(metadata({text("a"), tensor_entry({0}, shared)}, {})) == "read");
  // A name of 4 KiB and one byte.
  CHECK_THAT(of_metadata(metadata({text(std::string(4097, 'a')), tensor_entry({0}, "]")}, {})),
             StartsWith("checkpoint-damaged: ") && Contains("a name of more than 4096 bytes"));
  CHECK(of_metadata(metadata({text(std::string(4096, 'a')), tensor_entry({0}, "]")}, {})) == "read");
  CHECK_THAT(of_metadata(metadata({}, {storage_key(text(std::string(4097, 'a')), "N"), storage_info("x", 0, 0)})),
             Contains("a name of more than 4096 bytes"));
  // One entry, and one record, time after time.
  const auto entry = remember(text("a"), 0) + remember(tensor_entry({0}, "]"), 1);
  CHECK_THAT(of_metadata(metadata({entry, recall(0), recall(1)}, {})),
             StartsWith("checkpoint-damaged: ") && Contains("two entries of 'a'"));
  const TemporaryFolder folder;
  folder.write("x", "");
  const auto record = remember(storage_key(text("a"), "N"), 0) + remember(storage_info("x", 0, 0), 1);
  folder.write(".metadata", metadata({}, {record, recall(0), recall(1)}));
  CHECK_THROWS_WITH(DcpFolder(folder.path()), Contains("two records of the same part of 'a'"));
  // A state of 33 members, each of which a lookup would go through.
  std::vector<std::string> members;
  for (int i = 0; i < 33; ++i) {
    members.push_back(text("m" + std::to_string(i)));
    members.push_back("N");
  }
  CHECK_THAT(of_metadata(metadata({}, {object("MetadataIndex", dict(members)), storage_info("x", 0, 0)})),
             StartsWith("checkpoint-damaged: ") && Contains("an object with more than 32 members"));
}

TEST_CASE("Only the parts that have something of a window are read") {
  auto source = sound();
  const TemporaryFolder folder;
  source.tensors[0].parts[1].record = "no archive";
  source.write(folder);
  const DcpFolder read(folder.path());
  const auto& tensor = *read.tensor("w");
  CHECK(whole(tensor, 0, 8) == counted(0, 8));
  CHECK(whole(tensor, 10, 2) == counted(10, 2));
  CHECK_THROWS_WITH(whole(tensor, 7, 2), Contains("no whole zip archive"));
}

TEST_CASE("Offsets of shards are read, and refused if they nest deeper than a stack goes") {
  const auto read = [](const std::string& offsets) -> std::string {
    const std::string header = R"({"__metadata__":{"DCP_SHARDING_INFO":"{\"w\":)" + offsets +
                               R"(}"},"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
    const TemporaryFolder folder;
    std::filesystem::create_directory(folder.path() / "model");
    folder.write("model/shard-00001-model-00001-of-00001.safetensors",
                 little(header.size(), 8) + header + std::string(8, '\0'));
    try {
      const ForeignCheckpoint source(folder.path());
      return "read";
    } catch (const Error& error) {
      return error.problems().at(0).message;
    }
  };
  CHECK(read("[0]") == "read");
  CHECK(read(R"({\"saved_offsets\":[0]})") == "read");
  CHECK_THAT(read("{}"), Contains("does not fit its tensors"));
  CHECK_THAT(read("[0,0]"), Contains("does not fit its tensors"));
  CHECK_THAT(read(std::string(400'000, '[') + std::string(400'000, ']')), Contains("is nested too deep"));
}

namespace {

/// A model of one layer whose head is its embedding, and a run of it: every weight and its moments.
struct SmallRun {
  arch::ModelSpec spec =
      *arch::parse_hf_config(R"({"model_type": "llama", "vocab_size": 6, "hidden_size": 4, "intermediate_size": 4,
        "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "max_position_embeddings": 8,
        "tie_word_embeddings": true})",
                             "config.json")
           .spec;
  arch::Layout layout = arch::layout_of(spec);
  Source source = {};
  std::int64_t batch = 2;

  void add(const std::string& name, const Sizes& shape, const std::vector<float>& values) {
    source.tensors.push_back({name, shape, {{Sizes(shape.size()), shape, values}}});
  }
  SmallRun() {
    for (const auto& parameter : arch::parameters(layout)) {
      if (!parameter.tied_to.empty()) continue;
      const Sizes shape(parameter.shape.begin(), parameter.shape.end());
      const auto values = counted(0, std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>()));
      add(parameter.fqn, shape, values);
      add("optim.state." + parameter.fqn + ".exp_avg", shape, values);
      add("optim.state." + parameter.fqn + ".exp_avg_sq", shape, values);
      add("optim.state." + parameter.fqn + ".step", {}, {3});
    }
    set_step(number(3));
  }
  void set_step(const std::string& value) { source.values = {{"step", zip({{"archive/data.pkl", pickle(value)}})}}; }
  /// All notes, or "id: message".
  std::string import() const {
    const TemporaryFolder folder;
    source.write(folder);
    ImportWish wish{.spec = spec, .layout = layout};
    wish.state.global_batch_size = batch;
    try {
      const ForeignCheckpoint from(folder.path());
      const auto report = import_run(from.run_of(spec, layout), folder.path() / "out", wish);
      std::string out;
      for (const auto& line : report.lines) out += line + "\n";
      return out;
    } catch (const Error& error) {
      CHECK_FALSE(std::filesystem::exists(folder.path() / "out"));
      return std::string(error.problems().at(0).id.name()) + ": " + error.problems().at(0).message;
    }
  }
};

}  // namespace

TEST_CASE("A head that the model ties to its embedding is the embedding, or refused") {
  CHECK(SmallRun().import().empty());
  auto values = counted(0, 24);
  SmallRun same, otherwise, flat;
  same.add("lm_head.weight", {6, 4}, values);
  CHECK(same.import().empty());
  // The head in parts of columns is the same head.
  same.source.tensors.back().parts.clear();
  for (std::int64_t column = 0; column < 4; ++column) {
    same.source.tensors.back().parts.push_back({{0, column}, {6, 1}, {}});
    for (std::int64_t row = 0; row < 6; ++row)
      same.source.tensors.back().parts.back().values.push_back(static_cast<float>(4 * row + column));
  }
  CHECK(same.import().empty());
  values[23] += 1;
  otherwise.add("lm_head.weight", {6, 4}, values);
  CHECK_THAT(otherwise.import(), StartsWith("weights-not-tied: 'lm_head.weight' and 'model.embed_tokens.weight'"));
  flat.add("lm_head.weight", {24}, counted(0, 24));
  CHECK_THAT(flat.import(), StartsWith("weights-not-tied: "));
}

TEST_CASE("An import says which states it leaves out, and that parameters have made different steps") {
  SmallRun run;
  run.add("optim.state.model.norm.weight.square_avg", {4}, counted(0, 4));
  CHECK(run.import() == "1 kinds of states that no optimizer here has are left out, the first is square_avg\n");
  SmallRun uneven;
  for (auto& tensor : uneven.source.tensors)
    if (tensor.name == "optim.state.model.norm.weight.step") tensor.parts[0].values = {1};
  CHECK(uneven.import() == "the optimizer has made 1 to 3 steps, by parameter: all go on from 3\n");
  SmallRun maximum;
  for (const auto& tensor : SmallRun().source.tensors)
    if (tensor.name.ends_with(".exp_avg"))
      maximum.add(std::string(tensor.name).replace(tensor.name.size() - 7, 7, "max_exp_avg_sq"), tensor.shape,
                  tensor.parts[0].values);
  CHECK(maximum.import() == "states max_exp_avg_sq: a run uses them with optimizer.amsgrad: true\n");
}

TEST_CASE("Steps and samples beyond those of any run are refused") {
  SmallRun run;
  run.set_step(number(1'000'000'000'000));
  CHECK(run.import().empty());
  run.batch = std::int64_t{1} << 31U;
  CHECK_THAT(run.import(), StartsWith("checkpoint-missing: ") && Contains("are no number of samples"));
  run.set_step(number(1'000'000'000'001));
  CHECK_THAT(run.import(), StartsWith("checkpoint-missing: ") && Contains("step is not a number of steps"));
}
