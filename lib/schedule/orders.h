// The generators listed in the table of generators.cpp, each in the source file of the same name or, if several
// share a construction, of that. Requests must have
// passed check_request(); the check_... functions verify requirements beyond the table's columns.
#pragma once

#include <string>

#include "base/diagnostic.h"
#include "schedule/generators.h"

namespace automodel::schedule::orders {

Schedule gpipe(const Request& request);
Schedule one_f_one_b(const Request& request);
Schedule looped_bfs(const Request& request);
Schedule interleaved_1f1b(const Request& request);
Schedule interleaved_zero_bubble(const Request& request);
Schedule zbv_zero_bubble(const Request& request);
Schedule dual_pipe_v(const Request& request);
Schedule megatron_interleaved(const Request& request);
Schedule zb_h1(const Request& request);
Schedule zb_h2(const Request& request);
Schedule v_half(const Request& request);
Schedule v_min(const Request& request);

Diagnostics check_rounds(const Request& request);
Diagnostics check_dual_pipe_v(const Request& request);
Diagnostics check_megatron_interleaved(const Request& request);

/// "6" or "4 or 6": the nearest legal values below and above `given`, up to `highest`; "" if there are none.
template <class Legal>
std::string nearest_legal(int given, int highest, Legal&& legal) {
  std::string out;
  for (int below = given - 1; below >= 1; --below)
    if (legal(below)) {
      out = std::to_string(below);
      break;
    }
  for (int above = given + 1; above <= highest; ++above)
    if (legal(above)) return out + (out.empty() ? "" : " or ") + std::to_string(above);
  return out;
}

}  // namespace automodel::schedule::orders
