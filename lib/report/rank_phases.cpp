#include "report/rank_phases.h"

#include <algorithm>
#include <cmath>
#include <fstream>

#include <nlohmann/json.hpp>

#include "report/run_files.h"

namespace automodel::report {

RankColumns read_ranks(const std::filesystem::path& path) {
  RankColumns out;
  std::size_t ranks = 0;
  std::ifstream file(path, std::ios::binary);
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) continue;
    for (std::size_t phase = 0; phase < out.size(); ++phase) {
      const auto found = json.find(kRankPhases[phase].key);
      if (found == json.end() || !found->is_array()) continue;
      auto& columns = out[phase];
      if (columns.size() < found->size()) columns.resize(found->size());
      for (std::size_t rank = 0; rank < found->size(); ++rank) {
        columns[rank].steps.push_back(json["step"].get<std::int64_t>());
        columns[rank].values.push_back((*found)[rank].is_number() ? (*found)[rank].get<double>() : std::nan(""));
      }
      ranks = std::max(ranks, columns.size());
    }
  }
  for (auto& columns : out) columns.resize(ranks);
  return out;
}

}  // namespace automodel::report
