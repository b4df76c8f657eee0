// Catch2 v2 (Debian 12) and v3 (Ubuntu 24.04) under one include.
#pragma once

#ifdef CODA_CATCH2_V3
#include <catch2/catch_all.hpp>
using Catch::Approx;
namespace Catch {
inline auto Contains(const std::string& part) { return Matchers::ContainsSubstring(part); }  // its name in v2
}  // namespace Catch
#else
#include <catch2/catch.hpp>
#endif
