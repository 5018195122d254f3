// What most tests include, compiled once: half of the time of a test's compilation was these headers, with LibTorch's.
#pragma once

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#ifdef AT_PER_OPERATOR_HEADERS
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/record_function.h>

#include "torch_catch.h"
#else
#include <catch2/catch.hpp>
#endif
