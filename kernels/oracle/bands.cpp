#include "kernels/oracle/bands.h"

#include <algorithm>

#include "kernels/core/error.h"

namespace coda::oracle {

std::vector<Band> bands(std::int64_t rows, std::int64_t row_bytes, std::int64_t unit, std::int64_t budget) {
    const std::int64_t fit = std::max<std::int64_t>(budget, 0) / row_bytes;
    const std::int64_t height = fit >= rows ? rows : fit / unit * unit;
    require(height > 0 || rows == 0, "oracle: ", std::min(unit, rows), " rows of ", row_bytes, " bytes do not fit the ",
            budget, " bytes left of its work space");
    std::vector<Band> cut;
    for (std::int64_t first = 0; first < rows; first += height) cut.push_back({first, std::min(height, rows - first)});
    return cut;
}

}  // namespace coda::oracle
