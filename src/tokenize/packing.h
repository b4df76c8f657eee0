// Conversations of different lengths in rows of one length.
#pragma once

#include <cstddef>
#include <vector>

namespace coda {

/// The items of each row, best fit decreasing: the longest item first, each in the row that it leaves the least room
/// in, else in a new one. Of equal ones the earlier comes first. No length is 0 or over `row`.
std::vector<std::vector<std::size_t>> pack_rows(const std::vector<std::size_t>& lengths, std::size_t row);

}  // namespace coda
