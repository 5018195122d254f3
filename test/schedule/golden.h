// Recorded tables of other programs, and tables written down in tests.
#pragma once

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "golden_folder.h"
#include "schedule/action.h"
#include "schedule/csv.h"
#include "schedule/generators.h"

namespace automodel::schedule {

inline std::string golden_path(const std::string& name) {
  return automodel::golden_folder() + "/schedule/" + name;
}

inline std::string read_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  REQUIRE(stream.good());
  std::ostringstream text;
  text << stream.rdbuf();
  return std::move(text).str();
}

inline nlohmann::json golden(const std::string& name) {
  return nlohmann::json::parse(read_file(golden_path(name)));
}

inline std::vector<std::string> rows_text(const Schedule& schedule) {
  std::vector<std::string> out;
  for (const Row& row : schedule) out.push_back(to_text(row));
  return out;
}

/// Parses a table given as its rows, which must be well-formed.
inline Schedule table(const std::vector<std::string>& rows) {
  Schedule out;
  for (const auto& row : rows) {
    CsvTable read = read_csv(row + "\n", "test", CsvFormat::kComputeComms);
    if (!read.problems.empty()) read = read_csv(row + "\n", "test", CsvFormat::kComputeOnly);
    INFO(to_text(read.problems));
    REQUIRE(read.problems.empty());
    out.push_back(read.schedule.at(0));
  }
  return out;
}

inline const Generator& generator_named(const std::string& name) {
  const Generator* row = find_generator(name);
  REQUIRE(row != nullptr);
  return *row;
}

inline std::vector<std::string> ids(const Diagnostics& problems) {
  std::vector<std::string> out;
  for (const auto& problem : problems) out.push_back(problem.id);
  return out;
}

}  // namespace automodel::schedule
