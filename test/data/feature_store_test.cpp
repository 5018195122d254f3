// Files of a tower's outputs: what is read back, and what is noticed when they are cut, changed or written at once.
#include "data/feature_store.h"

#include <chrono>
#include <cstring>
#include <functional>

#include <catch2/catch.hpp>

#include "base/crc32c.h"
#include "base/error.h"
#include "temporary_folder.h"

namespace automodel::data {
namespace {

namespace fs = std::filesystem;

const pictures::PictureContent kFirst = {1, 2}, kSecond = {1, 3}, kThird = {4, 4};

void write(const fs::path& folder, const std::string& key,
           const std::vector<std::pair<pictures::PictureContent, std::string>>& pictures) {
  FeatureWriter writer(folder, key, 4);
  for (const auto& [picture, rows] : pictures) writer.add(picture, rows);
  writer.finish();
}

std::vector<fs::path> files_of(const fs::path& folder) {
  std::vector<fs::path> out;
  for (const auto& each : fs::directory_iterator(folder)) out.push_back(each.path());
  return out;
}

/// Changes the bytes of a record, with checksums that say nothing of it.
void set_bytes(const fs::path& folder, std::size_t record, std::uint64_t bytes) {
  const auto file = files_of(folder).front();
  std::ifstream in(file, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  std::uint64_t data = 0;
  std::memcpy(&data, text.data() + 16, sizeof data);
  const std::size_t records = 40 + data;
  std::memcpy(text.data() + records + record * 32 + 16, &bytes, sizeof bytes);
  const std::uint32_t of_records = crc32c(std::string_view(text).substr(records));
  std::memcpy(text.data() + 32, &of_records, sizeof of_records);
  const std::uint32_t of_header = crc32c(std::string_view(text).substr(0, 36));
  std::memcpy(text.data() + 36, &of_header, sizeof of_header);
  std::ofstream(file, std::ios::binary) << text;
}

std::string id_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return std::string(error.problems().front().id.name());
  }
  return "";
}

}  // namespace

TEST_CASE("outputs of a tower are read as they were written, by key", "[data]") {
  const test::TemporaryFolder folder;
  write(folder.path(), "key", {{kFirst, "aaaabbbb"}, {kSecond, "cccc"}});
  write(folder.path(), "key", {{kThird, "dddd"}});
  write(folder.path(), "key2", {{kThird, "eeee"}});
  const FeatureStore store(folder.path(), "key"), other(folder.path(), "key2"), none(folder.path(), "ke");
  CHECK(store.pictures() == 3);
  CHECK(store.read(kFirst) == "aaaabbbb");
  CHECK(store.read(kSecond) == "cccc");
  CHECK(store.read(kThird) == "dddd");
  CHECK(other.read(kThird) == "eeee");
  CHECK(!other.has(kFirst));
  CHECK(none.pictures() == 0);
  CHECK(store.values(2) == 2);
  CHECK(store.damaged().empty());
  CHECK(store.bytes(kFirst) == 8);
  CHECK(store.bytes(kSecond) == 4);
}

TEST_CASE("a file of outputs that is cut anywhere counts as missing", "[data]") {
  const test::TemporaryFolder folder;
  write(folder.path(), "key", {{kFirst, "aaaabbbb"}, {kSecond, "cccc"}});
  const auto file = files_of(folder.path()).front();
  const auto text = folder.read(file.filename().native());
  for (std::size_t size = 0; size < text.size(); ++size) {
    folder.write(file.filename().native(), text.substr(0, size));
    const FeatureStore store(folder.path(), "key");
    CHECK(store.pictures() == 0);
    CHECK(store.damaged() == std::vector{file});
  }
  write(folder.path(), "key", {{kFirst, "aaaabbbb"}, {kSecond, "cccc"}});  // takes the place of the damaged one
  CHECK(files_of(folder.path()).size() == 1);
  CHECK(FeatureStore(folder.path(), "key").read(kSecond) == "cccc");
}

TEST_CASE("every changed byte of a file of outputs is noticed", "[data]") {
  const test::TemporaryFolder folder;
  write(folder.path(), "key", {{kFirst, "aaaabbbb"}, {kSecond, "cccc"}});
  const auto file = files_of(folder.path()).front();
  const auto text = folder.read(file.filename().native());
  int refused = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    auto changed = text;
    changed[at] = static_cast<char>(changed[at] ^ 4);
    folder.write(file.filename().native(), changed);
    const FeatureStore store(folder.path(), "key");
    if (store.pictures() == 0) continue;
    const auto id = id_of([&] { store.read(kFirst), store.read(kSecond); });
    CHECK(id == "features-damaged");
    ++refused;
  }
  CHECK(refused == 12);  // the rows themselves
}

TEST_CASE("a file of outputs whose sizes cannot be counts as missing, whatever its checksums", "[data]") {
  const std::uint64_t most = ~std::uint64_t{0};
  for (const auto& [first, second] :
       std::vector<std::pair<std::uint64_t, std::uint64_t>>{{8, 8},
                                                            {8, most - 3},
                                                            {8, most - 7},
                                                            {most - 3, 4},
                                                            {8, 2},
                                                            {8, 0},
                                                            {4, 4},
                                                            {12, 4},
                                                            {most - 3, 16},  // 12 in all, beyond 2^64
                                                            {6, 6}}) {       // no whole rows
    INFO(first << " " << second);
    const test::TemporaryFolder folder;
    write(folder.path(), "key", {{kFirst, "aaaabbbb"}, {kSecond, "cccc"}});
    set_bytes(folder.path(), 1, 4);
    CHECK(FeatureStore(folder.path(), "key").read(kSecond) == "cccc");  // the checksums are those that are compared
    set_bytes(folder.path(), 0, first);
    set_bytes(folder.path(), 1, second);
    const FeatureStore store(folder.path(), "key");
    CHECK(!store.has(kFirst));
    CHECK(!store.has(kSecond));
    CHECK(store.damaged().size() == 1);
  }
}

TEST_CASE("a file of outputs that does not count leaves those of others as they were", "[data]") {
  const test::TemporaryFolder folder;
  const auto write_as = [&](std::uint64_t row, const pictures::PictureContent& picture, const char* rows) {
    FeatureWriter writer(folder.path(), "key", row);
    writer.add(picture, rows);
    writer.finish();
  };
  write_as(4, kFirst, "aaaa");
  write_as(3, kSecond, "cccc");  // no whole row
  CHECK(FeatureStore(folder.path(), "key").damaged().size() == 1);
  CHECK(FeatureStore(folder.path(), "key").pictures() == 1);
  CHECK(FeatureStore(folder.path(), "key").read(kFirst) == "aaaa");
  write_as(8, kThird, "bbbbbbbb");  // rows of another size: those of one of the two files
  const FeatureStore store(folder.path(), "key");
  CHECK(store.damaged().size() == 2);
  CHECK(store.pictures() == 1);
  CHECK(store.has(kFirst) != store.has(kThird));
  CHECK(store.read(store.has(kFirst) ? kFirst : kThird).size() == static_cast<std::size_t>(store.values(1)));
}

TEST_CASE("a writer removes what was left unfinished long ago", "[data]") {
  const test::TemporaryFolder folder;
  const auto hours_old = [&](const std::string& name, int hours) {
    const auto path = folder.write(name, "");
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(hours));
    return path;
  };
  const auto dead = hours_old("key.part1-00000000", 30), alive = hours_old("key.part2-00000000", 1);
  const auto other = hours_old("key2.part1-00000000", 30);
  write(folder.path(), "key", {{kFirst, "aaaa"}});
  CHECK(!fs::exists(dead));
  CHECK(fs::exists(alive));
  CHECK(fs::exists(other));
}

TEST_CASE("several writers of the same outputs leave one whole file, an interrupted one none", "[data]") {
  const test::TemporaryFolder folder;
  {
    FeatureWriter a(folder.path(), "key", 4), b(folder.path(), "key", 4), interrupted(folder.path(), "key", 4);
    for (auto* writer : {&a, &b, &interrupted}) writer->add(kFirst, "aaaa");
    CHECK(FeatureStore(folder.path(), "key").pictures() == 0);
    a.finish();
    const FeatureStore early(folder.path(), "key");
    b.finish();  // replaces the file that `early` reads
    CHECK(early.read(kFirst) == "aaaa");
  }
  CHECK(files_of(folder.path()).size() == 1);
  CHECK(FeatureStore(folder.path(), "key").read(kFirst) == "aaaa");
}

TEST_CASE("a folder that cannot be written is named", "[data]") {
  const test::TemporaryFolder folder;
  folder.write("file", "");
  CHECK(id_of([&] { FeatureWriter(folder.path() / "file" / "cache", "key", 4); }) == "cannot-write");
  for (const auto& closed : {folder.path() / "file" / "cache", folder.path() / "file", fs::path("/dev/null/x")}) {
    INFO(closed.native());
    const auto why = closed_to_features(closed);
    REQUIRE(why);
    CHECK(why->id == "cannot-write");
    CHECK_THAT(why->message, Catch::Contains("'" + closed.native() + "'"));
  }
  CHECK(!closed_to_features(folder.path()));
  CHECK(!closed_to_features(folder.path() / "new" / "cache"));
  CHECK(!fs::exists(folder.path() / "new"));
}

}  // namespace automodel::data
